"""A segment: an immutable part of an index; merges replace it. And all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import (
    Hashes,
    Int,
    Marks,
    expect_lookups,
    find_sorted,
    load_strings,
    ranges,
    settle,
)
from deepjoin.checksums import open_again
from deepjoin.lazy import cached_property
from deepjoin.store.catalog import Catalog
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.ledger import read_ledger
from deepjoin.store.values.index import ValueIndex
from deepjoin.store.values.rows import RowCodes
from deepjoin.store.values.signatures import Signatures

if TYPE_CHECKING:
    from deepjoin.store.key_columns import KeyColumns

#: Folder, inside a segment, of the tables that came from memory.
FRAMES = "frames"
#: Folder, inside a segment, of the columns with too few values to be searched: a segment of the
#: same tables, without vectors.
SMALL = "small"


class Segment:
    """Tables that were indexed together, some of which may have left the lake since."""

    def __init__(self, folder: Path, removed: Iterable[int] = ()) -> None:
        self.folder = folder
        open_again(folder)
        self.values = ValueIndex(folder)
        self.catalog = Catalog(folder)
        self.ledger = read_ledger(folder)
        #: None in a segment of an earlier version.
        self.rows = RowCodes.open(folder)
        #: None in a segment of an earlier version, or of hashes.
        self.signatures = Signatures.open(folder)
        #: None in a lake without vectors.
        self.cells = CellVectors.open(folder)
        self.removed: frozenset[int] = frozenset()
        self._set_removed(removed)

    def expect_lookups(self) -> None:
        """Prepare for searches, which read little of each file, here and there."""
        for part in self._parts():
            for one in vars(part).values():
                for array in one if isinstance(one, tuple) else (one,):
                    expect_lookups(array)

    def settle(self, whole: bool = False) -> None:
        """Read as without checksums what is verified; ``whole`` verifies all that searches read."""
        for part in (*self._parts(), *([] if self.rows is None else [self.rows])):
            settle(part, whole)

    def _parts(self) -> list[object]:
        """List what holds mapped files."""
        cells = [] if self.cells is None else self.cells.parts
        signatures = [] if self.signatures is None else [self.signatures]
        return [self.values, self.catalog, *signatures, *cells]

    def without(self, removed: Iterable[int]) -> Segment:
        """Return the same segment, with these tables and no others out of the lake."""
        # Not by __init__, which would map the files again.
        other = Segment.__new__(Segment)
        other.folder, other.values, other.catalog = self.folder, self.values, self.catalog
        other.ledger, other.cells, other.rows = self.ledger, self.cells, self.rows
        other.signatures = self.signatures
        other._set_removed(removed)
        return other

    def _set_removed(self, removed: Iterable[int]) -> None:
        self.removed = frozenset(removed)
        if not all(0 <= number < len(self.catalog.table_names) for number in self.removed):
            raise ValueError("a removed table that is not there")

    @cached_property
    def small(self) -> Segment | None:
        """The columns below `min_distinct`, for relations and keys; None if there are none."""
        folder = self.folder / SMALL
        return Segment(folder, self.removed) if folder.is_dir() else None

    @cached_property
    def key_columns(self) -> KeyColumns | None:
        """The columns that keys of several may have; None if rows are not stored."""
        from deepjoin.store.key_columns import KeyColumns

        if self.rows is None:
            return None
        stored = [(self.values, self.catalog, self.rows)]
        small = self.small
        if small is not None and small.rows is not None:
            stored.append((small.values, small.catalog, small.rows))
        return KeyColumns(stored)

    @property
    def is_outdated(self) -> bool:
        """Whether an earlier version wrote it, in more bytes."""
        cells = self.cells
        return self.values.is_outdated or (cells is not None and cells.vectors.is_outdated)

    @property
    def live_tables(self) -> list[int]:
        """The numbers of the tables that are still part of the lake."""
        return [n for n in range(len(self.catalog.table_names)) if n not in self.removed]

    @cached_property
    def live_columns(self) -> int:
        """How many columns are still part of the lake."""
        return self.values.columns - (0 if self.dead is None else int(self.dead.sum()))

    @cached_property
    def dead(self) -> Marks | None:
        """Marks the columns of tables that were removed; None when none was."""
        if not self.removed:
            return None
        gone = np.zeros(len(self.catalog.table_names), bool)
        gone[list(self.removed)] = True
        return gone[self.catalog.column_tables]

    def frequency(self, values: Int) -> Int:
        """Document frequency: in how many live columns each value occurs."""
        frequency = self.values.frequency(values)
        if self.dead is None:
            return frequency
        # Postings still count columns of removed tables, until a merge.
        numbers, counts = self._lost
        at = find_sorted(numbers, values)
        frequency[at >= 0] -= counts[at[at >= 0]]
        return frequency

    @cached_property
    def _lost(self) -> tuple[Int, Int]:
        """The numbers of the values in dead columns, and in how many of these each is."""
        assert self.dead is not None
        columns = np.flatnonzero(self.dead)
        sizes = self.values.sizes(columns)
        places = ranges(self.values.column_offsets[columns], sizes)
        numbers, counts = np.unique(self.values.cell_values[places], return_counts=True)
        return numbers.astype(np.int64), counts

    @property
    def live_hashes(self) -> Hashes:
        """The hashes of the values that some live column holds, ascending."""
        hashes = self.values.hashes
        if self.dead is None:
            return hashes
        numbers, counts = self._lost
        live = np.ones(len(hashes), bool)
        live[numbers] = self.values.frequency(numbers) > counts
        return np.asarray(hashes[live])

    def find_table(self, name: str) -> int | None:
        """Return the number of a live table, or None."""
        number = self.catalog.find_table(name)
        return None if number in self.removed else number


@dataclass(frozen=True)
class Numbering:
    """One numbering of all columns and tables of a lake, segment after segment.

    Those that have left the lake keep their numbers until a merge.
    """

    segments: Sequence[Segment]

    @cached_property
    def column_starts(self) -> Int:
        """The number of each segment's first column, and one past the last."""
        return np.cumsum([0, *(segment.values.columns for segment in self.segments)])

    @cached_property
    def table_starts(self) -> Int:
        """The number of each segment's first table, and one past the last."""
        return np.cumsum([0, *(len(one.catalog.table_names) for one in self.segments)])

    @cached_property
    def tables(self) -> Int:
        """The table of each column."""
        starts = self.table_starts.tolist()
        parts = [
            one.catalog.column_tables + start
            for one, start in zip(self.segments, starts, strict=False)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def sizes(self) -> Int:
        """How many distinct values each column has."""
        parts = [np.diff(segment.values.column_offsets) for segment in self.segments]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def joins(self) -> Marks:
        """Mark the columns that can be joined on: still there, with values, and no generic key.

        Row numbers, years and flags match everything and so prove nothing.
        """
        generic = [np.asarray(segment.catalog.column_generic) for segment in self.segments]
        joins: Marks = self.sizes > 0
        joins &= np.concatenate([np.zeros(0, np.uint8), *generic]) == 0
        for segment, start in zip(self.segments, self.column_starts.tolist(), strict=False):
            if segment.dead is not None:
                joins[start : start + len(segment.dead)] &= ~segment.dead
        return joins

    @cached_property
    def order(self) -> Int:
        """Rank the columns by the names of their tables, then by their place in the table."""
        if len(self.segments) == 1:
            return self.segments[0].catalog.column_order.astype(np.int64)
        names = pa.chunked_array(
            [load_strings(one.folder, "table_names") for one in self.segments], pa.large_string()
        )
        by_name = np.empty(len(names), np.int64)
        by_name[np.asarray(pc.sort_indices(names))] = np.arange(len(names))
        rank = np.empty(len(self.tables), np.int64)
        rank[np.argsort(by_name[self.tables], kind="stable")] = np.arange(len(rank))
        return rank

    def column(self, column: int) -> tuple[Segment, int]:
        """Return the segment of a column, and its number there."""
        which = int(np.searchsorted(self.column_starts, column, "right")) - 1
        return self.segments[which], column - int(self.column_starts[which])

    def column_name(self, column: int) -> str:
        """Return the name of a column."""
        segment, number = self.column(column)
        return segment.catalog.column_names[number]

    def column_id(self, column: int) -> str:
        """Return the id of a column, which no other column has."""
        segment, number = self.column(column)
        return segment.catalog.column_ids[number]

    def table(self, table: int) -> tuple[Segment, int]:
        """Return the segment of a table, and its number there."""
        which = int(np.searchsorted(self.table_starts, table, "right")) - 1
        return self.segments[which], table - int(self.table_starts[which])

    def table_name(self, table: int) -> str:
        """Return the name of a table."""
        segment, number = self.table(table)
        return segment.catalog.table_names[number]

    def find_table(self, name: str) -> int | None:
        """Return the number of a table that is in the lake, or None."""
        for segment, start in zip(self.segments, self.table_starts.tolist(), strict=False):
            number = segment.find_table(name)
            if number is not None:
                return int(start + number)
        return None

    def columns_of(self, table: int) -> list[int]:
        """Return the columns of a table that can be joined on."""
        which = int(np.searchsorted(self.table_starts, table, "right")) - 1
        number, first = table - int(self.table_starts[which]), int(self.column_starts[which])
        columns = self.segments[which].catalog.columns_of(number)
        return [first + column for column in columns if self.joins[first + column]]
