"""What every kind of database offers, and what is known of a table before it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deepjoin.model import Reading
from deepjoin.read import title_of, words
from deepjoin.read.quote import identifier
from deepjoin.read.source import file_stamp

#: Rows of a batch, and bytes after which a batch is closed early.
BATCH_ROWS = 32_768
BATCH_BYTES = 4 << 20
_LONGEST_CONTEXT = 2_000

#: Runs a query inside the open transaction and returns all of its rows.
Ask = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Relation:
    """A table or view: ``sql`` is its quoted name, ``rows`` about how many it has, -1 unknown.

    ``stamp`` and ``has_digest`` are as in `Item`; ``refusal`` says why it cannot be read.
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
    """A database that is only ever read; nothing it says of itself holds a secret."""

    dialect: str
    place: str

    def relations(self) -> list[Relation]:
        """List the tables and views of all schemas but the system's."""

    def session(self) -> AbstractContextManager[Ask]:
        """Open a read-only transaction; what its queries raise is a `DeepJoinError`."""

    def read(self, relation: Relation, limit: int = 0) -> Reading:
        """Read a table, or its first rows: the same ones as long as it does not change."""

    def digest(self, relation: Relation, limit: int = 0) -> str:
        """Sum up what `read` would give."""

    def describe(self, index: Path) -> str:
        """Give the address without secrets, a file's relative to the index folder."""


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
    """Put the schema and the comments of the columns into words."""
    parts = [words(schema), " ".join((comments or "").split())]
    return ". ".join(part for part in parts if part)[:_LONGEST_CONTEXT]


def files_stamp(path: Path, log: Path) -> str:
    """Stamp a database file together with its log; a log without a byte is as good as none."""
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
