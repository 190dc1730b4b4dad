"""All tables and columns of an open lake under one numbering, however many segments there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Numbering:
    """Columns and tables are counted through the segments; those that left keep their numbers."""

    segments: Sequence[Segment]

    @cached_property
    def column_starts(self) -> Int:
        """The number of each segment's first column, and behind the last."""
        return np.cumsum([0, *(segment.values.columns for segment in self.segments)])

    @cached_property
    def table_starts(self) -> Int:
        """The number of each segment's first table, and behind the last."""
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
        parts = [_joins(segment) for segment in self.segments]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

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
        segment, number = self.table(table)
        which = int(np.searchsorted(self.table_starts, table, "right")) - 1
        start = int(self.column_starts[which])
        columns = [start + column for column in segment.catalog.columns_of(number)]
        return [column for column in columns if self.joins[column]]


def _joins(segment: Segment) -> Marks:
    joins: Marks = (segment.catalog.column_generic == 0) & (
        np.diff(segment.values.column_offsets) > 0
    )
    return joins if segment.dead is None else joins & ~segment.dead
