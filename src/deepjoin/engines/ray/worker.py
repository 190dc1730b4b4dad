"""What a worker of a Ray cluster does: one step on one block, and what becomes of its errors."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from deepjoin._version import __version__
from deepjoin.build.engine import Step, node_name
from deepjoin.errors import DeepJoinError, MissingExtra

#: The column of a table that stands for a step that failed.
ERROR = "error"


class Begun:
    """Counts how often work was begun: Ray would begin for ever what kills its worker."""

    def __init__(self, most: int) -> None:
        self._most, self._counts = most, Counter[str]()

    def may_begin(self, name: str) -> bool:
        """Tell whether something may be begun once more."""
        self._counts[name] += 1
        return self._counts[name] <= self._most

    def ended(self, name: str) -> None:
        """Forget what nobody died of; what is lost later may be done again as often."""
        self._counts.pop(name, None)


@dataclass(frozen=True)
class Job:
    """A step of a flow as workers are given it."""

    step: Step
    #: That of the flow and the step.
    name: str
    is_first: bool
    version: str
    #: The process that is a `Begun`.
    begun: Any

    def on(self, table: pa.Table) -> Iterator[pa.Table]:
        """Do the step, unless its workers died of this very table too often."""
        import ray

        given = ray.cloudpickle.loads(table["task"][0].as_py()) if self.is_first else table
        name = f"{self.name} {_digest(table)}"
        if not ray.get(self.begun.may_begin.remote(name)):
            raise DeepJoinError(
                f"Every worker died that was given {self.step.named(given)}. Ray's logs say why; "
                f"most often the memory of a node is too small. {self.step.advice}"
            )
        yield from self.step.work(given)
        self.begun.ended.remote(name)


def run(table: pa.Table, job: Job) -> Iterator[pa.Table]:
    """Do a step on a worker; an error of ours takes the place of what comes out.

    Ray would put its own words into an error that is raised.
    """
    if ERROR in table.column_names:
        yield pa.table({ERROR: errors(table)})
        return
    try:
        _check_version(job.version)
        yield from job.on(table)
    except MissingExtra as error:
        said = str(error)
        on_node = said if node_name() in said else f"On the node {node_name()}: {said}"
        yield _failed(MissingExtra(on_node))
    except DeepJoinError as error:
        yield _failed(error)
    except ModuleNotFoundError as error:
        yield _failed(lacks(f"The node {node_name()}", error.name or str(error)))
    except OSError as error:
        said = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        told = DeepJoinError(
            f"The node {node_name()} cannot go on ({said}). Make room or repair it, and give the "
            "same command again: it goes on where it stopped."
        )
        yield _failed(told)


class Runner:
    """Does a step in a process that is kept, and with it the GPU and what is on it."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """Do it."""
        return run(table, self._job)


def errors(table: pa.Table) -> list[bytes]:
    """Find the errors in a table that may have been put together with others."""
    return [error for error in table[ERROR].to_pylist() if error is not None]


def lacks(node: str, module: str) -> DeepJoinError:
    """Say what to install on a node that lacks a package."""
    package = module.partition(".")[0]
    if package == "deepjoin":
        text, extras = f"has no deepjoin {__version__}", "ray"
    else:  # of the packages that are used, mining has the most
        text, extras = f"lacks the package '{package}'", "ray,train"
    return DeepJoinError(
        f"{node} {text}. Install on every node: pip install 'deepjoin[{extras}]=={__version__}'"
    )


def _failed(error: DeepJoinError) -> pa.Table:
    return pa.table({ERROR: [pickle.dumps(error)]})


def _check_version(version: str) -> None:
    if version != __version__:
        raise DeepJoinError(
            f"The node {node_name()} has deepjoin {__version__}, and the build is by {version}. "
            f"Install on every node: pip install 'deepjoin[ray]=={version}'"
        )


def _digest(table: pa.Table) -> str:
    """Sum up a table: done again, it is the same."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return str(xxh3_128_hexdigest(written.getvalue()))
