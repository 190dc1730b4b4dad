"""Work that other processes do, here or on a cluster; what is done is for others to know.

An engine runs tasks through steps and gives back what comes out, in the order of the tasks: it
schedules, carries data and does again what a dead worker lost. Without one, a build does all
its work itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deepjoin.errors import DeepJoinError, unknown_name

#: The engines there are; the first does the work in this process.
ENGINES = ("local", "ray")
#: Told in words what is worth knowing.
Told = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One function of a flow, which other processes must be able to import.

    The first step of a flow is given a task, the others a table of what the step before made of
    some tasks; each yields tables. Done again with the same input, it must yield the same.
    """

    work: Callable[[Any], Iterator[pa.Table]]
    #: Only on this machine, whose files it needs; else anywhere.
    here: bool = False
    #: Rows that a GPU is given at a time, if there is any; 0 for work that needs none.
    gpu_rows: int = 0
    #: What it is given, in words, and what to do if that kills the worker every time.
    named: Callable[[Any], str] = str
    advice: str = "Give nodes more memory."


class Engine(Protocol):
    """Runs the work of a build elsewhere."""

    @property
    def gpus(self) -> int:
        """How many GPUs there are for it."""

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Take tasks through all steps; what comes out is in the order of the tasks.

        An error of ours in a step is raised here as it was there; closing ends the work.
        """


def node_name() -> str:
    """Name the machine a step runs on, as its people know it."""
    return socket.gethostname()


def tell_nobody(text: str) -> None:
    """Keep it to oneself."""


@contextmanager
def engine_named(
    name: str | None, address: str | None = None, told: Told = tell_nobody
) -> Iterator[Engine | None]:
    """Lend an engine; None where the work is done in this process.

    >>> with engine_named("local") as engine:
    ...     print(engine)
    None
    """
    if name not in (None, *ENGINES):
        raise unknown_name("engine", str(name), "deepjoin", ENGINES)
    if name != "ray":
        if address:
            raise DeepJoinError(
                f"The address of a Ray cluster is '{address}', and the engine is "
                f"'{name or ENGINES[0]}'. Give --engine ray as well, or leave the address out."
            )
        yield None
        return
    from deepjoin.engines.ray.engine import RayEngine

    with RayEngine(address, told) as engine:
        yield engine
