"""Cases of `hard.py` that run whole commands: signals, limits, load, flipped bits."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from unittest import mock

from tests.support.flips import (
    OPERATIONS,
    Outcome,
    flipped_copy,
    flips,
    outcomes,
    own_queries,
    verdict,
)
from tests.support.rivals import small_disk

import deepjoin
from deepjoin.demo import write_demo_lake
from deepjoin.read.corpus import write_corpus
from hard_cases import Case, Kind, same

#: Seconds in which a command must end after a signal.
_PROMPT = 2.0
#: Seconds that a step of training may take on a busy machine.
_STEP = 60
#: Seconds after which a command counts as hanging; a machine may stop us for minutes.
_HANGS = 600
#: Seconds in which a signal comes, by command; other commands take about three.
_SIGNALLED_WITHIN = {"train": 30.0, "serve": 8.0, "evaluate": 8.0, "encode": 12.0, "index": 6.0}
HERE = Path(__file__).parent


class Commands(Kind):
    """Base of the kinds that run commands on a copy of a lake of some size."""

    @cache  # noqa: B019  # there is one of these
    def _prepared(self) -> Path:
        place = Path(tempfile.mkdtemp(prefix="deepjoin-hard-"))
        random = Random(0)
        for number in range(8):
            rows = [
                f"{row},person {random.randrange(9999):x} of town {town:x},town {town:x}"
                for row in range(3000)
                for town in [random.randrange(999)]
            ]
            text = "id,person,town\n" + "\n".join(rows) + "\n"
            write_text(place / "data" / f"t{number}.csv", text)
        write_text(place / "more.csv", "person\n" + "\n".join(f"town {n:x}" for n in range(3000)))
        lake = deepjoin.index(place / "data", place / "index")
        columns = [lake.column(table, "person") for table in lake.tables]
        write_corpus(place / "corpus", columns, columns[:3])
        return place

    def close(self) -> None:
        """Remove what was prepared."""
        if self._prepared.cache_info().currsize:
            shutil.rmtree(self._prepared(), ignore_errors=True)

    def _place(self, place: Path) -> Path:
        shutil.copytree(self._prepared(), place / "lake")
        (place / "tmp").mkdir()
        return place / "lake"

    @staticmethod
    def arguments(command: str, lake: Path) -> list[str]:
        """Return the arguments of a command."""
        index, data, more = str(lake / "index"), str(lake / "data"), str(lake / "more.csv")
        return {
            "index": ["index", data, "-o", str(lake / "new")],
            "encode": ["index", data, "-o", str(lake / "new"), "--encoder", "default"],
            "refresh": ["index", data, "-o", index],
            "rebuild": ["index", data, "-o", index, "--rebuild"],
            "add": ["add", index, more],
            "remove": ["remove", index, "t1.csv"],
            "compact": ["compact", index],
            "check": ["check", index],
            "info": ["info", index],
            "search": ["search", index, more, "-c", "person"],
            "join": [
                *("join", index, more, "-c", "person", "--with", "t2.csv:person"),
                *("-o", str(lake / "joined.csv")),
            ],
            "graph": ["graph", index, "--rebuild", "-o", str(lake / "edges.csv")],
            "relations": ["relations", index, "--check", "-o", str(lake / "relations.json")],
            "enrich": ["enrich", index, str(lake / "data" / "t0.csv"), "--target", "id"],
            "match": [
                *("match", more, str(lake / "data" / "t2.csv"), "-c", "person"),
                *("-o", str(lake / "pairs.csv")),
            ],
            "evaluate": ["evaluate", str(lake / "corpus"), "--cache", str(lake / "cache")],
            "train": ["train", data, "-o", str(lake / "model"), "--steps", "3", "--batch", "4"],
            "serve": ["serve", index, "--port", "0", "--workers", "1"],
        }[command]

    @staticmethod
    def environment(place: Path) -> dict[str, str]:
        """Return the environment of a command: its temporary files go where they are looked for."""
        return os.environ | {"TMPDIR": str(place / "tmp"), "DEEPJOIN_CACHE": str(place / "cache")}


def write_text(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _delays(pid: int) -> dict[str, float]:
    """Return how many seconds each thread of a process has waited for a processor, on Linux."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


class Signals(Commands):
    """Ctrl-C and SIGTERM end every command within two seconds, and the index stays usable.

    The time that a thread waited for a busy machine does not count.
    """

    weight = 2

    def make(self, random: Random) -> Case:
        """Choose a command, a signal and a moment."""
        names = ("index", "encode", "refresh", "rebuild", "add", "remove", "compact", "check")
        more = ("relations", "enrich", "match", "evaluate", "train", "serve")
        command = random.choice((*names, "search", "join", "graph", *more))
        seconds = random.uniform(0, _SIGNALLED_WITHIN.get(command, 3.0))
        return {"command": command, "signal": random.choice((2, 15)), "seconds": round(seconds, 3)}

    def run(self, case: Case, place: Path) -> None:
        """Run the command, send the signal, and look at what is left."""
        lake, environment = self._place(place), self.environment(place)
        process = subprocess.Popen(
            [sys.executable, "-m", "deepjoin", *self.arguments(case["command"], lake)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        taken = slack = 0.0
        try:
            said = process.communicate(timeout=case["seconds"])[1]
        except subprocess.TimeoutExpired:
            sent, before = time.monotonic(), _delays(process.pid)
            process.send_signal(case["signal"])
            paused, looked = 0.0, sent
            while True:
                with suppress(subprocess.TimeoutExpired):
                    said = process.communicate(timeout=0.05)[1]
                    break
                # While this loop stands still, the machine may as well: then nobody counts a delay.
                paused += max(0.0, time.monotonic() - looked - 0.1)
                looked = time.monotonic()
                taken = looked - sent
                delays = _delays(process.pid)
                slack = max((delay - before.get(of, 0) for of, delay in delays.items()), default=0)
                slack += paused
                if taken > _HANGS:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise AssertionError(f"still there {_HANGS} s after the signal") from None
        # A training run saves the step it is at when it gets Ctrl-C, and says so.
        slack += _STEP if (case["command"], case["signal"]) == ("train", signal.SIGINT) else 0
        if taken > _PROMPT + slack:
            raise AssertionError(
                f"ended {taken:.1f} s after the signal; allowed {_PROMPT + slack:.1f}"
            )
        status = process.returncode
        # Before the first line of ours, Python's own handlers end the process.
        if status not in (0, 128 + case["signal"], -case["signal"]):
            raise AssertionError(f"status {status}: {said[-500:]}")
        if "Traceback" in said and status != -case["signal"]:
            raise AssertionError(said[-1500:])
        found = deepjoin.open(lake / "index").search(["person 1 of town 1"], 1)
        same(len(found), 1, "hits afterwards")
        with mock.patch.dict(os.environ, environment):
            again = [sys.executable, "-m", "deepjoin", *self.arguments("join", lake)]
            subprocess.run(again, check=True, capture_output=True, env=environment)
        strays = [str(path) for path in (place / "tmp").glob("deepjoin-*")]
        strays += [str(path) for path in lake.glob(".deepjoin-*")]
        same(strays, [], "strays after the next command")


class Limits(Commands):
    """With too little memory, too few descriptors or too small a disk, one line says so."""

    weight = 2

    def make(self, random: Random) -> Case:
        """Choose a command and a limit."""
        limit = random.choice(("memory", "descriptors", "disk"))
        amount = {
            "memory": lambda: random.randint(150, 3000),
            "descriptors": lambda: random.randint(10, 128),
            "disk": lambda: random.randint(1, 24),
        }[limit]()
        some = ("index", "encode", "rebuild", "add", "compact", "check", "search", "join", "graph")
        others = ("relations", "enrich", "match")
        command = random.choice(some[:5] if limit == "disk" else (*some, *others))
        return {"command": command, "limit": limit, "amount": amount}

    def run(self, case: Case, place: Path) -> None:
        """Run the command; it works, or fails with one line, and the index stays usable."""
        with ExitStack() as stack:
            if case["limit"] == "disk":
                try:
                    small = stack.enter_context(
                        small_disk(place / "disk", f"{case['amount'] + 9}m")
                    )
                except PermissionError:
                    return
                lake = small / "lake"
                (small / "tmp").mkdir()
                try:
                    shutil.copytree(self._prepared(), lake)
                except (OSError, shutil.Error):
                    return  # not even the lake fits
                environment = self.environment(small)
            else:
                lake, environment = self._place(place), self.environment(place)

            def limited() -> None:
                amount = case["amount"]
                if case["limit"] == "memory":
                    resource.setrlimit(resource.RLIMIT_AS, (amount << 20, amount << 20))
                elif case["limit"] == "descriptors":
                    resource.setrlimit(resource.RLIMIT_NOFILE, (amount, amount))

            done = subprocess.run(
                [sys.executable, "-m", "deepjoin", *self.arguments(case["command"], lake)],
                capture_output=True,
                text=True,
                env=environment,
                preexec_fn=limited,
                timeout=_HANGS,
                check=False,
            )
            if done.returncode not in (0, 1):
                raise AssertionError(f"status {done.returncode}: {done.stderr[-1500:]}")
            if "Traceback" in done.stderr:
                raise AssertionError(done.stderr[-1500:])
            if done.returncode and "rebuild" in done.stderr.lower():
                raise AssertionError(f"told as damage: {done.stderr[-500:]}")
            found = deepjoin.open(lake / "index").search(["person 1 of town 1"], 1)
            same(len(found), 1, "hits afterwards")


class Fairness(Kind):
    """A small search beside large ones: no errors, and not much slower than alone."""

    weight = 0.05
    #: How many times slower the slowest hundredth may be: far more than was ever measured.
    _MOST = 15.0

    def make(self, random: Random) -> Case:
        """Choose how many clients search with many values."""
        return {"beside": random.randint(1, 4), "values": 20_000}

    def run(self, case: Case, place: Path) -> None:
        """Run the load test."""
        words = [f"person {number:x} of town {number * 7919 % 9973:x}" for number in range(40_000)]
        write_text(place / "data" / "t.csv", "person\n" + "\n".join(words) + "\n")
        deepjoin.index(place / "data", place / "index")
        command = [sys.executable, str(HERE / "serve_load.py"), str(place / "index")]
        command += ["--beside", str(case["beside"]), "--values", str(case["values"])]
        command += ["--join", "any", "--rate", "4", "--seconds", "8", "--warm", "2"]
        command += ["--workers", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        same(set(row["loaded"]["statuses"]), {"200"}, "statuses of small searches")
        if row["ratio"]["p99_ms"] > self._MOST:
            raise AssertionError(f"{row['ratio']}")


class Flips(Kind):
    """A flipped bit is reported or changes nothing.

    Searches of all kinds, relations, the map, join, listing, `check` and `compact`; flips in the
    index, and in what is kept beside it: pairs of relations, the map, and what people said.
    """

    weight = 0.5

    def make(self, random: Random) -> Case:
        """Choose a seed."""
        return {"seed": random.randrange(1 << 30), "flips": 10}

    def run(self, case: Case, place: Path) -> None:
        """Flip bits in copies of the index of the demo lake, and do everything with each."""
        lake, index, copy = write_demo_lake(place / "demo"), place / "index", place / "copy"
        made = deepjoin.index(lake.folder, index, encoder="default")
        made.graph(0.5)
        made.accept(made.relations()[0])
        queries = own_queries(index, case["seed"])
        flipped_copy(index, copy, None)
        before = _apart(copy, queries)
        for flip in flips(index, case["flips"], case["seed"]):
            flipped_copy(index, copy, flip)
            after = _apart(copy, queries)
            for name in OPERATIONS:
                found = verdict(before[name], after[name])
                is_missed = name == "check" and found == "same" and "segments/" in flip.name
                if is_missed or found not in ("same", "told"):
                    raise AssertionError(
                        f"{found}: {name} after {flip}: {after[name].answer}"[:700]
                    )


def _apart(copy: Path, queries: list[list[str]]) -> dict[str, Outcome]:
    """Run all operations in a process of its own, which a damaged mapped file may end."""
    # Spawned: this process has threads, which a fork would not survive.
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, copy, queries))
    process.start()
    sending.close()
    try:
        if not receiving.poll(_HANGS):
            raise AssertionError(f"no answer within {_HANGS} s")
        found: dict[str, Outcome] = receiving.recv()  # EOFError if a signal ended the process
        return found
    finally:
        process.kill()
        process.join()


def _answer(sending: Connection, copy: Path, queries: list[list[str]]) -> None:
    sending.send(outcomes(copy, queries, list(OPERATIONS)))
