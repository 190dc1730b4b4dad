"""Match two columns without a lake: equal values, values that a program rewrites, similar ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from deepjoin.arrays import Int
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.matching.careful import ScoredPairs
from deepjoin.matching.decisions import Decisions, Given, write_doubtful
from deepjoin.matching.linking import TIE_CHANCE, Linkage, estimated, link
from deepjoin.model import Column, Match, Matches, NearMatch
from deepjoin.normalise.cells import DistinctCells, distinct_cells
from deepjoin.read.frames import as_columns

JOINS = ("any", "equi", "semantic")
#: Near misses that are kept, and the least chance of one.
_NEAR, _NEAR_CHANCE = 1000, 0.05
#: Between the cells of a row that is matched on several columns.
_BETWEEN = " | "


def match(
    left: object,
    right: object,
    *,
    join: str = "any",
    precision: float | None = None,
    decisions: Given | None = None,
    doubtful: str | os.PathLike[str] | None = None,
) -> Matches:
    """Match the values of two columns, without a lake.

    >>> match(["Peru", "FRANCE", "Smith, Anna"], ["France", "Chile"]).pairs
    [('FRANCE', 'France')]

    Parameters
    ----------
    left, right
        Lists, Series or arrays of cells; or frames whose columns are matched together, row by row.
    join
        "equi" for equal values; "semantic" for equal and similar values; "any" also for values that
        a program rewrites, as "Last, First" to "First Last". The program is shown with the result.
    precision
        The least estimated precision of all pairs, from 0 to 1: similar values are taken, likeliest
        first, as long as it is reached. By default, those with a chance of at least .5 match.
    decisions
        What people decided about pairs: (query, target, True or False), or a CSV file with the
        columns query, target and decision (accept, reject or empty). Accepted pairs match whatever
        their chance, rejected ones never do.
    doubtful
        A CSV file to write doubtful pairs to, with an empty column decision: fill it in and give
        the file back as ``decisions``. Decisions that were given are kept in it.
    """
    if precision is not None and not (
        isinstance(precision, int | float | np.floating) and 0 < precision <= 1
    ):
        raise DeepJoinError(f"`precision` is {precision!r}; it must be above 0 and at most 1.")
    if join not in JOINS:
        raise unknown_name("join kind", str(join), "a match", JOINS)
    mine, theirs = (distinct_cells(_cells(side)) for side in (left, right))
    encoder = load_cell_encoder() if join != "equi" else None
    spellings = mine.spellings, theirs.spellings
    decided = Decisions.of(decisions)
    options = decided.options(mine.values, theirs.values, precision)
    found = link(mine.values, theirs.values, join, encoder, spellings, options)
    matches: list[tuple[int, Match]] = []
    for part in found.links:
        columns = part.left.tolist(), part.right.tolist(), part.chances.tolist()
        for one, other, chance in zip(*columns, strict=True):
            made = Match(mine.spellings[one], theirs.spellings[other], round(chance, 6), part.how)
            matches.append((one, made))
    matches.sort(key=lambda item: item[0])
    held = np.unique([one for one, _ in matches]).astype(np.int64)
    answer = Matches(
        tuple(one for _, one in matches),
        tuple(found.programs),
        _precision(found),
        *_near(found.others, mine, theirs, held),
        tuple(np.array(mine.spellings, object)[np.setdiff1d(np.arange(len(mine)), held)].tolist()),
        (len(mine), len(theirs)),
    )
    if doubtful is not None:
        similar = ((*one[:3],) for one in answer.matches if one.how == "similar")
        others = (
            (one.query, one.target, one.chance) for one in (*answer.near_misses, *answer.ties)
        )
        write_doubtful((*similar, *others), Path(doubtful).expanduser(), decided)
    return answer


def _cells(side: object) -> list[str | None]:
    columns: list[Column] = as_columns(side)
    if len(columns) == 1:
        return list(columns[0].cells)
    rows = zip(*(one.cells for one in columns), strict=True)
    return [None if None in row else _BETWEEN.join(map(str, row)) for row in rows]


def _precision(found: Linkage) -> float | None:
    """Estimate the share of the pairs that are right, without labels."""
    every = np.concatenate([estimated(part) for part in found.links])
    return round(float(every.mean()), 4) if len(every) else None


def _near(
    others: ScoredPairs, mine: DistinctCells, theirs: DistinctCells, held: Int
) -> tuple[tuple[NearMatch, ...], tuple[NearMatch, ...]]:
    """List near misses of values without a match, and ties of those with one; likeliest first."""
    near = others.where(np.argsort(-others.chances, kind="stable"))
    has_match = np.zeros(len(mine), bool)
    has_match[held] = True
    parts = []
    for chosen in (
        ~has_match[near.left] & (near.chances >= _NEAR_CHANCE),
        has_match[near.left] & (near.chances >= TIE_CHANCE),
    ):
        some = near.where(np.flatnonzero(chosen)[:_NEAR])
        columns = some.left.tolist(), some.right.tolist(), some.chances.tolist()
        parts.append(
            tuple(
                NearMatch(mine.spellings[one], theirs.spellings[other], round(chance, 6))
                for one, other, chance in zip(*columns, strict=True)
            )
        )
    return parts[0], parts[1]
