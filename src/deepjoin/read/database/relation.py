"""What every kind of database does: list relations, answer queries, read rows as batches."""

from __future__ import annotations

import datetime
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from deepjoin.errors import DeepJoinError, UnreadableTable, first_line
from deepjoin.model import Reading
from deepjoin.normalise.cells import cell_text, text_array, unique_names
from deepjoin.read.formats import title_of, words
from deepjoin.read.source import file_stamp, relative
from deepjoin.read.sql import identifier

#: Rows of a batch, and bytes after which a batch is closed early.
BATCH_ROWS = 32_768
BATCH_BYTES = 4 << 20
#: Seconds that reading a view of a file may take: its query may never end.
VIEW_SECONDS = 300.0
#: Characters of context: encoders read no more, and a table may have a thousand comments.
_LONGEST_CONTEXT = 2_000

#: Runs a query inside the open transaction and returns all of its rows.
Ask = Callable[[str], list[tuple[Any, ...]]]
#: A declared foreign key: (schema, table) of the child, its columns, and those of the parent.
ForeignKey = tuple[tuple[str, str], tuple[str, ...], tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True)
class DatabaseRelation:
    """A table or view; ``sql`` is its quoted name, ``rows`` an estimate or -1 if unknown.

    ``stamp`` is as in `Item`, ``has_digest`` says whether `Database.digest` shows changes,
    ``refusal`` why the table cannot be read, and ``runs_functions`` whether reading it may run
    functions that another role wrote.
    """

    name: str
    table: str
    sql: str
    schema: str = ""
    title: str = ""
    context: str = ""
    rows: int = -1
    stamp: str = ""
    has_digest: bool = False
    refusal: str = ""
    runs_functions: bool = False

    @classmethod
    def in_schema(
        cls,
        schema: str,
        table: str,
        sql: str,
        comment: str | None = None,
        columns: str | None = None,
        **more: Any,
    ) -> Self:
        """Describe a table by its comment and those of its columns; without them by its name."""
        title = " ".join((comment or "").split()) or title_of(table)
        parts = [words(schema), " ".join((columns or "").split())]
        context = ". ".join(part for part in parts if part)[:_LONGEST_CONTEXT]
        return cls(full_name(schema, table), table, sql, schema, title, context, **more)


class Database(ABC):
    """A database that is only read; ``place`` and descriptions of it hold no secrets.

    A subclass defines how to connect, what its driver raises, and how to fetch and read.
    """

    dialect: str
    place: str
    #: What the driver raises.
    driver_error: type[Exception] | tuple[type[Exception], ...]
    #: Passwords and tokens, which a driver may quote in its errors.
    secrets: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    @abstractmethod
    def relations(self) -> list[DatabaseRelation]:
        """List the tables and views of all schemas but the system's."""

    @abstractmethod
    def connected(self) -> AbstractContextManager[Any]:
        """Open a connection with one read-only transaction; `DeepJoinError` if that fails."""

    @abstractmethod
    def fetch(self, connection: Any, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows."""

    @abstractmethod
    def batches(
        self, connection: Any, relation: DatabaseRelation, limit: int, notes: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Read a table, or its first rows: the same ones as long as it does not change."""

    @abstractmethod
    def read_error(self, connection: Any, relation: DatabaseRelation, error: Any) -> DeepJoinError:
        """Return `UnreadableTable` if the table is at fault, `DeepJoinError` if the database is."""

    def digest(self, relation: DatabaseRelation, limit: int = 0) -> str:
        """Hash what `read` would give; '' where only reading shows a change."""
        return ""

    def warnings(self, relations: Sequence[DatabaseRelation]) -> list[str]:
        """Say what the user should know before these tables and views are read."""
        return []

    def describe(self, index: Path) -> str:
        """Return the address without secrets, a file's relative to the index folder."""
        return self.place

    def foreign_keys(self) -> list[ForeignKey] | None:
        """List the foreign keys that the database declares; None if it cannot be asked."""
        return None

    @contextmanager
    def session(self) -> Iterator[Ask]:
        """Open a read-only transaction; its queries raise `DeepJoinError`."""
        with self.connected() as connection:

            def ask(sql: str) -> list[tuple[Any, ...]]:
                try:
                    return self.fetch(connection, sql)
                except self.driver_error as error:
                    raise self.query_error(error) from None

            yield ask

    def read(self, relation: DatabaseRelation, limit: int = 0) -> Reading:
        """Read a table, or its first rows."""
        notes: list[str] = []

        def batches() -> Iterator[pa.RecordBatch]:
            with self.reading(relation) as connection:
                yield from self.batches(connection, relation, limit, notes)

        return Reading(batches(), notes)

    @contextmanager
    def reading(self, relation: DatabaseRelation) -> Iterator[Any]:
        """Open a connection to read one table; errors of the driver are explained."""
        with self.connected() as connection:
            try:
                yield connection
            except self.driver_error as error:
                raise self.read_error(connection, relation, error) from None

    def query_error(self, error: Exception) -> DeepJoinError:
        """Explain why a query of a session failed."""
        return DeepJoinError(self.message(error))

    def message(self, error: Exception) -> str:
        """Write a driver's error in one line without secrets."""
        return first_line(error, self.secrets)


class DatabaseFile(Database):
    """A database in one local file, with a write-ahead log beside it."""

    #: What the name of the log adds to that of the file.
    log_ending: str
    #: Whether the status of the log changes only when something is done to the log.
    log_has_status = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = f"{self.dialect}:///{path}"

    def describe(self, index: Path) -> str:
        """Return the address relative to the index folder, so that both can move together."""
        return f"{self.dialect}:///{relative(self.path, index)}"

    @contextmanager
    def reading(self, relation: DatabaseRelation) -> Iterator[Any]:
        """Open a connection to read one table; that of a view ends after a time."""
        if relation.has_digest:
            with super().reading(relation) as connection:
                yield connection
            return
        is_over = threading.Event()
        with self.connected() as connection:

            def end() -> None:
                is_over.set()
                with suppress(Exception):  # it has just ended
                    connection.interrupt()

            clock = threading.Timer(VIEW_SECONDS, end)
            clock.daemon = True
            clock.start()
            try:
                yield connection
            except Exception as error:  # drivers differ in what they raise when interrupted
                if is_over.is_set():
                    raise UnreadableTable(
                        f"{relation.name} cannot be read: the view took longer than "
                        f"{VIEW_SECONDS:g} s; leave it out with `exclude`.",
                        passing=True,
                    ) from None
                if isinstance(error, self.driver_error):
                    raise self.read_error(connection, relation, error) from None
                raise
            finally:
                clock.cancel()

    def stamp(self) -> str:
        """Stamp the file together with its log, unless that is empty."""
        stamps = [file_stamp(self.path.stat())]
        log = Path(f"{self.path}{self.log_ending}")
        if log.exists() and log.stat().st_size:
            stamps.append(file_stamp(log.stat(), self.log_has_status))
        return "-".join(stamps) if all(stamps) else ""

    def query_error(self, error: Exception) -> DeepJoinError:
        """Explain why a query of a session failed."""
        return DeepJoinError(f"{self.place}: {self.message(error)}.")


def full_name(*parts: str) -> str:
    """Name a table with its schema; parts that would make the name ambiguous are quoted.

    >>> full_name("sales", "orders"), full_name("a.b", "c")
    ('sales.orders', '"a.b".c')
    """
    return ".".join(identifier(part) if set(part) & set('."') else part for part in parts)


def first_rows(
    batches: Iterator[pa.RecordBatch], limit: int, about: int, notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Pass on the first rows, and note if there were more; ``about`` estimates how many."""
    left = limit
    for batch in batches:
        if batch.num_rows > left:
            of = f" of about {about:,}" if about > limit else ""
            notes.append(f"Only the first {limit:,} rows{of} are read.")
        yield batch.slice(0, left)
        left = max(0, left - batch.num_rows)


#: Floats represent every integer up to here.
_EXACT = 2**53
_SIMPLE = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
}
_BYTES = {bytes, bytearray, memoryview}
# What Arrow raises for values that do not fit one type.
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


class Batcher:
    """Makes batches of rows; a column becomes text from the first cell of another type on.

    ``kinds`` are the types of the columns that are known beforehand.
    """

    def __init__(self, names: Iterable[str], kinds: Sequence[pa.DataType | None]) -> None:
        self.names = unique_names(names)
        self._kinds = list(kinds)

    def batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Turn rows into columns; without rows, into empty ones."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.names)
        arrays = [self._array(at, cells) for at, cells in enumerate(columns)]
        return pa.RecordBatch.from_arrays(arrays, names=self.names)

    def batches(self, chunks: Iterable[Sequence[Sequence[Any]]]) -> Iterator[pa.RecordBatch]:
        """Turn chunks of rows into batches; at least one, for the names of the columns."""
        none = True
        # A table without rows still has columns, which are listed.
        for rows in chunks:
            none = False
            yield self.batch(rows)
        if none:
            yield self.batch([])

    def _array(self, at: int, cells: Sequence[Any]) -> pa.Array:
        known = self._kinds[at]
        classes = set(map(type, cells)) - {type(None)}
        if not classes:
            return pa.nulls(len(cells), known or pa.string())
        try:
            array = _typed(cells, classes, known)
        except _UNFIT:
            # SQLite stores any type in any column; as text, nothing is lost.
            array = as_text(cells)
        self._kinds[at] = array.type
        return array


def _typed(cells: Sequence[Any], classes: set[type], known: pa.DataType | None) -> pa.Array:
    if known is not None and pa.types.is_string(known):
        return as_text(cells)
    if classes == {str}:
        return text_array(cells)
    if classes <= _BYTES:
        return pa.array([cell if cell is None else bytes(cell) for cell in cells], pa.binary())
    kind = _kind(cells, classes, known)
    if known is None or known == kind or (known, kind) == (pa.int64(), pa.float64()):
        return pa.array(cells, kind)
    return as_text(cells)


def _kind(cells: Sequence[Any], classes: set[type], known: pa.DataType | None) -> pa.DataType:
    """Return the one type of the cells; a `TypeError` says that there is none."""
    if classes == {int} and known != pa.float64():
        return pa.int64()
    if classes <= {int, float}:
        if any(type(cell) is int and abs(cell) > _EXACT for cell in cells):
            raise TypeError("as floats these integers would lose digits")
        return pa.float64()
    if classes == {Decimal}:
        if known is not None:
            return known
        # The first batch decides; a later cell with more digits makes the column text.
        exponents = [cell.as_tuple().exponent for cell in cells if cell is not None]
        return pa.decimal128(38, max(0, *(-exponent for exponent in exponents)))
    if classes == {datetime.datetime}:
        # Arrow has no type for a mixture; moments without a zone are taken to be in UTC then.
        zones = {cell.tzinfo is None for cell in cells if cell is not None}
        return pa.timestamp("us", None if zones == {True} else "UTC")
    (only,) = classes
    return _SIMPLE[only] if only in _SIMPLE else pa.string()


def as_text(cells: Iterable[Any]) -> pa.Array:
    """Write every cell as text; bytes among other cells are decoded.

    >>> as_text([7, "a", 2.5, None, b"x", [1, 2]]).to_pylist()
    ['7', 'a', '2.5', None, 'x', '[1, 2]']
    """
    texts: list[str | None] = []
    for cell in cells:
        if isinstance(cell, (bytes, bytearray, memoryview)):
            texts.append(bytes(cell).decode("utf-8", "replace"))
        elif isinstance(cell, (dict, list, tuple)):
            texts.append(json.dumps(cell, default=str, ensure_ascii=False))
        else:
            texts.append(cell_text(cell))
    return text_array(texts)
