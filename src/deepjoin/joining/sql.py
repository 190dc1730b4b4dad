"""The join as one SELECT, over stored tables or, to be printed, over the original ones.

The keys of an equi-join are equal. A semantic join goes through a table of pairs: it gives the
rows of the right table the keys of the left one they match, and from there on is the same. The same
join is also written as pandas code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from deepjoin.errors import DeepJoinError
from deepjoin.joining.keys import SEPARATOR_SQL, KeySql, cell_text
from deepjoin.joining.session import Session
from deepjoin.joining.tables import (
    MATCHES,
    MAX_VALUES,
    Aggregate,
    OutputColumn,
    SideTable,
    free_name,
)
from deepjoin.read.sql import identifier, literal

#: How left rows without a match are treated.
HOWS = {"left": "LEFT JOIN", "inner": "JOIN"}
#: A statement that lists more pairs than this is too long to read or to send.
MOST_PAIRS = 10_000

#: The columns of a table of pairs: a value of yours, one of theirs, their similarity, and the
#: alternatives where there are some.
PAIR_COLUMNS = ("yours", "theirs", "similarity", "alternatives")
_KEY = """\
import pandas as pd
from deepjoin.normalise.canonical import canonical

# yours is {left}, theirs is {right}, both read as text
def key(cell):
    return canonical(str(cell), {profile}) or None if pd.notna(cell) else None

"""
#: Before the merge, for a key of several columns.
_TUPLES = """\
def tuple_key(frame, columns):
    rows = zip(*(frame[column].map(key) for column in columns))
    keys = [None if any(pd.isna(part) for part in row) else chr(31).join(row) for row in rows]
    return pd.Series(keys, frame.index, dtype=object)

"""
_AGGREGATES = f"""\
def numbers(cells):
    return pd.to_numeric(cells, errors="coerce")

def filled(cells):
    texts = cells.dropna().astype(str).str.strip(" ")
    return texts[texts != ""]

def listed(cells):
    distinct = sorted(set(filled(cells)))
    more = f"; and {{len(distinct) - {MAX_VALUES}}} more" if len(distinct) > {MAX_VALUES} else ""
    return "; ".join(distinct[:{MAX_VALUES}]) + more or None

"""
_MERGE = """\
keys = {right_key}
matches = theirs{columns}.assign({name}=keys).dropna(subset="{name}"){once}
joined = yours.assign({name}={left_key}).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""
_PAIRS = """\
pairs = {pairs}
pairs.columns = ["{name}", "{target}", {between}]
keys = {right_key}
matches = theirs{columns}.assign({target}=keys, {place}=range(len(theirs)))
matches = pairs.merge(matches, on="{target}")
matches = matches.sort_values([{similarity}, "{place}"], ascending=[False, True])
matches = matches.drop(columns=["{target}", "{place}"]){once}
joined = yours.assign({name}={left_key}).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""
_NO_PAIRS = "pd.DataFrame({0: pd.Series(dtype=str), 1: pd.Series(dtype=str), 2: 0.0})"


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


def pandas_code(join: JoinSql, profile: str, session: Session, file: Path | None = None) -> str:
    """Write the join over the data frames `yours` and `theirs`; ``file`` may hold the pairs."""
    left, right = join.left.source, join.right.source
    # Columns that the code adds must not overwrite one of a table or of the result.
    outputs = (*join.left_columns, *join.between, *join.right_columns)
    taken = {column.name.lower() for column in outputs}
    taken |= {column.original.lower() for column in (*left.columns, *right.columns)}
    name, target, place = (free_name(word, taken) for word in ("_key", "_target", "_place"))
    # Keys come from deepjoin's own canonical strings, so that both ways match the same rows.
    code = _KEY.format(left=repr(left.table), right=repr(right.table), profile=repr(profile))
    words = {"name": name, "target": target, "place": place, "how": join.how}
    words |= {"left_key": _keys("yours", left), "right_key": _keys("theirs", right)}
    words |= {"columns": "", "once": "", "counted": ""}
    if left.more:
        code += _TUPLES
    if join.many == "aggregate":
        code += _AGGREGATES
        counted = repr(join.right_columns[0].name)
        words["once"] = f'.groupby("{name}").agg(**{{\n    {_aggregated(join)},\n}})'
        # Rows without a match have 0 matching rows.
        words["counted"] = f".fillna({{{counted}: 0}}).astype({{{counted}: int}})"
    else:
        names = {one.source.original: one.name for one in join.right_columns if one.source}
        if len(names) < len(right.columns):
            words["columns"] = f"[{list(names)!r}]"
        # Columns that clash are renamed before merge would rename them in its own way.
        changed = {old: new for old, new in names.items() if old != new}
        words["columns"] += f".rename(columns={changed!r})" if changed else ""
        words["once"] = f'.drop_duplicates("{name}")' if join.many == "first" else ""
    if join.pairs is None:
        return code + _MERGE.format(**words)
    if file:
        listed = f"pd.read_parquet({str(file)!r})"
    else:
        pairs = stored_pairs(session, join.pairs, join.pair_columns)
        rows = "".join(f"    {pair!r},\n" for pair in pairs)
        columns = len(join.pair_columns)
        listed = f"pd.DataFrame([\n{rows}], columns=range({columns}))" if rows else _NO_PAIRS
    between = [repr(one.name) for one in join.between]
    return code + _PAIRS.format(
        **words, similarity=between[0], between=", ".join(between), pairs=listed
    )


def _keys(frame: str, side: SideTable) -> str:
    """Write the keys of a frame: the canonical strings of a column, or of several."""
    if not side.more:
        return f"{frame}[{side.key.original!r}].map(key)"
    return f"tuple_key({frame}, {[column.original for column in side.keys]!r})"


def _aggregated(join: JoinSql) -> str:
    """List the aggregated columns, as arguments of pandas' named aggregation."""
    # All rows of a key have the same alternatives, or none.
    columns = {
        each.name: (repr(each.name), how)
        for each, how in zip(join.between, ("'max'", "'first'"), strict=False)
    }
    columns[join.right_columns[0].name] = (repr(join.right.source.key.original), "'size'")
    for each, output in zip(join.aggregates, join.right_columns[1:], strict=True):
        columns[output.name] = (repr(each.column.original), _function(each))
    return ",\n    ".join(
        f"{output!r}: ({column}, {how})" for output, (column, how) in columns.items()
    )


def _function(aggregate: Aggregate) -> str:
    """Write an aggregate as a function of the cells of a column, which are text."""
    match aggregate.function:
        case "list":
            return "listed"
        case "count":
            return "lambda cells: len(filled(cells))"
        case "first":
            return "lambda cells: cells.iloc[0]"
    cells = "numbers(cells)" if aggregate.column.is_numeric else "filled(cells)"
    return f"lambda cells: {cells}.{aggregate.function}()"
