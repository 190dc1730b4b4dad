"""The two tables of a join, and the columns of the joined one: their names, and their SQL."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import Table
from deepjoin.read.formats import format_of
from deepjoin.read.sql import identifier
from deepjoin.settings import AGGREGATES, JoinSettings

_NUMERIC = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\([^)]*\)")
#: How several matching rows are treated, and the table of the query that has done it.
MATCHES = {"expand": "theirs", "first": "first_match", "aggregate": "per_key"}
#: Number of distinct values that an aggregated cell lists.
MAX_VALUES = 20


@dataclass(frozen=True)
class JoinSide:
    """One table of a join and its key column, or the columns of its key.

    ``scan`` is a DuckDB table expression with the same rows, such as ``read_parquet('x')``
    or ``read_csv('x', all_varchar = true)``: faster, and used in the printed SQL.
    """

    table: Table
    key: str | tuple[str, ...]
    scan: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else self.key


@dataclass(frozen=True)
class SideColumn:
    """A column: its name in DuckDB and in the table, its type, and the type that its text has."""

    name: str
    original: str
    kind: str
    cast: str | None = None
    has_blanks: bool = False

    def value(self, cell: str) -> str:
        """Return SQL that casts the text of a cell to its type."""
        if self.cast is None:
            return cell
        # A blank cell among numbers is not a number: it becomes NULL.
        return f"{'TRY_CAST' if self.has_blanks else 'CAST'}({cell} AS {self.cast})"

    @property
    def is_numeric(self) -> bool:
        """Whether its cells have a mean."""
        return _NUMERIC.fullmatch(self.cast or self.kind) is not None


@dataclass(frozen=True)
class SideTable:
    """A table that DuckDB can read repeatedly, always in the same order.

    ``reads`` is the expression for the DuckDB session, ``shows`` the one for printed SQL.
    """

    table: str
    reads: str
    shows: str
    columns: tuple[SideColumn, ...]
    key: SideColumn
    #: The other columns of a key of several.
    more: tuple[SideColumn, ...] = ()

    @property
    def keys(self) -> tuple[SideColumn, ...]:
        """The columns of the key."""
        return (self.key, *self.more)

    def parts(self) -> Iterator[SideTable]:
        """Yield the same table once for each column of the key, with that column as its key."""
        return (replace(self, key=key, more=()) for key in self.keys)


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
    """A column of the result; ``typed`` is ``text`` cast to its type.

    ``source`` is the column of a table that it comes from, if any.
    """

    name: str
    text: str
    typed: str
    source: SideColumn | None = None

    def select(self, typed: bool) -> str:
        """Return SQL for one entry of the SELECT list."""
        # `t.x AS x` would be noise in SQL that people read.
        cell, name = self.typed if typed else self.text, identifier(self.name)
        return cell if cell.partition(".")[2] == name else f"{cell} AS {name}"


@dataclass(frozen=True)
class Aggregate:
    """A right column over all matching rows, by one of `settings.AGGREGATES`."""

    column: SideColumn
    function: str

    @property
    def name(self) -> str:
        """Name of the aggregated column."""
        return f"{self.column.name}_{self.function}"

    def grouped(self, order: str) -> str:
        """Return SQL for the aggregate itself; ``order`` is that of the rows."""
        cell = identifier(self.column.name)
        kind = self.column.cast or self.column.kind
        text = cell if self.column.kind == "VARCHAR" else f"CAST({cell} AS VARCHAR)"
        filled = f"nullif(trim({text}), '')"
        match self.function:
            case "first":
                return f"first({cell} ORDER BY {order})"
            case "list":
                # list(DISTINCT ...) would need a hash table a column, too many in wide tables.
                return f"list_sort(list_distinct(list({filled})))"
            case "count":
                return f"count({filled})"
        value = filled if kind == "VARCHAR" else self.column.value(cell)
        if self.function in ("min", "max"):
            return f"{self.function}({value})"
        # The sum of floating point numbers depends on their order; threads must not change it.
        ordered = f" ORDER BY {order}" if kind in ("DOUBLE", "FLOAT") else ""
        if self.function == "mean":
            return f"avg({value}{ordered})"
        total = f"sum({value}{ordered})"
        return f"CAST({total} AS BIGINT)" if "INT" in kind else total

    def result(self) -> str:
        """Return SQL for the cell of the result, given the aggregate under its name."""
        name = identifier(self.name)
        if self.function != "list":
            return name
        more = f"'; and ' || (len({name}) - {MAX_VALUES}) || ' more'"
        return (
            f"CASE WHEN len({name}) > {MAX_VALUES} "
            f"THEN array_to_string({name}[:{MAX_VALUES}], '; ') || {more}\n"
            f"    WHEN len({name}) > 0 THEN array_to_string({name}, '; ') END"
        )


@dataclass(frozen=True)
class Brought:
    """The columns that a join adds, their aggregates if rows are aggregated, and new names."""

    columns: tuple[OutputColumn, ...]
    aggregates: tuple[Aggregate, ...]
    renamed: dict[str, str]


def left_columns(left: SideTable) -> tuple[OutputColumn, ...]:
    """List the left columns, all of them under their own names."""
    return tuple(_plain("yours", column) for column in left.columns)


def brought(
    left: SideTable, right: SideTable, many: str, settings: JoinSettings, with_key: bool
) -> Brought:
    """Choose the right columns and name them; ``with_key`` includes the key by default."""
    sources = _chosen(right, settings, with_key)
    aggregates: tuple[Aggregate, ...] = ()
    if many == "aggregate":
        aggregates = tuple(_aggregate(column, right, settings) for column in sources)
        # Left rows without a match have 0 matching rows, not NULL.
        count = f"coalesce({MATCHES[many]}.matched_rows, 0)"
        columns = [OutputColumn("matched_rows", count, count)]
        for one in aggregates:
            cell = f"{MATCHES[many]}.{identifier(one.name)}"
            typed = one.column.value(cell) if one.function == "first" else cell
            columns.append(OutputColumn(one.name, cell, typed, one.column))
    else:
        columns = [_plain(MATCHES[many], column) for column in sources]
    bases = [column.name for column in columns]
    names = joined_names([column.name for column in left.columns], bases, right.table)
    named = [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
    pairs = zip(bases, names, strict=True)
    return Brought(tuple(named), aggregates, {old: new for old, new in pairs if old != new})


def _chosen(right: SideTable, settings: JoinSettings, with_key: bool) -> list[SideColumn]:
    """List the columns that the settings name, or all, the key only if it is wanted."""
    known = {column.original: column for column in reversed(right.columns)}
    aggregated = [name for name in settings.aggregates if name != "*" or "*" in known]
    for name in (*(settings.columns or ()), *aggregated):
        if name not in known:
            raise unknown_name("column", name, right.table, [one.original for one in right.columns])
    if settings.columns is not None:
        left_out = [name for name in aggregated if name not in (*settings.columns, "*")]
        if left_out:
            raise DeepJoinError(
                f"`aggregate` names column '{left_out[0]}', which `columns` leaves out."
            )
        return [known[name] for name in dict.fromkeys(settings.columns)]
    others = [column for column in right.columns if column not in right.keys]
    is_wanted = with_key or not others or any(one.original in aggregated for one in right.keys)
    return list(right.columns) if is_wanted else others


def _aggregate(column: SideColumn, right: SideTable, settings: JoinSettings) -> Aggregate:
    """Choose the aggregate of a column; the default one is used where it fits, else a list."""
    given = settings.aggregates.get(column.original)
    if given in ("sum", "mean") and not column.is_numeric:
        others = ", ".join(one for one in AGGREGATES if one not in ("sum", "mean"))
        raise DeepJoinError(
            f"`aggregate` of column '{column.original}' is {given}, but its cells are not numbers. "
            f"Use one of {others}."
        )
    has_sum = column.is_numeric and column not in right.keys
    usual = settings.aggregates.get("*") or ("mean" if has_sum else "list")
    if usual in ("sum", "mean") and not has_sum:
        usual = "list"
    return Aggregate(column, given or usual)


def added_column(
    word: str, left: SideTable, right: SideTable, outputs: Sequence[OutputColumn], cell: str
) -> OutputColumn:
    """Name a column of the match itself unlike any column of the tables or of the result."""
    taken = {column.name.lower() for column in (*left.columns, *right.columns)}
    name = free_name(word, taken | {output.name.lower() for output in outputs})
    return OutputColumn(name, cell, cell)


def _plain(table: str, column: SideColumn) -> OutputColumn:
    cell = f"{table}.{identifier(column.name)}"
    return OutputColumn(column.name, cell, column.value(cell), column)
