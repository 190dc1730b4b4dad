"""Exact semantic search: the columns with the highest joinability by vectors, and the proof.

One scan over rounded vectors finds every pair of cells that can match, with bounds; the postings
turn them into bounds for every column; columns that can be among the best are measured with the
encoder's own vectors, best bound first, until none is left that can reach the k-th.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int, Marks
from deepjoin.embed.scan import SLACK, CandidatePairs
from deepjoin.embed.value_vectors import ValueVectors
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import ONE
from deepjoin.matching.joinability import least as least_of
from deepjoin.matching.similar import ExactPairs, ExactVectors, postings_of
from deepjoin.store.values.index import ValueIndex

#: For each segment, marks of columns that are not part of the lake, or None.
Excluded = Sequence[Marks | None]
#: Turns cosines into scores from 0 to 1; never less for a higher cosine.
Worth = Callable[[Double], Array]

#: Columns measured first, and by how much each further round is larger.
_FIRST, _GROWTH = 64, 8


@dataclass(frozen=True)
class Measure:
    """How a cell's best similarity counts: in full ("semantic"), or what it is worth ("any")."""

    join: str
    #: The cosine that makes a match.
    floor: float
    #: For "any": what a cosine counts; itself if None.
    worth: Worth | None = None

    @property
    def least(self) -> int:
        """The floor in millionths."""
        return least_of(self.floor)

    def counted(self, similarities: Array) -> Double:
        """Turn best similarities, in millionths, into the millionths they add to a score."""
        return np.where(similarities >= self.least, self._worth(similarities), 0.0)

    def most(self, similarities: Array) -> Double:
        """Return what similarities up to these count at most."""
        # A function of the caller may fall by what rounding does; ours do not.
        spare = 0.0 if self.worth is None else 1.0
        return np.where(similarities >= self.least, self._worth(similarities) + spare, 0.0)

    def _worth(self, similarities: Array) -> Double:
        if self.join == "semantic":
            return np.full(similarities.shape, float(ONE))
        if self.worth is None:
            return similarities.astype(np.float64)
        return np.rint(ONE * self.worth(similarities / ONE).astype(np.float64))


@dataclass(frozen=True)
class ExactRequest:
    """What an exact search asks for; ``k`` None means everything that reaches ``threshold``."""

    measure: Measure
    k: int | None = 10
    threshold: float = 0.0
    #: Whether to return columns that tie with the k-th as well, for the caller to choose from.
    ties: bool = False

    def __post_init__(self) -> None:
        if self.measure.join not in ("semantic", "any"):
            raise DeepJoinError(f"Unknown join '{self.measure.join}'. Joins: semantic, any.")
        if self.k is not None and self.k < 0:
            raise DeepJoinError(f"k is {self.k}; it must be 0 or more.")


@dataclass(frozen=True)
class SemanticSegment:
    """A segment as exact semantic search sees it."""

    index: ValueIndex
    vectors: ValueVectors
    exact: ExactVectors
    #: Decides between columns of equal score, across all segments; smaller is better.
    order: Int


@dataclass(frozen=True)
class SemanticQuery:
    """The distinct cells of a query as the index would hold them, and their unit vectors."""

    values: list[str]
    vectors: Float


class ColumnEvidence(NamedTuple):
    """The cells of a query that match in one column, each with the value that is nearest."""

    cells: Int
    values: Int
    #: Cosines, 1 for equal cells.
    similarities: Double
    #: How many of the column's values match a cell of the query.
    reverse: int


@dataclass(frozen=True)
class ExactRanking:
    """The best columns of all segments, best first; parallel lists."""

    parts: Int
    columns: Int
    scores: Double
    evidence: list[ColumnEvidence]

    def __len__(self) -> int:
        return len(self.columns)


class SemanticEngine:
    """Answers semantic queries over the segments of a lake, equal to comparing everything."""

    def __init__(self, parts: Sequence[SemanticSegment], threads: int = 2) -> None:
        self._parts, self._threads = list(parts), threads

    def search(
        self, query: SemanticQuery, request: ExactRequest, excluded: Excluded | None = None
    ) -> ExactRanking:
        """Return the best columns; columns that match nothing are never among them."""
        scored = []
        for part, marks in zip(self._parts, excluded or [None] * len(self._parts), strict=True):
            near = part.vectors.near(query.vectors, request.measure.floor, self._threads)
            scored.append(SegmentScores(part, query, near, request.measure, marks))
        if not query.values or request.k == 0 or not scored:
            return ExactRanking(*(np.zeros(0, np.int64),) * 2, np.zeros(0), [])
        return _best_columns(scored, request, len(query.values))


def _best_columns(
    scored: Sequence[SegmentScores], request: ExactRequest, size: int
) -> ExactRanking:
    """Measure columns, highest bound first, until the rest cannot reach the k-th."""
    k, whole = request.k, ONE * size
    possible = [np.flatnonzero(one.upper > 0) for one in scored]
    parts = np.repeat(np.arange(len(scored)), [len(columns) for columns in possible])
    columns = np.concatenate(possible)
    upper = np.concatenate(
        [one.upper[columns] for one, columns in zip(scored, possible, strict=True)]
    )
    reach = np.flatnonzero(upper >= request.threshold * whole - 1)
    order = reach[np.argsort(-upper[reach], kind="stable")]
    parts, columns, upper = parts[order], columns[order], upper[order]

    totals = np.zeros(len(columns), np.int64)
    done, step = 0, len(columns) if k is None else max(_FIRST, 2 * k)
    while done < len(columns):
        if k is not None and done >= k and upper[done] + 1 < np.partition(totals[:done], -k)[-k]:
            break
        here = slice(done, done + step)
        for number, one in enumerate(scored):
            mine = parts[here] == number
            if mine.any():
                totals[here][mine] = one.totals(columns[here][mine])
        done, step = done + step, step * _GROWTH

    good = (totals > 0) & (totals / whole >= request.threshold)
    parts, columns, totals = parts[good], columns[good], totals[good]
    places = np.empty(len(columns), np.int64)
    for number, one in enumerate(scored):
        places[parts == number] = one.part.order[columns[parts == number]]
    order = np.lexsort((columns, parts, places, -totals))
    best = order[:k]
    if request.ties and len(best):
        best = order[: int((totals >= totals[best[-1]]).sum())]
    parts, columns = parts[best], columns[best]
    evidence: dict[int, ColumnEvidence] = {}
    for number, one in enumerate(scored):
        rows = np.flatnonzero(parts == number)
        for row, found in zip(rows.tolist(), one.evidence(columns[rows]), strict=True):
            evidence[row] = found
    in_order = [evidence[row] for row in range(len(best))]
    return ExactRanking(parts, columns, totals[best] / whole, in_order)


@dataclass(frozen=True)
class PairPostings:
    """Columns that hold the values of pairs: which pair, which column, in order of the pairs."""

    pairs: Int
    columns: Int

    @classmethod
    def of(cls, values: Int, index: ValueIndex, excluded: Marks | None = None) -> PairPostings:
        """Look up the columns that hold the pairs' values; leave out the excluded ones."""
        pairs, columns = postings_of(index, values)
        postings = cls(pairs, columns.astype(np.int64))
        return postings if excluded is None else postings.where(~excluded[postings.columns])

    def where(self, chosen: Array) -> PairPostings:
        """Keep some of the postings."""
        return PairPostings(self.pairs[chosen], self.columns[chosen])


class SegmentScores:
    """A query in one segment: bounds for all columns, exact scores and evidence for some."""

    def __init__(
        self,
        part: SemanticSegment,
        query: SemanticQuery,
        near: CandidatePairs,
        measure: Measure,
        excluded: Marks | None,
    ) -> None:
        self.part, self._measure = part, measure
        pairs = near.with_equal(part.index.look_up(query.values))
        self._exact = ExactPairs(pairs, query.vectors, part.exact)
        self._postings = PairPostings.of(pairs.values, part.index, excluded)
        # Lower and upper bound of each pair's similarity. Equal cells are known to be 1; anything
        # else stays below what rounding could add.
        error = np.where(pairs.errors > 0, pairs.errors + SLACK, 0.0)
        similarity = pairs.similarities.astype(np.float64)
        self._low = np.maximum(similarity - error, 0) * ONE
        self._high = np.minimum(similarity + error, 1) * ONE
        self.upper = self._upper()

    def _upper(self) -> Double:
        """Bound each column's score: sum over the cells what the best pair of each can count."""
        counts = self._measure.most(self._high)[self._postings.pairs]
        cells = self._exact.pairs.cells[self._postings.pairs]
        used = np.flatnonzero(counts > 0)
        order = used[np.lexsort((counts[used], cells[used]))]
        ends = np.flatnonzero(np.diff(cells[order], append=-1)) + 1
        columns = self.part.index.columns
        total, best = np.zeros(columns), np.zeros(columns)
        start = 0
        for stop in ends.tolist():
            here = order[start:stop]
            at = self._postings.columns[here]
            best[at] = counts[here]  # ascending: of the same column, the best is written last
            total[at] += best[at]  # and added once, however often the column occurs
            start = stop
        return total

    def totals(self, columns: Int) -> Int:
        """Return the exact summed scores of some columns, in millionths."""
        best = self._best(self._leading(self._of(columns)))
        counted = self._measure.counted(best.similarities)
        sums = np.bincount(best.columns, counted, self.part.index.columns)
        # Sums of millionths stay far below 2**53, so the floating-point counter is exact.
        return sums[columns].astype(np.int64)

    def evidence(self, columns: Int) -> Iterator[ColumnEvidence]:
        """Return what matches what in each of some columns."""
        postings = self._of(columns)
        reach = self._exact.similarities(postings.pairs) >= self._measure.least
        postings = postings.where(reach)
        best, values = self._best(postings), self._exact.pairs.values
        held = np.stack([postings.columns, values[postings.pairs]])
        matched = np.unique(held, axis=1)[0]
        for column in columns.tolist():
            here = slice(*np.searchsorted(best.columns, [column, column + 1]).tolist())
            reverse = int(np.diff(np.searchsorted(matched, [column, column + 1]))[0])
            cosines = best.similarities[here] / ONE
            yield ColumnEvidence(best.cells[here], values[best.pairs[here]], cosines, reverse)

    def _of(self, columns: Int) -> PairPostings:
        wanted = np.zeros(self.part.index.columns, bool)
        wanted[columns] = True
        return self._postings.where(wanted[self._postings.columns])

    def _leading(self, postings: PairPostings) -> PairPostings:
        """Drop pairs that are certainly not the best of their cell and column."""
        cells = self._exact.pairs.cells[postings.pairs]
        order = np.lexsort((cells, postings.columns))
        postings, cells = postings.where(order), cells[order]
        if len(cells) == 0:
            return postings
        new = _first_of_each(postings.columns, cells)
        most = np.maximum.reduceat(self._low[postings.pairs], np.flatnonzero(new))
        return postings.where(self._high[postings.pairs] >= most[np.cumsum(new) - 1])

    def _best(self, postings: PairPostings) -> _BestPairs:
        """Keep the best pair of each column and cell, of equals the first."""
        cells = self._exact.pairs.cells[postings.pairs]
        similarities = self._exact.similarities(postings.pairs)
        order = np.lexsort((postings.pairs, -similarities, cells, postings.columns))
        columns, cells = postings.columns[order], cells[order]
        new = _first_of_each(columns, cells)
        order = order[new]
        return _BestPairs(columns[new], cells[new], postings.pairs[order], similarities[order])


class _BestPairs(NamedTuple):
    """Of each column and cell that meet, the best pair; ordered by column, then cell."""

    columns: Int
    cells: Int
    pairs: Int
    similarities: Int


def _first_of_each(columns: Int, cells: Int) -> Marks:
    """Mark where a new column or cell begins in sorted lists."""
    new = np.ones(len(cells), bool)
    new[1:] = (columns[1:] != columns[:-1]) | (cells[1:] != cells[:-1])
    return new
