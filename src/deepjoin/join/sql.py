"""Writes the join as one SELECT: the text that is shown, and the same over stored tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deepjoin.join.keys import KeySql, cell_text
from deepjoin.join.names import free_name
from deepjoin.join.select import MATCHES, OutputColumn, aggregates
from deepjoin.join.side import Source
from deepjoin.sources.quote import identifier, literal

#: How to treat left rows without a match.
HOWS = {"left": "LEFT JOIN", "inner": "JOIN"}

#: Reads the pairs of cell and key of a spelling table.
ReadSpelling = Callable[[str], Sequence[tuple[str, str]]]


@dataclass(frozen=True)
class Part:
    """One side as the query reads it; ``table`` is its name inside the query."""

    table: str
    source: Source
    key: KeySql


@dataclass(frozen=True)
class JoinSql:
    """A join that can be written: to be shown, to be run with types, to be run as text."""

    left: Part
    right: Part
    how: str
    many: str
    left_columns: tuple[OutputColumn, ...]
    right_columns: tuple[OutputColumn, ...]

    def joined(self, typed: bool, show: ReadSpelling | None = None) -> str:
        """Write the join; with the means to read spellings, over the original tables."""
        row, key = self._row_and_key()
        match = MATCHES[self.many]
        tables = [*self._sides(show), *self._matches()]
        order = f"yours.{row}" + (f", theirs.{row}" if match == "theirs" else "")
        return (
            f"{_with(tables)}\n{_select((*self.left_columns, *self.right_columns), typed)}\n"
            f"FROM yours\n{HOWS[self.how]} {match} ON yours.{key} = {match}.{key}\n"
            f"ORDER BY {order}"
        )

    def unmatched(self, typed: bool, show: ReadSpelling | None = None) -> str:
        """Write the query for the left rows without a match."""
        row, key = self._row_and_key()
        return (
            f"{_with(self._sides(show))}\n{_select(self.left_columns, typed)}\nFROM yours\n"
            f"WHERE NOT EXISTS (SELECT 1 FROM theirs WHERE theirs.{key} = yours.{key})\n"
            f"ORDER BY yours.{row}"
        )

    def _row_and_key(self) -> tuple[str, str]:
        """Name the two columns that the query adds so that no column of a table is hidden."""
        columns = (*self.left.source.columns, *self.right.source.columns)
        taken = {column.name.lower() for column in columns}
        return identifier(free_name("_row", taken)), identifier(free_name("_key", taken))

    def _sides(self, show: ReadSpelling | None) -> list[tuple[str, str]]:
        row, key = self._row_and_key()
        tables = []
        for part in (self.left, self.right):
            if part.key.spelling:
                name = f"{part.table}_spelling(cell, key)"
                tables.append((name, _spelling(part.key.spelling, show)))
            tables.append((part.table, _side(part, row, key, shown=show is not None)))
        return tables

    def _matches(self) -> list[tuple[str, str]]:
        """Bring the right table to one row a key, if that is asked for."""
        row, key = self._row_and_key()
        if self.many == "first":
            first = f"SELECT min({row}) FROM theirs GROUP BY {key}"
            return [("first_match", f"SELECT * FROM theirs\n  WHERE {row} IN ({first})")]
        if self.many == "aggregate":
            return _aggregated(self.right.source, row, key)
        return []


def _side(part: Part, row: str, key: str, *, shown: bool) -> str:
    """Give the rows of a side their numbers and keys."""
    source = part.source
    reads = source.shows if shown else source.reads
    if not part.key.spelling:
        made = part.key.key(source)
        return f"SELECT *, row_number() OVER () AS {row}, {made} AS {key}\n  FROM {reads}"
    return (
        f"SELECT side.*, {part.key.key(source, 'side.')} AS {key}\n"
        f"  FROM (SELECT *, row_number() OVER () AS {row} FROM {reads}) AS side\n"
        f"  LEFT JOIN {part.table}_spelling AS spelling "
        f"ON spelling.cell = {cell_text(source, 'side.')}"
    )


def _spelling(stored: str, show: ReadSpelling | None) -> str:
    if show is None:
        return f"SELECT cell, key FROM {stored}"
    pairs = (f"({literal(cell)}, {literal(key)})" for cell, key in show(stored))
    return "VALUES\n    " + ",\n    ".join(pairs)


def _aggregated(right: Source, row: str, key: str) -> list[tuple[str, str]]:
    columns = aggregates(right)
    lists = [f"{each.grouped(row)} AS {identifier(each.name)}" for each in columns]
    cells = [f"{each.shown()} AS {identifier(each.name)}" for each in columns]
    grouped = _listed([key, "count(*) AS matched_rows", *lists], 4)
    shown = _listed([key, "matched_rows", *cells], 4)
    by_key = f"FROM theirs WHERE {key} IN (SELECT {key} FROM yours) GROUP BY {key}"
    return [
        ("grouped", f"SELECT\n    {grouped}\n  {by_key}"),
        ("per_key", f"SELECT\n    {shown}\n  FROM grouped"),
    ]


def _select(columns: Iterable[OutputColumn], typed: bool) -> str:
    return "SELECT\n  " + _listed([column.select(typed) for column in columns], 2)


def _with(tables: Iterable[tuple[str, str]]) -> str:
    return "WITH " + ",\n".join(f"{name} AS (\n  {query}\n)" for name, query in tables)


def _listed(items: Iterable[str], indent: int) -> str:
    return (",\n" + " " * indent).join(items)
