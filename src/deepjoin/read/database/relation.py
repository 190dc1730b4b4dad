"""What every kind of database offers, what it says of its tables, and rows as batches."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deepjoin.model import Reading
from deepjoin.normalise.cells import cell_text, text_array, unique_names
from deepjoin.read.formats import title_of, words
from deepjoin.read.source import file_stamp
from deepjoin.read.sql import identifier

#: Rows of a batch, and bytes after which a batch is closed early.
BATCH_ROWS = 32_768
BATCH_BYTES = 4 << 20
#: Characters of context: encoders read no more, and a table may have a thousand comments.
_LONGEST_CONTEXT = 2_000

#: Runs a query inside the open transaction and returns all of its rows.
Ask = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Relation:
    """A table or view; ``sql`` is its quoted name, ``rows`` an estimate or -1 if unknown.

    ``stamp`` is as in `Item`, ``has_digest`` says whether `Database.digest` shows changes, and
    ``refusal`` why the table cannot be read.
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


class Database(Protocol):
    """A database that is only read; ``place`` and descriptions of it hold no secrets."""

    dialect: str
    place: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    def relations(self) -> list[Relation]:
        """List the tables and views of all schemas but the system's."""

    def session(self) -> AbstractContextManager[Ask]:
        """Open a read-only transaction; its queries raise `DeepJoinError`."""

    def read(self, relation: Relation, limit: int = 0) -> Reading:
        """Read a table, or its first rows: the same ones as long as it does not change."""

    def digest(self, relation: Relation, limit: int = 0) -> str:
        """Hash what `read` would give."""

    def describe(self, index: Path) -> str:
        """Return the address without secrets, a file's relative to the index folder."""


def full_name(*parts: str) -> str:
    """Name a table with its schema; parts that would make the name ambiguous are quoted.

    >>> full_name("sales", "orders"), full_name("a.b", "c")
    ('sales.orders', '"a.b".c')
    """
    return ".".join(identifier(part) if set(part) & set('."') else part for part in parts)


def relation_title(table: str, comment: str | None) -> str:
    """Take the comment of a table as its title, else its name in words."""
    return " ".join(comment.split()) if comment and comment.strip() else title_of(table)


def relation_context(schema: str, comments: str | None) -> str:
    """Make a context of the schema and the comments of the columns."""
    parts = [words(schema), " ".join((comments or "").split())]
    return ". ".join(part for part in parts if part)[:_LONGEST_CONTEXT]


def files_stamp(path: Path, log: Path) -> str:
    """Stamp a database file together with its log, unless that is empty."""
    stamps = [file_stamp(path.stat())]
    if log.exists() and log.stat().st_size:
        stamps.append(file_stamp(log.stat()))
    return "-".join(stamps) if all(stamps) else ""


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
        exponents = [cell.as_tuple().exponent for cell in cells if cell is not None]
        return pa.decimal128(38, max(0, *(-exponent for exponent in exponents)))
    if classes == {datetime.datetime}:
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
