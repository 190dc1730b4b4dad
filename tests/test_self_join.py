"""Mining pairs to train on: equal to comparing all columns, capped fairly, errors in words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError
from deepjoin.lab.training import self_join
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.prepare import near_values
from deepjoin.lab.training.self_join import ColumnPairs, PairRule, equi_pairs, semantic_pairs
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.model import Column

pytest.importorskip("scipy")

Sets = list[set[int]]

#: Few values, so that columns meet; value 0 is in most columns.
LAKES = st.lists(
    st.tuples(st.sets(st.integers(0, 12), max_size=11), st.booleans(), st.integers(0, 6)),
    min_size=2,
    max_size=14,
)
THRESHOLDS = st.sampled_from([0.1, 0.3, 0.5, 0.6, 2 / 3, 0.7, 0.9, 1.0])


def lake(lists: list[list[str]], tables: list[int] | None = None) -> TrainingColumns:
    return TrainingColumns.of([Column(cells) for cells in lists], tables or range(len(lists)))


def drawn(columns: list[tuple[set[int], bool, int]]) -> tuple[Sets, list[int]]:
    sets = [values | {0} if common else values for values, common, _ in columns]
    return sets, [table for _, _, table in columns]


def columns_of(sets: Sets, tables: list[int]) -> TrainingColumns:
    return lake([[f"v{value}" for value in sorted(values)] for values in sets], tables)


def triples(pairs: ColumnPairs) -> list[tuple[int, int, float]]:
    return list(zip(pairs.x.tolist(), pairs.y.tolist(), pairs.joinability.tolist(), strict=True))


def in_order(found: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    return sorted(found, key=lambda one: (one[0], -one[2], one[1]))


def by_brute_force(sets: Sets, tables: list[int], threshold: float) -> list[tuple[int, int, float]]:
    found = [
        (x, y, float(np.float32(len(sets[x] & sets[y]) / len(sets[x]))))
        for x in range(len(sets))
        for y in range(len(sets))
        if tables[x] != tables[y] and sets[x]
        if len(sets[x] & sets[y]) / len(sets[x]) >= threshold
    ]
    return in_order(found)


def usable(found: list[tuple[int, int, float]], sets: Sets) -> bool:
    """Say whether the pairs are of more than one column and its copies."""
    return len({frozenset(sets[column]) for x, y, _ in found for column in (x, y)}) > 1


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(LAKES, THRESHOLDS, st.sampled_from([1, 7, 1 << 22]), st.sampled_from([0, 1, 8]))
def test_equi_pairs_are_those_of_comparing_all(
    columns: list[tuple[set[int], bool, int]], threshold: float, work: int, easy: int
) -> None:
    sets, tables = drawn(columns)
    right = by_brute_force(sets, tables, threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_join, "_WORK", work)
        patch.setattr(self_join, "_EASY", easy)
        if usable(right, sets):
            pairs = equi_pairs(columns_of(sets, tables), threshold, most=None)
            assert triples(pairs) == right
        else:
            with pytest.raises(DeepJoinError):
                equi_pairs(columns_of(sets, tables), threshold, most=None)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 400))
def test_as_many_values_must_match_as_reach_the_threshold(size: int, part: int, whole: int) -> None:
    threshold = min(part, whole) / whole
    least = int(PairRule(threshold).least(np.array([size]))[0])
    assert least == min(count for count in range(1, size + 1) if count / size >= threshold)


def test_seven_of_ten_is_a_joinability_of_seven_tenths() -> None:
    ten = [f"v{value}" for value in range(10)]
    pairs = equi_pairs(lake([ten, [*ten[:7], "a", "b", "c", "d"], ten[:6]]), 0.7)
    assert triples(pairs) == [(0, 1, pytest.approx(0.7)), (2, 0, 1.0), (2, 1, 1.0)]


def test_columns_of_one_table_are_no_pair() -> None:
    columns = lake([["a", "b"], ["a", "b"], ["a", "b", "c"]], [0, 0, 1])
    assert triples(equi_pairs(columns, 1.0)) == [(0, 2, 1.0), (1, 2, 1.0)]


def test_copies_of_a_column_are_pairs() -> None:
    columns = lake([["a", "b"], ["B", "A"], ["a", "b", "c"]])
    assert {(0, 1), (1, 0)} <= {(x, y) for x, y, _ in triples(equi_pairs(columns))}


def test_columns_keep_their_pairs_when_few_are_taken() -> None:
    columns = lake([["x"], ["a", "b"], ["y", "z"], ["a", "b", "c"]])
    assert triples(equi_pairs(columns.take(np.array([3, 1])))) == [(1, 0, 1.0)]


def alike(count: int) -> TrainingColumns:
    """Give columns with one value each, half of them with a second."""
    return lake([["a", "b"] if number % 2 else ["a"] for number in range(count)])


def capped_by_brute_force(pairs: ColumnPairs, wanted: PairRule) -> list[tuple[int, int, float]]:
    worse = self_join._worse(pairs, wanted.seed).tolist()
    chance = {one[:2]: place for one, place in zip(triples(pairs), worse, strict=True)}
    best = sorted(triples(pairs), key=lambda one: (-one[2], chance[one[:2]]))
    for side in (0, 1):
        seen: Counter[int] = Counter()
        kept = []
        for one in best:
            seen[one[side]] += 1
            if seen[one[side]] <= (wanted.most or 0):
                kept.append(one)
        best = kept
    return in_order(best)


@settings(deadline=None)
@given(LAKES, THRESHOLDS, st.integers(1, 5), st.integers(-3, 2**70))
def test_caps_keep_the_best_of_each_column_on_both_sides(
    columns: list[tuple[set[int], bool, int]], threshold: float, most: int, seed: int
) -> None:
    sets, tables = drawn(columns)
    if not usable(by_brute_force(sets, tables, threshold), sets):
        return
    every = equi_pairs(columns_of(sets, tables), threshold, None)
    right = capped_by_brute_force(every, PairRule(threshold, most, seed))
    if usable(right, sets):
        assert triples(equi_pairs(columns_of(sets, tables), threshold, most, seed)) == right


def test_equally_good_columns_are_chosen_evenly() -> None:
    pairs = equi_pairs(alike(200), 1.0, most=5)
    assert np.bincount(pairs.x).max() == np.bincount(pairs.y).max() == 5
    assert len(np.unique(pairs.y)) > 150
    assert triples(pairs) == triples(equi_pairs(alike(200), 1.0, most=5))
    assert triples(pairs) != triples(equi_pairs(alike(200), 1.0, most=5, seed=1))


def test_progress_is_reported_to_the_end() -> None:
    heard: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_join, "_WORK", 10)
        equi_pairs(alike(20), progress=lambda *event: heard.append(event))
    assert len(heard) > 1
    assert heard[-1] == (20, 20, "columns compared")


@pytest.mark.parametrize(
    ("lists", "tables", "text"),
    [
        ([["a"], ["a"]], [3, 3], "2 columns of 1 tables came; a pair has columns of two tables"),
        ([], [], "0 columns of 0 tables came"),
        ([["a"], ["b"]], [0, 1], "No two of 2 columns of 2 tables have a joinability of 0.7"),
        ([[], []], [0, 1], "Lower `threshold` or give more tables"),
        ([["a", "b"], ["b", "a"], ["c"]], [0, 1, 2], "All 2 joinable pairs in 3 tables are copies"),
    ],
)
def test_columns_without_pairs_are_refused(
    lists: list[list[str]], tables: list[int], text: str
) -> None:
    with pytest.raises(DeepJoinError, match=text):
        equi_pairs(lake(lists, tables))


@pytest.mark.parametrize("threshold", [0, -1, 1.01, float("nan")])
def test_thresholds_that_mean_nothing_are_refused(threshold: float) -> None:
    with pytest.raises(
        DeepJoinError, match="it must be above 0 and at most 1. Give one such as 0.7"
    ):
        equi_pairs(alike(3), threshold)


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(DeepJoinError, match="The number of pairs per column is 0; give 1 or more"):
        equi_pairs(alike(3), most=0)


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    pairs = equi_pairs(alike(30))
    pairs.write(tmp_path / "pairs")
    again = ColumnPairs.read(tmp_path / "pairs")
    assert triples(again) == triples(pairs)
    assert [str(array.dtype) for array in (again.x, again.y, again.joinability)] == [
        "int64",
        "int64",
        "float32",
    ]


def test_torn_files_of_pairs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.npz"
    equi_pairs(alike(6)).write(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DeepJoinError, match="pairs.npz, cannot be read: .* train again"):
            ColumnPairs.read(path)


@pytest.mark.slow
@pytest.mark.parametrize("bit", [1, 8, 64])
def test_damaged_files_of_pairs_are_refused_or_read_as_they_were(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "pairs.npz"
    pairs = equi_pairs(alike(3))
    pairs.write(path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            assert triples(ColumnPairs.read(path)) == triples(pairs)
        except DeepJoinError as error:
            assert "cannot be read" in str(error)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.zeros(2, np.int64), "y": np.zeros(2, np.int64)},
        {"x": np.zeros(2, np.int64), "y": np.zeros(1, np.int64), "joinability": np.zeros(2, "f4")},
        {"x": np.zeros(2, np.int32), "y": np.zeros(2, np.int64), "joinability": np.zeros(2, "f4")},
        {"x": np.int64(1), "y": np.int64(1), "joinability": np.float32(1)},
    ],
)
def test_files_of_something_else_are_refused(tmp_path: Path, arrays: dict[str, object]) -> None:
    np.savez(tmp_path / "pairs.npz", **arrays)
    with pytest.raises(DeepJoinError, match="cannot be read"):
        ColumnPairs.read(tmp_path / "pairs.npz")
    with pytest.raises(DeepJoinError, match="cannot be read"):
        ColumnPairs.read(tmp_path / "absent.npz")


def unit_rows(seed: int, count: int) -> np.ndarray:
    """Return vectors in the plane on few directions, so that cosines meet tau, and zeros."""
    turns = np.random.default_rng(seed).integers(0, 13, count)
    rows = np.stack([np.cos(turns * np.pi / 12), np.sin(turns * np.pi / 12)], axis=1)
    rows[turns == 12] = 0
    return rows.astype(np.float32)


#: Bounds that cosines of `unit_rows` meet, some only when rounded to millionths.
TAUS = st.sampled_from([0.1, 0.5, 0.70710699, float(np.cos(np.pi / 12)), 0.96592649, 0.9, 1.0])


@pytest.mark.slow
@settings(deadline=None)
@given(LAKES, THRESHOLDS, TAUS, st.floats(0.01, 0.99), st.integers(0, 9))
def test_semantic_pairs_are_those_of_the_definition(
    columns: list[tuple[set[int], bool, int]], threshold: float, tau: float, part: float, seed: int
) -> None:
    sets, tables = drawn(columns)
    training = columns_of(sets, tables)
    numbers = dict(zip(training.cells.to_pylist(), training.values, strict=True))
    vectors = unit_rows(seed, 13)

    def encode(values: list[str]) -> np.ndarray:
        return vectors[[numbers[value] for value in values]]

    lists = [[f"v{value}" for value in sorted(values)] for values in sets]
    measured = [
        (x, y, semantic_joinability(lists[x], lists[y], encode, tau))
        for x in range(len(sets))
        for y in range(len(sets))
        if tables[x] != tables[y]
    ]
    right = in_order([(x, y, float(np.float32(jn))) for x, y, jn in measured if jn >= threshold])
    near = near_values(vectors, part * tau, tau)
    before = near.copy()
    if usable(right, sets):
        assert triples(semantic_pairs(training, near, threshold, None)) == right
    else:
        with pytest.raises(DeepJoinError):
            semantic_pairs(training, near, threshold, None)
    assert (near != before).nnz == 0


def test_semantic_pairs_without_near_vectors_are_equi_pairs() -> None:
    columns = alike(50)
    heard: list[tuple[int, int, str]] = []
    near = near_values(np.zeros((2, 8), np.float32), 0.4, 0.5)
    found = semantic_pairs(columns, near, progress=lambda *event: heard.append(event))
    assert triples(found) == triples(equi_pairs(columns))
    assert heard[-1] == (50, 50, "columns compared")


def test_semantic_pairs_can_be_found_a_few_columns_at_a_time() -> None:
    rng = np.random.default_rng(0)
    columns = lake([[f"v{value}" for value in rng.choice(40, 6)] for _ in range(80)])
    near = near_values(unit_rows(1, 40), 0.8, 0.9)
    every = triples(semantic_pairs(columns, near, most=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deepjoin.lab.training.self_join._CELLS", 20)
        assert triples(semantic_pairs(columns, near, most=None)) == every


def test_columns_match_by_meaning_when_few_are_taken() -> None:
    columns = lake([["x"], ["a", "b"], ["y", "z"], ["c", "d", "e"]])
    numbers = dict(zip(columns.cells.to_pylist(), columns.values.tolist(), strict=True))
    vectors = np.zeros((len(numbers), 2), np.float32)
    vectors[[numbers["a"], numbers["c"]]] = 1, 0
    vectors[[numbers["b"], numbers["d"]]] = 0, 1
    taken = columns.take(np.array([2, 1, 3]))
    near = near_values(vectors, 0.5, 0.9)
    assert triples(semantic_pairs(taken, near, 0.6)) == [(1, 2, 1.0), (2, 1, pytest.approx(2 / 3))]
    assert triples(semantic_pairs(columns.take(np.array([1, 3])), near, 0.9)) == [(0, 1, 1.0)]
    # Here the matrix knows more values than the columns have.
    with pytest.raises(DeepJoinError, match="No two of 2 columns of 2 tables"):
        semantic_pairs(columns.take(np.array([0, 1])), near)


def test_a_value_matches_the_nearest_64_others() -> None:
    turns = np.linspace(0, 0.3, 70)
    vectors = np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)
    columns = lake([["v0"], *([f"v{number}"] for number in range(1, 70))])
    pairs = semantic_pairs(columns, near_values(vectors, 0.8, 0.9), most=None)
    assert pairs.y[pairs.x == 0].tolist() == list(range(1, 64))
