"""Read what has changed into segments, with checkpoints, so that an interruption loses little."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import groupby
from time import monotonic

from deepjoin.build.engine import Engine
from deepjoin.build.listing import Changes, ListedItem
from deepjoin.build.segment_builder import Titles
from deepjoin.build.update import IndexUpdate, tables_of
from deepjoin.build.workers import BuiltPart, built_parts, grouped
from deepjoin.errors import DeepJoinError
from deepjoin.settings import TableWords
from deepjoin.store.ledger import Entry, Key
from deepjoin.store.segment import Segment

#: Seconds of reading after which a checkpoint is written.
CHECKPOINT = 60.0
#: Long builds write checkpoints after this share of their time, so that less is merged in the end.
_SHARE = 0.25
#: Seconds of reading that are worth a checkpoint before they are merged, or on Ctrl-C.
WORTH_KEEPING = 5.0
#: The most parts from an engine that are merged into one segment.
_PARTS = 128


def read_changes(
    update: IndexUpdate, changes: Changes, key: str, titles: Titles, earlier: Sequence[Segment]
) -> Mapping[Key, str]:
    """Read new and changed items into an update, and note what is gone; return their digests.

    ``key`` names the checkpoints. ``earlier`` are the segments as they were: tables that are
    read again keep the titles that users gave them.
    """
    reader = _Reader(update, changes, key, titles, earlier)
    reader.run()
    return reader.digests


class _Reader:
    """Reads items into segments of an update, one segment a checkpoint."""

    def __init__(
        self,
        update: IndexUpdate,
        changes: Changes,
        key: str,
        titles: Titles,
        earlier: Sequence[Segment],
    ) -> None:
        self._update, self._key, self._titles, self._earlier = update, key, titles, earlier
        self._to_read = changes.to_read
        #: What needs no reading; the first segment notes it.
        self._gone, self._touched = list(changes.gone), list(changes.touched)
        self._done = 0
        self._started = self._last = monotonic()
        self.digests: dict[Key, str] = {}

    def run(self) -> None:
        if self._to_read:
            self._report(self._to_read[0].item.name)
        engine = self._update.resources.engine
        for _, group in groupby(self._to_read, lambda one: one.key.source):
            listed = deque(group)
            source = listed[0].source
            if source.as_corpus:
                self._update.build_corpus(source.as_corpus, listed[0].key)
                continue
            if engine is not None and source.is_portable:
                self._gather(engine, list(listed))
            else:
                self._read(listed)
        self._read(deque())
        if self._last - self._started > WORTH_KEEPING:  # merging may take long as well
            self._update.checkpoint(self._key)

    def _read(self, left: deque[ListedItem]) -> None:
        """Read items of one source into segments, and note what needs no reading.

        An index without any table gets an empty segment.
        """
        keep = bool(left) and left[0].source.in_memory
        while left or self._gone or self._touched or not self._update.records:
            with self._update.building(keep) as build:
                for key in self._gone:
                    build.forget(key)
                for one, before in self._touched:
                    build.touch(Entry.touched(one.key, one.item.stamp, before))
                self._gone, self._touched = [], []
                excluded = self._update.plan.excluded
                while left:
                    one = left.popleft()
                    build.read(one.key, one.item, self._words_of, excluded, self._report)
                    self._done += 1
                    self._report(one.item.name)
                    if self._is_due():
                        break
            self._noted(build.entries, is_last=not left)

    def _gather(self, engine: Engine, listed: list[ListedItem]) -> None:
        """Let an engine read items of one source, and merge the parts that arrive."""
        keys = {one.key for one in listed}
        titles: dict[str, TableWords] = {}
        for segment in reversed(self._earlier):
            entries = (segment.catalog.table(number) for number in tables_of(segment, keys))
            titles |= {one.name: (one.title, one.context) for one in entries if one.titled}
        job = self._update.part_job(titles | dict(self._titles))
        parts: list[BuiltPart] = []
        arriving = built_parts(engine, job, grouped(listed), self._update.new_folder)
        with closing(arriving):
            try:
                for part in arriving:
                    parts.append(part)
                    self._done += part.items
                    self._report(part.last)
                    if self._is_due() or len(parts) == _PARTS:
                        self._join(parts)
                self._join(parts, is_last=True)
            except KeyboardInterrupt:
                if parts and monotonic() - self._last >= WORTH_KEEPING:
                    # An interrupted merge can be repeated, unless it had removed its parts.
                    with suppress(DeepJoinError, OSError):
                        self._join(parts)
                raise

    def _join(self, parts: list[BuiltPart], is_last: bool = False) -> None:
        entries = self._update.join_parts([part.folder for part in parts]) if parts else []
        parts.clear()
        self._noted(entries, is_last)

    def _noted(self, entries: Sequence[Entry], is_last: bool) -> None:
        """Write a checkpoint after a segment, unless everything is committed next."""
        if entries:
            self.digests |= {entry.key: entry.digest for entry in entries}
            self._last = monotonic()
        if not is_last:
            self._update.checkpoint(self._key)

    def _report(self, name: str) -> None:
        self._update.resources.progress(self._done, len(self._to_read), name)

    def _words_of(self, table: str) -> TableWords | None:
        """Return the title and context that the user gave a table, now or earlier."""
        if table in self._titles:
            return self._titles[table]
        for segment in self._earlier:
            number = segment.find_table(table)
            if number is not None and (entry := segment.catalog.table(number)).titled:
                return entry.title, entry.context
        return None

    def _is_due(self) -> bool:
        now = monotonic()
        return now - self._last > max(CHECKPOINT, _SHARE * (now - self._started))
