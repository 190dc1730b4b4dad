"""Search column vectors in PostgreSQL; exact distances come from the rows of the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from deepjoin.arrays import Double, Float, Int, Marks
from deepjoin.embed.vector_build import checked
from deepjoin.embed.vector_index import Nearest, nearest_first
from deepjoin.engines.postgres.publishing import difference
from deepjoin.engines.postgres.schema import VectorTable, assigned, tables_of
from deepjoin.engines.postgres.server import (
    ANSWERING,
    NO_EXTENSION,
    Extension,
    Server,
    addresses,
    extension_of,
)
from deepjoin.engines.postgres.shards import NearVector, Shard
from deepjoin.errors import StoreChanged, StoreUnreachable, StoreUnusable
from deepjoin.lazy import cached_property
from deepjoin.store.column_vectors import SPACES, ColumnVectors
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from psycopg import Connection

#: Rows measured at a time.
_BLOCK = 1 << 12
#: Queries that may run at a time on each of several servers.
_AT_A_TIME = 8


@dataclass(frozen=True)
class ServerTables:
    """The tables one server has of some segments, ready to be searched."""

    extension: Extension
    tables: Sequence[VectorTable]

    def of(self, space: str, shards: int) -> dict[str, list[VectorTable]]:
        """List the tables of each segment in a space, split for this many servers, newest first."""
        found: dict[str, list[VectorTable]] = {}
        for table in reversed(self.tables):
            if (table.space, table.shards) == (space, shards):
                found.setdefault(table.segment, []).append(table)
        return found


class PostgresServers:
    """The servers that hold a lake's vectors: one, or several with a share of every segment."""

    def __init__(self, urls: str | Sequence[str], location: object = "INDEX") -> None:
        self._servers = [Server(url) for url in addresses(urls)]
        self._location = location

    @property
    def places(self) -> str:
        """The addresses, without secrets."""
        return " ".join(server.place for server in self._servers)

    def check(self, segments: Sequence[Segment]) -> None:
        """Check that the store has the vectors of these segments, in one space at least."""
        named = [segment for segment in segments if segment.values.columns]
        if not named:
            return
        names = [segment.folder.name for segment in named]
        held = self._held(names)
        there = {table.space for one in held for table in one.tables if table.shards == len(held)}
        problems = []
        # One usable space is enough: a lake may be published without the others.
        for space in sorted(there, key=SPACES.index):
            vectors = [ColumnVectors.open(one.folder, space) for one in named]
            known = [one for one in vectors if one is not None and one.complete]
            # Searches refuse a space in which a segment has no vectors.
            if len(known) < len(vectors):
                continue
            try:
                self._shards(names, known, space, held)
                return
            except StoreUnusable as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        what = f"{self.places} has no vectors of {self._location}"
        raise self._unpublished(what, self._split_for(names, held))

    def open(
        self, segments: Sequence[Segment], vectors: Sequence[ColumnVectors], space: str
    ) -> PostgresStore:
        """Open the vectors of a space after checking that they are those of the index."""
        names = [segment.folder.name for segment in segments]

        # Called again if tables are replaced while the lake is open.
        def look_up() -> list[Shard]:
            return self._shards(names, vectors, space, self._held(names))

        return PostgresStore(look_up, segments, vectors)

    def _held(self, segments: list[str]) -> list[ServerTables]:
        def ask(server: Server, connection: Connection[Any]) -> ServerTables:
            with connection.transaction():
                timeout = f"SET LOCAL statement_timeout = {int(1000 * ANSWERING)}"
                connection.execute(timeout.encode())
                connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
                tables = tables_of(connection, server.place, segments)
                ready = [table for table in tables if table.ready]
                extension = extension_of(connection, server.place) if ready else NO_EXTENSION
            return ServerTables(extension, ready)

        return [server.ask(partial(ask, server)) for server in self._servers]

    def _shards(
        self,
        segments: Sequence[str],
        vectors: Sequence[ColumnVectors],
        space: str,
        held: Sequence[ServerTables],
    ) -> list[Shard]:
        """Choose which share to query on which server."""
        there = [one.of(space, len(held)) for one in held]
        for server, found in zip(self._servers, there, strict=True):
            missing = len(segments) - len(found)
            if missing:
                raise self._unpublished(
                    f"{server.place} has no vectors '{space}' of {missing} of {len(segments)} "
                    f"segments of {self._location}",
                    self._split_for(segments, held, space),
                )
        fitting = [
            [
                self._fitting(server, found[name], own)
                for name, own in zip(segments, vectors, strict=True)
            ]
            for server, found in zip(self._servers, there, strict=True)
        ]
        # A server can serve a share if it holds it of every segment.
        whole = [
            set(range(len(held))).intersection(*({table.shard for table in some} for some in found))
            for found in fitting
        ]
        shares = assigned(whole)
        if None in shares:
            raise self._unpublished(
                f"{self.places} do not hold one share each of {self._location}; was one named twice"
            )
        return [
            Shard(
                server,
                one.extension,
                [next(table for table in some if table.shard == share) for some in found],
            )
            for server, one, found, share in zip(self._servers, held, fitting, shares, strict=True)
        ]

    def _fitting(
        self, server: Server, tables: Sequence[VectorTable], vectors: ColumnVectors
    ) -> list[VectorTable]:
        """Select the tables that fit the encoder and metric of the index; there must be one."""
        found = [(table, difference(table, vectors)) for table in tables]
        fitting = [table for table, differs in found if differs is None]
        if fitting:
            return fitting
        # The newest table comes first: it is the one to compare the index with.
        table, differs = found[0]
        assert differs is not None
        what, there, here = differs
        raise self._unpublished(
            f"{server.place} has vectors '{table.space}' of segment {table.segment} with "
            f"{what} {there}, {self._location} has {here}"
        )

    def _split_for(
        self, segments: Sequence[str], held: Sequence[ServerTables], space: str | None = None
    ) -> int:
        """Return for how many servers all segments are there, if not for these; 0 if for none."""
        found: dict[int, set[str]] = {}
        for table in (table for one in held for table in one.tables):
            if table.shards != len(held) and space in (None, table.space):
                found.setdefault(table.shards, set()).add(table.segment)
        return max((split for split, names in found.items() if names == set(segments)), default=0)

    def _unpublished(self, what: str, split: int = 0) -> StoreUnusable:
        if split:
            some = f"{split} server{'s' if split > 1 else ''}"
            name = "all of them" if split > len(self._servers) else "only as many"
            return StoreUnusable(f"{what}, but some for {some}: name {name}.")
        return StoreUnusable(
            f"{what}. Publish it with: deepjoin publish {self._location} {self.places}"
        )


class PostgresStore:
    """The column vectors of a lake in one space, on one server or several."""

    def __init__(
        self,
        look_up: Callable[[], list[Shard]],
        segments: Sequence[Segment],
        vectors: Sequence[ColumnVectors],
    ) -> None:
        self._look_up, self._segments = look_up, segments
        self._shards = look_up()
        self._indexes = [one.index for one in vectors]

    @property
    def metric(self) -> str:
        """The metric of the vectors: "cosine" or "euclidean"."""
        return self._indexes[0].metric if self._indexes else "cosine"

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AT_A_TIME * len(self._shards), "deepjoin-store")

    def nearest(
        self, vector: Float, k: int | None, excluded: Sequence[Marks | None]
    ) -> list[Nearest]:
        """Query all servers at once; if every column is wanted, none needs to be queried."""
        if not self._segments:
            return []
        query = checked(np.asarray(vector, np.float32).reshape(1, -1), self._indexes[0].dimension)
        # Every vector is wanted, and the index has them all: no need to fetch them.
        if k is None or k >= max(map(len, self._indexes)):
            return [self._all(n, query[0], k, marks) for n, marks in enumerate(excluded)]
        if k <= 0:
            return [Nearest(np.zeros(0, np.int64), np.zeros(0)) for _ in self._segments]
        sent = query[0]
        if self.metric == "cosine":  # its length does not matter: send one that halfvec can hold
            sent = np.asarray(sent / max(float(np.linalg.norm(sent)), 1e-30), np.float32)
        found = self._found(sent, k, excluded)
        return [
            self._ranked(n, query[0], k, [one for shard in found for one in shard[n]], marks)
            for n, marks in enumerate(excluded)
        ]

    def _found(
        self, query: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[list[Sequence[NearVector]]]:
        """Query the servers; if tables were replaced meanwhile, look up the present ones."""
        try:
            return self._query(query, k, excluded)
        except StoreChanged as changed:
            try:
                self._shards = self._look_up()
            except StoreUnreachable:
                raise
            except StoreUnusable:  # its advice to publish is wrong if this lake is an older state
                raise changed from None
            return self._query(query, k, excluded)

    def _query(
        self, query: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[list[Sequence[NearVector]]]:
        shards = self._shards
        if len(shards) == 1:
            return [shards[0].near(query, k, excluded)]
        return list(self._pool.map(lambda shard: shard.near(query, k, excluded), shards))

    def _ranked(
        self, number: int, query: Float, k: int, found: Sequence[NearVector], excluded: Marks | None
    ) -> Nearest:
        """Rank by exact distance, measured once for all columns of equal vectors."""
        # Equal vectors are one row of the store, which represents all their columns.
        ids = np.array([column for one in found for column in one.columns], int)
        groups = np.repeat(np.arange(len(found)), [len(one.columns) for one in found])
        if excluded is not None:
            ids, groups = ids[~excluded[ids]], groups[~excluded[ids]]
        live = np.unique(groups)
        lowest = np.array([found[group].columns[0] for group in live.tolist()], int)
        near, measured = self._indexes[number].nearest_of(query, lowest, k)
        distances = np.full(len(found), np.inf)
        distances[live[near]] = measured
        kept = np.isfinite(distances[groups])
        return self._best(number, ids[kept], distances[groups[kept]], k)

    def _all(self, number: int, query: Float, k: int | None, excluded: Marks | None) -> Nearest:
        count = len(self._indexes[number])
        ids = np.arange(count) if excluded is None else np.flatnonzero(~excluded)
        blocks = [ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK)]
        measured = [self._indexes[number].measured(query, block) for block in blocks]
        return self._best(number, ids, np.concatenate([np.zeros(0), *measured]), k)

    def _best(self, number: int, ids: Int, distances: Double, k: int | None) -> Nearest:
        order = np.asarray(self._segments[number].catalog.column_order)
        return nearest_first(ids, distances, k, order)
