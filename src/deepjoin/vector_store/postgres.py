"""Column vectors in PostgreSQL: found there, measured exactly on the rows of the index."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.column_vectors.store import SPACES, ColumnVectors
from deepjoin.errors import StoreUnusable
from deepjoin.segment import Segment
from deepjoin.vector_store.asking import Found, Shard
from deepjoin.vector_store.connections import Server, addresses
from deepjoin.vector_store.schema import (
    NO_EXTENSION,
    Extension,
    Part,
    extension_of,
    parts_of,
)
from deepjoin.vectors.build import checked
from deepjoin.vectors.index import Nearest

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

#: Rows measured at a time.
_BLOCK = 1 << 12
#: Questions that may be under way at a time on each of several servers.
_AT_A_TIME = 8


class PostgresStore:
    """The servers that hold a lake's vectors: one, or several with a share of every segment."""

    def __init__(self, urls: str | Sequence[str], location: object = "INDEX") -> None:
        self._servers = [Server(url) for url in addresses(urls)]
        self._location = location

    @property
    def places(self) -> str:
        """The addresses, without secrets."""
        return " ".join(server.place for server in self._servers)

    def check(self, segments: Sequence[Segment]) -> None:
        """See that the store has what segments have, in one space at least."""
        named = {segment.folder.name: segment for segment in segments if segment.values.columns}
        held = [self._held(server, list(named)) for server in self._servers]
        there = {part.space for _, parts in held for part in parts}
        if named and not there:
            raise self._unpublished(f"{self.places} has no vectors of {self._location}")
        for space in sorted(there, key=SPACES.index):
            vectors = [ColumnVectors.open(one.folder, space) for one in named.values()]
            known = [one for one in vectors if one is not None and one.complete]
            if len(known) == len(vectors):
                self._shards(list(named), known, space, held)

    def open(
        self, segments: Sequence[Segment], vectors: Sequence[ColumnVectors], space: str
    ) -> PostgresVectors:
        """Open the vectors of a space, after a look at whether they are those of the index."""
        names = [segment.folder.name for segment in segments]
        held = [self._held(server, names) for server in self._servers]
        shards = self._shards(names, vectors, space, held)
        return PostgresVectors(shards, segments, vectors)

    def _held(self, server: Server, segments: list[str]) -> tuple[Extension, list[Part]]:
        def ask(connection: Any) -> tuple[Extension, list[Part]]:
            parts = parts_of(connection, server.place, segments, len(self._servers))
            return extension_of(connection, server.place) if parts else NO_EXTENSION, parts

        return server.ask(ask)

    def _shards(
        self,
        segments: Sequence[str],
        vectors: Sequence[ColumnVectors],
        space: str,
        held: Sequence[tuple[Extension, list[Part]]],
    ) -> list[Shard]:
        shards, numbers = [], []
        for server, (extension, parts) in zip(self._servers, held, strict=True):
            own = {part.segment: part for part in parts if part.space == space}
            missing = [name for name in segments if name not in own]
            if missing:
                raise self._unpublished(
                    f"{server.place} has no vectors '{space}' of {len(missing)} of "
                    f"{len(segments)} segments of {self._location}"
                    + self._cut_otherwise(server, segments)
                )
            for name, one in zip(segments, vectors, strict=True):
                self._check(server, own[name], one)
            numbers.append({own[name].shard for name in segments})
            shards.append(Shard(server, extension, [own[name] for name in segments]))
        if segments and sorted(map(sorted, numbers)) != [[n] for n in range(len(self._servers))]:
            raise self._unpublished(
                f"{self.places} do not hold one share each of {self._location}; was one named twice"
            )
        return shards

    def _cut_otherwise(self, server: Server, segments: Sequence[str]) -> str:
        """Say that there are vectors for another number of servers, if that is so."""
        sql = "SELECT DISTINCT shards FROM deepjoin.parts WHERE segment = ANY(%s) ORDER BY 1"
        try:
            found = server.ask(lambda one: one.execute(sql, [list(segments)]).fetchall())
        except StoreUnusable:  # there are no such tables
            return ""
        others = [str(number) for (number,) in found if number != len(self._servers)]
        return f" (but some for {' and '.join(others)} servers)" if others else ""

    def _check(self, server: Server, part: Part, vectors: ColumnVectors) -> None:
        """Refuse vectors of another encoder or form than those of the index."""
        index = vectors.index
        theirs = {"encoder": f"{part.encoder} ({part.digest})", "metric": part.metric,
                  "dimension": part.dimension, "columns": part.columns}  # fmt: skip
        about = vectors.about
        ours = {"encoder": f"{about.name} ({about.digest})", "metric": index.metric,
                "dimension": index.dimension, "columns": len(index)}  # fmt: skip
        for what, there in theirs.items():
            if there != ours[what]:
                raise self._unpublished(
                    f"{server.place} has vectors '{part.space}' of segment {part.segment} with "
                    f"{what} {there}, {self._location} has {ours[what]}"
                )

    def _unpublished(self, what: str) -> StoreUnusable:
        return StoreUnusable(
            f"{what}. Publish it with: deepjoin publish {self._location} {self.places}"
        )


class PostgresVectors:
    """The column vectors of a lake in one space, on one server or several."""

    def __init__(
        self, shards: Sequence[Shard], segments: Sequence[Segment], vectors: Sequence[ColumnVectors]
    ) -> None:
        self._shards, self._segments = shards, segments
        self._indexes = [one.index for one in vectors]

    @property
    def metric(self) -> str:
        """How near two vectors are."""
        return self._indexes[0].metric if self._indexes else "cosine"

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AT_A_TIME * len(self._shards), "deepjoin-store")

    def nearest(
        self, vector: Float, k: int | None, excluded: Sequence[Marks | None]
    ) -> list[Nearest]:
        """Ask all servers at once; where every column is wanted, none need be asked."""
        if not self._segments:
            return []
        query = checked(np.asarray(vector, np.float32).reshape(1, -1), self._indexes[0].dimension)
        if k is None or k >= max(map(len, self._indexes)):
            return [self._all(n, query[0], k, marks) for n, marks in enumerate(excluded)]
        if k <= 0:
            return [Nearest(np.zeros(0, np.int64), np.zeros(0)) for _ in self._segments]
        sent = _sent(query[0], self.metric)
        if len(self._shards) == 1:
            found = [self._shards[0].near(sent, k, excluded)]
        else:
            found = list(self._pool.map(lambda shard: shard.near(sent, k, excluded), self._shards))
        return [
            self._ranked(n, query[0], k, [one for shard in found for one in shard[n]], marks)
            for n, marks in enumerate(excluded)
        ]

    def _ranked(
        self, number: int, query: Float, k: int, found: Sequence[Found], excluded: Marks | None
    ) -> Nearest:
        """Measure what was found, once for all columns of equal vectors."""
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
        return self._best(number, ids, self._measured(number, query, ids), k)

    def _best(self, number: int, ids: Int, distances: Double, k: int | None) -> Nearest:
        order = np.asarray(self._segments[number].catalog.column_order)
        best = np.lexsort((order[ids], distances))[:k]
        return Nearest(ids[best], distances[best])

    def _measured(self, number: int, query: Float, ids: Int) -> Double:
        index = self._indexes[number]
        blocks = [ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK)]
        return np.concatenate([np.zeros(0), *(index.measured(query, block) for block in blocks)])


def _sent(query: Float, metric: str) -> Float:
    """Scale a query to what half precision holds, where its length does not matter."""
    if metric == "euclidean":
        return query
    return np.asarray(query / max(float(np.linalg.norm(query)), 1e-30), np.float32)
