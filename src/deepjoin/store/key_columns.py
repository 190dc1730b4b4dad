"""The columns that a key of several may have, in one numbering: those of few values come last.

Columns below `min_distinct` are a segment of their own, of the same tables; a part of a key may
well be one: a half of a season, a flag. Their columns and values are numbered after the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Array, Int, Int32, Integers
from deepjoin.store.catalog import Catalog
from deepjoin.store.values.index import ValueIndex
from deepjoin.store.values.rows import NOT_STORED, RowCodes


class StoredColumns(NamedTuple):
    """Columns that are stored together, with the first number of a column and of a value."""

    values: ValueIndex
    catalog: Catalog
    rows: RowCodes
    first_column: int
    first_value: int


class KeyColumns:
    """The columns of a segment, and those below `min_distinct`."""

    def __init__(self, stored: Sequence[tuple[ValueIndex, Catalog, RowCodes]]) -> None:
        parts, column, value = [], 0, 0
        for values, catalog, rows in stored:
            parts.append(StoredColumns(values, catalog, rows, column, value))
            column, value = column + values.columns, value + len(values.hashes)
        self.parts = tuple(parts)
        self._first_columns = np.array([part.first_column for part in parts], np.int64)
        self._first_values = np.array([part.first_value for part in parts], np.int64)
        #: The table of each column, its cells that are not missing, and its rows.
        self.tables = self._joined([part.catalog.column_tables for part in parts])
        self.present = self._joined([part.catalog.column_cells for part in parts])
        self.counts = self._joined([part.rows.counts for part in parts])
        self.types = self._joined([part.catalog.column_types for part in parts])
        self.generic = self._joined([part.catalog.column_generic for part in parts])
        #: Marks the columns whose rows are stored.
        self.stored = self._joined([np.asarray(part.rows.widths) != NOT_STORED for part in parts])

    @staticmethod
    def _joined(arrays: Sequence[Array]) -> Array:
        return np.asarray(arrays[0]) if len(arrays) == 1 else np.concatenate(arrays)

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def table_names(self) -> Sequence[str]:
        """The names of the tables, by number."""
        return self.parts[0].catalog.table_names

    def place(self, column: int) -> tuple[StoredColumns, int]:
        """Return where a column is stored, and its number there."""
        part = self.parts[-1 if column >= self._first_columns[-1] else 0]
        return part, column - part.first_column

    def name(self, column: int) -> str:
        """Return the name of a column."""
        part, number = self.place(column)
        return part.catalog.column_names[number]

    def column_id(self, column: int) -> str:
        """Return the id of a column."""
        part, number = self.place(column)
        return part.catalog.column_ids[number]

    def columns_of(self, table: int) -> list[int]:
        """Return the columns of a table whose rows are stored."""
        found = [
            number + part.first_column
            for part in self.parts
            for number in part.catalog.columns_of(table)
        ]
        return [column for column in found if self.stored[column]]

    def held(self, column: int) -> Int:
        """Return the values of a column, ascending."""
        part, number = self.place(column)
        values: Int = part.values.cell_values[slice(*part.values.cells_of(number))].astype(np.int64)
        return values + part.first_value

    def size(self, column: int) -> int:
        """Return how many distinct values a column has."""
        part, number = self.place(column)
        start, stop = part.values.cells_of(number)
        return stop - start

    def ranks(self, column: int) -> Int32:
        """Return the rank of each row's value among the column's; -1 for a missing cell."""
        part, number = self.place(column)
        return part.rows.ranks(number, int(self.present[column]))

    def spelled(self, column: int, rank: int) -> str:
        """Return a value of a column as its table spells it."""
        part, number = self.place(column)
        return part.values.cells(np.array([part.values.cells_of(number)[0] + rank]))[0]

    def frequency(self, values: Int) -> Int:
        """Count the columns that hold each value; values ascend."""
        return np.concatenate([part.values.frequency(own) for part, own in self._split(values)])

    def postings(self, value: int) -> Int32:
        """Return the columns that hold a value, ascending."""
        part = self.parts[-1 if value >= self._first_values[-1] else 0]
        return part.values.postings(value - part.first_value) + np.int32(part.first_column)

    def holders(self, values: Int, frequency: Int) -> Int32:
        """Return the columns that hold each value, one value after the other; values ascend."""
        found, start = [], 0
        for part, own in self._split(values):
            counts = frequency[start : start + len(own)]
            found.append(part.values.holders(own, counts) + np.int32(part.first_column))
            start += len(own)
        return np.concatenate(found)

    def values_at(self, columns: Integers, rows: Int) -> Int:
        """Return the value in each of these columns and rows; -1 for a missing cell."""
        if len(self.parts) == 1:
            return _values_at(self.parts[0], columns, rows)
        found = np.empty(len(columns), np.int64)
        is_last = columns >= self._first_columns[-1]
        for part, chosen in zip(self.parts, (~is_last, is_last), strict=True):
            values = _values_at(part, columns[chosen] - part.first_column, rows[chosen])
            found[chosen] = np.where(values >= 0, values + part.first_value, -1)
        return found

    def _split(self, values: Int) -> list[tuple[StoredColumns, Int]]:
        """Return the values of each part, by their numbers there."""
        groups = np.split(values, np.searchsorted(values, self._first_values[1:]))
        return [
            (part, own - part.first_value) for part, own in zip(self.parts, groups, strict=True)
        ]


def _values_at(part: StoredColumns, columns: Integers, rows: Int) -> Int:
    stored, index = part.rows, part.values
    widths = np.asarray(stored.widths)[columns].astype(np.int64)
    bits = 8 * stored.offsets[columns] + rows * widths
    shifted = stored.words(bits >> 3) >> (bits & 7).astype(np.uint64)
    codes = (shifted & ((np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1))).astype(np.int64)
    counts, present = np.asarray(stored.counts), np.asarray(part.catalog.column_cells)
    ranks = codes - (present[columns] < counts[columns])
    values = index.cell_values[index.column_offsets[columns] + np.maximum(ranks, 0)]
    return np.where(ranks >= 0, values.astype(np.int64), -1)
