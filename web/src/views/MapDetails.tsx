/** What the map says in words: the picked join or table, all joins, and paths. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Latest } from "../api/latest";
import { api } from "../api/service";
import { useRequest } from "../api/useRequest";
import type { Edge, Graph, Paths } from "../api/types";
import { noPath } from "../map/says";
import { flipped, isPicked, strength, turned, type Line } from "../map/graph";
import { joinAlong } from "../map/run";
import { Link, navigate } from "../navigate";
import { Code } from "../parts/Code";
import { Icon } from "../parts/Icon";
import { Judge } from "../parts/Judge";
import { Name } from "../parts/Name";
import { Answer, asApiError } from "../parts/Notice";
import { FILTERS, OPTIONS, type MapState } from "../route";
import { cardinalityBetween, count, counted, explain, percent, size } from "../words";

const LISTED = 30;

interface PickedProps {
  picked: string[];
  lines: Line[];
  graph: Graph;
  now: MapState;
  onChange: (part: Partial<MapState>) => void;
}

export function Picked({ picked, lines, graph, now, onChange }: PickedProps) {
  const line = lines.find((one) => isPicked(one, picked));
  return (
    <section class="panel" aria-labelledby="picked">
      <div class="panel-head">
        <h2 id="picked">{picked.length === 2 ? "A join" : "A table"}</h2>
        <button type="button" class="quiet small" onClick={() => onChange({ picked: [] })}>
          All joins
        </button>
      </div>
      {line ? (
        <ul class="edges">
          {line.edges.map((edge, place) => (
            <EdgeDetails key={place} edge={edge.a.table === now.table ? edge : facing(edge, now.table)} />
          ))}
        </ul>
      ) : picked.length === 2 ? (
        <p class="hint">The map has no join between these two tables.</p>
      ) : (
        <TableDetails table={picked[0] ?? ""} graph={graph} now={now} onChange={onChange} />
      )}
    </section>
  );
}

function facing(edge: Edge, table: string): Edge {
  return edge.b.table === table ? flipped(edge) : edge;
}

function EdgeDetails({ edge }: { edge: Edge }) {
  return (
    <li class="edge">
      <ColumnLine place={edge.a} share={edge.joinability} />
      <ColumnLine place={edge.b} share={edge.reverse} />
      <p class="hint">
        {counted(edge.matched, edge.join ? "similar value" : "shared value")}. <span class="badge">{edge.cardinality}</span>{" "}
        {cardinalityBetween(edge.cardinality)} Probability {percent(edge.probability ?? 0)}.
      </p>
      <div class="actions">
        <Link
          class="button"
          to={{
            view: "join",
            source: { table: edge.a.table },
            column: edge.a.column,
            hit: edge.b,
            options: { ...OPTIONS, join: edge.join ?? "equi" },
          }}
        >
          Preview the join
        </Link>
        <Judge
          child={{ table: edge.a.table, columns: [edge.a.column] }}
          parent={{ table: edge.b.table, columns: [edge.b.column] }}
          decided={edge.decided}
          what={`the join of ${edge.a.column} and ${edge.b.column}`}
        />
      </div>
    </li>
  );
}

function ColumnLine({ place, share }: { place: Edge["a"]; share: number }) {
  return (
    <div class="edge-column">
      <span class="edge-names">
        <Link to={{ view: "search", source: { table: place.table }, column: place.column, filters: FILTERS }}>
          <Name text={place.column} most={40} class="strong" />
        </Link>
        <Name text={place.table} most={50} class="hint" />
      </span>
      <span class="edge-share">{percent(share)}</span>
      <span class="bar" role="img" aria-label={`${percent(share)} of its values are in the other`}>
        <span class="bar-equal" style={{ width: `${share * 100}%` }} />
      </span>
    </div>
  );
}

type TableProps = Omit<PickedProps, "picked" | "lines"> & { table: string };

function TableDetails({ table, graph, now, onChange }: TableProps) {
  const node = graph.nodes.find((one) => one.table === table);
  return (
    <>
      <p>
        <Name text={table} class="strong" />
      </p>
      {node && node.columns > 0 && (
        <p class="hint">{size(node.rows, node.columns)}</p>
      )}
      <div class="actions">
        <Link class="button primary" to={{ view: "table", source: { table } }}>
          Open the table
        </Link>
        {table !== now.table && (
          <button type="button" onClick={() => onChange({ table, picked: [], to: "" })}>
            Centre the map here
          </button>
        )}
        {now.table && table !== now.table && (
          <button type="button" onClick={() => onChange({ to: table, picked: [] })}>
            Find paths to it
          </button>
        )}
      </div>
    </>
  );
}

interface ListProps {
  lines: Line[];
  centre: string;
  onPick: (tables: string[]) => void;
}

/** All pairs of tables as a list, for those who do not see or aim at thin lines. */
export function JoinList({ lines, centre, onPick }: ListProps) {
  const near = lines.filter((line) => !centre || line.tables.includes(centre));
  const rest = lines.filter((line) => !near.includes(line));
  return (
    <section class="panel" aria-labelledby="joins">
      <h2 id="joins">
        {centre ? counted(near.length, "joinable table") : counted(near.length, "pair of tables", "pairs of tables")}
      </h2>
      <p class="hint">Coverage of each column by the other. Select a line, a dot, or an entry below.</p>
      <Pairs lines={near} centre={centre} onPick={onPick} />
      {rest.length > 0 && (
        <details class="more">
          <summary>{counted(rest.length, "join")} between the other tables</summary>
          <Pairs lines={rest} centre={centre} onPick={onPick} />
        </details>
      )}
    </section>
  );
}

function Pairs({ lines, centre, onPick }: ListProps) {
  return (
    <>
      <ul class="join-list">
        {lines.slice(0, LISTED).map((line) => (
          <li key={line.tables.join("\n")}>
            <button type="button" onClick={() => onPick(line.tables)}>
              <PairName line={line} centre={centre} />
            </button>
          </li>
        ))}
      </ul>
      {lines.length > LISTED && <p class="hint">and {lines.length - LISTED} more on the map</p>}
    </>
  );
}

function PairName({ line, centre }: { line: Line; centre: string }) {
  const best = line.edges[0];
  if (!best) return null;
  const edge = facing(best, centre);
  return (
    <>
      <span>
        {edge.a.table !== centre && <Name text={edge.a.table} most={40} />}
        <Name text={edge.b.table} most={40} />
        <span class="hint">
          <Name text={edge.a.column} most={20} /> {edge.join ? "≈" : "="}{" "}
          <Name text={edge.b.column} most={20} />
        </span>
      </span>
      <span class="edge-share">
        {percent(edge.joinability)} · {percent(edge.reverse)}
      </span>
    </>
  );
}

interface PathsProps {
  paths: Paths;
  now: MapState;
  /** The path that is drawn. */
  lit: number;
  onLight: (path: number) => void;
}

export function PathList({ paths, now, lit, onLight }: PathsProps) {
  const from = now.table;
  if (paths.paths.length === 0)
    return (
      <p class="hint">
        <Name text={now.to} most={50} class="strong" />: {noPath(paths, now)}
      </p>
    );
  return (
    <ol class="paths">
      {paths.paths.map((path, place) => (
        <li key={place} class={place === lit ? "lit" : ""}>
          <PathSteps path={turned(path, from)} from={from} />
          <p class="hint">
            Probability {percent(paths.probabilities[place] ?? 0)}
            {rowsOf(paths.fan_outs[place] ?? 1)}
          </p>
          <div class="actions">
            <RunPath path={turned(path, from)} />
            {paths.paths.length > 1 && (
              <button type="button" class="quiet" aria-pressed={place === lit} onClick={() => onLight(place)}>
                Show on the map<span class="unseen"> path {place + 1}</span>
              </button>
            )}
          </div>
          <PathSql path={turned(path, from)} number={place + 1} />
        </li>
      ))}
    </ol>
  );
}

/** Makes the joins of a path but the last, and leads to the preview of that. */
function RunPath({ path }: { path: Edge[] }) {
  const latest = useRef(new Latest()).current;
  const [state, setState] = useState({ busy: "", failed: "" });
  useEffect(() => () => latest.abort(), []);
  const run = async () => {
    const outcome = await latest.run((signal) =>
      joinAlong(api, path, signal, (step) => setState({ busy: `Join ${step} of ${path.length}…`, failed: "" })),
    );
    if (outcome.state === "done") navigate(outcome.value);
    else if (outcome.state === "failed") setState({ busy: "", failed: explain(asApiError(outcome.error)).text });
  };
  return (
    <>
      <button type="button" disabled={state.busy !== ""} onClick={() => void run()}>
        {path.length === 1 ? "Preview the join" : "Join along this path"}
      </button>
      {(state.busy || state.failed) && (
        <span class={state.failed ? "bad" : "hint"} role="status">
          {state.busy || state.failed}
        </span>
      )}
    </>
  );
}

/** How many rows one row of the start becomes. */
function rowsOf(fanOut: number): string {
  return fanOut > 1 ? `, about ${fanOut < 10 ? fanOut.toFixed(1) : count(fanOut)} rows for each row` : "";
}

/** The whole path as one statement, once it is asked for. */
function PathSql({ path, number }: { path: Edge[]; number: number }) {
  const [open, setOpen] = useState(false);
  const key = JSON.stringify(path.map(({ a, b }) => [a.table, a.column, b.table, b.column]));
  const joined = useRequest(open ? `path ${key}` : null, (signal) => api.joinPath(path, 0, signal));
  return (
    <>
      <button type="button" class="quiet small" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Hide SQL" : "Show SQL"}
        <span class="unseen"> of path {number}</span>
      </button>
      {open && (
        <Answer of={joined} label="Writing the SQL">
          {(data) => (
            <>
              <p class="hint">{counted(data.total, "row")} result.</p>
              <Code snippets={[{ name: "SQL", text: data.sql }]} />
            </>
          )}
        </Answer>
      )}
    </>
  );
}

function PathSteps({ path, from }: { path: Edge[]; from: string }) {
  return (
    <ol class="path">
      <li>
        <Name text={from} most={50} class="strong" />
      </li>
      {path.map((edge, place) => (
        <li key={place}>
          <span class="hint">
            <Icon name="next" size={13} /> <Name text={edge.a.column} most={30} /> ={" "}
            <Name text={edge.b.column} most={30} />, {percent(strength(edge))}
          </span>
          <Name text={edge.b.table} most={50} class="strong" />
        </li>
      ))}
    </ol>
  );
}
