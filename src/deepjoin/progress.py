"""Progress of long work: one type of callback, what it counts, and work that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from deepjoin.errors import DeepJoinError

#: Called with how much is done, of how much, and what is being done: a name of `UNITS`, or the
#: table that is being read.
Progress = Callable[[int, int, str], None]
#: Called with one line of text for the user.
Notify = Callable[[str], None]

#: What each kind of work counts; any other name is that of a table, and tables are counted.
UNITS = {
    "bytes": "bytes",
    "columns": "columns",
    "indexing": "vectors",
    "lists": "values",
    "matching values": "values",
    "meanings": "columns",
    "measuring": "folds",
    "segments": "segments",
    "sketches": "columns",
    "values": "values",
    "vectors": "vectors",
}


class Stopped(DeepJoinError):
    """Raised inside work that nobody waits for any longer."""


class StopSignal:
    """Stops work in another thread: the work looks at it between two blocks of values.

    Work is run inside `watched`; whatever it calls finds the signal with `check_stop`. What
    interrupts a long call of another library is registered with `interrupting`.
    """

    def __init__(self) -> None:
        #: Whether the work should stop.
        self.is_set = False
        self._lock = Lock()
        self._interrupts: list[Callable[[], None]] = []

    def stop(self) -> None:
        """Tell the work to stop, from any thread."""
        with self._lock:
            self.is_set = True
            for interrupt in self._interrupts:
                interrupt()

    def check(self) -> None:
        """Raise `Stopped` if the work should stop."""
        if self.is_set:
            raise Stopped("The work was stopped: nobody waits for it any longer.")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let what runs in the block look at this signal."""
        before = _STOP.set(self)
        try:
            self.check()
            yield
        finally:
            _STOP.reset(before)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call a function if the work is stopped during the block."""
        with self._lock:
            self.check()
            self._interrupts.append(interrupt)
        try:
            yield
        except Exception:
            self.check()  # an error caused by the interruption is not reported as another
            raise
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


_STOP: ContextVar[StopSignal | None] = ContextVar("deepjoin_stop", default=None)


def stop_signal() -> StopSignal:
    """Return the signal of the work that runs here; threads started by the work must be given it.

    Work that nobody watches has one that is never set.
    """
    return _STOP.get() or StopSignal()


def check_stop() -> None:
    """Raise `Stopped` if nobody waits for this work any longer; called between two blocks."""
    signal = _STOP.get()
    if signal is not None:
        signal.check()


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def no_notice(text: str) -> None:
    """Ignore a notice."""


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; after an error or Ctrl-C, work that has not begun is dropped."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
