/** The map as data: tables, and between two tables one line for all their proven joins. */

import type { Edge, Graph, GraphNode } from "../api/types";

export interface Line {
  tables: [string, string];
  edges: Edge[];
  /** The best joinability of either direction. */
  best: number;
  /** Whether no two of their columns join by equal values. */
  similar: boolean;
  /** The chance that the likeliest of the joins means something. */
  chance: number;
}

/** Adds joins that a map does not hold, and their tables this many joins away. */
export function withEdges(graph: Graph, more: Edge[], distance: number): Graph {
  const nodes = new Map(graph.nodes.map((node) => [node.table, node]));
  const edges = new Map(graph.edges.map((edge) => [edgeKey(edge), edge]));
  for (const edge of more) {
    if (!edges.has(edgeKey(edge))) edges.set(edgeKey(edge), edge);
    for (const { table } of [edge.a, edge.b])
      if (!nodes.has(table)) nodes.set(table, { table, rows: 0, columns: 0, distance });
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()], truncated: graph.truncated };
}

/** Joins of which a map holds both tables. */
export function within(graph: Graph, edges: Edge[]): Edge[] {
  const tables = new Set(graph.nodes.map(({ table }) => table));
  return edges.filter(({ a, b }) => tables.has(a.table) && tables.has(b.table));
}

/** Columns of one table may have the same name, so the id counts where it is known. */
function edgeKey({ a, b }: Edge): string {
  const ends = [a, b].map(({ table, column, column_id }) => JSON.stringify([table, column_id ?? column]));
  return JSON.stringify(ends.sort());
}

/** Puts joins between the same two tables together, the best join first. */
export function lines(edges: Edge[]): Line[] {
  const found = new Map<string, Line>();
  for (const edge of edges) {
    if (edge.a.table === edge.b.table) continue;
    const tables = pair(edge.a.table, edge.b.table);
    const key = JSON.stringify(tables);
    const line = found.get(key) ?? { tables, edges: [], best: 0, similar: true, chance: 0 };
    line.edges.push(edge);
    line.similar &&= edge.join === "semantic";
    line.best = Math.max(line.best, strength(edge));
    line.chance = Math.max(line.chance, edge.probability ?? 0);
    found.set(key, line);
  }
  const all = [...found.values()];
  for (const line of all) line.edges.sort((a, b) => (b.probability ?? 0) - (a.probability ?? 0) || strength(b) - strength(a));
  return all.sort((a, b) => b.chance - a.chance || b.best - a.best);
}

/** Below this probability a join is more likely a coincidence, and drawn faintly. */
export const LIKELY = 0.5;

export function pair(one: string, other: string): [string, string] {
  return one < other ? [one, other] : [other, one];
}

export function strength(edge: Edge): number {
  return Math.max(edge.joinability, edge.reverse);
}

/** Whether a line joins the two tables that were picked. */
export function isPicked(line: Line, picked: string[]): boolean {
  const [one, other] = picked;
  if (one === undefined || other === undefined) return false;
  return JSON.stringify(pair(one, other)) === JSON.stringify(line.tables);
}

/** Lines that lie on a path. */
export function onPaths(paths: Edge[][]): Set<string> {
  return new Set(paths.flat().map(({ a, b }) => JSON.stringify(pair(a.table, b.table))));
}

/** A path read from its start: each join turned so that it leads on. */
export function turned(path: Edge[], from: string): Edge[] {
  let at = from;
  return path.map((edge) => {
    const forward = edge.a.table === at;
    at = forward ? edge.b.table : edge.a.table;
    return forward ? edge : flipped(edge);
  });
}

export function flipped(edge: Edge): Edge {
  return {
    a: edge.b,
    b: edge.a,
    joinability: edge.reverse,
    reverse: edge.joinability,
    matched: edge.matched,
    cardinality: [...edge.cardinality].reverse().join(""),
    probability: edge.probability ?? 0,
    ...(edge.decided && { decided: edge.decided }),
    ...(edge.join && { join: edge.join }),
  };
}

export function byDistance(nodes: GraphNode[]): GraphNode[] {
  return [...nodes].sort((a, b) => a.distance - b.distance || b.rows - a.rows);
}
