"""The query of a search: pasted values, stdin, a column of a file, or a column of the lake."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lake import Lake
from deepjoin.model import Column
from deepjoin.read.encoding import encoding_of
from deepjoin.read.frames import file_table, file_tables, read_columns


def query_columns(lake: Lake, options: argparse.Namespace) -> list[Column]:
    """Find the columns to search with; at least one, or an error that says how."""
    if options.values is not None:
        rows = csv.reader(options.values.splitlines(), skipinitialspace=True)
        return [Column([cell for row in rows for cell in row])]
    if options.query is None:
        raise DeepJoinError(
            "Nothing to search with: name a file, a table of the lake, - for stdin, "
            "or give --values 'a,b,c'."
        )
    if options.query == "-":
        return _from_stdin(options.column)
    if os.path.isfile(options.query):
        return _from_file(lake, Path(options.query), options.column)
    if options.query in lake:
        return _from_lake(lake, options.query, options.column)
    if os.path.isdir(options.query):
        raise DeepJoinError(f"'{options.query}' is a folder; name a file or a table of the lake.")
    parent = Path(options.query).parent
    beside = [str(p) for p in parent.iterdir() if p.is_file()] if os.path.isdir(parent) else []
    where = f"this directory or {lake.path}"
    raise unknown_name("file or table", options.query, where, [*sorted(beside), *lake.tables])


def _from_stdin(column: str | None) -> list[Column]:
    """Take one value a line; with -c, take a table."""
    content = sys.stdin.buffer.read()
    if column is None:
        text = content.decode(encoding_of(content), "replace")
        return [Column(text.splitlines())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.csv"
        path.write_bytes(content)
        return [replace(one, table=None) for one in read_columns(file_table(path), column)]


def _from_file(lake: Lake, path: Path, column: str | None) -> list[Column]:
    found = [one for table in file_tables(path) for one in read_columns(table, column)]
    # A file that is itself part of the lake must not find itself.
    name = lake.index.name_of(path)
    if name is None:
        return [replace(one, table=None) for one in found]
    # A sheet keeps what follows the name of its workbook.
    return [replace(one, table=name + (one.table or "")[len(path.name) :]) for one in found]


def _from_lake(lake: Lake, table: str, column: str | None) -> list[Column]:
    if column is not None:
        return [lake.column(table, column)]
    names = lake.index.indexed_columns(table)
    if not names:
        raise DeepJoinError(f"No column of {table} is indexed; see: deepjoin info INDEX {table}")
    return [lake.column(table, name) for name in names]
