"""Reads a table that a client brought to its end, and says what it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.model import ColumnDescription, Table
from deepjoin.normalise.canonical import canonical_array
from deepjoin.normalise.cells import as_strings, left_out
from deepjoin.serve.http.describing import Described, detail_of, shortened
from deepjoin.serve.http.problems import TooLarge
from deepjoin.serve.http.trial import UNPACKED, unpacks_to_too_much
from deepjoin.store.describing import SAMPLES, key_quality
from deepjoin.store.values.profile import Generic, Traits

_ROWS = 8
_TYPES = ("text", "integer", "decimal", "date")
#: Fewer new cells than this are not worth looking for those seen before.
_SOME = 1 << 16
#: Distinct cells that are compared by their canonical form; all of them take seconds.
_MANY = 100_000


class ColumnReader:
    """A column of a file while it is read: it holds distinct cells, never all of them."""

    def __init__(self) -> None:
        self._distinct = pa.chunked_array([], pa.string())
        self._known = 0
        self._cells = 0
        self._refused = ""

    def add(self, array: pa.Array) -> pa.Array | None:
        """Take in a batch; returns its cells as text."""
        strings = as_strings(array)
        if strings is None:
            self._refused = left_out(array.type) or ""
            return None
        new = pc.unique(strings.drop_null()).cast(pa.string())
        self._distinct = pa.chunked_array([*self._distinct.chunks, new])
        # Only once they may have doubled: so all of it takes a time linear in the cells.
        if len(self._distinct) > 2 * self._known + _SOME:
            self._merge()
        blank = pc.equal(pc.utf8_trim_whitespace(strings), "")
        self._cells += len(strings) - strings.null_count - (pc.sum(blank).as_py() or 0)
        return strings

    def _merge(self) -> pa.Array:
        merged = pc.unique(self._distinct)
        self._distinct, self._known = pa.chunked_array([merged]), len(merged)
        return merged

    def facts(self, name: str, rows: int) -> ColumnDescription:
        """Say what the cells are, compared as a search compares them.

        Of very many distinct cells the first tell the kind, and spellings are counted.
        """
        distinct = self._merge()
        first = distinct.slice(0, _MANY)
        values = canonical_array(first)
        present = pc.not_equal(values, "")
        spelled, values = first.filter(present), pc.unique(values.filter(present))
        kind, generic = _kind(values)
        reason = self._refused or ("" if len(values) else "no values")
        count = len(values) + len(distinct) - len(first)
        filled = min(1.0, self._cells / max(1, rows))
        key = key_quality(kind, generic, filled, count / max(1, self._cells))
        return ColumnDescription(
            *(name, kind, count, filled, not reason, reason),
            *(generic, spelled.slice(0, SAMPLES).to_pylist(), 0.0 if reason else key),
        )


def _kind(values: pa.Array) -> tuple[str, str]:
    """Name the type of distinct canonical values, and why they say little."""
    traits, places = Traits(1), np.arange(len(values))
    traits.add(values, places, np.zeros_like(places))
    types = traits.types()
    generic = Generic(int(traits.generic(types, np.array([len(values)]))[0]))
    return _TYPES[int(types[0])], generic.name.lower() if generic else ""


def read_detail(table: Table, max_rows: int, max_upload: int) -> Described:
    """Read a table to its end and describe it, unless it turns out to be too large."""
    columns: dict[str, ColumnReader] = {}
    sample: list[dict[str, str | None]] = []
    rows, size, reading = 0, 0, table.open()
    for batch in reading:
        size += batch.nbytes
        if size > UNPACKED * max_upload:
            raise unpacks_to_too_much(max_upload)
        texts = {}
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            texts[name] = columns.setdefault(name, ColumnReader()).add(array)
        if rows < _ROWS:
            sample += _first_rows(texts, _ROWS - rows)
        rows += batch.num_rows
        if rows > max_rows:
            raise TooLarge(
                f"The table has more than {max_rows:,} rows, the limit of this service. Send some "
                "of them, or start it with a higher --max-rows."
            )
    facts = [column.facts(name, rows) for name, column in columns.items()]
    return detail_of(table.name, table.title, rows, facts, sample, reading.notes)


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
