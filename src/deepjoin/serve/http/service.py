"""What all routes share: the lake, the threads that work on it, the uploads, the counters."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from deepjoin.indexing import open_lake
from deepjoin.lake import Lake
from deepjoin.serve.current import CurrentLake, Opened, warm
from deepjoin.serve.http.joining import Joining
from deepjoin.serve.http.metrics import Metrics
from deepjoin.serve.http.settings import ServerSettings
from deepjoin.serve.http.tracing import traced
from deepjoin.serve.http.uploads import Uploads
from deepjoin.serve.http.work import Work

Done = TypeVar("Done")
_LOG = logging.getLogger("deepjoin.serve.http")
#: Seconds between looks at the manifest and at uploads that are over.
_TICK, _SWEEP = 1.0, 60
#: Seconds that work which nobody waits for has to end when the service does.
_PATIENCE = 2.0


class Service:
    """One worker's part of the service."""

    def __init__(self, settings: ServerSettings, lake: Lake | None = None) -> None:
        self.settings = settings
        if lake is None:
            lake = open_lake(settings.index, vector_store=settings.vector_store)
        warm(lake)
        self.current = CurrentLake(lake, finder="GET /api/tables?text=")
        self.uploads = Uploads(settings)
        self.joining = Joining(settings, self.uploads)
        self.metrics = Metrics(settings.is_worker)
        self._quick = Work(settings.threads, settings.waiting, settings.seconds)
        self._heavy = Work(settings.heavy_threads, settings.heavy_waiting, settings.seconds)

    async def quickly(self, work: Callable[[Opened], Done]) -> Done:
        """Work on the lake, for a request that takes milliseconds."""
        return await self._quick.run(self.current.use, work)

    async def heavily(self, work: Callable[[Opened], Done]) -> Done:
        """Work on the lake and on files; such requests do not keep quick ones waiting."""
        return await self._heavy.run(self.current.use, work)

    async def watch(self) -> None:
        """Take up a newer index, remove what is over, and go when the parent has gone."""
        ticks = 0
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1
            try:
                await self._tick(ticks)
            except Exception as error:
                _LOG.error("Looking after the service failed: %s", traced(error))
            if self.settings.is_worker and os.getppid() != self.settings.parent:
                signal.raise_signal(signal.SIGTERM)

    async def _tick(self, ticks: int) -> None:
        if self.current.is_due():
            await asyncio.to_thread(self.current.renew)
        if ticks % _SWEEP == 0:
            await asyncio.to_thread(self.uploads.expire)
        self.metrics.waiting.set(self._quick.held + self._heavy.held)
        self.metrics.tables.set(self.current.lake.report.tables)
        self.metrics.renewals.set(self.current.renewals)

    def close(self) -> None:
        """End the threads; a process of its own does not wait for long work."""
        self._quick.close()
        self._heavy.close()
        if self.settings.is_worker and self._quick.held + self._heavy.held:
            _LOG.warning("Work that takes too long was given up")
            last = threading.Timer(_PATIENCE, os._exit, (0,))
            last.daemon = True
            last.start()
