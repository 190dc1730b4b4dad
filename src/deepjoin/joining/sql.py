"""The join as one SELECT, over stored tables or, to be printed, over the original ones.

The keys of an equi-join are equal. A semantic join goes through a table of pairs: it gives the
rows of the right table the keys of the left one they match, and from there on is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from deepjoin.errors import DeepJoinError
from deepjoin.joining.columns import MATCHES, Aggregate, OutputColumn, free_name
from deepjoin.joining.keys import SEPARATOR_SQL, KeySql, cell_text
from deepjoin.joining.session import Session
from deepjoin.joining.tables import SideTable
from deepjoin.read.sql import identifier, literal

#: How left rows without a match are treated.
HOWS = {"left": "LEFT JOIN", "inner": "JOIN"}
#: A statement that lists more pairs than this is too long to read or to send.
MOST_PAIRS = 10_000

#: The columns of a table of pairs: a value of yours, one of theirs, their similarity, and the
#: alternatives where there are some.
PAIR_COLUMNS = ("yours", "theirs", "similarity", "alternatives")


class ValueWriter(Protocol):
    """Writes values that the session has stored into a statement, so that it runs elsewhere."""

    def spelling(self, stored: str) -> Sequence[tuple[str, str]]:
        """Read the pairs of cell and key of a spelling table."""

    def literal(self, text: str) -> str:
        """Quote a string."""

    def pairs(self, stored: str, columns: Sequence[str]) -> str:
        """Write SQL for the rows of the table of pairs."""


@dataclass(frozen=True)
class StoredValues:
    """Reads values from the session; pairs are listed, or read from a file that has them."""

    session: Session
    file: Path | None = None

    def spelling(self, stored: str) -> list[tuple[Any, ...]]:
        """Read the pairs of cell and key of a spelling table."""
        return self.session.run(f"SELECT cell, key FROM {stored} ORDER BY cell")

    def literal(self, text: str) -> str:
        """Quote a string."""
        return literal(text)

    def pairs(self, stored: str, columns: Sequence[str]) -> str:
        """Write SQL for the rows of the table of pairs."""
        if self.file is not None:
            return f"SELECT {', '.join(columns)} FROM read_parquet({literal(str(self.file))})"
        return pair_values(stored_pairs(self.session, stored, columns))


def stored_pairs(session: Session, stored: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Read the table of pairs, unless it is too long for a statement."""
    count = session.count(stored)
    if count > MOST_PAIRS:
        raise DeepJoinError(
            f"The join goes through {count:,} pairs of values; a statement can list at most "
            f"{MOST_PAIRS:,}. Use "
            '`plan.reading("pairs.parquet")` to read them from a file.'
        )
    return session.run(f"SELECT {', '.join(columns)} FROM {stored}")


def pair_values(pairs: Sequence[tuple[Any, ...]], quoted: Callable[[str], str] = literal) -> str:
    """List pairs as SQL.

    >>> print(pair_values([("uk", "united kingdom", 0.8)]))
    VALUES
        ('uk', 'united kingdom', 0.8)
    """
    if not pairs:
        return "SELECT '' AS yours, '' AS theirs, 0.0 AS similarity WHERE 1 = 0"

    def value(part: str | float | None) -> str:
        if isinstance(part, str):
            return quoted(part)
        return "NULL" if part is None else repr(part)

    rows = (f"({', '.join(map(value, pair))})" for pair in pairs)
    return "VALUES\n    " + ",\n    ".join(rows)


@dataclass(frozen=True)
class QuerySide:
    """One side as the query reads it; ``table`` is its name inside the query."""

    table: str
    source: SideTable
    key: KeySql
    #: The keys of the other columns of a key of several.
    more: tuple[KeySql, ...] = ()
    #: SQL for what is between the parts of such a key.
    separator: str = SEPARATOR_SQL

    @property
    def keys(self) -> tuple[KeySql, ...]:
        """How the cells of each column of the key become keys."""
        return (self.key, *self.more)

    def rows(self, row: str, key: str, writer: ValueWriter | None) -> list[tuple[str, str]]:
        """Write the tables of the query that number the rows and give them their keys."""
        reads = self.source.shows if writer else self.source.reads
        between = f" || {self.separator} || "
        parts = list(zip(self.keys, self.source.parts(), strict=True))
        if not any(one.spelling for one in self.keys):
            # A missing part makes the whole key NULL, which matches nothing.
            made = between.join(one.key(part) for one, part in parts)
            plain = f"SELECT *, row_number() OVER () AS {row}, {made} AS {key}\n  FROM {reads}"
            return [(self.table, plain)]
        # Exceptions are joined on the cell's text and take precedence over the expression.
        tables, joins, made_of = [], [], []
        for number, (one, part) in enumerate(parts, 1):
            called = "spelling" if number == 1 else f"spelling_{number}"
            made_of.append(one.key(part, "side.", called))
            if not one.spelling:
                continue
            exceptions = f"SELECT cell, key FROM {one.spelling}"
            if writer:
                quoted, listed = writer.literal, writer.spelling(one.spelling)
                pairs = (f"({quoted(cell)}, {quoted(to)})" for cell, to in listed)
                exceptions = "VALUES\n    " + ",\n    ".join(pairs)
            tables.append((f"{self.table}_{called}(cell, key)", exceptions))
            joins.append(
                f"\n  LEFT JOIN {self.table}_{called} AS {called} "
                f"ON {called}.cell = {cell_text(part, 'side.')}"
            )
        spelled = (
            f"SELECT side.*, {between.join(made_of)} AS {key}\n"
            f"  FROM (SELECT *, row_number() OVER () AS {row} FROM {reads}) AS side{''.join(joins)}"
        )
        return [*tables, (self.table, spelled)]


class AddedColumns(NamedTuple):
    """Names of the columns that the query adds, different from those of both tables."""

    row: str
    key: str
    similarity: str
    alternatives: str
    target: str
    place: str


@dataclass(frozen=True)
class JoinSql:
    """A join that can be written as SQL: with types or as text, to run it or to print it.

    ``pairs`` names the table of pairs of a join by meaning; ``between`` has their similarity and,
    where there are some, their alternatives.
    """

    left: QuerySide
    right: QuerySide
    how: str
    many: str
    left_columns: tuple[OutputColumn, ...]
    right_columns: tuple[OutputColumn, ...]
    aggregates: tuple[Aggregate, ...] = ()
    pairs: str | None = None
    between: tuple[OutputColumn, ...] = ()

    def joined(self, typed: bool, writer: ValueWriter | None = None) -> str:
        """Write the join; with a writer of stored values, over the original tables."""
        row, key, similarity = self.added[:3]
        match = MATCHES[self.many]
        columns = (*self.left_columns, *self.between, *self.right_columns)
        # Rows in the order of the tables; of several values that match, the best first.
        order = [f"yours.{row}"]
        if match == "theirs":
            order += [f"theirs.{similarity} DESC"] if self.pairs else []
            order.append(f"theirs.{row}")
        return (
            f"{_with([*self._sides(writer), *self._matches()])}\n{_select(columns, typed)}\n"
            f"FROM yours\n{HOWS[self.how]} {match} ON yours.{key} = {match}.{key}\n"
            f"ORDER BY {', '.join(order)}"
        )

    def unmatched(self, typed: bool, writer: ValueWriter | None = None) -> str:
        """Write the query for the left rows without a match."""
        row, key, *_ = self.added
        return (
            f"{_with(self._sides(writer))}\n{_select(self.left_columns, typed)}\nFROM yours\n"
            f"WHERE NOT EXISTS (SELECT 1 FROM theirs WHERE theirs.{key} = yours.{key})\n"
            f"ORDER BY yours.{row}"
        )

    @property
    def added(self) -> AddedColumns:
        """The names of the columns that the query adds."""
        columns = (*self.left.source.columns, *self.right.source.columns)
        taken = {column.name.lower() for column in columns}
        names = (free_name(f"_{name}", taken) for name in AddedColumns._fields)
        return AddedColumns(*map(identifier, names))

    @property
    def pair_columns(self) -> tuple[str, ...]:
        """The columns of the table of pairs that the join uses."""
        return PAIR_COLUMNS[: 2 + len(self.between)]

    def aggregated(self) -> list[tuple[str, str, str]]:
        """List the aggregates: name, SQL of the aggregate, SQL of the cell of the result."""
        return [
            (identifier(one.name), one.grouped(self.row_order), one.result())
            for one in self.aggregates
        ]

    @property
    def row_order(self) -> str:
        """The order of the rows that match a key: the most similar first."""
        row, _, similarity = self.added[:3]
        return f"{similarity} DESC, {row}" if self.pairs else row

    def _sides(self, writer: ValueWriter | None) -> list[tuple[str, str]]:
        row, key, similarity, alternatives, target, _ = self.added
        tables = self.left.rows(row, key, writer)
        if self.pairs is None:
            return [*tables, *self.right.rows(row, key, writer)]
        # The right rows get the keys of the left values that they match. All databases that a
        # statement is written for know the type FLOAT8 by this name.
        side, columns = self.right.table, self.pair_columns
        others = f", pairs.alternatives AS {alternatives}" if len(self.between) > 1 else ""
        linked = (
            f"SELECT {side}.*, pairs.yours AS {key}, "
            f"CAST(pairs.similarity AS FLOAT8) AS {similarity}{others}\n"
            f"  FROM {side} JOIN pairs ON pairs.theirs = {side}.{target}"
        )
        stored = f"SELECT {', '.join(columns)} FROM {self.pairs}"
        return [
            *tables,
            *self.right.rows(row, target, writer),
            (
                f"pairs({', '.join(columns)})",
                writer.pairs(self.pairs, columns) if writer else stored,
            ),
            ("theirs", linked),
        ]

    def _matches(self) -> list[tuple[str, str]]:
        """Reduce the right table to one row a key, unless all rows are wanted."""
        row, key, similarity, alternatives, _, place = self.added
        if self.many == "expand":
            return []
        if self.many == "first" and self.pairs is None:
            first = f"SELECT min({row}) FROM theirs GROUP BY {key}"
            return [("first_match", f"SELECT * FROM theirs\n  WHERE {row} IN ({first})")]
        if self.many == "first":
            best = f"row_number() OVER (PARTITION BY {key} ORDER BY {self.row_order})"
            placed = f"SELECT *, {best} AS {place} FROM theirs"
            return [("first_match", f"SELECT * FROM ({placed}) AS placed\n  WHERE {place} = 1")]
        columns = self.aggregated()
        between = (similarity, alternatives)[: len(self.between)]
        grouped = [key, "count(*) AS matched_rows", *(f"max({one}) AS {one}" for one in between)]
        grouped += [f"{aggregate} AS {name}" for name, aggregate, _ in columns]
        result = [key, "matched_rows", *between]
        result += [f"{cell} AS {name}" if cell != name else name for name, _, cell in columns]
        # Keys that the left table does not have need not be aggregated.
        by_key = f"FROM theirs WHERE {key} IN (SELECT {key} FROM yours) GROUP BY {key}"
        return [
            ("grouped", f"SELECT\n    {_listed(grouped, 4)}\n  {by_key}"),
            ("per_key", f"SELECT\n    {_listed(result, 4)}\n  FROM grouped"),
        ]


def _select(columns: Iterable[OutputColumn], typed: bool) -> str:
    return "SELECT\n  " + _listed([column.select(typed) for column in columns], 2)


def _with(tables: Iterable[tuple[str, str]]) -> str:
    return "WITH " + ",\n".join(f"{name} AS (\n  {query}\n)" for name, query in tables)


def _listed(items: Iterable[str], indent: int) -> str:
    return (",\n" + " " * indent).join(items)
