"""Tables and columns: what every source yields and every search takes (paper, section 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """A column: its cells in table order, duplicates kept, and the words around it.

    ``None`` and blank cells are missing; they are kept here and never match.

    >>> Column(["Apple", "GE", "Apple"], name="Company").name
    'Company'
    """

    cells: Sequence[str | None]
    name: str = ""
    table: str | None = None
    title: str = ""
    context: str = ""
    column_id: str | None = None


@dataclass
class Reading:
    """One pass over a table: batches in row order, and what had to be mended on the way.

    A batch may bring columns that earlier ones did not have (JSON lines do); within a batch
    every column has one cell a row. ``notes`` is complete once the batches are used up.
    """

    batches: Iterator[pa.RecordBatch]
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches


@dataclass(frozen=True)
class Table:
    """A table that can be read from its first row as often as needed, without being held.

    ``name`` is unique in a lake: the path relative to the source, ``file#sheet``, or the
    name the user gave. ``open`` raises `UnreadableTable`, at once or while being read.
    """

    name: str
    open: Callable[[], Reading]
    title: str = ""
    context: str = ""
