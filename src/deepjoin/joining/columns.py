"""The columns of the joined table: their names, and the SQL of their cells."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from deepjoin.joining.tables import SideColumn, SideTable
from deepjoin.read.formats import format_of
from deepjoin.read.sql import identifier

#: How several matching rows are treated, and the table of the query that has done it.
MATCHES = {"expand": "theirs", "first": "first_match", "aggregate": "per_key"}
#: Number of distinct values that an aggregated cell lists.
MAX_VALUES = 20


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, numbered if its lower-case form is taken.

    >>> free_name("City", {"city"}), free_name("", set())
    ('City_2', 'column')
    """
    name = name or "column"
    if name.lower() not in taken:
        return name
    number = 2
    while f"{name}_{number}".lower() in taken:
        number += 1
    return f"{name}_{number}"


def joined_names(left: Sequence[str], right: Sequence[str], table: str) -> list[str]:
    """Name the right columns of a join: a clash with the left adds the right table's name.

    Case is ignored, since DuckDB and most readers of Parquet ignore it.

    >>> joined_names(["Name", "id"], ["name", "code"], "geo/countries.csv")
    ['name_countries', 'code']
    """
    of_left = {name.lower() for name in left}
    taken = of_left | {name.lower() for name in right}
    suffix = table_suffix(table)
    names = []
    for name in right:
        if name.lower() in of_left:
            name = free_name(f"{name}_{suffix}", taken)
            taken.add(name.lower())
        names.append(name)
    return names


def table_suffix(table: str) -> str:
    """Return a short word for a table: the name of a sheet, a file or a database table.

    >>> table_suffix("geo/countries.csv.gz"), table_suffix("a.xlsx#Sheet 1"), table_suffix("..")
    ('countries', 'Sheet_1', 'right')
    >>> table_suffix("sales.clients")
    'sales_clients'
    """
    name, _, sheet = PurePosixPath(table).name.rpartition("#")
    word = sheet if name or not format_of(sheet) else sheet.split(".", 1)[0]
    return re.sub(r"\W+", "_", word).strip("_") or "right"


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result; ``typed`` is ``text`` cast to its type."""

    name: str
    text: str
    typed: str

    def select(self, typed: bool) -> str:
        """Return SQL for one entry of the SELECT list."""
        # `t.x AS x` would be noise in SQL that people read.
        cell, name = self.typed if typed else self.text, identifier(self.name)
        return cell if cell.partition(".")[2] == name else f"{cell} AS {name}"


def left_columns(left: SideTable) -> list[OutputColumn]:
    """List the left columns, all of them under their own names."""
    return [_plain("yours", column) for column in left.columns]


def right_columns(
    left: SideTable, right: SideTable, many: str
) -> tuple[list[OutputColumn], dict[str, str]]:
    """List the right columns, and the new names of those that had to be renamed."""
    if many == "aggregate":
        bases = ["matched_rows", *(aggregate.name for aggregate in aggregates(right))]
        cells = [f"{MATCHES[many]}.{identifier(name)}" for name in bases]
        # Left rows without a match have 0 matching rows, not NULL.
        cells[0] = f"coalesce({cells[0]}, 0)"
        columns = [OutputColumn(name, cell, cell) for name, cell in zip(bases, cells, strict=True)]
    else:
        columns = [_plain(MATCHES[many], column) for column in right.columns]
        bases = [column.name for column in columns]
    names = joined_names([column.name for column in left.columns], bases, right.table)
    named = [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
    pairs = zip(bases, names, strict=True)
    return named, {base: name for base, name in pairs if base != name}


def similarity_column(
    left: SideTable, right: SideTable, outputs: Sequence[OutputColumn], many: str, stored: str
) -> OutputColumn:
    """Name the column of similarities unlike any column of the tables or of the result."""
    taken = {column.name.lower() for column in (*left.columns, *right.columns)}
    name = free_name("similarity", taken | {output.name.lower() for output in outputs})
    cell = f"{MATCHES[many]}.{stored}"
    return OutputColumn(name, cell, cell)


def _plain(table: str, column: SideColumn) -> OutputColumn:
    cell = f"{table}.{identifier(column.name)}"
    return OutputColumn(column.name, cell, column.value(cell))


@dataclass(frozen=True)
class Aggregate:
    """A right column over all matching rows: the mean of numbers, else the distinct values."""

    column: SideColumn
    is_mean: bool

    @property
    def name(self) -> str:
        """Name of the aggregated column."""
        return f"{self.column.name}_{'mean' if self.is_mean else 'values'}"

    def grouped(self, row: str) -> str:
        """Return SQL for the aggregate itself; ``row`` orders the rows."""
        cell = identifier(self.column.name)
        if not self.is_mean:
            text = cell if self.column.kind == "VARCHAR" else f"CAST({cell} AS VARCHAR)"
            # list(DISTINCT ...) would need a hash table a column, too many in wide tables.
            return f"list_sort(list_distinct(list(nullif(trim({text}), ''))))"
        # The sum of floating point numbers depends on their order; threads must not change it.
        is_float = (self.column.cast or self.column.kind) in ("DOUBLE", "FLOAT")
        return f"avg({self.column.value(cell)}{f' ORDER BY {row}' if is_float else ''})"

    def result(self) -> str:
        """Return SQL for the cell of the result, given the aggregate under its name."""
        name = identifier(self.name)
        if self.is_mean:
            return name
        more = f"'; and ' || (len({name}) - {MAX_VALUES}) || ' more'"
        return (
            f"CASE WHEN len({name}) > {MAX_VALUES} "
            f"THEN array_to_string({name}[:{MAX_VALUES}], '; ') || {more}\n"
            f"    WHEN len({name}) > 0 THEN array_to_string({name}, '; ') END"
        )


def aggregates(right: SideTable) -> list[Aggregate]:
    """List the aggregates of a right table; its key is never averaged."""
    return [
        Aggregate(column, column.is_numeric and column != right.key) for column in right.columns
    ]
