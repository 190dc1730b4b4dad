/** A hit as a card: its names, how well it joins, the evidence, and what it would add. */

import { useState } from "preact/hooks";
import { api } from "../api/service";
import type { Hit, JoinKind, Match, SearchBody, Source } from "../api/types";
import { useRequest } from "../api/useRequest";
import { ALL_SHOWN, coverage } from "../hits";
import { Link } from "../navigate";
import { Coverage } from "../parts/Coverage";
import { SampleTable } from "../parts/DataTable";
import { Icon } from "../parts/Icon";
import { Judge } from "../parts/Judge";
import { Cell, Name, WholeName } from "../parts/Name";
import { asApiError } from "../parts/Notice";
import { MAP, OPTIONS, type Route } from "../route";
import { cardinality, count, counted, explain, fittingJoin, foundBy, genericKey, percent } from "../words";

interface CardProps {
  hit: Hit;
  /** Hits of tables of the same kind. */
  alike: Hit[];
  /** The search that found it. */
  body: SearchBody;
  source: Source;
  column: string;
  /** Further columns of the key. */
  also: string[];
  /** Whether similar values are still being searched, so that what matches is not all known. */
  early: boolean;
  /** Why it is ranked where it is; empty where that is obvious. */
  ranked: string;
  /** Whether it shows its evidence. */
  open: boolean;
  onToggle: () => void;
}

export function HitCard({ hit, alike, body, source, column, also, early, ranked, open, onToggle }: CardProps) {
  const link = (to: Hit) => joinAddress(source, [column, ...also], to, early ? (body.join ?? "any") : undefined);
  const warning = genericKey(hit.generic);
  return (
    <li class="card panel">
      <Head hit={hit} />
      {ranked && <p class="hint">{ranked}</p>}
      {warning && (
        <p class="warning">
          <Icon name="warn" size={16} /> {warning}
        </p>
      )}
      <Coverage hit={hit} />
      <Brings hit={hit} />
      <p class="cardinality">
        <span class="badge">{hit.cardinality}</span> {cardinality(hit.cardinality)}
        <span class="hint"> · chance that a person would make this join: {percent(hit.probability)}</span>
      </p>
      <LongerKey hit={hit} source={source} />
      <div class="actions">
        <Link to={link(hit)} class="button primary">
          Preview the join
        </Link>
        <button type="button" aria-expanded={open} onClick={onToggle}>
          {open ? "Hide evidence" : "Show evidence"}
          <span class="unseen"> of hit {hit.rank}</span>
        </button>
        <Link to={{ view: "map", ...MAP, table: hit.table }} class="button quiet">
          Show on map
        </Link>
        <Judge
          child={{ table: "table" in source ? source.table : "", columns: [column] }}
          parent={{ table: hit.table, columns: [hit.column] }}
          decided={hit.decided}
          what={`hit ${hit.rank}`}
        />
      </div>
      {open && <Evidence hit={hit} body={body} />}
      {hit.also && hit.also.length > 0 && (
        <Also title="Other matching columns of this table" hits={hit.also} link={link} />
      )}
      {alike.length > 0 && (
        <details class="more">
          <summary>{counted(alike.length, "table")} of the same kind</summary>
          <Also hits={alike} link={link} tables />
        </details>
      )}
    </li>
  );
}

/** Where a hit is joined on a key: the columns of yours, the hit's being in the same order. */
export function joinAddress(source: Source, key: string[], hit: Hit, running?: JoinKind): Route {
  const [column = "", ...also] = key;
  const { table, column: theirs, column_id, columns } = hit;
  return {
    view: "join",
    source,
    column,
    ...(also.length && { also }),
    hit: columns ? { table, column: theirs, columns } : { table, column: theirs, column_id },
    options: { ...OPTIONS, join: fittingJoin(hit, running) },
  };
}

/** A longer key for a hit that multiplies rows. */
function LongerKey({ hit, source }: { hit: Hit; source: Source }) {
  if (!hit.better) return null;
  const { on, columns, rows, instead_of } = hit.better;
  const longer = { ...hit, column: columns[0] ?? hit.column, columns };
  return (
    <p class="hint">
      <Icon name="warn" size={15} /> On this column alone, {count(instead_of)} rows result.{" "}
      <Link to={joinAddress(source, on, longer)}>Join on {on.slice(1).join(" and ")}, too</Link>: {count(rows)} rows.
    </p>
  );
}

function Head({ hit }: { hit: Hit }) {
  return (
    <div class="card-head">
      <span class="rank" title={`Score ${hit.score.toFixed(3)}`}>
        <span class="unseen">Hit </span>
        {hit.rank}
      </span>
      <div class="card-names">
        <h2>
          <Link to={{ view: "table", source: { table: hit.table } }}>
            <Name text={hit.table} />
          </Link>
        </h2>
        <p>
          {(hit.columns ?? [hit.column]).map((name, place) => (
            <span key={place}>
              {place > 0 && ", "}
              <Name text={name} most={60} class="strong" />
            </span>
          ))}{" "}
          {!hit.columns && <span class="badge">{hit.type}</span>}{" "}
          <span class="hint">{counted(hit.target_size, "distinct value")}</span>
        </p>
      </div>
      <p class="score">
        <strong>{percent(coverage(hit))}</strong>
        <span>of your values</span>
      </p>
    </div>
  );
}

const MOST_BROUGHT = 10;

function Brings({ hit }: { hit: Hit }) {
  const { columns } = hit.brings;
  if (columns.length === 0)
    return <p class="hint">It has no other columns, so joining it adds only the matched value.</p>;
  return (
    <p class="brings">
      <span class="hint">Adds</span>
      {columns.slice(0, MOST_BROUGHT).map((name, place) => (
        <Name key={place} text={name} most={30} class="chip fresh" />
      ))}
      {columns.length > MOST_BROUGHT && (
        <span class="hint">and {columns.length - MOST_BROUGHT} more</span>
      )}
    </p>
  );
}

function Evidence({ hit: found, body }: { hit: Hit; body: SearchBody }) {
  const [wanted, setWanted] = useState(false);
  const all = { ...body, matches: ALL_SHOWN };
  const full = useRequest(wanted ? `search ${JSON.stringify(all)}` : null, (signal) => api.search(all, signal));
  const every = full.data ? [...full.data.hits, ...(full.data.unlikely ?? [])] : [];
  const hit = every.find(({ column_id }) => column_id === found.column_id) ?? found;
  const matched = Math.max(hit.equi.matched, hit.semantic?.matched ?? 0);
  const unmatched = hit.query_size - matched;
  const more = wanted ? null : <ShowAll onClick={() => setWanted(true)} />;
  return (
    <div class="evidence">
      <div class="evidence-pairs">
        <h3>Matched values{shown(hit.matches.length, matched)}</h3>
        <Matches matches={hit.matches} />
        {hit.matches.length > 0 && hit.matches.length < matched && more}
        {full.error !== null && full.error !== undefined && <p class="bad">{explain(asApiError(full.error)).text}</p>}
      </div>
      <div class="evidence-rest">
        <h3>Unmatched values{hit.unmatched.length > 0 && shown(hit.unmatched.length, unmatched)}</h3>
        {hit.unmatched.length ? (
          <p class="chips">
            {hit.unmatched.map((value, place) => (
              <Name key={place} text={value} most={40} class="chip" />
            ))}
          </p>
        ) : (
          <p class="hint">All of your values have a match.</p>
        )}
        {hit.unmatched.length > 0 && hit.unmatched.length < unmatched && more}
        <h3>Found by</h3>
        <p class="hint">{foundBy(hit.found_by) || "its values"}</p>
      </div>
      {hit.brings.sample.length > 0 && (
        <div class="evidence-sample">
          <h3>Sample rows</h3>
          <SampleTable label={`First rows of ${hit.table.slice(0, 80)}`} rows={hit.brings.sample} />
        </div>
      )}
      {(hit.column.length > 60 || hit.table.length > 80) && (
        <div class="evidence-sample">
          <h3>Full names</h3>
          <p>
            <WholeName text={hit.table} />
          </p>
          <p>
            <WholeName text={hit.column} most={60} />
          </p>
        </div>
      )}
    </div>
  );
}

function shown(some: number, all: number): string {
  return some < all ? ` · ${count(some)} of ${count(all)}` : ` · ${count(all)}`;
}

function ShowAll({ onClick }: { onClick: () => void }) {
  return (
    <button type="button" class="quiet small" onClick={onClick}>
      Show all values
    </button>
  );
}

function Matches({ matches }: { matches: Match[] }) {
  if (matches.length === 0) return <p class="hint">No values can be shown.</p>;
  return (
    <table class="matches">
      <thead>
        <tr>
          <th scope="col">yours</th>
          <th scope="col">theirs</th>
          <th scope="col">similarity</th>
        </tr>
      </thead>
      <tbody>
        {matches.map((match, place) => (
          <tr key={place}>
            <td>
              <Cell text={match.query} most={80} />
            </td>
            <td>
              <Cell text={match.target} most={80} />
            </td>
            <td class="figure">{match.similarity >= 1 ? "equal" : `≈ ${match.similarity.toFixed(2)}`}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface AlsoProps {
  hits: Hit[];
  link: (hit: Hit) => Route;
  title?: string;
  /** Whether the hits are told apart by their tables. */
  tables?: boolean;
}

function Also({ hits, link, title, tables }: AlsoProps) {
  return (
    <div class="also">
      {title && <h3>{title}</h3>}
      <ul>
        {hits.map((hit) => (
          <li key={hit.column_id}>
            <Link to={link(hit)}>
              <span class="unseen">Preview the join with </span>
              <Name text={tables ? hit.table : hit.column} most={60} class="strong" />
            </Link>
            <span class="hint">
              {percent(coverage(hit))} · {hit.cardinality}
              {hit.generic && " · generic key"}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
