"""The engine on Ray Data: one task a block, steps as its operators.

Ray schedules, moves blocks between machines through its object stores, and runs again what was
lost with a process or a node. A worker uses one thread a task, since Ray gives it one processor.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from deepjoin._version import __version__
from deepjoin.build.engine import Step, Told
from deepjoin.engines.ray.cluster import address_of, join
from deepjoin.engines.ray.worker import ERROR, Begun, Job, Runner, errors, lacks, run
from deepjoin.errors import DeepJoinError, MissingExtra

#: Where a client of Ray is not on a node of the cluster.
_CLIENT = "ray://"
#: A process that takes no processor, and is started again when it dies.
_LASTING = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
#: How often work is begun, before its workers' deaths count as its fault.
_ATTEMPTS = 5
#: What Ray says of a worker that lacks a package, and of where that is.
_MODULE, _PLACE = re.compile(r"No module named '([\w.]+)'"), re.compile(r"\bip=([\w.:]+)")
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
            join(ray, self._address, self._told)
            self._joined = True
        elif self._address not in ("", "auto", here := address_of(ray)):
            raise DeepJoinError(
                f"This process is part of the Ray cluster at {here}, not of that at "
                f"'{self._address}'. Leave the address out, or call ray.shutdown() first."
            )
        return ray

    @cached_property
    def _begun(self) -> Any:
        """Counts, in a process of its own on this machine, how often work was begun."""
        ray = self._ray
        return ray.remote(**_LASTING, label_selector=_here(ray))(Begun).remote(_ATTEMPTS)

    @property
    def gpus(self) -> int:
        """How many GPUs there are for it."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def flow(self, tasks: Sequence[object], *steps: Step) -> Generator[pa.Table]:
        """Take tasks through all steps; what comes out is in the order of the tasks."""
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
                # Else work that nobody waits for any more would go on.
                batches.close()

    def _dataset(self, ray: Any, tasks: Sequence[object], steps: Sequence[Step]) -> Any:
        with ray.data.DataContext.current(_context(ray)):
            self._flows += 1
            pickled = [ray.cloudpickle.dumps(task) for task in tasks]
            blocks = [
                pa.table({"number": [number], "task": [task]})
                for number, task in enumerate(pickled)
            ]
            data = ray.data.from_arrow(blocks)
            for number, step in enumerate(steps):
                name = f"{self._flows}-{number}"
                job = Job(step, name, number == 0, __version__, self._begun)
                data = self._mapped(ray, data, job)
            return data

    def _mapped(self, ray: Any, data: Any, job: Job) -> Any:
        """Add a step to a dataset.

        What is done here takes no processor from Ray's account: the node may be one that only
        hands work out, and Ray would keep the processor free while the step has to wait.
        """
        step = job.step
        gpus = self.gpus if step.gpu_rows else 0
        if gpus:
            return data.map_batches(
                Runner,
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
    """Say by which label Ray knows this machine."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def _context(ray: Any) -> Any:
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    return context


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
        if lacking := _MODULE.search(str(error)):
            where = _PLACE.search(str(error))
            node = f"The node {where[1]}" if where else "A node of the Ray cluster"
            raise lacks(node, lacking[1]) from None
        if isinstance(error, RayTaskError):
            raise
        raise DeepJoinError(
            f"The Ray cluster gave up: {type(error).__name__}, {_first_line(error)} "
            "Give the same command again: it goes on where it stopped."
        ) from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0][:200].rstrip('.')}."
