/** Numbers and facts in words. */

import type { ApiError } from "./api/client";
import type { Generic, Hit, JoinKind, Source } from "./api/types";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(number: number): string {
  return whole.format(number);
}

export function counted(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** How many of a table's rows are shown. */
export function firstRows(shown: number, all: number): string {
  return shown < all ? `First ${count(shown)} of ${counted(all, "row")}` : `All ${counted(all, "row")}`;
}

/** How large a table is; collections of columns do not know their rows. */
export function size(rows: number, columns: number): string {
  const wide = counted(columns, "column");
  return rows ? `${counted(rows, "row")}, ${wide}` : wide;
}

/** A share in per cent; only everything is 100%, only nothing is 0%. */
export function percent(share: number): string {
  if (share > 0 && share < 0.01) return "<1%";
  return `${share < 1 ? Math.min(99, Math.round(share * 100)) : 100}%`;
}

export function bytes(number: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(number, 1)) / 10));
  const value = number / 1024 ** step;
  return `${step && value < 10 ? value.toFixed(1) : whole.format(value)} ${units[step]}`;
}

const CARDINALITIES: Record<string, string> = {
  "1:1": "Each of your rows matches at most one of theirs.",
  "n:1": "Several of your rows may match the same row of theirs; your number of rows does not change.",
  "1:n": "One of your rows may match several of theirs, so the result can have more rows than yours.",
  "n:m": "Values repeat on both sides, so the result can have more rows than yours.",
};

export function cardinality(kind: string): string {
  return CARDINALITIES[kind] ?? "";
}

const BETWEEN: Record<string, string> = {
  "1:1": "Each row matches at most one row.",
  "n:1": "Several rows of the first table may match one row of the second.",
  "1:n": "One row of the first table may match several rows of the second.",
  "n:m": "Values repeat on both sides.",
};

/** The same for two tables of the lake. */
export function cardinalityBetween(kind: string): string {
  return BETWEEN[kind] ?? "";
}

const WAYS: Record<string, string> = {
  "exact-equi": "equal values",
  "cell-vectors": "values similar in meaning",
  "exact-semantic": "values similar in meaning",
  deepjoin: "the meaning of the whole column",
  sketch: "a sketch of its values",
  "deepjoin-sketch": "the meaning and a sketch of the whole column",
};

/** How a hit was found; other methods are shown by name. */
export function foundBy(ways: string[]): string {
  return ways.map((way) => WAYS[way] ?? way).join(", ");
}

const GENERIC: Record<Generic, string> = {
  run: "Row numbers, 1 to n. Such keys match almost anything; check that they mean the same.",
  year: "Years. Such keys match almost anything; check that they mean the same.",
  range: "This column holds most numbers of the range of yours, so any others would match as well.",
  flag: "A flag with few values. Such keys match almost anything and multiply rows.",
};

export function genericKey(kind: Generic | "" | null): string {
  return kind ? GENERIC[kind] : "";
}

const JOINS: Record<string, string> = {
  any: "Equal or similar",
  equi: "Equal values",
  semantic: "Similar in meaning",
};

export function joinWords(join: string): string {
  return JOINS[join] ?? join;
}

/** Shortens by visible characters, keeping the end, which often tells names apart. */
export function shorten(text: string, most: number): string {
  if (text.length <= most) return text;
  const letters = Array.from(text.length > 4 * most ? ends(text, 2 * most) : text);
  if (letters.length <= most) return text;
  const tail = Math.min(12, Math.floor(most / 4));
  return `${letters.slice(0, most - tail - 1).join("")}…${letters.slice(-tail).join("")}`;
}

function ends(text: string, most: number): string {
  return text.slice(0, most) + text.slice(-most);
}

/** What is shown for an invisible name. */
export function seen(text: string): string {
  if (text === "") return "(no name)";
  return /[^\s\p{Cf}\p{Cc}]/u.test(text) ? text : "(blank)";
}

/** A name in pieces between which a line may break: after slashes, dashes and underscores. */
export function pieces(name: string): string[] {
  return name.split(/(?<=[/\\_-])(?=[^/\\_-])/);
}

/** Whether a title says no more than the name it was made from. */
export function sameWords(title: string, name: string): boolean {
  const words = (text: string) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).join(" ");
  return words(name).includes(words(title));
}

/** The last part of a table's name, for the map. */
export function lastPart(table: string): string {
  return table.split("/").filter(Boolean).at(-1) ?? table;
}

/**
 * The join that shows all matches of a hit: by meaning only where that adds some. While the search
 * is ``running`` similar values may still come, so the join is of the kind that the search is.
 */
export function fittingJoin(hit: Hit, running?: JoinKind): JoinKind {
  if (running) return running;
  return hit.semantic && hit.semantic.matched > hit.equi.matched ? hit.join : "equi";
}

export function sourceKey(source: Source): string {
  return "upload" in source ? `upload ${source.upload}` : `table ${source.table}`;
}

export interface Explained {
  title: string;
  text: string;
  retry: boolean;
}

/** Says what went wrong and what to do about it. */
export function explain(error: ApiError): Explained {
  switch (error.kind) {
    case "gone":
      return {
        title: "The service does not answer",
        text: "It may have stopped, or it is still starting. Check that “deepjoin serve” is running, then try again.",
        retry: true,
      };
    case "busy":
      return { title: "That took too long", text: error.message, retry: true };
    case "large":
      return { title: "Too large", text: error.message, retry: false };
    case "missing":
      return { title: "Not found", text: error.message, retry: false };
    case "token":
      return { title: "The token was not accepted", text: "Nothing was done. Please try again.", retry: false };
    case "refused":
      return { title: "The request was refused", text: error.message, retry: false };
    case "broken":
      return { title: "The service failed", text: error.message, retry: true };
  }
}
