"""The names in a lake, to browse it: tables and columns by part of a name, columns by a value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.model import ColumnSummary, TableSummary, ValueHolder
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.private import hidden_text, key
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


class _Names(NamedTuple):
    """Names in order, in small letters, where each stands, and which table in order it is of."""

    lowered: pa.LargeStringArray
    segments: Int
    numbers: Int
    tables: Int

    @classmethod
    def of(
        cls, names: list[pa.Array], segments: list[Int], numbers: list[Int], order: Int, tables: Int
    ) -> _Names:
        """Put the names of all segments in order."""
        lowered = pc.utf8_lower(pa.concat_arrays(names).take(pa.array(order)))
        return cls(lowered, np.concatenate(segments)[order], np.concatenate(numbers)[order], tables)


class Directory:
    """What can be looked up in a lake by name; the names are put in order when first asked for."""

    def __init__(self, lake: OpenIndex, shown: int = 8) -> None:
        self._lake, self._shown = lake, shown

    def tables(self, text: str, offset: int, limit: int) -> tuple[int, list[TableSummary]]:
        """Count the tables with a text in their name or a column's; list some, by name.

        Those whose own name has it come first.
        """
        if not text:
            places = np.arange(len(self._tables.numbers))
        else:
            named = _having(self._tables, text)
            within = self._with_column(text) & ~named
            places = np.concatenate([np.flatnonzero(named), np.flatnonzero(within)])
        rows = [self._table(place) for place in places[offset : offset + limit].tolist()]
        return len(places), rows

    def columns(self, text: str, limit: int) -> list[ColumnSummary]:
        """List indexed columns with a text in their name, by the names of their tables."""
        found = np.flatnonzero(_having(self._columns, text))[:limit] if text else ()
        return [self._column(place) for place in found]

    def holders(self, cell: str, limit: int) -> tuple[int, list[ValueHolder]]:
        """Count the columns that hold a cell, however it is spelled, and list some."""
        value = canonical(cell, self._lake.settings.profile)
        if not value:
            return 0, []
        found = list(self._holding(hidden_text(value, key(self._lake.settings))))
        total = sum(len(columns) for _, _, columns in found)
        each = ((s, n, column) for s, n, columns in found for column in columns)
        return total, [_holder(*one) for one in islice(each, limit)]

    def _holding(self, value: str) -> Iterator[tuple[Segment, int, list[int]]]:
        for segment in self._lake.segments:
            (number,) = segment.values.look_up([value]).tolist()
            if number >= 0:
                columns = segment.values.postings(number)
                live = columns if segment.dead is None else columns[~segment.dead[columns]]
                yield segment, number, live.tolist()

    def _with_column(self, text: str) -> Marks:
        """Mark the tables, in order, of the columns with a text in their name."""
        marks = np.zeros(len(self._tables.numbers), bool)
        marks[self._columns.tables[_having(self._columns, text)]] = True
        return marks

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
        order = np.argsort(np.concatenate(tables), kind="stable")
        return _Names.of(names, segments, numbers, order, np.concatenate(tables)[order])

    def _table(self, place: int) -> TableSummary:
        segment = self._lake.segments[int(self._tables.segments[place])]
        number = int(self._tables.numbers[place])
        catalog = segment.catalog
        entry = catalog.table(number)
        # A corpus says nothing of columns beyond those it holds.
        names = [column.name for column in entry.columns] or [
            catalog.column_names[column] for column in catalog.columns_of(number)
        ]
        shown = tuple(names[: self._shown])
        return TableSummary(entry.name, entry.title, entry.rows, len(names), shown)

    def _column(self, place: int) -> ColumnSummary:
        segment = self._lake.segments[int(self._columns.segments[place])]
        number = int(self._columns.numbers[place])
        catalog = segment.catalog
        table = catalog.table_names[int(catalog.column_tables[number])]
        distinct = int(segment.values.sizes(np.array([number]))[0])
        return ColumnSummary(
            table, catalog.column_names[number], catalog.type_name(number), distinct
        )


def _having(names: _Names, text: str) -> Marks:
    """Mark the names that have a text in them, small or capital."""
    return np.asarray(pc.match_substring(names.lowered, text.lower()))


def _holder(segment: Segment, value: int, column: int) -> ValueHolder:
    catalog, index = segment.catalog, segment.values
    start, stop = index.cells_of(column)
    cells = index.cell_values[start:stop]
    place = start + int(np.searchsorted(cells, cells.dtype.type(value)))
    table = catalog.table_names[int(catalog.column_tables[column])]
    return ValueHolder(table, catalog.column_names[column], int(index.cell_counts[place]))
