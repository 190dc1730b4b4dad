"""The engine on Ray Data: one task a block, steps as its operators.

Ray schedules, moves blocks between machines through its object stores, and runs again what was
lost with a process or a node. A worker uses one thread a task, since Ray gives it one processor.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from deepjoin._version import __version__
from deepjoin.distributed import Step, Told, node_name
from deepjoin.errors import DeepJoinError, MissingExtra

#: Where a client of Ray is not on a node of the cluster.
_CLIENT = "ray://"
#: The column of a table that stands for a step that failed.
_ERROR = "error"
_ANSWER_SECONDS = 5.0
#: A process that takes no processor, and is started again when it dies.
_LASTING = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
#: How often a task is begun, before its workers' deaths count as its fault.
_ATTEMPTS = 5
_INSTALL = "pip install 'deepjoin[ray]'"


class RayEngine:
    """Work on a Ray cluster, which is joined when there is something to do.

    ``address`` is that of its head; without one, that in RAY_ADDRESS, the cluster this process
    or this machine is part of, or one that is started here and ends with the engine.
    """

    def __init__(self, address: str | None, told: Told) -> None:
        missing = [name for name in ("ray", "pandas") if find_spec(name) is None]
        if missing:
            raise MissingExtra(f"The engine 'ray' needs {' and '.join(missing)}: {_INSTALL}")
        self._address, self._told = address or os.environ.get("RAY_ADDRESS") or "", told
        if self._address.startswith(_CLIENT):
            raise DeepJoinError(
                f"'{self._address}' is the address of a Ray client, which is on no node of the "
                "cluster. Run deepjoin on a node, with --ray-address auto."
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
        """The library, as part of a cluster."""
        import ray
        import ray.data

        if not ray.is_initialized():
            self._join(ray)
            self._joined = True
        elif self._address not in ("", "auto", here := _address_of(ray)):
            raise DeepJoinError(
                f"This process is part of the Ray cluster at {here}, not of that at "
                f"'{self._address}'. Leave the address out, or call ray.shutdown() first."
            )
        return ray

    @cached_property
    def _begun(self) -> Any:
        """Counts, in a process of its own on this machine, how often tasks were begun."""
        ray = self._ray
        return ray.remote(**_LASTING, label_selector=_here(ray))(_Begun).remote(_ATTEMPTS)

    def _join(self, ray: Any) -> None:
        # Its lines would stand between ours; they are in its own files as well.
        quietly = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            _check_answers(self._address)
            ray.init(address=self._address or "auto", **quietly)
        except (OSError, ValueError, RuntimeError) as error:
            if self._address:
                raise DeepJoinError(
                    f"No Ray cluster can be joined at '{self._address}': {_first_line(error)} "
                    "Start one with: ray start --head, or leave the address out."
                ) from None
            ray.init(include_dashboard=False, **quietly)
            self._told(f"No Ray cluster is running: started one here, {_described(ray)}.")
            return
        self._told(f"Working on the Ray cluster at {_address_of(ray)}: {_described(ray)}.")

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Take tasks through all steps; what comes out is in the order of the tasks."""
        if not tasks:
            return
        data = self._dataset(self._ray, tasks, steps)
        with _subdued(), _explained():
            batches = iter(data.iter_batches(batch_size=None, batch_format="pyarrow"))
            try:
                for table in batches:
                    if _ERROR in table.column_names:
                        raise pickle.loads(_errors(table)[0])
                    yield table
            finally:
                # Else work that nobody waits for any more would go on.
                batches.close()

    def _dataset(self, ray: Any, tasks: Sequence[object], steps: Sequence[Step]) -> Any:
        with ray.data.DataContext.current(_context(ray)):
            self._flows += 1
            pickled = [ray.cloudpickle.dumps(task) for task in tasks]
            names = [f"{self._flows}-{number}" for number in range(len(tasks))]
            named = zip(names, pickled, strict=True)
            blocks = [pa.table({"name": [name], "task": [task]}) for name, task in named]
            data = ray.data.from_arrow(blocks)
            for number, step in enumerate(steps):
                arguments = (step.work, __version__, self._begun if number == 0 else None)
                data = self._mapped(ray, data, step, arguments)
            return data

    def _mapped(self, ray: Any, data: Any, step: Step, arguments: tuple[Any, ...]) -> Any:
        """Add a step to a dataset.

        What is done here takes no processor from Ray's account: the node may be one that only
        hands work out, and Ray would keep the processor free while the step has to wait.
        """
        gpus = int(ray.cluster_resources().get("GPU", 0)) if step.gpu_rows else 0
        if gpus:
            return data.map_batches(
                _Runner,
                fn_constructor_args=arguments,
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
            _run, fn_args=arguments, batch_size=None, batch_format="pyarrow", **where
        )


class _Begun:
    """Counts how often tasks were begun: Ray would begin one that kills its worker for ever."""

    def __init__(self, most: int) -> None:
        self._most, self._counts = most, Counter[str]()

    def may_begin(self, name: str) -> bool:
        """Tell whether a task may be begun once more."""
        self._counts[name] += 1
        return self._counts[name] <= self._most


def _run(table: pa.Table, work: Any, version: str, begun: Any) -> Iterator[pa.Table]:
    """Do a step on a worker; an error of ours takes the place of what comes out.

    Ray would put its own words into an error that is raised.
    """
    if _ERROR in table.column_names:
        yield pa.table({_ERROR: _errors(table)})
        return
    try:
        _check_version(version)
        yield from work(table if begun is None else _task(table, begun))
    except DeepJoinError as error:
        yield pa.table({_ERROR: [pickle.dumps(error)]})
    except OSError as error:
        said = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        told = DeepJoinError(
            f"The node {node_name()} cannot go on ({said}). Free it from that, and give the "
            "same command again: it goes on where it stopped."
        )
        yield pa.table({_ERROR: [pickle.dumps(told)]})


def _task(table: pa.Table, begun: Any) -> Any:
    """Unpack a task, unless its workers died too often."""
    import ray

    task = ray.cloudpickle.loads(table["task"][0].as_py())
    if not ray.get(begun.may_begin.remote(table["name"][0].as_py())):
        raise DeepJoinError(
            f"Every worker died that was given {task}. Ray's logs say why; most often the memory "
            "of a node is too small. Leave these out with --exclude, or give nodes more memory."
        )
    return task


def _errors(table: pa.Table) -> list[bytes]:
    """Find the errors in a table that may have been put together with others."""
    return [error for error in table[_ERROR].to_pylist() if error is not None]


def _check_version(version: str) -> None:
    if version != __version__:
        raise DeepJoinError(
            f"The node {node_name()} has deepjoin {__version__}, and the build is by {version}. "
            f"Install on every node: pip install 'deepjoin[ray]=={version}'"
        )


class _Runner:
    """Does a step in a process that is kept, and with it the GPU and what is on it."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        """Do it."""
        return _run(table, *self._arguments)


def _check_answers(address: str) -> None:
    """See that somebody is at an address: Ray would wait for a minute."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()


def _here(ray: Any) -> dict[str, str]:
    """Say by which label Ray knows this machine."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def _context(ray: Any) -> Any:
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    return context


def _described(ray: Any) -> str:
    found, nodes = ray.cluster_resources(), sum(node["Alive"] for node in ray.nodes())
    counts = {
        "node": nodes,
        "processor": int(found.get("CPU", 0)),
        "GPU": int(found.get("GPU", 0)),
    }
    return ", ".join(
        f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()
    )


def _address_of(ray: Any) -> str:
    return str(ray.get_runtime_context().gcs_address)


class _NoNews(logging.Filter):
    """Lets warnings through; errors are raised as well, and a bar of ours tells the rest."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether somebody should see a record."""
        return record.levelno == logging.WARNING and "Progress bars" not in record.getMessage()


@contextmanager
def _subdued() -> Iterator[None]:
    """Keep Ray Data's news off the terminal; its log files have them."""
    handlers = logging.getLogger("ray.data").handlers
    news = _NoNews()
    consoles = [one for one in handlers if isinstance(one, logging.StreamHandler)]
    for console in consoles:
        console.addFilter(news)
    try:
        yield
    finally:
        for console in consoles:
            console.removeFilter(news)


@contextmanager
def _explained() -> Iterator[None]:
    """Put what Ray says into one line; a mistake in a step of ours is raised as it is."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except (RayError, ModuleNotFoundError) as error:
        if "No module named 'deepjoin" in str(error):
            raise DeepJoinError(
                f"A node of the Ray cluster has no deepjoin {__version__}. "
                f"Install on every node: pip install 'deepjoin[ray]=={__version__}'"
            ) from None
        if isinstance(error, RayTaskError):
            raise
        raise DeepJoinError(
            f"The Ray cluster gave up: {type(error).__name__}, {_first_line(error)} "
            "Give the same command again: it goes on where it stopped."
        ) from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0][:200].rstrip('.')}."
