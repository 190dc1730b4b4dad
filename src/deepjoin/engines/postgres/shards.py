"""Query one server for the vectors nearest to a query, of all segments in one statement.

- A table with an index is queried for k vectors plus those that may have been removed from the
  lake; if too few of the returned are still in it, for more, and finally every row is compared.
- A table without an index is scanned, with a growing limit until the last row is clearly farther
  than the k-th: so rounding in single precision misses nothing.
- Of codes all are compared, and many more than k returned, which are then ranked by distance. A
  sample of a large table tells within which distance enough of them will be, since to sort the rest
  takes a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from deepjoin.arrays import Float, Marks
from deepjoin.engines.postgres.binary import BitCode, VectorParameter, bits_of
from deepjoin.engines.postgres.schema import VectorTable
from deepjoin.engines.postgres.server import ANSWERING, Extension, Server

if TYPE_CHECKING:
    from psycopg import Connection

#: Rows requested beyond k: by exact distance they may be as near as the k-th, or nearer.
_MORE = 32
#: The most candidates a search of the index keeps, and the most an iterative scan returns.
GRAPH_EFFORT, _MOST_ITERATING = 1_000, 16_000
#: Codes returned for each of the k columns, at least.
_CODES_EACH = 16
#: Codes of a sample that are expected to be among the wanted, and the largest share it may be.
_SAMPLED, _SHARE = 40, 1 / 16
#: Bound on the error of distances in single precision.
_SLACK = 3e-5


class NearVector(NamedTuple):
    """A vector near the query: its columns in ascending order, and its rough distance."""

    columns: Sequence[int]
    distance: float


@dataclass(frozen=True)
class TableQuery:
    """A query of one table; `again` returns the next one until there are enough results."""

    table: VectorTable
    k: int
    excluded: Marks | None
    limit: int
    #: The most results the index can give; beyond, every row is compared.
    most: int
    exact: bool = False
    #: Codes that differ in more bits are left out.
    within: float | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether a small sample tells how near the wanted codes are, of many more."""
        is_few = 4 * self.limit <= self.table.vectors
        return self.table.coded and is_few and self._sample <= _SHARE

    @property
    def _sample(self) -> float:
        """The share of the table that a sample needs."""
        return _SAMPLED / self.limit

    @classmethod
    def of(
        cls, table: VectorTable, k: int, excluded: Marks | None, extension: Extension
    ) -> TableQuery:
        """Start with k results plus as many as may have been removed from the lake."""
        dead = 0 if excluded is None else int(excluded.sum())
        most = _MOST_ITERATING if extension.iterates else GRAPH_EFFORT
        if table.coded:
            wanted = max(table.effort, _CODES_EACH * k)
            return cls(table, wanted // 2, excluded, wanted + min(dead, wanted), most)
        if not table.indexed or k > most:
            return cls(table, k, excluded, k + dead + _MORE, most, exact=True)
        return cls(table, k, excluded, min(k + dead + _MORE, max(table.effort, k)), most)

    def again(self, found: Sequence[NearVector]) -> TableQuery | None:
        """Return the next query; None if these results are enough."""
        if len(found) >= self.table.vectors:
            return None
        if self.within is not None and len(found) < self.limit:
            return replace(self, within=None)
        live, last, marks = 0, None, self.excluded
        for one in found:
            there = one.columns if marks is None else [c for c in one.columns if not marks[c]]
            live += len(there)
            if live >= self.k:
                last = one.distance  # of the k-th column that is still in the lake
                break
        if self.exact:
            near = last is None or found[-1].distance <= last + _SLACK * (1 + abs(last))
            return replace(self, limit=4 * self.limit) if near else None
        if live >= self.k:
            return None
        if self.table.coded:
            return replace(self, limit=4 * self.limit, within=None)
        if len(found) < self.limit or self.limit >= self.most:
            dead = 0 if self.excluded is None else int(self.excluded.sum())
            return replace(self, limit=self.k + dead + _MORE, exact=True)
        return replace(self, limit=min(self.most, 4 * self.limit))

    def sql(self, number: int, extension: Extension) -> str:
        """Write the SELECT statement."""
        distance = self._distance(extension)
        near = "" if self.within is None else f"WHERE {distance} <= {self.within} "
        return (
            f"(SELECT {number} AS n, first, members, {distance} AS distance "
            f"FROM {self.table.table} {near}ORDER BY {distance} LIMIT {self.limit})"
        )

    def sampled(self, number: int, extension: Extension) -> str:
        """Write the SELECT of a distance within which there are probably enough codes."""
        distance = self._distance(extension)
        rank = int(_SAMPLED + 4 * _SAMPLED**0.5)
        return (
            f"(SELECT {number}, {distance} FROM {self.table.table} "
            f"TABLESAMPLE SYSTEM ({100 * self._sample}) REPEATABLE (0) "
            f"ORDER BY {distance} OFFSET {rank} LIMIT 1)"
        )

    def _distance(self, extension: Extension) -> str:
        """Write the distance; an expression other than the index's own makes it a scan."""
        if self.table.coded:
            return extension.differing("v", f"%(code)s::bit({bits_of(self.table.dimension)})")
        wide, operator = extension.name("vector"), extension.operator(self.table.metric)
        if not self.exact:
            return f"v {operator} (%(vector)s::{wide}::{extension.name(self.table.kind)})"
        # The cosine of a vector of zeros is NaN; its distance is 1.
        return f"coalesce(nullif(v::{wide} {operator} (%(vector)s::{wide}), 'NaN'), 1)"


class Shard:
    """The tables that one server holds of a lake in one space, one per segment."""

    def __init__(self, server: Server, extension: Extension, tables: Sequence[VectorTable]) -> None:
        self._server, self._extension, self._tables = server, extension, tables

    def near(
        self, vector: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[Sequence[NearVector]]:
        """Return the nearest vectors of each segment, enough for k columns."""
        queries = {
            number: TableQuery.of(table, k, marks, self._extension)
            for number, (table, marks) in enumerate(zip(self._tables, excluded, strict=True))
            if table.vectors
        }
        found: dict[int, list[NearVector]] = {number: [] for number in range(len(self._tables))}
        large = {number: query for number, query in queries.items() if query.is_sampled}
        if large:
            sampled = [query.sampled(number, self._extension) for number, query in large.items()]
            for number, distance in self._rows(vector, sampled, large.values()):
                queries[number] = replace(queries[number], within=distance)
        while queries:
            found |= self._run_queries(vector, queries)
            following = {number: query.again(found[number]) for number, query in queries.items()}
            queries = {number: query for number, query in following.items() if query is not None}
        return [found[number] for number in range(len(self._tables))]

    def _run_queries(
        self, vector: Float, queries: Mapping[int, TableQuery]
    ) -> dict[int, list[NearVector]]:
        selects = [query.sql(number, self._extension) for number, query in queries.items()]
        found: dict[int, list[NearVector]] = {number: [] for number in queries}
        for number, first, members, distance in self._rows(vector, selects, queries.values()):
            found[number].append(NearVector(members or (first,), distance))
        for some in found.values():
            some.sort(key=lambda one: one.distance)
        return found

    def _rows(
        self, vector: Float, selects: Sequence[str], queries: Collection[TableQuery]
    ) -> list[tuple[Any, ...]]:
        settings = self._settings(queries)
        coded = any(query.table.coded for query in queries)
        sent = {"vector": VectorParameter(vector)} | ({"code": BitCode(vector)} if coded else {})

        def run(connection: Connection[Any]) -> list[tuple[Any, ...]]:
            # Settings and query are sent at once: a pooler keeps none between transactions.
            with connection.pipeline(), connection.transaction():
                connection.execute(settings.encode())
                cursor = connection.execute(" UNION ALL ".join(selects).encode(), sent, binary=True)
            return cursor.fetchall()

        return self._server.ask(run)

    def _settings(self, queries: Collection[TableQuery]) -> str:
        """Write the settings of one transaction: search effort and timeout."""
        efforts = [
            max(query.table.effort, query.limit)
            for query in queries
            if not (query.exact or query.table.coded)
        ]
        chosen = {
            "search_path": "pg_catalog, pg_temp",
            "statement_timeout": 1000 * ANSWERING,
            # Use the index, whatever the planner thinks it costs.
            "enable_seqscan": "off" if efforts else "on",
            "jit": "off",
            "hnsw.ef_search": min(GRAPH_EFFORT, max(efforts, default=GRAPH_EFFORT)),
        }
        if self._extension.iterates:
            chosen |= {"hnsw.iterative_scan": "strict_order"}
        return "SELECT " + ", ".join(
            f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in chosen.items()
        )
