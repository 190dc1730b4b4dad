/** Runs a path of joins: each result is the left table of the next join. */

import type { Api } from "../api/client";
import type { Edge, JoinBody, Source } from "../api/types";
import { OPTIONS, type Route } from "../route";

/** Makes all joins but the last, and returns the view that previews that. */
export async function joinAlong(
  api: Pick<Api, "preview" | "keepJoin">,
  path: Edge[],
  signal: AbortSignal,
  progress: (step: number) => void,
): Promise<Route> {
  const [first, ...rest] = path;
  if (!first) throw new Error("A path has at least one join.");
  const options = { ...OPTIONS, join: "equi" as const };
  let [edge, source, column]: [Edge, Source, string] = [first, { table: first.a.table }, first.a.column];
  for (const [step, next] of rest.entries()) {
    progress(step + 1);
    const body: JoinBody = { left: source, on: column, hit: { ...edge.b, column_id: null }, ...options, decisions: [] };
    // Columns whose names the left table has already are renamed.
    const { facts } = await api.preview(body, 0, signal);
    const kept = await api.keepJoin(body, signal);
    source = { upload: kept.upload ?? "" };
    column = facts.renamed[next.a.column] ?? next.a.column;
    edge = next;
  }
  return { view: "join", source, column, hit: edge.b, options };
}
