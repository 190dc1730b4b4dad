/** The map of the lake: a table, its neighbourhood, the joins between them, and paths. */

import { useState } from "preact/hooks";
import { api } from "../api/service";
import type { Graph, Paths, Similar } from "../api/types";
import { useRequest, type Requested } from "../api/useRequest";
import { Drawing } from "../map/Drawing";
import { useLake } from "../lake";
import { lines, onPaths, withEdges, within } from "../map/graph";
import { LEAST, leftOut, LONGEST, MOST } from "../map/says";
import { Link, navigate } from "../navigate";
import { Choice, Slider } from "../parts/Choice";
import { Name } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { TablePicker } from "../parts/TablePicker";
import type { MapState } from "../route";
import { counted, percent } from "../words";
import { JoinList, PathList, Picked } from "./MapDetails";
import { Lost } from "./TableView";

type Change = (part: Partial<MapState>, replace?: boolean) => void;

export function MapView({ table, depth, least, to, picked }: MapState) {
  const now = { table, depth, least, to, picked };
  const change: Change = (part, replace = false) =>
    navigate({ view: "map", ...now, ...part }, replace);
  const graph = useRequest(`graph ${JSON.stringify([table, depth, least])}`, (signal) =>
    api.graph(table, depth, least, MOST, signal),
  );
  const meaning = useLake()?.joins.includes("semantic");
  const similar = useRequest(meaning ? `similar ${JSON.stringify([table, least])}` : null, (signal) =>
    api.similar(table, least, MOST, signal),
  );
  const paths = useRequest(table && to ? `paths ${JSON.stringify([table, to, least])}` : null, (signal) =>
    api.paths(table, to, least, LONGEST, signal),
  );
  return (
    <>
      <Title table={table} />
      <Controls now={now} onChange={change} />
      <Answer of={graph} label="Drawing the map" lost={<Lost source={{ table }} />}>
        {(data) => <Shown graph={data} similar={similar} paths={paths} now={now} onChange={change} />}
      </Answer>
    </>
  );
}

function Title({ table }: { table: string }) {
  return (
    <div class="title">
      <p class="kicker">Map of the lake</p>
      <h1>{table ? <Name text={table} /> : "Which tables join?"}</h1>
    </div>
  );
}

function Controls({ now, onChange }: { now: MapState; onChange: Change }) {
  return (
    <div class="map-controls panel">
      <TablePicker
        label="From table"
        value={now.table}
        onPick={(table) => onChange({ table, picked: [], to: "" })}
      />
      {now.table && (
        <>
          <TablePicker label="Path to table" value={now.to} onPick={(to) => onChange({ to, picked: [] })} />
          <Choice
            label="Number of joins"
            value={String(now.depth)}
            options={["1", "2"].map((value) => ({ value, label: value }))}
            onPick={(depth) => onChange({ depth: Number(depth) })}
          />
        </>
      )}
      <Slider
        label="Minimum joinability"
        value={now.least}
        least={LEAST}
        shown={percent(now.least)}
        onMove={(least) => onChange({ least }, true)}
      />
    </div>
  );
}

interface ShownProps {
  graph: Graph;
  similar: Requested<Similar>;
  paths: Requested<Paths>;
  now: MapState;
  onChange: Change;
}

function Shown({ graph, similar, paths, now, onChange }: ShownProps) {
  const [lit, setLit] = useState(0);
  const found = now.to ? (paths.data?.paths ?? []) : [];
  const byMeaning = similar.stale ? [] : (similar.data?.edges ?? []);
  // The overview shows the tables it has; around a table, those that join by meaning come in too.
  const alike = withEdges(graph, now.table ? byMeaning : within(graph, byMeaning), 1);
  const whole = withEdges(alike, found.flat(), 9);
  const drawn = lines(whole.edges);
  const pick = (picked: string[]) => onChange({ picked });
  if (drawn.length === 0 && !now.to && (similar.data || similar.error || !similar.slow))
    return graph.truncated && now.table ? <Unfinished table={now.table} /> : <Alone now={now} onChange={onChange} />;
  return (
    <div class="map">
      <div class="map-side">
        <Drawing
          graph={whole}
          centre={now.table}
          picked={now.picked}
          path={onPaths([found[lit] ?? found[0] ?? []])}
          onPick={pick}
        />
        <p class="hint" role="status">
          {counted(whole.nodes.length, "table")}, {counted(drawn.length, "pair")} of tables that join.
          {graph.truncated && ` ${leftOut(graph)}`}
          {similar.slow && " Looking for joins by meaning…"}
        </p>
        <p class="legend">
          <span class="stroke" /> equal values <span class="stroke similar" /> similar in meaning
        </p>
        <p class="hint">Thicker where more values match, faint where that is probably a coincidence.</p>
      </div>
      <div class="map-panel">
        {now.to && <PathAnswer paths={paths} now={now} lit={lit} onLight={setLit} onChange={onChange} />}
        {now.picked.length > 0 ? (
          <Picked picked={now.picked} lines={drawn} graph={whole} now={now} onChange={onChange} />
        ) : (
          <JoinList lines={drawn} centre={now.table} onPick={pick} />
        )}
      </div>
    </div>
  );
}

type PathProps = Pick<ShownProps, "paths" | "now" | "onChange"> & { lit: number; onLight: (path: number) => void };

function PathAnswer({ paths, now, lit, onLight, onChange }: PathProps) {
  return (
    <section class="panel" aria-labelledby="paths">
      <div class="panel-head">
        <h2 id="paths">Paths</h2>
        <button type="button" class="quiet small" onClick={() => onChange({ to: "" })}>
          Clear
        </button>
      </div>
      <Answer of={paths} label="Looking for paths">
        {(data) => <PathList paths={data} now={now} lit={lit} onLight={onLight} />}
      </Answer>
    </section>
  );
}

function Alone({ now, onChange }: { now: MapState; onChange: Change }) {
  const { least, table } = now;
  return (
    <Notice
      title={table ? "No table joins with this one" : "No two tables join"}
      icon="map"
      actions={
        least > LEAST && (
          <button type="button" class="primary" onClick={() => onChange({ least: LEAST })}>
            Lower the minimum to {percent(LEAST)}
          </button>
        )
      }
    >
      <p>
        No column shares {percent(least)} of its values with {table ? "this table" : "another"}, in either
        direction. Row numbers, years and flags make no joins on the map.
      </p>
    </Notice>
  );
}

/** Nothing was found, but not everything was looked at. */
function Unfinished({ table }: { table: string }) {
  return (
    <Notice
      title="No join was found before the search stopped"
      icon="map"
      actions={
        <Link to={{ view: "table", source: { table } }} class="button primary">
          Search with one of its columns
        </Link>
      }
    >
      <p>
        The search for joins reached its limit, so this table may join with others after all.
      </p>
    </Notice>
  );
}
