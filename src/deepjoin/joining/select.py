"""The columns of the joined table: their names, and the SQL of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepjoin.joining.names import free_name, joined_names
from deepjoin.joining.side import Source, SourceColumn
from deepjoin.read.sql import identifier

#: What to do with several matching rows, and the table of the query that has done it.
MATCHES = {"expand": "theirs", "first": "first_match", "aggregate": "per_key"}
#: An aggregated cell lists this many distinct values.
MAX_VALUES = 20


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result; ``typed`` is ``text`` cast to what the text really is."""

    name: str
    text: str
    typed: str

    def select(self, typed: bool) -> str:
        """Return SQL for one entry of the SELECT list."""
        cell, name = self.typed if typed else self.text, identifier(self.name)
        return cell if cell.partition(".")[2] == name else f"{cell} AS {name}"


def left_columns(left: Source) -> list[OutputColumn]:
    """List the left columns, all of them under their own names."""
    return [_plain("yours", column) for column in left.columns]


def right_columns(
    left: Source, right: Source, many: str
) -> tuple[list[OutputColumn], dict[str, str]]:
    """List the right columns, and which of them had to change their name."""
    columns = _aggregated(right) if many == "aggregate" else _taken(right, MATCHES[many])
    bases = [column.name for column in columns]
    names = joined_names([column.name for column in left.columns], bases, right.table)
    named = [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
    pairs = zip(bases, names, strict=True)
    return named, {base: name for base, name in pairs if base != name}


def similarity_column(
    left: Source, right: Source, outputs: Sequence[OutputColumn], many: str, stored: str
) -> OutputColumn:
    """Name the column of similarities like none that either table has or brings."""
    held = (column.name for column in (*left.columns, *right.columns))
    brought = (column.name for column in outputs)
    name = free_name("similarity", {name.lower() for name in (*held, *brought)})
    cell = f"{MATCHES[many]}.{stored}"
    return OutputColumn(name, cell, cell)


def _taken(right: Source, table: str) -> list[OutputColumn]:
    return [_plain(table, column) for column in right.columns]


def _aggregated(right: Source) -> list[OutputColumn]:
    names = ["matched_rows", *(aggregate.name for aggregate in aggregates(right))]
    cells = [f"{MATCHES['aggregate']}.{identifier(name)}" for name in names]
    cells[0] = f"coalesce({cells[0]}, 0)"
    return [OutputColumn(name, cell, cell) for name, cell in zip(names, cells, strict=True)]


def _plain(table: str, column: SourceColumn) -> OutputColumn:
    cell = f"{table}.{identifier(column.name)}"
    return OutputColumn(column.name, cell, column.value(cell))


@dataclass(frozen=True)
class Aggregate:
    """A right column over all matching rows: the mean of numbers, else the distinct values."""

    column: SourceColumn
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

    def shown(self) -> str:
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


def aggregates(right: Source) -> list[Aggregate]:
    """List the aggregates of a right table; its key keeps its spellings."""
    return [
        Aggregate(column, column.is_numeric and column != right.key) for column in right.columns
    ]
