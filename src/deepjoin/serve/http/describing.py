"""Describe tables: those of the lake from the index, those of clients by reading their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.lake import Lake
from deepjoin.model import ColumnDescription, Row, Table, TableDescription
from deepjoin.normalise.canonical import canonical_array
from deepjoin.normalise.cells import as_strings, left_out
from deepjoin.serve.http.problems import TooLarge
from deepjoin.serve.http.trial import UNPACKED, unpacks_to_too_much
from deepjoin.settings import fields_of
from deepjoin.store.directory import SAMPLES, best_keys, column_facts, key_quality
from deepjoin.store.origin import root_of
from deepjoin.store.values.profile import classified

#: Characters of a cell that fit on a card, and rows of a sample.
_LONGEST, _ROWS = 80, 8
#: With fewer new cells than this, removing duplicates is not worth its time.
_SOME = 1 << 16
#: Distinct cells that are compared in canonical form; more would take seconds.
_MANY = 100_000


def describe_table(lake: Lake, name: str) -> TableDescription:
    """Describe a table of the lake from the index; its file is not opened."""
    entry, origin = lake.table(name), lake.index.source_of(name)
    root = root_of(origin, lake.path)
    columns, keys = _keys(list(column_facts(lake.index, name)))
    source = str(origin.get("url") or (root and root.name) or origin["kind"])
    described = {"columns": columns, "best_keys": keys, "source": source}
    return TableDescription(**fields_of(TableDescription, entry) | described)


def describe_file(table: Table, max_rows: int, max_upload: int) -> TableDescription:
    """Read a client's table to its end and describe it; refuse it if it is too large."""
    columns: dict[str, ColumnReader] = {}
    sample: list[Row] = []
    rows, size, reading = 0, 0, table.open()
    for batch in reading:
        size += batch.nbytes
        if size > UNPACKED * max_upload:
            raise unpacks_to_too_much(max_upload)
        texts = {}
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            strings = columns.setdefault(name, ColumnReader()).add(array)
            if strings is not None and rows < _ROWS:
                cells = strings.slice(0, _ROWS - rows).to_pylist()
                texts[name] = [cell and _shortened(cell) for cell in cells]
        sample += [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
        rows += batch.num_rows
        if rows > max_rows:
            raise TooLarge(
                f"The table has more than {max_rows:,} rows, the limit of this service. Upload a "
                "part of it, or ask whoever runs the service to raise the limit."
            )
    described, keys = _keys([column.describe(name, rows) for name, column in columns.items()])
    name, title, notes = table.name, table.title, reading.notes
    return TableDescription(name, title, "", rows, "", notes, described, keys, sample)


def _keys(columns: Sequence[ColumnDescription]) -> tuple[list[ColumnDescription], list[str]]:
    """Shorten the samples of columns, and name the best keys among them."""
    short = [replace(one, samples=[_shortened(cell) for cell in one.samples]) for one in columns]
    return short, [one.name for one in best_keys(columns)]


def _shortened(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…"


class ColumnReader:
    """A column of a file while it is read: holds its distinct cells, never all of them."""

    def __init__(self) -> None:
        self._distinct = pa.chunked_array([], pa.string())
        self._known = 0
        self._cells = 0
        self._refused = ""

    def add(self, array: pa.Array) -> pa.Array | None:
        """Take in a batch; return its cells as text, or None if they are not text or numbers."""
        strings = as_strings(array)
        if strings is None:
            self._refused = left_out(array.type) or ""
            return None
        new = pc.unique(strings.drop_null()).cast(pa.string())
        self._distinct = pa.chunked_array([*self._distinct.chunks, new])
        # Only when the cells may have doubled, so that all merges together take linear time.
        if len(self._distinct) > 2 * self._known + _SOME:
            self._merge()
        blank = pc.equal(pc.utf8_trim_whitespace(strings), "")
        self._cells += len(strings) - strings.null_count - (pc.sum(blank).as_py() or 0)
        return strings

    def _merge(self) -> pa.Array:
        merged = pc.unique(self._distinct)
        self._distinct, self._known = pa.chunked_array([merged]), len(merged)
        return merged

    def describe(self, name: str, rows: int) -> ColumnDescription:
        """Describe the column, its cells compared as a search compares them.

        With very many distinct cells, the first ones decide the type, and the others count once
        per spelling.
        """
        distinct = self._merge()
        first = distinct.slice(0, _MANY)
        values = canonical_array(first)
        present = pc.not_equal(values, "")
        spelled, values = first.filter(present), pc.unique(values.filter(present))
        cell_type, generic_key = classified(values)
        kind, generic = cell_type.name.lower(), generic_key.name.lower() if generic_key else ""
        reason = self._refused or ("" if len(values) else "no values")
        count = len(values) + len(distinct) - len(first)
        filled = min(1.0, self._cells / max(1, rows))
        key = key_quality(kind, generic, filled, count / max(1, self._cells))
        return ColumnDescription(
            name=name,
            type=kind,
            distinct=count,
            filled=filled,
            indexed=not reason,
            left_out=reason,
            generic=generic,
            samples=spelled.slice(0, SAMPLES).to_pylist(),
            key=0.0 if reason else key,
        )
