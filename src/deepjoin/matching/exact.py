"""Exact similarities of the pairs that decide, and the best of each cell in each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.embed.pairs import Pairs, Postings
from deepjoin.matching.joinability import ONE, similarities

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
#: Gives the vectors of values, by their numbers, exactly as the encoder does.
Exact = Callable[[Int], Float]


class ExactPairs:
    """The pairs of one query in one segment; each similarity is computed once, when asked."""

    def __init__(self, pairs: Pairs, queries: Float, exact: Exact) -> None:
        self.pairs = pairs
        self._queries, self._exact = queries, exact
        self._known = np.where(pairs.errors > 0, -1, ONE)

    def similarities(self, wanted: Int) -> Int:
        """Return the similarities of some pairs in millionths."""
        new = np.unique(wanted[self._known[wanted] < 0])
        if len(new):
            values, rows = np.unique(self.pairs.values[new], return_inverse=True)
            vectors = self._exact(values)
            found = similarities(vectors[rows], self._queries[self.pairs.cells[new]])
            self._known[new] = np.maximum(found, 0)
        return self._known[wanted]


@dataclass(frozen=True)
class Best:
    """Of each column and cell that meet, the best pair; ordered by column, then cell."""

    columns: Int
    cells: Int
    pairs: Int
    similarities: Int

    @classmethod
    def of(cls, postings: Postings, cells: Int, similarities: Int) -> Best:
        """Keep the best posting of each column and cell, of equals the first."""
        order = np.lexsort((postings.pairs, -similarities, cells, postings.columns))
        columns, cells = postings.columns[order], cells[order]
        new = np.ones(len(order), bool)
        new[1:] = (columns[1:] != columns[:-1]) | (cells[1:] != cells[:-1])
        order = order[new]
        return cls(columns[new], cells[new], postings.pairs[order], similarities[order])
