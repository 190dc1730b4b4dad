/** The map of the lake: a table, its neighbourhood, the joins between them, and paths. */

import { api } from "../api/service";
import type { Graph, Paths } from "../api/types";
import { useRequest, type Requested } from "../api/useRequest";
import { Drawing } from "../map/Drawing";
import { lines, onPaths, withPaths } from "../map/graph";
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
  const graph = useRequest(table ? `graph ${JSON.stringify([table, depth, least])}` : null, (signal) =>
    api.graph(table, depth, least, MOST, signal),
  );
  const paths = useRequest(table && to ? `paths ${JSON.stringify([table, to, least])}` : null, (signal) =>
    api.paths(table, to, least, LONGEST, signal),
  );
  return (
    <>
      <Title table={table} />
      <Controls now={now} onChange={change} />
      {table ? (
        <Answer of={graph} label="Drawing the map" lost={<Lost source={{ table }} />}>
          {(data) => <Shown graph={data} paths={paths} now={now} onChange={change} />}
        </Answer>
      ) : (
        <Notice title="Choose a table to start from" icon="map">
          <p>
            The map shows which tables join with it: tables as dots, joins on equal values as lines,
            thicker where more values match.
          </p>
        </Notice>
      )}
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
          <Slider
            label="Minimum joinability"
            value={now.least}
            least={LEAST}
            shown={percent(now.least)}
            onMove={(least) => onChange({ least }, true)}
          />
        </>
      )}
    </div>
  );
}

interface ShownProps {
  graph: Graph;
  paths: Requested<Paths>;
  now: MapState;
  onChange: Change;
}

function Shown({ graph, paths, now, onChange }: ShownProps) {
  const found = now.to ? (paths.data?.paths ?? []) : [];
  const whole = withPaths(graph, found);
  const drawn = lines(whole.edges);
  const pick = (picked: string[]) => onChange({ picked });
  if (drawn.length === 0 && !now.to)
    return graph.truncated ? <Unfinished table={now.table} /> : <Alone least={now.least} onChange={onChange} />;
  return (
    <div class="map">
      <div class="map-side">
        <Drawing graph={whole} centre={now.table} picked={now.picked} path={onPaths(found)} onPick={pick} />
        <p class="hint">
          {counted(whole.nodes.length, "table")}, {counted(drawn.length, "pair")} of tables that join.
          {graph.truncated && ` ${leftOut(graph)}`}
        </p>
      </div>
      <div class="map-panel">
        {now.to && <PathAnswer paths={paths} now={now} onChange={onChange} />}
        {now.picked.length > 0 ? (
          <Picked picked={now.picked} lines={drawn} graph={whole} now={now} onChange={onChange} />
        ) : (
          <JoinList lines={drawn} centre={now.table} onPick={pick} />
        )}
      </div>
    </div>
  );
}

function PathAnswer({ paths, now, onChange }: Omit<ShownProps, "graph">) {
  return (
    <section class="panel" aria-labelledby="paths">
      <div class="panel-head">
        <h2 id="paths">Paths</h2>
        <button type="button" class="quiet small" onClick={() => onChange({ to: "" })}>
          Clear
        </button>
      </div>
      <Answer of={paths} label="Looking for paths">
        {(data) => <PathList paths={data} now={now} />}
      </Answer>
    </section>
  );
}

function Alone({ least, onChange }: { least: number; onChange: Change }) {
  return (
    <Notice
      title="No table joins with this one"
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
        No column shares {percent(least)} of its values with this table, in either direction. The map
        uses equal values only, without row numbers, years and flags; a search also finds similar values.
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
