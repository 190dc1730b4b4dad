"""What all routes share: the lake, the threads that work on it, the uploads, the counters."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from deepjoin.lake import Lake, open_lake
from deepjoin.progress import StopSignal
from deepjoin.serve.current import CurrentLake, Opened, warm
from deepjoin.serve.http.joins import Joins
from deepjoin.serve.http.problems import Busy, TooSlow, traced
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.uploads import Uploads
from deepjoin.store.origin import root_of

Done = TypeVar("Done")
_LOG = logging.getLogger("deepjoin.serve.http")
#: Seconds between checks of the manifest; ticks between checks for expired uploads.
_TICK, _SWEEP = 1.0, 60
#: Seconds that abandoned work may continue when the service stops.
_PATIENCE = 0.2
#: How far the threads of long work step back where quick requests need the processor ("nice").
_STEP_BACK = 5
#: Seconds after which a Python thread lets another run; a quick request waits this often.
_SWITCH = 0.001

#: Where prometheus_client shares counters between processes; it reads this when it is imported.
_COUNTERS = "PROMETHEUS_MULTIPROC_DIR"
METRICS_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Service:
    """Everything that one worker process holds."""

    def __init__(self, settings: ServerSettings, lake: Lake | None = None) -> None:
        self.settings = settings
        if lake is None:
            lake = open_lake(settings.index, vector_store=settings.vector_store)
        # Before the first request, so that no user waits for models to load.
        warm(lake)
        self.current = CurrentLake(lake, finder="GET /api/tables?text=")
        self.uploads = Uploads(settings)
        self.joins = Joins(settings, self.uploads)
        self.metrics = Metrics(settings.is_worker)
        self._quick = ThreadPool(settings.threads, settings.waiting, settings.seconds)
        self._heavy = ThreadPool(
            settings.heavy_threads, settings.heavy_waiting, settings.seconds, in_background=True
        )
        self._large = ThreadPool(
            settings.large_threads, settings.large_waiting, settings.seconds, in_background=True
        )
        if settings.is_worker:  # the process is ours
            sys.setswitchinterval(_SWITCH)

    async def quickly(self, work: Callable[[Opened], Done]) -> Done:
        """Work on the lake, for a request that takes milliseconds."""
        return await self._quick.run(self.current.use, work)

    async def heavily(self, work: Callable[[Opened], Done]) -> Done:
        """Work on the lake and on files, in threads that quick requests do not wait for."""
        return await self._heavy.run(self.current.use, work)

    async def in_turn(self, work: Callable[[Opened], Done]) -> Done:
        """Search with many values: these wait for each other, and no other request for them."""
        return await self._large.run(self.current.use, work)

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield the paths that messages may contain, and what clients know them as."""
        index = self.current.lake.index
        location = index.location
        if not isinstance(location, Path) or location.is_absolute():
            yield str(location), "the lake"
        yield str(index.path.resolve()), "the lake"
        for source in index.sources:
            root = root_of(source, index.path)
            if root is not None and root != Path(root.root):
                yield str(root), "the lake"
        if self.settings.out is not None:
            yield str(self.settings.out.resolve()), "the output folder"

    @property
    def _held(self) -> int:
        return self._quick.held + self._heavy.held + self._large.held

    async def watch(self) -> None:
        """Every second: adopt a newer index, delete expired uploads, stop if the parent died."""
        ticks = 0
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1
            try:
                if self.current.is_due():
                    await asyncio.to_thread(self.current.renew)
                if ticks % _SWEEP == 0:
                    await asyncio.to_thread(self.uploads.expire)
                self.metrics.waiting.set(self._held)
                self.metrics.tables.set(self.current.lake.report.tables)
                self.metrics.renewals.set(self.current.renewals)
            except Exception as error:
                _LOG.error("Housekeeping failed: %s", traced(error))
            if self.settings.is_worker and os.getppid() != self.settings.parent:
                signal.raise_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop the threads; a worker process does not wait for long work."""
        for pool in (self._quick, self._heavy, self._large):
            pool.close()
        if self.settings.is_worker and self._held:
            _LOG.warning("Requests that were still running were abandoned")
            last = threading.Timer(_PATIENCE, os._exit, (0,))
            last.daemon = True
            last.start()


class ThreadPool:
    """Threads with a bounded queue.

    Work that exceeds its time, or whose client has left, is asked to stop, and does so after the
    block of values or rows it is at; until then it holds its place, so slow requests exhaust the
    pool, never the machine. Threads ``in_background`` leave the processor to others.
    """

    def __init__(
        self, threads: int, waiting: int, seconds: float, *, in_background: bool = False
    ) -> None:
        self._pool = ThreadPoolExecutor(
            threads, "deepjoin-work", initializer=_step_back if in_background else None
        )
        self._most, self._seconds = threads + waiting, seconds
        #: Requests that run or wait.
        self.held = 0
        self._running: set[StopSignal] = set()

    async def run(self, work: Callable[..., Done], *given: object) -> Done:
        """Call a function in a thread; refuse if too many wait, or if it takes too long."""
        if self.held >= self._most:
            raise Busy(f"The service is busy: {self.held} requests wait. Try again in a moment.")
        loop, stop = asyncio.get_running_loop(), StopSignal()

        def watched() -> Done:
            with stop.watched():
                return work(*given)

        def release() -> None:
            self.held -= 1
            self._running.discard(stop)

        def done(_: object) -> None:
            if not loop.is_closed():  # only the loop's thread may change the count
                loop.call_soon_threadsafe(release)

        future = self._pool.submit(watched)
        self.held += 1
        self._running.add(stop)
        future.add_done_callback(done)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():  # the work itself raised it
                return future.result()
            stop.stop()
            raise TooSlow(
                f"The request took longer than {self._seconds:g} seconds, the limit of this "
                "service. Ask for less, or ask whoever runs the service to raise the limit."
            ) from None
        except asyncio.CancelledError:  # the client has left, or the service stops
            stop.stop()
            raise

    def close(self) -> None:
        """Start nothing more, and stop what runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for stop in list(self._running):
            stop.stop()


def _step_back() -> None:
    """Let other threads go first: on Linux, threads have priorities, and inherit them."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _STEP_BACK)


class Metrics:
    """Counters over all worker processes: requests, their time, the lake; no value of a query."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            *("deepjoin_requests", "Requests answered", ("route", "method", "status")),
            registry=registry,
        )
        self._seconds = Histogram(
            *("deepjoin_request_seconds", "Seconds until a request was answered", ("route",)),
            registry=registry,
            buckets=_SECONDS,
        )
        self.waiting = Gauge(
            *("deepjoin_requests_held", "Requests that run or wait in the pools"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.tables = Gauge(
            "deepjoin_tables", "Tables of the lake", registry=registry, multiprocess_mode="livemax"
        )
        self.renewals = Gauge(
            *("deepjoin_renewals", "How often a newer index was taken up, by the latest worker"),
            registry=registry,
            multiprocess_mode="livemax",
        )

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Write all counters in the format of Prometheus."""
        if not self._several:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def share_counters(folder: Path) -> None:
    """Let processes started from now on count together, in a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ[_COUNTERS] = str(folder)
