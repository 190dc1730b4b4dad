/** The request that the filters make, and the hits that they leave. */

import type { Hit, Results, SearchBody, Source } from "./api/types";
import type { Filters } from "./route";

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

/**
 * Why a hit is ranked below hits with less joinability, as far as its figures tell.
 *
 * Hits are ranked by what their method scores, which is not joinability alone.
 */
export function rankedBy(hit: Hit, hits: Hit[]): string {
  const passed = hits.filter(
    (other) => other.rank < hit.rank && shown(other.joinability) < shown(hit.joinability),
  );
  if (passed.length === 0) return "";
  if (passed.every((other) => other.score >= hit.score))
    return `Ranked by the score of the method (${hit.score.toFixed(3)}), not by joinability alone.`;
  if (hit.generic && !passed.some((other) => other.generic))
    return "Ranked lower because it is a generic key.";
  return "";
}

/** Joinability as exactly as the page shows it. */
function shown(joinability: number): number {
  return Math.round(joinability * 100);
}

/**
 * The ranks of open cards after the final hits replaced early ones. Cards that were opened or closed
 * on the early hits stay so at their new ranks; ``before`` are the ranks that were open until then.
 */
export function followed(before: number[], open: number[], early: Hit[], final: Hit[]): number[] {
  // The best column of a table may be another one now; then its card is that of the table.
  const moved = (ranks: number[]) =>
    early
      .filter((hit) => ranks.includes(hit.rank))
      .map(
        (hit) =>
          final.find((other) => other.column_id === hit.column_id) ??
          final.find((other) => other.table === hit.table),
      )
      .flatMap((hit) => (hit ? [hit.rank] : []));
  const opened = moved(open.filter((rank) => !before.includes(rank)));
  const closed = moved(before.filter((rank) => !open.includes(rank)));
  const kept = before.filter((rank) => !closed.includes(rank) && !opened.includes(rank));
  return [...kept, ...opened].sort((a, b) => a - b);
}

/** Open cards after one was opened or closed. */
export function toggled(open: number[], rank: number): number[] {
  if (open.includes(rank)) return open.filter((other) => other !== rank);
  return [...open, rank].sort((a, b) => a - b);
}

/** The best hit of each column of a table, best key first. */
export function bestJoins(found: Results): { column: string; hit: Hit }[] {
  return [found, ...(found.others ?? [])].flatMap(({ query, hits: [hit] }) =>
    hit ? [{ column: query.column, hit }] : [],
  );
}
