"""`deepjoin check` of vectors: damage is told, wherever it is, and mended without the tables."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.checking.check import check_index
from deepjoin.checking.segments import is_array
from deepjoin.checking.vector_contents import VectorContents
from deepjoin.checking.vectors import index_problems, vector_problems
from deepjoin.embed import vector_build
from deepjoin.embed.list_build import write_value_lists
from deepjoin.embed.value_vectors import ValueVectors, gaps_of_rows, rows_of_gaps
from deepjoin.embed.vector_build import (
    ABOUT,
    INDEX,
    MEMBERS,
    OFFSETS,
    ROWS,
    index_rows,
)
from tests.support.histories import merging
from tests.support.index_files import (
    changed_manifest,
    damages,
    edit_numbers,
    files_of,
    is_slight,
    only,
    sign,
)
from tests.support.vector_files import build_vectors, save_rows

#: How often values once were in other columns: what is encoded from now on weighs them by it.
COUNTED = ("frequency_hashes.npy", "frequency_counts.npy", "frequency_columns.npy")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index frames in two segments, with every kind of vectors."""
    towns = [f"town {number}" for number in range(40)]
    frames = {
        f"t{i}": {"place": towns[i : i + 20], "n": list(range(i, i + 20))} for i in range(0, 20, 5)
    }
    with merging(often=False):
        lake = deepjoin.index(
            frames,
            tmp_path_factory.mktemp("vectors") / "ix",
            settings=deepjoin.Settings(min_distinct=1),
            encoder="default",
            vectors={"cells": "default", "sketch": 64},
        )
        lake.add({"more": {"stadt": ["town 3", "Town 4", "Bonn", "!"], "x": list("abcd")}})
    return lake.path


@pytest.fixture
def index(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "ix")
    return tmp_path / "ix"


def first(index: Path) -> Path:
    return Lake(index).index.segments[0].folder


@pytest.mark.slow
def test_sound_vectors_have_no_problems(index: Path) -> None:
    found = check_index(index)
    assert (found.segments, found.problems, found.notes) == (2, [], [])
    names = {name.split("/", 2)[2] for name in files_of(index) if name.startswith("segments/")}
    assert {name.split("/")[1] for name in names if name.startswith("vectors/")} == {
        *("cells", "columns", "sketch", "both"),
    }


@pytest.mark.slow
def test_flips_are_noticed_or_harmless(index: Path) -> None:
    live = files_of(index)
    for name in damages(index, start=128):
        inside = name.partition("/")[2]
        if inside.startswith(("vectors/", "frequency_")):
            sign(index)
            harmless = inside in COUNTED or is_slight(index, name, live)
            assert harmless or not check_index(index, tables=0), name


@pytest.mark.slow
def test_headers_are_checked_to_the_letter(index: Path) -> None:
    chance = random.Random(5)
    for path in sorted(first(index).glob("vectors/*/*.npy")):
        content = path.read_bytes()
        at = chance.randrange(128)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        sign(index)
        name = path.relative_to(index / "segments").as_posix()
        found = check_index(index, tables=0).problems
        assert any(one.startswith(f"{name} is not the array that belongs") for one in found), name
        path.write_bytes(content)


def test_matrices_have_their_width_in_the_header(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4), np.float16))
    assert is_array(tmp_path / "a.npy", np.float16, 4)
    assert not is_array(tmp_path / "a.npy", np.float16, 6)
    assert not is_array(tmp_path / "a.npy", np.float16)


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def edit(segment: Path) -> None:
        edit_numbers(segment / name, change)

    return edit


def put(value: float) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array.flat[3] = value

    return change


def fill(value: float) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array.fill(value)

    return change


def told(name: str, field: str, value: object) -> Callable[[Path], None]:
    def tell(segment: Path) -> None:
        fields = json.loads((segment / name).read_text()) | {field: value}
        (segment / name).write_text(json.dumps(fields))

    return tell


def swap(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


def turn(array: Any) -> None:
    array[:, -9:-1] *= -1


CELLS = "vectors/cells"
PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "short": (edited(f"{CELLS}/vector_bounds.npy", lambda a: a[:-1]), "elements where"),
    "few codes": (edited(f"{CELLS}/vector_codes.npy", lambda a: a[:-1]), "elements where"),
    "nan": (edited(f"{CELLS}/vector_errors.npy", fill(np.nan)), "vector_errors.npy has numbers"),
    "below": (edited(f"{CELLS}/vector_errors.npy", fill(-1)), "vector_errors.npy has numbers"),
    "none": (edited(f"{CELLS}/vector_errors.npy", fill(0)), "vector_errors.npy has numbers"),
    "much": (edited(f"{CELLS}/vector_errors.npy", fill(0.9)), "vector_errors.npy has numbers"),
    "length": (edited(f"{CELLS}/vector_bounds.npy", put(9)), "vector_bounds.npy has numbers"),
    "turned": (edited(f"{CELLS}/vector_rotation.npy", put(0.9)), "is not a rotation"),
    "endless": (edited(f"{CELLS}/vector_rotation.npy", put(np.inf)), "is not a rotation"),
    "codes": (edited(f"{CELLS}/vector_codes.npy", fill(0x88)), "are not vectors"),
    "finer": (edited(f"{CELLS}/vector_finer.npy", fill(0)), "are not vectors"),
    "others": (lambda p: _mirror(p), "vector_codes.npy has vectors that are not those of their"),
    "error": (
        edited(f"{CELLS}/vector_errors.npy", lambda a: a * np.float32(0.8)),
        "vector_errors.npy has vectors that are not those of their values",
    ),
    "digest": (told(f"{CELLS}/about.json", "digest", "ab12"), "both/about.json is not what"),
    "meaning": (
        edited("vectors/both/rows.npy", lambda a: a[:, -9:].fill(0)),
        "both/rows.npy has meanings that are not of length 1",
    ),
    "meanings": (
        edited("vectors/both/rows.npy", turn),
        "both/rows.npy has meanings that are not those of their columns",
    ),
    "name": (told(f"{CELLS}/about.json", "name", "mine"), "names another encoder"),
    "no name": (told(f"{CELLS}/about.json", "name", 7), f"{CELLS}/about.json is not what was"),
    "column": (
        edited("vectors/columns/rows.npy", lambda a: a[::-1].copy()),
        "both/rows.npy is not the columns' and the sketches' in one",
    ),
    "no column": (edited("vectors/columns/rows.npy", put(np.inf)), "rows.npy has numbers out of"),
    "absent": (edited("vectors/columns/rows.npy", lambda a: a.fill(np.nan)), "has numbers out of"),
    "rows": (edited("vectors/columns/rows.npy", lambda a: a[1:]), "rows where"),
    "whose": (told("vectors/columns/about.json", "digest", "ab"), "both/about.json is not what"),
    "space": (told("vectors/columns/about.json", "space", "both"), "columns/about.json is not"),
    "sketch": (edited("vectors/sketch/rows.npy", lambda a: a.fill(1)), "that are not sketches"),
    "version": (told("vectors/sketch/about.json", "digest", "sketch-0-64"), "sketch/about.json is"),
    "index": (told("vectors/sketch/index.json", "kind", "tree"), "sketch/index.json is not what"),
    "count": (told("vectors/sketch/index.json", "vectors", 7), "index.json does not count what"),
    "equal": (told("vectors/sketch/index.json", "different", 1), "index.json does not count what"),
    "snapshot": (edited("frequency_hashes.npy", swap), "frequency_hashes.npy is not in order"),
    "once": (edited("frequency_counts.npy", put(1)), "frequency_counts.npy has numbers"),
    "counts": (edited("frequency_counts.npy", lambda a: a[1:]), "frequency_counts.npy has"),
    "columns": (edited("frequency_columns.npy", lambda a: a[:0]), "frequency_columns.npy has"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "text"), PLANTED.values(), ids=PLANTED)
def test_planted_damage_is_named(index: Path, plant: Callable[[Path], None], text: str) -> None:
    plant(first(index))
    sign(index)
    assert any(text in one for one in check_index(index, tables=0).problems)


@pytest.mark.slow
def test_vectors_of_other_columns_are_noticed(index: Path) -> None:
    """Without the vectors that are both in one, only encoding again tells."""
    segment = first(index)
    for space, text in (("columns", "vectors"), ("sketch", "sketches")):
        shutil.rmtree(segment / "vectors" / "both", ignore_errors=True)
        path = segment / "vectors" / space / ROWS
        rows = np.load(path)
        np.save(path, rows[::-1].copy())
        changed_manifest(index, lambda fields: _forget(fields, "vectors/both/"))
        sign(index)
        problem = only(check_index(index, tables=0))
        assert f"{space}/rows.npy has {text} that are not those of their columns" in problem
        np.save(path, rows)


def _forget(fields: Any, prefix: str) -> None:
    for one in fields["segments"]:
        one["files"] = {n: of for n, of in one["files"].items() if not n.startswith(prefix)}


@pytest.mark.slow
def test_missing_files_are_named_once(index: Path) -> None:
    """Also those that the manifest does not name: vectors are whole or not there."""
    cases = {
        "vectors/cells/vector_bounds.npy": "cells/vector_bounds.npy",
        "vectors/cells/about.json": "cells/about.json",
        "vectors/columns/rows.npy": "columns/rows.npy",
        "vectors/both/index.json": "both/index.json",
        "frequency_counts.npy": "frequency_counts.npy",
    }
    manifest = (index / "manifest.json").read_text()
    for name, shown in cases.items():
        path = first(index) / name
        content = path.read_bytes()
        path.unlink()
        changed_manifest(index, lambda fields, name=name: _forget(fields, name))  # type: ignore[misc]
        assert f"{shown} is missing. " in only(check_index(index))
        path.write_bytes(content)
        (index / "manifest.json").write_text(manifest)


@pytest.mark.slow
def test_column_vectors_need_the_snapshot(index: Path) -> None:
    for path in first(index).glob("frequency_*.npy"):
        path.unlink()
    changed_manifest(index, lambda fields: _forget(fields, "frequency_"))
    found = check_index(index).problems
    assert any("needs frequency_columns.npy of the oldest segment" in one for one in found)
    assert all("--encoder none, then --encoder default" in one for one in found)
    with merging(often=False):
        deepjoin.index(index, encoder="none")
        deepjoin.index(index, encoder="default")
        found = check_index(index).problems
        assert all("--sketch 0, then --sketch 64" in one for one in found), "they count otherwise"
        deepjoin.index(index, vectors={"sketch": 0})
        deepjoin.index(index, vectors={"sketch": 64})
    assert check_index(index).problems == []


def test_an_encoder_that_changed_is_noted(index: Path, tmp_path: Path) -> None:
    from deepjoin.store.manifest import read_manifest

    manifest = read_manifest(index)
    segment = Lake(index).index.segments[0]
    gone = replace(manifest.vectors, cells=str(tmp_path / "gone"), encoder="./gone/model")
    contents = VectorContents(replace(manifest, vectors=gone), index, segment.folder)
    assert list(contents.problems(segment)) == []
    assert [note.partition(":")[0] for note in contents.notes] == [
        "Vectors were not compared with their encoder"
    ] * 2
    assert "is missing" in contents.notes[0]


@pytest.mark.slow
def test_cells_said_to_be_of_another_encoder_are_named(index: Path) -> None:
    with merging(often=False):
        deepjoin.index(index, vectors={"sketch": 0})
    told(f"{CELLS}/about.json", "digest", "ab12")(first(index))
    sign(index)
    assert "cells/about.json names another encoder" in only(check_index(index, tables=0))


@pytest.mark.slow
def test_vectors_of_an_encoder_that_is_no_more_are_noted(index: Path) -> None:
    with merging(often=False):
        deepjoin.index(index, vectors={"sketch": 0})
    for segment in Lake(index).index.segments:
        told(f"{CELLS}/about.json", "digest", "ab12")(segment.folder)
        _mirror(segment.folder)
    sign(index)
    found = check_index(index)
    assert found.ok
    (note,) = found.notes
    assert "they are of 'default' (ab12), and the encoder here is 'default' (" in note


def _mirror(segment: Path) -> None:
    """Turn the vectors of values around, which leaves their lengths and errors."""
    for name in ("vector_codes.npy", "vector_finer.npy"):
        edited(f"{CELLS}/{name}", lambda a: ~a)(segment)


@pytest.mark.slow
def test_incomplete_columns_are_no_damage(index: Path) -> None:
    """A build that was interrupted leaves rows that are still to come."""
    segment = first(index)
    for space in ("both", "sketch"):
        shutil.rmtree(segment / "vectors" / space)
        changed_manifest(index, lambda fields, s=space: _forget(fields, f"vectors/{s}/"))  # type: ignore[misc]
    told("vectors/columns/about.json", "complete", False)(segment)
    edited("vectors/columns/rows.npy", lambda a: a[:1].fill(np.nan))(segment)
    sign(index)
    problems = [one for one in check_index(index).problems if one.startswith(segment.name)]
    assert problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "first_step", "second"),
    [
        ("cells/vector_codes.npy", {"cells": "none"}, {"cells": "default"}),
        ("columns/rows.npy", {"encoder": "none"}, {"encoder": "default"}),
        ("sketch/rows.npy", {"sketch": 0}, {"sketch": 64}),
        ("both/rows.npy", {"sketch": 0}, {"sketch": 64}),
    ],
)
def test_the_advice_mends_vectors(
    index: Path, file: str, first_step: dict[str, Any], second: dict[str, Any]
) -> None:
    before = {n: c for n, c in files_of(first(index)).items() if n.startswith("vectors/")}
    path = first(index) / "vectors" / file
    path.write_bytes(path.read_bytes()[:-9] + b"\xa5" * 9)
    ((option, value),) = second.items()
    advice = f"--{option} {first_step[option]}, then --{option} {value}"
    assert only(check_index(index)).endswith(f"Encode again with: deepjoin index {index} {advice}")
    with merging(often=False):
        deepjoin.index(index, vectors=first_step)
        deepjoin.index(index, vectors=second)
    assert check_index(index)
    after = {n: c for n, c in files_of(first(index)).items() if n.startswith("vectors/")}
    assert before == after


def test_what_cannot_be_opened_is_built_again(index: Path) -> None:
    (first(index) / "vectors" / "cells" / "vector_codes.npy").write_bytes(b"")
    assert only(check_index(index)).endswith(f"deepjoin index SOURCE -o {index} --rebuild")


LISTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "order": ("vector_values.npy", swap, "vector_values.npy and vector_rows.npy contradict"),
    "range": ("vector_rows.npy", put(1 << 31), "vector_rows.npy has numbers"),
    "starts": ("list_offsets.npy", put(-1), "list_offsets.npy does not divide list_gaps.npy"),
    "members": ("list_gaps.npy", put(60_000), "list_gaps.npy has numbers"),
    "sorted": ("list_gaps.npy", lambda a: a * 0, "list_gaps.npy is not in order"),
    "middles": ("list_codes.npy", put(0), "list_codes.npy has numbers"),
    "width": ("list_codes.npy", lambda a: a[1:], "list_codes.npy has"),
}


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Index values and put them into lists, though they are few."""
    words = [f"{a} {b}" for a in ("red", "old", "big", "new") for b in range(100)]
    folder = tmp_path_factory.mktemp("lists") / "ix"
    lake = deepjoin.index({"t": {"x": [*words, "!", "?"]}}, folder, encoder="none")
    segment = lake.index.segments[0].folder
    write_value_lists(segment / CELLS, ValueVectors.open(segment / CELLS))
    sign(folder)
    return segment, len(lake.index.segments[0].values.hashes)


def test_lists_are_sound(listed: tuple[Path, int]) -> None:
    segment, values = listed
    assert list(vector_problems(segment, [], values, 1)) == []
    lake = Lake(segment.parent.parent)
    contents = VectorContents(lake.index.manifest, lake.path, segment)
    assert list(contents.problems(lake.index.segments[0])) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change", "text"), LISTS.values(), ids=LISTS)
def test_damaged_lists_are_named(
    listed: tuple[Path, int], tmp_path: Path, name: str, change: Callable[[Any], Any], text: str
) -> None:
    segment, values = listed
    shutil.copytree(segment / CELLS, tmp_path / CELLS)
    edited(f"{CELLS}/{name}", change)(tmp_path)
    assert any(text in one for one in vector_problems(tmp_path, [], values, 1))


def test_a_value_in_no_list_is_noticed(listed: tuple[Path, int], tmp_path: Path) -> None:
    segment, values = listed
    shutil.copytree(segment / CELLS, tmp_path / CELLS)
    starts, gaps = (np.load(tmp_path / CELLS / f"list_{of}.npy") for of in ("offsets", "gaps"))
    rows = rows_of_gaps(gaps, np.diff(starts))
    keep = rows != rows[0]
    kept = np.append(0, np.cumsum(keep))[starts]
    gaps, starts = gaps_of_rows(rows[keep], kept)
    np.save(tmp_path / CELLS / "list_gaps.npy", gaps)
    np.save(tmp_path / CELLS / "list_offsets.npy", starts)
    (problem,) = vector_problems(tmp_path, [], values, 1)
    assert "does not hold every value that has a vector" in problem
    (tmp_path / CELLS / "vector_rows.npy").unlink()
    (problem,) = vector_problems(tmp_path, [], values, 1)
    assert problem == f"{CELLS}/vector_rows.npy is missing"


@pytest.mark.parametrize("clustered", [True, False])
def test_what_auto_chose_is_sound(
    tmp_path: Path, clustered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_build, "FLAT_UP_TO", 1000)
    monkeypatch.setattr(vector_build, "SCANNED_UP_TO", 1100)
    save_rows(np.random.default_rng(3).standard_normal((1200, 16)).astype(np.float32), tmp_path)
    assert index_rows(tmp_path, clustered=clustered) == ("ivf4" if clustered else "scan4")
    assert list(index_problems(tmp_path, "auto", "cosine")) == []
    assert list(index_problems(tmp_path, "hnsw", "cosine")) == [
        "index.json is not of the index that was requested"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "flat8", "hnsw", "ivf8", "scan4", "ivf4"])
def test_vector_indexes_are_checked(tmp_path: Path, kind: str) -> None:
    rows = np.random.default_rng(3).standard_normal((1200, 16)).astype(np.float32)
    rows[9] = rows[4]
    build_vectors(rows, tmp_path, kind)
    assert list(index_problems(tmp_path, kind, "cosine")) == []
    assert list(index_problems(tmp_path, kind, "euclidean")) == [
        "index.json is not of the index that was requested"
    ]
    if kind == "flat":
        return
    for name, text in (
        (MEMBERS, "members.npy does not tell which rows are equal"),
        (OFFSETS, "offsets.npy does not tell which rows are equal"),
    ):
        array = np.load(tmp_path / name)
        edited(name, lambda a: a.__setitem__(7, a[7] + 1))(tmp_path)
        assert list(index_problems(tmp_path, kind, "cosine")) == [text]
        np.save(tmp_path / name, array)
    content = (tmp_path / INDEX).read_bytes()
    half = len(content) // 2
    for bad in (content[:half], content[:half] + bytes(half), b"\xa5" * len(content)):
        (tmp_path / INDEX).write_bytes(bad)
        assert list(index_problems(tmp_path, kind, "cosine")) == [
            "index.faiss is not the index of the rows"
        ]
    (tmp_path / INDEX).unlink()
    assert list(index_problems(tmp_path, kind, "cosine")) == ["index.faiss is missing"]
    (tmp_path / ABOUT).unlink()
    assert list(index_problems(tmp_path, kind, "cosine")) == ["index.json is missing"]
