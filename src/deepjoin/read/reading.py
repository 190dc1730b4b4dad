"""Tables of one file and whole columns of one table, for queries and joins."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from deepjoin.errors import UnreadableTable, unknown_name
from deepjoin.model import Column, Table
from deepjoin.read.cells import as_strings
from deepjoin.read.files import FileSource
from deepjoin.read.formats import format_of, read_file


def file_tables(path: Path) -> list[Table]:
    """List the tables of a file the user named: one, or the sheets of a workbook."""
    source = FileSource([path])
    tables = list(source.tables())
    if tables:
        return tables
    name = os.fsencode(path.name).decode("utf-8", "backslashreplace")
    if format_of(path.name) == "excel":
        raise UnreadableTable(f"{name}: {source.skipped[0].reason}.")
    # A name that no index could store is no hindrance to a query.
    return [Table(name, partial(read_file, path, format_of(path.name) or "delimited"))]


def file_table(path: Path) -> Table:
    """Return the one table of a file."""
    tables = file_tables(path)
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise UnreadableTable(f"{path} holds {len(tables)} tables ({names}); give a file with one.")
    return tables[0]


def read_columns(table: Table, only: str | None = None) -> list[Column]:
    """Read the columns of a table, or the one that is named.

    >>> from deepjoin.read.frames import frame_table
    >>> [column.name for column in read_columns(frame_table({"id": [1, 2], "city": ["a", "b"]}))]
    ['id', 'city']
    """
    cells: dict[str, list[str | None]] = {}
    names: dict[str, None] = {}
    rows = 0
    for batch in table.open():
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            names[name] = None
            strings = as_strings(array) if only in (None, name) else None
            if strings is not None:
                column = cells.setdefault(name, [None] * rows)
                column.extend([None] * (rows - len(column)))
                column.extend(strings.to_pylist())
        rows += batch.num_rows
    if only is not None and only not in names:
        raise unknown_name("column", only, table.name, names)
    if not cells:
        raise UnreadableTable(f"{table.name} has no column that could be searched with.")
    return [Column(c, name, table.name, table.title, table.context) for name, c in cells.items()]
