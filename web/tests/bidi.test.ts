import { describe, expect, it } from "vitest";
import { aroundUnseen, balanced, codePoint } from "../src/bidi";

const [LRI, RLI, PDI, RLO, PDF] = ["\u2066", "\u2067", "\u2069", "\u202e", "\u202c"];

describe("marks of direction", () => {
  it.each([
    ["plain", "שלום, plain", "שלום, plain"],
    ["closed already", `a${RLO}b${PDF}c`, `a${RLO}b${PDF}c`],
    ["left open", `a${RLO}b${LRI}c`, `a${RLO}b${LRI}c${PDI}${PDF}`],
    ["closings alone", `${PDI}${PDI}a${PDF}`, "a"],
    ["closed across each other", `${RLI}a${RLO}b${PDI}c`, `${RLI}a${RLO}b${PDF}${PDI}c`],
    ["closed too early", `${RLI}a${PDF}b${PDI}`, `${RLI}ab${PDI}`],
  ])("%s", (_, text, wanted) => expect(balanced(text)).toBe(wanted));

  it("are even after any of them", () => {
    const marks = [LRI, RLI, PDI, RLO, PDF, "x"];
    for (let number = 0; number < 6 ** 5; number += 1) {
      const text = [...number.toString(6).padStart(5, "0")].map((digit) => marks[Number(digit)]).join("");
      const shown = [...balanced(text)];
      const count = (those: string[]) => shown.filter((letter) => those.includes(letter)).length;
      expect(count([LRI, RLI])).toBe(count([PDI]));
      expect(count([RLO])).toBe(count([PDF]));
      expect(balanced(shown.join(""))).toBe(shown.join(""));
    }
  });
});

describe("letters that are not seen", () => {
  it.each([
    ["plain", "SELECT 1;\n\tשלום", ["SELECT 1;\n\tשלום"]],
    ["marks of direction", `a${RLO}b${PDI}`, ["a", RLO, "b", PDI, ""]],
    ["next to each other", `${LRI}${RLI}`, ["", LRI, "", RLI, ""]],
    ["controls", "a\u0000b\rc\u001b[2Jd\u0085", ["a", "\u0000", "b", "\r", "c", "\u001b", "[2Jd", "\u0085", ""]],
    ["without a width", "a\u200bb\ufeff\u2028", ["a", "\u200b", "b", "\ufeff", "", "\u2028", ""]],
    ["beyond 16 bits", "a\u{e0041}🙂", ["a", "\u{e0041}", "🙂"]],
  ])("%s are pieces of their own", (_, text, wanted) => {
    expect(aroundUnseen(text)).toEqual(wanted);
    expect(aroundUnseen(text).join("")).toBe(text);
  });

  it("are named by their number", () => {
    expect(["\u0000", RLO, "\u{e0041}"].map(codePoint)).toEqual(["U+0000", "U+202E", "U+E0041"]);
  });
});
