import { describe, expect, it } from "vitest";
import { balanced } from "../src/bidi";

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
