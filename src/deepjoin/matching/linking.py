"""Which values of two columns match, and how: the order of the ways, and what counts as similar."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Double, Int, Marks
from deepjoin.embed.cells import CellEncoder
from deepjoin.matching.candidates import leading
from deepjoin.matching.careful import ScoredPairs, scored_pairs
from deepjoin.matching.programs import Rewriting, find_programs
from deepjoin.model import Program
from deepjoin.normalise.canonical import CellType, cell_types

#: The least chance of being right that makes two similar values match.
LEAST_CHANCE = 0.5
#: Another candidate with at least this chance makes a match ambiguous.
TIE_CHANCE = 0.3
#: Characters of a value that are compared for similarity.
_LONGEST = 1000


class Linked(NamedTuple):
    """Pairs of values that match: places in both lists, their chances, how they were found."""

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


def link(
    mine: list[str], theirs: list[str], join: str, encoder: CellEncoder | None,
    spellings: tuple[list[str], list[str]] | None = None,
) -> Linkage:  # fmt: skip
    """Decide which values match: equal ones first, then by program, then similar ones.

    Values are distinct and canonical; programs rewrite their ``spellings``, if given.
    """
    places = {value: at for at, value in enumerate(theirs)}
    equal = np.fromiter(map(places.get, mine, repeat(-1)), np.int64, len(mine))
    same = np.flatnonzero(equal >= 0)
    links = [Linked(same, equal[same], np.ones(len(same)), "equal")]
    programs: list[Program] = []
    none = ScoredPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    if join == "equi":
        return Linkage(links, programs, none)
    free = equal < 0
    if join == "any":
        for one in find_programs(*(spellings or (mine, theirs)), np.flatnonzero(free)):
            links.append(_by_program(one))
            programs.append(one.program)
            free[one.left] = False
    scored = similar_pairs(mine, theirs, equal, free, join, encoder)
    best = leading(scored.left, scored.chances, 1)
    best = best[scored.chances[best] >= LEAST_CHANCE]
    links.append(Linked(scored.left[best], scored.right[best], scored.chances[best], "similar"))
    rest = np.ones(len(scored), bool)
    rest[best] = False
    return Linkage(links, programs, scored.where(rest))


def similar_pairs(
    mine: list[str], theirs: list[str], equal: Int, free: Marks, join: str,
    encoder: CellEncoder | None,
) -> ScoredPairs:  # fmt: skip
    """Score similar values of those that are free; numbers and dates are never similar."""
    if not mine or not theirs:
        return ScoredPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    mine, theirs = _storable(mine), _storable(theirs)
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


def _storable(values: list[str]) -> list[str]:
    """Replace lone surrogates, which fit no Arrow string, and cut texts that are no keys."""
    short = [value[:_LONGEST] for value in values]
    try:
        "".join(short).encode()
    except UnicodeEncodeError:
        return [value.encode("utf-8", "replace").decode() for value in short]
    return short


def _is_text(values: list[str], join: str) -> Marks:
    if join == "semantic" or not values:
        return np.ones(len(values), bool)
    kinds = cell_types(pa.array(values, pa.large_string()))
    return np.asarray(np.asarray(kinds) == CellType.TEXT)


def _by_program(one: Rewriting) -> Linked:
    return Linked(one.left, one.right, np.ones(len(one.left)), "program")
