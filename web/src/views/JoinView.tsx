/** Preview of a join: rows with the new columns marked, options, and ways to get the result. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Latest } from "../api/latest";
import { api } from "../api/service";
import type { ColumnPlace, JoinBody, PairDecision, Preview, Source } from "../api/types";
import { useRequest } from "../api/useRequest";
import { decided, decisionsKey, kept, type Pair } from "../decisions";
import { useLake } from "../lake";
import { Link, navigate } from "../navigate";
import { Choice, Slider, Tick } from "../parts/Choice";
import { Code } from "../parts/Code";
import { DataTable } from "../parts/DataTable";
import { Folding } from "../parts/Folding";
import { Icon } from "../parts/Icon";
import { Name } from "../parts/Name";
import { Answer, asApiError } from "../parts/Notice";
import { Pairs } from "../parts/Pairs";
import { inSight } from "../preview";
import { AGGREGATES, FILTERS, OPTIONS, type Options } from "../route";
import { openUpload } from "../upload";
import { count, counted, explain, firstRows, genericKey, joinWords, percent } from "../words";
import { Download } from "./Download";
import { Lost, useTable } from "./TableView";

interface JoinProps {
  source: Source;
  column: string;
  /** Further columns of a key of several. */
  also?: string[];
  hit: ColumnPlace;
  options: Options;
}

const ROWS = 20;

export function joinBody(
  { source, column, also, hit, options }: JoinProps,
  decisions: PairDecision[],
): JoinBody {
  const similar = options.join !== "equi";
  const aggregate = Object.keys(options.aggregate).length > 0 && options.many === "aggregate";
  return {
    left: source,
    on: also ? [column, ...also] : column,
    hit,
    ...options,
    join: options.join || null,
    // How similar values match says nothing about equal ones, and the service refuses it.
    tau: similar ? options.tau : null,
    matching: similar ? options.matching : OPTIONS.matching,
    precision: judgesPairs(options, also) ? options.precision : null,
    decisions: judgesPairs(options, also) ? decisions : [],
    aggregate: aggregate ? options.aggregate : null,
  };
}

/** Whether pairs have chances: with a threshold or another matching, similarity alone decides. */
function judgesPairs({ join, tau, matching }: Options, also?: string[]): boolean {
  return (join === "" || join === "any") && tau === null && matching === "best" && !also?.length;
}

/** The decisions about pairs with a column, and how to change them. */
function useDecisions(hit: ColumnPlace) {
  const key = decisionsKey(useLake()?.name ?? "", hit);
  const [, setChanged] = useState(0);
  const decisions = kept(localStorage.getItem(key));
  const decide = (pair: Pair, accepted: boolean | null) => {
    localStorage.setItem(key, JSON.stringify(decided(decisions, pair, accepted)));
    setChanged((changes) => changes + 1);
  };
  return { decisions, decide };
}

export function JoinView(props: JoinProps) {
  const { source, column, also, hit, options } = props;
  const { decisions, decide } = useDecisions(hit);
  const body = joinBody(props, decisions);
  const rows = Math.min(ROWS, useLake()?.limits.preview_rows ?? ROWS);
  const preview = useRequest(`join ${rows} ${JSON.stringify(body)}`, (signal) =>
    api.preview(body, rows, signal),
  );
  const change = (part: Partial<Options>, replace = false) =>
    navigate({ view: "join", source, column, ...(also && { also }), hit, options: { ...options, ...part } }, replace);
  return (
    <>
      <Title {...props} />
      <OptionPanel hit={hit} options={options} preview={preview.data} onChange={change} />
      <Answer of={preview} label="Joining" lost={<Lost source={source} />}>
        {(data) => (
          <>
            <Facts preview={data} />
            <GenericKey hit={hit} />
            <Warnings warnings={data.warnings} />
            <Ties preview={data} />
            <Pairs doubtful={data.doubtful} decisions={body.decisions} onDecide={decide} />
            <JoinedTable preview={data} on={column} />
            <div class="getting">
              <section class="panel" aria-labelledby="download">
                <Download
                  title={`Download all ${counted(data.facts.result_rows, "row")}`}
                  file={(...how) => api.download(body, ...how)}
                />
                <GoOn body={body} />
              </section>
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

function Title({ source, column, also = [], hit }: JoinProps) {
  const table = useTable(source);
  const theirs = hit.columns ?? [hit.column];
  const name = table.data?.name ?? ("table" in source ? source.table : "your file");
  return (
    <div class="title">
      <p class="kicker">
        <Link to={{ view: "search", source, column, filters: { ...FILTERS, also } }}>Back to the results</Link>
      </p>
      <h1>
        <Name text={name} /> <Icon name="plus" size={22} />{" "}
        <Link to={{ view: "table", source: { table: hit.table } }}>
          <Name text={hit.table} />
        </Link>
      </h1>
      <p class="hint">
        on{" "}
        {[column, ...also].map((name, place) => (
          <span key={place}>
            {place > 0 && " and "}
            <Name text={name} most={60} class="strong" /> ={" "}
            <Name text={theirs[place] ?? ""} most={60} class="strong" />
          </span>
        ))}
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
      {facts.ambiguous_left_rows > 0 && (
        <Fact name="rows with several good matches">{count(facts.ambiguous_left_rows)}</Fact>
      )}
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

/** Says of a hit that its key matches almost anything, as the search did. */
function GenericKey({ hit }: { hit: ColumnPlace }) {
  const table = useTable({ table: hit.table });
  const column = table.data?.columns.find(({ name }) => name === hit.column);
  const warning = genericKey(column?.generic ?? "");
  return warning ? <Warnings warnings={[warning]} /> : null;
}

/** Keeps the joined table, to find what joins with that. */
function GoOn({ body }: { body: JoinBody }) {
  const latest = useRef(new Latest()).current;
  const [state, setState] = useState({ busy: false, said: "" });
  useEffect(() => () => latest.abort(), []);
  const go = async () => {
    setState({ busy: true, said: "" });
    const outcome = await latest.run((signal) => api.keepJoin(body, signal));
    if (outcome.state === "done") openUpload(outcome.value);
    else if (outcome.state === "failed") setState({ busy: false, said: explain(asApiError(outcome.error)).text });
  };
  return (
    <div class="go-on">
      <button type="button" disabled={state.busy} onClick={() => void go()}>
        <Icon name="plus" /> Join more tables to the result
      </button>
      {state.said && <p class="bad">{state.said}</p>}
    </div>
  );
}

function Warnings({ warnings }: { warnings: string[] }) {
  return (
    <>
      {warnings.map((warning, place) => (
        <p key={place} class="warning" role="status">
          <Icon name="warn" size={16} /> <Name text={warning} most={400} />
        </p>
      ))}
    </>
  );
}

/** Values that may mean several of theirs, for somebody to decide. */
function Ties({ preview }: { preview: Preview }) {
  const ties = preview.facts.several.filter(({ ambiguous }) => ambiguous);
  if (ties.length === 0) return null;
  return (
    <details class="panel ties">
      <summary>{counted(preview.facts.ambiguous_keys, "value")} of yours may mean several of theirs</summary>
      <ul>
        {ties.map(({ query, targets }) => (
          <li key={query}>
            <Name text={query} most={60} class="strong" /> ≈{" "}
            {targets.map((target) => (
              <Name key={target} text={target} most={60} class="chip" />
            ))}
          </li>
        ))}
      </ul>
    </details>
  );
}

function JoinedTable({ preview, on }: { preview: Preview; on: string }) {
  const order = inSight(preview.columns, on);
  const heads = order.map((place) => {
    const { name, type, from } = preview.columns[place]!;
    return { name, type, fresh: from === "right" };
  });
  return (
    <section aria-labelledby="joined">
      <h2 id="joined">
        {firstRows(preview.rows.length, preview.facts.result_rows)}{" "}
        <span class="hint">your key, then the new columns; in the file, all of yours come first</span>
      </h2>
      {preview.rows.length ? (
        <DataTable
          label="Joined rows"
          heads={heads}
          rows={preview.rows.map((row) => order.map((place) => row[place]))}
          pinned
        />
      ) : (
        <p class="hint">No row has a match. Keep rows without a match, or match similar values.</p>
      )}
    </section>
  );
}

interface OptionProps {
  hit: ColumnPlace;
  options: Options;
  preview: Preview | undefined;
  onChange: (part: Partial<Options>, replace?: boolean) => void;
}

function OptionPanel({ hit, options, preview, onChange }: OptionProps) {
  const join = options.join || preview?.facts.join || "any";
  return (
    <Folding title="How to join" class="join-options">
      <div class="options">
        <Choice
          label="Values match if"
          value={join}
          options={(["any", "equi", "semantic"] as const).map((value) => ({ value, label: joinWords(value) }))}
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
        {join !== "equi" && <Alike hit={hit} options={options} preview={preview} onChange={onChange} />}
        <ColumnOptions hit={hit} options={options} onChange={onChange} />
      </div>
    </Folding>
  );
}

/** Which columns to add, and what becomes of each where several rows are summarised. */
function ColumnOptions({ hit, options, onChange }: Omit<OptionProps, "preview">) {
  const table = useTable({ table: hit.table });
  const names = (table.data?.columns ?? []).map(({ name }) => name);
  const added = options.columns ?? names;
  const tick = (name: string, wanted: boolean) => {
    const columns = names.filter((one) => (one === name ? wanted : added.includes(one)));
    if (columns.length) onChange({ columns: columns.length === names.length ? null : columns });
  };
  const summarise = (name: string, how: string) => {
    const { [name]: _, ...others } = options.aggregate;
    const chosen = AGGREGATES.find((one) => one === how);
    onChange({ aggregate: chosen ? { ...others, [name]: chosen } : others });
  };
  return (
    <details class="more column-options">
      <summary>Columns to add{options.columns && ` (${count(options.columns.length)} of ${count(names.length)})`}</summary>
      <ul>
        {names.map((name) => (
          <li key={name}>
            <Tick checked={added.includes(name)} onTick={(wanted) => tick(name, wanted)}>
              <Name text={name} most={40} />
            </Tick>
            {options.many === "aggregate" && added.includes(name) && (
              <select
                aria-label={`Summary of ${name.slice(0, 80)}`}
                value={options.aggregate[name] ?? ""}
                onChange={(event) => summarise(name, event.currentTarget.value)}
              >
                <option value="">mean or list</option>
                {AGGREGATES.map((how) => (
                  <option key={how}>{how}</option>
                ))}
              </select>
            )}
          </li>
        ))}
      </ul>
    </details>
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
      {judgesPairs(options) && (
        <Slider
          label="Minimum precision"
          value={options.precision ?? 0.5}
          shown={options.precision === null ? "any" : percent(options.precision)}
          step={0.01}
          least={0.5}
          hint="Estimated share of right pairs; higher takes fewer similar values."
          onMove={(value) => onChange({ precision: value > 0.5 ? value : null }, true)}
        />
      )}
      <Slider
        label="Minimum similarity"
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
