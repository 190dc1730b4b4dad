"""Columns of a table as the index knows them: types, samples, how good a key each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deepjoin.model import ColumnDescription
from deepjoin.store.catalog import ColumnEntry, TableEntry
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment

SAMPLES = 5
#: How good a key a type makes: numbers meet by chance, and what says little meets everything.
_WEIGHTS = {"text": 1.0, "date": 0.6, "integer": 0.5, "decimal": 0.3}
_GENERIC_WEIGHT = 0.1


def key_quality(type_: str, generic: str, filled: float, unique: float) -> float:
    """Rate a column as a join key, from 0 to 1; ``unique`` is distinct values over cells."""
    weight = _WEIGHTS[type_] * (_GENERIC_WEIGHT if generic else 1.0)
    return round(weight * filled * (1 + unique) / 2, 4)


def best_keys(facts: Sequence[ColumnDescription]) -> list[ColumnDescription]:
    """Put the columns that can be searched with in order, the best key first."""
    return sorted((one for one in facts if one.indexed), key=lambda one: -one.key)


def column_facts(lake: OpenIndex, table: str) -> Iterator[ColumnDescription]:
    """Describe the columns of a table from what the index holds, each when it is asked for."""
    segment, number = lake.place(table)
    entry = segment.catalog.table(number)
    for one, column in _numbered(segment, number, entry):
        yield _stored_facts(segment, one, column, entry.rows, lake.settings.hash_only)


def _numbered(
    segment: Segment, table: int, entry: TableEntry
) -> Iterator[tuple[ColumnEntry, int | None]]:
    """Go through all columns with their numbers, which only indexed ones have.

    Names do not tell them apart: those of a corpus may be equal.
    """
    numbers = iter(segment.catalog.columns_of(table))
    if entry.columns:
        for one in entry.columns:
            yield one, None if one.left_out else next(numbers)
    else:  # a corpus says nothing of columns beyond those it holds
        for number in numbers:
            yield _entry(segment, number), number


def _entry(segment: Segment, column: int) -> ColumnEntry:
    catalog = segment.catalog
    distinct = int(segment.values.sizes(np.array([column]))[0])
    return ColumnEntry(catalog.column_names[column], catalog.type_name(column), distinct)


def _stored_facts(
    segment: Segment, entry: ColumnEntry, column: int | None, rows: int, hidden: bool
) -> ColumnDescription:
    if column is None:
        return ColumnDescription(
            entry.name, entry.type, entry.distinct, 0.0, False, entry.left_out, "", (), 0.0
        )
    cells = int(segment.catalog.column_cells[column])
    generic = segment.catalog.generic_name(column)
    filled = min(1.0, cells / rows) if rows else 1.0
    return ColumnDescription(
        *(entry.name, entry.type, entry.distinct),
        filled=filled,
        indexed=True,
        left_out="",
        generic=generic,
        samples=() if hidden else _first_cells(segment, column),
        key=key_quality(entry.type, generic, filled, entry.distinct / max(1, cells)),
    )


def _first_cells(segment: Segment, column: int) -> list[str]:
    """Return the first distinct cells of a column, as its table spells them."""
    index = segment.values
    start, stop = index.cells_of(column)
    rows = np.asarray(index.cell_rows[start:stop])
    first = np.argsort(rows, kind="stable")[:SAMPLES] + start
    pairs = zip(
        index.cell_values[first].tolist(), index.cell_spellings[first].tolist(), strict=True
    )
    return [index.spelling(index.values[value], spelling) for value, spelling in pairs]
