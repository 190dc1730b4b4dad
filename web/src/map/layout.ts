/** Places of the tables on the map, found once by forces; the same graph gives the same map. */

import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
  type SimulationNodeDatum,
} from "d3-force";
import type { GraphNode } from "../api/types";
import { byDistance, type Line } from "./graph";

export interface Place {
  table: string;
  x: number;
  y: number;
  distance: number;
}

export interface Box {
  width: number;
  height: number;
}

interface Body extends SimulationNodeDatum {
  table: string;
  distance: number;
}

const TICKS = 300;
const MARGIN = { x: 56, top: 30, bottom: 34 };

/** Lets the forces settle, then fits the result into the box. */
export function layOut(nodes: GraphNode[], lines: Line[], box: Box): Place[] {
  const bodies: Body[] = byDistance(nodes).map(({ table, distance }) => ({ table, distance }));
  const links = lines.map(({ tables: [source, target] }) => ({ source, target }));
  const wide = box.width > box.height;
  forceSimulation(bodies)
    .force("charge", forceManyBody<Body>().strength(-420))
    .force("link", forceLink<Body, (typeof links)[number]>(links).id((body) => body.table).distance(110))
    .force("apart", forceCollide<Body>(38))
    .force("x", forceX<Body>(0).strength(wide ? 0.04 : 0.12))
    .force("y", forceY<Body>(0).strength(wide ? 0.12 : 0.04))
    .stop()
    .tick(TICKS);
  return fitted(bodies, box);
}

function fitted(bodies: Body[], box: Box): Place[] {
  const [x, y] = [scale(bodies.map((body) => body.x ?? 0)), scale(bodies.map((body) => body.y ?? 0))];
  const width = box.width - 2 * MARGIN.x;
  const height = box.height - MARGIN.top - MARGIN.bottom;
  return bodies.map(({ table, distance, ...body }) => ({
    table,
    distance,
    x: MARGIN.x + x(body.x ?? 0) * width,
    y: MARGIN.top + y(body.y ?? 0) * height,
  }));
}

function scale(values: number[]): (value: number) => number {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return (value) => (most > least ? (value - least) / (most - least) : 0.5);
}

export interface Label {
  table: string;
  x: number;
  y: number;
}

const LETTER = 6.4;
const LINE = 14;

/** Labels that fit without covering each other, the first places first. */
export function placeLabels(places: Place[], text: (table: string) => string, box: Box): Label[] {
  const taken = places.map(({ x, y }) => rectangle(x, y, 16, 16));
  const labels: Label[] = [];
  for (const place of places) {
    const half = (text(place.table).length * LETTER) / 2 + 3;
    const x = Math.min(Math.max(place.x, half), Math.max(half, box.width - half));
    const own = rectangle(place.x, place.y, 16, 16);
    const y = [place.y + 22, place.y - 18].find((line) => {
      const wanted = rectangle(x, line - 4, 2 * half, LINE);
      return line < box.height && taken.every((other) => same(other, own) || !meet(other, wanted));
    });
    if (y === undefined) continue;
    taken.push(rectangle(x, y - 4, 2 * half, LINE));
    labels.push({ table: place.table, x, y });
  }
  return labels;
}

type Rectangle = [left: number, top: number, right: number, bottom: number];

function rectangle(x: number, y: number, width: number, height: number): Rectangle {
  return [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
}

function same(one: Rectangle, other: Rectangle): boolean {
  return one.every((side, place) => side === other[place]);
}

function meet(one: Rectangle, other: Rectangle): boolean {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}
