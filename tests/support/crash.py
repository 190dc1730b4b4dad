"""Kills processes that change an index, at any step or moment, and looks at what they leave."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  # imported here, so that children start with it
import pandas as pd  # noqa: F401
import pyarrow.csv
import pyarrow.parquet  # noqa: F401

import deepjoin
from deepjoin import Lake
from deepjoin.build import reading, update
from deepjoin.build.segment_builder import SegmentBuilder
from deepjoin.errors import UnknownName
from deepjoin.read.source import Item
from deepjoin.store.ledger import LEDGER, Key, read_ledger
from deepjoin.store.models import cell_encoder
from tests.support.histories import answers, write
from tests.support.options import index_options
from tests.support.power import Disk

#: Children are forked from a process that has imported everything and started no thread.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload([
    *("pytest", "pyarrow.pandas_compat", "deepjoin.cli.parser", "deepjoin.indexing"),
    *("deepjoin.read.delimited", "deepjoin.read.files", "tests.support.crash"),
])  # fmt: skip
# Loaded once for all children: it takes longer than most of what they do.
cell_encoder("default", Path())

INDEX = "index"
#: Before each of these a process can be killed; syncs and reserved room count as well.
_STEPS = {
    *("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate"),
    *("shutil.rmtree", "shutil.copyfile", "fcntl.flock", "open"),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

Answers = list[Any]


@dataclass(frozen=True)
class Operation:
    """A change of an index in a folder that holds the tables in ``data`` and ``more``."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    #: Every table goes into a segment of its own that the next run finds.
    checkpoints: bool = False
    #: What running it again may say once it has been done.
    done: tuple[type[Exception], ...] = ()


def _tables(place: Path) -> None:
    write(place / "data" / "a.csv", {"x": list("abcabd"), "y": list("123456")})
    write(place / "data" / "b.csv", {"x": list("cdefgh"), "name": ["1999", *"23456"]})
    write(place / "data" / "c.csv", {"name": list("aAbgh"), "y": ["1", "2", "zz", "3", "4"]})
    write(place / "more" / "d.csv", {"x": list("efghi"), "y": list("12789")})
    _age(place)


def _age(place: Path) -> None:
    """Make files look older than a moment, so that their stamps tell whether they changed."""
    now = time.time()
    for path in place.rglob("*.csv"):
        if path.stat().st_mtime > now - 50:
            os.utime(path, (now - 100, now - 100))


def _index(place: Path, **options: Any) -> Lake:
    return deepjoin.index(
        place / "data",
        place / INDEX,
        **index_options(min_distinct=1, threads=2, encoder="none", **options),
    )


def _outdated(place: Path) -> None:
    _tables(place)
    _index(place)
    write(place / "data" / "a.csv", {"x": list("xyzab"), "y": list("34567")})
    (place / "data" / "b.csv").unlink()
    write(place / "data" / "e.csv", {"x": list("abcdefgh"), "name": list("12345678")})
    write(place / "data" / "f.csv", {"name": list("fgh1")})
    _age(place)


def _in_parts(place: Path) -> None:
    """Make an index of several segments, with tables of its own, some of them taken out."""
    _tables(place)
    _index(place)
    usual, update.worth_merging = update.worth_merging, lambda sizes, removed: len(sizes)
    try:
        lake = Lake(place / INDEX)
        lake.add({"one": {"x": list("abc1")}, "two": {"x": list("23h")}})
        lake.add(place / "more")
        lake.remove("b.csv", "one")
    finally:
        update.worth_merging = usual


def _indexed(place: Path) -> None:
    _tables(place)
    _index(place)


_FRAMES = {"mine": {"x": list("abz"), "y": list("129")}, "yours": {"name": list("ghi")}}

OPERATIONS = {
    "build": Operation(_tables, _index),
    "build in parts": Operation(_tables, _index, checkpoints=True),
    "refresh": Operation(_outdated, _index),
    "refresh in parts": Operation(_outdated, _index, checkpoints=True),
    "rebuild": Operation(_in_parts, lambda place: _index(place, rebuild=True)),
    "add files": Operation(_indexed, lambda place: Lake(place / INDEX).add(place / "more")),
    "add frames": Operation(_indexed, lambda place: Lake(place / INDEX).add(_FRAMES)),
    "remove": Operation(
        _indexed, lambda place: Lake(place / INDEX).remove("b*"), done=(UnknownName,)
    ),
    "remove most": Operation(
        _indexed, lambda place: Lake(place / INDEX).remove("a*", "c*"), done=(UnknownName,)
    ),
    "compact": Operation(_in_parts, lambda place: Lake(place / INDEX).compact()),
}


@dataclass
class Stepper:
    """Counts the steps of this process, and ends it at one of them."""

    last: int
    stop: Callable[[], object]
    taken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._active = True
        sys.addaudithook(self._audit)
        for name in ("fsync", "posix_fallocate"):
            self._count_calls(name)

    def finish(self) -> None:
        """Count no more."""
        self._active = False

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS and (event != "open" or (arguments[2] or 0) & _WRITES):
            # A rename within a segment that is being written changes nothing that anyone reads.
            aside = event == "os.rename" and "/writing-" in os.fspath(arguments[1])
            self.step(f"{event} aside" if aside else event)

    def _count_calls(self, name: str) -> None:
        function = getattr(os, name)

        def counted(*arguments: Any) -> Any:
            self.step(name)
            return function(*arguments)

        setattr(os, name, counted)

    def step(self, name: str) -> None:
        """Take a step, or end here."""
        with self._lock:
            if not self._active:
                return
            self.taken.append(name)
            if len(self.taken) == self.last:
                self._active = False
                self.stop()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _ready(operation: str) -> Operation:
    """Prepare this process, a child, for an operation."""
    sys.dont_write_bytecode = True
    if OPERATIONS[operation].checkpoints:
        reading.CHECKPOINT = 0.0
    else:
        # A slow machine would write a checkpoint after five seconds of reading; frames, which
        # have no stamp, are read again after one.
        reading.WORTH_KEEPING = math.inf
    return OPERATIONS[operation]


def _child_to_step(operation: str, place: Path, step: int, answer: Connection) -> None:
    """Run an operation to a step; one that comes to its end tells its steps."""
    chosen = _ready(operation)
    stepper = Stepper(step, _die)
    chosen.run(place)
    stepper.finish()
    answer.send(stepper.taken)


def _child_to_power_cut(
    operation: str, place: Path, step: int, loss: str, answer: Connection
) -> None:
    """Run an operation to a step, or its end, and put what the disk then holds beside it."""
    chosen = _ready(operation)
    disk = Disk(place, INDEX)

    def cut() -> None:
        disk.cut(place / "left", loss, step)
        _die()

    stepper = Stepper(step, cut)
    fsync = os.fsync

    def noted(file: Any) -> None:
        fsync(file)
        disk.synced(file if isinstance(file, int) else file.fileno())

    os.fsync = noted  # type: ignore[assignment]
    chosen.run(place)
    stepper.finish()
    answer.send(stepper.taken)
    cut()


def _child_at_once(operation: str, place: Path, answer: Connection) -> None:
    chosen = _ready(operation)
    answer.send("ready")
    chosen.run(place)


def child(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Start a process; what it sends comes out of the connection."""
    receiver, sender = CHILDREN.Pipe(duplex=False)
    process = CHILDREN.Process(target=target, args=(*arguments, sender))
    process.start()
    sender.close()
    return process, receiver


def received(receiver: Connection) -> Any:
    """Return what a child sent, or None if it died before."""
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        receiver.close()


class Trial:
    """An operation that is killed again and again, each time from the same state."""

    def __init__(self, operation: str, place: Path) -> None:
        self.name, self.operation, self.place = operation, OPERATIONS[operation], place
        self.index = place / INDEX
        place.mkdir(parents=True)
        self.operation.prepare(place)
        self._saved = place / "saved"
        if self.index.exists():
            shutil.copytree(self.index, self._saved)
        self.before = self.answers()
        self.operation.run(place)
        self.after = self.answers()
        self.outcomes: Counter[str] = Counter()

    def answers(self) -> Answers | None:
        """Say everything the index says; None if there is none."""
        if not (self.index / "manifest.json").exists():
            return None
        return list(answers(Lake(self.index)))

    def restore(self) -> None:
        """Go back to the state before the operation."""
        shutil.rmtree(self.index, ignore_errors=True)
        shutil.rmtree(self.place / "left", ignore_errors=True)
        if self._saved.exists():
            shutil.copytree(self._saved, self.index)

    def steps(self) -> list[str]:
        """Run the operation to its end, and tell the steps it took."""
        taken = self.run_to(0)
        assert taken, "the operation came to its end"
        return list(taken)

    def killed_at(self, step: int) -> str:
        """Kill the operation before a step; returns which state that left."""
        taken = self.run_to(step)
        return self.check("ended" if taken else "killed")

    def run_to(self, step: int) -> Any:
        """Kill the operation before a step; returns its steps if it came to its end."""
        return self._run_to(_child_to_step, step)

    def cut_at(self, step: int, loss: str) -> str:
        """Cut the power before a step, or at the end; returns which state that left."""
        taken = self._run_to(_child_to_power_cut, step, loss)
        shutil.rmtree(self.index, ignore_errors=True)
        if (self.place / "left").exists():
            (self.place / "left").rename(self.index)
        return self.check("ended" if taken else "killed")

    def _run_to(self, target: Callable[..., None], *arguments: Any) -> Any:
        self.restore()
        process, receiver = child(target, self.name, self.place, *arguments)
        taken = received(receiver)
        process.join()
        assert process.exitcode in ((0, -signal.SIGKILL) if taken else (-signal.SIGKILL,))
        return taken

    def usual_seconds(self) -> float:
        """Measure how long the operation takes when nothing happens."""
        return max(self._timed(None) for _ in range(2))

    def killed_after(self, seconds: float) -> str:
        """Kill the operation after a time; returns which state that left."""
        self._timed(seconds)
        return self.check("killed")

    def _timed(self, limit: float | None) -> float:
        self.restore()
        process, receiver = child(_child_at_once, self.name, self.place)
        assert received(receiver) == "ready"
        started = time.perf_counter()
        process.join(limit)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        return time.perf_counter() - started

    def check(self, how: str) -> str:
        """See that the index is as before or as after, and becomes as after by another run."""
        found = self.answers()
        outcome = "before" if found == self.before else "after"
        assert found in (self.before, self.after)
        assert how == "killed" or found == self.after, "what was reported done is done"
        checkpointed = pending_items(self.index)
        read = self._run_again(found == self.after)
        if found == self.before:
            assert not checkpointed & set(read), "what was checkpointed is not read again"
        assert self.answers() == self.after
        assert not strays(self.index)
        if checkpointed and outcome == "before":
            outcome += ", resumed"
        self.outcomes[outcome] += 1
        return outcome

    def _run_again(self, is_done: bool) -> list[str]:
        """Give the command again; returns the names of the items it read."""
        read: list[str] = []
        usual = SegmentBuilder.read

        def spy(build: SegmentBuilder, key: Key, item: Item, *rest: Any) -> None:
            read.append(item.name)
            usual(build, key, item, *rest)

        try:
            SegmentBuilder.read = spy  # type: ignore[method-assign, assignment]
            self.operation.run(self.place)
        except self.operation.done:
            assert is_done
        finally:
            SegmentBuilder.read = usual  # type: ignore[method-assign]
        return read


def pending_items(index: Path) -> set[str]:
    """Name the items that an interrupted run has read and put where the next run finds them."""
    segments = [_segments(index, name) for name in ("manifest.json", "pending.json")]
    new = [index / "segments" / name for name in segments[1] - segments[0]]
    if not all((folder / LEDGER).exists() for folder in new):
        return set()
    return {item for folder in new for item in read_ledger(folder)["item"].to_pylist()}


def _segments(index: Path, file: str) -> set[str]:
    try:
        fields = json.loads((index / file).read_text())
    except FileNotFoundError:
        return set()
    return {record["name"] for record in fields["segments"]}


def strays(index: Path) -> list[str]:
    """List what is in an index folder and no part of the index."""
    fields = json.loads((index / "manifest.json").read_text())
    files = [f"{one['name']}/{file}" for one in fields["segments"] for file in one["files"]]
    expected = {"manifest.json", "lock", *(f"segments/{name}" for name in files)}
    folders = {parent.as_posix() for name in expected for parent in Path(name).parents}
    there = {path.relative_to(index).as_posix() for path in index.rglob("*")}
    return sorted(there - expected - folders)


def moments(trial: Trial, count: int, seed: int) -> list[float]:
    """Choose random moments of the time an operation takes, in seconds."""
    chance, usual = random.Random(f"{trial.name} {seed}"), trial.usual_seconds()
    return [chance.uniform(0, usual) for _ in range(count)]
