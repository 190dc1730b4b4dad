"""Reads what has changed into the lake, so that an interruption loses little of it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from time import monotonic
from types import FrameType

from deepjoin.lake.build import SegmentBuilder, Titles, Words
from deepjoin.lake.changes import Changes, Found
from deepjoin.lake.update import Update
from deepjoin.ledger import Entry, Key
from deepjoin.segment import Segment
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.frames import MemorySource

#: Seconds of reading after which what was read is put where the next run finds it.
CHECKPOINT = 60.0
#: Long builds put more together at a time, so that there is less to merge in the end.
_SHARE = 0.25
#: On Ctrl-C, so many seconds of reading are worth keeping.
WORTH_KEEPING = 5.0


class ItemReader:
    """Reads items into segments of an update, one a checkpoint."""

    def __init__(
        self, update: Update, pending: str, titles: Titles, before: Sequence[Segment]
    ) -> None:
        self._update, self._pending, self._titles = update, pending, titles
        #: The lake as it was, whose tables may have titles the user gave.
        self._before = before
        self._total = self._done = 0
        self._started = self._last = monotonic()
        self._stop = False
        #: The contents of the items read, to tell new ones from renamed ones.
        self.digests: dict[Key, str] = {}

    def apply(self, changes: Changes) -> None:
        """Bring the update up to the changes."""
        to_read = changes.to_read
        self._total = len(to_read)
        if to_read:
            self._tell(to_read[0].item.name)
        for _, group in groupby(to_read, lambda found: found.key.source):
            found = deque(group)
            if isinstance(found[0].source, CorpusSource):
                self._update.build_corpus(found[0].source, found[0].key)
            else:
                with self._deferring_interrupts():
                    self._read(found, changes)
        if changes.gone or changes.touched or not self._update.records:
            self._read(deque(), changes)
        if self._last - self._started > WORTH_KEEPING:  # merging may take long as well
            self._update.checkpoint(self._pending)

    def _read(self, left: deque[Found], changes: Changes) -> None:
        """Read items of one source; the first segment also notes what needs no reading."""
        keep = bool(left) and isinstance(left[0].source, MemorySource)
        while left or changes.gone or changes.touched or not self._update.records:
            with self._update.building(keep) as build:
                _note(build, changes)
                self._fill(build, left)
            self.digests |= {entry.key: entry.digest for entry in build.entries}
            self._last = monotonic()
            if left or self._stop:
                self._update.checkpoint(self._pending)
            if self._stop:
                raise KeyboardInterrupt

    def _fill(self, build: SegmentBuilder, left: deque[Found]) -> None:
        """Read until it is time for a checkpoint."""
        excluded = self._update.plan.excluded
        while left:
            found = left.popleft()
            build.read(found.key, found.item, self._title_of, excluded, self._tell)
            self._done += 1
            self._tell(found.item.name)
            if self._is_due():
                break

    def _tell(self, name: str) -> None:
        self._update.means.progress(self._done, self._total, name)

    def _title_of(self, table: str) -> Words | None:
        """Return the words the user gave a table, now or when it was last read."""
        if table in self._titles:
            return self._titles[table]
        for segment in self._before:
            number = segment.find_table(table)
            if number is not None and (entry := segment.catalog.table(number)).titled:
                return entry.title, entry.context
        return None

    def _is_due(self) -> bool:
        now = monotonic()
        return self._stop or now - self._last > max(CHECKPOINT, _SHARE * (now - self._started))

    @contextmanager
    def _deferring_interrupts(self) -> Iterator[None]:
        """Let Ctrl-C end the reading after the table under way, with what was read kept.

        An exception raised in the middle of a build could lose cells of tables that are
        done; pressed again, or when there is little to lose, Ctrl-C stops at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            if self._stop or monotonic() - self._last < WORTH_KEEPING:
                raise KeyboardInterrupt
            self._stop = True
            self._tell("stopping after this table (Ctrl-C again: at once)")

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _note(build: SegmentBuilder, changes: Changes) -> None:
    for key in changes.gone:
        build.forget(key)
    for found, before in changes.touched:
        build.touch(Entry.touched(found.key, found.item.stamp, before))
    changes.gone, changes.touched = [], []
