/** The map as a picture one can walk through with a mouse or the keyboard. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Graph } from "../api/types";
import { lastPart, percent, seen, shorten } from "../words";
import { isPicked, LIKELY, lines, type Line } from "./graph";
import { layOut, placeLabels, type Place } from "./layout";

interface DrawingProps {
  graph: Graph;
  centre: string;
  picked: string[];
  path: Set<string>;
  onPick: (tables: string[]) => void;
}

export function Drawing({ graph, centre, picked, path, onPick }: DrawingProps) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const box = { width, height: Math.round(Math.min(620, Math.max(380, width * 0.68))) };
  const kindOf = (line: Line): Kind => {
    if (path.has(JSON.stringify(line.tables))) return "on-path";
    return !centre || line.tables.includes(centre) ? "near" : "far";
  };
  const drawn = useMemo(() => lines(graph.edges), [graph]);
  const places = useMemo(() => layOut(graph.nodes, drawn, box), [graph, drawn, width]);
  const passed = new Set([...path].flatMap((tables) => JSON.parse(tables) as string[]));
  const at = new Map(places.map((place) => [place.table, place]));
  const labels = placeLabels(places, labelText, box);
  return (
    <div class="map-frame" ref={frame}>
      <svg viewBox={`0 0 ${box.width} ${box.height}`} width={box.width} height={box.height} role="group" aria-label="Map of joins">
        {inLayers(drawn, kindOf).map((line) => (
          <LineMark
            key={line.tables.join("\n")}
            line={line}
            ends={line.tables.map((table) => at.get(table))}
            picked={isPicked(line, picked)}
            kind={kindOf(line)}
            onPick={() => onPick(line.tables)}
          />
        ))}
        {places.map((place) => (
          <NodeMark
            key={place.table}
            place={place}
            kind={place.table === centre ? "centre" : passed.has(place.table) ? "on-path" : place.distance > 1 ? "far" : "near"}
            picked={picked.length === 1 && picked[0] === place.table}
            onPick={() => onPick([place.table])}
          />
        ))}
        {labels.map(({ table, x, y }) => (
          <text key={table} class={table === centre ? "map-label centre" : "map-label"} x={x} y={y} direction="ltr">
            {labelText(table)}
          </text>
        ))}
      </svg>
    </div>
  );
}

type Kind = "far" | "near" | "on-path";
const LAYERS: readonly Kind[] = ["far", "near", "on-path"];

/** Draws joins of the table in the middle over others, and paths over both. */
function inLayers(all: Line[], kindOf: (line: Line) => Kind): Line[] {
  return LAYERS.flatMap((layer) => all.filter((line) => kindOf(line) === layer));
}

function labelText(table: string): string {
  return shorten(seen(lastPart(table)), 22);
}

function useWidth(frame: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(720);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(Math.max(280, Math.floor(element.clientWidth))));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return width;
}

interface LineProps {
  line: Line;
  ends: (Place | undefined)[];
  picked: boolean;
  kind: Kind;
  onPick: () => void;
}

function LineMark({ line, ends, picked, kind, onPick }: LineProps) {
  const [a, b] = ends;
  if (!a || !b) return null;
  const across = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
  const how = line.similar ? " by meaning" : "";
  const chance = line.chance < LIKELY ? `, probably a coincidence` : "";
  const label = `Join${how} of ${shorten(a.table, 60)} and ${shorten(b.table, 60)}, ${percent(line.best)}${chance}`;
  const marks = `${line.similar ? " similar" : ""}${line.chance < LIKELY ? " unlikely" : ""}`;
  return (
    <g class={marked(`map-line ${kind}${marks}`, picked)} {...pressed(label, picked, onPick)}>
      <title>{label}</title>
      <line class="map-reach" {...across} />
      <line class="map-stroke" {...across} stroke-width={kind === "far" ? 1 : 0.5 + 3 * line.best} />
    </g>
  );
}

interface NodeProps {
  place: Place;
  kind: "centre" | "on-path" | "near" | "far";
  picked: boolean;
  onPick: () => void;
}

const RADII = { centre: 9, "on-path": 8, near: 7, far: 5 };

function NodeMark({ place, kind, picked, onPick }: NodeProps) {
  const label = `Table ${shorten(seen(place.table), 80)}`;
  return (
    <g class={marked(`map-node ${kind}`, picked)} {...pressed(label, picked, onPick)}>
      <title>{label}</title>
      <circle class="map-reach" cx={place.x} cy={place.y} r={14} />
      <circle class="map-dot" cx={place.x} cy={place.y} r={RADII[kind]} />
    </g>
  );
}

function marked(kind: string, picked: boolean): string {
  return picked ? `${kind} picked` : kind;
}

function pressed(label: string, picked: boolean, onPick: () => void) {
  return {
    role: "button" as const,
    // In lower case: names of attributes are case-sensitive in SVG.
    tabindex: 0,
    "aria-label": label,
    "aria-pressed": picked,
    onClick: onPick,
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onPick();
    },
  };
}
