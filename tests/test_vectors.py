"""Vector indexes: flat ones are exact, the others are close, all keep to the lake as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import DeepJoinError
from deepjoin.arrays import Double, Float
from deepjoin.embed import vector_build
from deepjoin.embed.vector_build import KINDS, METRICS
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.errors import IndexUnusable, UnknownName
from tests.support.vector_files import build_vectors

#: What the ten nearest must share with the true ten on clustered vectors.
RECALL = {"flat": 1.0, "flat16": 1.0, "flat8": 0.99, "ivfpq-plain": 0.3, "ivfpq": 0.85}


def clustered(count: int, dimension: int = 48, seed: int = 0) -> Float:
    """Make vectors around some centres, of different lengths."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((50, dimension))
    rows = centres[random.integers(0, 50, count)] + 0.5 * random.standard_normal((count, dimension))
    return np.asarray(rows * random.uniform(0.5, 2, (count, 1)), np.float32)


def distances(rows: Float, query: Float, metric: str) -> Double:
    """Compare a query with every row by the definition."""
    rows, query = rows.astype(np.float64), query.astype(np.float64)
    if metric == "euclidean":
        return np.asarray(np.linalg.norm(rows - query, axis=1))
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return 1 - rows @ query / np.where(lengths > 0, lengths, 1)


def test_halves_are_widened_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    wide = vector_build.widened(halves.reshape(-1, 2)).ravel()
    assert np.array_equal(wide.view(np.uint32), halves.astype(np.float32).view(np.uint32))


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
@given(
    rows=st.lists(st.tuples(*[st.integers(-2, 2)] * 3), max_size=30),
    query=st.tuples(*[st.integers(-2, 2)] * 3),
    k=st.integers(0, 35),
    marks=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_flat_search_equals_brute_force(
    tmp_path: Path,
    metric: str,
    rows: list[tuple[int, ...]],
    query: tuple[int, ...],
    k: int,
    marks: list[bool],
) -> None:
    matrix = np.array(rows, np.float32).reshape(-1, 3)
    excluded = np.array(marks[: len(rows)], bool)
    build_vectors(matrix, tmp_path, "flat", metric)
    found = VectorIndex(tmp_path).search(query, k, excluded)
    truth = distances(matrix, np.array(query, np.float32), metric)
    live = np.flatnonzero(~excluded)
    assert len(found.ids) == min(k, len(live)) == len(set(found.ids.tolist()))
    assert not excluded[found.ids].any()
    np.testing.assert_allclose(found.distances, truth[found.ids], atol=1e-3)
    np.testing.assert_allclose(found.distances, np.sort(truth[live])[:k], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_most_of_the_nearest(tmp_path: Path, kind: str, metric: str) -> None:
    rows = clustered(3000)
    assert build_vectors(rows, tmp_path, kind, metric) == kind
    index = VectorIndex(tmp_path)
    assert (index.kind, index.metric, len(index), index.dimension) == (kind, metric, 3000, 48)
    excluded = np.zeros(3000, bool)
    excluded[::3] = True
    shared = 0
    for query in clustered(20, seed=1):
        truth = distances(rows, query, metric)
        truth[excluded] = np.inf
        found = index.search(query, 10, excluded).ids
        assert not excluded[found].any()
        shared += len(set(found.tolist()) & set(np.argsort(truth)[:10].tolist()))
    assert shared / 200 >= RECALL.get(kind, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_as_many_come_as_are_left(tmp_path: Path, kind: str) -> None:
    rows = clustered(1500)
    build_vectors(rows, tmp_path, kind)
    index = VectorIndex(tmp_path)
    assert len(index.search(rows[0], 0).ids) == 0
    assert sorted(index.search(rows[0], 5000).ids.tolist()) == list(range(1500))
    excluded = np.ones(1500, bool)
    excluded[[7, 700, 1400]] = False
    assert sorted(index.search(rows[0], 3, excluded).ids.tolist()) == [7, 700, 1400]
    assert sorted(index.search(rows[0], 9, excluded).ids.tolist()) == [7, 700, 1400]
    assert len(index.search(rows[0], 3, np.ones(1500, bool)).ids) == 0


@pytest.mark.parametrize("kind", ["hnsw", "ivf8", "scan4", "ivf4"])
def test_a_kind_that_loses_its_way_compares_everything(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered(1200)
    build_vectors(rows, tmp_path, kind)
    index = VectorIndex(tmp_path)
    nothing = (np.zeros(0, np.int64), np.zeros(0))
    monkeypatch.setattr(index, "_ask", lambda *_: nothing)
    assert index.search(rows[5], 3).ids[0] == 5


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfpq"])
def test_equal_vectors_are_stored_once_and_all_found(tmp_path: Path, kind: str) -> None:
    rows = np.repeat(clustered(1100), 3, axis=0)[np.random.default_rng(2).permutation(3300)]
    build_vectors(rows, tmp_path, kind)
    same = np.flatnonzero((rows == rows[10]).all(axis=1))
    index = VectorIndex(tmp_path)
    assert index.search(rows[10], 3).ids.tolist() == same.tolist()
    assert index.search(rows[10], 2, order=-np.arange(3300)).ids.tolist() == same[:0:-1].tolist()
    excluded = np.zeros(3300, bool)
    excluded[same[:2]] = True
    assert index.search(rows[10], 1, excluded).ids.tolist() == [same[2]]
    excluded[same[2]] = True
    assert not np.isin(index.search(rows[10], 9, excluded).ids, same).any()
    about = json.loads((tmp_path / "index.json").read_text())
    assert about["different"] == (3300 if kind == "flat" else 1100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_vectors_give_the_same_files(tmp_path: Path, kind: str) -> None:
    rows = clustered(1500)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        build_vectors(rows, folder, kind)
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert files[0] == files[1]


def test_a_segment_scanned_whole_has_no_other_file(tmp_path: Path) -> None:
    build_vectors(clustered(1500), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "rows.npy"]
    assert np.load(tmp_path / "rows.npy").dtype == np.float16


def test_rows_nearly_all_equal_are_scanned_whatever_was_asked_for(tmp_path: Path) -> None:
    assert build_vectors(np.repeat(clustered(5), 300, axis=0), tmp_path, "hnsw") == "flat"
    assert len(VectorIndex(tmp_path).search(np.ones(48), 700).ids) == 700


def test_the_kind_is_chosen_by_size() -> None:
    assert vector_build.chosen("auto", 10) == vector_build.chosen("auto", 20_000) == "flat"
    assert vector_build.chosen("auto", 20_001) == vector_build.chosen("auto", 600_000) == "scan4"
    assert vector_build.chosen("auto", 600_001) == "ivf4"
    assert vector_build.chosen("auto", 600_001, clustered=False) == "scan4"
    assert vector_build.chosen("hnsw", 20_001) == "hnsw"
    assert vector_build.chosen("ivfpq", 999) == "flat"
    assert KINDS["ivfpq"].list_count(10**6) == KINDS["ivf4"].list_count(10**6) == 1000


def test_an_empty_segment_is_searched(tmp_path: Path) -> None:
    build_vectors(np.zeros((0, 4)), tmp_path)
    found = VectorIndex(tmp_path).search(np.ones(4), 3, np.zeros(0, bool))
    assert len(found.ids) == len(found.distances) == 0


def test_a_zero_vector_is_at_distance_one_from_all(tmp_path: Path) -> None:
    build_vectors([[0.0, 0.0], [1.0, 0.0]], tmp_path)
    index = VectorIndex(tmp_path)
    assert index.search([2.0, 0.0], 2).distances.tolist() == [0, 1]
    assert index.search([0.0, 0.0], 2).distances.tolist() == [1, 1]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="Vector 1 holds NaN or infinity; only finite"):
        build_vectors([[1.0, 0.0], [np.nan, 0.0]], tmp_path)
    with pytest.raises(DeepJoinError, match="A vector holds 7e[+]04; numbers up to 65504 can be"):
        build_vectors([[1.0, -70_000]], tmp_path)
    with pytest.raises(DeepJoinError, match=r"shape \(2,\); two dimensions are needed"):
        build_vectors([1.0, 0.0], tmp_path)
    with pytest.raises(UnknownName, match="No metric 'cosin' in this version.*mean 'cosine'"):
        build_vectors([[1.0]], tmp_path, metric="cosin")
    with pytest.raises(UnknownName, match="No vector index 'hsnw' in this version.*mean 'hnsw'"):
        build_vectors([[1.0]], tmp_path, "hsnw")
    build_vectors([[1.0, 0.0]], tmp_path)
    index = VectorIndex(tmp_path)
    with pytest.raises(DeepJoinError, match="Vector 0 holds NaN"):
        index.search([np.inf, 0.0], 1)
    with pytest.raises(DeepJoinError, match="2 numbers a row are needed. Encode with"):
        index.search([1.0, 0.0, 0.0], 1)
    with pytest.raises(DeepJoinError, match="k is -2; it is 0 or more"):
        index.search([1.0, 0.0], -2)
    with pytest.raises(DeepJoinError, match="3 marks came for 1 vectors. Give one for each"):
        index.search([1.0, 0.0], 1, np.zeros(3, bool))


def test_a_folder_without_a_readable_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexUnusable, match="has no vector index that can be read"):
        VectorIndex(tmp_path)
    build_vectors([[1.0]], tmp_path)
    about = tmp_path / "index.json"
    about.write_text(about.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(IndexUnusable, match="has format 9; this version reads up to 1. Install"):
        VectorIndex(tmp_path)


def test_a_kind_of_a_newer_version(tmp_path: Path) -> None:
    build_vectors(np.eye(4, dtype=np.float32), tmp_path)
    about = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(about.replace('"flat"', '"later"'))
    with pytest.raises(IndexUnusable, match="'later', which this version does not know"):
        VectorIndex(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scan4", "ivf4"])
def test_most_vectors_are_gone(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((20, 32))[random.integers(0, 20, 6000)]
    rows = (rows + 0.3 * random.standard_normal((6000, 32))).astype(np.float32)
    build_vectors(rows, tmp_path, kind)
    excluded = random.random(6000) < 0.99
    live, units = np.flatnonzero(~excluded), rows / np.linalg.norm(rows, axis=1, keepdims=True)
    right = []
    for number in range(0, 6000, 300):
        best = live[np.argsort(-(units[live] @ units[number]))[:5]]
        right.append(np.isin(VectorIndex(tmp_path).search(rows[number], 5, excluded).ids, best))
    assert np.mean(right) > 0.95
