"""Work in threads: so many at once, so many waiting, each for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from deepjoin.serve.http.problems import Busy, TooSlow

Given = ParamSpec("Given")
Done = TypeVar("Done")


class Work:
    """A pool of threads with a bounded queue.

    A thread cannot be stopped: work whose time is over holds its place until it ends, so that
    slow requests use up the pool, never the machine.
    """

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="deepjoin-work")
        self._most, self._seconds = threads + waiting, seconds
        #: Requests that run or wait.
        self.held = 0

    async def run(
        self, work: Callable[Given, Done], *given: Given.args, **named: Given.kwargs
    ) -> Done:
        """Call a function in a thread; refuses when too many wait, or it takes too long."""
        if self.held >= self._most:
            raise Busy(f"The service is busy: {self.held} requests wait. Try again in a moment.")
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work, *given, **named)
        self.held += 1
        future.add_done_callback(lambda _: _in_loop(loop, self._release))
        return await self._finished(future)

    async def _finished(self, future: Future[Done]) -> Done:
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():  # it was the work's own
                return future.result()
            raise TooSlow(
                f"It took longer than {self._seconds:g} seconds, the limit of this service. Ask "
                "for less, or start it with a higher --timeout."
            ) from None

    def _release(self) -> None:
        self.held -= 1

    def close(self) -> None:
        """Start nothing more; what runs comes to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> None:
    """Call a function in the thread of a loop, unless the loop has ended before."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
