"""PEXESO equals brute force; the mistakes known from other implementations are not made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import DeepJoinError
from deepjoin.lab import pexeso
from deepjoin.lab.pexeso import Pexeso, cosine_of_share
from deepjoin.lab.pexeso_grid import (
    Grid,
    Radii,
    block,
    choose_pivots,
    distances,
    farthest_first,
    own_leaves,
)
from deepjoin.matching.joinability import least, similarities
from tests.support.pexeso_lakes import columns_of, counted, drawn_lake, unit


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    clustered=st.booleans(),
    dimension=st.sampled_from([2, 3, 16]),
    tau=st.sampled_from([0.05, 0.5, 0.7, 0.9, 0.98, 1.0]),
    pivots=st.integers(1, 5),
    levels=st.sampled_from([None, 0, 1, 2, 5]),
    wanted=st.integers(1, 11),
    k=st.integers(0, 30),
)
def test_both_searches_equal_brute_force(
    seed: int,
    clustered: bool,
    dimension: int,
    tau: float,
    pivots: int,
    levels: int | None,
    wanted: int,
    k: int,
) -> None:
    vectors, lists, query = drawn_lake(seed, clustered, dimension)
    order = np.random.default_rng(seed).permutation(len(lists))
    lake = Pexeso(vectors, columns_of(lists), order, pivots=pivots, levels=levels, tau=tau)
    counts = counted(vectors, lists, query, tau)
    assert lake.joinable(query, tau, wanted).tolist() == np.flatnonzero(counts >= wanted).tolist()
    columns, found = lake.search(query, tau, k)
    ranked = [c for c in np.lexsort((order, -counts)).tolist() if counts[c]][:k]
    assert columns.tolist() == ranked
    assert found.tolist() == counts[ranked].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_SPARSE", "_ROWS", "_VECTORS", "_BROWSED"])
@given(
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.5, 0.9, 0.98]),
    k=st.integers(1, 12),
    share=st.sampled_from([0.1, 0.4, 0.9]),
)
def test_any_way_of_verifying_gives_the_same(
    name: str, seed: int, tau: float, k: int, share: float
) -> None:
    """Pairs one by one or together, in blocks of one or all, with or without quick browsing."""
    vectors, lists, query = drawn_lake(seed, True, 3)
    equal = np.where(np.random.default_rng(seed).random(len(query)) < 0.3, 7, -1)
    lake = Pexeso(vectors, columns_of(lists), levels=3)
    wanted = int(np.ceil(share * len(query)))
    usual = (*lake.search(query, tau, k, equal=equal), lake.joinable(query, tau, wanted, equal))
    for value in (0, 10**6) if name in ("_SPARSE", "_BROWSED") else (1, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pexeso, name, value)
            found = (
                *lake.search(query, tau, k, equal=equal),
                lake.joinable(query, tau, wanted, equal),
            )
        assert [one.tolist() for one in found] == [one.tolist() for one in usual]


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), tau=st.sampled_from([0.5, 0.8, 0.95]))
def test_excluded_columns_are_no_hits(seed: int, tau: float) -> None:
    vectors, lists, query = drawn_lake(seed, True, 3)
    excluded = np.random.default_rng(seed).random(len(lists)) < 0.5
    counts = np.where(excluded, 0, counted(vectors, lists, query, tau))
    columns, _ = Pexeso(vectors, columns_of(lists)).search(query, tau, 5, excluded)
    ranked = np.argsort(-counts, kind="stable")[:5]
    assert columns.tolist() == ranked[counts[ranked] > 0].tolist()


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), tau=st.floats(0.05, 1), pivots=st.integers(1, 5))
def test_blocking_loses_no_pair_and_claims_none(seed: int, tau: float, pivots: int) -> None:
    vectors, _, query = drawn_lake(seed, True, 3)
    vectors, query = (rows[rows.any(axis=1)] for rows in (vectors, query))
    chosen = choose_pivots(vectors, pivots)
    lake, asked = (Grid(distances(rows, chosen), 4) for rows in (vectors, query))
    blocked = block(asked, lake, Radii.of(tau))
    near = np.array([similarities(row, vectors) >= least(tau) for row in query])
    assert not (near & ~(blocked.sure | blocked.possible)[:, lake.leaf_of]).any()
    assert not (~near & blocked.sure[:, lake.leaf_of]).any()


def test_a_vector_counts_once_however_many_match() -> None:
    vectors = unit([[1, 0], [1, 0.01], [1, 0.02], [0, 1]])
    lake = Pexeso(vectors, columns_of([[0, 1, 2], [0, 3]]), pivots=2)
    query = unit([[1, 0], [-1, 0]])
    assert lake.search(query, 0.9, 5)[1].tolist() == [1, 1]
    assert lake.joinable(query, 0.9, 2).tolist() == []


def test_a_column_is_not_given_up_for_pairs_that_do_not_match() -> None:
    # One match among many mismatching pairs: mismatches count by vector, not by pair.
    angles = np.linspace(0, np.pi, 30)
    vectors = unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    lake = Pexeso(vectors, columns_of([list(range(30))]))
    query = vectors[[3, 14, 29]]
    assert lake.joinable(query, 0.999, 3).tolist() == [0]


def test_vectors_that_count_twice_in_the_query_count_twice() -> None:
    vectors = unit([[1, 0], [0, 1]])
    lake = Pexeso(vectors, columns_of([[0], [1]]))
    assert lake.search(unit([[1, 0], [1, 0], [0, 1]]), 0.9, 2)[1].tolist() == [2, 1]


def test_one_pivot_is_enough_to_prune_and_all_vectors_must_fit_a_cell() -> None:
    # Pivot space by hand: equal distance to the first pivot, far apart by the second.
    lake = Grid(np.array([[0.5, 0.1], [0.5, 1.9]]), 3)
    asked = Grid(np.array([[0.5, 0.1], [0.5, 0.2]]), 0)
    blocked = block(Grid(asked.places, 3), lake, Radii(0.29, 0.3))
    either = blocked.sure | blocked.possible
    assert either[:, lake.leaf_of].tolist() == [[True, False], [True, False]]
    # Both vectors share a cell; the match is certain for the nearer one at most.
    alone = block(Grid(np.array([[0.01], [0.24]]), 3), Grid(np.array([[0.2]]), 3), Radii(0.3, 0.31))
    assert alone.sure.tolist() == [[True], [False]]


def test_the_bound_is_a_distance_and_not_its_square() -> None:
    angle = np.arccos(0.9)
    for offset, matches in ((-1e-3, 1), (1e-3, 0)):
        vectors = unit([[np.cos(angle + offset), np.sin(angle + offset)], [-1, 0]])
        lake = Pexeso(vectors, columns_of([[0]]))
        assert len(lake.joinable(unit([[1, 0]]), 0.9, 1)) == matches
    radii = Radii.of(0.9)
    assert radii.inner < 0.2**0.5 < radii.outer < 0.2**0.5 + 1e-3


def test_cells_of_a_level_hold_the_cells_below() -> None:
    grid = Grid(np.random.default_rng(0).uniform(0, 2, (300, 3)), 4)
    for level in range(5):
        cells = grid.levels[level]
        assert cells.starts[0] == 0 and cells.stops[-1] == len(grid.leaves)
        owner = np.searchsorted(cells.starts, grid.leaf_of, side="right") - 1
        assert (grid.places >= cells.low[owner]).all() and (grid.places <= cells.high[owner]).all()
        sides = cells.high - cells.low
        assert np.allclose(sides, 2 / 2**level)


def test_pivots_are_outliers_and_different() -> None:
    random = np.random.default_rng(3)
    crowd = unit(np.array([1.0, 0, 0]) + 0.01 * random.standard_normal((200, 3)))
    vectors = np.concatenate([crowd, unit([[0, 1, 0], [0, 0, 1], [-1, 0, 0]])])
    assert {200, 201, 202} <= set(farthest_first(vectors, 5).tolist())
    pivots = choose_pivots(vectors, 3)
    assert len(np.unique(pivots, axis=0)) == 3
    assert len(choose_pivots(vectors[:1].repeat(9, axis=0), 3)) == 1


def test_equal_cells_match_without_vectors() -> None:
    vectors = unit([[0, 0], [0, 0], [1, 0]])
    lake = Pexeso(vectors, columns_of([[0], [1], [2]]))
    columns, counts = lake.search(np.zeros((2, 2)), 0.5, 3, equal=np.array([1, -1]))
    assert (columns.tolist(), counts.tolist()) == ([1], [1])


def clusters(seed: int = 0) -> tuple[np.ndarray, list[list[int]], np.ndarray]:
    """Make 50 clusters of near vectors, columns of whole clusters, and a query of one vector each.

    Distances within a cluster are far below those between clusters, as with other spellings.
    """
    random = np.random.default_rng(seed)
    centres = unit(random.standard_normal((50, 16)))
    vectors = unit(np.repeat(centres, 100, axis=0) + 0.005 * random.standard_normal((5000, 16)))
    lists = [np.sort(random.choice(5000, 50, replace=False)).tolist() for _ in range(100)]
    return vectors, lists, unit(centres[:12] + 0.005 * random.standard_normal((12, 16)))


def test_work_is_counted_and_filters_leave_few_distances() -> None:
    vectors, lists, query = clusters()
    tau = cosine_of_share(0.04)
    lake = Pexeso(vectors, columns_of(lists), tau=tau)
    lake.search(query, tau, 10)
    assert lake.levels > 0
    assert lake.work.pairs == 12 * 5000
    assert 0 < lake.work.distances < lake.work.pairs / 3
    assert lake.work.cells > 0
    assert (
        lake.search(query, tau, 10)[1].tolist()
        == sorted(counted(vectors, lists, query, tau).tolist(), reverse=True)[:10]
    )


def test_a_grid_that_filters_nothing_is_not_used() -> None:
    # Random directions in many dimensions are all about equally far apart.
    vectors = unit(np.random.default_rng(0).standard_normal((500, 64)))
    lake = Pexeso(vectors, columns_of([list(range(500))]), tau=0.3)
    assert lake.levels == 0
    lake.search(vectors[:10], 0.3, 1)
    assert lake.work.distances == lake.work.pairs


def test_columns_below_the_bound_are_dropped_with_their_vectors() -> None:
    vectors, lists, query = clusters()
    lake = Pexeso(vectors, columns_of(lists), levels=0)
    found = lake.joinable(query, 0.99, 1)
    every = lake.work.distances
    assert len(found)
    lake.joinable(query, 0.99, 11)
    assert lake.work.distances < 0.8 * every, "many columns lack the first two"


def test_quick_browsing_finds_the_leaf_of_each_vector() -> None:
    lake, asked = Grid(np.array([[0.1], [1.9]]), 3), Grid(np.array([[1.8], [1.0], [0.2]]), 3)
    own = own_leaves(asked, lake)
    assert own.tolist() == [1, -1, 0]
    assert lake.leaf_of.tolist() == [0, 1]


def test_thresholds_as_shares_of_the_largest_distance() -> None:
    assert cosine_of_share(0) == 1
    # Unit vectors 6% of the largest distance apart: .12.
    angle = 2 * np.arcsin(0.06)
    assert cosine_of_share(0.06) == pytest.approx(np.cos(angle))
    with pytest.raises(DeepJoinError, match=r"The share of the largest distance is 0.8; it must"):
        cosine_of_share(0.8)


def test_empty_sides_have_no_hits() -> None:
    lake = Pexeso(np.zeros((0, 2)), columns_of([[], []]))
    assert lake.joinable(unit([[1, 0]]), 0.5, 1).tolist() == []
    lake = Pexeso(unit([[1, 0]]), columns_of([[0]]))
    assert lake.search(np.zeros((0, 2)), 0.5, 3)[0].tolist() == []


def test_questions_out_of_range_are_refused() -> None:
    lake = Pexeso(unit([[1, 0]]), columns_of([[0]]))
    with pytest.raises(DeepJoinError, match="tau is 1.5; it must be a cosine above 0"):
        lake.joinable(unit([[1, 0]]), 1.5, 1)
    with pytest.raises(DeepJoinError, match="k is -1; it must be >= 0"):
        lake.search(unit([[1, 0]]), 0.5, -1)
