/** Search results: ranked hits, each with its evidence. */

import { api } from "../api/service";
import type { Results, SearchBody, Source, TableDetail } from "../api/types";
import { useRequest } from "../api/useRequest";
import { families, isOpen, listed, rankedBy, searchBody, shownHits, toggled } from "../hits";
import { orderedKeys } from "../keys";
import { useLake } from "../lake";
import { Link, navigate } from "../navigate";
import { CoverageLegend } from "../parts/Coverage";
import { Icon } from "../parts/Icon";
import { Name, WholeName } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { Select } from "../parts/Choice";
import { FILTERS, type Filters, type Route } from "../route";
import { count, counted, percent, shorten } from "../words";
import { FilterPanel } from "./FilterPanel";
import { HitCard } from "./HitCard";
import { Lost, useTable } from "./TableView";

interface SearchProps {
  source: Source;
  column: string;
  filters: Filters;
}

export function SearchView({ source, column, filters }: SearchProps) {
  const table = useTable(source);
  const body = searchBody(source, column, filters, useLake()?.limits.k);
  const results = useRequest<Results>(`search ${JSON.stringify(body)}`, (signal, early) =>
    api.searchInSteps(body, signal, early),
  );
  const change = (part: Partial<Filters>, replace = false) =>
    navigate(address({ source, column, filters: { ...filters, ...part } }), replace);
  return (
    <>
      <Title source={source} column={column} table={table.data} filters={filters} />
      <div class="with-side">
        <FilterPanel filters={filters} onChange={change} />
        <div class="main-side">
          <Answer of={results} label="Searching the lake" lost={<Lost source={source} />}>
            {(found) => (
              <>
                <Unfinished found={found} running={results.early || results.stale} />
                {(found.hits.length > 0 || !results.early) && (
                  <Hits found={found} body={body} source={source} column={column} filters={filters} onChange={change} />
                )}
              </>
            )}
          </Answer>
        </div>
      </div>
    </>
  );
}

function address(props: SearchProps): Route {
  return { view: "search", ...props };
}

interface TitleProps extends SearchProps {
  table: TableDetail | undefined;
}

function Title({ source, column, table, filters }: TitleProps) {
  const keys = table ? orderedKeys(table) : [];
  const name = table?.name ?? ("table" in source ? source.table : "your file");
  const pasted = name === column;
  const key = [column, ...filters.also];
  const others = (table?.columns ?? []).map((one) => one.name).filter((one) => !key.includes(one));
  const go = (picked: string, also: string[]) =>
    navigate(address({ source, column: picked, filters: { ...filters, also, open: FILTERS.open } }));
  return (
    <div class="title">
      <p class="kicker">What joins with</p>
      <h1>
        {pasted && column === "values" ? "your values" : <WholeName text={column} />}
        {filters.also.map((name) => (
          <span key={name}>
            {" and "}
            <WholeName text={name} />
          </span>
        ))}
      </h1>
      <div class="title-row">
        <p class="hint">
          of{" "}
          <Link to={{ view: "table", source }}>{pasted ? "what you pasted" : <Name text={name} />}</Link>
        </p>
        <div class="key-columns">
          {keys.length > 1 && (
            <Select
              label="Column"
              value={column}
              options={keys.map((key) => ({ value: key.name, label: shorten(key.name, 40) }))}
              onPick={(picked) => go(picked, filters.also.filter((name) => name !== picked))}
            />
          )}
          {filters.also.map((name) => (
            <button key={name} type="button" onClick={() => go(column, filters.also.filter((one) => one !== name))}>
              <Icon name="close" size={14} /> <span class="unseen">Take out of the key: </span>
              <Name text={name} most={40} />
            </button>
          ))}
          {others.length > 0 && (
            <Select
              label="and"
              value=""
              options={[
                { value: "", label: "another column…" },
                ...others.map((name) => ({ value: name, label: shorten(name, 40) })),
              ]}
              onPick={(picked) => picked && go(column, [...filters.also, picked])}
            />
          )}
        </div>
      </div>
    </div>
  );
}

/** What an answer lacks, while it is completed or where its time was up. */
function Unfinished({ found, running }: { found: Results; running: boolean }) {
  if (!found.partial) return null;
  const { text } = found.partial;
  return running ? (
    <p class="hint busy" role="status">
      Hits by equal values; similar ones are still being searched…
    </p>
  ) : (
    <p class="warning busy" role="status">
      <Icon name="warn" size={16} /> The time was up: {text}.
    </p>
  );
}

interface HitsProps extends SearchProps {
  found: Results;
  body: SearchBody;
  onChange: (part: Partial<Filters>, replace?: boolean) => void;
}

function Hits({ found, body, source, column, filters, onChange }: HitsProps) {
  const all = listed(found, filters);
  const hits = shownHits(all, filters);
  const unlikely = <Unlikely found={found} filters={filters} onChange={onChange} />;
  if (all.length === 0) return found.unlikely ? unlikely : <NothingJoins filters={filters} onChange={onChange} />;
  if (hits.length === 0) return <AllFiltered found={all.length} onChange={onChange} />;
  const hidden = all.length - hits.length;
  const groups = families(hits);
  const folded = hits.length - groups.length;
  return (
    <>
      <div class="result-line">
        <p role="status">
          {counted(hits.length, filters.grouped ? "table" : "column")}
          {folded > 0 && `, ${count(folded)} folded under similar tables`}
          {hidden > 0 && `, ${hidden} hidden by filters`}
          {found.seconds.total !== undefined && <span class="hint"> in {seconds(found.seconds.total)}</span>}
        </p>
        <CoverageLegend />
      </div>
      <ol class="hits">
        {groups.map(([hit, ...alike]) =>
          hit ? (
            <HitCard
              key={hit.column_id}
              hit={hit}
              alike={alike}
              body={body}
              source={source}
              column={column}
              also={filters.also}
              early={found.partial !== undefined}
              ranked={rankedBy(hit, all)}
              open={isOpen(hit, filters.open)}
              onToggle={() => onChange({ open: toggled(filters.open, hit, all) }, true)}
            />
          ) : null,
        )}
      </ol>
      {unlikely}
      <More found={found} filters={filters} onChange={onChange} />
    </>
  );
}

function seconds(time: number): string {
  return time < 1 ? `${Math.max(1, Math.round(time * 1000))} ms` : `${time.toFixed(1)} s`;
}

function More({ found, filters, onChange }: Pick<HitsProps, "found" | "filters" | "onChange">) {
  const most = useLake()?.limits.k ?? filters.k;
  if (found.hits.length + (found.unlikely?.length ?? 0) < filters.k || filters.k >= most) return null;
  const next = Math.min(most, filters.k * 2);
  return (
    <button type="button" class="wide" onClick={() => onChange({ k: next })}>
      Show up to {next} hits
    </button>
  );
}

/** Shows or hides the hits that a person would hardly make joins of, and says how many there are. */
function Unlikely({ found, filters, onChange }: Pick<HitsProps, "found" | "filters" | "onChange">) {
  const { unlikely } = found;
  if (!unlikely) return null;
  const most = percent(Math.max(...unlikely.map(({ probability }) => probability)));
  return (
    <button type="button" class="wide" onClick={() => onChange({ unlikely: !filters.unlikely }, true)}>
      {filters.unlikely ? "Hide" : "Show"} {counted(unlikely.length, "unlikely hit")}: the chance that a person would
      make these joins is {most} or less
    </button>
  );
}

type Emptiness = Pick<HitsProps, "filters" | "onChange">;

function NothingJoins({ filters, onChange }: Emptiness) {
  const narrow = filters.least > 0;
  const equal = filters.join === "equi";
  return (
    <Notice
      title="Nothing in the lake joins with this column"
      icon="find"
      actions={
        <>
          {narrow && (
            <button type="button" class="primary" onClick={() => onChange({ least: 0 })}>
              Remove the minimum
            </button>
          )}
          {equal && (
            <button type="button" class="primary" onClick={() => onChange({ join: "any" })}>
              Include similar values
            </button>
          )}
        </>
      }
    >
      <p>No column of the lake holds these values{equal ? "" : " or similar ones"}. You can try:</p>
      <ul>
        {narrow && <li>a lower minimum joinability than {Math.round(filters.least * 100)}%</li>}
        {equal && <li>similar values: other spellings, abbreviations, suffixes</li>}
        {filters.tau !== null && <li>a lower minimum similarity, or the default</li>}
        <li>another column of your table, e.g. a code instead of a name</li>
        <li>looking up one of the values in the lake, to see how it is written there</li>
      </ul>
    </Notice>
  );
}

function AllFiltered({ found, onChange }: { found: number; onChange: HitsProps["onChange"] }) {
  return (
    <Notice
      title="The filters hide every hit"
      icon="find"
      actions={
        <button type="button" class="primary" onClick={() => onChange({ brings: "", generic: true })}>
          Show {counted(found, "hit")}
        </button>
      }
    >
      <p>
        None of the {counted(found, "hit")} adds such a column. Raise the number of hits, or enter a
        shorter part of its name.
      </p>
    </Notice>
  );
}
