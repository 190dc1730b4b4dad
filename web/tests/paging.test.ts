import { describe, expect, it } from "vitest";
import { firstTables, MOST_AT_ONCE } from "../src/api/paging";
import type { TableEntry, TableList } from "../src/api/types";

function lakeOf(many: number) {
  const names = Array.from({ length: many }, (_, place) => `table ${place}`);
  const asked: [number, number][] = [];
  const page = async (offset: number, limit: number): Promise<TableList> => {
    if (limit > MOST_AT_ONCE) throw new Error("limit: Input should be less than or equal to 500.");
    asked.push([offset, limit]);
    return { total: names.length, tables: names.slice(offset, offset + limit).map(entry) };
  };
  return { names, asked, page };
}

function entry(name: string): TableEntry {
  return { name, title: "", rows: 1, columns: 1, names: [] };
}

const named = ({ tables }: TableList) => tables.map(({ name }) => name);

describe("a list of tables", () => {
  it("grows page by page beyond what the service gives at once", async () => {
    const { names, asked, page } = lakeOf(1203);
    let list = await firstTables(page, 24);
    while (list.tables.length < list.total) list = await firstTables(page, list.tables.length + 48, list);
    expect(named(list)).toEqual(names);
    expect(asked.slice(0, 3)).toEqual([[0, 24], [24, 48], [72, 48]]);
    expect(asked.reduce((sum, [, limit]) => sum + limit, 0)).toBeLessThan(1203 + 48);
  });

  it("asks several times for more than that", async () => {
    const { names, asked, page } = lakeOf(1203);
    expect(named(await firstTables(page, 1100))).toEqual(names.slice(0, 1100));
    expect(asked).toEqual([[0, 500], [500, 500], [1000, 100]]);
  });

  it("is read again when the lake has changed", async () => {
    const { names, page } = lakeOf(100);
    const before = await firstTables(page, 24);
    names.unshift("a new one");
    expect(named(await firstTables(page, 72, before))).toEqual(names.slice(0, 72));
  });

  it("of a lake without tables is empty", async () => {
    expect(await firstTables(lakeOf(0).page, 24)).toEqual({ total: 0, tables: [] });
  });
});
