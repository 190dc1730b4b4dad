"""Copy the column vectors of a lake into PostgreSQL, and take out those it no longer has.

Every segment is loaded, indexed and noted in one transaction, so that a run that is killed leaves
what was there as it was, and the next run goes on from the segments that are done. What no lake
uses any more is dropped at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.column_vectors.store import ColumnVectors
from deepjoin.errors import DeepJoinError
from deepjoin.vector_store.connections import GONE, Server
from deepjoin.vector_store.rows import HEAD, TAIL, Groups, copied
from deepjoin.vector_store.schema import (
    Extension,
    Part,
    add_part,
    create_table,
    execute,
    parts_of,
    prepare,
)

if TYPE_CHECKING:
    from psycopg import Connection

#: Told how many vectors are done, of how many, and what is being done.
Progress = Callable[[int, int, str], None]

#: Up to here all vectors of a segment are compared in a few milliseconds, and none is missed.
SCANNED_UP_TO = 10_000
#: Candidates that a search keeps unless told otherwise, of vectors and of codes.
_EFFORT, _CODES = 200, 1_000
#: How the graph is built: links of a vector, and candidates looked at for them.
_LINKS, _CANDIDATES = 16, 128
#: How long a table that nobody needs is waited for, if a search of a moment ago still reads it.
_PATIENCE = "5s"
#: What PostgreSQL says of a table that is being read, and of a part that a lake has just taken.
_IN_USE = ("55P03", "23503")
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(('deepjoin.vectors_' || part)::regclass)), 0)
FROM deepjoin.uses WHERE lake = %s
"""


@dataclass(frozen=True)
class Piece:
    """The vectors of one segment in one space, as the index has them."""

    segment: str
    space: str
    vectors: ColumnVectors


@dataclass(frozen=True)
class How:
    """How vectors are to be searched there."""

    #: "hnsw", "codes", "exact", or "auto": what suits the space and the number of vectors.
    index: str = "auto"
    #: Candidates that a search keeps; None for as before, or the default.
    effort: int | None = None
    #: The most memory, in bytes, that the server may take to build a graph.
    memory: int = 1 << 30
    #: Whether a lake of this name may take the place of another one.
    replaces: bool = False

    def chosen(self, part: Part) -> Part:
        """Say how a part that is new is to be searched."""
        index = self.index
        if index == "auto" and part.vectors <= SCANNED_UP_TO:
            index = "exact"
        elif index == "auto":
            # A model's vectors lie together where they are alike, sketches do not.
            index = "hnsw" if part.space == "columns" or part.metric != "cosine" else "codes"
        kind = "bit" if index == "codes" else part.kind
        effort = self.effort or (_CODES if index == "codes" else _EFFORT)
        return replace(part, kind=kind, indexed=index == "hnsw", effort=effort)

    def suits(self, part: Part) -> bool:
        """Tell whether a part that is there holds what is asked for."""
        return self.index == "auto" or part.coded == (self.index == "codes")

    def renewed(self, part: Part) -> Part:
        """Say how a part that is there is to be searched; what is not asked for stays."""
        indexed = part.indexed if self.index == "auto" else self.index == "hnsw"
        return replace(part, indexed=indexed, effort=self.effort or part.effort)


@dataclass(frozen=True)
class Published:
    """What was done, summed up over the servers."""

    lake: str
    #: Segments there now, counted in each space; those that were sent, and those taken out.
    parts: int
    sent: int
    removed: int
    #: Different vectors sent.
    vectors: int
    #: What the lake takes there, with its indexes.
    bytes: int


class Count:
    """Adds up the progress of several servers, until all are to stop."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock, self.stopped = Lock(), False

    def add(self, vectors: int, what: str) -> None:
        """Tell that more is done."""
        with self._lock:
            if self.stopped:
                raise DeepJoinError("Another server failed; run the same command again.")
            self._done += vectors
            self._progress(self._done, self._total, what)


def publish(
    servers: Sequence[Server],
    lake: tuple[str, str],
    pieces: Sequence[Piece],
    how: How,
    progress: Progress,
) -> Published:
    """Make servers hold the vectors of a lake, which has a name and a location, and no others.

    Nothing is taken out before everything is there, on all of them.
    """
    count = Count(len(servers) * sum(len(piece.vectors.rows) for piece in pieces), progress)
    jobs = [
        _Publishing(server, (number, len(servers)), lake, pieces, how, count)
        for number, server in enumerate(servers)
    ]
    sent = _together([job.load for job in jobs], count, servers)
    rest = _together([job.settle for job in jobs], count, servers)
    removed, sizes = (sum(numbers) for numbers in zip(*rest, strict=True))
    new, vectors = (sum(numbers) for numbers in zip(*sent, strict=True))
    return Published(lake[0], len(jobs) * len(pieces), new, removed, vectors, sizes)


def _together(
    jobs: Sequence[Callable[[], tuple[int, int]]], count: Count, servers: Sequence[Server]
) -> list[tuple[int, int]]:
    """Work on all servers at a time; the first that fails, or Ctrl-C, stops the others."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            futures = [pool.submit(job) for job in jobs]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for failed in (one.exception() for one in done):
                if failed is not None:
                    raise failed
            return [one.result() for one in futures]
        except BaseException:
            count.stopped = True
            for server in servers:
                server.interrupt()
            raise


def withdraw(servers: Sequence[Server], name: str) -> int:
    """Take a lake out of servers; returns how many tables were dropped."""
    dropped = 0
    for server in servers:
        with server.session() as connection:
            there = connection.execute("SELECT to_regclass('deepjoin.lakes')").fetchone()
            sql = "DELETE FROM deepjoin.lakes WHERE name = %s"
            if there == (None,) or not connection.execute(sql, [name]).rowcount:
                raise DeepJoinError(
                    f"{server.place} has no lake '{name}'. It has: {_names(connection)}."
                )
            dropped += _drop_unused(connection)
    return dropped


def _names(connection: Connection[Any]) -> str:
    from psycopg import Error

    try:
        rows = connection.execute("SELECT name FROM deepjoin.lakes ORDER BY name").fetchall()
    except Error as error:
        if error.sqlstate not in GONE:
            raise
        rows = []
    return ", ".join(name for (name,) in rows) or "none"


class _Publishing:
    """The work on one server."""

    def __init__(
        self,
        server: Server,
        shard: tuple[int, int],
        lake: tuple[str, str],
        pieces: Sequence[Piece],
        how: How,
        count: Count,
    ) -> None:
        self._server, self._shard, self._pieces = server, shard, pieces
        self._name, self._location = lake
        self._how, self._count = how, count
        self._used: list[int] = []

    def load(self) -> tuple[int, int]:
        """Send what is not there; returns how many segments, and how many different vectors."""
        sent = vectors = 0
        with self._server.session() as connection:
            extension = prepare(connection, self._server.place)
            self._claim(connection)
            for piece in self._pieces:
                number = self._put(connection, extension, piece)
                if number is not None:
                    sent, vectors = sent + 1, vectors + number
        return sent, vectors

    def _check(self, extension: Extension, part: Part) -> None:
        """Refuse what neither an index of vectors nor codes can hold."""
        if part.indexed and part.dimension > extension.most:
            raise DeepJoinError(
                f"The vectors '{part.space}' have {part.dimension} dimensions, and an index of "
                f"pgvector {extension.version} takes {extension.most}. Use --ann codes or exact, "
                "leave them out with --space, or make them smaller: deepjoin index INDEX --sketch N"
            )
        if part.coded and part.metric != "cosine":
            raise DeepJoinError(
                f"The vectors '{part.space}' are compared by their {part.metric} distance, and "
                "codes hold angles alone. Use --ann hnsw or exact."
            )

    def _claim(self, connection: Connection[Any]) -> None:
        """Take the lake's name, unless it is another lake's."""
        sql = (
            "SELECT location, coalesce(array_agg(p.segment), '{}') FROM deepjoin.lakes l LEFT JOIN "
            "deepjoin.uses u ON u.lake = l.name LEFT JOIN deepjoin.parts p ON p.id = u.part "
            "WHERE l.name = %s GROUP BY l.name"
        )
        found = connection.execute(sql, [self._name]).fetchone()
        if found is not None:
            shared = {piece.segment for piece in self._pieces} & set(found[1])
            if not (shared or found[0] == self._location or self._how.replaces):
                raise DeepJoinError(
                    f"{self._server.place} has another lake '{self._name}', published from "
                    f"{found[0]}. Give this one a name with --name, or put it in its place with "
                    "--replace."
                )
        connection.execute(
            "INSERT INTO deepjoin.lakes VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
            "location = excluded.location, version = excluded.version",
            [self._name, self._location, __version__],
        )

    def _put(self, connection: Connection[Any], extension: Extension, piece: Piece) -> int | None:
        """Make a part one of the lake's; returns how many vectors were sent, None if it was there.

        Until the transaction ends, no other process makes the same one.
        """
        shard, shards = self._shard
        key = f"{piece.segment} {piece.space} {shard} {shards}"
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
            parts = parts_of(connection, self._server.place, [piece.segment], shards)
            own = [
                one
                for one in parts
                if (one.space, one.shard) == (piece.space, shard) and self._how.suits(one)
            ]
            if own:
                part = self._renew(connection, extension, own[-1])
                self._count.add(len(piece.vectors.rows), "vectors")
            else:
                part = self._load(connection, extension, piece)
            connection.execute(
                "INSERT INTO deepjoin.uses VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [self._name, part.id],
            )
        self._used.append(part.id)
        return None if own else part.vectors

    def _renew(self, connection: Connection[Any], extension: Extension, part: Part) -> Part:
        """Give a part that is there the index that is wanted now."""
        wanted = self._how.renewed(part)
        self._check(extension, wanted)
        if wanted.indexed and not part.indexed:
            self._index(connection, extension, wanted)
        elif part.indexed and not wanted.indexed:
            execute(connection, f"DROP INDEX {part.table}_near")
        connection.execute(
            "UPDATE deepjoin.parts SET indexed = %s, effort = %s WHERE id = %s",
            [wanted.indexed, wanted.effort, part.id],
        )
        return wanted

    def _load(self, connection: Connection[Any], extension: Extension, piece: Piece) -> Part:
        """Note a part, make its table, fill it, and index it."""
        rows, about, index = piece.vectors.rows, piece.vectors.about, piece.vectors.index
        groups = Groups.of(rows)
        share = groups.share(*self._shard)
        part = Part(
            *(0, piece.segment, piece.space, *self._shard, about.name, about.digest),
            *(index.metric, about.dimension, len(rows), len(share), extension.kind, False, 0),
        )
        part = self._how.chosen(part)
        self._check(extension, part)
        part = add_part(connection, part)
        create_table(connection, extension, part)
        self._fill(connection, part, copied(rows, groups, share, part.kind))
        self._count.add(len(rows) - len(share), "vectors")  # those that equal others
        if part.indexed:
            self._index(connection, extension, part)
        return part

    def _fill(
        self, connection: Connection[Any], part: Part, blocks: Iterable[tuple[int, bytes]]
    ) -> None:
        statement = f"COPY {part.table} FROM STDIN (FORMAT binary, FREEZE)"
        with connection.cursor().copy(statement.encode()) as copy:
            copy.write(HEAD)
            for count, block in blocks:
                copy.write(block)
                self._count.add(count, "vectors")
            copy.write(TAIL)

    def _index(self, connection: Connection[Any], extension: Extension, part: Part) -> None:
        """Build the graph, in memory if it fits into what may be used."""
        self._count.add(0, "indexing")
        size = part.dimension * (2 if part.kind == "halfvec" else 4) + 64 * _LINKS + 256
        wanted = min(self._how.memory, part.vectors * size * 5 // 4) // 1024
        sql = (
            "SELECT set_config('maintenance_work_mem', greatest(setting::bigint, %s)::text, true) "
            "FROM pg_settings WHERE name = 'maintenance_work_mem'"
        )
        connection.execute(sql, [wanted])
        execute(
            connection,
            f"CREATE INDEX vectors_{part.id}_near ON {part.table} USING hnsw "
            f"(v {extension.classed(part.kind, part.metric)}) "
            f"WITH (m = {_LINKS}, ef_construction = {_CANDIDATES})",
        )

    def settle(self) -> tuple[int, int]:
        """Make it the lake's state; returns how many tables were dropped, and what is taken."""
        with self._server.session() as connection:
            with connection.transaction():
                connection.execute(
                    "DELETE FROM deepjoin.uses WHERE lake = %s AND part <> ALL(%s)",
                    [self._name, self._used],
                )
                connection.execute(
                    "UPDATE deepjoin.lakes SET published = now() WHERE name = %s", [self._name]
                )
            dropped = _drop_unused(connection)
            (size,) = connection.execute(_SIZE, [self._name]).fetchone() or (0,)
        return dropped, int(size)


def _drop_unused(connection: Connection[Any]) -> int:
    """Drop the tables that no lake uses; one that is being read is left to the next run."""
    sql = (
        "SELECT id FROM deepjoin.parts p WHERE NOT EXISTS "
        "(SELECT FROM deepjoin.uses WHERE part = p.id)"
    )
    return sum(_drop(connection, number) for (number,) in connection.execute(sql).fetchall())


def _drop(connection: Connection[Any], number: int) -> bool:
    from psycopg import Error

    sql = (
        "DELETE FROM deepjoin.parts p WHERE id = %s AND NOT EXISTS "
        "(SELECT FROM deepjoin.uses WHERE part = p.id)"
    )
    try:
        with connection.transaction():
            execute(connection, f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            if not connection.execute(sql, [number]).rowcount:
                return False
            execute(connection, f"DROP TABLE deepjoin.vectors_{number}")
            return True
    except Error as error:
        if error.sqlstate not in _IN_USE:
            raise
        return False
