"""PEXESO as published: pivots, a hierarchical grid and seven lemmas instead of a full scan.

Columns are verified one at a time, and a column is left as soon as its fate is known. Each
vector of the query counts once for a column. The lists of columns are kept the other way round,
by column, because that is how they are read; blocking and lemmas are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.embed.value_vectors import checked
from deepjoin.errors import DeepJoinError
from deepjoin.lab.pexeso.grid import Blocked, Grid, Radii, block
from deepjoin.lab.pexeso.pivots import choose_pivots, distances
from deepjoin.matching.joinability import least, similarities

Marks = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]

#: The paper's usual number of pivots and of levels.
PIVOTS, LEVELS = 5, 4


@dataclass(frozen=True)
class Columns:
    """Columns as ranges of value numbers, the forward index of a segment."""

    offsets: Int
    values: Int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, column: int) -> Int:
        """Return the values of a column."""
        return self.values[self.offsets[column] : self.offsets[column + 1]]


class Pexeso:
    """Finds columns in which many vectors of a query have a match: exact, by pruning.

    ``order`` decides between columns with as many matches; smaller is better.
    """

    def __init__(
        self,
        vectors: npt.ArrayLike,
        columns: Columns,
        order: Int | None = None,
        *,
        pivots: int = PIVOTS,
        levels: int = LEVELS,
    ) -> None:
        self._vectors = checked(vectors, np.shape(vectors)[-1])
        self._columns = columns
        self._order = np.arange(len(columns)) if order is None else order
        self._zero: Marks = np.asarray(~self._vectors.any(axis=1))
        self._pivots = choose_pivots(self._vectors[~self._zero], pivots)
        self._places = distances(self._vectors, self._pivots)
        self._grid = Grid(self._places, levels)

    def joinable(
        self, query: npt.ArrayLike, tau: float, matches: int, equal: Int | None = None
    ) -> Int:
        """Return the columns in which at least so many vectors of the query have a match.

        ``equal`` gives the value each cell of the query equals, -1 for none: it matches as such.
        """
        asked = _Asked(self, query, tau, equal)
        chosen = np.flatnonzero(asked.upper >= max(1, matches)).tolist()
        found = [c for c in chosen if asked.count(c, max(1, matches), stop=True) >= matches]
        return np.array(found, np.int64)

    def search(
        self,
        query: npt.ArrayLike,
        tau: float,
        k: int,
        excluded: Marks | None = None,
        equal: Int | None = None,
    ) -> tuple[Int, Int]:
        """Return the k columns with the most matches, and how many each has; none without any.

        Columns are taken by what they can reach at most; the k-th best so far is the bound.
        """
        if k < 0:
            raise DeepJoinError(f"k is {k}; it is 0 or more.")
        asked = _Asked(self, query, tau, equal)
        counts = np.zeros(len(self._columns), np.int64)
        best: list[int] = []
        for column in asked.by_promise(excluded):
            bound = best[-1] if len(best) == k > 0 else 1
            if k == 0 or asked.upper[column] < bound:
                break
            counts[column] = asked.count(column, bound)
            best = sorted([*best, int(counts[column])], reverse=True)[:k]
        ranked = np.lexsort((self._order, -counts))[:k]
        ranked = ranked[counts[ranked] > 0]
        return ranked, counts[ranked]


class _Asked:
    """One query: what blocking leaves of the lake, and the verification of columns."""

    def __init__(self, lake: Pexeso, query: npt.ArrayLike, tau: float, equal: Int | None) -> None:
        if not 0 < tau <= 1:
            raise DeepJoinError(f"tau is {tau}; it is a cosine above 0 and at most 1.")
        self._lake = lake
        self._query = checked(query, lake._vectors.shape[1])
        self._equal = np.full(len(self._query), -1) if equal is None else equal
        self._least, self._radii = least(tau), Radii.of(tau)
        self._places = distances(self._query, lake._pivots)
        grid = Grid(self._places, lake._grid.depth)
        blocked = self._with_zeros(block(grid, lake._grid, self._radii))
        sure, reach = self._by_column(blocked)
        self._blocked, self._sure, self._reach = blocked, sure, reach
        self.upper: Int = reach.sum(axis=0)
        # Vectors with few candidates first: they say soonest that a column fails (lemma 7).
        self._rows = np.argsort(reach.sum(axis=1), kind="stable")

    def _with_zeros(self, blocked: Blocked) -> Blocked:
        """Take a zero vector of the query for one that matches nothing."""
        zero: Marks = np.asarray(~self._query.any(axis=1))
        blocked.sure[zero] = blocked.possible[zero] = False
        return blocked

    def _by_column(self, blocked: Blocked) -> tuple[Marks, Marks]:
        """Say which vectors certainly have a match in which column, and which may have one."""
        lake, shape = self._lake, (len(self._query), len(self._lake._columns))
        sure, reach = np.zeros(shape, bool), np.zeros(shape, bool)
        values = lake._columns.values
        leaves, zero = lake._grid.leaf_of[values], lake._zero[values]
        filled = np.flatnonzero(np.diff(lake._columns.offsets))
        starts = lake._columns.offsets[filled]
        for row in range(shape[0] if len(filled) else 0):
            certain = blocked.sure[row, leaves] & ~zero | (values == self._equal[row])
            some = certain | blocked.possible[row, leaves] & ~zero
            sure[row, filled] = np.logical_or.reduceat(certain, starts)
            reach[row, filled] = np.logical_or.reduceat(some, starts)
        return sure, reach

    def by_promise(self, excluded: Marks | None) -> Iterator[int]:
        """Give the columns that may have a match, those that may have most first."""
        upper = self.upper if excluded is None else np.where(excluded, 0, self.upper)
        order = np.lexsort((self._lake._order, -upper))
        yield from order[: int((upper > 0).sum())].tolist()

    def count(self, column: int, wanted: int, stop: bool = False) -> int:
        """Count the vectors with a match, or return 0 once ``wanted`` is out of reach.

        With ``stop``, counting ends when as many are found.
        """
        sure, reach = self._sure[:, column], self._reach[:, column]
        found, left = int(sure.sum()), int((reach & ~sure).sum())
        values = self._lake._columns.of(column)
        for row in self._rows[(reach & ~sure)[self._rows]].tolist():
            if found + left < wanted:  # lemma 7
                return 0
            if stop and found >= wanted:
                break
            found += self._matches(row, values)
            left -= 1
        return found if found >= wanted else 0

    def _matches(self, row: int, values: Int) -> bool:
        """Compare one vector with all vectors of a column that blocking left."""
        lake = self._lake
        values = values[self._blocked.possible[row, lake._grid.leaf_of[values]]]
        values = values[~lake._zero[values]]
        own, places = self._places[row], lake._places[values]
        apart = np.abs(places - own).max(axis=1, initial=0)
        values, places = values[apart <= self._radii.outer], places[apart <= self._radii.outer]
        if ((places + own).min(axis=1, initial=np.inf) <= self._radii.inner).any():  # lemma 2
            return True
        found = similarities(lake._vectors[values], self._query[row])
        return bool((found >= self._least).any())
