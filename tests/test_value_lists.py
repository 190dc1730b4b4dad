"""Lists of near values find nearly all, name what they find rightly, and vectors are copied."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepjoin import DeepJoinError
from deepjoin.arrays import Float, Int32
from deepjoin.embed import value_vectors as lists
from deepjoin.embed.list_build import ListTree, write_value_lists
from deepjoin.embed.packed import ZERO_POINT
from deepjoin.embed.scan import LARGEST_SIGNED, SLACK, CandidatePairs
from deepjoin.embed.value_vectors import (
    FILES,
    LIST_FILES,
    OLD_FILES,
    OLD_ROWS,
    ORDER_FILES,
    ValueLists,
    ValueVectors,
    gaps_of_rows,
    quantised,
    rows_of_gaps,
    write_vectors,
)
from deepjoin.store import cell_vectors
from deepjoin.store.cell_vectors import copy_vectors, same_rotation


def drawn(count: int, dimension: int, seed: int = 1) -> Float:
    """Draw unit vectors in clusters, zero vectors among them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(1, count // 40), dimension))
    rows = centres[random.integers(0, len(centres), count)]
    rows = rows + 0.6 * random.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[::50] = 0
    return rows.astype(np.float32)


def stored(folder: Path, rows: Float) -> ValueVectors:
    """Store vectors in a folder of their own."""
    folder.mkdir(exist_ok=True)
    write_vectors(folder, [rows], rows.shape[1])
    return ValueVectors.open(folder)


def write_eight_bits(folder: Path, rows: Float) -> None:
    """Write vectors as the first versions did, over those there, whose order stays."""
    vectors = ValueVectors.open(folder)
    eight = quantised(rows[vectors.values_of(np.arange(len(vectors)))], vectors.rotation)
    for name, array in zip(ORDER_FILES, (vectors._values, vectors._rows), strict=True):
        np.save(folder / name, array[:].view(np.int32))
    for name in FILES[:-1]:
        (folder / name).unlink()
    for name, array in zip(OLD_FILES, (eight.codes.ravel(), *eight[1:]), strict=False):
        np.save(folder / name, array)


def as_set(pairs: CandidatePairs) -> set[tuple[int, int]]:
    """Give pairs as tuples, each of which must be there once."""
    found = set(zip(pairs.cells.tolist(), pairs.values.tolist(), strict=True))
    assert len(found) == len(pairs)
    return found


def reaching(rows: Float, queries: Float, floor: float) -> set[tuple[int, int]]:
    """Compare all, in double precision."""
    cosines = queries.astype(np.float64) @ rows.T.astype(np.float64)
    return set(map(tuple, np.argwhere(cosines >= floor).tolist()))


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def rows() -> Float:
    """Draw what most tests store."""
    return drawn(6_000, 24)


@pytest.fixture(scope="module")
def made(rows: Float, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make lists of some thousand values, written over the vectors they are made of."""
    folder = tmp_path_factory.mktemp("lists")
    write_value_lists(folder, stored(folder, rows))
    return folder


def test_a_row_is_in_the_list_of_the_nearest_leaf(rows: Float, tmp_path: Path) -> None:
    vectors = stored(tmp_path, rows[:700])
    there = np.arange(len(vectors))
    tree = ListTree.trained(vectors.stored, there)
    codes = vectors.stored.take(there).codes
    # Few rows have few branches, so all leaves are compared.
    step = np.abs(tree.leaves).max() / LARGEST_SIGNED
    products = (codes.astype(int) - ZERO_POINT) @ np.rint(tree.leaves / step).astype(int).T
    found = tree.nearest(codes)
    assert (products[np.arange(len(codes)), found] == products.max(axis=1)).all()
    assert (tree.lists_of(vectors.stored, there)[0] == found).all()


def test_lists_find_nearly_all_pairs_and_no_other(rows: Float, made: Path) -> None:
    queries = np.concatenate([rows[1:41], drawn(10, 24, seed=2)])
    near = ValueLists(made).near(queries, 0.6, probes=4)
    found, exact = as_set(near), as_set(ValueVectors.open(made).near(queries, 0.6))
    assert found <= exact
    assert len(found) > 0.95 * len(exact)
    cosines = queries.astype(np.float64)[near.cells] * rows.astype(np.float64)[near.values]
    assert (np.abs(cosines.sum(axis=1) - near.similarities) <= near.errors + SLACK).all()


def test_all_lists_together_hold_every_vector(rows: Float, made: Path) -> None:
    known = ValueLists(made)
    queries = rows[1:30]
    for floor in (0.3, 0.7):
        exact = ValueVectors.open(made).near(queries, floor)
        everything = known.near(queries, floor, probes=len(known), most=10_000)
        # Pairs below the floor that the bound allows are left out; none that reaches it is.
        assert reaching(rows, queries, floor) <= as_set(everything) <= as_set(exact)


def test_only_the_best_pairs_of_a_cell_are_kept(rows: Float, made: Path) -> None:
    known = ValueLists(made)
    every = known.near(rows[1:4], 0.2, most=10_000)
    best = known.near(rows[1:4], 0.2, most=7)
    for cell in range(3):
        expected = np.sort(every.similarities[every.cells == cell])[-7:]
        assert np.sort(best.similarities[best.cells == cell]).tolist() == expected.tolist()


@given(
    likeness=arrays(
        np.int32,
        st.tuples(st.integers(1, 40), st.integers(1, 3)),
        elements=st.integers(-20, 20),
    ),
    probes=st.integers(1, 50),
    group=st.sampled_from([1, 4, 64]),
)
def test_the_nearest_lists_of_each_query_are_looked_at(
    likeness: Int32, probes: int, group: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "_GROUP", group)
        chosen = lists._nearest(likeness, probes)
    left = np.delete(likeness, chosen, axis=0)
    assert len(chosen) >= min(probes, len(likeness))
    for mine, other in zip(likeness.T, left.T, strict=True):
        assert (other < np.sort(mine)[-probes:].min()).all()


def test_another_order_of_rows_changes_no_answer(rows: Float, made: Path, tmp_path: Path) -> None:
    plain, ordered = stored(tmp_path / "plain", rows), ValueVectors.open(made)
    queries = rows[1:20]
    for one, other in (
        (plain.near(queries, 0.5), ordered.near(queries, 0.5)),
        (plain.near(queries, 0.5, threads=1), ordered.near(queries, 0.5, threads=3)),
    ):
        order, other_order = (np.lexsort((x.values, x.cells)) for x in (one, other))
        assert (one.values[order] == other.values[other_order]).all()
        assert (one.similarities[order] == other.similarities[other_order]).all()
    numbers = np.arange(len(rows))
    there = rows.any(axis=1)
    found = ordered.rows_of(numbers)
    assert ((found >= 0) == there).all()
    assert (ordered.values_of(found[there]) == numbers[there]).all()
    assert (ordered.errors_of(numbers) == plain.errors_of(numbers)).all()
    for one, other in zip(ordered.take(numbers), plain.take(numbers), strict=True):
        assert np.array_equal(one, other)


@given(chosen=st.lists(st.integers(0, 5_999), unique=True, max_size=60), floor=st.floats(0.2, 0.9))
def test_some_values_are_compared_like_all(
    rows: Float, made: Path, chosen: list[int], floor: float
) -> None:
    vectors = ValueVectors.open(made)
    queries = rows[1:6]
    some = vectors.among(np.array(chosen, np.int64), queries, floor)
    every = vectors.near(queries, floor)
    assert as_set(some) == as_set(every.where(np.isin(every.values, chosen)))


def test_the_same_vectors_give_the_same_files(rows: Float, made: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    vectors = stored(first, rows)
    second.mkdir()
    assert write_value_lists(second, vectors, threads=1) == len(ValueLists(made))
    assert contents(second) == contents(made)
    assert set(contents(made)) == {*FILES, *ORDER_FILES, *LIST_FILES}


def test_lists_of_what_is_in_order_of_lists_name_the_same_values(
    rows: Float, made: Path, tmp_path: Path
) -> None:
    write_value_lists(tmp_path, ValueVectors.open(made))
    again = ValueLists(tmp_path).near(rows[1:9], 0.4, probes=1_000)
    assert as_set(again) == as_set(ValueLists(made).near(rows[1:9], 0.4, probes=1_000))


def test_many_cells_are_answered_some_at_a_time(
    rows: Float, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_CELLS", 7)
    queries = rows[1:31]  # which all have vectors, so the same cells share their lists
    near = ValueLists(made).near(queries, 0.6)
    alone = [ValueLists(made).near(queries[i : i + 7], 0.6) for i in range(0, 30, 7)]
    parts = [as_set(replace(a, cells=a.cells + 7 * i)) for i, a in enumerate(alone)]
    assert as_set(near) == set().union(*parts)


def test_vectors_written_anew_have_no_old_order(rows: Float, tmp_path: Path) -> None:
    write_value_lists(tmp_path, stored(tmp_path, rows))
    some = rows[rows.any(axis=1)]
    assert (stored(tmp_path, some).rows_of(np.arange(9)) == np.arange(9)).all()
    assert set(contents(tmp_path)) == set(FILES)


@pytest.mark.parametrize("count", [0, 1, 3, 300])
@pytest.mark.parametrize("zero", [False, True])
def test_few_values_or_none_have_lists_too(tmp_path: Path, count: int, zero: bool) -> None:
    vectors = np.zeros((count, 8), np.float32)
    if not zero:
        vectors[:, 0] = 1  # all equal: fewer different ones than lists
    write_value_lists(tmp_path, stored(tmp_path, vectors))
    near = ValueLists(tmp_path).near(np.eye(8)[:1], 0.5)
    assert sorted(near.values.tolist()) == ([] if zero else list(range(count)))
    assert len(ValueLists(tmp_path).near(np.zeros((1, 8)), 0.5)) == 0


def test_a_value_without_a_vector_has_no_row(rows: Float, made: Path) -> None:
    known, vectors = ValueLists(made), ValueVectors.open(made)
    members = known.members(np.arange(len(known)))
    absent = np.flatnonzero(~rows.any(axis=1))
    assert (vectors.rows_of(absent) == -1).all()
    assert members.tolist() == list(range(len(vectors)))
    assert len(vectors) == len(rows) - len(absent)
    assert (vectors.take(absent).scales == 0).all()
    assert (vectors.errors_of(absent) == 0).all()


@given(
    lists=st.lists(st.lists(st.integers(0, 1 << 20), unique=True, max_size=6).map(sorted)),
    some=st.data(),
)
def test_gaps_give_back_their_rows(lists: list[list[int]], some: st.DataObject) -> None:
    starts = np.append(0, np.cumsum([len(one) for one in lists])).astype(np.int64)
    rows = np.array([row for one in lists for row in one], np.int64)
    gaps, offsets = gaps_of_rows(rows, starts)
    chosen = some.draw(st.lists(st.integers(0, len(lists) - 1))) if lists else []
    parts = [gaps[offsets[one] : offsets[one + 1]] for one in chosen]
    found = rows_of_gaps(np.concatenate([gaps[:0], *parts]), np.array([*map(len, parts)], np.int64))
    assert found.tolist() == [row for one in chosen for row in lists[one]]


def test_lists_of_earlier_versions_are_read(rows: Float, made: Path, tmp_path: Path) -> None:
    """Earlier versions stored all rows, wide numbers, and rows instead of gaps."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    offsets = np.load(made / "list_offsets.npy")
    gaps = np.load(made / "list_gaps.npy")
    members = rows_of_gaps(gaps, np.diff(offsets))
    np.save(tmp_path / OLD_ROWS, members.astype(np.int32))
    (tmp_path / "list_gaps.npy").unlink()
    write_eight_bits(tmp_path, rows)
    vectors = ValueVectors.open(tmp_path)
    assert vectors.is_outdated
    one, other = (ValueLists(folder).near(rows[1:9], 0.4, probes=9) for folder in (made, tmp_path))
    for near in (one, other):
        cosines = rows[1:9].astype(np.float64)[near.cells] * rows.astype(np.float64)[near.values]
        assert (np.abs(cosines.sum(axis=1) - near.similarities) <= near.errors + SLACK).all()
    true = reaching(rows, rows[1:9], 0.4)
    assert as_set(one) & true == as_set(other) & true
    assert write_value_lists(tmp_path, vectors) > 40
    assert not (tmp_path / OLD_ROWS).exists()
    again = ValueVectors.open(tmp_path)
    assert not again.is_outdated
    assert set(contents(tmp_path)) == set(contents(made))
    exact = as_set(again.near(rows[1:9], 0.4))
    every = ValueLists(tmp_path).near(rows[1:9], 0.4, probes=1_000, most=10_000)
    assert true <= as_set(every) <= exact


def test_missing_lists_are_said_to_be_missing(tmp_path: Path) -> None:
    stored(tmp_path, drawn(5, 4))
    with pytest.raises(DeepJoinError, match=r"No lists of near values in .*: list_codes.npy is"):
        ValueLists(tmp_path)


@pytest.mark.slow
@given(data=st.data(), sizes=st.lists(st.integers(0, 9), min_size=0, max_size=4))
def test_copied_vectors_are_the_stored_ones(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    count = sum(sizes) + 2
    numbers = np.array(data.draw(st.permutations(range(count))), np.int64)
    vectors = drawn(count, 5, seed=count)
    sources, start = [], 0
    for place, size in enumerate(sizes):
        new = numbers[start : start + size]
        old = np.array(data.draw(st.permutations(range(size))), np.int64)
        rows = np.zeros((size, 5), np.float32)
        rows[old] = vectors[new]
        part = stored(folder / f"{place}", rows)
        if place % 2:
            write_value_lists(folder / f"{place}", part)
            part = ValueVectors.open(folder / f"{place}")
        sources.append((part, old, new))
        start += size
    rest = numbers[start:]
    out, whole = folder / "out", folder / "whole"
    out.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_vectors, "_COPIED", 3)
        copy_vectors(out, count, 5, sources, (rest, vectors[rest]))
    stored(whole, vectors)
    assert contents(out) == contents(whole)


def test_a_value_nobody_has_a_vector_for_is_refused(tmp_path: Path) -> None:
    part = stored(tmp_path / "a", drawn(4, 3))
    numbers = np.arange(4)
    with pytest.raises(DeepJoinError, match=r"1 of 5 values have no vector, the first is 0\. Give"):
        copy_vectors(tmp_path, 5, 3, [(part, numbers, numbers + 1)])


def test_rows_of_different_rotations_are_not_mixed(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "a", drawn(4, 3)), stored(tmp_path / "b", drawn(4, 3))
    assert same_rotation([one, other])
    assert same_rotation([])
    other.rotation = other.rotation[::-1]
    assert not same_rotation([one, other])
    numbers = np.arange(4)
    sources = [(one, numbers, numbers), (other, numbers, numbers + 4)]
    for dimension in (3, 4):
        with pytest.raises(DeepJoinError, match=r"dimensions \[3\] came, where one rotation of"):
            copy_vectors(tmp_path, 8, dimension, sources)
