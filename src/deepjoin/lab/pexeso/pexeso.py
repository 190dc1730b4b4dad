"""PEXESO as published: pivots, a hierarchical grid and seven lemmas instead of a full scan.

Columns are verified one at a time and abandoned as soon as the outcome is known. Each query vector
counts once per column. The inverted lists are stored by column, because that is how they are read;
blocking and lemmas are the paper's (section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Double, Float, Int, Marks
from deepjoin.embed.value_vectors import checked
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import least, similarities

#: Outliers considered for each pivot, and the size of the sample they come from.
_OUTLIERS, _SAMPLE = 10, 2_000
_SEED = 20221
#: The largest distance of two unit vectors.
_RANGE = 2.0
#: The paper's usual number of pivots and of levels.
PIVOTS, LEVELS = 5, 4


def choose_pivots(vectors: Float, count: int) -> Float:
    """Choose pivots among unit vectors: outliers by principal components (section 3.3)."""
    if len(vectors) > _SAMPLE:
        chosen = np.random.default_rng(_SEED).choice(len(vectors), _SAMPLE, replace=False)
        vectors = vectors[np.sort(chosen)]
    outliers = farthest_first(vectors, _OUTLIERS * count)
    table = distances(vectors, vectors[outliers])
    centred = table - table.sum(axis=0) / max(1, len(table))
    # The principal components of the distances as rows, the strongest first.
    loadings = np.asarray(np.linalg.eigh(centred.T @ centred)[1].T[::-1])
    return vectors[outliers[_one_each(loadings, count)]]


def farthest_first(vectors: Float, count: int) -> Int:
    """Repeatedly take the vector farthest from all taken so far; no vector twice."""
    nearest = np.full(len(vectors), np.inf)
    taken: list[int] = []
    while len(taken) < min(count, len(vectors)):
        farthest = int(np.argmax(nearest))
        if nearest[farthest] <= 0:
            break
        taken.append(farthest)
        nearest = np.minimum(nearest, distances(vectors, vectors[farthest : farthest + 1])[:, 0])
        nearest[farthest] = 0
    return np.array(taken, np.int64)


def _one_each(loadings: Double, count: int) -> Int:
    """Take for each component the free candidate with the largest absolute loading."""
    chosen: list[int] = []
    for component in np.abs(loadings[:count]):
        free = [i for i in np.argsort(-component, kind="stable").tolist() if i not in chosen]
        chosen.append(free[0])
    return np.array(chosen, np.int64)


def distances(vectors: Float, pivots: Float) -> Double:
    """Return the Euclidean distance of every vector to every pivot."""
    columns = [
        np.linalg.norm(vectors.astype(np.float64) - pivot.astype(np.float64), axis=1)
        for pivot in pivots
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(vectors), 0))


@dataclass(frozen=True)
class Radii:
    """The matching distance, with margins for rounding on both sides."""

    #: Vectors up to ``inner`` apart certainly match; those farther than ``outer`` never do.
    inner: float
    outer: float

    @classmethod
    def of(cls, tau: float) -> Radii:
        """Turn a cosine bound into distances of vectors of length 1, up to rounding."""
        square = 2 - 2 * tau
        return cls(max(0.0, square - 3e-5) ** 0.5 - 1e-6, (square + 3e-5) ** 0.5 + 1e-6)


@dataclass(frozen=True)
class GridLevel:
    """The occupied cells of one level: their corners and the ranges of their leaves."""

    low: Double
    high: Double
    starts: Int
    stops: Int


class Grid:
    """Vectors in pivot space, sorted into the leaves of a hierarchical grid (section 3.2).

    The place of a vector is its distances to the pivots, each between 0 and 2. Level i cuts every
    axis into 2**i; only occupied cells exist. Cells are numbered so that the cells inside a cell
    are consecutive: every cell is a range of the sorted leaves.
    """

    def __init__(self, places: Double, depth: int) -> None:
        self.places, self.depth = places, depth
        parts = np.clip((places / _RANGE * (1 << depth)).astype(np.int64), 0, (1 << depth) - 1)
        # Interleave the bits of the axes, highest bits first.
        codes = np.zeros(len(parts), np.int64)
        for bit in reversed(range(depth)):
            for axis in parts.T:
                codes = codes << 1 | (axis >> bit & 1)
        self.leaves, self.leaf_of = np.unique(codes, return_inverse=True)
        self._parts = np.zeros((len(self.leaves), places.shape[1]), np.int64)
        self._parts[self.leaf_of] = parts
        self.levels = [self._level(i) for i in range(depth + 1)]

    def _level(self, i: int) -> GridLevel:
        up = self.depth - i
        codes = self.leaves >> (up * self.places.shape[1])
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        corner = (self._parts[starts] >> up).astype(np.float64) * (_RANGE / (1 << i))
        return GridLevel(
            corner, corner + _RANGE / (1 << i), starts, np.append(starts[1:], len(codes))
        )

    def children(self, level: int, cells: Int) -> tuple[Int, Int]:
        """Return the range of cells inside each of some cells, one level down."""
        below = self.levels[level + 1].starts
        here = self.levels[level]
        return np.searchsorted(below, here.starts[cells]), np.searchsorted(below, here.stops[cells])


@dataclass(frozen=True)
class Blocked:
    """For each query vector and leaf of the lake: whether all vectors match, or some may."""

    sure: Marks
    possible: Marks


def block(queries: Grid, lake: Grid, radii: Radii) -> Blocked:
    """Compare two grids level by level; pairs of cells that cannot match are dropped whole."""
    shape = (len(queries.places), len(lake.leaves))
    blocked = Blocked(np.zeros(shape, bool), np.zeros(shape, bool))
    mine = theirs = np.zeros(min(1, len(queries.leaves), len(lake.leaves)), np.int64)
    for level in range(lake.depth + 1):
        mine, theirs = _survivors(queries, lake, level, (mine, theirs), radii, blocked)
        if level < lake.depth:
            # Pair every cell inside the one with every cell inside the other.
            first, last = queries.children(level, mine)
            start, stop = lake.children(level, theirs)
            own, other = last - first, stop - start
            pair = np.repeat(np.arange(len(mine)), own * other)
            before = np.repeat(np.cumsum(own * other) - own * other, own * other)
            number = np.arange(len(pair)) - before
            mine, theirs = first[pair] + number // other[pair], start[pair] + number % other[pair]
    leaf = lake.levels[-1]
    for mine_leaf, their_leaf in zip(mine.tolist(), theirs.tolist(), strict=True):
        # Each vector of the query's leaf with the leaf of the lake (lemmas 3 and 5).
        rows = np.flatnonzero(queries.leaf_of == mine_leaf)
        places, low, high = queries.places[rows], leaf.low[their_leaf], leaf.high[their_leaf]
        apart = np.maximum(low - places, places - high).max(axis=1, initial=-np.inf)
        sure = (places + high).min(axis=1, initial=np.inf) <= radii.inner
        blocked.sure[rows[sure], their_leaf] = True
        blocked.possible[rows[~sure & (apart <= radii.outer)], their_leaf] = True
    return blocked


def _survivors(
    queries: Grid, lake: Grid, level: int, pairs: tuple[Int, Int], radii: Radii, blocked: Blocked
) -> tuple[Int, Int]:
    """Drop pairs of cells that are too far apart (lemma 4) or match as a whole (lemma 6)."""
    mine, theirs = pairs
    own, other = queries.levels[level], lake.levels[level]
    apart = np.maximum(other.low[theirs] - own.high[mine], own.low[mine] - other.high[theirs]).max(
        axis=1, initial=-np.inf
    )
    near = apart <= radii.outer
    mine, theirs = mine[near], theirs[near]
    # It must hold for every vector of the query's cell, hence the far side of that cell.
    together = (own.high[mine] + other.high[theirs]).min(axis=1, initial=np.inf)
    whole = together <= radii.inner
    for q, x in zip(mine[whole].tolist(), theirs[whole].tolist(), strict=True):
        inside = (queries.leaf_of >= own.starts[q]) & (queries.leaf_of < own.stops[q])
        blocked.sure[inside, other.starts[x] : other.stops[x]] = True
    return mine[~whole], theirs[~whole]


@dataclass(frozen=True)
class ColumnValues:
    """Columns as ranges of value numbers: the forward index of a segment."""

    offsets: Int
    values: Int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, column: int) -> Int:
        """Return the values of a column."""
        return self.values[self.offsets[column] : self.offsets[column + 1]]


class Pexeso:
    """Finds columns in which many vectors of a query have a match: exact, by pruning.

    ``order`` breaks ties between columns with equal numbers of matches; smaller is better.
    """

    def __init__(
        self,
        vectors: npt.ArrayLike,
        columns: ColumnValues,
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
        """Return the columns in which at least ``matches`` vectors of the query have a match.

        ``equal`` has the value equal to each cell of the query, -1 for none; it always matches.
        """
        run = _PexesoQuery(self, query, tau, equal)
        chosen = np.flatnonzero(run.upper >= max(1, matches)).tolist()
        found = [c for c in chosen if run.count(c, max(1, matches), stop=True) >= matches]
        return np.array(found, np.int64)

    def search(
        self,
        query: npt.ArrayLike,
        tau: float,
        k: int,
        excluded: Marks | None = None,
        equal: Int | None = None,
    ) -> tuple[Int, Int]:
        """Return the k columns with the most matches, at least one, and their numbers of matches.

        Columns are verified by descending upper bound, down to the k-th best count so far.
        """
        if k < 0:
            raise DeepJoinError(f"k is {k}; it must be >= 0.")
        run = _PexesoQuery(self, query, tau, equal)
        counts = np.zeros(len(self._columns), np.int64)
        best: list[int] = []
        for column in run.by_promise(excluded):
            bound = best[-1] if len(best) == k > 0 else 1
            if k == 0 or run.upper[column] < bound:
                break
            counts[column] = run.count(column, bound)
            best = sorted([*best, int(counts[column])], reverse=True)[:k]
        ranked = np.lexsort((self._order, -counts))[:k]
        ranked = ranked[counts[ranked] > 0]
        return ranked, counts[ranked]


class _PexesoQuery:
    """One query: what blocking leaves of the lake, and the verification of columns."""

    def __init__(self, lake: Pexeso, query: npt.ArrayLike, tau: float, equal: Int | None) -> None:
        if not 0 < tau <= 1:
            raise DeepJoinError(f"tau is {tau}; it must be a cosine above 0 and at most 1.")
        self._lake = lake
        self._query = checked(query, lake._vectors.shape[1])
        self._equal = np.full(len(self._query), -1) if equal is None else equal
        self._least, self._radii = least(tau), Radii.of(tau)
        self._places = distances(self._query, lake._pivots)
        grid = Grid(self._places, lake._grid.depth)
        blocked = block(grid, lake._grid, self._radii)
        zero: Marks = np.asarray(~self._query.any(axis=1))
        blocked.sure[zero] = blocked.possible[zero] = False  # a zero vector matches nothing
        sure, reach = self._by_column(blocked)
        self._blocked, self._sure, self._reach = blocked, sure, reach
        self.upper: Int = reach.sum(axis=0)
        # Vectors with few candidates first: they show soonest that a column fails (lemma 7).
        self._rows = np.argsort(reach.sum(axis=1), kind="stable")

    def _by_column(self, blocked: Blocked) -> tuple[Marks, Marks]:
        """Return which vectors certainly have a match in each column, and which may have one."""
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
        """Yield the columns that may have a match, by descending upper bound."""
        upper = self.upper if excluded is None else np.where(excluded, 0, self.upper)
        order = np.lexsort((self._lake._order, -upper))
        yield from order[: int((upper > 0).sum())].tolist()

    def count(self, column: int, wanted: int, stop: bool = False) -> int:
        """Count the vectors with a match, or return 0 once ``wanted`` is out of reach.

        With ``stop``, counting ends at ``wanted``.
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
        """Compare one vector with the vectors of a column that blocking left."""
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
