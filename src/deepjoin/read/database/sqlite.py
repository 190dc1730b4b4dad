"""SQLite files, opened so that nothing can be written to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from typing import Any

import pyarrow as pa
import xxhash

from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.normalise.cells import REPAIRED_NOTE
from deepjoin.read.database.relation import (
    BATCH_ROWS,
    Batcher,
    DatabaseFile,
    DatabaseRelation,
    ForeignKey,
)
from deepjoin.read.formats import title_of
from deepjoin.read.sql import identifier

#: Seconds to wait for another program to finish writing.
BUSY_SECONDS = 5.0
#: Errors of the file, not of a table: it is locked, cannot be opened or read, or was replaced.
_LOST = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
)
# The shadow tables of a virtual table hold its index, no further data.
_RELATIONS = """
SELECT name, type = 'table' AS is_table FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
  AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow' AND schema = 'main')
"""

# Virtual tables, which have no page, declare nothing, and their module may not be there.
_FOREIGN_KEYS = """
SELECT m.name, k.id, k."table", k."from", k."to"
FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) k
WHERE m.type = 'table' AND m.rootpage > 0 ORDER BY m.name, k.id, k.seq
"""
_PRIMARY_KEYS = """
SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type = 'table' AND m.rootpage > 0 AND c.pk > 0 ORDER BY m.name, c.pk
"""


class SqliteDatabase(DatabaseFile):
    """A SQLite file. Tables have no schema in their names; a column of mixed types is text.

    The stamp is that of the whole file and its write-ahead log: their sizes, times and the
    counter of changes inside the file. If it has changed, the digest reads a table's rows,
    because nothing else shows an update. Views have no stamp.
    """

    dialect = "sqlite"
    # Two statements in one query are a Warning before Python 3.12.
    driver_error = (sqlite3.Error, sqlite3.Warning)
    log_ending = "-wal"
    # Whenever root opens the file, SQLite makes its owner that of the log: a change of status.
    log_has_status = False

    def stamp(self) -> str:
        """Add the counter of changes, since a write may leave size and time as they were."""
        stamp = super().stamp()
        if not stamp:
            return ""
        with self.path.open("rb") as file:
            return f"{stamp}-{file.read(28)[24:].hex()}"

    def relations(self) -> list[DatabaseRelation]:
        """List the tables and views."""
        stamp = self.stamp()
        with self.session() as ask:
            found = ask(_RELATIONS)
        return [
            DatabaseRelation(
                # With its schema, so that no name inside a query can hide the table.
                *(name, name, f"main.{identifier(name)}"),
                title=title_of(name),
                stamp=stamp if is_table else "",
                has_digest=bool(is_table),
            )
            for name, is_table in found
        ]

    def foreign_keys(self) -> list[ForeignKey]:
        """Read the declared foreign keys; one without columns refers to the primary key."""
        with self.session() as ask:
            rows = ask(_FOREIGN_KEYS)
            keys: dict[str, list[str]] = {}
            for table, column in ask(_PRIMARY_KEYS):
                keys.setdefault(table.lower(), []).append(column)
        tables = {table.lower(): table for table, *_ in rows}
        tables |= {relation.table.lower(): relation.table for relation in self.relations()}
        found: list[ForeignKey] = []
        for (table, _, parent), group in groupby(rows, lambda row: row[:3]):
            pairs = [(column, other) for *_, column, other in group]
            others = [other for _, other in pairs]
            if None in others:
                others = keys.get(parent.lower(), [])
            if len(others) == len(pairs):
                name = tables.get(parent.lower(), parent)
                columns = tuple(column for column, _ in pairs)
                found.append((("", table), columns, ("", name), tuple(others)))
        return found

    def fetch(self, connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows."""
        return connection.execute(sql).fetchall()

    def batches(
        self,
        connection: sqlite3.Connection,
        relation: DatabaseRelation,
        limit: int,
        notes: list[str],
    ) -> Iterator[pa.RecordBatch]:
        """Read a table in the order of its rows."""
        sql = f"SELECT * FROM {relation.sql}" + (f" LIMIT {limit}" if limit else "")
        with closing(connection.execute(sql)) as cursor:
            names = [described[0] for described in cursor.description]
        columns = "SELECT name, type FROM pragma_table_info(?)"
        declared = dict(connection.execute(columns, [relation.table]))
        batcher = Batcher(names, [_kind(declared.get(name) or "") for name in names])
        yield from batcher.batches(_chunks(connection, sql, notes))

    def query_error(self, error: Exception) -> DeepJoinError:
        """Explain why a query of a session failed."""
        return DeepJoinError(f"{self.place}: {self.message(error)}.{_hint(error)}")

    def read_error(
        self, connection: sqlite3.Connection, relation: DatabaseRelation, error: Exception
    ) -> DeepJoinError:
        """Return `UnreadableTable` if the table is at fault, `DeepJoinError` if the file is."""
        said = self.message(error)
        if is_lost(error):
            return DeepJoinError(f"Cannot read {self.place}: {said}.{_hint(error)}")
        if said == f"no such table: main.{relation.table}":
            return UnreadableTable(f"{relation.name} is no longer in the database.")
        return UnreadableTable(f"{relation.name} cannot be read: {said}.")

    def digest(self, relation: DatabaseRelation, limit: int = 0) -> str:
        """Hash the rows of a table."""
        digest = xxhash.xxh3_128()
        for batch in self.read(relation, limit):
            digest.update(f"{batch.schema}".encode())
            digest.update(batch.serialize())
        return digest.hexdigest()

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Open a snapshot of the file."""
        try:
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=ro",
                timeout=BUSY_SECONDS,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise DeepJoinError(f"Cannot open {self.place}: {self.message(error)}.") from None
        with closing(connection):
            # One transaction, so that all queries see the same snapshot.
            connection.execute("BEGIN")
            yield connection


def is_lost(error: object) -> bool:
    """Check whether an error concerns the whole file, not one table."""
    # The lowest byte is the class of an error.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOST


def _hint(error: Exception) -> str:
    is_locked = "locked" in str(error)
    return " Run it again when the other program is done with it." if is_locked else ""


def _kind(declared: str) -> pa.DataType | None:
    """Return the type that SQLite's affinity gives to all cells, where it leaves no doubt."""
    upper = declared.upper()
    if "INT" in upper:
        return pa.int64()
    if any(word in upper for word in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")):
        return pa.float64()
    return None


def _chunks(
    connection: sqlite3.Connection, sql: str, notes: list[str]
) -> Iterator[list[tuple[Any, ...]]]:
    """Fetch rows; from the first text that is not UTF-8 on, repair all text, which is slower."""
    done = 0
    try:
        with closing(connection.execute(sql)) as cursor:
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield rows
                done += len(rows)
        return
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    notes.append(REPAIRED_NOTE)
    connection.text_factory = lambda cell: cell.decode("utf-8", "replace")
    rest = f"SELECT * FROM ({sql}) LIMIT -1 OFFSET {done}"
    with closing(connection.execute(rest)) as cursor:
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield rows
