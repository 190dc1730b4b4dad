"""Writes the join as one SELECT: the text that is shown, and the same over stored tables.

The keys of an equi-join are equal. A semantic join goes through a table of pairs: it gives the
rows of the right table the keys of the left one they match, and from there on is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from deepjoin.joining.keys import KeySql, cell_text
from deepjoin.joining.names import free_name
from deepjoin.joining.select import MATCHES, OutputColumn, aggregates
from deepjoin.joining.side import Source
from deepjoin.read.sql import identifier, literal

#: How to treat left rows without a match.
HOWS = {"left": "LEFT JOIN", "inner": "JOIN"}


class Show(Protocol):
    """Writes what the session has stored into the statement, so that it runs elsewhere."""

    def spelling(self, stored: str) -> Sequence[tuple[str, str]]:
        """Read the pairs of cell and key of a spelling table."""

    def pairs(self, stored: str) -> str:
        """Write SQL for the rows of the table of pairs."""


@dataclass(frozen=True)
class Part:
    """One side as the query reads it; ``table`` is its name inside the query."""

    table: str
    source: Source
    key: KeySql


class Added(NamedTuple):
    """The columns that the query adds, named so that no column of a table is hidden."""

    row: str
    key: str
    similarity: str
    target: str
    place: str


@dataclass(frozen=True)
class JoinSql:
    """A join that can be written: to be shown, to be run with types, to be run as text.

    ``pairs`` names the table of pairs of a semantic join; ``between`` has its own column.
    """

    left: Part
    right: Part
    how: str
    many: str
    left_columns: tuple[OutputColumn, ...]
    right_columns: tuple[OutputColumn, ...]
    pairs: str | None = None
    between: tuple[OutputColumn, ...] = ()

    def joined(self, typed: bool, show: Show | None = None) -> str:
        """Write the join; with the means to show what is stored, over the original tables."""
        key, match = self.added.key, MATCHES[self.many]
        tables = [*self._sides(show), *self._matches()]
        columns = (*self.left_columns, *self.between, *self.right_columns)
        return (
            f"{_with(tables)}\n{_select(columns, typed)}\n"
            f"FROM yours\n{HOWS[self.how]} {match} ON yours.{key} = {match}.{key}\n"
            f"ORDER BY {', '.join(self._order(match))}"
        )

    def unmatched(self, typed: bool, show: Show | None = None) -> str:
        """Write the query for the left rows without a match."""
        row, key, *_ = self.added
        return (
            f"{_with(self._sides(show))}\n{_select(self.left_columns, typed)}\nFROM yours\n"
            f"WHERE NOT EXISTS (SELECT 1 FROM theirs WHERE theirs.{key} = yours.{key})\n"
            f"ORDER BY yours.{row}"
        )

    @property
    def added(self) -> Added:
        """The names of the columns that the query adds."""
        columns = (*self.left.source.columns, *self.right.source.columns)
        taken = {column.name.lower() for column in columns}
        return Added(*(identifier(free_name(f"_{name}", taken)) for name in Added._fields))

    def _order(self, match: str) -> list[str]:
        """Order rows as the tables have them; of several values that match, the best first."""
        order = [f"yours.{self.added.row}"]
        if match == "theirs":
            order += [f"theirs.{self.added.similarity} DESC"] if self.pairs else []
            order.append(f"theirs.{self.added.row}")
        return order

    def _sides(self, show: Show | None) -> list[tuple[str, str]]:
        row, key, _, target, _ = self.added
        tables = [*_side(self.left, row, key, show)]
        if self.pairs is None:
            return [*tables, *_side(self.right, row, key, show)]
        pairs = f"SELECT yours, theirs, similarity FROM {self.pairs}"
        return [
            *tables,
            *_side(self.right, row, target, show),
            ("pairs(yours, theirs, similarity)", show.pairs(self.pairs) if show else pairs),
            ("theirs", self._linked()),
        ]

    def _linked(self) -> str:
        """Give the right rows the keys of the left values they match."""
        _, key, similarity, target, _ = self.added
        side = self.right.table
        # All databases that a statement is written for know this name of the type.
        return (
            f"SELECT {side}.*, pairs.yours AS {key}, "
            f"CAST(pairs.similarity AS FLOAT8) AS {similarity}\n"
            f"  FROM {side} JOIN pairs ON pairs.theirs = {side}.{target}"
        )

    def _matches(self) -> list[tuple[str, str]]:
        """Bring the right table to one row a key, if that is asked for."""
        row, key, similarity, _, place = self.added
        if self.many == "aggregate":
            return self._aggregated()
        if self.many == "expand":
            return []
        if self.pairs is None:
            first = f"SELECT min({row}) FROM theirs GROUP BY {key}"
            return [("first_match", f"SELECT * FROM theirs\n  WHERE {row} IN ({first})")]
        best = f"row_number() OVER (PARTITION BY {key} ORDER BY {similarity} DESC, {row})"
        placed = f"SELECT *, {best} AS {place} FROM theirs"
        return [("first_match", f"SELECT * FROM ({placed}) AS placed\n  WHERE {place} = 1")]

    def _aggregated(self) -> list[tuple[str, str]]:
        row, key, similarity, *_ = self.added
        best = [f"max({similarity}) AS {similarity}"] if self.pairs else []
        grouped = _listed([key, "count(*) AS matched_rows", *best, *self._groups(row)], 4)
        same = [similarity] if self.pairs else []
        shown = _listed([key, "matched_rows", *same, *self._shown()], 4)
        by_key = f"FROM theirs WHERE {key} IN (SELECT {key} FROM yours) GROUP BY {key}"
        return [
            ("grouped", f"SELECT\n    {grouped}\n  {by_key}"),
            ("per_key", f"SELECT\n    {shown}\n  FROM grouped"),
        ]

    def _groups(self, row: str) -> list[str]:
        columns = aggregates(self.right.source)
        return [f"{each.grouped(row)} AS {identifier(each.name)}" for each in columns]

    def _shown(self) -> list[str]:
        columns = aggregates(self.right.source)
        return [f"{each.shown()} AS {identifier(each.name)}" for each in columns]


def _side(part: Part, row: str, key: str, show: Show | None) -> list[tuple[str, str]]:
    """Give the rows of a side their numbers and keys."""
    source = part.source
    reads = source.shows if show else source.reads
    if not part.key.spelling:
        made = part.key.key(source)
        plain = f"SELECT *, row_number() OVER () AS {row}, {made} AS {key}\n  FROM {reads}"
        return [(part.table, plain)]
    spelled = (
        f"SELECT side.*, {part.key.key(source, 'side.')} AS {key}\n"
        f"  FROM (SELECT *, row_number() OVER () AS {row} FROM {reads}) AS side\n"
        f"  LEFT JOIN {part.table}_spelling AS spelling "
        f"ON spelling.cell = {cell_text(source, 'side.')}"
    )
    spelling = (f"{part.table}_spelling(cell, key)", _spelling(part.key.spelling, show))
    return [spelling, (part.table, spelled)]


def _spelling(stored: str, show: Show | None) -> str:
    if show is None:
        return f"SELECT cell, key FROM {stored}"
    pairs = (f"({literal(cell)}, {literal(key)})" for cell, key in show.spelling(stored))
    return "VALUES\n    " + ",\n    ".join(pairs)


def _select(columns: Iterable[OutputColumn], typed: bool) -> str:
    return "SELECT\n  " + _listed([column.select(typed) for column in columns], 2)


def _with(tables: Iterable[tuple[str, str]]) -> str:
    return "WITH " + ",\n".join(f"{name} AS (\n  {query}\n)" for name, query in tables)


def _listed(items: Iterable[str], indent: int) -> str:
    return (",\n" + " " * indent).join(items)
