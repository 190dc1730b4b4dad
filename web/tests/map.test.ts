import { describe, expect, it } from "vitest";
import type { Edge, Graph, JoinBody, Preview, TableDetail } from "../src/api/types";
import { isPicked, lines, onPaths, turned, withEdges, within } from "../src/map/graph";
import { joinAlong } from "../src/map/run";
import { layOut, placeLabels } from "../src/map/layout";
import { LEAST, leftOut, LONGEST, MOST, noPath } from "../src/map/says";

function edge(a: string, b: string, joinability = 0.9, reverse = 0.4, cardinality = "1:n"): Edge {
  const [[aTable, aColumn], [bTable, bColumn]] = [a.split("."), b.split(".")];
  return {
    a: { table: aTable ?? "", column: aColumn ?? "k" },
    b: { table: bTable ?? "", column: bColumn ?? "k" },
    joinability,
    reverse,
    matched: 9,
    probability: 0.9,
    cardinality,
  };
}

function star(leaves: number): Graph {
  const names = Array.from({ length: leaves }, (_, place) => `leaf${place}`);
  return {
    nodes: [
      { table: "centre", rows: 1, columns: 1, distance: 0 },
      ...names.map((table) => ({ table, rows: 1, columns: 1, distance: 1 })),
    ],
    edges: names.map((name) => edge("centre.k", `${name}.k`)),
    truncated: false,
  };
}

describe("lines of the map", () => {
  it("hold all joins of two tables, whichever is named first, best first", () => {
    const found = lines([edge("a.x", "b.y", 0.5, 0.2), edge("b.z", "a.x", 0.1, 0.8), edge("a.x", "a.y")]);
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ tables: ["a", "b"], best: 0.8 });
    expect(found[0]?.edges[0]?.a.column).toBe("z");
    expect(isPicked(found[0]!, ["b", "a"])).toBe(true);
    expect(isPicked(found[0]!, ["a"])).toBe(false);
  });

  it("take in paths that lead out of the neighbourhood, once", () => {
    const graph = star(1);
    const path = [edge("centre.k", "leaf0.k"), edge("leaf0.k", "far.k")];
    const whole = withEdges(graph, path, 9);
    expect(whole.nodes.map((node) => node.table)).toEqual(["centre", "leaf0", "far"]);
    expect(whole.edges).toHaveLength(2);
    expect(onPaths([path])).toEqual(new Set(['["centre","leaf0"]', '["far","leaf0"]']));
  });

  it("tell columns of one name apart by their ids", () => {
    const graph = star(1);
    const [one, other] = ["centre#0", "centre#3"].map((column_id) => {
      const named = edge("centre.k", "leaf0.k");
      return { ...named, a: { ...named.a, column_id } };
    });
    expect(withEdges({ ...graph, edges: [one!] }, [other!], 1).edges).toHaveLength(2);
  });

  it("by meaning are drawn where no values are equal, once for both directions", () => {
    const graph = star(1);
    const similar = { ...edge("leaf0.k", "centre.k"), join: "semantic" as const };
    const far = { ...edge("centre.k", "far.k"), join: "semantic" as const };
    expect(within(graph, [similar, far])).toEqual([similar]);
    const whole = withEdges(graph, [similar, far], 1);
    expect(whole.edges).toHaveLength(2);
    expect(lines(whole.edges).map((line) => line.similar).sort()).toEqual([false, true]);
  });

  it("of a path are made one after the other, renamed columns under their new names", async () => {
    const asked: JoinBody[] = [];
    const api = {
      preview: async () => ({ facts: { renamed: { z: "z_b" } } }) as unknown as Preview,
      keepJoin: async (body: JoinBody) => (asked.push(body), { upload: "kept" } as TableDetail),
    };
    const path = [edge("a.x", "b.y"), edge("b.z", "c.w")];
    const view = await joinAlong(api, path, new AbortController().signal, () => undefined);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toMatchObject({ left: { table: "a" }, on: "x", hit: { table: "b", column: "y" } });
    expect(view).toMatchObject({ view: "join", source: { upload: "kept" }, column: "z_b", hit: { table: "c", column: "w" } });
  });

  it("are turned to lead from the start of a path to its end", () => {
    const path = turned([edge("b.y", "a.x", 0.9, 0.4, "1:n"), edge("b.z", "c.w")], "a");
    expect(path.map(({ a, b }) => [a.table, b.table])).toEqual([
      ["a", "b"],
      ["b", "c"],
    ]);
    expect(path[0]).toMatchObject({ joinability: 0.4, reverse: 0.9, cardinality: "n:1" });
  });
});

describe("the layout", () => {
  const box = { width: 700, height: 480 };

  it.each([0, 1, 7, 60])("is the same each time and stays within its box: %i neighbours", (leaves) => {
    const graph = star(leaves);
    const places = layOut(graph.nodes, lines(graph.edges), box);
    expect(places).toEqual(layOut(graph.nodes, lines(graph.edges), box));
    expect(places).toHaveLength(leaves + 1);
    for (const { x, y } of places) {
      expect(x).toBeGreaterThanOrEqual(0);
      expect(x).toBeLessThanOrEqual(box.width);
      expect(y).toBeGreaterThanOrEqual(0);
      expect(y).toBeLessThanOrEqual(box.height);
    }
    expect(places[0]).toMatchObject({ table: "centre", x: box.width / 2 });
  });

  it("of an overview has no middle", () => {
    const { nodes, edges } = star(7);
    const places = layOut(nodes.map((node) => ({ ...node, distance: 0 })), lines(edges), box);
    expect(new Set(places.map(({ x, y }) => `${x} ${y}`)).size).toBe(8);
  });

  it("labels the middle first and lets no two labels meet", () => {
    const graph = star(60);
    const places = layOut(graph.nodes, lines(graph.edges), box);
    const labels = placeLabels(places, (table) => table, box);
    expect(labels[0]?.table).toBe("centre");
    expect(labels.length).toBeGreaterThan(20);
    for (const one of labels)
      for (const other of labels)
        if (one !== other && Math.abs(one.y - other.y) < 12)
          expect(Math.abs(one.x - other.x)).toBeGreaterThan(30);
  });
});

describe("what the map says", () => {
  const now = { table: "a", to: "b", least: 0.5 };
  const none = { paths: [], searched: 256, complete: true, probabilities: [], fan_outs: [] };

  it("of a missing path is no more than was searched", () => {
    expect(noPath(none, now)).toBe(`no path within ${LONGEST} joins at this minimum joinability. A lower minimum may give one.`);
    expect(noPath({ ...none, complete: false, probabilities: [], fan_outs: [] }, now)).toContain("reached its limit after 256 columns");
    expect(noPath(none, { ...now, to: "a" })).toContain("the table in the centre of the map");
  });

  it("advises a lower minimum only where there is one", () => {
    expect(noPath(none, { ...now, least: LEAST })).not.toContain("lower");
    expect(noPath({ ...none, complete: false, probabilities: [], fan_outs: [] }, now)).not.toContain("minimum");
  });

  it("tells a full map from a search that stopped", () => {
    expect(leftOut(star(MOST - 1))).toContain("at most 60 tables");
    expect(leftOut(star(3))).toContain("reached its limit");
  });
});
