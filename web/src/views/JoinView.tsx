/** Preview of a join: rows with the new columns marked, options, and ways to get the result. */

import type { ComponentChildren } from "preact";
import { api } from "../api/service";
import type { ColumnPlace, JoinBody, Preview, Source } from "../api/types";
import { useRequest } from "../api/useRequest";
import { useLake } from "../lake";
import { Link, navigate } from "../navigate";
import { Choice, Slider } from "../parts/Choice";
import { Code } from "../parts/Code";
import { DataTable } from "../parts/DataTable";
import { Icon } from "../parts/Icon";
import { Name } from "../parts/Name";
import { Answer } from "../parts/Notice";
import { FILTERS, type Options } from "../route";
import { count, firstRows, onPage, percent } from "../words";
import { Download } from "./Download";
import { Lost, useTable } from "./TableView";

interface JoinProps {
  source: Source;
  column: string;
  hit: ColumnPlace;
  options: Options;
}

const ROWS = 20;

export function joinBody({ source, column, hit, options }: JoinProps): JoinBody {
  return { left: source, on: column, hit, ...options, join: options.join || null };
}

export function JoinView(props: JoinProps) {
  const { source, column, hit, options } = props;
  const body = joinBody(props);
  const rows = Math.min(ROWS, useLake()?.limits.preview_rows ?? ROWS);
  const preview = useRequest(`join ${rows} ${JSON.stringify(body)}`, (signal) =>
    api.preview(body, rows, signal),
  );
  const change = (part: Partial<Options>, replace = false) =>
    navigate({ view: "join", source, column, hit, options: { ...options, ...part } }, replace);
  return (
    <>
      <Title {...props} />
      <OptionPanel options={options} preview={preview.data} onChange={change} />
      <Answer of={preview} label="Joining" lost={<Lost source={source} />}>
        {(data) => (
          <>
            <Facts preview={data} />
            <Warnings warnings={data.warnings} />
            <JoinedTable preview={data} />
            <div class="getting">
              <Download body={body} rows={data.facts.result_rows} />
              <section class="panel" aria-labelledby="same">
                <h2 id="same">Do the same elsewhere</h2>
                <Code snippets={snippets(data)} />
              </section>
            </div>
          </>
        )}
      </Answer>
    </>
  );
}

function snippets({ python, pandas, sql, shell }: Preview) {
  return [
    { name: "Python", text: python },
    { name: "pandas", text: pandas },
    { name: "SQL", text: sql },
    { name: "Shell", text: shell },
  ].filter(({ text }) => text);
}

function Title({ source, column, hit }: JoinProps) {
  const table = useTable(source);
  const name = table.data?.name ?? ("table" in source ? source.table : "your file");
  return (
    <div class="title">
      <p class="kicker">
        <Link to={{ view: "search", source, column, filters: FILTERS }}>Back to the results</Link>
      </p>
      <h1>
        <Name text={name} /> <Icon name="plus" size={22} />{" "}
        <Link to={{ view: "table", source: { table: hit.table } }}>
          <Name text={hit.table} />
        </Link>
      </h1>
      <p class="hint">
        on <Name text={column} most={60} class="strong" /> ={" "}
        <Name text={hit.column} most={60} class="strong" />
      </p>
    </div>
  );
}

function Facts({ preview }: { preview: Preview }) {
  const { facts, columns } = preview;
  const fresh = columns.filter((column) => column.from === "right").length;
  const share = facts.left_rows ? facts.matched_left_rows / facts.left_rows : 0;
  return (
    <dl class="facts" aria-label="The join in numbers">
      <Fact name="rows in the result">{count(facts.result_rows)}</Fact>
      <Fact name={`of your ${count(facts.left_rows)} rows have a match`}>{percent(share)}</Fact>
      <Fact name={fresh === 1 ? "new column" : "new columns"}>{count(fresh)}</Fact>
      <Fact name={`${facts.max_fan_out === 1 ? "row" : "rows"} of theirs, at most, for one value`}>{count(facts.max_fan_out)}</Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Warnings({ warnings }: { warnings: string[] }) {
  return (
    <>
      {warnings.map((warning, place) => (
        <p key={place} class="warning" role="status">
          <Icon name="warn" size={16} /> <Name text={onPage(warning)} most={400} />
        </p>
      ))}
    </>
  );
}

function JoinedTable({ preview }: { preview: Preview }) {
  const heads = preview.columns.map(({ name, type, from }) => ({
    name,
    type,
    fresh: from === "right",
  }));
  return (
    <section aria-labelledby="joined">
      <h2 id="joined">
        {firstRows(preview.rows.length, preview.facts.result_rows)}{" "}
        <span class="hint">new columns are highlighted</span>
      </h2>
      {preview.rows.length ? (
        <DataTable label="Joined rows" heads={heads} rows={preview.rows} />
      ) : (
        <p class="hint">No row has a match. Keep rows without a match, or match similar values.</p>
      )}
    </section>
  );
}

interface OptionProps {
  options: Options;
  preview: Preview | undefined;
  onChange: (part: Partial<Options>, replace?: boolean) => void;
}

function OptionPanel({ options, preview, onChange }: OptionProps) {
  const join = options.join || preview?.facts.join || "equi";
  return (
    <section class="panel options" aria-label="How to join">
      <Choice
        label="Values match if"
        value={join}
        options={[
          { value: "equi", label: "equal" },
          { value: "semantic", label: "similar" },
        ]}
        onPick={(picked) => onChange({ join: picked })}
      />
      <Choice
        label="Rows without a match"
        value={options.how}
        options={[
          { value: "left", label: "keep" },
          { value: "inner", label: "drop" },
        ]}
        onPick={(how) => onChange({ how })}
      />
      <Choice
        label="If several rows match"
        value={options.many}
        options={[
          { value: "expand", label: "keep all" },
          { value: "first", label: "keep first" },
          { value: "aggregate", label: "summarise" },
        ]}
        onPick={(many) => onChange({ many })}
      />
      {join === "semantic" && <Alike options={options} preview={preview} onChange={onChange} />}
    </section>
  );
}

function Alike({ options, preview, onChange }: OptionProps) {
  const tau = options.tau ?? preview?.facts.tau ?? 0.7;
  return (
    <>
      <Choice
        label="If several values are similar"
        value={options.matching}
        options={[
          { value: "best", label: "best" },
          { value: "one-to-one", label: "one-to-one" },
          { value: "all", label: "all" },
        ]}
        onPick={(matching) => onChange({ matching })}
      />
      <Slider
        label="Similarity (tau)"
        value={tau}
        shown={tau.toFixed(2)}
        step={0.01}
        least={0.3}
        hint="Higher is stricter."
        onMove={(value) => onChange({ tau: value }, true)}
      />
    </>
  );
}
