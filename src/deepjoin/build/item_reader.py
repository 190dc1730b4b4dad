"""Reads what has changed into the lake, so that an interruption loses little of it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from time import monotonic
from types import FrameType

from deepjoin.build.build import SegmentBuilder, Titles, Words
from deepjoin.build.build_elsewhere import Part, built_elsewhere, cut
from deepjoin.build.changes import Changes, Found
from deepjoin.build.engine import Engine
from deepjoin.build.update import Update, tables_of
from deepjoin.store.ledger import Entry, Key
from deepjoin.store.segment import Segment

#: Seconds of reading after which what was read is put where the next run finds it.
CHECKPOINT = 60.0
#: Long builds put more together at a time, so that there is less to merge in the end.
_SHARE = 0.25
#: On Ctrl-C, so many seconds of reading are worth keeping.
WORTH_KEEPING = 5.0
#: Parts from elsewhere that are put together at most at a time.
_PARTS = 128


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
        self._stop = self._waiting = False
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
            source = found[0].source
            if source.as_corpus:
                self._update.build_corpus(source.as_corpus, found[0].key)
                continue
            with self._deferring_interrupts():
                if self._update.means.engine is not None and source.is_portable:
                    self._gather(self._update.means.engine, list(found))
                else:
                    self._read(found, changes)
        if changes.gone or changes.touched or not self._update.records:
            self._read(deque(), changes)
        if self._last - self._started > WORTH_KEEPING:  # merging may take long as well
            self._update.checkpoint(self._pending)

    def _read(self, left: deque[Found], changes: Changes) -> None:
        """Read items of one source; the first segment also notes what needs no reading."""
        keep = bool(left) and left[0].source.in_memory
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

    def _gather(self, engine: Engine, found: list[Found]) -> None:
        """Have items of one source read elsewhere, and put together what comes now and then."""
        job = self._update.part_job(self._titles_of(found))
        parts: list[Part] = []
        arriving = built_elsewhere(engine, job, cut(found), self._update.new_folder)
        with closing(arriving):
            try:
                while (part := self._next(arriving)) is not None:
                    parts.append(part)
                    self._done += part.items
                    self._tell(part.last)
                    if self._is_due() or len(parts) == _PARTS:
                        self._put_together(parts)
            except KeyboardInterrupt:
                self._keep_arrived(parts)
                raise
        self._put_together(parts, is_last=True)

    def _next(self, arriving: Generator[Part]) -> Part | None:
        """Wait for the next part; Ctrl-C need not wait with us."""
        self._waiting = True
        try:
            return next(arriving, None)
        finally:
            self._waiting = False

    def _keep_arrived(self, parts: list[Part]) -> None:
        """Keep what came before Ctrl-C was pressed, if that is worth it."""
        if parts and not self._stop and monotonic() - self._last >= WORTH_KEEPING:
            self._stop = True
            self._put_together(parts)

    def _put_together(self, parts: list[Part], is_last: bool = False) -> None:
        if parts:
            entries = self._update.join_parts([part.folder for part in parts])
            self.digests |= {entry.key: entry.digest for entry in entries}
            parts.clear()
            self._last = monotonic()
        # After the last part all of it is committed, unless the build stops here.
        if self._stop or not is_last:
            self._update.checkpoint(self._pending)
        if self._stop:
            raise KeyboardInterrupt

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

    def _titles_of(self, found: Sequence[Found]) -> Titles:
        """Collect the words the user gave tables, now or when these items were last read."""
        keys = {one.key for one in found}
        known: dict[str, Words] = {}
        for segment in reversed(self._before):
            entries = (segment.catalog.table(number) for number in tables_of(segment, keys))
            known |= {one.name: (one.title, one.context) for one in entries if one.titled}
        return known | dict(self._titles)

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
            if self._stop or self._waiting or monotonic() - self._last < WORTH_KEEPING:
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
