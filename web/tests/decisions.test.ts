import { expect, test } from "vitest";
import { asCsv, decided, decisionsKey, kept } from "../src/decisions";

const pair = { query: "Burma", target: "Myanmar" };

test("a decision replaces an earlier one about the same pair, and can be taken back", () => {
  const once = decided([], pair, true);
  expect(once).toEqual([{ ...pair, accepted: true }]);
  const other = decided(once, { query: "Burma", target: "Bermuda" }, false);
  expect(decided(other, pair, false)).toEqual([
    { query: "Burma", target: "Bermuda", accepted: false },
    { ...pair, accepted: false },
  ]);
  expect(decided(once, pair, null)).toEqual([]);
});

test("only what is a decision is read back", () => {
  const good = { ...pair, accepted: true };
  expect(kept(JSON.stringify([good, { query: "x" }, null, 7]))).toEqual([good]);
  expect(kept("{")).toEqual([]);
  expect(kept('{"query": "x"}')).toEqual([]);
  expect(kept(null)).toEqual([]);
});

test("decisions are kept by the column of the lake", () => {
  const hit = { table: "a.csv", column: "b" };
  expect(decisionsKey("lake", hit)).not.toBe(decisionsKey("lake", { table: "a.csv b", column: "" }));
  expect(decisionsKey("lake", hit)).not.toBe(decisionsKey("other", hit));
});

test("the file quotes what CSV must quote", () => {
  const odd = [{ query: 'a,"b"', target: "two\nlines", accepted: false }];
  expect(asCsv(odd)).toBe('query,target,chance,decision\n"a,""b""","two\nlines",,reject\n');
});
