"""Sketches: the same everywhere, near where values are shared, empty where none is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepjoin import Column, DeepJoinError, Settings
from deepjoin.normalise import private
from deepjoin.normalise.canonical import hash_values
from deepjoin.store import sketch as module
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    FrequencySnapshot,
    Sketcher,
    directions,
    sketch_digest,
    sketch_rows,
    weights,
    write_frequency,
)
from tests.support.column_lakes import segment_of


def cosines(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    rows, vector = rows.astype(float), vector.astype(float)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    return rows @ vector / np.where(lengths > 0, lengths, 1)


def countries(folder: Path, **options: object) -> Segment:
    """Index columns of which some share values, and one shares none."""
    return segment_of(
        [
            Column(["france", "italy", "spain", "peru"], "a", "t0"),
            Column(["France", "Italy", "Spain", "Chad"], "b", "t1"),
            Column(["peru", "red", "blue", "green"], "c", "t2"),
            Column(["Red", "Blue", "Green", "Grey"], "d", "t3"),
            Column(["one", "two", "three", "four"], "e", "t4"),
        ],
        folder,
        **options,
    )


def snapshot(segment: Segment, folder: Path) -> FrequencySnapshot:
    folder.mkdir(exist_ok=True)
    write_frequency([segment], folder)
    return FrequencySnapshot(folder)


def sketched(*asked: Any) -> np.ndarray:
    return np.concatenate(list(sketch_rows(*asked)))


def test_a_sketch_is_the_weighed_sum_of_its_values(tmp_path: Path) -> None:
    segment = countries(tmp_path / "index")
    frequency = snapshot(segment, tmp_path / "f")
    rows = sketched(segment, frequency, 128)
    shared = directions(hash_values(["france", "italy", "spain"]), 128).sum(axis=0)
    shared = shared * np.sqrt(np.log(6 / 2))
    shared[-1] = np.sqrt(4 * 128 * np.log(6 / 2))
    np.testing.assert_allclose(rows[1], shared / np.linalg.norm(shared), atol=1e-3)
    assert not rows[4].any()
    assert rows.dtype == np.float16


@pytest.mark.parametrize("hash_only", [False, True])
def test_the_nearest_sketches_share_the_most(tmp_path: Path, hash_only: bool) -> None:
    segment = countries(tmp_path / "index", hash_only=hash_only, salt="0123456789abcdef" * 2)
    key = private.key(Settings(hash_only=hash_only, salt="0123456789abcdef" * 2))
    frequency = snapshot(segment, tmp_path / "f")
    sketcher = Sketcher([segment], frequency, 768, "default", key)
    query = sketcher(Column(["RED", "Green", "blue", "unheard of"]))
    near = cosines(sketched(segment, frequency, 768), query)
    assert np.argsort(-near)[:2].tolist() in ([2, 3], [3, 2])
    assert near[3] > 0.4 > 0.2 > abs(near[0])
    assert not sketcher(Column(["chad", "grey", "one", "unheard of", None])).any()


def test_blocks_do_not_change_a_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = countries(tmp_path / "index")
    frequency = snapshot(segment, tmp_path / "f")
    told: list[int] = []
    whole = sketched(segment, frequency, 64)
    query = Sketcher([segment], frequency, 64, "default")(Column(["italy", "red", "spain"]))
    monkeypatch.setattr(module, "_VALUES", 2)
    monkeypatch.setattr(module, "_COLUMNS", 2)
    again = sketched(segment, frequency, 64, lambda done, total, text: told.append(done))
    np.testing.assert_allclose(again, whole, atol=1e-3)
    assert told == [2, 4, 5]
    same = Sketcher([segment], frequency, 64, "default")(Column(["italy", "red", "spain"]))
    np.testing.assert_allclose(query, same, rtol=1e-5)


def test_a_value_new_to_the_lake_counts_if_its_own_segment_shares_it(tmp_path: Path) -> None:
    old = countries(tmp_path / "old")
    new = segment_of(
        [Column(["io", "europa", "peru"], table="n1"), Column(["Io", "Europa"], table="n2")],
        tmp_path / "new",
    )
    frequency = snapshot(old, tmp_path / "f")
    rows = sketched(new, frequency, 768)
    sketcher = Sketcher([old, new], frequency, 768, "default")
    assert cosines(rows, sketcher(Column(["io", "europa"])))[1] > 0.4
    assert cosines(rows, sketcher(Column(["Peru"])))[0] > 0.15


def test_directions_never_change() -> None:
    signs = directions(hash_values(["apple", "ge"]), 128)
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(float(signs[0] @ signs[1])) < 50
    # Stored sketches depend on them.
    assert np.packbits(signs[0, :32] > 0).tolist() == [92, 199, 99, 207]
    assert sketch_digest(768) == "sketch-1-768"


def test_rare_values_weigh_more_and_single_ones_nothing() -> None:
    found = weights(np.array([0, 1, 2, 50, 100]), 100)
    assert found[:2].tolist() == [0, 0]
    assert found[2] > found[3] > found[4] > 0


def test_an_empty_lake_is_sketched(tmp_path: Path) -> None:
    segment = segment_of([Column(["a"], table="t")], tmp_path / "index", min_distinct=5)
    frequency = snapshot(segment, tmp_path / "f")
    assert list(sketch_rows(segment, frequency, 64)) == []
    assert not Sketcher([segment], frequency, 64, "default")(Column(["a"])).any()


def test_an_odd_dimension_is_refused(tmp_path: Path) -> None:
    segment = segment_of([Column(["a"], table="t")], tmp_path / "index")
    frequency = snapshot(segment, tmp_path / "f")
    with pytest.raises(DeepJoinError, match="A sketch cannot have 100 dimensions; give a multi"):
        next(sketch_rows(segment, frequency, 100))
    with pytest.raises(DeepJoinError, match="a multiple of 64, best one of 384, 768, 1536"):
        Sketcher([segment], frequency, 0, "default")
