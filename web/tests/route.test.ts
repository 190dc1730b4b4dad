import { describe, expect, it } from "vitest";
import { FILTERS, MAP, OPTIONS, parse, write, type Route } from "../src/route";

const HOSTILE = "a/b &=?#%<script>\u202e\u2066 ünï .csv";

const ROUTES: Route[] = [
  { view: "start", text: "" },
  { view: "start", text: HOSTILE },
  { view: "table", source: { table: HOSTILE } },
  { view: "table", source: { upload: "t0ken" } },
  { view: "search", source: { table: "" }, column: "", filters: FILTERS },
  {
    view: "search",
    source: { upload: "t" },
    column: HOSTILE,
    filters: {
      also: ["b", HOSTILE],
      join: "semantic",
      method: "deepjoin",
      k: 50,
      least: 0.25,
      tau: 0.8,
      grouped: true,
      brings: HOSTILE,
      generic: false,
      unlikely: true,
      open: ["t.csv#0", HOSTILE],
    },
  },
  {
    view: "search",
    source: { table: "t" },
    column: "c",
    filters: { ...FILTERS, open: [] },
  },
  {
    view: "join",
    source: { table: "x" },
    column: HOSTILE,
    hit: { table: HOSTILE, column: "on" },
    options: {
      how: "inner",
      many: "aggregate",
      join: "semantic",
      tau: 0.7,
      precision: 0.95,
      matching: "all",
      columns: ["a b", "c"],
      aggregate: { "a b": "mean" },
    },
  },
  { view: "join", source: { upload: "u" }, column: "c", hit: { table: "t", column: "" }, options: OPTIONS },
  {
    view: "join",
    source: { upload: "u" },
    column: "c",
    hit: { table: "t", column: "", column_id: HOSTILE },
    options: OPTIONS,
  },
  {
    view: "join",
    source: { upload: "u" },
    column: "year",
    also: ["team"],
    hit: { table: "t", column: "yearID", columns: ["yearID", "teamID"] },
    options: OPTIONS,
  },
  { view: "map", ...MAP },
  { view: "map", table: HOSTILE, depth: 2, least: 0.1, to: "b", picked: [HOSTILE, "b"] },
];

describe("an address", () => {
  it.each(ROUTES)("is read back as the view it was written from: $view", (route) => {
    const address = write(route);
    expect(parse(address === "./" ? "" : address)).toEqual(route);
  });

  it("leaves defaults out", () => {
    const route: Route = { view: "search", source: { table: "t" }, column: "c", filters: FILTERS };
    expect(write(route)).toBe("?view=search&table=t&column=c");
    expect(write({ view: "start", text: "" })).toBe("./");
  });

  it("that says nonsense falls back to defaults", () => {
    const route = parse("?view=search&table=t&column=c&k=-3&least=7&tau=x&join=inner");
    const filters = { ...FILTERS, k: 1, least: 1, tau: 0.7 };
    expect(route).toEqual({ view: "search", source: { table: "t" }, column: "c", filters });
    expect(parse("?view=map&depth=99&least=")).toEqual({ view: "map", ...MAP, depth: 3 });
  });

  it.each(["?view=nothing", "?view=table", "?view=search&table=t", "?view=join&table=t&column=c"])(
    "that lacks what its view needs is unknown: %s",
    (address) => expect(parse(address)).toEqual({ view: "unknown", address }),
  );
});
