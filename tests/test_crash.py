"""Killed, cut off, full, read only, or two at once: an index is the last good one.

`benchmarks/crash.py` does the same at every step, at many more moments.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.errors import IndexUnusable

from . import rivals
from .crash import INDEX, OPERATIONS, Trial, moments, strays
from .power import LOSSES, Disk
from .test_history import answers, write

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Work in memory where there is such a place: syncs are counted, not waited for."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path / "place"
        return
    folder = memory / f"deepjoin-{os.getpid()}-{random.randrange(10**9)}"
    folder.mkdir()
    yield folder / "place"
    shutil.rmtree(folder)


def telling(steps: list[str], count: int) -> list[int]:
    """Choose steps: those around each rename, the last, and some of the others."""
    renames = [number for number, name in enumerate(steps, 1) if name == "os.rename"]
    around = {*renames, *(number + 1 for number in renames)}
    others = sorted(set(range(1, len(steps) + 1)) - around)
    return sorted({*around, *random.Random(0).sample(others, min(count, len(others)))})


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_a_step(place: Path, operation: str) -> None:
    trial = Trial(operation, place)
    steps = trial.steps()
    for step in telling(steps, 4):
        trial.killed_at(step)
    trial.killed_at(len(steps) + 1)
    if trial.before != trial.after:
        assert {"before", "after"} <= {outcome.split(",")[0] for outcome in trial.outcomes}
    if OPERATIONS[operation].checkpoints:
        assert trial.outcomes["before, resumed"]


@LINUX
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operation", ["build", "build in parts", "refresh", "compact"])
def test_cut_off_at_a_step(place: Path, operation: str, loss: str) -> None:
    trial = Trial(operation, place)
    steps = trial.steps()
    renames = [number + 1 for number, name in enumerate(steps, 1) if name == "os.rename"]
    for step in {renames[-1], len(steps) + 1, random.Random(loss).randrange(1, len(steps))}:
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


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_moment(place: Path, operation: str) -> None:
    trial = Trial(operation, place)
    assert len(list(moments(trial, 2, random.randrange(10**9)))) == 2


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    try:
        with rivals.small_disk(place, "3m") as mounted:
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
        lake = deepjoin.index(data, index, min_distinct=1)
        lake.add({f"mine{number}": {"x": ["a", "b", f"{number}"]} for number in range(40)})
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
    before = told(index)
    refused = 0
    for free in (0, 8 << 10, *range(40 << 10, 1 << 21, 40 << 10)):
        rivals.leave_free(disk, free)
        status, said = rivals.command(*command(data, index))
        if status == 0:
            break
        refused += 1
        assert (status, said.count("\n"), "No space left" in said) == (1, 1, True), said
        assert told(index) == before
    (disk / "ballast").unlink()
    assert refused > 2 or name == "remove"
    after = told(index)
    assert after != before or name == "compact"
    again = shutil.copytree(data, tmp_path / "again" / "data").parent
    assert again.exists() and not strays(index)
