/** What people decided about pairs of values, kept in the browser by the column that is joined with. */

import type { ColumnPlace, PairDecision } from "./api/types";

/** As many as one request may hold. */
const MOST = 10_000;

export type Pair = Pick<PairDecision, "query" | "target">;

export function decisionsKey(lake: string, hit: ColumnPlace): string {
  return `deepjoin-pairs ${JSON.stringify([lake, hit.table, hit.column])}`;
}

/** Reads what is kept; what cannot be read counts as nothing. */
export function kept(text: string | null): PairDecision[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found.filter(isDecision).slice(-MOST) : [];
  } catch {
    return [];
  }
}

function isDecision(one: unknown): one is PairDecision {
  const { query, target, accepted } = (one ?? {}) as Partial<PairDecision>;
  return typeof query === "string" && typeof target === "string" && typeof accepted === "boolean";
}

/** Notes a decision in place of an earlier one about the pair; null takes it back. */
export function decided(known: PairDecision[], pair: Pair, accepted: boolean | null): PairDecision[] {
  const others = known.filter(({ query, target }) => query !== pair.query || target !== pair.target);
  const said = { query: pair.query, target: pair.target };
  return accepted === null ? others : [...others, { ...said, accepted }].slice(-MOST);
}

/** The file that the shell and Python read as `decisions`. */
export function asCsv(known: PairDecision[]): string {
  const cell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = known.map(
    ({ query, target, accepted }) => `${cell(query)},${cell(target)},,${accepted ? "accept" : "reject"}`,
  );
  return ["query,target,chance,decision", ...rows, ""].join("\n");
}
