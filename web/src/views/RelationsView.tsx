/** Keys and foreign keys of the lake: a diagram, and a list where people accept and reject them. */

import { api } from "../api/service";
import type { Diagram, Relation, Relations } from "../api/types";
import { useRequest } from "../api/useRequest";
import { navigate } from "../navigate";
import { Slider } from "../parts/Choice";
import { Judge } from "../parts/Judge";
import { Name } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { count, counted, percent, seen, shorten } from "../words";

/** From this probability on, a line is solid. */
const SURE = 0.8;

export function RelationsView({ least }: { least: number }) {
  const found = useRequest(`relations ${least}`, (signal) => api.relations(least, signal));
  return (
    <>
      <div class="title">
        <p class="kicker">Relations</p>
        <h1>Which tables refer to which?</h1>
      </div>
      <div class="map-controls panel">
        <Slider
          label="Minimum probability"
          value={least}
          shown={percent(least)}
          hint="The chance that a person who knows both tables would make the join."
          onMove={(moved) => navigate({ view: "relations", least: moved }, true)}
        />
      </div>
      <Answer of={found} label="Finding relations">
        {(data) => <Shown found={data} />}
      </Answer>
    </>
  );
}

function Shown({ found }: { found: Relations }) {
  return (
    <>
      {found.relations.length === 0 && (
        <Notice title="No relations of this probability" icon="map">
          <p>Lower the minimum probability to see more.</p>
        </Notice>
      )}
      {found.diagram.lines.length > 0 && <Drawn diagram={found.diagram} />}
      {found.relations.length > 0 && <List found={found} />}
      {found.rejected.length > 0 && (
        <section class="panel" aria-labelledby="rejected">
          <h2 id="rejected">Rejected by people</h2>
          <ul class="relations">
            {found.rejected.map((one, place) => (
              <li key={place}>
                <Ends child={[one.child_table, one.child_columns]} parent={[one.parent_table, one.parent_columns]} />
                <Judge
                  child={{ table: one.child_table, columns: one.child_columns }}
                  parent={{ table: one.parent_table, columns: one.parent_columns }}
                  decided="rejected"
                  what={`the join of ${one.child_table} and ${one.parent_table}`}
                />
              </li>
            ))}
          </ul>
        </section>
      )}
      {found.notes.map((note) => (
        <p key={note} class="hint">
          {note}
        </p>
      ))}
    </>
  );
}

function List({ found }: { found: Relations }) {
  return (
    <section class="panel" aria-labelledby="relations">
      <h2 id="relations">{counted(found.total, "relation")}</h2>
      <ul class="relations">
        {found.relations.map((one, place) => (
          <li key={place}>
            <Ends child={[one.child_table, one.child_columns]} parent={[one.parent_table, one.parent_columns]} />
            <Facts relation={one} />
            <Judge
              child={{ table: one.child_table, columns: one.child_columns }}
              parent={{ table: one.parent_table, columns: one.parent_columns }}
              decided={one.decided}
              what={`the relation of ${one.child_table} to ${one.parent_table}`}
            />
          </li>
        ))}
      </ul>
      {found.total > found.relations.length && (
        <p class="hint">and {count(found.total - found.relations.length)} more that are less likely</p>
      )}
    </section>
  );
}

type Side = [table: string, columns: string[]];

function Ends({ child, parent }: { child: Side; parent: Side }) {
  return (
    <p class="relation-ends">
      <End side={child} /> <span class="hint">refers to</span> <End side={parent} />
    </p>
  );
}

function End({ side: [table, columns] }: { side: Side }) {
  return (
    <span>
      {table ? <Name text={table} most={50} /> : <span class="hint">your tables</span>}{" "}
      <Name text={columns.join(" + ")} most={50} class="strong" />
    </span>
  );
}

function Facts({ relation: one }: { relation: Relation }) {
  const evidence = ["name", "values"].flatMap((what) => one.evidence[what] ?? []);
  return (
    <p class="hint">
      <span class="badge">{percent(one.probability)}</span> <span class="badge">{one.cardinality}</span>{" "}
      {one.declared && <span class="badge">declared</span>} {evidence.join("; ")}
      {one.orphans > 0 && `; ${counted(one.orphans, "row")} without a parent`}
    </p>
  );
}

/** Tables as boxes with their keys, relations as lines with crow's feet. */
function Drawn({ diagram }: { diagram: Diagram }) {
  const { width, height, tables, lines } = diagram;
  return (
    <section class="panel" aria-labelledby="diagram">
      <h2 id="diagram">Diagram</h2>
      <div class="diagram" tabIndex={0} role="group" aria-label="Diagram of tables and relations">
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">
          {lines.map((line, place) => (
            <g key={place} class={line.probability < SURE ? "unsure" : ""}>
              <title>{seen(line.text)}</title>
              <path class="diagram-line" d={line.path} />
              <path class="diagram-end" d={line.child_end + line.parent_end} />
            </g>
          ))}
          {tables.map((box) => (
            <g key={box.table}>
              <title>{seen(box.table)}</title>
              <rect class="diagram-box" x={box.x} y={box.y} width={box.width} height={box.height} rx={3} />
              <text class="diagram-title" x={box.x + 10} y={box.y + 16}>
                {seen(box.title)}
              </text>
              {box.columns.map((column) => (
                <g key={column.name}>
                  <text x={box.x + 10} y={column.y + 14}>
                    {seen(shorten(column.name, 30))}
                  </text>
                  <text class="diagram-mark" x={box.x + box.width - 10} y={column.y + 14} text-anchor="end">
                    {[column.is_key && "PK", column.is_foreign && "FK"].filter(Boolean).join(" ")}
                  </text>
                </g>
              ))}
            </g>
          ))}
        </svg>
      </div>
      {diagram.left_out > 0 && <p class="hint">{counted(diagram.left_out, "table")} with fewer relations not drawn.</p>}
    </section>
  );
}
