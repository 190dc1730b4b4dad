"""PEXESO (Dong, Takeoka, Xiao and Oyamada, ICDE 2021): semantic joins by pivots instead of a scan.

A query is mapped to pivot space and blocked against the grid of the lake (`grid`). What is left is
verified by the inverted index, in blocks of query vectors: the distances of a block to all
vectors that it may match, then the columns that hold those which do. After each block, columns
that can no longer reach the bound are dropped, with all vectors that only they hold (lemma 7).

The published algorithm answers a threshold on the number of matching vectors (`joinable`). The
best k (`search`) are found in the same way, with the k-th best count so far as the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Float, Int, Marks, load_strings, ranges
from deepjoin.embed.cells import CellEncoder, encode_many
from deepjoin.embed.value_vectors import checked
from deepjoin.errors import DeepJoinError
from deepjoin.lab.pexeso_grid import (
    PIVOTS,
    RANGE,
    Blocked,
    Grid,
    Radii,
    block,
    choose_pivots,
    distances,
    grid_by_cost,
    own_leaves,
)
from deepjoin.matching.joinability import ONE, least, similarities
from deepjoin.memory import DEFAULT
from deepjoin.model import Column
from deepjoin.search.candidates import SimilarCells
from deepjoin.search.context import SearchContext
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import SemanticRanking, rank_by_meaning
from deepjoin.search.scores import ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.segment import Segment

#: Vectors of the query verified together, and vectors of the lake compared at a time.
_ROWS, _VECTORS = 256, 1 << 13
#: Vectors of neighbouring leaves that are compared with the same rows of the query.
_GROUP = 1 << 10
#: Pairs of vectors are filtered one by one where blocking leaves fewer than one in this many.
_SPARSE = 32
#: Quick browsing is worth it if the leaves of the query hold at most this share of the lake.
_BROWSED = 0.1
FOUND_BY = ("pexeso",)


def cosine_of_share(share: float) -> float:
    """Turn a threshold as PEXESO states it, a share of the largest distance, into a cosine.

    >>> round(cosine_of_share(0.06), 4)
    0.9928
    """
    if not 0 <= share < 0.5**0.5:
        raise DeepJoinError(
            f"The share of the largest distance is {share}; it must be at least 0 and below .707, "
            "where the cosine is 0. PEXESO uses .02 to .08."
        )
    return 1 - (share * RANGE) ** 2 / 2


@dataclass(frozen=True)
class ColumnValues:
    """Columns as ranges of value numbers: the forward index of a segment."""

    offsets: Int
    values: Int

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass
class PexesoWork:
    """What one search did: the paper counts distances, which are most of its time."""

    #: Pairs of vectors, the number of distances of a search without filters.
    pairs: int = 0
    #: Pairs of cells, and of vectors and cells, compared while blocking.
    cells: int = 0
    #: Pairs of vectors that were decided, either way, by their distances to pivots.
    filtered: int = 0
    #: Distances of vectors that were computed.
    distances: int = 0


@dataclass(frozen=True)
class _Postings:
    """The inverted index: for each vector, in the order of the grid, the columns that hold it."""

    offsets: Int
    columns: Int

    @classmethod
    def of(cls, columns: ColumnValues, place_of: Int, vectors: int) -> _Postings:
        """Invert the forward index; ``place_of`` is -1 for values that have no vector."""
        places = place_of[columns.values]
        owners = np.repeat(np.arange(len(columns)), np.diff(columns.offsets))
        owners, places = owners[places >= 0], places[places >= 0]
        order = np.argsort(places, kind="stable")
        return cls(np.searchsorted(places[order], np.arange(vectors + 1)), owners[order])

    def of_places(self, places: Int) -> tuple[Int, Int]:
        """Return the columns of some vectors, and for each which of the vectors it is for."""
        sizes = self.offsets[places + 1] - self.offsets[places]
        found = self.columns[ranges(self.offsets[places], sizes)]
        return found, np.repeat(np.arange(len(places)), sizes)

    def held_by(self, alive: Marks) -> Marks:
        """Mark the vectors that a column of those alive holds."""
        counted = np.concatenate([[0], np.cumsum(alive[self.columns])])
        return np.asarray(counted[self.offsets[1:]] > counted[self.offsets[:-1]])


class Pexeso:
    """Finds columns in which many vectors of a query have a match: exact, by pruning.

    ``order`` breaks ties between columns with equal numbers of matches; smaller is better.
    ``levels`` is the depth of the grid; by default it is chosen by cost for queries at ``tau``.
    """

    def __init__(
        self,
        vectors: npt.ArrayLike,
        columns: ColumnValues,
        order: Int | None = None,
        *,
        pivots: int = PIVOTS,
        levels: int | None = None,
        tau: float = 0.9,
    ) -> None:
        given = checked(vectors, np.shape(vectors)[-1])
        known = np.flatnonzero(given.any(axis=1))  # a zero vector matches nothing
        self._columns = columns
        self._order = np.arange(len(columns)) if order is None else order
        self._pivots = choose_pivots(given[known], pivots)
        places = distances(given[known], self._pivots)
        self._grid = grid_by_cost(places, Radii.of(tau)) if levels is None else Grid(places, levels)
        # Vectors of a leaf lie side by side, so that a block of them is read in one go.
        sorted_values = known[self._grid.order]
        self._vectors, self._places = given[sorted_values], places[self._grid.order]
        place_of = np.full(len(given), -1)
        place_of[sorted_values] = np.arange(len(known))
        self._postings = _Postings.of(columns, place_of, len(known))
        self._by_value = _Postings.of(columns, np.arange(len(given)), len(given))
        #: What the latest search did; not safe for several threads.
        self.work = PexesoWork()

    @property
    def levels(self) -> int:
        """The depth of the grid."""
        return self._grid.depth

    def joinable(
        self, query: npt.ArrayLike, tau: float, matches: int, equal: Int | None = None
    ) -> Int:
        """Return the columns in which at least ``matches`` vectors of the query have a match.

        ``equal`` has the value equal to each cell of the query, -1 for none; it always matches.
        """
        counts = _PexesoQuery(self, query, tau, equal).counts(None, max(1, matches), None)
        return np.flatnonzero(counts >= max(1, matches))

    def search(
        self,
        query: npt.ArrayLike,
        tau: float,
        k: int,
        excluded: Marks | None = None,
        equal: Int | None = None,
    ) -> tuple[Int, Int]:
        """Return the k columns with the most matches, at least one, and how many each has."""
        if k < 0:
            raise DeepJoinError(f"k is {k}; it must be >= 0.")
        counts = _PexesoQuery(self, query, tau, equal).counts(excluded, 1, k)
        ranked = np.lexsort((self._order, -counts))[:k]
        ranked = ranked[counts[ranked] > 0]
        return ranked, counts[ranked]


class _PexesoQuery:
    """One query: blocking, then verification of what it leaves."""

    def __init__(self, lake: Pexeso, query: npt.ArrayLike, tau: float, equal: Int | None) -> None:
        if not 0 < tau <= 1:
            raise DeepJoinError(f"tau is {tau}; it must be a cosine above 0 and at most 1.")
        self._lake, self._query = lake, checked(query, lake._vectors.shape[1])
        self._equal = np.full(len(self._query), -1) if equal is None else equal
        self._least, self._radii = least(tau), Radii.of(tau)
        # What single precision may add to or take from a product of unit vectors.
        self._error = 2e-6 + self._query.shape[1] * 1.2e-7
        self._places = distances(self._query, lake._pivots)
        self._grid = Grid(self._places, lake.levels)
        self._known: Marks = np.asarray(self._query.any(axis=1))
        lake.work = PexesoWork(pairs=int(self._known.sum()) * len(lake._vectors))
        self._work = lake.work

    def counts(self, excluded: Marks | None, bound: int, k: int | None) -> Int:
        """Count the vectors with a match in each column; 0 for columns below the bound.

        The bound rises to the k-th best count that is certain so far.
        """
        lake, rows = self._lake, len(self._query)
        counts = np.zeros(len(lake._columns), np.int64)
        alive = np.ones(len(counts), bool) if excluded is None else ~excluded
        if k == 0 or not rows or not alive.any():
            return counts
        bound = max(bound, _kth(self._certain()[alive], k))
        done = 0
        for some, blocked in self._blocks(bound):
            keys = self._matched(
                some, blocked, None if done == 0 else lake._postings.held_by(alive)
            )
            counts += np.bincount(keys % len(counts), minlength=len(counts))
            done += len(some)
            bound = max(bound, _kth(counts[alive], k))
            alive &= counts + (rows - done) >= bound  # lemma 7
            if not alive.any():
                break
        return np.where(alive & (counts >= bound), counts, 0)

    def _certain(self) -> Int:
        """Count matches that are known at once: equal cells, and what quick browsing finds."""
        lake = self._lake
        keys = [self._equal_keys(np.arange(len(self._query)))]
        own = np.where(self._known, own_leaves(self._grid, lake._grid), -1)
        leaves = np.unique(own[own >= 0])
        if lake._grid.sizes[leaves].sum() <= _BROWSED * len(lake._vectors):
            possible = np.zeros((len(own), len(lake._grid.leaves)), bool)
            possible[own >= 0, own[own >= 0]] = True
            browsed = Blocked(np.zeros_like(possible), possible, 0)
            keys.append(self._matched(np.arange(len(own)), browsed, None))
        unique = np.unique(np.concatenate(keys))
        return np.bincount(unique % len(lake._columns), minlength=len(lake._columns))

    def _blocks(self, bound: int) -> Iterator[tuple[Int, Blocked]]:
        """Yield rows of the query with what blocking leaves of the lake, the fewest pairs first.

        The first block has as many rows as it takes to drop columns in which none of them match.
        """
        blocked = block(self._grid, self._lake._grid, self._radii)
        blocked.sure[~self._known] = blocked.possible[~self._known] = False
        self._work.cells += blocked.compared
        order = np.argsort(blocked.possible @ self._lake._grid.sizes, kind="stable")
        first = max(1, len(order) - bound + 1)
        starts = [*range(0, first, _ROWS), *range(first, len(order), _ROWS)]
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            rows = order[start:stop]
            yield rows, Blocked(blocked.sure[rows], blocked.possible[rows], 0)

    def _equal_keys(self, rows: Int) -> Int:
        """Pair rows with the columns that hold an equal cell, each as row * columns + column."""
        equal = self._equal[rows]
        at = np.flatnonzero(equal >= 0)
        columns, which = self._lake._by_value.of_places(equal[at])
        return at[which] * len(self._lake._columns) + columns

    def _matched(self, rows: Int, blocked: Blocked, held: Marks | None) -> Int:
        """Pair rows, by their place in the block, with the columns in which they have a match."""
        lake = self._lake
        at, leaves = np.nonzero(blocked.sure)
        sizes = lake._grid.sizes[leaves]
        sure = np.repeat(at, sizes), ranges(lake._grid.offsets[leaves], sizes)
        self._work.filtered += len(sure[0])
        pairs = [sure, *self._verified(rows, blocked.possible, held)]
        at, places = (np.concatenate(part) for part in zip(*pairs, strict=True))
        columns, which = lake._postings.of_places(places)
        keys = at[which] * len(lake._columns) + columns
        return np.unique(np.concatenate([keys, self._equal_keys(rows)]))

    def _verified(
        self, rows: Int, possible: Marks, held: Marks | None
    ) -> Iterator[tuple[Int, Int]]:
        """Compare rows with the vectors of the leaves that blocking left, some leaves at a time."""
        grid = self._lake._grid
        leaves = np.flatnonzero(possible.any(axis=0))
        sizes = grid.sizes[leaves]
        cuts = np.searchsorted(np.cumsum(sizes), np.arange(0, sizes.sum(), _GROUP))
        for some in np.split(leaves, np.unique(cuts)[1:]) if len(leaves) else ():
            chosen = possible[:, some]
            asked = np.flatnonzero(chosen.any(axis=1))
            sizes = grid.sizes[some]
            places = ranges(grid.offsets[some], sizes)
            owner = np.repeat(np.arange(len(some)), sizes)
            if held is not None:
                kept = held[places]
                places, owner = places[kept], owner[kept]
            chosen = chosen[asked]
            left = int((chosen @ np.bincount(owner, minlength=len(some))).sum())
            if left * _SPARSE < len(asked) * len(places):
                at, which = np.nonzero(chosen[:, owner])
                found = self._one_by_one(rows[asked[at]], places[which])
                yield asked[at[found]], places[which[found]]
            else:
                for start in range(0, len(places), _VECTORS):
                    part = places[start : start + _VECTORS]
                    at, which = self._all_together(rows[asked], part)
                    yield asked[at], part[which]

    def _one_by_one(self, rows: Int, places: Int) -> Marks:
        """Decide pairs of vectors: by their distances to pivots, and the rest exactly."""
        lake = self._lake
        own, other = self._places[rows], lake._places[places]
        matched = (own + other).min(axis=1, initial=np.inf) <= self._radii.inner  # lemma 2
        apart = np.abs(own - other).max(axis=1, initial=0) > self._radii.outer  # lemma 1
        left = np.flatnonzero(~matched & ~apart)
        self._work.filtered += len(rows) - len(left)
        self._work.distances += len(left)
        found = similarities(lake._vectors[places[left]], self._query[rows[left]])
        matched[left] = found >= self._least
        return np.asarray(matched)

    def _all_together(self, rows: Int, places: Int) -> tuple[Int, Int]:
        """Compare all rows with all vectors by one product; pairs near the bound exactly."""
        lake = self._lake
        whole = len(places) == places[-1] - places[0] + 1
        vectors: Float = (
            lake._vectors[places[0] : places[-1] + 1] if whole else lake._vectors[places]
        )
        self._work.distances += len(rows) * len(places)
        products = self._query[rows] @ vectors.T
        bound = self._least / ONE
        at, which = np.nonzero(products >= np.float32(bound - self._error))
        close = np.flatnonzero(products[at, which] < bound + self._error)
        exact = similarities(self._query[rows[at[close]]], vectors[which[close]]) >= self._least
        kept = np.ones(len(at), bool)
        kept[close] = exact
        return at[kept], which[kept]


def _kth(counts: Int, k: int | None) -> int:
    """Return the k-th largest count, 0 if there are fewer or no k."""
    if k is None or len(counts) < k:
        return 0
    return int(np.partition(counts, len(counts) - k)[len(counts) - k])


def pexeso(context: SearchContext, join: str, tau: float | None) -> PexesoSearch:
    """Search by pivots and a grid, with the encoder's own tau by default."""
    return PexesoSearch(context.segments, context.profile, context.cell_encoder(), tau)


class PexesoSearch(Searcher):
    """Ranks by semantic joinability; its grids hold all vectors in memory, in full precision."""

    def __init__(
        self, segments: Sequence[Segment], profile: str, encoder: CellEncoder, tau: float | None
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder = profile, encoder
        self._score = PairScore.of("semantic", encoder, tau)
        self._grids = [self._grid(segment) for segment in self._segments]

    def _grid(self, segment: Segment) -> Pexeso:
        # Encoded again: the lemmas hold for exact vectors, and an index stores rounded ones.
        strings = load_strings(segment.folder, "values")
        vectors = encode_many(self._encoder, DEFAULT)(strings)
        index = segment.values
        columns = ColumnValues(
            np.asarray(index.column_offsets), np.asarray(index.cell_values, np.int64)
        )
        return Pexeso(vectors, columns, segment.catalog.column_order, tau=self._score.tau)

    @property
    def work(self) -> list[PexesoWork]:
        """What the latest search did in each segment; not safe for several threads."""
        return [grid.work for grid in self._grids]

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> SemanticRanking:
        cells = SearchQuery(query, self._profile, encoder=self._encoder)
        watch.lap("encode")
        scored = [
            self._scored(segment, grid, cells, options)
            for segment, grid in zip(self._segments, self._grids, strict=True)
            if len(cells) and options.columns != 0
        ]
        watch.lap("candidates")
        limits = options.columns, options.threshold, self._score.tau
        return rank_by_meaning(cells, scored, *limits, found_by=FOUND_BY)

    def _scored(
        self, segment: Segment, grid: Pexeso, query: SearchQuery, options: SearchOptions
    ) -> ColumnScores:
        """Ask the grid for the best k, or for all that reach the threshold, and measure them."""
        cells = SimilarCells(segment, query, self._score, self._encoder)
        out, tau = excluded_columns(segment, options.exclude), self._score.tau
        if options.columns is not None:
            found = grid.search(query.vectors, tau, options.columns, out, cells.equal)[0]
        else:
            # A little less, because the division that decides may round up.
            least = int(np.ceil(options.threshold * len(query) * (1 - 1e-9)))
            found = grid.joinable(query.vectors, tau, max(1, least), cells.equal)
            found = found if out is None else found[~out[found]]
        columns = np.sort(found)
        matches, _ = cells.matches_in(columns, np.arange(len(query)))
        return ColumnScores.of(segment, columns, matches, self._score, np.zeros(len(columns)))
