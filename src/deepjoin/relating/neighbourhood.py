"""What joins with a table, and by which joins one table leads to another.

Two tables are neighbours if a column of one holds at least a share of the distinct values of a
column of the other; which of the two is asked for does not matter. Generic keys (row numbers,
years, flags) make no neighbours. Every join is found by the exact method when it is asked for, or
read from the saved graph of the lake if that is of the lake as it is; a budget bounds the work,
and answers that it has cut say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from itertools import groupby

import numpy as np

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import GraphTable, JoinEdge, JoinPaths, Neighbourhood
from deepjoin.relating.edges import check_share, edge
from deepjoin.relating.graph_store import current_edges
from deepjoin.relating.join_paths import shortest_paths
from deepjoin.relating.partners import (
    Budget,
    FoundPartners,
    Link,
    Links,
    Partners,
    SavedPartners,
    joined_links,
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
#: Paths shown.
_PATHS = 5


def neighbourhood(
    lake: OpenIndex, table: str, depth: int = 1, min_joinability: float = 0.5, limit: int = 60
) -> Neighbourhood:
    """Find the tables within so many joins of a table, the best joins first.

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


def paths(
    lake: OpenIndex, start: str, end: str, min_joinability: float = 0.5, longest: int = 4
) -> JoinPaths:
    """Find how one table leads to another by joins: at most 5 ways, the shortest first.

    Of ways of one length, that with the best weakest join comes first. Between two tables the
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
        shown = tuple(tuple(map(walk.best_edge, path, path[1:])) for path in found)
        return JoinPaths(shown, walk.budget.searched, whole and not walk.budget.spent)


class _Walk:
    """Tables of a lake and their neighbours, found when they are asked for."""

    def __init__(self, lake: OpenIndex, least: float) -> None:
        self._view = lake
        self._lake = lake.numbering
        edges = current_edges(lake, least)
        self.budget = (
            Budget(COLUMNS, POSTINGS) if edges is None else Budget(SAVED_COLUMNS, SAVED_EDGES)
        )
        self._partners: Partners = (
            FoundPartners(self._lake, least, self.budget)
            if edges is None
            else SavedPartners(self._lake, edges, least, self.budget)
        )
        self._known: dict[int, Links] = {}
        self._near: dict[int, dict[int, float]] = {}

    def _links(self, table: int) -> Links:
        """Return the joins of a table, which are found once."""
        if table not in self._known:
            self._known[table] = self._partners.of_table(table)
        return self._known[table]

    def number(self, table: str) -> int:
        """Return the number of a table; a name that is none raises with the nearest."""
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
        links = joined_links(map(self._links, tables))
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
            found = [link for table in ring for link in self._onward(table, rank)]
            edges += map(self._edge, nsmallest(most - len(edges), found, self._order))
        return edges

    def _onward(self, table: int, rank: dict[int, int]) -> list[Link]:
        """List the joins of a table with tables behind it."""
        links = self._links(table)
        behind = [other for other, place in rank.items() if place > rank[table]]
        return links.take(np.isin(self._lake.tables[links.b], behind)).each()

    def best_edge(self, one: int, other: int) -> JoinEdge:
        """Return the best join of two tables of which at least one has been searched."""
        mine = self._between(one, other)
        theirs = self._between(other, one)
        found = mine + [Link(link.b, link.a, link.matched, link.strength) for link in theirs]
        return self._edge(min(found, key=self._order))

    def _between(self, one: int, other: int) -> list[Link]:
        if one not in self._near:
            return []
        links = self._links(one)
        return links.take(self._lake.tables[links.b] == other).each()

    def _order(self, link: Link) -> tuple[object, ...]:
        """Put the best join first, the same however the lake is cut into segments."""
        ends = (
            (self.name(int(self._lake.tables[column])), self._lake.column_name(column), column)
            for column in (link.a, link.b)
        )
        return (-link.strength, -link.matched, *ends)

    def _edge(self, link: Link) -> JoinEdge:
        return edge(self._lake, link.a, link.b, link.matched)


def _check_whole(what: str, number: int, least: int) -> None:
    if number < least:
        raise DeepJoinError(f"{what} is {number}; it is a whole number from {least} on.")
