"""One query in one segment: bounds for all columns, exact scores and evidence for some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.pairs import Marks, Pairs, Postings
from deepjoin.embed.quantised import ValueVectors
from deepjoin.matching.bounds import Bounds, Measure, pair_bounds
from deepjoin.matching.exact import Best, Exact, ExactPairs
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """A segment as semantic search sees it."""

    index: ValueIndex
    vectors: ValueVectors
    exact: Exact
    #: Decides between columns of equal score, across all segments; smaller is better.
    order: Int


@dataclass(frozen=True)
class Query:
    """The distinct cells of a query as the index would hold them, and their unit vectors."""

    values: list[str]
    vectors: Float


class Evidence(NamedTuple):
    """The cells of a query that match in one column, each with the value that is nearest."""

    cells: Int
    values: Int
    #: Cosines, 1 for equal cells.
    similarities: npt.NDArray[np.float64]
    #: How many of the column's values match a cell of the query.
    reverse: int


class Side:
    """A query's pairs in one segment, and what follows from them."""

    def __init__(
        self, part: Part, query: Query, near: Pairs, measure: Measure, excluded: Marks | None
    ) -> None:
        self.part, self._measure = part, measure
        pairs = near.with_equal(part.index.look_up(query.values))
        self._exact = ExactPairs(pairs, query.vectors, part.exact)
        self._postings = Postings.of(pairs, part.index, excluded)
        self.bounds = Bounds.of(pairs, self._postings, part.index.columns, measure)

    def totals(self, columns: Int) -> Int:
        """Return the exact summed scores of some columns, in millionths."""
        postings = self._leading(self._of(columns))
        best = self._best(postings)
        counted = self._measure.counted(best.similarities)
        sums = np.bincount(best.columns, counted, self.part.index.columns)
        # Sums of millionths stay far below 2**53, so the floating-point counter is exact.
        return sums[columns].astype(np.int64)

    def evidence(self, columns: Int) -> list[Evidence]:
        """Say what matches what in each of some columns."""
        postings = self._of(columns)
        reach = self._exact.similarities(postings.pairs) >= self._measure.least
        postings = postings.where(reach)
        best = self._best(postings)
        held = np.stack([postings.columns, self._exact.pairs.values[postings.pairs]])
        matched = np.unique(held, axis=1)[0]
        return [self._evidence(best, matched, column) for column in columns.tolist()]

    def _evidence(self, best: Best, matched: Int, column: int) -> Evidence:
        here = slice(*np.searchsorted(best.columns, [column, column + 1]).tolist())
        reverse = int(np.diff(np.searchsorted(matched, [column, column + 1]))[0])
        values = self._exact.pairs.values[best.pairs[here]]
        return Evidence(best.cells[here], values, best.similarities[here] / 1e6, reverse)

    def _of(self, columns: Int) -> Postings:
        wanted = np.zeros(self.part.index.columns, bool)
        wanted[columns] = True
        return self._postings.where(wanted[self._postings.columns])

    def _leading(self, postings: Postings) -> Postings:
        """Drop pairs that are certainly not the best of their cell and column."""
        low, high = pair_bounds(self._exact.pairs)
        cells = self._exact.pairs.cells[postings.pairs]
        order = np.lexsort((cells, postings.columns))
        postings, cells = postings.where(order), cells[order]
        columns = postings.columns
        new = np.ones(len(cells), bool)
        new[1:] = (columns[1:] != columns[:-1]) | (cells[1:] != cells[:-1])
        if len(new) == 0:
            return postings
        most = np.maximum.reduceat(low[postings.pairs], np.flatnonzero(new))
        return postings.where(high[postings.pairs] >= most[np.cumsum(new) - 1])

    def _best(self, postings: Postings) -> Best:
        cells = self._exact.pairs.cells[postings.pairs]
        return Best.of(postings, cells, self._exact.similarities(postings.pairs))
