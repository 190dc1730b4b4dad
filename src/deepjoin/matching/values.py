"""Which values of two columns match: equal ones always, others by the cosine of their vectors.

Three ways: each value of mine gets its most similar one (`best`), the most similar one that no
other value of mine has a better claim to (`one-to-one`), or all that are similar enough (`all`).
The first two also find the alternatives of a match: values that are nearly as similar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Float, Int, ranges
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.matching.decisions import HIGH, LOW, Decisions
from deepjoin.matching.joinability import ONE, least
from deepjoin.matching.linking import LEAST_CHANCE, TIE_CHANCE, link
from deepjoin.matching.programs import find_programs
from deepjoin.matching.similar import ROWS, SimilarValues, ValuePairs
from deepjoin.model import Program
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.progress import Progress, no_progress

Values: TypeAlias = "Sequence[str] | pa.Array | pa.ChunkedArray"

#: Candidates of a value that are ranked first in one-to-one matching; others may take them.
_CANDIDATES = 16
#: Values of theirs encoded at a time.
_ENCODED = 1 << 16
#: An alternative is at most this much less similar; a match has at most this many alternatives.
#: Of matches with an alternative, fewer than half are right (docs/decisions/0027).
CLOSE, ALTERNATIVES = 0.05, 3
#: Words with a digit; the letters in them.
_NUMBERED, _LETTERS = re.compile(r"[^\W_]*[0-9][^\W_]*"), re.compile("[^0-9]+")


@dataclass(frozen=True)
class SemanticMatching:
    """How values that are not equal are matched.

    ``tau`` is the least cosine that counts; the encoder's own if it is not given. With ``join``
    "any" rather than "semantic", two numbers or dates match only if they are equal, and other
    values only if their numbers do not differ: "gate 7" never matches "gate 8".
    """

    encoder: CellEncoder
    tau: float | None = None
    matching: str = "best"
    progress: Progress = no_progress
    join: str = "semantic"
    #: Whether `link` decides, with programs and careful similarity; similarities are chances then.
    careful: bool = False
    #: The estimated precision to reach, and what people decided about pairs; for careful ones.
    precision: float | None = None
    decisions: Decisions = field(default_factory=Decisions)
    #: Programs that were used, and doubtful pairs, filled in by `match_values`.
    programs: list[Program] = field(default_factory=list, compare=False)
    doubtful: list[tuple[str, str, float]] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if self.matching not in MATCHINGS:
            raise UnknownName(
                f"Unknown matching '{self.matching}'. Allowed: {', '.join(MATCHINGS)}."
            )
        if not 0 < self.bound <= 1:
            raise DeepJoinError(
                f"`tau` is {self.tau}; it must be a cosine above 0 and at most 1. Leave it out for "
                f"{self.encoder.tau}, the cell encoder's own."
            )

    @property
    def bound(self) -> float:
        """The least cosine that counts as a match."""
        if self.careful:
            return LEAST_CHANCE
        return self.encoder.tau if self.tau is None else self.tau


class MatchedValues(NamedTuple):
    """Pairs that match, and their alternatives: pairs that are nearly as similar."""

    pairs: ValuePairs
    alternatives: ValuePairs


def match_values(
    mine: Values, theirs: Values, semantic: SemanticMatching
) -> Iterator[MatchedValues]:
    """Match distinct canonical values; numbers are places in the two lists.

    Of equally similar values the one that comes first is taken, the others are alternatives.
    Pairs come in no order.
    """
    texts, others = _texts(mine), _texts(theirs)
    if semantic.careful:
        yield _linked(texts, others, semantic)
        return
    equal = np.asarray(pc.fill_null(pc.index_in(texts, others), -1)).astype(np.int64)
    known = np.flatnonzero(equal >= 0)
    same = ValuePairs(known, equal[known], np.full(len(known), ONE, np.int64))
    yield MatchedValues(same, ValuePairs.none())
    yield from MATCHINGS[semantic.matching](_ValueColumns(texts, others, equal, semantic))


def _linked(mine: pa.Array, theirs: pa.Array, semantic: SemanticMatching) -> MatchedValues:
    """Match by equality, programs and careful similarity."""
    values = mine.to_pylist(), theirs.to_pylist()
    options = semantic.decisions.options(*values, semantic.precision)
    found = link(*values, semantic.join, semantic.encoder, options=options)
    semantic.programs[:] = found.programs
    semantic.doubtful[:] = (
        (values[0][one], values[1][other], chance)
        for left, right, chances in (
            *(part[:3] for part in found.links if part.how == "similar"),
            (found.others.left, found.others.right, found.others.chances),
        )
        for one, other, chance in zip(left, right, chances.tolist(), strict=True)
        if LOW <= chance < HIGH
    )
    pairs = ValuePairs.concatenate(
        ValuePairs(one.left, one.right, np.rint(one.chances * ONE).astype(np.int64))
        for one in found.links
    )
    # A program may lead from one value to several (Houston to HOUSTON, MS and HOUSTON, TX): the
    # first is the match, the others are alternatives.
    _, first = np.unique(pairs.mine, return_index=True)
    rest = np.ones(len(pairs.mine), bool)
    rest[first] = False
    tied, pairs = pairs.where(rest), pairs.where(first)
    held = np.zeros(len(mine), bool)
    held[pairs.mine] = True
    others = found.others.where(held[found.others.left] & (found.others.chances >= TIE_CHANCE))
    chances = np.rint(others.chances * ONE).astype(np.int64)
    close = ValuePairs.concatenate([tied, ValuePairs(others.left, others.right, chances)])
    return MatchedValues(pairs, close.leading(ALTERNATIVES))


def rewritten_values(mine: Values, theirs: Values, semantic: SemanticMatching) -> ValuePairs:
    """Match values that have no equal one by programs, which are noted with the matching."""
    texts, others = _texts(mine), _texts(theirs)
    free = np.flatnonzero(np.asarray(pc.is_null(pc.index_in(texts, others))))
    found = find_programs(texts.to_pylist(), others.to_pylist(), free)
    semantic.programs.extend(one.program for one in found)
    return ValuePairs.concatenate(
        ValuePairs(one.left, one.right, np.full(len(one.left), ONE, np.int64)) for one in found
    )


def nearest_values(mine: Values, theirs: Values, semantic: SemanticMatching) -> ValuePairs:
    """Find the most similar value of theirs for each of mine, if both have vectors."""
    texts, others = _texts(mine), _texts(theirs)
    columns = _ValueColumns(texts, others, np.full(len(texts), -1), semantic)
    rows, numbers = np.arange(len(texts)), np.arange(len(others))
    return ValuePairs.concatenate(_nearest(columns, rows, numbers, 1, 1))


def _texts(values: Values) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.cast(pa.large_string())
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.array(values, pa.large_string())


def _numbers(value: str) -> set[str]:
    """Return the numbers of a value: the digits of each word, so that a code is one number."""
    return {_LETTERS.sub("", word).lstrip("0") for word in _NUMBERED.findall(value)}


@dataclass(frozen=True)
class _ValueColumns:
    """Two columns of distinct values; ``equal`` is the place of the same value of theirs, or -1."""

    mine: pa.Array
    theirs: pa.Array
    equal: Int
    semantic: SemanticMatching

    @property
    def least(self) -> int:
        return least(self.semantic.bound)

    def comparable(self, rows: Int, others: Int) -> Iterator[tuple[Int, Int]]:
        """Split values into groups that may be similar; no group is empty on either side."""
        groups = [(rows, others)]
        if self.semantic.join == "any":
            # Different numbers have unrelated vectors; there may be millions of them to compare.
            texts, targets = (
                np.asarray(cell_types(values))[chosen] == CellType.TEXT
                for values, chosen in ((self.mine, rows), (self.theirs, others))
            )
            groups = [(rows[texts], others), (rows[~texts], others[targets])]
        yield from (group for group in groups if len(group[0]) and len(group[1]))

    def agreeing(self, pairs: ValuePairs) -> ValuePairs:
        """Drop pairs that the kind of join excludes: those of values with different numbers."""
        if self.semantic.join != "any":
            return pairs
        mine, theirs = self.mine.take(pairs.mine), self.theirs.take(pairs.theirs)
        both = pc.and_(*(pc.match_substring_regex(values, "[0-9]") for values in (mine, theirs)))
        kept = np.ones(len(pairs), bool)
        for at in np.flatnonzero(np.asarray(both)).tolist():
            ours, others = (_numbers(values[at].as_py()) for values in (mine, theirs))
            kept[at] = ours <= others or others <= ours
        return pairs.where(kept)

    def blocks(self, rows: Int) -> Iterator[tuple[Int, Float]]:
        """Encode some values of mine, a block at a time."""
        for start in range(0, len(rows), ROWS):
            block = rows[start : start + ROWS]
            self.semantic.progress(start, len(rows), "matching values")
            yield block, self.semantic.encoder.encode(self.mine.take(block))
        self.semantic.progress(len(rows), len(rows), "matching values")

    def targets(self, numbers: Int) -> SimilarValues:
        """Encode some values of theirs."""
        encode = self.semantic.encoder.encode
        starts = range(0, len(numbers), _ENCODED)
        parts = [encode(self.theirs.take(numbers[at : at + _ENCODED])) for at in starts]
        return SimilarValues(np.concatenate(parts))


def _nearest(
    columns: _ValueColumns, rows: Int, others: Int, count: int, least: int
) -> Iterator[ValuePairs]:
    for mine, theirs in columns.comparable(rows, others):
        targets = columns.targets(theirs)
        for block, vectors in columns.blocks(mine):
            found = targets.nearest(vectors, count, least).renumbered(block, theirs)
            yield columns.agreeing(found)


def _best(columns: _ValueColumns) -> Iterator[MatchedValues]:
    """Pair each value that has no equal with its most similar one."""
    rows, others = np.flatnonzero(columns.equal < 0), np.arange(len(columns.theirs))
    for found in _nearest(columns, rows, others, 1 + ALTERNATIVES, columns.least):
        # The pairs of a value are together, the most similar first.
        first = np.searchsorted(found.mine, found.mine, side="left")
        is_best = first == np.arange(len(found))
        close = found.similarities >= found.similarities[first] - least(CLOSE)
        yield MatchedValues(found.where(is_best), found.where(close & ~is_best))


def _all(columns: _ValueColumns) -> Iterator[MatchedValues]:
    """Pair each value with all that are similar enough, besides its equal."""
    rows, others = np.arange(len(columns.mine)), np.arange(len(columns.theirs))
    for mine, theirs in columns.comparable(rows, others):
        targets = columns.targets(theirs)
        for block, vectors in columns.blocks(mine):
            for pairs in targets.reaching(vectors, columns.least):
                pairs = columns.agreeing(pairs.renumbered(block, theirs))
                pairs = pairs.where(columns.equal[pairs.mine] != pairs.theirs)
                yield MatchedValues(pairs, ValuePairs.none())


def _one_to_one(columns: _ValueColumns) -> Iterator[MatchedValues]:
    """Take the most similar pair of free values, again and again; equal values are not free.

    Each value of mine proposes to its candidates in turn, each of theirs keeps the best proposal
    (Gale-Shapley): since both sides agree on similarity, that ends in the same pairs as the greedy
    choice, and compares far fewer.
    """
    free = np.ones(len(columns.theirs), bool)
    free[columns.equal[columns.equal >= 0]] = False
    rows, others = np.flatnonzero(columns.equal < 0), np.flatnonzero(free)
    claims, count = _Claims(len(columns.mine), len(columns.theirs)), _CANDIDATES
    while len(rows):
        found = _nearest(columns, rows, others, count, columns.least)
        rows = claims.settle(rows, ValuePairs.concatenate(found), count)
        count *= 4
    yield claims.matched()


class _Claims:
    """Which value of mine holds which of theirs, and how far down its list each has proposed."""

    def __init__(self, mine: int, theirs: int) -> None:
        self._lists = ValuePairs.none()
        self._start, self._length, self._proposed = np.zeros((3, mine), np.int64)
        self._is_cut = np.zeros(mine, bool)
        self._holder = np.full(theirs, -1, np.int64)
        self._claim = np.zeros(theirs, np.int64)

    def settle(self, rows: Int, lists: ValuePairs, count: int) -> Int:
        """Let values propose until each holds one or has no more; return those with cut lists.

        Lists are in order of mine; a longer list of the same value begins with the shorter.
        """
        owners, starts, lengths = np.unique(lists.mine, return_index=True, return_counts=True)
        self._start[owners] = starts + len(self._lists)
        self._length[owners], self._is_cut[owners] = lengths, lengths == count
        self._lists = ValuePairs.concatenate([self._lists, lists])
        free, spent = rows[::-1].tolist(), []
        while free:
            mine = free.pop()
            loser = self._propose(mine)
            if loser == mine:
                spent.append(mine)
            elif loser >= 0:
                free.append(loser)
        return np.array([mine for mine in sorted(spent) if self._is_cut[mine]], np.int64)

    def _propose(self, mine: int) -> int:
        """Propose until one accepts; return who loses it: -1 for nobody, ``mine`` if all refuse."""
        while self._proposed[mine] < self._length[mine]:
            at = self._start[mine] + self._proposed[mine]
            self._proposed[mine] += 1
            theirs, similarity = self._lists.theirs[at], self._lists.similarities[at]
            holder = int(self._holder[theirs])
            if holder < 0 or (similarity, -mine) > (self._claim[theirs], -holder):
                self._holder[theirs], self._claim[theirs] = mine, similarity
                return holder
        return mine

    def matched(self) -> MatchedValues:
        """Return who holds what in the end, and what is free and nearly as similar."""
        held = np.flatnonzero(self._holder >= 0)
        pairs = ValuePairs(self._holder[held], held, self._claim[held])
        lists = self._lists.where(ranges(self._start[pairs.mine], self._length[pairs.mine]))
        claims = np.repeat(pairs.similarities, self._length[pairs.mine])
        close = (self._holder[lists.theirs] < 0) & (lists.similarities >= claims - least(CLOSE))
        return MatchedValues(pairs, lists.where(close).leading(ALTERNATIVES))


#: The ways to match, by name.
MATCHINGS: dict[str, Callable[[_ValueColumns], Iterator[MatchedValues]]] = {
    "best": _best,
    "one-to-one": _one_to_one,
    "all": _all,
}
