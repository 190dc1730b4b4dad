"""The index of PEXESO: pivots, distances to them, and a hierarchical grid with two-sided blocking.

A vector is mapped to its distances to a few pivots. The triangle inequality then finds pairs that
cannot match (lemma 1) and pairs that must (lemma 2), and cells of a grid decide for many vectors at
once (lemmas 3 to 6). All steps run on arrays of pairs, level by level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepjoin.arrays import Double, Float, Int, Marks, find_sorted

#: Outliers considered for each pivot, and the size of the sample they come from.
_OUTLIERS, _SAMPLE = 10, 2_000
_SEED = 20221
#: The largest distance of two unit vectors.
RANGE = 2.0
#: The usual number of pivots, and the most levels that are considered.
PIVOTS, MOST_LEVELS = 5, 6
#: Vectors of the lake that serve as queries when the number of levels is chosen.
_QUERIES = 24
#: Cost of comparing two cells, in distances of vectors, as NumPy computes both.
_CELL_COST = 20.0


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
    """Vectors in pivot space, sorted into the leaves of a hierarchical grid.

    The place of a vector is its distances to the pivots, each between 0 and 2. Level i cuts every
    axis into 2**i; only occupied cells exist. Cells are numbered so that the cells inside a cell
    are consecutive: every cell is a range of the sorted leaves, and every leaf a range of the
    sorted vectors.
    """

    def __init__(self, places: Double, depth: int) -> None:
        self.places, self.depth = places, depth
        parts = np.clip((places / RANGE * (1 << depth)).astype(np.int64), 0, (1 << depth) - 1)
        # Interleave the bits of the axes, highest bits first.
        codes = np.zeros(len(parts), np.int64)
        for bit in reversed(range(depth)):
            for axis in parts.T:
                codes = codes << 1 | (axis >> bit & 1)
        self.order: Int = np.argsort(codes, kind="stable")
        self.leaves, self.leaf_of = np.unique(codes, return_inverse=True)
        #: Where each leaf starts among the sorted vectors, and where the last one ends.
        self.offsets: Int = np.searchsorted(codes[self.order], [*self.leaves, np.iinfo("i8").max])
        self._parts = np.zeros((len(self.leaves), places.shape[1]), np.int64)
        self._parts[self.leaf_of] = parts
        self.levels = [self._level(i) for i in range(depth + 1)]

    def _level(self, i: int) -> GridLevel:
        up = self.depth - i
        codes = self.leaves >> (up * self.places.shape[1])
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        corner = (self._parts[starts] >> up).astype(np.float64) * (RANGE / (1 << i))
        return GridLevel(
            corner, corner + RANGE / (1 << i), starts, np.append(starts[1:], len(codes))
        )

    def children(self, level: int, cells: Int) -> tuple[Int, Int]:
        """Return the range of cells inside each of some cells, one level down."""
        below = self.levels[level + 1].starts
        here = self.levels[level]
        return np.searchsorted(below, here.starts[cells]), np.searchsorted(below, here.stops[cells])

    @property
    def sizes(self) -> Int:
        """Number of vectors in each leaf."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Blocked:
    """For each query vector and leaf of the lake: whether all vectors match, or some may."""

    sure: Marks
    possible: Marks
    #: Pairs of cells, and of vectors and cells, that were compared.
    compared: int

    def left(self, lake: Grid) -> int:
        """Count the pairs of vectors whose distance is still to be computed."""
        return int((self.possible @ lake.sizes).sum())


def own_leaves(queries: Grid, lake: Grid) -> Int:
    """Return the leaf of the lake in which each query vector lies, -1 where it is empty.

    This is quick browsing: the grid cannot separate vectors of one leaf; they are the most
    likely matches, so they are compared before any cells are.
    """
    return find_sorted(lake.leaves, queries.leaves)[queries.leaf_of]


def block(queries: Grid, lake: Grid, radii: Radii) -> Blocked:
    """Compare two grids level by level; pairs of cells that cannot match are dropped whole."""
    shape = (len(queries.places), len(lake.leaves))
    sure, possible = np.zeros(shape, bool), np.zeros(shape, bool)
    mine = theirs = np.zeros(min(1, len(queries.leaves), len(lake.leaves)), np.int64)
    compared = 0
    for level in range(lake.depth + 1):
        own, other = queries.levels[level], lake.levels[level]
        compared += len(mine)
        # Too far apart by any pivot (lemma 4).
        apart = np.maximum(
            other.low[theirs] - own.high[mine], own.low[mine] - other.high[theirs]
        ).max(axis=1, initial=-np.inf)
        near = apart <= radii.outer
        mine, theirs = mine[near], theirs[near]
        # Match as a whole (lemma 6): for every vector of the query's cell, hence its far side.
        together = (own.high[mine] + other.high[theirs]).min(axis=1, initial=np.inf)
        whole = together <= radii.inner
        at, leaf = _crossed(
            *(queries.offsets[own.starts[mine[whole]]], queries.offsets[own.stops[mine[whole]]]),
            *(other.starts[theirs[whole]], other.stops[theirs[whole]]),
        )
        sure[queries.order[at], leaf] = True
        mine, theirs = mine[~whole], theirs[~whole]
        if level < lake.depth:
            mine, theirs = _crossed(*queries.children(level, mine), *lake.children(level, theirs))
    # Each vector of the query's leaves with the leaves of the lake (lemmas 3 and 5).
    at, theirs = _crossed(queries.offsets[mine], queries.offsets[mine + 1], theirs, theirs + 1)
    rows, leaf_level = queries.order[at], lake.levels[-1]
    places, low, high = queries.places[rows], leaf_level.low[theirs], leaf_level.high[theirs]
    compared += len(rows)
    apart = np.maximum(low - places, places - high).max(axis=1, initial=-np.inf)
    inside = (places + high).min(axis=1, initial=np.inf) <= radii.inner
    sure[rows[inside], theirs[inside]] = True
    some = ~inside & (apart <= radii.outer)
    possible[rows[some], theirs[some]] = True
    return Blocked(sure, possible, compared)


def _crossed(first: Int, last: Int, start: Int, stop: Int) -> tuple[Int, Int]:
    """Pair every number of each range with every number of the range beside it."""
    other = stop - start
    pairs = (last - first) * other
    owner = np.repeat(np.arange(len(pairs)), pairs)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    return first[owner] + number // other[owner], start[owner] + number % other[owner]


def grid_by_cost(places: Double, radii: Radii) -> Grid:
    """Choose the number of levels that costs a query least: cells compared, then distances.

    A few vectors of the lake serve as queries; both terms are counted on them, for each depth.
    More levels filter more and compare more cells. Where the filters tell nothing, as with a
    threshold that is large beside the distances, one level remains: all vectors are compared.
    """
    chosen = np.random.default_rng(_SEED).choice(
        len(places), min(_QUERIES, len(places)), replace=False
    )
    best, least_cost = Grid(places, 0), float(len(chosen) * len(places))
    for depth in range(1, MOST_LEVELS + 1):
        grid = Grid(places, depth)
        blocked = block(Grid(places[chosen], depth), grid, radii)
        cost = blocked.compared * _CELL_COST + blocked.left(grid)
        if cost < least_cost:
            best, least_cost = grid, cost
        # Deeper grids compare more cells, and cannot leave fewer distances than none.
        if blocked.compared * _CELL_COST > least_cost:
            break
    return best
