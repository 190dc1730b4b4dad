"""Steps that workers of the tests' Ray cluster import from here, and where to find the workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepjoin.build.workers import TextModel
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.errors import MissingExtra, UnreadableTable


def squares(number: int) -> Iterator[pa.Table]:
    """Yield two rows a task; the first takes longest."""
    time.sleep(0.5 if number == 0 else 0)
    for power in (1, 2):
        yield pa.table({"number": [number], "value": [number**power], "process": [os.getpid()]})


def doubled(table: pa.Table) -> Iterator[pa.Table]:
    """Double what came."""
    yield pa.table({"value": [2 * one.as_py() for one in table["value"]]})


def visible(table: pa.Table) -> Iterator[pa.Table]:
    """Say which GPU may be used, and by which process."""
    given = [os.environ.get("CUDA_VISIBLE_DEVICES")] * len(table)
    process = [os.getpid()] * len(table)
    yield pa.table({"value": table["value"], "device": given, "process": process})


def refuses_three(number: int) -> Iterator[pa.Table]:
    """Fail with an error of ours, one with more than a text."""
    if number == 3:
        raise UnreadableTable("Three is not a table.", passing=True)
    yield pa.table({"value": [number]})


def finds_no_room(number: int) -> Iterator[pa.Table]:
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device", "/scratch")
    yield


def has_a_mistake(number: int) -> Iterator[pa.Table]:
    """Fail as nobody meant it to."""
    yield pa.table({"value": [number.nothing]})  # type: ignore[attr-defined]


def dies_once(task: tuple[int, str]) -> Iterator[pa.Table]:
    """Send a table, then kill its own process, the first time."""
    number, marker = task
    yield pa.table({"value": [number]})
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        yield pa.table({"value": [number]})
        return
    os.kill(os.getpid(), signal.SIGKILL)


def dies(task: str) -> Iterator[pa.Table]:
    """Kill its own process, every time."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def dies_of_two(table: pa.Table) -> Iterator[pa.Table]:
    """Kill its own process when there is a two, every time."""
    if 2 in table["value"].to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    yield table


def rows_named(table: pa.Table) -> str:
    """Say what a step was given."""
    return f"rows of {table['value'].to_pylist()}"


def needs_a_package(number: int) -> Iterator[pa.Table]:
    """Import what is nowhere."""
    import not_to_be_had  # type: ignore[import-not-found]

    yield not_to_be_had.table


def needs_an_extra(number: int) -> Iterator[pa.Table]:
    """Fail as the reader of a workbook does where its library is missing."""
    raise MissingExtra("Reading needs fastexcel.")
    yield


class PlayedModel(TextModel):
    """Loads onto the processor what is meant for a GPU that only Ray believes in; leaves word."""

    def load(self, device: str) -> TextEncoder:
        """Load it."""
        gpu = f" {os.environ.get('CUDA_VISIBLE_DEVICES')}" if device == "cuda" else ""
        (Path(self.spec).parent / f"on {device}{gpu}").touch()
        return super().load("cpu")


def workers(cluster: Any) -> list[int]:
    """Find the worker processes of both nodes."""
    nodes = [process.process.pid for node in cluster.list_all_nodes()
             for process in node.all_processes["raylet"]]  # fmt: skip
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            title = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        # Agents are children of a node as well, which dies with them.
        if parent in nodes and title.startswith((b"ray::Map", b"ray::_", b"ray::IDLE")):
            found.append(int(status.parent.name))
    return found
