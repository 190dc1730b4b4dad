"""PEXESO's hierarchical grid over pivot space, and the blocking of two grids (section 3.2).

A vector's place is its distances to the pivots, each between 0 and 2. Level i cuts every axis
into 2**i; only occupied cells exist. Cells are numbered so that the cells inside a cell follow
each other, which makes every cell a range of the sorted leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Distances = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

#: The largest distance of two unit vectors.
_RANGE = 2.0


@dataclass(frozen=True)
class Radii:
    """The distance that makes a match, from both sides of what rounding can do to it."""

    #: Vectors nearer than this certainly match; vectors farther than ``outer`` certainly do not.
    inner: float
    outer: float

    @classmethod
    def of(cls, tau: float) -> Radii:
        """Turn a cosine bound into distances of vectors whose lengths are 1 but for rounding."""
        square = 2 - 2 * tau
        return cls(max(0.0, square - 3e-5) ** 0.5 - 1e-6, (square + 3e-5) ** 0.5 + 1e-6)


@dataclass(frozen=True)
class Level:
    """The occupied cells of one level: corners and, as ranges, their leaves."""

    low: Distances
    high: Distances
    starts: Int
    stops: Int


class Grid:
    """Points in pivot space, sorted into the leaves of a hierarchy of cells."""

    def __init__(self, places: Distances, depth: int) -> None:
        self.places, self.depth = places, depth
        parts = np.clip((places / _RANGE * (1 << depth)).astype(np.int64), 0, (1 << depth) - 1)
        codes = _interleaved(parts, depth)
        self.leaves, self.leaf_of = np.unique(codes, return_inverse=True)
        self._parts = np.zeros((len(self.leaves), places.shape[1]), np.int64)
        self._parts[self.leaf_of] = parts
        self.levels = [self._level(i) for i in range(depth + 1)]

    def _level(self, i: int) -> Level:
        up = self.depth - i
        codes = self.leaves >> (up * self.places.shape[1])
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        corner = (self._parts[starts] >> up).astype(np.float64) * (_RANGE / (1 << i))
        return Level(corner, corner + _RANGE / (1 << i), starts, np.append(starts[1:], len(codes)))

    def children(self, level: int, cells: Int) -> tuple[Int, Int]:
        """Return where the cells inside each of some cells start and stop, one level down."""
        below = self.levels[level + 1].starts
        here = self.levels[level]
        return np.searchsorted(below, here.starts[cells]), np.searchsorted(below, here.stops[cells])


def _interleaved(parts: Int, depth: int) -> Int:
    """Mix the bits of the axes, the highest of all of them first."""
    codes = np.zeros(len(parts), np.int64)
    for bit in reversed(range(depth)):
        for axis in parts.T:
            codes = codes << 1 | (axis >> bit & 1)
    return codes


@dataclass(frozen=True)
class Blocked:
    """For each query vector and leaf of the lake: whether all in it match, or any can."""

    sure: Marks
    possible: Marks


def block(queries: Grid, lake: Grid, radii: Radii) -> Blocked:
    """Compare the grids level by level; what cannot match is dropped with all that is inside."""
    shape = (len(queries.places), len(lake.leaves))
    blocked = Blocked(np.zeros(shape, bool), np.zeros(shape, bool))
    mine = theirs = np.zeros(min(1, len(queries.leaves), len(lake.leaves)), np.int64)
    for level in range(lake.depth + 1):
        mine, theirs = _survivors(queries, lake, level, (mine, theirs), radii, blocked)
        if level < lake.depth:
            mine, theirs = _inside(queries, lake, level, mine, theirs)
    for own, other in zip(mine.tolist(), theirs.tolist(), strict=True):
        _compare_leaf(queries, lake, own, other, radii, blocked)
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
    # For every vector of the query's cell, hence with the far side of that cell.
    together = (own.high[mine] + other.high[theirs]).min(axis=1, initial=np.inf)
    whole = together <= radii.inner
    for q, x in zip(mine[whole].tolist(), theirs[whole].tolist(), strict=True):
        inside = (queries.leaf_of >= own.starts[q]) & (queries.leaf_of < own.stops[q])
        blocked.sure[inside, other.starts[x] : other.stops[x]] = True
    return mine[~whole], theirs[~whole]


def _inside(queries: Grid, lake: Grid, level: int, mine: Int, theirs: Int) -> tuple[Int, Int]:
    """Pair every cell inside the one with every cell inside the other."""
    (first, last), (start, stop) = queries.children(level, mine), lake.children(level, theirs)
    own, other = last - first, stop - start
    pair = np.repeat(np.arange(len(mine)), own * other)
    number = np.arange(len(pair)) - np.repeat(np.cumsum(own * other) - own * other, own * other)
    return first[pair] + number // other[pair], start[pair] + number % other[pair]


def _compare_leaf(
    queries: Grid, lake: Grid, own: int, other: int, radii: Radii, blocked: Blocked
) -> None:
    """Compare each vector of a query's leaf with a leaf of the lake (lemmas 3 and 5)."""
    rows = np.flatnonzero(queries.leaf_of == own)
    places, leaf = queries.places[rows], lake.levels[-1]
    low, high = leaf.low[other], leaf.high[other]
    apart = np.maximum(low - places, places - high).max(axis=1, initial=-np.inf)
    sure = (places + high).min(axis=1, initial=np.inf) <= radii.inner
    blocked.sure[rows[sure], other] = True
    blocked.possible[rows[~sure & (apart <= radii.outer)], other] = True
