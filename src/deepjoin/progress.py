"""Progress of long work: one type of callback, what it counts, and threads that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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
    "segments": "segments",
    "sketches": "columns",
    "values": "values",
    "vectors": "vectors",
}


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def no_notice(text: str) -> None:
    """Ignore a notice."""


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Lend a pool of threads; after an error or Ctrl-C, work that has not begun is dropped."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
