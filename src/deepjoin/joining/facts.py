"""What a join will do, before it runs: the pairs of values that match, and the rows that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.joining.session import Session
from deepjoin.joining.tables import SideTable
from deepjoin.matching.joinability import cardinality_of
from deepjoin.matching.similar import ValuePairs
from deepjoin.matching.values import (
    SemanticMatching,
    match_values,
    nearest_values,
    rewritten_values,
)
from deepjoin.model import JoinFacts, SeveralMatches
from deepjoin.settings import fields_of

#: The table of pairs: a canonical value of yours, one of theirs, their similarity, and cells of
#: theirs that are nearly as similar.
PAIRS = "value_pairs"
#: Examples of keys with several matches.
_EXAMPLES = 5
#: Pairs of values that a join compares without being asked to: about two minutes on two cores.
_COMPARED = 5_000_000_000
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
    several_left_rows: int
    ambiguous_keys: int
    ambiguous_left_rows: int


class NearMiss(NamedTuple):
    """A value of yours without a match, and the most similar one of theirs."""

    yours: str
    theirs: str
    similarity: float


def count_keys(session: Session, pairs: str | None) -> KeyCounts:
    """Count matching keys and rows: equal keys, or those of a table of pairs."""
    _store_met(session, pairs)
    # Counted in DuckDB, which spills keys that do not fit in memory.
    (*numbers, widest), *_ = session.run(
        "WITH theirs AS (SELECT sum(mine) AS number FROM met GROUP BY target), "
        "yours AS (SELECT any_value(cell) AS cell, any_value(mine) AS mine, "
        "sum(number) AS number, bool_or(key = target) AS same, "
        "bool_or(others IS NOT NULL) AS doubtful FROM met GROUP BY key) "
        "SELECT (SELECT count(DISTINCT key) FROM left_keys), count(*), sum(mine), "
        "sum(mine * number), (SELECT max(number) FROM theirs), max(number), "
        "count(*) FILTER (same), sum(mine) FILTER (number > 1), count(*) FILTER (doubtful), "
        "sum(mine) FILTER (doubtful), arg_max(cell, (number, cell)) FROM yours"
    )
    return KeyCounts(widest or "", *(int(number or 0) for number in numbers))


def _store_met(session: Session, pairs: str | None) -> None:
    """Store the keys of both sides that match, their rows and their alternatives."""
    linked = pairs or (
        "(SELECT key AS yours, key AS theirs, CAST(1 AS DOUBLE) AS similarity, "
        "CAST(NULL AS VARCHAR[]) AS others FROM mine)"
    )

    def by_key(keys: str) -> str:
        return (
            f"SELECT key, sum(number) AS number, min(cell) AS cell FROM {keys} "
            "WHERE key IS NOT NULL GROUP BY key"
        )

    session.run(
        f"CREATE TABLE met AS WITH mine AS ({by_key('left_keys')}), "
        f"other AS ({by_key('right_keys')}) "
        "SELECT mine.key, mine.cell, mine.number AS mine, other.key AS target, "
        "other.cell AS target_cell, other.number, pair.similarity, pair.others "
        f"FROM {linked} AS pair JOIN mine ON mine.key = pair.yours "
        "JOIN other ON other.key = pair.theirs"
    )


def several_matches(session: Session) -> tuple[SeveralMatches, ...]:
    """List keys with alternatives, or with several matching rows; those of most rows first."""
    rows = session.run(
        "WITH yours AS (SELECT key, any_value(cell) AS cell, any_value(mine) AS mine, "
        "list(target_cell ORDER BY similarity DESC, target) AS targets, sum(number) AS number, "
        "max(similarity) AS similarity, any_value(others) AS others FROM met GROUP BY key) "
        "SELECT cell, mine, targets, number, similarity, others FROM yours "
        "WHERE number > 1 OR others IS NOT NULL "
        f"ORDER BY others IS NULL, mine DESC, number DESC, key LIMIT {_EXAMPLES}"
    )
    return tuple(
        SeveralMatches(
            query=cell,
            left_rows=int(mine),
            targets=(*targets, *(others or ()))[:_EXAMPLES],
            target_rows=int(number),
            similarity=similarity,
            ambiguous=others is not None,
        )
        for cell, mine, targets, number, similarity, others in rows
    )


def is_spelled_alike(session: Session) -> bool:
    """Return whether every match is between cells of the same text."""
    differs = "met JOIN left_keys USING (key) JOIN right_keys ON right_keys.key = met.target "
    return not session.count(f"{differs} WHERE left_keys.cell <> right_keys.cell")


def list_values(session: Session, keys: str, values: str) -> pa.ChunkedArray:
    """Store the distinct keys, numbered in order of first appearance, and return them."""
    session.run(
        f"CREATE TABLE IF NOT EXISTS {values} AS SELECT "
        "row_number() OVER (ORDER BY min(first), key) - 1 AS place, key, "
        "arg_min(cell, (first, cell)) AS cell, sum(number) AS number "
        f"FROM {keys} WHERE key IS NOT NULL GROUP BY key"
    )
    return session.table(f"SELECT key FROM {values} ORDER BY place")["key"]


def too_many_values(session: Session, parts: int = 1) -> str:
    """Return a warning if comparing all values that have no equal would take long, else ""."""
    if parts > 1:
        said = (_too_many(session, f"_{number}") for number in range(1, parts + 1))
        return next((one for one in said if one), "")
    return _too_many(session, "")


def _too_many(session: Session, part: str) -> str:
    theirs = f"(SELECT DISTINCT key FROM right_keys{part} WHERE key IS NOT NULL)"
    unequal = session.count(
        f"(SELECT DISTINCT key FROM left_keys{part} WHERE key IS NOT NULL "
        f"AND key NOT IN (SELECT key FROM {theirs}))"
    )
    others = session.count(theirs)
    if unequal * others <= _COMPARED:
        return ""
    return (
        f"Only equal values were compared: {unequal:,} values without an equal one and {others:,} "
        'values to compare them with would take long. Use `join="semantic"` to compare them.'
    )


def link_values(session: Session, semantic: SemanticMatching) -> None:
    """Match the values of both sides and store the pairs."""
    mine = list_values(session, "left_keys", "left_values")
    theirs = list_values(session, "right_keys", "right_values")
    # Places first, values afterwards: batches of numbers are cheap to insert.
    names = ("yours", "theirs", "similarity")
    for table in ("pair_places", "close_places"):
        session.run(f"CREATE TABLE {table} ({' BIGINT, '.join(names)} BIGINT)")
    for matched in match_values(mine, theirs, semantic):
        for table, pairs in zip(("pair_places", "close_places"), matched, strict=True):
            if len(pairs):
                columns = [pairs.mine, pairs.theirs, pairs.similarities]
                batch = pa.table(columns, names=names)
                session.run(f"INSERT INTO {table} SELECT * FROM batch", batch)
    session.run(
        f"CREATE TABLE {PAIRS} AS WITH close AS (SELECT close.yours, "
        "list(other.cell ORDER BY close.similarity DESC, close.theirs) AS cells "
        "FROM close_places AS close JOIN right_values AS other ON other.place = close.theirs "
        "GROUP BY close.yours) "
        "SELECT mine.key AS yours, other.key AS theirs, pair.similarity / 1e6 AS similarity, "
        "array_to_string(close.cells, '; ') AS alternatives, close.cells AS others "
        "FROM pair_places AS pair "
        "JOIN left_values AS mine ON mine.place = pair.yours "
        "JOIN right_values AS other ON other.place = pair.theirs "
        "LEFT JOIN close ON close.yours = pair.yours "
        "ORDER BY pair.yours, pair.similarity DESC, pair.theirs"
    )
    session.run("DROP TABLE pair_places; DROP TABLE close_places")


def link_tuples(
    session: Session, semantic: SemanticMatching, parts: int, programs: bool = False
) -> None:
    """Match the tuples of both sides, each part equal or similar, and store the pairs.

    A pair is as similar as its least similar part. With ``programs``, parts match by one as well.
    """
    if semantic.matching == "one-to-one":
        raise DeepJoinError(
            '`matching="one-to-one"` is for a key of one column, and this one has '
            f'{parts}. Use `matching="best"` or `matching="all"`.'
        )
    numbers = range(1, parts + 1)
    every = replace(semantic, matching="all")
    for n in numbers:
        mine = list_values(session, f"left_keys_{n}", f"left_values_{n}")
        theirs = list_values(session, f"right_keys_{n}", f"right_values_{n}")
        session.run(f"CREATE TABLE places_{n} (yours BIGINT, theirs BIGINT, similarity BIGINT)")
        by_program = rewritten_values(mine, theirs, semantic) if programs else ValuePairs.none()
        matched = (pairs for pairs, _ in match_values(mine, theirs, every))
        for pairs in chain([by_program], matched):
            columns = [pairs.mine, pairs.theirs, pairs.similarities]
            if len(pairs):
                batch = pa.table(columns, names=("yours", "theirs", "similarity"))
                session.run(f"INSERT INTO places_{n} SELECT * FROM batch", batch)
        if len(by_program):
            session.run(
                f"CREATE OR REPLACE TABLE places_{n} AS SELECT yours, theirs, "
                f"max(similarity) AS similarity FROM places_{n} GROUP BY yours, theirs"
            )
    list_values(session, "left_keys", "left_values")
    list_values(session, "right_keys", "right_values")
    similar = ", ".join(f"places_{n}.similarity" for n in numbers)
    linked = " ".join(
        f"JOIN left_values_{n} ON left_values_{n}.key = mine.key_{n} "
        f"JOIN places_{n} ON places_{n}.yours = left_values_{n}.place "
        f"JOIN right_values_{n} ON right_values_{n}.place = places_{n}.theirs"
        for n in numbers
    )
    same = " AND ".join(f"other.key_{n} = right_values_{n}.key" for n in numbers)
    keys = ", ".join(f"key_{n}" for n in numbers)
    tuples = f"SELECT key, {keys}, min(first) AS first FROM {{}} WHERE key IS NOT NULL GROUP BY ALL"
    best = "QUALIFY row_number() OVER (PARTITION BY yours ORDER BY similarity DESC, place) = 1"
    session.run(
        f"CREATE TABLE {PAIRS} AS SELECT yours, theirs, similarity, CAST(NULL AS VARCHAR) AS "
        "alternatives, CAST(NULL AS VARCHAR[]) AS others FROM ("
        f"SELECT mine.key AS yours, other.key AS theirs, least({similar}) / 1e6 AS similarity, "
        f"mine.first AS first, other.first AS place FROM ({tuples.format('left_keys')}) AS mine "
        f"{linked} JOIN ({tuples.format('right_keys')}) AS other ON {same}) "
        f"{'' if semantic.matching == 'all' else best} ORDER BY first, similarity DESC, place"
    )


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
    changed = {
        **{"left_rows": left_rows, "right_rows": right_rows, "renamed": renamed},
        "matched_keys": counts.matched_keys - counts.ambiguous_keys,
        "matched_left_rows": counts.matched_left_rows - counts.ambiguous_left_rows,
        "result_rows": matched + unmatched,
        "cardinality": cardinality_of(counts.max_left, counts.max_right),
        "max_fan_out": counts.max_right,
    }
    return JoinFacts(**fields_of(JoinFacts, counts) | changed)


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
    joined = facts.matched_left_rows + facts.ambiguous_left_rows
    before = facts.left_rows if how == "left" else joined
    if not joined:
        hint = "another column" if facts.tau is None else "another column, or a lower `tau`"
        warnings.append(f"No row of {left.table} has a match in {right.table}. Try {hint}.")
    elif facts.result_rows > before:
        has = "matches" if facts.similarity else "has"
        warnings.append(
            f"{before:,} rows become {facts.result_rows:,}: '{_shortened(widest)}' {has} "
            f'{facts.max_fan_out:,} rows in {right.table}. Use `many="first"` or '
            '`many="aggregate"` to keep one row per row of yours.'
        )
    if facts.ambiguous_left_rows:
        one, count = facts.several[0], facts.ambiguous_left_rows
        first, second = (f"'{_shortened(target)}'" for target in one.targets[:2])
        warnings.append(
            f"{count:,} of {facts.left_rows:,} rows {'is' if count == 1 else 'are'} ambiguous: "
            f"'{_shortened(one.query)}' is joined with {first} but is nearly as similar to "
            f"{second}. See the column '{facts.alternatives}', or keep every candidate with "
            '`matching="all"`.'
        )
    return warnings


def semantic_warnings(session: Session, semantic: SemanticMatching, left: SideTable) -> list[str]:
    """Say what may be wrong with the matches of a semantic join."""
    warnings = []
    if not semantic.careful and semantic.bound < semantic.encoder.floor:
        warnings.append(
            f"`tau` is {semantic.bound:g}: below {semantic.encoder.floor:g}, similar values of "
            "this cell encoder are mostly coincidences. Check the similarity column."
        )
    if semantic.join == "any":
        return warnings
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
