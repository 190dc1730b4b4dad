"""Processes that change and read one index at the same time, and tell what they met."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import deepjoin
from deepjoin import Lake
from deepjoin.build import update
from deepjoin.cli import main
from deepjoin.errors import DeepJoinError
from deepjoin.settings import SearchSettings
from tests.support.crash import CHILDREN, child, received
from tests.support.histories import write

VERSIONS = [f"version {number}" for number in range(7)]
#: The tables of a lake, and which of the versions each of them has.
State = tuple[Any, ...]


def state(lake: Lake) -> State:
    """Tell which of all its states a lake is in."""
    hits = lake.search(VERSIONS, 50, settings=SearchSettings(matches=None))
    told = sorted((hit.table, *sorted(match.target for match in hit.matches)) for hit in hits)
    return (*sorted(lake.tables), *told)


def _write_version(place: Path, number: int) -> None:
    """Let two files tell the same version."""
    version = VERSIONS[number % len(VERSIONS)]
    for name in ("a.csv", "b.csv"):
        write(place / "data" / name, {"x": [version, *"abc"], "y": list("1234")})


def _steps(place: Path, rounds: int) -> Iterator[None]:
    """Change an index again and again, in every way."""
    index = place / "index"
    for number in range(rounds):
        _write_version(place, number)
        deepjoin.index(place / "data", index)
        yield
        lake = Lake(index)
        for _ in range(2):  # what was there before comes back, byte by byte
            lake.add({"mine": {"x": ["version 3", "q"]}})
            yield
            lake.remove("mine")
            yield
        lake.compact()
        yield


def _child_reading(index: Path, started: Any, stop: Any, answer: Connection) -> None:
    """Read until told to stop; send every state that was met, or the exception."""
    seen: set[State] = set()
    try:
        lake = still = Lake(index)
        lake, first, reads = Lake(index), state(still), 0
        started.set()
        while not stop.is_set():
            lake.reopen()
            seen |= {state(lake), state(Lake(index))}
            assert state(still) == first, "an open lake answers as before"
            reads += 1
        answer.send((seen, reads))
    except BaseException:
        started.set()
        answer.send((traceback.format_exc(), 0))


def read_meanwhile(place: Path, rounds: int, merge: bool = True) -> tuple[int, int, int]:
    """Change an index while another process reads it; returns changes, reads and states seen."""
    (place / "data").mkdir(parents=True)
    _write_version(place, 0)
    deepjoin.index(place / "data", place / "index", settings=deepjoin.Settings(min_distinct=1))
    committed = [state(Lake(place / "index"))]
    started, stop = CHILDREN.Event(), CHILDREN.Event()
    process, receiver = child(_child_reading, place / "index", started, stop)
    started.wait()
    usual = update.worth_merging
    try:
        if not merge:
            update.worth_merging = lambda sizes, removed: len(sizes)
        for _ in _steps(place, rounds):
            committed.append(state(Lake(place / "index")))
    finally:
        update.worth_merging = usual
        stop.set()
    seen, reads = received(receiver)
    process.join()
    assert isinstance(seen, set), seen
    assert seen <= set(committed), seen - set(committed)
    return len(committed) - 1, reads, len(seen)


def _child_adding(place: Path, who: int, rounds: int, together: Any, answer: Connection) -> None:
    """Add tables, one a round; send those that went in, and what was said of the others."""
    added, refused = [], []
    for number in range(rounds):
        name = f"table {who}-{number}"
        together.wait()
        try:
            added += Lake(place / "index").add({name: {"x": [name, "a", "b"]}})
        except DeepJoinError as error:
            refused.append(str(error))
    answer.send((added, refused))


def _child_refreshing(place: Path, rounds: int, together: Any, answer: Connection) -> None:
    """Change files and refresh, one a round; send what was said."""
    refused = []
    for number in range(rounds):
        _write_version(place, number)
        together.wait()
        try:
            deepjoin.index(place / "data", place / "index")
        except DeepJoinError as error:
            refused.append(str(error))
    answer.send(([], refused))


def write_at_once(place: Path, rounds: int) -> tuple[set[str], list[str]]:
    """Let three processes write into one index; returns the tables added and what was said."""
    (place / "data").mkdir(parents=True)
    _write_version(place, 0)
    deepjoin.index(place / "data", place / "index", settings=deepjoin.Settings(min_distinct=1))
    together = CHILDREN.Barrier(3)
    writers = [child(_child_adding, place, who, rounds, together) for who in range(2)]
    writers.append(child(_child_refreshing, place, rounds, together))
    told = [received(receiver) for _, receiver in writers]
    for process, _ in writers:
        process.join()
    added, refused = zip(*told, strict=True)
    return {name for names in added for name in names}, [one for texts in refused for one in texts]


def _child_command(arguments: list[str], answer: Connection) -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    answer.send((status, err.getvalue()))


def command(*arguments: object) -> tuple[int, str]:
    """Give a command in another process; returns its status and what it said on stderr."""
    process, receiver = child(_child_command, [str(argument) for argument in arguments])
    told = received(receiver)
    process.join()
    assert told is not None, f"{arguments} ended with {process.exitcode}"
    return (int(told[0]), str(told[1]))


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size; OSError where that is not allowed."""
    place.mkdir(parents=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise PermissionError("only root may mount a small disk")
    _mount("mount", "-t", "tmpfs", "-o", f"size={size}", "none", place)
    try:
        yield place
    finally:
        _mount("umount", "--lazy", place)


def make_read_only(place: Path, read_only: bool = True) -> None:
    """Let nobody, not even root, write to a mounted disk, or let them again."""
    _mount("mount", "-o", f"remount,{'ro' if read_only else 'rw'}", place)


def _mount(*arguments: object) -> None:
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(done.stderr.strip())


def leave_free(disk: Path, size: int) -> None:
    """Fill a disk until only so many bytes are free."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    status = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize - size))


def age(folder: Path) -> None:
    """Make files look older than a moment, so that their stamps tell whether they changed."""
    for path in folder.rglob("*.csv"):
        os.utime(path, (time.time() - 100, time.time() - 100))
