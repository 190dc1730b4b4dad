/** Places of the tables on the map, found once by forces; the same graph gives the same map. */

import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceRadial,
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
const RING = 150;
const MARGIN = { x: 58, top: 26, bottom: 36 };

/** Rings around the table in the middle, by joins away; in an overview, joins draw tables together. */
export function layOut(nodes: GraphNode[], lines: Line[], box: Box): Place[] {
  const overview = nodes.filter(({ distance }) => distance === 0).length > 1;
  const bodies: Body[] = byDistance(nodes).map(({ table, distance }) =>
    distance === 0 && !overview ? { table, distance, fx: 0, fy: 0 } : { table, distance: Math.min(distance, 3) },
  );
  const links = lines.map(({ tables: [source, target] }) => ({ source, target }));
  const simulation = forceSimulation(bodies)
    .force("charge", forceManyBody<Body>().strength(-260))
    .force(
      "link",
      forceLink<Body, (typeof links)[number]>(links)
        .id((body) => body.table)
        .distance(overview ? RING / 2 : RING)
        .strength(overview ? 0.2 : 0.03),
    )
    .force("apart", forceCollide<Body>(34))
    .stop();
  if (overview) simulation.force("x", forceX<Body>().strength(0.12)).force("y", forceY<Body>().strength(0.12));
  else simulation.force("ring", forceRadial<Body>(({ distance }) => distance * RING).strength(0.9));
  simulation.tick(TICKS);
  return fitted(bodies, box);
}

/** Stretches the rings to fill the box, the middle staying in the middle. */
function fitted(bodies: Body[], box: Box): Place[] {
  const farX = Math.max(1, ...bodies.map(({ x = 0 }) => Math.abs(x)));
  const farY = Math.max(1, ...bodies.map(({ y = 0 }) => Math.abs(y)));
  const [left, right] = [MARGIN.x, box.width - MARGIN.x];
  const [top, bottom] = [MARGIN.top, box.height - MARGIN.bottom];
  return bodies.map(({ table, distance, x = 0, y = 0 }) => ({
    table,
    distance,
    x: (left + right) / 2 + (x / farX) * ((right - left) / 2),
    y: (top + bottom) / 2 + (y / farY) * ((bottom - top) / 2),
  }));
}

export interface Label {
  table: string;
  x: number;
  y: number;
}

const LETTER = 7.2;
const LINE = 14;

/** Labels that fit without covering dots or each other, the first places first. */
export function placeLabels(places: Place[], text: (table: string) => string, box: Box): Label[] {
  const dots = places.map((place) => ({ place, area: rectangle(place.x, place.y, 16, 16) }));
  const taken: Rectangle[] = [];
  const labels: Label[] = [];
  for (const place of places) {
    const half = (text(place.table).length * LETTER) / 2 + 3;
    const x = Math.min(Math.max(place.x, half), Math.max(half, box.width - half));
    const free = (area: Rectangle) =>
      taken.every((other) => !meet(other, area)) &&
      dots.every((dot) => dot.place === place || !meet(dot.area, area));
    const y = [place.y + 23, place.y - 14].find((line) => free(labelArea(x, line, half)));
    if (y === undefined || y > box.height) continue;
    taken.push(labelArea(x, y, half));
    labels.push({ table: place.table, x, y });
  }
  return labels;
}

type Rectangle = [left: number, top: number, right: number, bottom: number];

function labelArea(x: number, baseline: number, half: number): Rectangle {
  return rectangle(x, baseline - 4, 2 * half, LINE);
}

function rectangle(x: number, y: number, width: number, height: number): Rectangle {
  return [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
}

function meet(one: Rectangle, other: Rectangle): boolean {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}
