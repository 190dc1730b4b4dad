/** The request that the filters make, and the hits that they leave. */

import type { Hit, Results, SearchBody, Source } from "./api/types";
import type { Filters } from "./route";
import { percent } from "./words";

/** Matched and unmatched values listed of a hit, and all that the service lists. */
const SHOWN = 8;
export const ALL_SHOWN = 1000;

/** The body of a search; what has its default, or does not apply, is left out. */
export function searchBody(source: Source, column: string, filters: Filters, mostHits = Infinity): SearchBody {
  return {
    query: filters.also.length ? { ...source, columns: [column, ...filters.also] } : { ...source, column },
    k: Math.min(filters.k, mostHits),
    ...(filters.join && { join: filters.join }),
    ...(filters.method && { method: filters.method }),
    ...(filters.least > 0 && { min_joinability: filters.least }),
    ...(filters.tau !== null && filters.join !== "equi" && { tau: filters.tau }),
    ...(filters.grouped && { group: "tables" as const }),
    ...("table" in source && { exclude_table: source.table }),
    matches: SHOWN,
  };
}

/** Hits of tables of one kind under the best of them: parts of a series, or years of one table. */
export function families(hits: Hit[]): Hit[][] {
  const found = new Map<string, Hit[]>();
  for (const hit of hits) {
    const key = family(hit);
    found.set(key, [...(found.get(key) ?? []), hit]);
  }
  return [...found.values()];
}

/** Tables of one folder with the same columns are of one kind, or those that differ in a number. */
function family({ table, column, brings }: Hit): string {
  const folder = table.slice(0, table.lastIndexOf("/") + 1);
  const name = brings.columns.length ? folder : table.replace(/\d+/g, "#");
  return JSON.stringify([name, column, [...brings.columns].sort()]);
}

/** The hits of an answer; those that a person would hardly make joins of only if asked for. */
export function listed({ hits, unlikely = [] }: Results, filters: Filters): Hit[] {
  return filters.unlikely ? [...hits, ...unlikely] : hits;
}

/** Hits that pass what the page itself filters by: new columns and generic keys. */
export function shownHits(hits: Hit[], filters: Filters): Hit[] {
  const wanted = filters.brings.trim().toLocaleLowerCase();
  return hits.filter(
    (hit) => (filters.generic || !hit.generic) && (!wanted || bringsColumn(hit, wanted)),
  );
}

function bringsColumn(hit: Hit, wanted: string): boolean {
  return hit.brings.columns.some((name) => name.toLocaleLowerCase().includes(wanted));
}

/** Share of the query's values that have a match, equal or similar. */
export function coverage({ equi, semantic }: Hit): number {
  return (semantic ?? equi).joinability;
}

/**
 * Why a hit is ranked below hits with less coverage, as far as its figures tell.
 *
 * Hits are ranked by what their method scores, which is not coverage alone.
 */
export function rankedBy(hit: Hit, hits: Hit[]): string {
  const passed = hits.filter(
    (other) => other.rank < hit.rank && shown(other) < shown(hit),
  );
  if (passed.length === 0) return "";
  if (hit.join === "any" && passed.every((other) => other.probability > hit.probability))
    return `Ranked by the chance that a person would make this join (${percent(hit.probability)}), not by coverage alone.`;
  if (passed.every((other) => other.score >= hit.score))
    return `Ranked by the score of the method (${hit.score.toFixed(3)}), not by coverage alone.`;
  if (hit.generic && !passed.some((other) => other.generic))
    return "Ranked lower because it is a generic key.";
  return "";
}

/** Coverage as exactly as the page shows it. */
function shown(hit: Hit): number {
  return Math.round(coverage(hit) * 100);
}

/** Whether the card of a hit shows its evidence; ``open`` is null until one was opened or closed. */
export function isOpen(hit: Hit, open: string[] | null): boolean {
  return open === null ? hit.rank === 1 : columnsOf(hit).some((id) => open.includes(id));
}

/** Open cards after that of one of the hits was opened or closed. */
export function toggled(open: string[] | null, hit: Hit, hits: Hit[]): string[] {
  const now = open ?? hits.filter((one) => isOpen(one, null)).map(({ column_id }) => column_id);
  const own = columnsOf(hit);
  return isOpen(hit, open) ? now.filter((id) => !own.includes(id)) : [...now, hit.column_id];
}

/** Ids of the columns on a card: of a table's card, any of them may be the best in the next answer. */
function columnsOf(hit: Hit): string[] {
  return [hit, ...(hit.also ?? [])].map(({ column_id }) => column_id);
}

/** The best hit of each column of a table, best key first. */
export function bestJoins(found: Results): { column: string; hit: Hit }[] {
  return [found, ...(found.others ?? [])].flatMap(({ query, hits: [hit] }) =>
    hit ? [{ column: query.column, hit }] : [],
  );
}
