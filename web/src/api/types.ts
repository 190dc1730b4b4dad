/** What the service answers, as its contract has it. */

export interface Method {
  name: string;
  joins: string[];
  says: string;
}

export interface Limits {
  upload_bytes: number;
  preview_rows: number;
  seconds: number;
  k: number;
}

export interface Lake {
  name: string;
  version: string;
  generation: string;
  tables: number;
  columns: number;
  values: number;
  rows: number;
  cells: number;
  bytes: number;
  joins: JoinKind[];
  methods: Method[];
  default_method: string;
  default_join: JoinKind;
  hash_only: boolean;
  limits: Limits;
  can_write: boolean;
  needs_token: boolean;
}

export type JoinKind = "any" | "equi" | "semantic";
export type Generic = "run" | "year" | "flag";
export type Row = Record<string, string | null>;

export interface TableEntry {
  name: string;
  title: string;
  rows: number;
  columns: number;
  names: string[];
}

export interface TableList {
  total: number;
  tables: TableEntry[];
}

export interface ColumnEntry {
  table: string;
  column: string;
  type: string;
  distinct: number;
}

export interface ValueEntry {
  value: string;
  columns: { table: string; column: string; rows: number }[];
  total: number;
}

export interface Found {
  tables: TableEntry[];
  columns: ColumnEntry[];
  values: ValueEntry[];
}

export interface ColumnDetail {
  name: string;
  type: string;
  distinct: number;
  /** Share of the rows that have a cell. */
  filled: number;
  indexed: boolean;
  left_out: string;
  generic: Generic | "" | null;
  samples: string[];
  key: number;
}

export interface TableDetail {
  name: string;
  title: string;
  context: string;
  rows: number;
  source: string;
  notes: string[];
  columns: ColumnDetail[];
  best_keys: string[];
  sample: Row[];
  upload?: string;
  expires_in?: number;
}

export interface Match {
  query: string;
  target: string;
  similarity: number;
}

export interface Equi {
  joinability: number;
  reverse: number;
  matched: number;
  join_size: number;
  multiset: number;
}

export interface Semantic {
  joinability: number;
  reverse: number;
  matched: number;
  tau: number;
}

export interface Hit {
  rank: number;
  table: string;
  column: string;
  column_id: string;
  type: string;
  generic: Generic | "" | null;
  join: JoinKind;
  score: number;
  joinability: number;
  equi: Equi;
  semantic: Semantic | null;
  query_size: number;
  target_size: number;
  cardinality: string;
  matches: Match[];
  unmatched: string[];
  found_by: string[];
  brings: { columns: string[]; sample: Row[] };
  also?: Hit[];
}

export interface Results {
  query: Record<string, unknown>;
  hits: Hit[];
  seconds: Record<string, number>;
}

/** A table of the lake, or one that was uploaded. */
export type Source = { table: string } | { upload: string };

export interface SearchBody {
  query: Source & { column: string };
  k?: number;
  join?: JoinKind;
  method?: string;
  tau?: number;
  min_joinability?: number;
  group?: "tables";
  exclude_table?: string;
  matches?: number;
}

export type How = "left" | "inner";
export type Many = "expand" | "first" | "aggregate";
export type Matching = "best" | "one-to-one" | "all";

export interface JoinBody {
  left: Source;
  on: string;
  hit: ColumnPlace;
  how: How;
  many: Many;
  join: "equi" | "semantic" | null;
  tau: number | null;
  matching: Matching;
}

export interface Facts {
  left_rows: number;
  right_rows: number;
  left_keys: number;
  matched_keys: number;
  matched_left_rows: number;
  result_rows: number;
  cardinality: string;
  max_fan_out: number;
  equal_keys: number;
  join: "equi" | "semantic";
  tau: number | null;
  matching: Matching | null;
  similarity: string | null;
}

export interface Preview {
  columns: { name: string; from: "left" | "right"; type: string }[];
  rows: (string | null)[][];
  facts: Facts;
  warnings: string[];
  sql: string;
  python: string;
  pandas: string;
  shell: string;
}

export interface ColumnPlace {
  table: string;
  column: string;
  /** Tells nameless columns of a table, and those of one name, apart; where it is known. */
  column_id?: string;
}

export interface Edge {
  a: ColumnPlace;
  b: ColumnPlace;
  joinability: number;
  reverse: number;
  matched: number;
  cardinality: string;
}

export interface GraphNode {
  table: string;
  rows: number;
  columns: number;
  distance: number;
}

export interface Graph {
  nodes: GraphNode[];
  edges: Edge[];
  /** Whether tables or joins were left out, or not looked for. */
  truncated: boolean;
}

export interface Paths {
  paths: Edge[][];
  /** Columns whose joins were looked for. */
  searched: number;
  /** Whether no path of the length that was asked for can have been missed. */
  complete: boolean;
}
