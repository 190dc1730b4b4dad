"""Column vectors in PostgreSQL: found there, measured exactly on the rows of the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from deepjoin.embed.vector_index.build import checked
from deepjoin.embed.vector_index.index import Nearest, nearest_first
from deepjoin.engines.postgres.asking import Found, Shard
from deepjoin.engines.postgres.connections import Server, addresses, limited
from deepjoin.engines.postgres.extension import NO_EXTENSION, Extension, extension_of
from deepjoin.engines.postgres.pieces import difference
from deepjoin.engines.postgres.schema import Part, parts_of
from deepjoin.engines.postgres.shares import assigned
from deepjoin.errors import StoreChanged, StoreUnreachable, StoreUnusable
from deepjoin.store.column_vectors.columns import SPACES, ColumnVectors
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from psycopg import Connection

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

#: Rows measured at a time.
_BLOCK = 1 << 12
#: Questions that may be under way at a time on each of several servers.
_AT_A_TIME = 8


@dataclass(frozen=True)
class Held:
    """What one server has of some segments, ready to be searched."""

    extension: Extension
    parts: Sequence[Part]

    def of(self, space: str, shards: int) -> dict[str, list[Part]]:
        """List the parts of each segment in a space, cut for so many servers, the newest first."""
        found: dict[str, list[Part]] = {}
        for part in reversed(self.parts):
            if (part.space, part.shards) == (space, shards):
                found.setdefault(part.segment, []).append(part)
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
        """See that the store has what segments have, in one space at least."""
        named = [segment for segment in segments if segment.values.columns]
        if not named:
            return
        names = [segment.folder.name for segment in named]
        held = self._held(names)
        there = {part.space for one in held for part in one.parts if part.shards == len(held)}
        problems = []
        for space in sorted(there, key=SPACES.index):
            vectors = [ColumnVectors.open(one.folder, space) for one in named]
            known = [one for one in vectors if one is not None and one.complete]
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
        raise self._unpublished(what, self._cut_otherwise(names, held))

    def open(
        self, segments: Sequence[Segment], vectors: Sequence[ColumnVectors], space: str
    ) -> PostgresStore:
        """Open the vectors of a space, after a look at whether they are those of the index."""
        names = [segment.folder.name for segment in segments]

        def look_up() -> list[Shard]:
            return self._shards(names, vectors, space, self._held(names))

        return PostgresStore(look_up, segments, vectors)

    def _held(self, segments: list[str]) -> list[Held]:
        def ask(server: Server, connection: Connection[Any]) -> Held:
            with limited(connection):
                parts = parts_of(connection, server.place, segments)
                ready = [part for part in parts if part.ready]
                extension = extension_of(connection, server.place) if ready else NO_EXTENSION
            return Held(extension, ready)

        return [server.ask(partial(ask, server)) for server in self._servers]

    def _shards(
        self,
        segments: Sequence[str],
        vectors: Sequence[ColumnVectors],
        space: str,
        held: Sequence[Held],
    ) -> list[Shard]:
        """Choose which share to ask of which server."""
        there = [one.of(space, len(held)) for one in held]
        for server, found in zip(self._servers, there, strict=True):
            missing = len(segments) - len(found)
            if missing:
                raise self._unpublished(
                    f"{server.place} has no vectors '{space}' of {missing} of {len(segments)} "
                    f"segments of {self._location}",
                    self._cut_otherwise(segments, held, space),
                )
        fitting = [
            [
                self._fitting(server, found[name], own)
                for name, own in zip(segments, vectors, strict=True)
            ]
            for server, found in zip(self._servers, there, strict=True)
        ]
        shares = assigned([_whole(found, len(held)) for found in fitting])
        if None in shares:
            raise self._unpublished(
                f"{self.places} do not hold one share each of {self._location}; was one named twice"
            )
        return [
            Shard(server, one.extension, [_of_share(parts, share) for parts in found])
            for server, one, found, share in zip(self._servers, held, fitting, shares, strict=True)
        ]

    def _fitting(self, server: Server, parts: Sequence[Part], vectors: ColumnVectors) -> list[Part]:
        """Choose the parts that are of the encoder and form of the index; there must be one."""
        found = [(part, difference(part, vectors)) for part in parts]
        fitting = [part for part, unlike in found if unlike is None]
        if fitting:
            return fitting
        part, unlike = found[0]
        assert unlike is not None
        raise self._unpublished(
            f"{server.place} has vectors '{part.space}' of segment {part.segment} with "
            f"{unlike.what} {unlike.there}, {self._location} has {unlike.here}"
        )

    def _cut_otherwise(
        self, segments: Sequence[str], held: Sequence[Held], space: str | None = None
    ) -> int:
        """Give for how many other servers all segments are there; 0 if for none."""
        found: dict[int, set[str]] = {}
        for part in (part for one in held for part in one.parts):
            if part.shards != len(held) and space in (None, part.space):
                found.setdefault(part.shards, set()).add(part.segment)
        return max((cut for cut, names in found.items() if names == set(segments)), default=0)

    def _unpublished(self, what: str, otherwise: int = 0) -> StoreUnusable:
        if otherwise:
            some = f"{otherwise} server{'s' if otherwise > 1 else ''}"
            name = "all of them" if otherwise > len(self._servers) else "only as many"
            return StoreUnusable(f"{what}, but some for {some}: name {name}.")
        return StoreUnusable(
            f"{what}. Publish it with: deepjoin publish {self._location} {self.places}"
        )


def _whole(found: Sequence[Sequence[Part]], shards: int) -> set[int]:
    """List the shares that a server holds of every segment."""
    shares = [{part.shard for part in parts} for parts in found]
    return set(range(shards)).intersection(*shares)


def _of_share(parts: Sequence[Part], share: int | None) -> Part:
    """Choose the newest part of a share, which is among them."""
    return next(part for part in parts if part.shard == share)


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
        found = self._found(_sent(query[0], self.metric), k, excluded)
        return [
            self._ranked(n, query[0], k, [one for shard in found for one in shard[n]], marks)
            for n, marks in enumerate(excluded)
        ]

    def _found(
        self, query: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[list[Sequence[Found]]]:
        """Ask the servers; where tables were replaced since, look up which are there now."""
        try:
            return self._asked(query, k, excluded)
        except StoreChanged as changed:
            try:
                self._shards = self._look_up()
            except StoreUnreachable:
                raise
            except StoreUnusable:  # which asks to publish what may be an older state of the lake
                raise changed from None
            return self._asked(query, k, excluded)

    def _asked(
        self, query: Float, k: int, excluded: Sequence[Marks | None]
    ) -> list[list[Sequence[Found]]]:
        shards = self._shards
        if len(shards) == 1:
            return [shards[0].near(query, k, excluded)]
        return list(self._pool.map(lambda shard: shard.near(query, k, excluded), shards))

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
        return nearest_first(ids, distances, k, order)

    def _measured(self, number: int, query: Float, ids: Int) -> Double:
        index = self._indexes[number]
        blocks = [ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK)]
        return np.concatenate([np.zeros(0), *(index.measured(query, block) for block in blocks)])


def _sent(query: Float, metric: str) -> Float:
    """Scale a query to what half precision holds, where its length does not matter."""
    if metric == "euclidean":
        return query
    return np.asarray(query / max(float(np.linalg.norm(query)), 1e-30), np.float32)
