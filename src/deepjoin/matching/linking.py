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

#: The least chance of being right that makes two similar values match: with it, 90% of the pairs of
#: sets that the models have not seen are right.
LEAST_CHANCE = 0.5
#: Another candidate with at least this chance makes a match ambiguous.
TIE_CHANCE = 0.3
#: Characters of a value that are compared for similarity.
_LONGEST = 1000
#: How often pairs of a program are right, on the benchmark of programs.
PROGRAM_PRECISION = 0.97
#: The least chance of a similar pair where a precision was requested.
_REQUESTED_CHANCE = 0.2


@dataclass(frozen=True)
class LinkOptions:
    """What a caller wants of the pairs, and what people decided about some of them."""

    #: The estimated precision to reach; None for pairs with a chance of at least .5.
    precision: float | None = None
    #: Pairs of places that people accepted or rejected.
    accepted: tuple[tuple[int, int], ...] = ()
    rejected: frozenset[tuple[int, int]] = frozenset()


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
    spellings: tuple[list[str], list[str]] | None = None, options: LinkOptions = LinkOptions(),
) -> Linkage:  # fmt: skip
    """Decide which values match: equal ones first, then by program, then similar ones.

    Values are distinct and canonical; programs rewrite their ``spellings``, if given. What people
    accepted matches whatever its chance, what they rejected never does.
    """
    places = {value: at for at, value in enumerate(theirs)}
    equal = np.fromiter(map(places.get, mine, repeat(-1)), np.int64, len(mine))
    for at, other in options.rejected:
        if equal[at] == other:
            equal[at] = -1
    same = np.flatnonzero(equal >= 0)
    links = [Linked(same, equal[same], np.ones(len(same)), "equal")]
    taken = [pair for pair in options.accepted if equal[pair[0]] != pair[1]]
    if taken:
        mine_taken, theirs_taken = np.array(taken, np.int64).T
        links.append(Linked(mine_taken, theirs_taken, np.ones(len(taken)), "similar"))
    programs: list[Program] = []
    none = ScoredPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    if join == "equi":
        return Linkage(links, programs, none)
    free = equal < 0
    free[[one for one, _ in taken]] = False
    if join == "any":
        for one in find_programs(*(spellings or (mine, theirs)), np.flatnonzero(free)):
            links.append(_without(_by_program(one), options.rejected))
            programs.append(one.program)
            free[links[-1].left] = False
    scored = similar_pairs(mine, theirs, equal, free, join, encoder)
    if options.rejected:
        pairs = zip(scored.left.tolist(), scored.right.tolist(), strict=True)
        scored = scored.where(np.array([pair not in options.rejected for pair in pairs], bool))
    best = leading(scored.left, scored.chances, 1)
    best = best[scored.chances[best] >= _least(scored.chances[best], links, options.precision)]
    links.append(Linked(scored.left[best], scored.right[best], scored.chances[best], "similar"))
    rest = np.ones(len(scored), bool)
    rest[best] = False
    return Linkage(links, programs, scored.where(rest))


def _least(chances: Double, links: list[Linked], precision: float | None) -> float:
    """Return the least chance that keeps the estimated precision of all pairs."""
    if precision is None:
        return LEAST_CHANCE
    sure = sum(estimated(one).sum() for one in links)
    count = sum(len(one.left) for one in links)
    ordered = np.sort(chances[chances >= _REQUESTED_CHANCE])[::-1]
    reached = (sure + np.cumsum(ordered)) / (count + np.arange(1, len(ordered) + 1)) >= precision
    return float(ordered[np.flatnonzero(reached)[-1]]) if reached.any() else 2.0


def estimated(linked: Linked) -> Double:
    """Return the chance of each pair that it is right."""
    if linked.how == "program":
        return np.full(len(linked.left), PROGRAM_PRECISION)
    return linked.chances


def _without(linked: Linked, rejected: frozenset[tuple[int, int]]) -> Linked:
    if not rejected:
        return linked
    pairs = zip(linked.left.tolist(), linked.right.tolist(), strict=True)
    kept = np.array([pair not in rejected for pair in pairs], bool)
    return Linked(linked.left[kept], linked.right[kept], linked.chances[kept], linked.how)


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
    # A value whose equal one is not text must not look for another.
    rows, known = (part[(equal[rows] < 0) | (known >= 0)] for part in (rows, known))
    scored = scored_pairs([mine[at] for at in rows.tolist()],
                          [theirs[at] for at in others.tolist()], known, encoder)  # fmt: skip
    return ScoredPairs(rows[scored.left], others[scored.right], scored.chances)


def _storable(values: list[str]) -> list[str]:
    """Replace lone surrogates, which fit no Arrow string, and cut texts that are not keys."""
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
