/** Long lists, asked for in pages of a size the service gives. */

import type { TableList } from "./types";

/** The most tables the service lists at once. */
export const MOST_AT_ONCE = 500;

type Page = (offset: number, limit: number) => Promise<TableList>;

/** Lists the first tables: what is known is kept, what is missing is asked for and put behind it. */
export async function firstTables(page: Page, wanted: number, known?: TableList): Promise<TableList> {
  let tables = known?.tables ?? [];
  let total = known?.total;
  while (total === undefined || tables.length < Math.min(wanted, total)) {
    const missing = Math.min(wanted - tables.length, MOST_AT_ONCE);
    const next = await page(tables.length, missing);
    // Another number of tables: the lake has changed, and places in its list have moved.
    if (total !== undefined && next.total !== total) return firstTables(page, wanted);
    if (next.tables.length === 0) return { total: tables.length, tables };
    total = next.total;
    tables = [...tables, ...next.tables];
  }
  return { total, tables };
}
