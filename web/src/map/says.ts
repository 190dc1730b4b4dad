/** What the map may claim: no more than was searched, no advice that would not help. */

import type { Graph, Paths } from "../api/types";
import type { MapState } from "../route";
import { count, counted } from "../words";

/** Tables the map asks for at most. */
export const MOST = 60;
/** Joins a path may have. */
export const LONGEST = 4;
/** The least joinability that can be chosen. */
export const LEAST = 0.1;

/** Why there is no path. */
export function noPath(paths: Paths, now: Pick<MapState, "table" | "to" | "least">): string {
  if (now.table === now.to) return "this is the table in the centre of the map.";
  if (!paths.complete)
    return (
      `no path was found. The search reached its limit after ${counted(paths.searched, "column")}, ` +
      `so there may be one. Try a table that is nearer.`
    );
  const none = `no path within ${LONGEST} joins at this minimum joinability.`;
  return now.least > LEAST ? `${none} A lower minimum may give one.` : none;
}

/** What a map lacks of which the service says that it is cut. */
export function leftOut(graph: Graph): string {
  if (graph.nodes.length >= MOST)
    return `The map shows at most ${count(MOST)} tables: those with the best joins.`;
  return "The search reached its limit: tables or joins may be missing.";
}
