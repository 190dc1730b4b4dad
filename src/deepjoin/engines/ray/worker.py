"""Run one step on one block on a worker of a Ray cluster, and pass on its errors."""

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

#: The column of a table that a failed step yields.
ERROR = "error"


class Attempts:
    """Counts how often work was started: Ray would start forever what kills its worker."""

    def __init__(self, most: int) -> None:
        self._most, self._counts = most, Counter[str]()

    def may_start(self, name: str) -> bool:
        """Whether work may be started once more."""
        self._counts[name] += 1
        return self._counts[name] <= self._most

    def ended(self, name: str) -> None:
        """Forget work that succeeded; if its result is lost, it may be repeated as often."""
        self._counts.pop(name, None)


@dataclass(frozen=True)
class RayStep:
    """A step of a flow as workers get it."""

    step: Step
    #: Identifies the flow and the step.
    name: str
    is_first: bool
    version: str
    #: The actor that is an `Attempts`.
    attempts: Any

    def on(self, table: pa.Table) -> Iterator[pa.Table]:
        """Run the step, unless its workers died of this very table too often."""
        import ray

        given = ray.cloudpickle.loads(table["task"][0].as_py()) if self.is_first else table
        name = f"{self.name} {_digest(table)}"
        if not ray.get(self.attempts.may_start.remote(name)):
            raise DeepJoinError(
                f"Every worker that got {self.step.named(given)} died. Ray's logs say why; "
                f"most often the memory of a node is too small. {self.step.advice}"
            )
        yield from self.step.work(given)
        # Not waited for: a lost call only means that one attempt too many is counted.
        self.attempts.ended.remote(name)


def run(table: pa.Table, job: RayStep) -> Iterator[pa.Table]:
    """Run a step on a worker; an error of ours is yielded as a table.

    Ray would add its own words to an error that is raised.
    """
    # An error of an earlier step passes through the later ones to the driver.
    if ERROR in table.column_names:
        yield pa.table({ERROR: errors(table)})
        return
    try:
        if job.version != __version__:
            raise DeepJoinError(
                f"The node {node_name()} has deepjoin {__version__}, and the build is by "
                f"{job.version}. Install on every node: pip install 'deepjoin[ray]=={job.version}'"
            )
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
        failure = DeepJoinError(
            f"The node {node_name()} cannot go on ({said}). Make room or repair it, and run the "
            "same command again: it resumes where it stopped."
        )
        yield _failed(failure)


class StepActor:
    """Runs a step in a process that stays, and with it the GPU and what is on it."""

    def __init__(self, job: RayStep) -> None:
        self._job = job

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """Run the step."""
        return run(table, self._job)


def errors(table: pa.Table) -> list[bytes]:
    """Find the errors in a table that may have been concatenated with others."""
    return [error for error in table[ERROR].to_pylist() if error is not None]


def lacks(node: str, module: str) -> DeepJoinError:
    """Make the error that names what to install on a node that lacks a package."""
    package = module.partition(".")[0]
    if package == "deepjoin":
        text, extras = f"has no deepjoin {__version__}", "ray"
    else:  # mining uses the most packages
        text, extras = f"lacks the package '{package}'", "ray,train"
    return DeepJoinError(
        f"{node} {text}. Install on every node: pip install 'deepjoin[{extras}]=={__version__}'"
    )


def _failed(error: DeepJoinError) -> pa.Table:
    return pa.table({ERROR: [pickle.dumps(error)]})


def _digest(table: pa.Table) -> str:
    """Hash a table; the same work gives the same hash."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return str(xxh3_128_hexdigest(written.getvalue()))
