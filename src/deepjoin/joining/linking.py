"""Puts the matches of two key columns where SQL can join through them, and counts what follows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.joining.facts import KeyCounts
from deepjoin.joining.session import Session
from deepjoin.matching.matching import Semantic, match_values, nearest_values
from deepjoin.matching.similar import ValuePairs

#: The table of pairs: a canonical value of yours, one of theirs, their similarity.
PAIRS = "value_pairs"
_ENCODED = 1 << 16


class NearMiss(NamedTuple):
    """A value of yours that matches nothing, and the most similar one of theirs."""

    yours: str
    theirs: str
    similarity: float


def list_values(session: Session, keys: str, values: str) -> pa.ChunkedArray:
    """Give the distinct keys places in order of first appearance, and return them."""
    session.run(
        f"CREATE TABLE IF NOT EXISTS {values} AS SELECT "
        "row_number() OVER (ORDER BY min(first), key) - 1 AS place, key, "
        "arg_min(cell, (first, cell)) AS cell, sum(number) AS number "
        f"FROM {keys} WHERE key IS NOT NULL GROUP BY key"
    )
    return session.table(f"SELECT key FROM {values} ORDER BY place")["key"]


def link_values(session: Session, semantic: Semantic) -> None:
    """Match the values of both sides and store the pairs."""
    mine = list_values(session, "left_keys", "left_values")
    theirs = list_values(session, "right_keys", "right_values")
    session.run("CREATE TABLE pair_places (yours BIGINT, theirs BIGINT, similarity BIGINT)")
    for pairs in match_values(mine, theirs, semantic):
        if len(pairs):
            session.run("INSERT INTO pair_places SELECT * FROM batch", _table(pairs))
    session.run(
        f"CREATE TABLE {PAIRS} AS SELECT mine.key AS yours, other.key AS theirs, "
        "pair.similarity / 1e6 AS similarity FROM pair_places AS pair "
        "JOIN left_values AS mine ON mine.place = pair.yours "
        "JOIN right_values AS other ON other.place = pair.theirs "
        "ORDER BY pair.yours, pair.similarity DESC, pair.theirs"
    )
    session.run("DROP TABLE pair_places")


def _table(pairs: ValuePairs) -> pa.Table:
    columns = [pairs.mine, pairs.theirs, pairs.similarities]
    return pa.table(columns, names=["yours", "theirs", "similarity"])


def count_links(session: Session) -> KeyCounts:
    """Count rows that meet over the table of pairs."""
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


def unknown_values(session: Session, semantic: Semantic) -> list[str]:
    """List values of yours without a match that the encoder knows nothing of."""
    rows = session.table(f"{_UNMATCHED.format(pairs=PAIRS)} ORDER BY place")
    unknown = []
    for start in range(0, len(rows), _ENCODED):
        part = rows.slice(start, _ENCODED)
        vectors = semantic.encoder.encode(part["key"].combine_chunks())
        unknown += part["cell"].filter(pa.array(~vectors.any(axis=1))).to_pylist()
    return unknown


_UNMATCHED = "SELECT key, cell FROM left_values WHERE key NOT IN (SELECT yours FROM {pairs})"


def near_misses(session: Session, pairs: str, semantic: Semantic, count: int) -> list[NearMiss]:
    """List values of yours without a match, those most similar to one of theirs first."""
    list_values(session, "left_keys", "left_values")
    list_values(session, "right_keys", "right_values")
    rows = session.table(f"{_UNMATCHED.format(pairs=pairs)} ORDER BY place")
    others = session.table("SELECT key, cell FROM right_values ORDER BY place")
    found = nearest_values(rows["key"], others["key"], semantic)
    order = np.lexsort((found.mine, -found.similarities))[:count]
    return [
        NearMiss(rows["cell"][mine].as_py(), others["cell"][theirs].as_py(), similarity / 1e6)
        for mine, theirs, similarity in zip(
            *(part.tolist() for part in vars(found.where(order)).values()), strict=True
        )
    ]
