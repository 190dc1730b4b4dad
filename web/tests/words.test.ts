import { describe, expect, it } from "vitest";
import { ApiError, type Failure } from "../src/api/client";
import { pastedValues } from "../src/pasted";
import { sizeText } from "../src/upload";
import * as words from "../src/words";

describe("shares", () => {
  it.each([
    [0, "0%"],
    [0.0001, "<1%"],
    [0.01, "1%"],
    [0.954, "95%"],
    [0.999, "99%"],
    [1, "100%"],
  ])("%f is said as %s: only all is all, only nothing is nothing", (share, text) => {
    expect(words.percent(share)).toBe(text);
  });
});

describe("sizes", () => {
  it.each([
    [0, "0 bytes"],
    [1023, "1,023 bytes"],
    [1536, "1.5 KB"],
    [104857600, "100 MB"],
    [2 ** 60, "1,048,576 TB"],
  ])("%i bytes are said as %s", (number, text) => expect(words.bytes(number)).toBe(text));

  it("of a preview are those of what is shown", () => {
    expect(words.firstRows(20, 1234)).toBe("First 20 of 1,234 rows");
    expect(words.firstRows(20, 20)).toBe("All 20 rows");
    expect(words.firstRows(0, 0)).toBe("All 0 rows");
  });

  it("of a file that is too large teach what to do", () => {
    const text = sizeText({ name: "big.csv", size: 3 * 2 ** 20 }, 2 ** 20);
    expect(text).toContain("big.csv has 3.0 MB; this service accepts up to 1.0 MB.");
    expect(text).toContain("Paste the values of the key column");
  });
});

describe("long names", () => {
  it("are cut in the middle, by whole letters", () => {
    expect(words.shorten("abc", 10)).toBe("abc");
    expect(words.shorten("a".repeat(10_000), 20)).toHaveLength(20);
    expect(words.shorten(`${"a".repeat(50)}.csv`, 20)).toBe(`${"a".repeat(14)}…a.csv`);
    const flags = "🙂".repeat(30);
    expect(words.shorten(flags, 12)).toBe(`${"🙂".repeat(8)}…${"🙂".repeat(3)}`);
    expect(words.shorten("🙂".repeat(8), 10)).toBe("🙂".repeat(8));
  });

  it("that cannot be seen are said to be so", () => {
    expect(words.seen("")).toBe("(no name)");
    expect(words.seen(" \u200b\u202e\t")).toBe("(blank)");
    expect(words.seen("x")).toBe("x");
  });

  it("may break after slashes and dashes, and are the same text", () => {
    expect(words.pieces("geo/the_big-one.csv")).toEqual(["geo/", "the_", "big-", "one.csv"]);
    expect(words.pieces("//__").join("")).toBe("//__");
  });

  it("say the same as titles made from them", () => {
    expect(words.sameWords("calendar 2024 h1", "reference/calendar_2024_h1.csv")).toBe(true);
    expect(words.sameWords("Countries of the world", "countries.csv")).toBe(false);
  });

  it("of tables have a last part", () => {
    expect(words.lastPart("geo/countries.csv")).toBe("countries.csv");
    expect(words.lastPart("geo/")).toBe("geo");
    expect(words.lastPart("/")).toBe("/");
  });
});

describe("pasted values", () => {
  it("are lines, or what a lone line holds", () => {
    expect(pastedValues("a\r\nb\n\n c ")).toEqual(["a", "b", "c"]);
    expect(pastedValues("a, b,c")).toEqual(["a", "b", "c"]);
    expect(pastedValues("a; b, c")).toEqual(["a", "b, c"]);
    expect(pastedValues("one\ttwo\nthree\tfour")).toEqual(["one", "three"]);
    expect(pastedValues("Washington, D.C.\nParis")).toEqual(["Washington, D.C.", "Paris"]);
    expect(pastedValues("  \n ")).toEqual([]);
  });
});

describe("errors", () => {
  it("that may pass offer to try again", () => {
    const again = (kind: Failure) => words.explain(new ApiError(kind, "why")).retry;
    expect((["gone", "busy", "broken"] as const).every(again)).toBe(true);
    expect((["large", "missing", "token", "refused"] as const).some(again)).toBe(false);
  });

  it("of the service are told in its own words", () => {
    const said = words.explain(new ApiError("refused", "No column 'x'. Columns: a, b."));
    expect(said.text).toBe("No column 'x'. Columns: a, b.");
  });
});

describe("facts in words", () => {
  it("know every kind of join and of generic key", () => {
    for (const kind of ["1:1", "1:n", "n:1", "n:m"]) {
      expect(words.cardinality(kind)).not.toBe("");
      expect(words.cardinalityBetween(kind)).not.toBe("");
    }
    for (const kind of ["run", "year", "flag"] as const) expect(words.genericKey(kind)).not.toBe("");
    expect(words.genericKey(null)).toBe("");
    expect(words.foundBy(["exact-equi", "josie"])).toBe("equal values, josie");
    expect(words.counted(1, "row")).toBe("1 row");
    expect(words.counted(1200, "row")).toBe("1,200 rows");
  });
});
