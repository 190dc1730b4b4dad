"""Tables as the service describes them: columns with types and samples, best keys first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepjoin.catalog import ColumnEntry
from deepjoin.lake import Lake
from deepjoin.lake.origin import root_of
from deepjoin.segment import Segment

SAMPLES = 5
_LONGEST = 80
#: How good a key a type makes: numbers meet by chance, and what says little meets everything.
_WEIGHTS = {"text": 1.0, "date": 0.6, "integer": 0.5, "decimal": 0.3}
_GENERIC_WEIGHT = 0.1

Described = dict[str, Any]


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of one column."""

    name: str
    type: str
    distinct: int
    #: Share of the rows that have a cell.
    filled: float
    indexed: bool
    left_out: str
    generic: str
    samples: Sequence[str]
    #: Distinct values over cells.
    unique: float = 0.0

    @property
    def key(self) -> float:
        """How good a join key it is, from 0 to 1."""
        if not self.indexed:
            return 0.0
        weight = _WEIGHTS[self.type] * (_GENERIC_WEIGHT if self.generic else 1.0)
        return round(weight * self.filled * (1 + self.unique) / 2, 4)

    def to_dict(self) -> Described:
        """Give the column as JSON has it."""
        fields = {name: value for name, value in vars(self).items() if name != "unique"}
        return fields | {"samples": [shortened(one) for one in self.samples], "key": self.key}


def table_detail(lake: Lake, name: str) -> Described:
    """Describe a table of the lake from what the index holds; its file is not opened."""
    entry = lake.table(name)
    segment, number = _place(lake, name)
    catalog = segment.catalog
    columns = catalog.columns_of(number)
    indexed = {catalog.column_names[column]: column for column in columns}
    # A corpus says nothing of columns beyond those it holds.
    entries = entry.columns or tuple(_entry(segment, column) for column in columns)
    facts = [
        _stored_facts(segment, one, indexed.get(one.name), entry.rows, lake.settings.hash_only)
        for one in entries
    ]
    sample = [{column: row.get(column) for column in row} for row in entry.sample]
    return detail_of(entry.name, entry.title, entry.rows, facts, sample, entry.notes) | {
        "context": entry.context,
        "source": _source(lake, name),
    }


def detail_of(
    name: str,
    title: str,
    rows: int,
    facts: Sequence[ColumnFacts],
    sample: Sequence[dict[str, str | None]],
    notes: Sequence[str],
) -> Described:
    """Put together what is known of a table, its best keys in order."""
    keys = sorted((one for one in facts if one.indexed), key=lambda one: -one.key)
    return {
        "name": name,
        "title": title,
        "context": "",
        "rows": rows,
        "source": "",
        "notes": list(notes),
        "columns": [one.to_dict() for one in facts],
        "best_keys": [one.name for one in keys],
        "sample": list(sample),
    }


def _place(lake: Lake, name: str) -> tuple[Segment, int]:
    places = ((segment, segment.find_table(name)) for segment in lake.segments)
    return next((segment, number) for segment, number in places if number is not None)


def _entry(segment: Segment, column: int) -> ColumnEntry:
    catalog = segment.catalog
    distinct = int(segment.values.sizes(np.array([column]))[0])
    return ColumnEntry(catalog.column_names[column], catalog.type_name(column), distinct)


def _stored_facts(
    segment: Segment, entry: ColumnEntry, column: int | None, rows: int, hidden: bool
) -> ColumnFacts:
    if column is None:
        return ColumnFacts(
            entry.name, entry.type, entry.distinct, 0.0, False, entry.left_out, "", ()
        )
    cells = int(segment.catalog.column_cells[column])
    return ColumnFacts(
        *(entry.name, entry.type, entry.distinct),
        filled=min(1.0, cells / rows) if rows else 1.0,
        indexed=True,
        left_out="",
        generic=segment.catalog.generic_name(column),
        samples=() if hidden else _first_cells(segment, column),
        unique=entry.distinct / max(1, cells),
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


def _source(lake: Lake, name: str) -> str:
    described = lake.source_of(name)
    root = root_of(described, lake.path)
    return str(described.get("url") or root or described["kind"])


def shortened(cell: str) -> str:
    """Cut a cell to what a card has room for."""
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"
