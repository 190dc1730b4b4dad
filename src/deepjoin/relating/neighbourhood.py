"""Neighbours of a table by joins, and the paths of joins from one table to another.

Two tables are neighbours if a column of one holds at least a share of the distinct values of a
column of the other, in either direction. Generic keys (row numbers, years, flags) make no
neighbours. Joins are found exactly on demand, or read from the saved graph of the lake if it is
up to date; a budget bounds the work, and answers that it cut say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush, nsmallest
from itertools import groupby

import numpy as np

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import ColumnPlace, GraphTable, Hit, JoinEdge, JoinPaths, Neighbourhood
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
#: Paths shown.
_PATHS = 5
#: Paths followed in search of the best of one length.
_STEPS = 20_000

#: The neighbours of a table, and how strong the best join with each is; joins lead both ways.
Near = Callable[[int], Mapping[int, float]]
TablePath = tuple[int, ...]


def neighbourhood(
    lake: OpenIndex, table: str, depth: int = 1, min_joinability: float = 0.5, limit: int = 60
) -> Neighbourhood:
    """Find the tables within ``depth`` joins of a table, the best joins first.

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
    """
    check_share(min_joinability)
    _check_whole("depth", depth, 0)
    _check_whole("limit", limit, 1)
    with lake.reporting_damage():
        walk = _Walk(lake, min_joinability)
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


def overview(lake: OpenIndex, min_joinability: float = 0.5, limit: int = 60) -> Neighbourhood:
    """Show the tables of a lake that join with most others, then others; and their joins.

    A large lake without a saved graph is sampled.
    """
    check_share(min_joinability)
    _check_whole("limit", limit, 1)
    with lake.reporting_damage():
        walk = _Walk(lake, min_joinability)
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
            edge = JoinEdge(column, other, *shares, hit.cardinality, "semantic")
            ends = frozenset(((column.table, column.column), (other.table, other.column)))
            edges.setdefault(ends, edge)
    return list(edges.values())


def paths(
    lake: OpenIndex, start: str, end: str, min_joinability: float = 0.5, longest: int = 4
) -> JoinPaths:
    """Find the paths of joins from one table to another: at most 5, the shortest first.

    Of paths of one length, that with the best weakest join comes first. Between two tables the
    best join is shown; ``a`` of an edge is the side nearer to the start.
    """
    check_share(min_joinability)
    _check_whole("longest", longest, 1)
    with lake.reporting_damage():
        walk = _Walk(lake, min_joinability)
        ends = walk.number(start), walk.number(end)
        if ends[0] == ends[1]:
            return JoinPaths((), 0, True)
        found, whole = shortest_paths(walk.near, walk.name, *ends, longest, _PATHS)
        edges = tuple(tuple(map(walk.best_edge, path, path[1:])) for path in found)
        return JoinPaths(edges, walk.budget.searched, whole and not walk.budget.spent)


class _Walk:
    """Tables of a lake and their neighbours, found on demand."""

    def __init__(self, lake: OpenIndex, least: float) -> None:
        self._view = lake
        self._lake = lake.numbering
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
            self._known[table] = self._partners.of_table(table)
        return self._known[table]

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
        """Return the neighbours of a table, and how strong the best join with each is."""
        if table not in self._near:
            links = self._links(table)
            order = np.argsort(links.strength, kind="stable")
            others = self._lake.tables[links.b[order]].tolist()
            self._near[table] = dict(zip(others, links.strength[order].tolist(), strict=True))
        return self._near[table]

    def beyond(self, tables: Iterable[int], known: Iterable[int], most: int) -> list[int]:
        """Return the neighbours of tables that are not known, the best joined first."""
        links = JoinLinks.joined(map(self._links, tables))
        others = self._lake.tables[links.b]
        new = ~np.isin(others, list(known))
        others, strength = others[new], links.strength[new]
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
                links = self._links(table)
                # Every join is listed once, from the table that comes first.
                behind = [other for other, place in rank.items() if place > rank[table]]
                found += links.take(np.isin(self._lake.tables[links.b], behind)).each()
            edges += map(self._edge, nsmallest(most - len(edges), found, self._order))
        return edges

    def best_edge(self, one: int, other: int) -> JoinEdge:
        """Return the best join of two tables of which at least one has been searched."""
        mine = self._between(one, other)
        theirs = self._between(other, one)
        found = mine + [JoinLink(link.b, link.a, link.matched, link.strength) for link in theirs]
        return self._edge(min(found, key=self._order))

    def _between(self, one: int, other: int) -> list[JoinLink]:
        if one not in self._near:
            return []
        links = self._links(one)
        return links.take(self._lake.tables[links.b] == other).each()

    def _order(self, link: JoinLink) -> tuple[object, ...]:
        """Put the best join first, the same however the lake is cut into segments."""
        ends = (
            (self.name(int(self._lake.tables[column])), self._lake.column_name(column), column)
            for column in (link.a, link.b)
        )
        return (-link.strength, -link.matched, *ends)

    def _edge(self, link: JoinLink) -> JoinEdge:
        return edge(self._lake, link.a, link.b, link.matched)


def _check_whole(what: str, number: int, least: int) -> None:
    if number < least:
        raise DeepJoinError(f"{what} is {number}; it must be a whole number >= {least}.")


def shortest_paths(
    near: Near, name: Callable[[int], str], start: int, end: int, longest: int, most: int
) -> tuple[list[TablePath], bool]:
    """Return simple paths between two nodes, the shortest first, and whether none was missed.

    Of paths of one length, that with the strongest weakest edge comes first, then by name.

    >>> graph = {0: {1: 1.0, 2: 0.6}, 1: {0: 1.0, 3: 0.7}, 2: {0: 0.6, 3: 0.9}, 3: {1: 0.7, 2: 0.9}}
    >>> shortest_paths(graph.__getitem__, str, 0, 3, longest=4, most=5)
    ([(0, 1, 3), (0, 2, 3)], True)
    """
    found: list[TablePath] = []
    halves = _HalfSearch(near, start), _HalfSearch(near, end)
    whole = True
    for length in range(1, longest + 1):
        # From both ends, the smaller side first: tables multiply with every join.
        min(halves, key=lambda half: len(half.frontier)).grow()
        paths, all_of_them = _of_length(halves, name, length, most - len(found))
        found += paths
        whole &= all_of_them
        if len(found) == most:
            break
    return found, whole


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
) -> tuple[list[TablePath], bool]:
    """Return the best paths of one length, and whether they are sure to be the best."""
    first, last = halves
    back = last.steps()
    alive = _alive(halves, back, length)
    found: list[TablePath] = []
    heap: list[tuple[float, tuple[str, ...], TablePath]] = [
        (-1.0, (name(first.end),), (first.end,))
    ]
    for _ in range(_STEPS):
        if not heap or len(found) == most:
            return found, True
        weakest, names, path = heappop(heap)
        done = len(path) - 1
        if done == length:
            found.append(path)
            continue
        steps = (first.known if done < first.radius else back).get(path[-1], {})
        for node in alive[length - done - 1].intersection(steps).difference(path):
            step = max(weakest, -steps[node]), (*names, name(node)), (*path, node)
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
