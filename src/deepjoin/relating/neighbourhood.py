"""Neighbours of a table by joins, and the paths of joins from one table to another.

Two tables are neighbours if a column of one holds at least a share of the distinct values of a
column of the other, in either direction, or if a relation leads from one to the other. Generic
keys (row numbers, years, flags) make neighbours by relations alone. Joins are found exactly on
demand, or read from the saved graph of the lake if it is up to date; a budget bounds the work, and
answers that it cut say so. What is likely to mean something comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush, nsmallest
from itertools import groupby

import numpy as np

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import (
    ColumnPlace,
    GraphTable,
    Hit,
    JoinEdge,
    JoinPaths,
    Neighbourhood,
    Relation,
)
from deepjoin.relating.chances import LinkChances, SaidOfEdges
from deepjoin.relating.edges import check_share
from deepjoin.relating.graph import current_edges
from deepjoin.relating.partners import (
    FoundPartners,
    JoinLink,
    JoinLinks,
    Partners,
    ReadBudget,
    SavedPartners,
    edge,
)
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment

#: Columns searched, and postings read, for one answer: a second or two in the largest lakes.
COLUMNS = 256
POSTINGS = 1 << 27
#: Columns whose edges are read, and edges, where the lake has a graph: all are held at once.
SAVED_COLUMNS = 1 << 14
SAVED_EDGES = 1 << 22
#: Edges shown of a neighbourhood, for each table that it may have.
_EDGES = 20
#: Tables looked at for each one that an overview shows.
_SAMPLED = 4
#: Paths shown, and how many times more are found before fan-out decides.
_PATHS, _TIMES = 5, 4
#: Paths followed in search of the best of one length.
_STEPS = 20_000

#: The neighbours of a table, and the chance of the likeliest join with each; joins lead both ways.
Near = Callable[[int], Mapping[int, float]]
TablePath = tuple[int, ...]


def neighbourhood(
    lake: OpenIndex,
    table: str,
    depth: int = 1,
    min_joinability: float = 0.5,
    limit: int = 60,
    relations: Iterable[Relation] = (),
) -> Neighbourhood:
    """Find the tables within ``depth`` joins of a table, the likeliest joins first.

    Parameters
    ----------
    lake
        Any open lake.
    table
        The table in the middle.
    depth
        How many joins away a table may be.
    min_joinability
        Two columns join if one of them holds at least this share of the other's distinct values.
    limit
        How many tables to return at most, the one in the middle included.
    relations
        Relations of the lake, whose tables are neighbours too.
    """
    check_share(min_joinability)
    _check_whole("depth", depth, 0)
    _check_whole("limit", limit, 1)
    with lake.reporting_damage():
        walk = Walk(lake, min_joinability, relations)
        distances = {walk.number(table): 0}
        cut = False
        # One more than fits is looked for, to know whether something was left out.
        for distance in range(1, depth + 1):
            last = [one for one in distances if distances[one] == distance - 1]
            left = limit - len(distances)
            new = walk.beyond(last, distances, left + 1)
            cut |= len(new) > left
            distances |= dict.fromkeys(new[:left], distance)
        edges = walk.edges(distances, _EDGES * limit + 1)
        nodes = tuple(walk.node(one, distance) for one, distance in distances.items())
        cut |= walk.budget.spent or len(edges) > _EDGES * limit
        return Neighbourhood(nodes, tuple(edges[: _EDGES * limit]), cut)


def overview(
    lake: OpenIndex,
    min_joinability: float = 0.5,
    limit: int = 60,
    relations: Iterable[Relation] = (),
) -> Neighbourhood:
    """Show the tables of a lake that join with most others, then others; and their joins.

    A large lake without a saved graph is sampled.
    """
    check_share(min_joinability)
    _check_whole("limit", limit, 1)
    with lake.reporting_damage():
        walk = Walk(lake, min_joinability, relations)
        names, step = lake.tables, max(1, len(lake.tables) // (_SAMPLED * limit))
        sampled = [walk.number(names[place]) for place in range(0, len(names), step)]
        near = {table: walk.near(table) for table in sampled}
        # Neighbours that are not in the sample have at least the join that led to them.
        degrees = {other: 1 for others in near.values() for other in others}
        degrees |= {table: len(others) for table, others in near.items()}
        chosen = sorted(degrees, key=lambda table: (-degrees[table], walk.name(table)))[:limit]
        edges = walk.edges(dict.fromkeys(chosen, 0), _EDGES * limit + 1)
        nodes = tuple(walk.node(table, 0) for table in chosen)
        cut = walk.budget.spent or len(names) > len(chosen) or len(edges) > _EDGES * limit
        return Neighbourhood(nodes, tuple(edges[: _EDGES * limit]), cut)


def similar_joins(
    search: Callable[[ColumnPlace], Iterable[Hit]], columns: Sequence[ColumnPlace]
) -> list[JoinEdge]:
    """Find joins by meaning of some columns: those in which more values match than are equal."""
    edges: dict[frozenset[tuple[str, str]], JoinEdge] = {}
    for column in columns:
        for hit in search(column):
            found, other = hit.semantic, ColumnPlace(hit.table, hit.column, hit.column_id)
            if found is None or found.matched <= hit.equi.matched:
                continue
            shares = found.joinability, found.reverse, found.matched
            edge = JoinEdge(
                *(column, other, *shares, hit.cardinality, "semantic"),
                *(hit.probability, hit.decided),
            )
            ends = frozenset(((column.table, column.column), (other.table, other.column)))
            edges.setdefault(ends, edge)
    return list(edges.values())


def paths(
    lake: OpenIndex,
    start: str,
    end: str,
    min_joinability: float = 0.5,
    longest: int = 4,
    relations: Iterable[Relation] = (),
) -> JoinPaths:
    """Find the paths of joins from one table to another: at most 5, the likeliest first.

    The probability of a path is the product of those of its joins. In steps of a tenth it decides,
    then how many rows a row of the start becomes, then how many joins it takes. Between two tables
    the likeliest join is shown; ``a`` of an edge is the side nearer to the start. Joins that a
    person rejected lead nowhere.
    """
    check_share(min_joinability)
    _check_whole("longest", longest, 1)
    with lake.reporting_damage():
        walk = Walk(lake, min_joinability, relations)
        ends = walk.number(start), walk.number(end)
        if ends[0] == ends[1]:
            return JoinPaths((), 0, True)
        found, whole = likeliest_paths(walk.near, walk.name, *ends, longest, _TIMES * _PATHS)
        edges = [tuple(map(walk.best_edge, path, path[1:])) for path in found]
        ranked = sorted(
            ((path_chance(path), path_fan_out(lake, path), path) for path in edges),
            key=lambda of: (-round(of[0], 1), of[1], len(of[2]), -of[0]),
        )[:_PATHS]
        return JoinPaths(
            tuple(path for *_, path in ranked),
            walk.budget.searched,
            whole and not walk.budget.spent,
            tuple(round(chance, 4) for chance, *_ in ranked),
            tuple(round(fan_out, 2) for _, fan_out, _ in ranked),
        )


def path_chance(path: Iterable[JoinEdge]) -> float:
    """Return the product of the probabilities of the joins of a path."""
    return math.prod(edge.probability for edge in path)


def path_fan_out(lake: OpenIndex, path: Iterable[JoinEdge]) -> float:
    """Estimate how many rows a row of the start becomes: rows a key has, join after join."""
    rows = 1.0
    for step in path:
        if step.cardinality[-1:] in ("n", "m"):
            rows *= max(1.0, rows_per_key(lake, step.b))
    return rows


def rows_per_key(lake: OpenIndex, place: ColumnPlace) -> float:
    """Return how often a column has each of its values, on the average."""
    for column, segment in stored_columns(lake, place.table, place.column):
        distinct = int(segment.values.sizes(np.array([column]))[0])
        return int(segment.catalog.column_cells[column]) / max(1, distinct)
    return 1.0


def stored_columns(lake: OpenIndex, table: str, name: str) -> Iterator[tuple[int, Segment]]:
    """Yield the columns of a table with a name, also one of few values, each with its segment."""
    for segment in (part for one in lake.segments for part in (one, one.small) if part):
        number = segment.find_table(table)
        if number is not None:
            for column in segment.catalog.columns_of(number):
                if segment.catalog.column_names[column] == name:
                    yield column, segment


class Walk:
    """Tables of a lake and their neighbours, found on demand."""

    def __init__(self, lake: OpenIndex, least: float, relations: Iterable[Relation] = ()) -> None:
        self._view = lake
        self._lake = lake.numbering
        self._chances = LinkChances(self._lake, lake.feedback)
        self._said = SaidOfEdges(lake.feedback)
        #: Relations by the numbers of their two tables, as joins that lead from the first on.
        self._related: dict[int, dict[int, list[JoinEdge]]] = {}
        for one in relations:
            self._relate(one)
        edges = current_edges(lake, least)
        self._partners: Partners
        if edges is None:
            self.budget = ReadBudget(COLUMNS, POSTINGS)
            self._partners = FoundPartners(self._lake, least, self.budget)
        else:
            self.budget = ReadBudget(SAVED_COLUMNS, SAVED_EDGES)
            self._partners = SavedPartners(self._lake, least, self.budget, edges)
        self._known: dict[int, JoinLinks] = {}
        self._near: dict[int, dict[int, float]] = {}

    def _links(self, table: int) -> JoinLinks:
        """Return the joins of a table, which are found once."""
        if table not in self._known:
            self._known[table] = self._chances.weigh(self._partners.of_table(table))
        return self._known[table]

    def _relate(self, relation: Relation) -> None:
        """Note a relation of one column on each side; others have no edge on a map."""
        tables = [
            self._lake.find_table(table) for table in (relation.child_table, relation.parent_table)
        ]
        if len(relation.child_columns) > 1 or None in tables or tables[0] == tables[1]:
            return
        child = self._place(relation.child_table, relation.child_columns[0])
        parent = self._place(relation.parent_table, relation.parent_columns[0])
        edge = JoinEdge(
            *(child, parent, relation.containment, relation.coverage, relation.matched),
            relation.cardinality,
            probability=relation.probability,
            decided=relation.decided,
        )
        for (one, other), turned in zip((tables, tables[::-1]), (edge, flipped(edge)), strict=True):
            assert one is not None and other is not None
            self._related.setdefault(one, {}).setdefault(other, []).append(turned)

    def _place(self, table: str, column: str) -> ColumnPlace:
        """Name a column; one of few values is in no list of columns and has no id there."""
        for number, found in stored_columns(self._view, table, column):
            return ColumnPlace(table, column, found.catalog.column_ids[number])
        return ColumnPlace(table, column)

    def number(self, table: str) -> int:
        """Return the number of a table, or raise with the nearest name."""
        number = self._lake.find_table(table)
        if number is None:
            raise unknown_name("table", table, str(self._view.location), self._view.tables)
        return number

    def name(self, table: int) -> str:
        """Return the name of a table."""
        return self._lake.table_name(table)

    def node(self, table: int, distance: int) -> GraphTable:
        """Describe a table."""
        segment, number = self._lake.table(table)
        entry = segment.catalog.table(number)
        columns = len(entry.columns) or len(segment.catalog.columns_of(number))
        return GraphTable(entry.name, entry.rows, columns, distance)

    def near(self, table: int) -> dict[int, float]:
        """Return the neighbours of a table, and the chance of the likeliest join with each."""
        if table not in self._near:
            links = self._links(table)
            links = links.take(links.chance > 0)
            order = np.argsort(links.chance, kind="stable")
            others = self._lake.tables[links.b[order]].tolist()
            near = dict(zip(others, links.chance[order].tolist(), strict=True))
            for other, edges in self._related.get(table, {}).items():
                near[other] = max(near.get(other, 0.0), *(edge.probability for edge in edges), 0.0)
            self._near[table] = near
        return self._near[table]

    def beyond(self, tables: Sequence[int], known: Iterable[int], most: int) -> list[int]:
        """Return the neighbours of tables that are not known, the likeliest joins first."""
        links = JoinLinks.joined(map(self._links, tables))
        related = [
            (other, max(edge.probability for edge in edges))
            for table in tables
            for other, edges in self._related.get(table, {}).items()
        ]
        others = np.append(self._lake.tables[links.b], [other for other, _ in related])
        others = others.astype(np.int64)
        # Of joins that are as likely, the stronger; strength alone is below the least chance.
        strength = np.append(
            np.round(links.chance, 2) + links.strength / 1000, [chance for _, chance in related]
        )
        new = ~np.isin(others, list(known))
        others, strength = others[new], strength[new]
        best_first = np.argsort(-strength, kind="stable")
        others, firsts = np.unique(others[best_first], return_index=True)
        strength = strength[best_first][firsts]
        if len(others) > most:  # names decide between the last of them, and only these are read
            good = strength >= np.partition(strength, len(strength) - most)[-most]
            others, strength = others[good], strength[good]
        pairs = sorted(zip((-strength).tolist(), map(self.name, others.tolist()), others.tolist(),
                           strict=True))  # fmt: skip
        return [other for *_, other in pairs[:most]]

    def edges(self, distances: dict[int, int], most: int) -> list[JoinEdge]:
        """Return the joins between tables; ``a`` is of the table that comes first.

        Those next to the middle come first, then the best.
        """
        rank = {table: place for place, table in enumerate(distances)}
        tables = sorted(distances, key=distances.__getitem__)
        edges: list[JoinEdge] = []
        for _, ring in groupby(tables, distances.__getitem__):
            found: list[JoinLink] = []
            for table in ring:
                # Every join is listed once, from the table that comes first.
                behind = [other for other, place in rank.items() if place > rank[table]]
                related = self._related.get(table, {})
                edges += [edge for other in behind for edge in related.get(other, [])]
                links = self._links(table)
                found += links.take(np.isin(self._lake.tables[links.b], behind)).each()
            known = {_ends(edge) for edge in edges}
            best = (self._edge(link) for link in nsmallest(most, found, self._order))
            edges += [edge for edge in best if _ends(edge) not in known]
        return edges[:most]

    def best_edge(self, one: int, other: int) -> JoinEdge:
        """Return the likeliest join of two tables of which at least one has been searched."""
        mine = self._between(one, other)
        theirs = self._between(other, one)
        found = mine + [link._replace(a=link.b, b=link.a) for link in theirs]
        edges = [self._edge(min(found, key=self._order))] if found else []
        # A relation is weighed beside its rivals, which tells more than the pair alone.
        edges = self._related.get(one, {}).get(other, []) + edges
        return max(edges, key=lambda edge: edge.probability)

    def _between(self, one: int, other: int) -> list[JoinLink]:
        if one not in self._near:
            return []
        links = self._links(one)
        is_there = (self._lake.tables[links.b] == other) & (links.chance > 0)
        return links.take(is_there).each()

    def _order(self, link: JoinLink) -> tuple[object, ...]:
        """Put the likeliest join first, the same however the lake is cut into segments."""
        ends = (
            (self.name(int(self._lake.tables[column])), self._lake.column_name(column), column)
            for column in (link.a, link.b)
        )
        return (-round(link.chance, 4), -link.strength, -link.matched, *ends)

    def _edge(self, link: JoinLink) -> JoinEdge:
        found = edge(self._lake, link.a, link.b, link.matched)
        return replace(found, probability=round(link.chance, 4), decided=self._said.text(found))


def _ends(edge: JoinEdge) -> frozenset[tuple[str, str]]:
    return frozenset({(edge.a.table, edge.a.column), (edge.b.table, edge.b.column)})


def flipped(edge: JoinEdge) -> JoinEdge:
    """Read an edge from its other end."""
    return replace(
        edge,
        a=edge.b,
        b=edge.a,
        joinability=edge.reverse,
        reverse=edge.joinability,
        cardinality=edge.cardinality[::-1],
    )


def _check_whole(what: str, number: int, least: int) -> None:
    if number < least:
        raise DeepJoinError(f"{what} is {number}; it must be a whole number >= {least}.")


def likeliest_paths(
    near: Near, name: Callable[[int], str], start: int, end: int, longest: int, most: int
) -> tuple[list[TablePath], bool]:
    """Return simple paths between two nodes, the likeliest first, and whether none was missed.

    The chance of a path is the product of those of its edges; of paths that are as likely, the
    shorter comes first, then by name.

    >>> graph = {0: {1: 1.0, 2: 0.6}, 1: {0: 1.0, 3: 0.5}, 2: {0: 0.6, 3: 0.9}, 3: {1: 0.5, 2: 0.9}}
    >>> likeliest_paths(graph.__getitem__, str, 0, 3, longest=4, most=5)
    ([(0, 2, 3), (0, 1, 3)], True)
    """
    found: list[tuple[float, int, tuple[str, ...], TablePath]] = []
    halves = _HalfSearch(near, start), _HalfSearch(near, end)
    whole = True
    for length in range(1, longest + 1):
        # From both ends, the smaller side first: tables multiply with every join.
        min(halves, key=lambda half: len(half.frontier)).grow()
        paths, all_of_them = _of_length(halves, name, length, most)
        found += [(chance, length, names, path) for chance, names, path in paths]
        whole &= all_of_them
    return [path for *_, path in sorted(found)[:most]], whole


class _HalfSearch:
    """All that is within some edges of one end."""

    def __init__(self, near: Near, end: int) -> None:
        self._near = near
        self.end, self.radius = end, 0
        #: Nodes whose neighbours are known, and nodes whose neighbours come next.
        self.known: dict[int, Mapping[int, float]] = {}
        self.frontier: dict[int, float] = {end: 1.0}

    def grow(self) -> None:
        """Find the neighbours of the outermost nodes, those of the best edges first."""
        nodes = sorted(self.frontier, key=lambda node: -self.frontier[node])
        for node in nodes:
            self.known[node] = self._near(node)
        self.frontier = {}
        # A node is reached by the first that leads to it; in bulk, since they may be millions.
        for node in reversed(nodes):
            self.frontier.update(self.known[node])
        for node in self.known.keys() & self.frontier.keys():
            del self.frontier[node]
        self.radius += 1

    def steps(self) -> dict[int, dict[int, float]]:
        """Return the known edges turned round: from any node to those whose neighbour it is."""
        turned: dict[int, dict[int, float]] = {}
        for node, others in self.known.items():
            for other, strength in others.items():
                turned.setdefault(other, {})[node] = strength
        return turned


def _of_length(
    halves: tuple[_HalfSearch, _HalfSearch], name: Callable[[int], str], length: int, most: int
) -> tuple[list[tuple[float, tuple[str, ...], TablePath]], bool]:
    """Return the best paths of one length, and whether they are sure to be the best.

    Each comes with its chance, negative, and the names of its nodes.
    """
    first, last = halves
    back = last.steps()
    alive = _alive(halves, back, length)
    found: list[tuple[float, tuple[str, ...], TablePath]] = []
    heap: list[tuple[float, tuple[str, ...], TablePath]] = [
        (-1.0, (name(first.end),), (first.end,))
    ]
    for _ in range(_STEPS):
        if not heap or len(found) == most:
            return found, True
        # A product only falls as a path grows, so the first paths to arrive are the best.
        chance, names, path = heappop(heap)
        done = len(path) - 1
        if done == length:
            found.append((chance, names, path))
            continue
        steps = (first.known if done < first.radius else back).get(path[-1], {})
        for node in alive[length - done - 1].intersection(steps).difference(path):
            step = chance * steps[node], (*names, name(node)), (*path, node)
            heappush(heap, step)
    return found, False


def _alive(
    halves: tuple[_HalfSearch, _HalfSearch], back: dict[int, dict[int, float]], length: int
) -> list[set[int]]:
    """List, for every number of edges, the nodes from which that many may lead to the end."""
    first, last = halves
    alive = [{last.end}]
    for left in range(1, length + 1):
        if left <= last.radius:
            beyond = {other for node in alive[-1] for other in last.known.get(node, {})}
        else:
            beyond = {
                node for node, others in first.known.items() if not alive[-1].isdisjoint(others)
            }
        alive.append(beyond - {last.end})
    return alive
