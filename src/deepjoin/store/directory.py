"""Browse an index: find tables and columns by part of a name or by a value, describe columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Int, Marks
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.model import ColumnDescription, ColumnSummary, TableSummary, ValueHolder
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.private import hidden_text, key
from deepjoin.store.catalog import ColumnEntry
from deepjoin.store.open_index import OpenIndex

#: How many cells describe a column.
SAMPLES = 5
#: How good a key each type makes: numbers match by chance, and generic keys match everything.
_WEIGHTS = {"text": 1.0, "date": 0.6, "integer": 0.5, "decimal": 0.3}
_GENERIC_WEIGHT = 0.1


class _Names(NamedTuple):
    """Sorted names in lower case: the segment and number of each, and the rank of its table."""

    lowered: pa.LargeStringArray
    segments: Int
    numbers: Int
    tables: Int

    @classmethod
    def of(
        cls, names: list[pa.Array], segments: list[Int], numbers: list[Int], order: Int, tables: Int
    ) -> _Names:
        """Sort the names of all segments."""
        lowered = pc.utf8_lower(pa.concat_arrays(names).take(pa.array(order)))
        return cls(lowered, np.concatenate(segments)[order], np.concatenate(numbers)[order], tables)


class Directory:
    """Looks up tables and columns of a lake by name; names are sorted when first needed."""

    def __init__(self, lake: OpenIndex, most_names: int = 8) -> None:
        self._lake, self._most_names = lake, most_names

    def tables(self, text: str, offset: int, limit: int) -> tuple[int, list[TableSummary]]:
        """Count the tables with a text in their name or a column's name; list some, sorted.

        Those whose own name contains it come first.
        """
        if not text:
            places = np.arange(len(self._tables.numbers))
        else:
            named = _having(self._tables, text)
            within = np.zeros_like(named)
            within[self._columns.tables[_having(self._columns, text)]] = True
            within &= ~named
            places = np.concatenate([np.flatnonzero(named), np.flatnonzero(within)])
        rows = []
        for place in places[offset : offset + limit].tolist():
            segment = self._lake.segments[int(self._tables.segments[place])]
            catalog, number = segment.catalog, int(self._tables.numbers[place])
            entry = catalog.table(number)
            # A corpus stores nothing about columns beyond those it holds.
            names = [column.name for column in entry.columns] or [
                catalog.column_names[column] for column in catalog.columns_of(number)
            ]
            first = tuple(names[: self._most_names])
            rows.append(TableSummary(entry.name, entry.title, entry.rows, len(names), first))
        return len(places), rows

    def columns(self, text: str, limit: int) -> list[ColumnSummary]:
        """List indexed columns with a text in their name, by the names of their tables."""
        found = np.flatnonzero(_having(self._columns, text))[:limit] if text else ()
        rows = []
        for place in found:
            segment = self._lake.segments[int(self._columns.segments[place])]
            catalog, number = segment.catalog, int(self._columns.numbers[place])
            table = catalog.table_names[int(catalog.column_tables[number])]
            distinct = int(segment.values.sizes(np.array([number]))[0])
            name, kind = catalog.column_names[number], catalog.type_name(number)
            rows.append(ColumnSummary(table, name, kind, distinct))
        return rows

    def holders(self, cell: str, limit: int) -> tuple[int, list[ValueHolder]]:
        """Count the columns that hold a cell, however it is spelled, and list some."""
        value = canonical(cell, self._lake.settings.profile)
        if not value:
            return 0, []
        value = hidden_text(value, key(self._lake.settings))
        total = 0
        holders: list[ValueHolder] = []
        for segment in self._lake.segments:
            (number,) = segment.values.look_up([value]).tolist()
            if number < 0:
                continue
            columns = segment.values.postings(number)
            live = columns if segment.dead is None else columns[~segment.dead[columns]]
            total += len(live)
            catalog, index = segment.catalog, segment.values
            for column in live[: limit - len(holders)].tolist():
                start, stop = index.cells_of(column)
                cells = index.cell_values[start:stop]
                # In the type of the cells: another would make numpy copy them all.
                place = start + int(np.searchsorted(cells, cells.dtype.type(number)))
                table = catalog.table_names[int(catalog.column_tables[column])]
                count = int(index.cell_counts[place])
                holders.append(ValueHolder(table, catalog.column_names[column], count))
        return total, holders

    @cached_property
    def _tables(self) -> _Names:
        names, segments, numbers = [], [], []
        for place, segment in enumerate(self._lake.segments):
            live = np.ones(len(segment.catalog.table_names), bool)
            live[list(segment.removed)] = False
            numbers.append(np.flatnonzero(live))
            segments.append(np.full(len(numbers[-1]), place))
            names.append(segment.catalog.table_names.arrow().take(pa.array(numbers[-1])))
        order = np.asarray(pc.array_sort_indices(pa.concat_arrays(names)))
        return _Names.of(names, segments, numbers, order, np.arange(len(order)))

    @cached_property
    def _columns(self) -> _Names:
        """The columns, by their tables as these are in order, then by their place."""
        names, segments, numbers, tables = [], [], [], []
        for place, segment in enumerate(self._lake.segments):
            rank = np.full(len(segment.catalog.table_names), -1)
            here = np.flatnonzero(self._tables.segments == place)
            rank[self._tables.numbers[here]] = here
            ranks = rank[np.asarray(segment.catalog.column_tables)]
            numbers.append(np.flatnonzero(ranks >= 0))
            segments.append(np.full(len(numbers[-1]), place))
            tables.append(ranks[numbers[-1]])
            names.append(segment.catalog.column_names.arrow().take(pa.array(numbers[-1])))
        # Stable, so that the columns of a table stay in their order.
        order = np.argsort(np.concatenate(tables), kind="stable")
        return _Names.of(names, segments, numbers, order, np.concatenate(tables)[order])


def column_values(
    index: OpenIndex, table: str, column: str, offset: int, limit: int
) -> tuple[int, list[tuple[str, int]]]:
    """Count the distinct values of a column; list some of them, and how many rows have each."""
    if index.settings.hash_only:
        raise DeepJoinError(f"The index holds hashes: read rows of {table}, or its file.")
    segment, _ = index.place(table)
    values = segment.values
    entries = values.entries(segment.catalog.find_column(table, column))
    some = entries[offset : offset + limit]
    return len(entries), list(
        zip(values.cells(some), values.cell_counts[some].tolist(), strict=True)
    )


def _having(names: _Names, text: str) -> Marks:
    """Mark the names that contain a text, in upper or lower case."""
    return np.asarray(pc.match_substring(names.lowered, text.lower()))


def key_quality(type_: str, generic: str, filled: float, unique: float) -> float:
    """Rate a column as a join key, from 0 to 1; ``unique`` is distinct values over cells."""
    weight = _WEIGHTS[type_] * (_GENERIC_WEIGHT if generic else 1.0)
    return round(weight * filled * (1 + unique) / 2, 4)


def best_keys(facts: Sequence[ColumnDescription]) -> list[ColumnDescription]:
    """Sort the columns that can be searched with, the best key first."""
    return sorted((one for one in facts if one.indexed), key=lambda one: -one.key)


def column_facts(index: OpenIndex, table: str) -> Iterator[ColumnDescription]:
    """Describe the columns of a table from what the index holds, one at a time."""
    segment, number = index.place(table)
    catalog, values = segment.catalog, segment.values
    entry = catalog.table(number)
    # Only indexed columns have numbers, and names do not identify them: a corpus may repeat one.
    numbers = iter(catalog.columns_of(number))
    # A corpus stores nothing about columns beyond those it holds.
    entries = entry.columns or [
        ColumnEntry(
            catalog.column_names[column],
            catalog.type_name(column),
            int(values.sizes(np.array([column]))[0]),
        )
        for column in catalog.columns_of(number)
    ]
    for one in entries:
        known = one.name, one.type, one.distinct
        if one.left_out:
            yield ColumnDescription(*known, 0.0, False, one.left_out, "", (), 0.0)
            continue
        column = next(numbers)
        cells = int(catalog.column_cells[column])
        generic = catalog.generic_name(column)
        filled = min(1.0, cells / entry.rows) if entry.rows else 1.0
        hidden = index.settings.hash_only
        yield ColumnDescription(
            *known,
            filled=filled,
            indexed=True,
            left_out="",
            generic=generic,
            samples=() if hidden else values.cells(values.entries(column)[:SAMPLES]),
            key=key_quality(one.type, generic, filled, one.distinct / max(1, cells)),
        )
