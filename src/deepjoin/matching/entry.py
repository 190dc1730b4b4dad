"""Match two columns without a lake: equal values, values that a program rewrites, similar ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Double, Int
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.matching.candidates import leading
from deepjoin.matching.careful import ScoredPairs, scored_pairs
from deepjoin.matching.programs import Rewriting, find_programs
from deepjoin.model import Column, Match, Matches, NearMatch, Program
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.normalise.distinct import DistinctCells, distinct_cells
from deepjoin.read.frames import as_columns

JOINS = ("any", "equi", "semantic")
#: The least chance of being right that makes two similar values match.
LEAST_CHANCE = 0.5
#: An alternative has at least this share of the chance of the match.
_CLOSE = 0.6
#: Near misses that are kept, and the least chance of one.
_NEAR, _NEAR_CHANCE = 1000, 0.05
#: How often pairs of a program are right, on the benchmark of programs.
_PROGRAM_PRECISION = 0.97
#: Between the cells of a row that is matched on several columns.
_BETWEEN = " | "


class Linked(NamedTuple):
    """Pairs of values that match: places in both lists, the chance of each, and how it was found."""

    left: Int
    right: Int
    chances: Double
    how: str


@dataclass(frozen=True)
class Linkage:
    """Everything that was found out about two lists of distinct values."""

    links: list[Linked]
    programs: list[Program]
    #: Scored pairs that are not among the links.
    others: ScoredPairs


def match(left: object, right: object, *, join: str = "any") -> Matches:
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
    """
    if join not in JOINS:
        raise unknown_name("join kind", str(join), "a match", JOINS)
    mine, theirs = (distinct_cells(_cells(side, name)) for side, name in
                    ((left, "left"), (right, "right")))  # fmt: skip
    encoder = load_cell_encoder() if join != "equi" else None
    found = link(mine, theirs, join, encoder)
    matches: list[tuple[int, Match]] = []
    for part in found.links:
        columns = part.left.tolist(), part.right.tolist(), part.chances.tolist()
        for one, other, chance in zip(*columns, strict=True):
            made = Match(mine.spellings[one], theirs.spellings[other], round(chance, 6), part.how)
            matches.append((one, made))
    matches.sort(key=lambda item: item[0])
    held = np.unique([one for one, _ in matches]).astype(np.int64)
    return Matches(
        tuple(one for _, one in matches),
        tuple(found.programs),
        _precision(found),
        *_near(found.others, mine, theirs, held),
        tuple(np.array(mine.spellings, object)[np.setdiff1d(np.arange(len(mine)), held)].tolist()),
        (len(mine), len(theirs)),
    )


def _cells(side: object, name: str) -> list[str | None]:
    columns: list[Column] = as_columns(side)
    if not columns:
        raise DeepJoinError(f"`{name}` has no columns: pass a list of cells or a frame.")
    if len(columns) == 1:
        return list(columns[0].cells)
    rows = zip(*(one.cells for one in columns), strict=True)
    return [None if None in row else _BETWEEN.join(map(str, row)) for row in rows]


def link(
    mine: DistinctCells, theirs: DistinctCells, join: str, encoder: CellEncoder | None
) -> Linkage:
    """Decide which values match: equal ones first, then by program, then similar ones."""
    places = {value: at for at, value in enumerate(theirs.values)}
    equal = np.fromiter(map(places.get, mine.values, repeat(-1)), np.int64, len(mine.values))
    same = np.flatnonzero(equal >= 0)
    links = [Linked(same, equal[same], np.ones(len(same)), "equal")]
    programs: list[Program] = []
    none = ScoredPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    if join == "equi":
        return Linkage(links, programs, none)
    free = equal < 0
    if join == "any":
        for one in find_programs(mine.spellings, theirs.spellings, np.flatnonzero(free)):
            links.append(_by_program(one))
            programs.append(one.program)
            free[one.left] = False
    scored = similar_pairs(mine.values, theirs.values, equal, free, join, encoder)
    best = leading(scored.left, scored.chances, 1)
    best = best[scored.chances[best] >= LEAST_CHANCE]
    links.append(Linked(scored.left[best], scored.right[best], scored.chances[best], "similar"))
    rest = np.ones(len(scored), bool)
    rest[best] = False
    return Linkage(links, programs, scored.where(rest))


def similar_pairs(
    mine: list[str], theirs: list[str], equal: Int, free: Int, join: str,
    encoder: CellEncoder | None,
) -> ScoredPairs:  # fmt: skip
    """Score similar values of those that are free; numbers and dates are never similar."""
    texts = [_is_text(mine, join), _is_text(theirs, join)]
    rows, others = np.flatnonzero(free & texts[0] | (equal >= 0)), np.flatnonzero(texts[1])
    place = np.full(len(theirs), -1, np.int64)
    place[others] = np.arange(len(others))
    known = np.where(equal[rows] >= 0, place[equal[rows]], -1)
    # A value whose equal one is no text must not look for another.
    rows, known = (part[(equal[rows] < 0) | (known >= 0)] for part in (rows, known))
    scored = scored_pairs([mine[at] for at in rows.tolist()],
                          [theirs[at] for at in others.tolist()], known, encoder)  # fmt: skip
    return ScoredPairs(rows[scored.left], others[scored.right], scored.chances)


def _is_text(values: list[str], join: str) -> Int:
    if join == "semantic" or not values:
        return np.ones(len(values), bool)  # type: ignore[return-value]
    kinds = cell_types(pa.array([value[:400] for value in values], pa.large_string()))
    return np.asarray(kinds) == CellType.TEXT  # type: ignore[return-value]


def _by_program(one: Rewriting) -> Linked:
    return Linked(one.left, one.right, np.ones(len(one.left)), "program")


def _precision(found: Linkage) -> float | None:
    """Estimate the share of the pairs that are right, without labels."""
    chances = [
        np.full(len(part.left), _PROGRAM_PRECISION) if part.how == "program" else part.chances
        for part in found.links
    ]
    every = np.concatenate(chances)
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
        has_match[near.left] & (near.chances >= _CLOSE * LEAST_CHANCE),
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
