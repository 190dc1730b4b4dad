"""Tables as the service describes them: columns with types and samples, best keys first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.canonical import canonical_array
from deepjoin.catalog import ColumnEntry
from deepjoin.columns import Table
from deepjoin.lake import Lake
from deepjoin.lake.origin import root_of
from deepjoin.segment import Segment
from deepjoin.server.problems import TooLarge
from deepjoin.sources.cells import as_strings, left_out
from deepjoin.values.profile import Generic, Traits

_SAMPLES, _ROWS = 5, 8
_LONGEST = 80
#: How good a key a type makes: numbers meet by chance, and what says little meets everything.
_WEIGHTS = {"text": 1.0, "date": 0.6, "integer": 0.5, "decimal": 0.3}
_GENERIC_WEIGHT = 0.1
_TYPES = ("text", "integer", "decimal", "date")

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
    return _detail(entry.name, entry.title, entry.rows, facts, sample, entry.notes) | {
        "context": entry.context,
        "source": _source(lake, name),
    }


def _detail(
    name: str,
    title: str,
    rows: int,
    facts: Sequence[ColumnFacts],
    sample: Sequence[dict[str, str | None]],
    notes: Sequence[str],
) -> Described:
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
    first = np.argsort(rows, kind="stable")[:_SAMPLES] + start
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


@dataclass
class _Reading:
    """A column of a file while it is read: what it holds of distinct cells, never all of them."""

    distinct: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    cells: int = 0
    refused: str = ""

    def add(self, array: pa.Array) -> pa.Array | None:
        """Take in a batch; returns its cells as text."""
        strings = as_strings(array)
        if strings is None:
            self.refused = left_out(array.type) or ""
            return None
        new = pc.unique(strings.drop_null())
        self.distinct = pc.unique(pa.concat_arrays([self.distinct, new.cast(pa.string())]))
        blank = pc.equal(pc.utf8_trim_whitespace(strings), "")
        self.cells += len(strings) - strings.null_count - (pc.sum(blank).as_py() or 0)
        return strings

    def facts(self, name: str, rows: int) -> ColumnFacts:
        """Say what the cells are, compared as a search compares them."""
        values = canonical_array(self.distinct)
        present = pc.not_equal(values, "")
        spelled, values = self.distinct.filter(present), pc.unique(values.filter(present))
        kind, generic = _kind(values)
        reason = self.refused or ("" if len(values) else "no values")
        return ColumnFacts(
            *(name, kind, len(values), min(1.0, self.cells / max(1, rows)), not reason, reason),
            *(generic, spelled.slice(0, _SAMPLES).to_pylist(), len(values) / max(1, self.cells)),
        )


def _kind(values: pa.Array) -> tuple[str, str]:
    """Name the type of distinct canonical values, and why they say little."""
    traits, places = Traits(1), np.arange(len(values))
    traits.add(values, places, np.zeros_like(places))
    types = traits.types()
    generic = Generic(int(traits.generic(types, np.array([len(values)]))[0]))
    return _TYPES[int(types[0])], generic.name.lower() if generic else ""


def read_detail(table: Table, max_rows: int) -> Described:
    """Read a table to its end and describe it."""
    columns: dict[str, _Reading] = {}
    sample: list[dict[str, str | None]] = []
    rows, reading = 0, table.open()
    for batch in reading:
        texts = {}
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            texts[name] = columns.setdefault(name, _Reading()).add(array)
        if rows < _ROWS:
            sample += _first_rows(texts, _ROWS - rows)
        rows += batch.num_rows
        if rows > max_rows:
            raise TooLarge(
                f"The table has more than {max_rows:,} rows, the limit of this service. Send some "
                "of them, or start it with a higher --max-rows."
            )
    facts = [column.facts(name, rows) for name, column in columns.items()]
    return _detail(table.name, table.title, rows, facts, sample, reading.notes)


def _first_rows(texts: dict[str, pa.Array | None], count: int) -> list[dict[str, str | None]]:
    shown = {name: cells.slice(0, count).to_pylist() for name, cells in texts.items()
             if cells is not None}  # fmt: skip
    return [
        {
            name: None if cell is None else shortened(cell)
            for name, cell in zip(shown, row, strict=True)
        }
        for row in zip(*shown.values(), strict=True)
    ]
