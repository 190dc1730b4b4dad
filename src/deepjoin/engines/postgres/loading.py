"""Put the vectors of an index onto one server: each piece in one transaction, noted with its table.

So a run that is killed leaves nothing half done, and the next one goes on after what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any

from deepjoin.engines.postgres.extension import Extension
from deepjoin.engines.postgres.how import How, check
from deepjoin.engines.postgres.pieces import Grouping, Piece, difference
from deepjoin.engines.postgres.rows import HEAD, TAIL, copied
from deepjoin.engines.postgres.schema import (
    Part,
    add_part,
    create_table,
    execute,
    lock_part,
    parts_of,
)
from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    from psycopg import Connection

#: Told how many vectors are done, of how many, and what is being done.
Progress = Callable[[int, int, str], None]

#: How the graph is built: links of a vector, and candidates looked at for them.
_LINKS, _CANDIDATES = 16, 128


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


class Loading:
    """What goes onto one server, which holds one of several shares."""

    def __init__(
        self,
        place: str,
        extension: Extension,
        shard: tuple[int, int],
        how: How,
        count: Count,
        grouping: Grouping,
    ) -> None:
        self._place, self._extension, self._shard = place, extension, shard
        self._how, self._count, self._grouping = how, count, grouping

    def put(self, connection: Connection[Any], lake: str, piece: Piece) -> tuple[Part, bool]:
        """Make a part one of the lake's; returns it, and whether it was sent.

        Until the transaction ends, no other process makes or drops the same one.
        """
        with connection.transaction():
            lock_part(connection, (piece.segment, piece.space, *self._shard), wait=True)
            there = self._there(connection, piece)
            if there is None:
                part = self._load(connection, piece)
            else:
                part = self._renew(connection, there)
                self._count.add(len(piece.vectors.rows), "vectors")
            connection.execute(
                "INSERT INTO deepjoin.uses VALUES (%s, %s) ON CONFLICT DO NOTHING", [lake, part.id]
            )
        return part, there is None

    def _there(self, connection: Connection[Any], piece: Piece) -> Part | None:
        """Find a part that holds these very vectors in the form that is asked for."""
        key = (piece.segment, piece.space, *self._shard)
        for part in reversed(parts_of(connection, self._place, [piece.segment])):
            if part.key == key and self._how.suits(part) and not difference(part, piece.vectors):
                return part
        return None

    def _renew(self, connection: Connection[Any], part: Part) -> Part:
        """Give a part that is there the index that is wanted now."""
        wanted = self._how.renewed(part)
        check(wanted, self._extension)
        if wanted.indexed and not part.indexed:
            self._index(connection, wanted)
        elif part.indexed and not wanted.indexed:
            execute(connection, f"DROP INDEX {part.table}_near")
        connection.execute(
            "UPDATE deepjoin.parts SET indexed = %s, effort = %s WHERE id = %s",
            [wanted.indexed, wanted.effort, part.id],
        )
        return wanted

    def _load(self, connection: Connection[Any], piece: Piece) -> Part:
        """Note a part, make its table, fill it, and index it."""
        rows, about, metric = piece.vectors.rows, piece.vectors.about, piece.vectors.index.metric
        groups = self._grouping.of(piece)
        share = groups.share(*self._shard)
        part = Part(
            *(0, piece.segment, piece.space, *self._shard, about.name, about.digest, metric),
            *(about.dimension, len(rows), len(share), self._extension.kind, False, 0),
            token_hex(4),
        )
        part = self._how.chosen(part, self._extension)
        check(part, self._extension)
        part = add_part(connection, part)
        create_table(connection, self._extension, part)
        self._fill(connection, part, copied(rows, groups, share, part.kind))
        self._count.add(len(rows) - len(share), "vectors")  # those that equal others
        if part.indexed:
            self._index(connection, part)
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

    def _index(self, connection: Connection[Any], part: Part) -> None:
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
            f"CREATE INDEX {part.name}_near ON {part.table} USING hnsw "
            f"(v {self._extension.classed(part.kind, part.metric)}) "
            f"WITH (m = {_LINKS}, ef_construction = {_CANDIDATES})",
        )
