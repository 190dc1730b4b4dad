"""Answers of the tools: their fields, their text, and how they are kept short.

Clients get each answer twice: as typed JSON, so that an agent need not guess, and as text, for
clients that pass on text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from deepjoin.model import (
    Answer,
    ColumnSummary,
    JoinEdge,
    Match,
    Row,
    SeveralMatches,
    TableSummary,
    ValueHolder,
)
from deepjoin.show.text import one_line

Item = TypeVar("Item")

#: Characters of a cell, of a name, which follow-up calls need whole, and of an error or a note.
CELL, NAME, LINE = 200, 500, 1000
#: The most characters of the fields that are not cells.
_MOST = {
    **dict.fromkeys(("table", "name", "column", "columns", "names", "new_columns"), NAME),
    **dict.fromkeys(("examples", "hit"), NAME),
    **dict.fromkeys(("query", "note", "cut", "advice", "warnings", "path", "file"), LINE),
}
#: Characters of a cell in a row of text, of other cells and names there, and of a whole text.
_ROW_CELL, _TEXT_CELL, _TEXT = 60, 500, 40_000


class Cutter:
    """Notes what is left out of one answer."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}

    @property
    def cut(self) -> list[str]:
        """What was left out, in words."""
        return list(self._notes)

    def note(self, what: str) -> None:
        """Note something that was left out elsewhere."""
        self._notes[what] = None

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


@dataclass(frozen=True, kw_only=True)
class FindAnswer(ToolAnswer):
    """Where a text is found: in names of tables, in names of columns, as a cell."""

    tables: Sequence[TableSummary]
    tables_in_all: int
    columns: Sequence[ColumnSummary]
    holders: Sequence[ValueHolder]
    holders_in_all: int


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
    columns: Sequence[str]
    """All columns of the key, in the order of the query's; one for a query of one column."""
    type: str
    joinability: float
    """Share of the query's values that match, for the kind of join that was requested."""
    probability: float
    """The chance that a person who knows both tables would make this join; orders join any."""
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
    longer_key: str
    """Where rows would multiply: columns of both tables that make the key unique."""
    found_by: Sequence[str]
    programs: Sequence[str]
    """Rules that make values match, in words; a join of kind any applies them."""
    matches: Sequence[Match]
    unmatched: Sequence[str]
    brings: Sequence[str]
    """The other columns of the table, which a join adds."""
    also: Sequence[str]
    """Other columns of the table that match as well."""
    suggested_join: str
    """What to pass as join to preview_join, to join as it was found."""


@dataclass(frozen=True)
class OtherColumn:
    """Another column of the query's table, and its best hit if it has one."""

    column: str
    hit: str
    joinability: float


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
    other_columns: Sequence[OtherColumn] = ()
    """Where all columns of a table were searched: those that make worse keys."""


@dataclass(frozen=True, kw_only=True)
class ExplainAnswer(ToolAnswer):
    """The evidence for one pair of columns, also for one that does not join."""

    query: str
    joins: bool
    """Whether any value matches."""
    evidence: HitAnswer


@dataclass(frozen=True, kw_only=True)
class PathsAnswer(ToolAnswer):
    """Chains of joins from one table to another, the likeliest first."""

    paths: Sequence[Sequence[JoinEdge]]
    """The joins of each path, in order; a is nearer to the start."""
    probabilities: Sequence[float]
    """Of each path, the product of the probabilities of its joins."""
    searched_columns: int
    complete: bool
    """Whether no better path can have been missed."""


@dataclass(frozen=True, kw_only=True)
class PageAnswer(ToolAnswer):
    """A page of the rows of a table, or of the distinct values of a column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    total: int
    next_offset: int | None
    """Where the next page begins; None after the last."""


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
    ambiguous_left_rows: int
    """Rows whose value is nearly as similar to another value of the target; not in the matched."""
    several_left_rows: int
    """Rows that match several rows of the target."""
    several: Sequence[SeveralMatches]
    """Examples of both."""
    renamed: dict[str, str]
    """Columns of the target that were renamed."""


@dataclass(frozen=True, kw_only=True)
class PreviewAnswer(ToolAnswer):
    """The first rows of a join, and its facts; nothing is written."""

    columns: Sequence[str]
    new_columns: Sequence[str]
    """Those that the join adds."""
    rows: Sequence[Sequence[str | None]]
    facts: JoinCounts
    warnings: Sequence[str]


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


def shortened(content: Mapping[str, Any]) -> dict[str, Any]:
    """Cut every long text of an answer, and say so in its `cut`."""
    notes: dict[str, None] = {}

    def short(value: Any, most: int) -> Any:
        if isinstance(value, str) and len(value) > most:
            kind = {CELL: "cells", NAME: "names"}.get(most, "notes")
            notes[f"{kind} longer than {most:,} characters end in …"] = None
            return value[: most - 1] + "…"
        if isinstance(value, list):
            return [short(one, most) for one in value]
        if isinstance(value, dict):
            return {
                short(name, NAME): short(one, _MOST.get(name, CELL)) for name, one in value.items()
            }
        return value

    whole: dict[str, Any] = short(content, CELL)
    return whole | {"cut": [*whole["cut"], *notes]}


def as_text(content: Mapping[str, Any]) -> str:
    """Write an answer as lines of name and value, without what is empty."""
    lines, room = [], _TEXT
    for line in _lines(content):
        room -= len(line) + 1
        if room < 0:
            lines.append("… The rest is left out here; ask for less at a time.")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    # What to do next and what was left out is read first, and is never cut off.
    for name in ("note", "cut", *(one for one in content if one not in ("note", "cut"))):
        value = content[name]
        if isinstance(value, list) and value and isinstance(value[0], list):
            yield f"{name}:"
            for row in value:
                parts = (one_line(c, _ROW_CELL) if isinstance(c, str) else _inline(c) for c in row)
                yield " | ".join(parts)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{name}:"
            yield from (f"- {_inline(one)}" for one in value)
        elif value not in (None, "", [], {}):
            yield f"{name}: {_inline(value)}"


def _inline(value: Any) -> str:
    """Write a value of JSON on one line; empty parts are left out."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:.3g}"
        case {"query": query, "target": target, "similarity": similarity}:
            if similarity < 1:
                return f"{_inline(query)} ≈ {_inline(target)} ({similarity:.2f})"
            return _inline(query) if query == target else f"{_inline(query)} = {_inline(target)}"
        case {"table": table, "column": column} if len(value) == 2:
            return f"{_inline(table)}:{_inline(column)}"
        case dict():
            written = {name: _inline(one) for name, one in value.items()}
            # The parts of a part in brackets, since its own are separated in the same way.
            inner = [name for name, one in value.items() if isinstance(one, dict) and len(one) > 2]
            written |= {name: f"({written[name]})" for name in inner}
            return "; ".join(f"{name}={part}" for name, part in written.items() if part)
        case list():
            return ", ".join(map(_inline, value))
        case _:
            return one_line(str(value), _TEXT_CELL)
