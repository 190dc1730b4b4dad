"""The engine on Ray Data: joins or starts a cluster; one task a block, steps as operators.

Ray schedules, moves blocks between machines through its object stores, and repeats what was lost
with a process or a node. A worker uses one thread a task, since Ray gives it one processor.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import socket
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from deepjoin._version import __version__
from deepjoin.build.engine import Step, node_name
from deepjoin.errors import DeepJoinError, MissingExtra
from deepjoin.lazy import cached_property
from deepjoin.optional import require
from deepjoin.progress import Notify

#: The column of a table that a failed step yields.
ERROR = "error"
#: Addresses of Ray clients, which are not on a node of the cluster.
_CLIENT = "ray://"
#: An actor that takes no processor, and is started again when it dies.
_LASTING = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
#: How often work is started before its workers' deaths count as its fault.
_MOST_ATTEMPTS = 5
#: What Ray says when a worker lacks a package, and which node that is.
_MODULE, _PLACE = re.compile(r"No module named '([\w.]+)'"), re.compile(r"\bip=([\w.:]+)")
#: Seconds to wait for an answer from the head of a cluster; Ray itself would wait a minute.
_ANSWER_SECONDS = 5.0
#: How Ray begins to say that this machine is part of no cluster; everything else is a failure.
_NONE = "Could not find any running Ray instance"
#: Ray's lines would mix with ours; its log files have them as well.
_QUIETLY = {"log_to_driver": False, "logging_level": logging.ERROR}


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


class RayEngine:
    """Runs work on a Ray cluster, which it joins when there is something to do.

    ``address`` is that of its head; default: RAY_ADDRESS, the cluster that this process or this
    machine is part of, or one that is started here and ends with the engine.
    """

    def __init__(self, address: str | None, notify: Notify) -> None:
        for package in ("ray", "pandas"):
            require(package, "ray", "The engine 'ray'")
        self._address, self._notify = address or os.environ.get("RAY_ADDRESS") or "", notify
        if self._address.startswith(_CLIENT):
            raise DeepJoinError(
                f"'{self._address}' is the address of a Ray client, which is on no node of the "
                "cluster. Run deepjoin on a node, with `ray_address='auto'`."
            )
        self._joined, self._flows = False, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._joined:
            self._ray.shutdown()

    @cached_property
    def _ray(self) -> Any:
        """Ray, after joining a cluster."""
        import ray
        import ray.data

        if not ray.is_initialized():
            join_cluster(ray, self._address, self._notify)
            self._joined = True
        elif self._address not in ("", "auto", here := address_of(ray)):
            raise DeepJoinError(
                f"This process is part of the Ray cluster at {here}, not of that at "
                f"'{self._address}'. Leave `ray_address` out, or call ray.shutdown() first."
            )
        return ray

    @cached_property
    def _attempts(self) -> Any:
        """An actor on this machine that counts how often each piece of work was started."""
        ray = self._ray
        return ray.remote(**_LASTING, label_selector=_here(ray))(Attempts).remote(_MOST_ATTEMPTS)

    @property
    def gpus(self) -> int:
        """How many GPUs the cluster has."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Run tasks through all steps; results come in the order of the tasks."""
        if not tasks:
            return
        ray = self._ray
        with _subdued(), _explained():
            data = self._dataset(ray, tasks, steps)
            batches = iter(data.iter_batches(batch_size=None, batch_format="pyarrow"))
            try:
                for table in batches:
                    if ERROR in table.column_names:
                        raise pickle.loads(errors(table)[0])
                    yield table
            finally:
                # Otherwise work that nobody waits for would continue.
                batches.close()

    def _dataset(self, ray: Any, tasks: Sequence[object], steps: Sequence[Step]) -> Any:
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_options.preserve_order = True
        with ray.data.DataContext.current(context):
            self._flows += 1
            pickled = [ray.cloudpickle.dumps(task) for task in tasks]
            blocks = [
                pa.table({"number": [number], "task": [task]})
                for number, task in enumerate(pickled)
            ]
            data = ray.data.from_arrow(blocks)
            for number, step in enumerate(steps):
                name = f"{self._flows}-{number}"
                job = RayStep(step, name, number == 0, __version__, self._attempts)
                data = self._mapped(ray, data, job)
            return data

    def _mapped(self, ray: Any, data: Any, job: RayStep) -> Any:
        """Add a step to a dataset.

        A step that runs here takes no processor from Ray's account: the node may be one that
        only schedules, and Ray would keep the processor free while the step waits.
        """
        step = job.step
        gpus = self.gpus if step.gpu_rows else 0
        if gpus:
            return data.map_batches(
                StepActor,
                fn_constructor_args=(job,),
                batch_size=step.gpu_rows,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=gpus),
                num_gpus=1,
            )
        where: dict[str, Any] = {"num_cpus": 1}
        if step.here:
            at_a_time = ray.data.TaskPoolStrategy(max(1, (os.cpu_count() or 1) // 2))
            where = {"num_cpus": 0, "label_selector": _here(ray), "compute": at_a_time}
        return data.map_batches(
            run, fn_args=(job,), batch_size=None, batch_format="pyarrow", **where
        )


def _here(ray: Any) -> dict[str, str]:
    """Select this machine by Ray's label."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def _is_warning(record: logging.LogRecord) -> bool:
    """Select warnings; errors are raised anyway, and our own bar shows progress."""
    return record.levelno == logging.WARNING and "Progress bars" not in record.getMessage()


@contextmanager
def _subdued() -> Iterator[None]:
    """Keep Ray Data's messages off the terminal; its log files have them."""
    handlers = logging.getLogger("ray.data").handlers
    consoles = [one for one in handlers if isinstance(one, logging.StreamHandler)]
    for console in consoles:
        console.addFilter(_is_warning)
    try:
        yield
    finally:
        for console in consoles:
            console.removeFilter(_is_warning)


@contextmanager
def _explained() -> Iterator[None]:
    """Put Ray's errors into one line; an unexpected error in a step is raised as it is."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except (RayError, ModuleNotFoundError) as error:
        if lacking := _MODULE.search(str(error)):
            where = _PLACE.search(str(error))
            node = f"The node {where[1]}" if where else "A node of the Ray cluster"
            raise lacks(node, lacking[1]) from None
        if isinstance(error, RayTaskError):
            raise
        raise DeepJoinError(
            f"The Ray cluster gave up: {type(error).__name__}, {_one_line(error)}. "
            "Run the same command again: it resumes where it stopped."
        ) from None


def join_cluster(ray: Any, address: str, notify: Notify) -> None:
    """Join the cluster at an address, or without one that of this machine, or start one."""
    from ray.exceptions import RayError

    found = address
    try:
        found = address if address not in ("", "auto") else _local_address()
        host, colon, port = found.rpartition(":")
        if colon and port.isdigit():
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        ray.init(address=address or "auto", **_QUIETLY)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        if address or _NONE not in str(error):
            said = _one_line(error)
            if error.__cause__ is not None:  # e.g. a mismatch of versions
                said += f" ({_one_line(error.__cause__)})"
            remedy = "Start one with: ray start --head, or leave `ray_address` out."
            if not address:
                remedy = "Stop what is left of it with: ray stop, or name another `ray_address`."
            raise DeepJoinError(
                f"No Ray cluster can be joined at '{found}': {said}. {remedy}"
            ) from None
        ray.init(address="local", include_dashboard=False, **_QUIETLY)
        notify(f"No Ray cluster is running: started one here, {described(ray)}.")
        return
    notify(f"Working on the Ray cluster at {address_of(ray)}: {described(ray)}.")


def _local_address() -> str:
    """Ask Ray which cluster this machine is part of."""
    try:
        from ray._private.services import canonicalize_bootstrap_address
    except ImportError:  # a private module, which may move
        return "auto"
    return str(canonicalize_bootstrap_address("auto"))


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).partition("Traceback")[0].split())
    return text[:200].rstrip(".: ") or type(error).__name__


def described(ray: Any) -> str:
    """Describe a cluster: nodes, processors, GPUs."""
    found, nodes = ray.cluster_resources(), sum(node["Alive"] for node in ray.nodes())
    counts = {"node": nodes, "processor": int(found.get("CPU", 0)), "GPU": int(found.get("GPU", 0))}
    return ", ".join(
        f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()
    )


def address_of(ray: Any) -> str:
    """Return the address of the cluster that this process is part of."""
    return str(ray.get_runtime_context().gcs_address)
