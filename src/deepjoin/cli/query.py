"""The query of a search: pasted values, stdin, a column of a file, or a column of the lake."""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from deepjoin.columns import Column
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lake import Lake
from deepjoin.sources.files import FileSource
from deepjoin.sources.reading import read_columns


def query_columns(lake: Lake, options: argparse.Namespace) -> list[Column]:
    """Find the columns to search with; at least one, or an error that says how."""
    if options.values is not None:
        return [Column(next(csv.reader([options.values], skipinitialspace=True), []), "values")]
    if options.query is None:
        raise DeepJoinError(
            "Nothing to search with: name a file, a table of the lake, - for stdin, "
            "or give --values 'a,b,c'."
        )
    if options.query == "-":
        return _from_stdin(options.column)
    if Path(options.query).is_file():
        return _from_file(lake, Path(options.query), options.column)
    if lake.catalog.find_table(options.query) is not None:
        return _from_lake(lake, options.query, options.column)
    raise unknown_name(
        "file or table", options.query, f"this directory or {lake.path}", lake.tables
    )


def _from_stdin(column: str | None) -> list[Column]:
    """Take one value a line; with -c, take a table."""
    if column is None:
        return [Column(sys.stdin.read().splitlines(), "stdin")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.csv"
        path.write_bytes(sys.stdin.buffer.read())
        (table,) = FileSource([path]).tables()
        return read_columns(table, column)


def _from_file(lake: Lake, path: Path, column: str | None) -> list[Column]:
    found = [one for table in FileSource([path]).tables() for one in read_columns(table, column)]
    # A file that is itself part of the lake must not find itself.
    name = lake.origin.name_of(path)
    sheet = "#" if name and "#" in (found[0].table or "" if found else "") else ""
    return [replace(one, table=_lake_name(name, one.table, sheet)) for one in found]


def _lake_name(name: str | None, table: str | None, sheet: str) -> str | None:
    return name + sheet + (table or "").partition("#")[2] if name and sheet else name


def _from_lake(lake: Lake, table: str, column: str | None) -> list[Column]:
    if column is not None:
        return [lake.column(table, column)]
    number = lake.catalog.find_table(table)
    assert number is not None
    names = [lake.catalog.column_names[i] for i in lake.catalog.columns_of(number)]
    if not names:
        raise DeepJoinError(f"No column of {table} is indexed; see: deepjoin info INDEX {table}")
    return [lake.column(table, name) for name in names]
