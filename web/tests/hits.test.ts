import { describe, expect, it } from "vitest";
import type { Hit, TableDetail } from "../src/api/types";
import { bestJoins, families, isOpen, listed, rankedBy, searchBody, shownHits, toggled } from "../src/hits";
import { orderedKeys } from "../src/keys";
import { inSight } from "../src/preview";
import { FILTERS } from "../src/route";
import { fittingJoin } from "../src/words";

function hit(rank: number, columns: string[], generic: Hit["generic"] = null): Hit {
  return {
    rank,
    table: `t${rank}`,
    column: "c",
    column_id: String(rank),
    type: "text",
    generic,
    join: "any",
    score: 1,
    joinability: 1,
    probability: 0.9,
    equi: { joinability: 0.5, reverse: 0.5, matched: 5, join_size: 5, multiset: 0.1 },
    semantic: null,
    query_size: 10,
    target_size: 10,
    cardinality: "1:1",
    matches: [],
    unmatched: [],
    found_by: [],
    brings: { columns, sample: [] },
  };
}

function covers(joinability: number): Hit["equi"] {
  return { ...hit(1, []).equi, joinability };
}

describe("hits", () => {
  it("can be asked to bring a column and to be no generic key", () => {
    const hits = [hit(1, ["Population"]), hit(2, []), hit(3, ["population"], "year")];
    const ranks = (filters: Partial<typeof FILTERS>) =>
      shownHits(hits, { ...FILTERS, ...filters }).map((one) => one.rank);
    expect(ranks({})).toEqual([1, 2, 3]);
    expect(ranks({ brings: " POPUL" })).toEqual([1, 3]);
    expect(ranks({ brings: "popul", generic: false })).toEqual([1]);
  });

  it("that a person would hardly join are listed if asked for", () => {
    const found = { query: { table: null, column: "c", cells: 1, size: 1 }, hits: [hit(1, [])], seconds: {} };
    const ranks = (unlikely: boolean) =>
      listed({ ...found, unlikely: [hit(2, [])] }, { ...FILTERS, unlikely }).map((one) => one.rank);
    expect(ranks(false)).toEqual([1]);
    expect(ranks(true)).toEqual([1, 2]);
    expect(listed(found, { ...FILTERS, unlikely: true })).toHaveLength(1);
  });

  it("are joined by meaning only where that adds matches", () => {
    const one = hit(1, []);
    expect(fittingJoin(one)).toBe("equi");
    expect(fittingJoin({ ...one, semantic: { joinability: 0.5, reverse: 0.5, matched: 5, tau: 0.7 } })).toBe("equi");
    expect(fittingJoin({ ...one, semantic: { joinability: 0.6, reverse: 0.5, matched: 6, tau: 0.7 } })).toBe("any");
  });

  it("of a key of several columns are asked for with all of them", () => {
    const filters = { ...FILTERS, also: ["team"] };
    expect(searchBody({ upload: "u" }, "year", filters).query).toEqual({ upload: "u", columns: ["year", "team"] });
  });

  it("are joined as the search asked while similar values may still come", () => {
    expect(fittingJoin(hit(1, []), "any")).toBe("any");
  });

  it("say that the chance of a join puts them below", () => {
    const [first, second] = [{ ...hit(1, []), equi: covers(0.4) }, { ...hit(2, []), probability: 0.2 }];
    expect(rankedBy(second, [first, second])).toContain("chance");
  });

  it("say why they stand below hits of less coverage, if their figures tell", () => {
    const ranked = (first: Partial<Hit>, second: Partial<Hit>) => {
      const hits = [{ ...hit(1, []), ...first }, { ...hit(2, []), ...second }];
      return hits.map((one) => rankedBy(one, hits));
    };
    const [low, high] = [{ equi: covers(0.91), score: 0.95 }, { equi: covers(0.94), score: 0.9 }];
    expect(ranked(low, high)).toEqual(["", expect.stringContaining("score of the method (0.900)")]);
    expect(ranked(high, low)).toEqual(["", ""]);
    expect(ranked({ equi: covers(0.941), score: 1 }, high)).toEqual(["", ""]);
    const year = { equi: covers(1), score: 1, generic: "year" } as const;
    expect(ranked(low, year)[1]).toContain("generic key");
    expect(ranked(low, { ...high, score: 0.99 })).toEqual(["", ""]);
    expect(ranked(low, { ...high, probability: 0.6 })[1]).toContain("(60%)");
  });

  it("of tables of one kind are folded under the best, others are not", () => {
    const tables = (...names: [string, string[]][]) =>
      families(names.map(([table, columns], place) => ({ ...hit(place + 1, columns), table }))).map((group) =>
        group.map(({ rank }) => rank),
      );
    expect(tables(["s/north.csv", ["a", "b"]], ["geo/x.csv", ["a", "b"]], ["s/south.csv", ["b", "a"]])).toEqual([[1, 3], [2]]);
    expect(tables(["list_2023", []], ["list_2024", []], ["other", []])).toEqual([[1, 2], [3]]);
    expect(tables(["s/a.csv", ["x"]], ["s/b.csv", ["y"]])).toEqual([[1], [2]]);
  });

  it("of all columns are those of the best key and of the others that have any", () => {
    const of = (column: string, hits: Hit[]) => ({ query: { table: null, column, cells: 1, size: 1 }, hits, seconds: {} });
    const found = { ...of("b", [hit(1, [])]), others: [of("a", [hit(1, [])]), of("none", [])] };
    expect(bestJoins(found).map(({ column }) => column)).toEqual(["b", "a"]);
  });

  it("are asked for with what applies", () => {
    const filters = { ...FILTERS, tau: 0.8, k: 5000 };
    expect(searchBody({ table: "t" }, "c", filters, 200)).toMatchObject({ k: 200, tau: 0.8 });
    expect(searchBody({ table: "t" }, "c", { ...filters, join: "equi" })).not.toHaveProperty("tau");
  });

  it("open and close", () => {
    const hits = [hit(1, []), hit(2, [])] as [Hit, Hit];
    expect(hits.map((one) => isOpen(one, null))).toEqual([true, false]);
    expect(toggled(null, hits[1], hits)).toEqual(["1", "2"]);
    expect(toggled(null, hits[0], hits)).toEqual([]);
    expect(toggled(["1", "2"], hits[0], hits)).toEqual(["2"]);
  });

  it("stay open when better hits come, or another column of their table is the best", () => {
    const early = [hit(1, []), hit(2, [])] as [Hit, Hit];
    const open = toggled(null, early[1], early);
    const other = { ...hit(3, []), column_id: "9", also: [early[0]] };
    const final = [{ ...early[1], rank: 1 }, { ...hit(2, []), column_id: "8" }, other] as [Hit, Hit, Hit];
    expect(final.map((one) => isOpen(one, open))).toEqual([true, false, true]);
    expect(toggled(open, other, final)).toEqual(["2"]);
  });
});

describe("keys of a table", () => {
  it("come best first, what cannot join left out", () => {
    const column = (name: string, indexed = true) => ({ name, indexed });
    const table = {
      columns: [column("a"), column("b"), column("c", false), column("d")],
      best_keys: ["d", "a"],
    } as unknown as TableDetail;
    expect(orderedKeys(table).map(({ name }) => name)).toEqual(["d", "a", "b"]);
  });
});

describe("the preview of a join", () => {
  it("has the key and the new columns first", () => {
    const column = (name: string, from: "left" | "right") => ({ name, from, type: "text" as const });
    const columns = [column("id", "left"), column("key", "left"), column("new", "right"), column("key2", "right")];
    expect(inSight(columns, "key")).toEqual([1, 2, 3, 0]);
  });
});
