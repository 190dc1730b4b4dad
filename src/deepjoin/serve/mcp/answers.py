"""Answers of the tools: their fields, their text, and how they are kept short.

Clients get each answer twice: as typed JSON, so that an agent need not guess, and as text, for
clients that pass on text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from deepjoin.model import Answer, ColumnSummary, Match, Row, ValueHolder

Item = TypeVar("Item")

#: Characters of a cell, and of a name, which is cut later because follow-up calls need all of it.
CELL, NAME = 200, 500
#: Characters of an error or a note.
LINE = 1000
#: Characters of a cell in a row of text, of other cells and names there, and of a whole text.
_ROW_CELL, _TEXT_CELL, _TEXT_NAME, _TEXT = 60, 240, 500, 40_000


def one_line(text: str, width: int = LINE) -> str:
    r"""Make a single line of a text, without control characters and not too long.

    >>> one_line("No table\n'x'.", 20)
    "No table 'x'."
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def count(number: int, what: str) -> str:
    """Count in words.

    >>> count(1, "row"), count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Cutter:
    """Shortens what goes into one answer, and notes what was shortened."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}

    @property
    def cut(self) -> list[str]:
        """What was shortened, in words."""
        return list(self._notes)

    def note(self, what: str) -> None:
        """Note something that was left out elsewhere."""
        self._notes[what] = None

    def cell(self, text: str) -> str:
        """Shorten a cell."""
        if len(text) <= CELL:
            return text
        self.note(f"cells longer than {CELL} characters end in …")
        return text[: CELL - 1] + "…"

    def name(self, text: str) -> str:
        """Shorten a name; a shortened one cannot be used in another call."""
        if len(text) <= NAME:
            return text
        self.note(f"names longer than {NAME} characters end in …")
        return text[: NAME - 1] + "…"

    def some(self, items: Iterable[Item], most: int, what: str) -> list[Item]:
        """Keep the first items."""
        listed = list(items)
        if len(listed) > most:
            self.note(f"{most:,} of {len(listed):,} {what} are listed")
        return listed[:most]


@dataclass(frozen=True, kw_only=True)
class ToolAnswer(Answer):
    """What every answer has: a note, and what was left out to keep it short."""

    note: str = ""
    """What to know or to do next."""
    cut: Sequence[str] = ()
    """What was left out or shortened."""

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        raise NotImplementedError

    def text(self) -> str:
        """Write the answer, what was cut, and what to do next."""
        kept: list[str] = []
        room = _TEXT
        for line in self.lines():
            room -= len(line) + 1
            if room < 0:
                kept.append("… The rest is left out here; ask for less at a time.")
                break
            kept.append(line)
        if self.cut:
            kept.append(f"Left out: {'; '.join(self.cut)}.")
        if self.note and self.note not in kept:
            kept.append(self.note)
        return "\n".join(kept)


@dataclass(frozen=True, kw_only=True)
class LakeAnswer(ToolAnswer):
    """What the lake holds and what can be done with it."""

    tables: int
    columns: int
    """Columns that can be searched and joined."""
    rows: int
    """0 for a collection of columns, which does not record rows."""
    distinct_values: int
    joins: Sequence[str]
    """The kinds of join this index can answer."""
    can_write: bool
    """Whether the tool join is offered."""
    values_are_hashed: bool
    """Then no cells of hits can be shown."""
    not_searchable: dict[str, int]
    """Columns left out of the index, by reason."""
    not_read: int
    """Files that could not be read as tables."""
    examples: Sequence[str]
    """Some names of tables."""

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield (
            f"A lake of {self.tables:,} tables: {self.columns:,} searchable columns, "
            f"{self.rows:,} rows, {self.distinct_values:,} distinct values."
        )
        yield f"Joins: {', '.join(self.joins)}. Writing: {'join' if self.can_write else 'off'}."
        if self.values_are_hashed:
            yield "The index holds hashes of values: no cells of hits can be shown."
        if self.not_searchable:
            reasons = (f"{number:,} {why}" for why, number in self.not_searchable.items())
            yield f"Columns that cannot be searched: {', '.join(reasons)}."
        if self.not_read:
            yield f"Files that could not be read: {self.not_read:,}."
        yield f"Tables: {_listed(self.examples)}"


@dataclass(frozen=True)
class TableFound:
    """A table with the text in its name or in a column's name."""

    table: str
    title: str
    rows: int
    columns: int
    first_columns: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class FindAnswer(ToolAnswer):
    """Where a text is found: in names of tables, in names of columns, as a cell."""

    tables: Sequence[TableFound]
    tables_in_all: int
    columns: Sequence[ColumnSummary]
    holders: Sequence[ValueHolder]
    holders_in_all: int

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield f"{count(self.tables_in_all, 'table')} with it in a name:"
        for table in self.tables:
            columns = f"{count(table.columns, 'column')}: {_listed(table.first_columns)}"
            yield f"- {_short(table.table)} ({count(table.rows, 'row')}; {columns})"
        if self.columns:
            yield "Columns with it in their name:"
        for one in self.columns:
            yield f"- {_place(one.table, one.column)} ({one.type}, {one.distinct:,} distinct)"
        yield f"{count(self.holders_in_all, 'column')} with a cell that equals it:"
        for holder in self.holders:
            yield f"- {_place(holder.table, holder.column)} ({count(holder.rows, 'row')})"


@dataclass(frozen=True)
class ColumnAnswer:
    """A column of a table."""

    column: str
    type: str
    distinct: int
    searchable: bool
    why_not: str
    """Why it cannot be searched with; empty if it can."""
    warning: str
    """Why it says little as a key; empty if it is an ordinary key."""
    samples: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class TableAnswer(ToolAnswer):
    """A table: the words around it, its columns, its first rows."""

    table: str
    title: str
    context: str
    rows: int
    columns: Sequence[ColumnAnswer]
    sample: Sequence[Row]
    mended: Sequence[str]
    """What was repaired when the file was read."""

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield f"{_short(self.table)}: {_short(self.title)}, {count(self.rows, 'row')}"
        for one in self.columns:
            state = "" if one.searchable else f"; not searchable: {one.why_not}"
            warning = f"; {one.warning}" if one.warning else ""
            cells = f"; such as {_listed(one.samples)}" if one.samples else ""
            facts = f"{one.type}, {one.distinct:,} distinct{state}{warning}{cells}"
            yield f"- {_short(one.column)} ({facts})"
        for note in self.mended:
            yield f"Repaired: {_short(note)}"
        for row in self.sample:
            yield "Row: " + ", ".join(f"{_short(name)}={_cell(row[name])}" for name in row)


@dataclass(frozen=True)
class ToolCoverage:
    """How much of each column the other covers, in distinct values."""

    of_query: float
    """Share of the query's values with a match (joinability)."""
    of_target: float
    """Share of the target's values with a match."""
    matched: int
    """How many of the query's values have a match."""


@dataclass(frozen=True)
class HitAnswer:
    """A column that joins with the query, and the evidence for it."""

    rank: int
    table: str
    column: str
    type: str
    joinability: float
    """What hits are ranked by, for the kind of join that was requested."""
    query_size: int
    """Distinct values of the query."""
    target_size: int
    """Distinct values of the target."""
    equal: ToolCoverage
    equal_or_similar: ToolCoverage | None
    """None where only equal values count."""
    cardinality: str
    """1:1, 1:n, n:1 or n:m, the query's side first."""
    rows_meet: str
    """The cardinality in words."""
    warning: str
    """Set for keys that match everything, such as row numbers."""
    found_by: Sequence[str]
    matches: Sequence[Match]
    unmatched: Sequence[str]
    brings: Sequence[str]
    """The other columns of the table, which a join adds."""
    also: Sequence[str]
    """Other columns of the table that match as well."""
    suggested_join: str
    """What to pass as join to preview_join."""

    def lines(self) -> Iterator[str]:
        """Write the hit for reading."""
        place = _place(self.table, self.column)
        yield f"{self.rank}. {place}: joinability {self.joinability:.3f} ({self.type})"
        for title, one in (("equal", self.equal), ("equal or similar", self.equal_or_similar)):
            if one is not None:
                yield (
                    f"   {title}: {one.matched:,} of {self.query_size:,} query values "
                    f"({one.of_query:.1%}), {one.of_target:.1%} of {self.target_size:,} target "
                    "values"
                )
        if self.cardinality:
            yield f"   {self.cardinality} {self.rows_meet}; join={self.suggested_join}"
        if self.warning:
            yield f"   Warning: {self.warning}"
        for title, items in (
            ("matched", [_pair(one) for one in self.matches]),
            ("not matched", [_short(cell) for cell in self.unmatched]),
            ("brings", [_short(name) for name in self.brings]),
            ("also joins", [_short(name) for name in self.also]),
        ):
            if items:
                yield f"   {title}: {', '.join(items)}"


@dataclass(frozen=True, kw_only=True)
class SearchAnswer(ToolAnswer):
    """The hits of a search, best first; without any, the nearest miss and what to try."""

    query: str
    query_size: int
    """Distinct values that were compared."""
    join: str
    compared_columns: int
    compared_tables: int
    hits: Sequence[HitAnswer]
    best_below: HitAnswer | None = None
    """Where nothing reaches min_joinability: the first hit without it."""
    advice: Sequence[str] = ()
    """Where nothing joins: what to try."""

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        if self.hits:
            yield (
                f"{count(len(self.hits), 'hit')} for {self.query} "
                f"({count(self.query_size, 'distinct value')}), among "
                f"{count(self.compared_columns, 'column')} of "
                f"{count(self.compared_tables, 'table')}, join {self.join}."
            )
        else:
            yield self.note
        for hit in self.hits:
            yield from hit.lines()
        if self.best_below is not None:
            yield "Below the threshold:"
            yield from self.best_below.lines()
        if self.advice:
            yield "Try: " + "; ".join(self.advice) + "."


@dataclass(frozen=True, kw_only=True)
class ExplainAnswer(ToolAnswer):
    """The evidence for one pair of columns, also for one that does not join."""

    query: str
    joins: bool
    """Whether any value matches."""
    evidence: HitAnswer

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield f"{self.query} and {_place(self.evidence.table, self.evidence.column)}:"
        yield from self.evidence.lines()


@dataclass(frozen=True)
class JoinCounts:
    """What a join does, counted over the whole tables."""

    join: str
    left_rows: int
    matched_left_rows: int
    left_keys: int
    matched_keys: int
    result_rows: int
    cardinality: str
    most_rows_for_one_key: int
    renamed: dict[str, str]
    """Columns of the target that were renamed."""

    def lines(self, warnings: Iterable[str]) -> Iterator[str]:
        """Write the counts and the warnings for reading."""
        kind = f" ({self.cardinality})" if self.matched_left_rows else ""
        yield (
            f"{self.matched_left_rows:,} of {self.left_rows:,} rows match{kind}, "
            f"{self.matched_keys:,} of {self.left_keys:,} distinct values; "
            f"{self.result_rows:,} rows result (join {self.join})."
        )
        for old, new in self.renamed.items():
            yield f"Renamed: {_short(old)} is {_short(new)}."
        for warning in warnings:
            yield f"Warning: {warning}"


@dataclass(frozen=True)
class PreviewColumn:
    """A column of the joined table."""

    column: str
    is_new: bool
    """Whether the join adds it."""


@dataclass(frozen=True, kw_only=True)
class PreviewAnswer(ToolAnswer):
    """The first rows of a join, and its facts; nothing is written."""

    columns: Sequence[PreviewColumn]
    rows: Sequence[Sequence[str | None]]
    facts: JoinCounts
    warnings: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield from self.facts.lines(self.warnings)
        yield f"New columns: {_listed(one.column for one in self.columns if one.is_new)}"
        yield " | ".join(_short(one.column) for one in self.columns)
        for row in self.rows:
            yield " | ".join(map(_cell, row))


@dataclass(frozen=True, kw_only=True)
class FileAnswer(ToolAnswer):
    """The file that a join was written to."""

    file: str
    """Its name in the output folder of this server."""
    path: str
    rows: int
    bytes: int
    facts: JoinCounts
    warnings: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Write the answer for reading."""
        yield f"{self.rows:,} rows ({self.bytes:,} bytes) in {self.path}"
        yield from self.facts.lines(self.warnings)


def _short(text: str) -> str:
    return one_line(text, _TEXT_CELL)


def _cell(cell: str | None) -> str:
    return "" if cell is None else one_line(cell, _ROW_CELL)


def _place(table: str, column: str) -> str:
    return f"{one_line(table, _TEXT_NAME)}:{one_line(column, _TEXT_NAME)}"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(map(_short, items)) or "none"


def _pair(one: Match) -> str:
    if one.similarity < 1:
        return f"{_short(one.query)} ≈ {_short(one.target)} ({one.similarity:.2f})"
    same = one.query == one.target
    return _short(one.query) if same else f"{_short(one.query)} = {_short(one.target)}"
