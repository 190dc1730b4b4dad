/** Views as addresses: everything a view shows can be read from the query string and back. */

import type { Aggregate, ColumnPlace, How, JoinKind, Many, Matching, Source } from "./api/types";

export interface Filters {
  /** Further columns of the query's table that are one key with the first. */
  also: string[];
  join: JoinKind | "";
  method: string;
  k: number;
  least: number;
  tau: number | null;
  grouped: boolean;
  brings: string;
  generic: boolean;
  /** Whether hits are listed that a person would hardly make joins of. */
  unlikely: boolean;
  /** Cards that show their evidence, by the ids of their columns; null for the best hit alone. */
  open: string[] | null;
}

export interface Options {
  how: How;
  many: Many;
  join: "" | JoinKind;
  tau: number | null;
  /** The least estimated precision of the pairs; null for those that are more likely right. */
  precision: number | null;
  matching: Matching;
  /** Columns to add; null for all. */
  columns: string[] | null;
  /** What becomes of the cells of several rows, by column; the others have their default. */
  aggregate: Record<string, Aggregate>;
}

export const AGGREGATES: readonly Aggregate[] = ["first", "count", "sum", "mean", "min", "max", "list"];

export interface MapState {
  table: string;
  depth: number;
  least: number;
  to: string;
  picked: string[];
}

export interface EnrichState {
  /** The column to predict; "" to see what could be added. */
  target: string;
  depth: 1 | 2 | 3;
  about: string;
}

export type Route =
  | { view: "start"; text: string }
  | { view: "table"; source: Source }
  | { view: "search"; source: Source; column: string; filters: Filters }
  | { view: "join"; source: Source; column: string; also?: string[]; hit: ColumnPlace; options: Options }
  | ({ view: "map" } & MapState)
  | { view: "relations"; least: number }
  | ({ view: "enrich"; source: Source } & EnrichState)
  | { view: "unknown"; address: string };

export const FILTERS: Filters = {
  also: [],
  join: "",
  method: "",
  k: 10,
  least: 0,
  tau: null,
  grouped: false,
  brings: "",
  generic: true,
  unlikely: false,
  open: null,
};
export const OPTIONS: Options = {
  how: "left",
  many: "expand",
  join: "",
  tau: null,
  precision: null,
  matching: "best",
  columns: null,
  aggregate: {},
};
export const LIKELY = 0.5;
export const ENRICH: EnrichState = { target: "", depth: 2, about: "" };
export const MAP: MapState = { table: "", depth: 1, least: 0.5, to: "", picked: [] };

/** Reads an address; what it lacks or says wrongly becomes the default. */
export function parse(search: string): Route {
  const given = new URLSearchParams(search);
  const source = sourceOf(given);
  const column = given.get("column");
  switch (given.get("view") ?? "start") {
    case "start":
      return { view: "start", text: given.get("text") ?? "" };
    case "map":
      return { view: "map", ...mapOf(given) };
    case "relations":
      return { view: "relations", least: share(given.get("least"), LIKELY) };
    case "table":
      if (source) return { view: "table", source };
      break;
    case "enrich":
      if (source) return { view: "enrich", source, ...enrichOf(given) };
      break;
    case "search":
      if (source && column !== null)
        return { view: "search", source, column, filters: filtersOf(given) };
      break;
    case "join":
      if (source && column !== null && given.has("with"))
        return { view: "join", source, column, ...alsoOf(given), hit: hitOf(given), options: optionsOf(given) };
      break;
  }
  return { view: "unknown", address: search };
}

/** Writes the address of a view, defaults left out. */
export function write(route: Route): string {
  const text = new URLSearchParams(said(route)).toString();
  return text ? `?${text}` : "./";
}

type Said = [string, string][];

function said(route: Route): Said {
  switch (route.view) {
    case "start":
      return unless([["text", route.text, ""]]);
    case "table":
      return [["view", "table"], ...sourceSaid(route.source)];
    case "search":
      return [
        ["view", "search"],
        ...sourceSaid(route.source),
        ...columnsSaid("column", [route.column, ...route.filters.also]),
        ...filtersSaid(route.filters),
      ];
    case "join":
      return [
        ["view", "join"],
        ...sourceSaid(route.source),
        ...columnsSaid("column", [route.column, ...(route.also ?? [])]),
        ["with", route.hit.table],
        ...columnsSaid("on", route.hit.columns ?? [route.hit.column]),
        ...(route.hit.column_id === undefined ? [] : [["id", route.hit.column_id] as [string, string]]),
        ...optionsSaid(route.options),
      ];
    case "map":
      return [["view", "map"], ...mapSaid(route)];
    case "relations":
      return [["view", "relations"], ...unless([["least", String(route.least), String(LIKELY)]])];
    case "enrich":
      return [
        ["view", "enrich"],
        ...sourceSaid(route.source),
        ...unless([
          ["target", route.target, ENRICH.target],
          ["depth", route.depth, ENRICH.depth],
          ["about", route.about, ENRICH.about],
        ]),
      ];
    case "unknown":
      return [...new URLSearchParams(route.address)];
  }
}

function unless(entries: [string, unknown, unknown][]): Said {
  return entries
    .filter(([, value, usual]) => String(value) !== String(usual))
    .map(([name, value]) => [name, String(value)]);
}

function columnsSaid(name: string, columns: string[]): Said {
  return columns.map((column) => [name, column]);
}

function sourceSaid(source: Source): Said {
  return "upload" in source ? [["upload", source.upload]] : [["table", source.table]];
}

function filtersSaid(now: Filters): Said {
  return [
    ...unless([
      ["join", now.join, FILTERS.join],
      ["method", now.method, FILTERS.method],
      ["k", now.k, FILTERS.k],
      ["least", now.least, FILTERS.least],
      ["tau", now.tau, FILTERS.tau],
      ["grouped", now.grouped, FILTERS.grouped],
      ["brings", now.brings, FILTERS.brings],
      ["generic", now.generic, FILTERS.generic],
      ["unlikely", now.unlikely, FILTERS.unlikely],
    ]),
    // An empty one says that all are closed.
    ...columnsSaid("open", now.open?.length === 0 ? [""] : (now.open ?? [])),
  ];
}

function optionsSaid(now: Options): Said {
  return [
    ...unless([
      ["how", now.how, OPTIONS.how],
      ["many", now.many, OPTIONS.many],
      ["join", now.join, OPTIONS.join],
      ["tau", now.tau, OPTIONS.tau],
      ["precision", now.precision, OPTIONS.precision],
      ["matching", now.matching, OPTIONS.matching],
    ]),
    ...(now.columns ?? []).map((name): [string, string] => ["add", name]),
    ...Object.entries(now.aggregate).map(([name, how]): [string, string] => ["aggregate", `${how} ${name}`]),
  ];
}

function mapSaid(now: MapState): Said {
  return [
    ...unless([
      ["table", now.table, MAP.table],
      ["depth", now.depth, MAP.depth],
      ["least", now.least, MAP.least],
      ["to", now.to, MAP.to],
    ]),
    ...now.picked.map((table): [string, string] => ["picked", table]),
  ];
}

function sourceOf(given: URLSearchParams): Source | null {
  const [upload, table] = [given.get("upload"), given.get("table")];
  if (upload !== null) return { upload };
  return table === null ? null : { table };
}

function hitOf(given: URLSearchParams): ColumnPlace {
  const place = { table: given.get("with") ?? "", column: given.get("on") ?? "" };
  const [id, columns] = [given.get("id"), given.getAll("on")];
  return { ...place, ...(id !== null && { column_id: id }), ...(columns.length > 1 && { columns }) };
}

function alsoOf(given: URLSearchParams): { also?: string[] } {
  const also = given.getAll("column").slice(1);
  return also.length ? { also } : {};
}

function filtersOf(given: URLSearchParams): Filters {
  return {
    also: given.getAll("column").slice(1),
    join: oneOf(given.get("join"), ["any", "equi", "semantic"], FILTERS.join),
    method: given.get("method") ?? FILTERS.method,
    k: Math.max(1, Math.round(number(given.get("k"), FILTERS.k))),
    least: share(given.get("least"), FILTERS.least),
    tau: shareAbove(given, "tau", 0.7),
    grouped: given.get("grouped") === "true",
    brings: given.get("brings") ?? FILTERS.brings,
    generic: given.get("generic") !== "false",
    unlikely: given.get("unlikely") === "true",
    open: given.has("open") ? given.getAll("open").filter((id) => id !== "") : FILTERS.open,
  };
}

function optionsOf(given: URLSearchParams): Options {
  return {
    how: oneOf(given.get("how"), ["left", "inner"], OPTIONS.how),
    many: oneOf(given.get("many"), ["expand", "first", "aggregate"], OPTIONS.many),
    join: oneOf(given.get("join"), ["any", "equi", "semantic"], OPTIONS.join),
    tau: shareAbove(given, "tau", 0.7),
    precision: shareAbove(given, "precision", 0.9),
    matching: oneOf(given.get("matching"), ["best", "one-to-one", "all"], OPTIONS.matching),
    columns: given.has("add") ? given.getAll("add") : null,
    aggregate: Object.fromEntries(given.getAll("aggregate").flatMap(aggregateOf)),
  };
}

/** Reads "mean price": how the cells of several rows become one, and of which column. */
function aggregateOf(text: string): [string, Aggregate][] {
  const [how = "", ...name] = text.split(" ");
  const known = AGGREGATES.find((one) => one === how);
  return known && name.length ? [[name.join(" "), known]] : [];
}

function enrichOf(given: URLSearchParams): EnrichState {
  return {
    target: given.get("target") ?? ENRICH.target,
    depth: ([1, 2, 3] as const).find((one) => String(one) === given.get("depth")) ?? ENRICH.depth,
    about: given.get("about") ?? ENRICH.about,
  };
}

function mapOf(given: URLSearchParams): MapState {
  return {
    table: given.get("table") ?? MAP.table,
    depth: Math.min(3, Math.max(1, Math.round(number(given.get("depth"), MAP.depth)))),
    least: share(given.get("least"), MAP.least),
    to: given.get("to") ?? MAP.to,
    picked: given.getAll("picked").slice(0, 2),
  };
}

function oneOf<T extends string, D extends string>(
  got: string | null,
  allowed: readonly T[],
  usual: D,
): T | D {
  return allowed.find((one) => one === got) ?? usual;
}

function number(got: string | null, usual: number): number {
  const value = got === null || got === "" ? NaN : Number(got);
  return Number.isFinite(value) ? value : usual;
}

function share(got: string | null, usual: number): number {
  return Math.min(1, Math.max(0, number(got, usual)));
}

/** The least similarity of values; the service refuses 0, at which all are similar. */
function shareAbove(given: URLSearchParams, name: string, usual: number): number | null {
  return given.has(name) ? Math.max(0.01, share(given.get(name), usual)) : null;
}
