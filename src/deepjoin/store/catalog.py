"""The catalog of a lake: its tables and columns by number and by name, as memory maps."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import (
    Array,
    Hashes,
    Int,
    Int32,
    Integers,
    Strings,
    StringsWriter,
    load_array,
    load_offsets,
    load_strings,
    shorten,
)
from deepjoin.errors import UnknownName, unknown_name
from deepjoin.normalise.canonical import CellType, hash_array, hash_value
from deepjoin.store.values.profile import Generic

_TYPE_NAMES = tuple(kind.name.lower() for kind in CellType)
_GENERIC_NAMES = ("", *(kind.name.lower() for kind in Generic if kind))

# The first field of an entry that has a title.
_TITLE = re.compile(r'\{"title": ("(?:[^"\\]|\\.)*")')

Sample = tuple[dict[str, str | None], ...]


@dataclass(frozen=True)
class ColumnEntry:
    """A column of a table as it was found: indexed, or left out for a reason."""

    name: str
    type: str
    distinct: int
    left_out: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A table of the lake: the words around it, every column it has, and its first rows."""

    name: str
    title: str = ""
    context: str = ""
    rows: int = 0
    columns: tuple[ColumnEntry, ...] = ()
    sample: Sample = ()
    notes: tuple[str, ...] = ()
    #: Whether title and context were given by the user, not by the source.
    titled: bool = False

    def __repr__(self) -> str:
        from deepjoin.show.text import Screen, render_entry

        return render_entry(self, Screen.plain(sys.stdout))

    def to_json(self) -> str:
        """Return everything but the name, which is stored apart, as JSON."""
        # Empty fields are left out: a lake may have millions of tables, most of them plain.
        fields = {name: value for name, value in vars(self).items() if value and name != "name"}
        if self.columns:
            fields["columns"] = [vars(column) for column in self.columns]
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, name: str, text: str) -> TableEntry:
        """Read what `to_json` returned."""
        fields: dict[str, Any] = json.loads(text)
        fields["columns"] = tuple(ColumnEntry(**c) for c in fields.get("columns", ()))
        for key in ("sample", "notes"):
            fields[key] = tuple(fields.get(key, ()))
        return cls(name, **fields)


class Catalog:
    """Tables and their indexed columns, each by its number."""

    def __init__(self, folder: Path) -> None:
        self.column_names = Strings.load(folder, "column_names")
        self.column_ids = Strings.load(folder, "column_ids")
        self.column_tables = load_array(folder / "column_tables.npy")
        self.column_types = load_array(folder / "column_types.npy")
        self.column_generic = load_array(folder / "column_generic.npy")
        self.column_cells = load_array(folder / "column_cells.npy")
        #: Ranks the columns by the names of their tables, then by their place in the table.
        self.column_order = load_array(folder / "column_order.npy")
        self.table_names = Strings.load(folder, "table_names")
        #: Which item of the segment's ledger each table came from.
        self.table_items = load_array(folder / "table_items.npy")
        self._column_offsets = load_offsets(folder / "table_column_offsets.npy")
        self._columns = load_array(folder / "table_columns.npy")
        self._entries = Strings.load(folder, "table_entries")
        self._name_hashes = load_array(folder / "table_name_hashes.npy")
        self._by_name = load_array(folder / "table_by_name.npy")

    def find_table(self, name: str) -> int | None:
        """Return the number of a table, or None."""
        wanted = np.uint64(hash_value(name))
        # Several names may share a hash, so the names are compared as well.
        at = int(np.searchsorted(self._name_hashes, wanted))
        while at < len(self._name_hashes) and self._name_hashes[at] == wanted:
            if self.table_names[int(self._by_name[at])] == name:
                return int(self._by_name[at])
            at += 1
        return None

    def columns_of(self, table: int) -> list[int]:
        """Return the numbers of a table's indexed columns."""
        start, stop = self._column_offsets[table], self._column_offsets[table + 1]
        columns: list[int] = self._columns[start:stop].tolist()
        return columns

    def table(self, number: int) -> TableEntry:
        """Return what is known of a table."""
        return TableEntry.from_json(self.table_names[number], self._entries[number])

    def titles(self, numbers: Int) -> list[str]:
        """Return the titles of tables, without reading the rest of their entries."""
        titles = [""] * len(numbers)
        # Most tables have none; then their entries, which may be long, are not read.
        titled = np.flatnonzero(self._entries.begin_with(b'{"title": ', numbers))
        for at, entry in zip(titled.tolist(), self._entries.take(numbers[titled]), strict=True):
            found = _TITLE.match(entry)
            if found:
                text = found[1]
                titles[at] = str(json.loads(text)) if "\\" in text else text[1:-1]
        return titles

    def others_and_sample(self, column: int) -> tuple[tuple[str, ...], Sample]:
        """Return the names of a table's other columns, indexed or not, and its first rows."""
        table = int(self.column_tables[column])
        text = self._entries[table]
        if '"columns": [' not in text:  # a corpus stores only indexed columns
            others = (self.column_names[i] for i in self.columns_of(table) if i != column)
            return tuple(others), ()
        fields = json.loads(text)
        own = self.column_names[column]
        names = (one["name"] for one in fields["columns"] if one["name"] != own)
        return tuple(names), tuple(fields.get("sample", ()))

    def find_column(self, table: str, column: str) -> int:
        """Return the number of an indexed column; a wrong name raises with the nearest one."""
        number = self.find_table(table)
        if number is None:
            raise unknown_name("table", table, "the index", self.table_names)
        # The first of several columns of one name, which only a corpus may have.
        names = {self.column_names[i]: i for i in reversed(self.columns_of(number))}
        if column not in names:
            for one in self.table(number).columns:
                if one.name == column:
                    raise UnknownName(
                        f"Column '{column}' of {table} is not indexed: {one.left_out}."
                    )
            raise unknown_name("indexed column", column, table, names)
        return names[column]

    def type_name(self, column: int) -> str:
        """Return the type of a column as users read it."""
        return _TYPE_NAMES[int(self.column_types[column])]

    def generic_name(self, column: int) -> str:
        """Return why a column is a generic key, or ''."""
        return _GENERIC_NAMES[int(self.column_generic[column])]


class CatalogWriter:
    """Writes the tables of a lake and its indexed columns, each in the order of their numbers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._table_names = StringsWriter(folder, "table_names")
        self._entries = StringsWriter(folder, "table_entries")
        self._column_ids = StringsWriter(folder, "column_ids")
        self._column_names = StringsWriter(folder, "column_names")
        self._column_tables: list[Int32] = []
        self._hashes: list[Hashes] = []
        self._items: list[Int32] = []

    def add_tables(self, tables: Sequence[TableEntry], items: npt.ArrayLike) -> None:
        """Write the next tables, and which item of the source each came from."""
        names = pa.array([table.name for table in tables], pa.string())
        entries = pa.array([table.to_json() for table in tables], pa.large_string())
        self.append_tables(names, entries, items)

    def append_tables(self, names: pa.Array, entries: pa.Array, items: npt.ArrayLike) -> None:
        """Write the next tables as another catalog stores them."""
        self._table_names.append(names)
        self._entries.append(entries)
        self._hashes.append(hash_array(names))
        self._items.append(np.asarray(items, np.int32))

    def add_columns(self, ids: Iterable[str], names: Iterable[str], tables: npt.ArrayLike) -> None:
        """Write the next indexed columns: their ids, names, and the numbers of their tables."""
        self._column_ids.append(ids)
        self._column_names.append(names)
        self._column_tables.append(np.asarray(tables, np.int32))

    def finish(self, types: Integers, generic: Integers, cells: Integers) -> None:
        """Write the type of each column, its kind of generic key, and how many cells it has."""
        tables = np.concatenate([np.zeros(0, np.int32), *self._column_tables])
        hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
        by_name = np.argsort(hashes, kind="stable")
        sizes = np.bincount(tables, minlength=len(hashes))
        self._table_names.close()
        arrays: dict[str, Array] = {
            "column_types": types,
            "column_generic": generic,
            "column_cells": cells,
            "column_tables": tables,
            "column_order": _column_order(load_strings(self._folder, "table_names"), tables),
            "table_items": np.concatenate([np.zeros(0, np.int32), *self._items]),
            "table_column_offsets": np.append(0, np.cumsum(sizes)),
            "table_columns": np.argsort(tables, kind="stable").astype(np.int32),
            "table_name_hashes": hashes[by_name],
            "table_by_name": by_name.astype(np.int32),
        }
        for name, array in arrays.items():
            np.save(self._folder / f"{name}.npy", array)
        shorten(self._folder / "table_column_offsets.npy", wide=True)

    def __enter__(self) -> CatalogWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for writer in (self._table_names, self._entries, self._column_ids, self._column_names):
            writer.close()


def _column_order(names: pa.Array, tables: Int32) -> Int32:
    """Rank columns by table name, then number: the same order however the lake is cut."""
    table_rank = np.empty(len(names), np.int32)
    table_rank[np.asarray(pc.array_sort_indices(names))] = np.arange(len(names))
    rank = np.empty(len(tables), np.int32)
    rank[np.argsort(table_rank[tables], kind="stable")] = np.arange(len(tables))
    return rank
