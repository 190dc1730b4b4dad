"""Feeds tables to the value index and notes what it learns of each."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin.errors import UnreadableTable
from deepjoin.model import Table
from deepjoin.normalise.cells import as_strings, left_out
from deepjoin.normalise.private import hidden_text
from deepjoin.read import Skipped
from deepjoin.read.source import Item
from deepjoin.settings import Settings
from deepjoin.store.values.builder import Kept, ValueIndexBuilder

_SAMPLE_ROWS = 3
_SAMPLE_COLUMNS = 50
_SAMPLE_LENGTH = 80
#: From here on a table is long enough to say how far its reading is.
_MANY_ROWS = 100_000


@dataclass
class Draft:
    """A table while the lake is being built: its columns get numbers as they turn up."""

    name: str
    title: str
    context: str
    first: int
    names: list[str] = field(default_factory=list)
    #: Columns that cannot be keys, whatever their values: name to reason.
    refused: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    notes: tuple[str, ...] = ()


class TableReader:
    """Reads tables one after the other; one that cannot be read is noted and passed over.

    The first rows of each table go to a file, since those of a million tables fill a memory.
    Tables that live in memory only are kept in the folder ``keep``, to be joined later. Of a
    lake of hashes, neither is written.
    """

    def __init__(
        self, builder: ValueIndexBuilder, settings: Settings, scratch: Path, keep: Path | None
    ) -> None:
        self._builder = builder
        self._settings = settings
        self._keep = None if settings.hash_only else keep
        self._samples = (scratch / "samples").open("w+", encoding="utf-8")
        self._abandoned: list[range] = []
        self.columns = 0
        self.drafts: list[Draft] = []
        self.skipped: list[Skipped] = []

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._samples.close()

    def read(self, table: Table, told: Callable[[str], None]) -> None:
        """Read one table to its end; of a long one, ``told`` hears how far it is."""
        draft = Draft(table.name, table.title, table.context, self.columns)
        sample = "[]"
        held: list[pa.RecordBatch] = []
        try:
            reading = table.open()
            for batch in reading:
                strings = self._read_batch(draft, batch)
                if draft.rows == 0 and not self._settings.hash_only:
                    sample = json.dumps(_sample(strings))
                draft.rows += batch.num_rows
                if draft.rows >= _MANY_ROWS:
                    told(f"{table.name}: {draft.rows:,} rows")
                if self._keep is not None:
                    held.append(batch)
            draft.notes = tuple(map(self._told, reading.notes))
        except UnreadableTable as error:
            text = _own_words(error) if self._settings.hash_only else str(error)
            reason = short_reason(table.name, text)
            self.skipped.append(Skipped(table.name, reason, error.passing))
            self._abandoned.append(range(draft.first, self.columns))
            return
        if self._keep is not None:
            _keep(held, self._keep / f"{len(self.drafts)}.parquet")
        self._samples.write(sample + "\n")
        self.drafts.append(draft)

    def _read_batch(self, draft: Draft, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        known = {name: draft.first + i for i, name in enumerate(draft.names)}
        strings: dict[str, pa.Array] = {}
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if name not in known:
                known[name] = self.columns
                draft.names.append(name)
                self.columns += 1
                if self._is_denied(name):
                    draft.refused[name] = "denied by name"
            converted = as_strings(cells)
            if converted is None:
                draft.refused.setdefault(name, left_out(cells.type) or "")
            elif name not in draft.refused:
                strings[name] = converted
                self._builder.add(known[name], draft.rows, converted)
        return strings

    def _told(self, note: str) -> str:
        """Leave out of a note what it quotes of the table, if that is not to be stored."""
        said, quotes, _ = note.partition(";")
        return f"{said}." if quotes and self._settings.hash_only else note

    def _is_denied(self, name: str) -> bool:
        denied = self._settings.deny_columns
        return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in denied)

    def usable(self) -> Kept:
        """Mark the columns of tables that were read to their end."""
        usable = np.ones(self.columns, bool)
        for columns in self._abandoned:
            usable[columns.start : columns.stop] = False
        return usable

    def finished(self) -> Iterator[tuple[Draft, str]]:
        """Walk the tables that were read, each with its first rows as JSON."""
        self._samples.seek(0)
        return zip(self.drafts, self._samples, strict=True)


def _sample(strings: dict[str, pa.Array]) -> list[dict[str, str | None]]:
    names = list(strings)[:_SAMPLE_COLUMNS]
    rows = zip(*(strings[name].slice(0, _SAMPLE_ROWS).to_pylist() for name in names), strict=True)
    return [dict(zip(names, map(_shortened, row), strict=True)) for row in rows]


def _shortened(cell: str | None) -> str | None:
    if cell is None or len(cell) <= _SAMPLE_LENGTH:
        return cell
    return cell[: _SAMPLE_LENGTH - 1] + "…"


def _own_words(error: UnreadableTable) -> str:
    """Return an error's text unless another library's words are in it: those may quote cells."""
    cause = error.__context__
    while isinstance(cause, UnreadableTable):  # part files put their table's name before
        cause = cause.__context__
    if cause is None or (isinstance(cause, OSError) and cause.strerror):
        return str(error)
    return f"it cannot be read ({type(cause).__name__}); what was said of it may quote cells"


def short_reason(name: str, text: str) -> str:
    """Drop the file's name from the front of an error that is listed under that name."""
    before, found, after = text.partition(PurePosixPath(name.partition("#")[0]).name)
    return after.lstrip("' :") if found and " " not in before else text


def _keep(batches: list[pa.RecordBatch], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    whole = pa.concat_tables(tables or [pa.table({})], promote_options="default")
    for i, column in enumerate(whole.schema):
        if not _storable(column.type):
            whole = whole.set_column(i, column.name, as_strings(whole.column(i)))
    pq.write_table(whole, path)


def hidden_item(item: Item, key: bytes) -> Item:
    """Hide what is remembered of an item: a version or a small file's digest may tell a cell."""
    digest = item.digest
    if not key:
        return item
    return replace(
        item,
        stamp=hidden_text(item.stamp, key),
        digest=None if digest is None else lambda: hidden_text(digest(), key),
    )


def _storable(kind: pa.DataType) -> bool:
    """Tell whether Parquet has a place for a type."""
    types = pa.types
    return not (types.is_interval(kind) or types.is_run_end_encoded(kind) or types.is_union(kind))
