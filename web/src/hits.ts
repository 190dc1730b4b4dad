/** Which hits the filters of the page leave, and the question they ask the service. */

import type { Hit, SearchBody, Source } from "./api/types";
import type { Filters } from "./route";

/** The body of a search; what is left to the service is left out. */
export function searchBody(source: Source, column: string, filters: Filters): SearchBody {
  return {
    query: { ...source, column },
    k: filters.k,
    ...(filters.join && { join: filters.join }),
    ...(filters.method && { method: filters.method }),
    ...(filters.least > 0 && { min_joinability: filters.least }),
    ...(filters.tau !== null && { tau: filters.tau }),
    ...(filters.grouped && { group: "tables" as const }),
    ...("table" in source && { exclude_table: source.table }),
    matches: 8,
  };
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

/** Open cards after one was opened or closed. */
export function toggled(open: number[], rank: number): number[] {
  if (open.includes(rank)) return open.filter((other) => other !== rank);
  return [...open, rank].sort((a, b) => a - b);
}
