"""Answers as texts: what a person, or an agent whose client passes texts alone, reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch

from deepjoin.serve.mcp.answers import (
    Answer,
    Coverage,
    ExplainAnswer,
    FactsAnswer,
    FileAnswer,
    FindAnswer,
    HitAnswer,
    LakeAnswer,
    Pair,
    PreviewAnswer,
    SearchAnswer,
    TableAnswer,
)
from deepjoin.serve.mcp.bounds import count, one_line

_CELL = 60
#: Characters of a text, the last lines of which are then left out.
_LONGEST = 40_000


def told(answer: Answer) -> str:
    """Write an answer: what it says, what was cut, what to do next."""
    lines = _fitting(_lines(answer))
    if answer.cut:
        lines.append(f"Left out: {'; '.join(answer.cut)}.")
    if answer.note and answer.note not in lines:
        lines.append(answer.note)
    return "\n".join(lines)


def _fitting(lines: Iterable[str]) -> list[str]:
    """Keep the first lines, as many as fit into a text."""
    kept: list[str] = []
    room = _LONGEST
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return [*kept, "… The rest is left out here; ask for less at a time."]
        kept.append(line)
    return kept


@singledispatch
def _lines(answer: Answer) -> Iterator[str]:
    raise TypeError(f"no text for {type(answer).__name__}")


@_lines.register
def _lake(answer: LakeAnswer) -> Iterator[str]:
    yield (
        f"A lake of {answer.tables:,} tables: {answer.columns:,} searchable columns, "
        f"{answer.rows:,} rows, {answer.distinct_values:,} distinct values."
    )
    yield f"Joins: {', '.join(answer.joins)}. Writing: {'join' if answer.can_write else 'off'}."
    if answer.values_are_hashed:
        yield "The index holds hashes of values: no cells of hits can be shown."
    if answer.not_searchable:
        reasons = (f"{count:,} {why}" for why, count in answer.not_searchable.items())
        yield f"Columns that cannot be searched: {', '.join(reasons)}."
    if answer.not_read:
        yield f"Files that could not be read: {answer.not_read:,}."
    yield f"Tables: {_listed(answer.examples)}"


@_lines.register
def _find(answer: FindAnswer) -> Iterator[str]:
    yield f"{count(answer.tables_in_all, 'table')} with it in a name:"
    for table in answer.tables:
        columns = f"{count(table.columns, 'column')}: {_listed(table.first_columns)}"
        yield f"- {_shown(table.table)} ({count(table.rows, 'row')}; {columns})"
    if answer.columns:
        yield "Columns with it in their name:"
    for column in answer.columns:
        yield f"- {_at(column.table, column.column)} ({column.type}, {column.distinct:,} distinct)"
    yield f"{count(answer.holders_in_all, 'column')} with a cell that equals it:"
    for holder in answer.holders:
        yield f"- {_at(holder.table, holder.column)} ({count(holder.rows, 'row')})"


@_lines.register
def _table(answer: TableAnswer) -> Iterator[str]:
    yield f"{_shown(answer.table)}: {_shown(answer.title)}, {count(answer.rows, 'row')}"
    for one in answer.columns:
        state = "" if one.searchable else f"; not searchable: {one.why_not}"
        warning = f"; {one.warning}" if one.warning else ""
        cells = f"; such as {_listed(one.samples)}" if one.samples else ""
        facts = f"{one.type}, {one.distinct:,} distinct{state}{warning}{cells}"
        yield f"- {_shown(one.column)} ({facts})"
    for note in answer.mended:
        yield f"Mended: {_shown(note, 200)}"
    for row in answer.sample:
        yield "Row: " + ", ".join(f"{_shown(n)}={_cell(cell)}" for n, cell in row.items())


@_lines.register
def _search(answer: SearchAnswer) -> Iterator[str]:
    yield _headline(answer) if answer.hits else answer.note
    for hit in answer.hits:
        yield from _hit(hit)
    if answer.best_below is not None:
        yield "Below the threshold:"
        yield from _hit(answer.best_below)
    if answer.advice:
        yield "Try: " + "; ".join(answer.advice) + "."


def _headline(answer: SearchAnswer) -> str:
    return (
        f"{count(len(answer.hits), 'hit')} for {answer.query} "
        f"({count(answer.query_size, 'distinct value')}), among "
        f"{count(answer.compared_columns, 'column')} of {count(answer.compared_tables, 'table')}, "
        f"join {answer.join}."
    )


@_lines.register
def _explain(answer: ExplainAnswer) -> Iterator[str]:
    yield f"{answer.query} and {_at(answer.evidence.table, answer.evidence.column)}:"
    yield from _hit(answer.evidence)


def _hit(hit: HitAnswer) -> Iterator[str]:
    named = _at(hit.table, hit.column)
    yield f"{hit.rank}. {named}: joinability {hit.joinability:.3f} ({hit.type})"
    yield f"   equal: {_coverage(hit.equal, hit)}"
    if hit.equal_or_similar is not None:
        yield f"   equal or similar: {_coverage(hit.equal_or_similar, hit)}"
    if hit.cardinality:
        yield f"   {hit.cardinality} {hit.rows_meet}; join={hit.suggested_join}"
    if hit.warning:
        yield f"   Warning: {hit.warning}"
    for title, items in (
        ("matched", [_pair(one) for one in hit.matches]),
        ("not matched", [_shown(cell) for cell in hit.unmatched]),
        ("brings", [_shown(name) for name in hit.brings]),
        ("also joins", [_shown(name) for name in hit.also]),
    ):
        if items:
            yield f"   {title}: {', '.join(items)}"


def _coverage(one: Coverage, hit: HitAnswer) -> str:
    return (
        f"{one.matched:,} of {hit.query_size:,} query values ({one.of_query:.1%}), "
        f"{one.of_target:.1%} of {hit.target_size:,} target values"
    )


def _pair(pair: Pair) -> str:
    if pair.similarity < 1:
        return f"{_shown(pair.query)} ≈ {_shown(pair.target)} ({pair.similarity:.2f})"
    if pair.query == pair.target:
        return _shown(pair.query)
    return f"{_shown(pair.query)} = {_shown(pair.target)}"


@_lines.register
def _preview(answer: PreviewAnswer) -> Iterator[str]:
    yield from _facts(answer.facts, answer.warnings)
    new = [one.column for one in answer.columns if one.is_new]
    yield f"New columns: {_listed(new)}"
    yield " | ".join(_shown(one.column) for one in answer.columns)
    for row in answer.rows:
        yield " | ".join(map(_cell, row))


@_lines.register
def _file(answer: FileAnswer) -> Iterator[str]:
    yield f"{answer.rows:,} rows ({answer.bytes:,} bytes) in {answer.path}"
    yield from _facts(answer.facts, answer.warnings)


def _facts(facts: FactsAnswer, warnings: Iterable[str]) -> Iterator[str]:
    meets = f" ({facts.cardinality})" if facts.matched_left_rows else ""
    yield (
        f"{facts.matched_left_rows:,} of {facts.left_rows:,} rows match{meets}, "
        f"{facts.matched_keys:,} of {facts.left_keys:,} distinct values; "
        f"{facts.result_rows:,} rows result (join {facts.join})."
    )
    for old, new in facts.renamed.items():
        yield f"Renamed: {_shown(old)} is {_shown(new)}."
    for warning in warnings:
        yield f"Warning: {warning}"


def _shown(text: str, width: int = _CELL * 4) -> str:
    return one_line(text, width)


def _cell(cell: str | None) -> str:
    return "" if cell is None else one_line(cell, _CELL)


def _at(table: str, column: str) -> str:
    return f"{_shown(table, 500)}:{_shown(column, 500)}"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(map(_shown, items)) or "none"
