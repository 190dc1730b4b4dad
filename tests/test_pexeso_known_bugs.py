"""Mistakes found in public implementations of PEXESO, each as a test that ours does not make it.

The first one counts matches and mismatches by pair, doubles the bound of lemma 7, gives up after
30 seconds, takes the smallest projections for pivots, sought by local outlier factors, and lets
the cells of a level share one centre. The second compares squared distances with twice the
threshold, prunes by lemma 1 if all pivots say so, and accepts by lemma 6 if one vector fits.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from deepjoin.arrays import Float
from deepjoin.lab import pexeso_grid as grid
from deepjoin.lab.pexeso import Pexeso
from deepjoin.lab.pexeso_grid import Grid, Radii, block, choose_pivots, farthest_first
from deepjoin.matching.joinability import least, similarities
from tests.support.pexeso_lakes import columns_of, counted, drawn_lake, unit


def around(*degrees: float) -> Float:
    """Make unit vectors of the plane."""
    angles = np.radians(degrees)
    return unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))


def cosine(distance: float) -> float:
    """Turn a distance of unit vectors, the threshold of those programs, into a cosine."""
    return 1 - distance**2 / 2


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "wanted"), [(0.35, 6), (0.6, 8), (0.2, 8), (0.12, 8)])
def test_no_column_is_lost_at_the_settings_where_all_were(distance: float, wanted: int) -> None:
    random = np.random.default_rng(17)
    centres = random.standard_normal((40, 8))
    vectors = unit(centres[np.arange(2000) % 40] + 0.03 * random.standard_normal((2000, 8)))
    lists = [np.sort(random.choice(2000, 30, replace=False)).tolist() for _ in range(200)]
    lake, tau, found = Pexeso(vectors, columns_of(lists)), cosine(distance), 0
    for _ in range(20):
        query = unit(centres[random.choice(40, 20)] + 0.03 * random.standard_normal((20, 8)))
        expected = np.flatnonzero(counted(vectors, lists, query, tau) >= wanted).tolist()
        assert lake.joinable(query, tau, wanted).tolist() == expected
        found += len(expected)
    assert found, "there was something to lose"


def test_matches_are_counted_by_vector_and_not_by_pair() -> None:
    # One of four vectors of the query matches all twenty of the column.
    lake = Pexeso(around(*range(20)), columns_of([list(range(20))]))
    query = around(10, 120, 180, 240)
    assert lake.search(query, cosine(0.5), 1)[1].tolist() == [1]
    assert lake.joinable(query, cosine(0.5), 2).tolist() == []


def test_mismatches_are_counted_by_vector_and_not_by_pair() -> None:
    # Every vector of the query matches one of the column, and mismatches thirty-five.
    vectors = around(*range(0, 360, 10))
    lake = Pexeso(vectors, columns_of([list(range(36))]))
    assert lake.joinable(vectors, cosine(0.1), 36).tolist() == [0]
    assert lake.search(vectors, cosine(0.1), 1)[1].tolist() == [36]


@pytest.mark.parametrize(("wanted", "joinable"), [(1, True), (5, True), (6, False), (8, False)])
def test_lemma_7_stops_at_the_bound_itself_and_not_at_twice_it(wanted: int, joinable: bool) -> None:
    # Five of eight vectors have a match: three mismatches leave a bound of five within reach.
    lake = Pexeso(around(0, 40, 80, 120, 160), columns_of([[0, 1, 2, 3, 4]]))
    query = around(0, 40, 80, 120, 160, 220, 260, 300)
    assert lake.joinable(query, cosine(0.1), wanted).tolist() == ([0] if joinable else [])


def test_columns_are_left_as_soon_as_the_bound_is_out_of_reach() -> None:
    vectors, lists, query = drawn_lake(3, False, 3)
    lake = Pexeso(vectors, columns_of(lists), levels=0)
    lake.joinable(query, 0.9, 1)
    every = lake.work.distances
    lake.joinable(query, 0.9, len(query))
    assert lake.work.distances < every


def test_no_clock_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, lists, query = drawn_lake(5, True, 3)
    lake = Pexeso(vectors, columns_of(lists))
    expected = lake.search(query, 0.8, 10)
    hours = itertools.count(0, 3600)
    for clock in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(hours)))
    found = lake.search(query, 0.8, 10)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


def test_pivots_have_the_largest_projections() -> None:
    loadings = np.array([[0.1, -0.9, 0.3, 0.2], [0.05, 0.8, -0.1, 0.6], [0.7, 0.0, 0.1, 0.2]])
    assert grid._one_each(loadings, 3).tolist() == [1, 3, 0], "by size, whatever the sign"


def test_outliers_are_sought_farthest_first() -> None:
    # Vectors that a local outlier factor finds ordinary, since each has company of its own.
    vectors = around(0, 1, 2, 90, 91, 92, 180, 181, 182, 270, 271, 272)
    quarters = {int(n) // 3 for n in farthest_first(vectors, 4)}
    assert quarters == {0, 1, 2, 3}
    assert len(np.unique(choose_pivots(vectors, 3), axis=0)) == 3


def test_cells_have_corners_of_their_own_that_no_search_moves() -> None:
    vectors, lists, query = drawn_lake(11, True, 3)
    lake = Pexeso(vectors, columns_of(lists), levels=4)
    levels = lake._grid.levels
    corners = [(level.low.copy(), level.high.copy()) for level in levels]
    for level in levels:
        both = np.concatenate([level.low, level.high], axis=1)
        assert len(np.unique(both, axis=0)) == len(both), "cells of a level are different"
    first, again = (lake.search(query, 0.7, 30)[0].tolist() for _ in range(2))
    assert first == again
    for level, (low, high) in zip(levels, corners, strict=True):
        assert (level.low == low).all() and (level.high == high).all()


@pytest.mark.parametrize("distance", [0.05, 0.3, 0.7, 1.1])
def test_distances_are_compared_and_not_their_squares_with_twice_the_threshold(
    distance: float,
) -> None:
    # By d² ≤ 2τ, a threshold of .3 would let vectors .77 apart match.
    angle, tau = 2 * np.degrees(np.arcsin(distance / 2)), cosine(distance)
    for factor, matches in ((0.99, 1), (1.01, 0)):
        lake = Pexeso(around(angle * factor, angle * factor + 160), columns_of([[0]]))
        assert bool(similarities(around(angle * factor)[0], around(0)[0]) >= least(tau)) == matches
        assert len(lake.joinable(around(0), tau, 1)) == matches


@pytest.mark.parametrize(("mine", "theirs"), [(0.1, 1.9), (0.01, 0.6)])
def test_lemma_1_prunes_if_one_pivot_says_so(mine: float, theirs: float) -> None:
    # Equal to two pivots, too far apart by the third: of the cells, or of a vector and a cell.
    lake, asked = np.array([[0.5, 0.5, theirs]]), np.array([[0.5, 0.5, mine]])
    for order in itertools.permutations(range(3)):
        blocked = block(Grid(asked[:, order], 3), Grid(lake[:, order], 3), Radii(0.29, 0.3))
        assert not (blocked.sure | blocked.possible).any()


def test_lemma_6_accepts_a_cell_only_if_every_vector_fits() -> None:
    # Two vectors of the query share a cell; only the first is certainly near the lake's.
    asked, lake = Grid(np.array([[0.01], [0.24]]), 3), Grid(np.array([[0.2]]), 3)
    assert asked.leaf_of.tolist() == [0, 0]
    blocked = block(asked, lake, Radii(0.3, 0.31))
    assert blocked.sure.tolist() == [[True], [False]]
    assert blocked.possible.tolist() == [[False], [True]]
