import { expect, test } from "vitest";
import { depths, falls } from "../src/gains";
import { parse, write } from "../src/route";

test("a step is one deeper than the one that leads to it", () => {
  expect(depths([{ parent: -1 }, { parent: 0 }, { parent: -1 }, { parent: 1 }])).toEqual([0, 1, 0, 2]);
});

test("a bar begins where the one before ended, also after a loss", () => {
  const bars = falls([0.2, -0.1, 0.3], 0.5);
  expect(bars.map(({ from }) => Number(from.toFixed(3)))).toEqual([0, 0.25, 0.25]);
  expect(bars.map(({ size }) => Number(size.toFixed(3)))).toEqual([0.5, 0.25, 0.75]);
  expect(falls([0, 0], 0.7)).toEqual([{ from: 0, size: 0 }, { from: 0, size: 0 }]);
});

test("the address of an enrichment is read back", () => {
  const route = { view: "enrich", source: { table: "a.csv" }, target: "price", depth: 3, about: "" } as const;
  expect(parse(write(route))).toEqual(route);
  expect(parse("?view=enrich&table=a.csv&depth=9")).toMatchObject({ view: "enrich", depth: 2, target: "" });
  expect(parse("?view=enrich").view).toBe("unknown");
});
