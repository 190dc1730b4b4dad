"""The seam behind which a build runs work elsewhere, and the resources of a build.

An engine runs tasks through steps in other processes, here or on a cluster, and returns the
results in the order of the tasks: it schedules, moves data and repeats what a dead worker lost.
Without one, a build does all its work in this process. `deepjoin.engines` chooses one by name.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from deepjoin.embed.devices import device_named
from deepjoin.memory import DEFAULT
from deepjoin.progress import Notify, Progress, no_notice, no_progress
from deepjoin.settings import BuildSettings


@dataclass(frozen=True)
class Step:
    """One function of a flow, which other processes must be able to import.

    The first step of a flow gets a task, the others a table that the step before made of some
    tasks; each yields tables. Given the same input again, it must yield the same.
    """

    work: Callable[[Any], Iterator[pa.Table]]
    #: Run only on this machine, whose files the step needs.
    here: bool = False
    #: Rows that a GPU gets at a time, if there is one; 0 for work that needs none.
    gpu_rows: int = 0
    #: Describes an input, for the error if it kills its worker every time, and the advice then.
    named: Callable[[Any], str] = str
    advice: str = "Give nodes more memory."


class Engine(Protocol):
    """Runs the work of a build in other processes."""

    @property
    def gpus(self) -> int:
        """How many GPUs the engine has."""

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Run tasks through all steps; results come in the order of the tasks.

        An error of ours in a step is raised here as it was there; closing ends the work.
        """


@dataclass(frozen=True)
class BuildResources:
    """Resources of a build: memory, threads, device, engine, callbacks for progress and notices."""

    #: Bytes that the build may hold, files of the index that are mapped not counted.
    memory: int = DEFAULT
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    progress: Progress = no_progress
    #: Where encoders on torch run; None lets torch choose.
    device: str | None = None
    #: None for this process.
    engine: Engine | None = None
    #: Called with what a user should know before a long step.
    notify: Notify = no_notice

    def __post_init__(self) -> None:
        if self.device is not None:
            device_named(self.device)

    @classmethod
    def of(
        cls, settings: BuildSettings, progress: Progress | None, engine: Engine | None
    ) -> BuildResources:
        """Fill in what the settings leave open."""
        return cls(
            DEFAULT if settings.memory is None else settings.memory,
            settings.threads or os.cpu_count() or 1,
            progress or no_progress,
            settings.device,
            engine,
        )


def node_name() -> str:
    """Return the host name of the machine that a step runs on."""
    return socket.gethostname()
