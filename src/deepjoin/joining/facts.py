"""What a join will do, counted before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepjoin.joining.session import Session
from deepjoin.joining.side import Source
from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import JoinFacts


@dataclass(frozen=True)
class KeyCounts:
    """What the keys of both sides have in common; ``widest`` meets most rows on the right."""

    widest: str
    left_keys: int
    matched_keys: int
    matched_left_rows: int
    pairs: int
    max_left: int
    max_right: int
    equal_keys: int


def count_keys(session: Session, left_keys: str, right_keys: str) -> KeyCounts:
    """Count over the tables that `collect_keys` made."""
    counts = session.run(
        f"WITH yours AS ({_by_key(left_keys)}), theirs AS ({_by_key(right_keys)}) "
        "SELECT (SELECT count(*) FROM yours), count(*), sum(yours.number), "
        "sum(yours.number * theirs.number), max(yours.number), max(theirs.number), count(*), "
        "arg_max(theirs.cell, (theirs.number, theirs.cell)) FROM yours JOIN theirs USING (key)"
    )[0]
    *numbers, widest = counts
    return KeyCounts(widest or "", *(int(number or 0) for number in numbers))


def _by_key(keys: str) -> str:
    return (
        f"SELECT key, sum(number) AS number, min(cell) AS cell FROM {keys} "
        "WHERE key IS NOT NULL GROUP BY key"
    )


def join_facts(
    counts: KeyCounts, rows: tuple[int, int], how: str, many: str, renamed: Mapping[str, str]
) -> JoinFacts:
    """Say what follows from the counts; ``rows`` are those of the left and the right table."""
    left_rows, right_rows = rows
    matched = counts.pairs if many == "expand" else counts.matched_left_rows
    unmatched = left_rows - counts.matched_left_rows if how == "left" else 0
    return JoinFacts(
        left_rows=left_rows,
        right_rows=right_rows,
        left_keys=counts.left_keys,
        matched_keys=counts.matched_keys,
        matched_left_rows=counts.matched_left_rows,
        result_rows=matched + unmatched,
        cardinality=cardinality_of(counts.max_left, counts.max_right),
        max_fan_out=counts.max_right,
        renamed=renamed,
        equal_keys=counts.equal_keys,
    )


def warn(facts: JoinFacts, widest: str, how: str, left: Source, right: Source) -> list[str]:
    """Say what a user would want to know before running the join."""
    warnings = [
        f"Column '{column.original}' of {source.table} is called '{column.name}' in the result."
        for source in (left, right)
        for column in source.columns
        if column.original != column.name
    ]
    before = facts.left_rows if how == "left" else facts.matched_left_rows
    if not facts.matched_keys:
        lower = ", or a lower --tau: --near-misses 10 shows what is near"
        hint = f"Try another column{lower if facts.join == 'semantic' else ''}."
        warnings.append(f"No row of {left.table} has a match in {right.table}. {hint}")
    elif facts.result_rows > before:
        has = "has" if facts.join == "equi" else "matches"
        warnings.append(
            f"{before:,} rows become {facts.result_rows:,}: '{short(widest)}' {has} "
            f"{facts.max_fan_out:,} rows in {right.table}. Use --many first or --many aggregate "
            "to keep one row per row of yours."
        )
    return warnings


def short(cell: str) -> str:
    """Write a cell so that it fits into a line."""
    text = " ".join(cell.split())
    return text if len(text) <= 60 else text[:59] + "…"
