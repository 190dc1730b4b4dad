"""What a join will do, before it runs: the pairs of values that match, and the rows that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.joining.session import Session
from deepjoin.joining.tables import SideTable
from deepjoin.matching.joinability import cardinality_of
from deepjoin.matching.values import SemanticMatching, match_values, nearest_values
from deepjoin.model import JoinFacts

#: The table of pairs: a canonical value of yours, one of theirs, their similarity.
PAIRS = "value_pairs"
#: How many values are encoded at a time.
_ENCODED = 1 << 16


@dataclass(frozen=True)
class KeyCounts:
    """Numbers about the keys of both sides; ``widest`` matches most rows on the right."""

    widest: str
    left_keys: int
    matched_keys: int
    matched_left_rows: int
    pairs: int
    max_left: int
    max_right: int
    equal_keys: int


class NearMiss(NamedTuple):
    """A value of yours without a match, and the most similar one of theirs."""

    yours: str
    theirs: str
    similarity: float


def count_keys(session: Session, left_keys: str, right_keys: str) -> KeyCounts:
    """Count matching keys over the tables that `collect_keys` made."""

    def by_key(keys: str) -> str:
        return (
            f"SELECT key, sum(number) AS number, min(cell) AS cell FROM {keys} "
            "WHERE key IS NOT NULL GROUP BY key"
        )

    # Counted in DuckDB, which spills keys that do not fit in memory.
    (*numbers, widest), *_ = session.run(
        f"WITH yours AS ({by_key(left_keys)}), theirs AS ({by_key(right_keys)}) "
        "SELECT (SELECT count(*) FROM yours), count(*), sum(yours.number), "
        "sum(yours.number * theirs.number), max(yours.number), max(theirs.number), count(*), "
        "arg_max(theirs.cell, (theirs.number, theirs.cell)) FROM yours JOIN theirs USING (key)"
    )
    return KeyCounts(widest or "", *(int(number or 0) for number in numbers))


def list_values(session: Session, keys: str, values: str) -> pa.ChunkedArray:
    """Store the distinct keys, numbered in order of first appearance, and return them."""
    session.run(
        f"CREATE TABLE IF NOT EXISTS {values} AS SELECT "
        "row_number() OVER (ORDER BY min(first), key) - 1 AS place, key, "
        "arg_min(cell, (first, cell)) AS cell, sum(number) AS number "
        f"FROM {keys} WHERE key IS NOT NULL GROUP BY key"
    )
    return session.table(f"SELECT key FROM {values} ORDER BY place")["key"]


def link_values(session: Session, semantic: SemanticMatching) -> None:
    """Match the values of both sides and store the pairs."""
    mine = list_values(session, "left_keys", "left_values")
    theirs = list_values(session, "right_keys", "right_values")
    # Places first, values afterwards: batches of numbers are cheap to insert.
    session.run("CREATE TABLE pair_places (yours BIGINT, theirs BIGINT, similarity BIGINT)")
    for pairs in match_values(mine, theirs, semantic):
        if len(pairs):
            columns = [pairs.mine, pairs.theirs, pairs.similarities]
            batch = pa.table(columns, names=["yours", "theirs", "similarity"])
            session.run("INSERT INTO pair_places SELECT * FROM batch", batch)
    session.run(
        f"CREATE TABLE {PAIRS} AS SELECT mine.key AS yours, other.key AS theirs, "
        "pair.similarity / 1e6 AS similarity FROM pair_places AS pair "
        "JOIN left_values AS mine ON mine.place = pair.yours "
        "JOIN right_values AS other ON other.place = pair.theirs "
        "ORDER BY pair.yours, pair.similarity DESC, pair.theirs"
    )
    session.run("DROP TABLE pair_places")


def count_links(session: Session) -> KeyCounts:
    """Count the rows that match through the table of pairs."""
    (*numbers, widest), *_ = session.run(
        "WITH met AS (SELECT mine.cell, mine.key, mine.number AS mine, other.key AS target, "
        f"other.number AS number FROM {PAIRS} AS pair "
        "JOIN left_values AS mine ON mine.key = pair.yours "
        "JOIN right_values AS other ON other.key = pair.theirs), "
        "yours AS (SELECT any_value(cell) AS cell, any_value(mine) AS mine, "
        "sum(number) AS number, bool_or(key = target) AS same FROM met GROUP BY key), "
        "theirs AS (SELECT sum(mine) AS number FROM met GROUP BY target) "
        "SELECT (SELECT count(*) FROM left_values), count(*), sum(mine), sum(mine * number), "
        "(SELECT max(number) FROM theirs), max(number), count(*) FILTER (same), "
        "arg_max(cell, (number, cell)) FROM yours"
    )
    return KeyCounts(widest or "", *(int(number or 0) for number in numbers))


def _unmatched(session: Session, pairs: str) -> pa.Table:
    """Return key and cell of the left values that are in no pair."""
    return session.table(
        "SELECT key, cell FROM left_values "
        f"WHERE key NOT IN (SELECT yours FROM {pairs}) ORDER BY place"
    )


def near_misses(
    session: Session, pairs: str, semantic: SemanticMatching, count: int
) -> list[NearMiss]:
    """List values of yours without a match, those most similar to one of theirs first."""
    list_values(session, "left_keys", "left_values")
    list_values(session, "right_keys", "right_values")
    rows = _unmatched(session, pairs)
    others = session.table("SELECT key, cell FROM right_values ORDER BY place")
    found = nearest_values(rows["key"], others["key"], semantic)
    # Similarities are millionths, so that ties are exact; of equal ones, the first row wins.
    order = np.lexsort((found.mine, -found.similarities))[:count]
    return [
        NearMiss(rows["cell"][mine].as_py(), others["cell"][theirs].as_py(), similarity / 1e6)
        for mine, theirs, similarity in zip(
            *(part.tolist() for part in vars(found.where(order)).values()), strict=True
        )
    ]


def join_facts(
    counts: KeyCounts, rows: tuple[int, int], how: str, many: str, renamed: Mapping[str, str]
) -> JoinFacts:
    """Derive the facts from the counts; ``rows`` are those of the left and the right table."""
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


def warnings_of(
    facts: JoinFacts, widest: str, how: str, left: SideTable, right: SideTable
) -> list[str]:
    """Say what a user wants to know before running the join."""
    warnings = [
        f"Column '{column.original}' of {source.table} is called '{column.name}' in the result."
        for source in (left, right)
        for column in source.columns
        if column.original != column.name
    ]
    # Rows that multiply are the mistake that is noticed last.
    before = facts.left_rows if how == "left" else facts.matched_left_rows
    if not facts.matched_keys:
        hint = "another column, or a lower `tau`" if facts.join == "semantic" else "another column"
        warnings.append(f"No row of {left.table} has a match in {right.table}. Try {hint}.")
    elif facts.result_rows > before:
        has = "has" if facts.join == "equi" else "matches"
        warnings.append(
            f"{before:,} rows become {facts.result_rows:,}: '{_shortened(widest)}' {has} "
            f'{facts.max_fan_out:,} rows in {right.table}. Use `many="first"` or '
            '`many="aggregate"` to keep one row per row of yours.'
        )
    return warnings


def semantic_warnings(session: Session, semantic: SemanticMatching, left: SideTable) -> list[str]:
    """Say what may be wrong with the matches of a semantic join."""
    warnings = []
    if semantic.bound < semantic.encoder.floor:
        warnings.append(
            f"`tau` is {semantic.bound:g}: below {semantic.encoder.floor:g}, similar values of "
            "this cell encoder are mostly coincidences. Check the similarity column."
        )
    # A zero vector means that the encoder knows no word of the value.
    rows = _unmatched(session, PAIRS)
    unknown: list[str] = []
    for start in range(0, len(rows), _ENCODED):
        part = rows.slice(start, _ENCODED)
        vectors = semantic.encoder.encode(part["key"].combine_chunks())
        unknown += part["cell"].filter(pa.array(~vectors.any(axis=1))).to_pylist()
    if unknown:
        one = len(unknown) == 1
        warnings.append(
            f"{len(unknown):,} {'value' if one else 'values'} of {left.table} "
            f"{'has' if one else 'have'} no word that the cell encoder knows, so "
            f"{'it can only match an equal value:' if one else 'they only match equal ones, e.g.'} "
            f"'{_shortened(unknown[0])}'."
        )
    return warnings


def _shortened(cell: str) -> str:
    text = " ".join(cell.split())
    return text if len(text) <= 60 else text[:59] + "…"
