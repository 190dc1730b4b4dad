/** Which columns of a joined table come first in its preview. */

import type { Preview } from "./api/types";

/** Places of the columns: the key, what is new, the rest; new columns are never out of sight. */
export function inSight(columns: Preview["columns"], on: string): number[] {
  const rank = ({ name, from }: Preview["columns"][number]) =>
    from === "right" ? 1 : name === on ? 0 : 2;
  return columns
    .map((column, place) => ({ place, rank: rank(column) }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ place }) => place);
}
