/** Which columns of a table can join. */

import type { ColumnDetail, TableDetail } from "./api/types";

/** The columns that can join, best key first. */
export function orderedKeys(table: TableDetail): ColumnDetail[] {
  const place = new Map(table.best_keys.map((name, rank) => [name, rank]));
  const rank = ({ name }: ColumnDetail) => place.get(name) ?? place.size;
  return table.columns
    .filter((column) => column.indexed)
    .sort((a, b) => rank(a) - rank(b));
}
