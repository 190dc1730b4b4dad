"""Killed, cut off, full, read only, or two at once: an index is the last good one.

`benchmarks/hard.py --only kill --every` does the same at every step.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.progress import UNITS
from deepjoin.store.storage import writing
from tests.support import rivals
from tests.support.crash import INDEX, OPERATIONS, Trial, moments, strays
from tests.support.histories import answers, write
from tests.support.options import index_options
from tests.support.power import LOSSES, Disk

pytestmark = pytest.mark.slow

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Name a folder that does not exist yet."""
    return tmp_path / "place"


def telling(steps: list[str], count: int) -> list[int]:
    """Choose steps: after each rename that readers see, before the last, the end, and others."""
    renames = [number for number, name in enumerate(steps, 1) if name == "os.rename"]
    around = {*(number + 1 for number in renames), renames[-1], len(steps) + 1}
    others = sorted(set(range(1, len(steps) + 1)) - around)
    return sorted({*around, *random.Random(0).sample(others, count)})


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_a_step(place: Path, operation: str) -> None:
    trial = Trial(operation, place)
    for step in telling(trial.steps(), 3):
        trial.killed_at(step)
    if trial.before != trial.after:
        assert {"before", "after"} <= {outcome.split(",")[0] for outcome in trial.outcomes}
    if OPERATIONS[operation].checkpoints:
        assert trial.outcomes["before, resumed"]
    deepjoin.index(place / "data", place / INDEX, build=deepjoin.BuildSettings(rebuild=True))
    assert trial.answers() == trial.after, "a clean build says the same"


@LINUX
@pytest.mark.parametrize("operation", ["build", "build in parts", "refresh", "compact"])
def test_cut_off_at_a_step(place: Path, operation: str) -> None:
    trial = Trial(operation, place)
    steps = trial.steps()
    renames = [number + 1 for number, name in enumerate(steps, 1) if name == "os.rename"]
    for loss in LOSSES:
        for step in (random.Random(loss).randrange(1, len(steps)), renames[-1], len(steps) + 1):
            trial.cut_at(step, loss)


@LINUX
def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "old").write_text("old")
    (folder / "gone").write_text("gone")
    disk = Disk(tmp_path, "here")
    (folder / "new").write_text("written")
    (folder / "old").rename(folder / "renamed")
    (folder / "gone").unlink()
    left = {}
    for loss in ("nothing", "names", "contents"):
        disk.cut(tmp_path / loss, loss, 0)
        left[loss] = {path.name: path.read_text() for path in (tmp_path / loss).iterdir()}
    assert left["nothing"] == left["contents"] == {"old": "old", "gone": "gone"}
    assert left["names"].keys() == {"new", "renamed"}
    assert left["names"]["renamed"] == "old"
    assert left["names"]["new"] != "written"


@pytest.mark.parametrize("seed", [random.randrange(10**9)], ids=["new"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_moment(place: Path, operation: str, seed: int) -> None:
    trial = Trial(operation, place)
    for seconds in moments(trial, 1, seed):
        trial.killed_after(seconds)


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    try:
        with rivals.small_disk(place, "6m") as mounted:
            yield mounted
    except PermissionError as error:
        pytest.skip(f"NO TEST OF FULL AND READ-ONLY DISKS: {error}")


Command = Callable[[Path, Path], tuple[object, ...]]

#: Ways to change an index on a disk: what is there before, and the command.
COMMANDS: dict[str, tuple[bool, Command]] = {
    "build": (False, lambda data, index: ("index", data, "-o", index, "--min-distinct", 1)),
    "refresh": (True, lambda data, index: ("index", data, "-o", index)),
    "rebuild": (True, lambda data, index: ("index", data, "-o", index, "--rebuild")),
    "add": (True, lambda data, index: ("add", index, data.parent / "more")),
    "remove": (True, lambda data, index: ("remove", index, "a.csv", "b.csv")),
    "compact": (True, lambda data, index: ("compact", index)),
}


def on_disk(tmp_path: Path, disk: Path, exists: bool) -> tuple[Path, Path]:
    """Put tables elsewhere and their index, of two segments, on a disk."""
    data, index = tmp_path / "data", disk / INDEX
    for name in ("a", "b", "c"):
        write(data / f"{name}.csv", {"x": list("abcde"), "y": list("12345")})
    write(tmp_path / "more" / "d.csv", {"x": list("cdefg")})
    if exists:
        lake = deepjoin.index(data, index, settings=deepjoin.Settings(min_distinct=1))
        lake.add({f"mine{number}": {"x": ["a", "b", f"{number}"]} for number in range(40)})
        lake.add({"large": {"x": [f"row {number}" for number in range(1500)]}})
        lake.add({"small": {"x": list("abc")}})
        write(data / "b.csv", {"x": list("hgfed"), "y": list("98765")})
        (data / "c.csv").unlink()
        write(data / "e.csv", {"x": list("aceg")})
    return data, index


def told(index: Path) -> list[Any] | None:
    return list(answers(Lake(index))) if (index / "manifest.json").exists() else None


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(tmp_path: Path, disk: Path, name: str) -> None:
    exists, command = COMMANDS[name]
    data, index = on_disk(tmp_path, disk, exists)
    before, other = told(index), disk / "other"
    if exists:
        shutil.copytree(index, other)
    assert rivals.command(*command(data, other))[0] == 0
    after, refused = told(other), 0
    for free in (0, 8 << 10, *range(48 << 10, 1 << 21, 224 << 10)):
        rivals.leave_free(disk, free)
        status, said = rivals.command(*command(data, index))
        if status == 0:
            break
        refused += 1
        assert (status, said.count("\n"), "No space left" in said) == (1, 1, True), said
        # Column vectors come after the tables are in: without room for them, tables are.
        assert told(index) in ([before, after] if name == "build" else [before])
    (disk / "ballast").unlink()
    assert refused > (name != "remove"), "it takes room"
    assert told(index) == after
    assert not strays(index)


def test_a_read_only_disk(tmp_path: Path, disk: Path) -> None:
    data, index = on_disk(tmp_path, disk, exists=True)
    assert rivals.command("index", data, "-o", index)[0] == 0
    expected = told(index)
    rivals.make_read_only(disk)
    assert told(index) == expected
    assert rivals.command("search", index, "--values", "a,b")[0] == 0
    assert rivals.command("index", data, "-o", index)[0] == 0, "nothing has changed"
    write(data / "a.csv", {"x": list("zyxwv")})
    for command in ("refresh", "rebuild", "add", "remove"):
        status, said = rivals.command(*COMMANDS[command][1](data, index))
        assert (status, said.count("\n")) == (1, 1), said
        assert "Read-only file system" in said and str(index) in said
    assert told(index) == expected
    rivals.make_read_only(disk, False)
    assert rivals.command("index", data, "-o", index)[0] == 0
    assert told(index) != expected


def test_writers_at_once(place: Path) -> None:
    added, refused = rivals.write_at_once(place, 15)
    assert added
    for text in refused:
        assert "being written by another process" in text and "\n" not in text
    lake = deepjoin.index(place / "data", place / INDEX)
    assert set(lake.tables) == {"a.csv", "b.csv", *added}
    for table in added:
        assert [hit.table for hit in lake.search([table], join="equi")] == [table]
        assert lake.join({"k": [table]}, "k", (table, "x"), how="inner").num_rows == 1
    assert not strays(place / INDEX)


def overtake(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another writer commit right before the next one gets the lock."""
    others = iter([other])

    def late(folder: Path) -> Any:
        for first in others:
            first()
        return writing(folder)

    monkeypatch.setattr("deepjoin.build.pipeline.writing", late)


def test_a_refresh_goes_on_from_what_was_added_before_it(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tables / "data" / "b.csv", {"x": list("vwxyz")})
    write(tables / "more" / "c.csv", {"x": list("cdefg")})
    reader = Lake(tables / INDEX)
    overtake(monkeypatch, lambda: (reader.add(tables / "more"), reader.remove("a.csv")))
    lake = deepjoin.index(tables / "data", tables / INDEX)
    assert (sorted(lake.tables), list(lake.index.excluded)) == (["b.csv", "more/c.csv"], ["a.csv"])
    assert lake.join({"k": ["v", "c"]}, "k", ("more/c.csv", "x"), how="inner").num_rows == 1


@pytest.mark.parametrize(
    ("folder", "options", "said"),
    [
        ("data", {"profile": "basic"}, "has other settings since .* Run the same command again"),
        (
            "more",
            {"rebuild": True},
            "has become the index of other tables since .* Run the same command again",
        ),
    ],
)
def test_a_refresh_does_not_mix_with_another_index(
    tables: Path, monkeypatch: pytest.MonkeyPatch, folder: str, options: Any, said: str
) -> None:
    write(tables / "data" / "b.csv", {"x": list("vwxyz")})
    write(tables / "more" / "c.csv", {"x": list("cdefg")})
    overtake(
        monkeypatch,
        lambda: deepjoin.index(tables / folder, tables / INDEX, **index_options(**options)),
    )
    with pytest.raises(DeepJoinError, match=said):
        deepjoin.index(tables / "data", tables / INDEX)
    expected = told(tables / INDEX)
    other = deepjoin.index(
        tables / folder, tables / "other", **index_options(min_distinct=1, **options)
    )
    assert expected == list(answers(other))


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "in parts"])
def test_a_reader_meanwhile(place: Path, merge: bool) -> None:
    changes, reads, seen = rivals.read_meanwhile(place, 5, merge)
    assert changes == 30 and reads and seen > 1


def test_an_open_lake_outlives_what_it_maps(place: Path) -> None:
    lake = deepjoin.index(
        {"mine": {"x": list("abc")}}, place, settings=deepjoin.Settings(min_distinct=1)
    )
    lake.add({"yours": {"x": list("cde")}})
    reader = Lake(place)
    lake.remove("mine")
    lake.compact()
    (hit,) = reader.search(["a"])
    assert (hit.table, hit.brings.sample) == ("mine", ({"x": "a"}, {"x": "b"}, {"x": "c"}))
    assert reader.column("mine", "x").cells == list("abc")


@pytest.fixture
def tables(place: Path) -> Path:
    """Index some tables whose files have not changed just now."""
    place.mkdir()
    for name in ("a", "b"):
        write(place / "data" / f"{name}.csv", {"x": list("abcde"), "y": list("12345")})
    rivals.age(place)
    deepjoin.index(place / "data", place / INDEX, settings=deepjoin.Settings(min_distinct=1))
    return place


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("cut", [halved, emptied])
def test_every_file_cut_short(tables: Path, cut: Callable[[Path], None]) -> None:
    index, saved = tables / INDEX, tables / "saved"
    expected = told(index)
    shutil.copytree(index, saved)
    files = [path.relative_to(saved) for path in saved.rglob("*") if path.is_file()]
    assert len(files) > 30
    for number, name in enumerate(files):
        shutil.rmtree(index)
        shutil.copytree(saved, index)
        cut(index / name)
        if name.name != "lock":  # which has no content
            with pytest.raises(IndexUnusable, match=f"damaged: .*{name.name}"):
                Lake(index)
        # Without its manifest nothing says what an index was made of: no guess replaces it.
        unknown = name.name == "manifest.json"
        if number % 3 and not unknown:
            continue  # every repair reads everything again
        deepjoin.index(
            tables / "data",
            index,
            settings=deepjoin.Settings(min_distinct=1),
            build=deepjoin.BuildSettings(rebuild=unknown),
        )
        assert told(index) == expected
        assert not strays(index)


@pytest.mark.parametrize("cut", [halved, emptied])
@pytest.mark.parametrize("name", ["pending.json", "segments/*/values.bytes.npy"])
def test_a_checkpoint_cut_short(place: Path, name: str, cut: Callable[[Path], None]) -> None:
    trial = Trial("build in parts", place)
    trial.run_to(len(trial.steps()) // 2)
    left = list(trial.index.glob(name))
    assert left
    for path in left:
        cut(path)
    trial.operation.run(place)
    assert trial.answers() == trial.after
    assert not strays(trial.index)


def refreshed(place: Path) -> tuple[Lake, list[str]]:
    """Refresh an index; returns it and the files that were read."""
    read: set[str] = set()
    lake = deepjoin.index(
        place / "data", place / INDEX, progress=lambda done, total, name: read.add(name)
    )
    return lake, sorted(read - set(UNITS))


@pytest.mark.parametrize("move", ["moved", "copied"])
def test_an_index_goes_elsewhere_with_its_tables(tables: Path, move: str) -> None:
    expected, there = told(tables / INDEX), tables.parent / "there"
    if move == "moved":
        tables.rename(there)
    else:
        shutil.copytree(tables, there, copy_function=shutil.copyfile)
        rivals.age(there)
        shutil.rmtree(tables)
    assert told(there / INDEX) == expected
    joined = Lake(there / INDEX).join({"k": ["a", "b"]}, "k", ("a.csv", "x"), how="inner")
    assert joined.num_rows == 2
    lake, read = refreshed(there)
    assert (list(answers(lake)), read) == (expected, [])
    write(there / "data" / "b.csv", {"x": list("vwxyz")})
    lake, read = refreshed(there)
    assert read == ["b.csv"] and [hit.table for hit in lake.search(["v", "w"])] == ["b.csv"]
    assert not strays(there / INDEX)


def test_an_index_goes_elsewhere_without_its_tables(tables: Path) -> None:
    expected, there = told(tables / INDEX), tables.parent / "there"
    there.mkdir()
    (tables / INDEX).rename(there / INDEX)
    shutil.rmtree(tables)
    assert told(there / INDEX) == expected
