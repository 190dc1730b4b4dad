"""From items of a source to one segment of the index: read, reduce, merge, write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deepjoin.build.engine import Engine
from deepjoin.build.reader import Draft, TableReader, short_reason
from deepjoin.embed.devices import device_named
from deepjoin.errors import UnreadableTable
from deepjoin.model import Table
from deepjoin.normalise.canonical import CellType
from deepjoin.read.source import Item, Listing, Skipped, digest_of
from deepjoin.settings import Settings
from deepjoin.store.catalog import CatalogWriter, ColumnEntry, TableEntry
from deepjoin.store.ledger import Entry, Key, write_ledger
from deepjoin.store.report import BuildReport
from deepjoin.store.segment import FRAMES
from deepjoin.store.values.builder import Kept, ValueIndexBuilder
from deepjoin.store.values.profile import ColumnProfiles

#: Told after each item (or block of a corpus): how many are done, of how many, the last name.
Progress = Callable[[int, int, str], None]
#: The title and context a table is to have; None leaves the source's.
Words = tuple[str | None, str | None]
Titles = Mapping[str, Words]
TitleOf = Callable[[str], Words | None]


def no_progress(done: int, total: int, name: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Means:
    """What a build may use, and whom it tells how far it is."""

    #: Bytes of distinct cells to hold before they go to disk.
    memory: int
    threads: int
    progress: Progress = no_progress
    #: Where encoders that run on torch work; None for torch's own choice.
    device: str | None = None
    #: What does the work elsewhere; None for this process.
    engine: Engine | None = None

    def __post_init__(self) -> None:
        if self.device is not None:
            device_named(self.device)


#: Bytes of distinct cells held in memory before they go to disk; a build takes 1 to 2 GB beside.
MEMORY = 1 << 30


def usual_means(
    threads: int | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    device: str | None = None,
    engine: Engine | None = None,
) -> Means:
    """Use one thread a processor and a gigabyte, unless told otherwise."""
    held = MEMORY if memory is None else memory
    return Means(held, threads or os.cpu_count() or 1, progress or no_progress, device, engine)


class SegmentBuilder:
    """Reads items one after the other into a segment that `finish` writes.

    ``keep`` stores the tables themselves as well, for those that live in memory only.
    """

    def __init__(
        self, out: Path, scratch: Path, settings: Settings, means: Means, keep: bool = False
    ) -> None:
        out.mkdir(parents=True)
        self._out, self._settings = out, settings
        self._entries: list[Entry] = []
        self._items: list[int] = []
        self._titled: set[str] = set()
        self._touched: set[Key] = set()
        with ExitStack() as stack:
            builder = ValueIndexBuilder(scratch, settings, means.memory, means.threads)
            self._values = stack.enter_context(builder)
            reader = TableReader(builder, settings, scratch, out / FRAMES if keep else None)
            self._reader = stack.enter_context(reader)
            self._open = stack.pop_all()

    def __enter__(self) -> SegmentBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def entries(self) -> list[Entry]:
        """What the ledger will say of the items noted so far."""
        return self._entries

    @property
    def read_keys(self) -> list[Key]:
        """The items whose earlier tables this segment replaces."""
        return [entry.key for entry in self._entries if entry.key not in self._touched]

    def read(
        self,
        key: Key,
        item: Item,
        title_of: TitleOf = lambda name: None,
        left_out: Collection[str] = (),
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Read the tables of an item, but those left out."""
        # Before the tables are read: then a change in between shows at the next refresh.
        digest = digest_of(item)
        listing = _listing(item)
        before = len(self._reader.skipped)
        for table in listing.tables:
            if table.name not in left_out:
                self._reader.read(self._titled_as(table, title_of(table.name)), told)
        self._items += [len(self._entries)] * (len(self._reader.drafts) - len(self._items))
        skipped = (*listing.skipped, *self._reader.skipped[before:])
        self._entries.append(Entry(key, item.stamp, digest, skipped))

    def touch(self, entry: Entry) -> None:
        """Remember another stamp of an item that is as it was."""
        self._entries.append(entry)
        self._touched.add(entry.key)

    def forget(self, key: Key) -> None:
        """Remember that an item has left its source."""
        self._entries.append(Entry(key, gone=True))

    def _titled_as(self, table: Table, words: Words | None) -> Table:
        if words is None:
            return table
        title, context = words
        self._titled.add(table.name)
        return replace(
            table,
            title=table.title if title is None else title,
            context=table.context if context is None else context,
        )

    def finish(self) -> BuildReport:
        """Write the segment."""
        settings, reader = self._settings, self._reader
        usable = reader.usable()

        def choose(profiles: ColumnProfiles) -> Kept:
            kept = usable & (profiles.distinct >= settings.min_distinct)
            return kept & (profiles.mean_length <= settings.max_mean_length)

        profiles, kept = self._values.finish(self._out, reader.columns, choose)
        report = BuildReport(tables=len(reader.drafts))
        with CatalogWriter(self._out) as catalog:
            for number, (draft, sample) in enumerate(reader.finished()):
                entries = tuple(_column_entries(draft, profiles, kept, settings))
                self._add_table(catalog, number, draft, entries, sample)
                _count(report, draft, entries)
            catalog.finish(profiles.types[kept], profiles.generic[kept], profiles.present[kept])
        write_ledger(self._out, self._entries)
        return report.with_columns(profiles, kept).saved(self._out)

    def _add_table(
        self,
        catalog: CatalogWriter,
        number: int,
        draft: Draft,
        entries: tuple[ColumnEntry, ...],
        sample: str,
    ) -> None:
        entry = TableEntry(
            *(draft.name, draft.title, draft.context, draft.rows, entries),
            *(tuple(json.loads(sample)), draft.notes, draft.name in self._titled),
        )
        here = [i for i, column in enumerate(entries) if not column.left_out]
        catalog.add_tables([entry], [self._items[number]])
        catalog.add_columns(
            [f"{draft.name}#{i}" for i in here],
            [draft.names[i] for i in here],
            np.full(len(here), number),
        )


def _listing(item: Item) -> Listing:
    try:
        return item.listing()
    except UnreadableTable as error:
        reason = short_reason(item.name, str(error))
        return Listing(skipped=(Skipped(item.name, reason, error.passing),))


def _count(report: BuildReport, draft: Draft, entries: tuple[ColumnEntry, ...]) -> None:
    report.left_out.update(entry.left_out.split(" (")[0] for entry in entries if entry.left_out)
    report.notes.extend((draft.name, note) for note in draft.notes)
    report.rows += draft.rows


def _column_entries(
    draft: Draft, profiles: ColumnProfiles, kept: Kept, settings: Settings
) -> Iterator[ColumnEntry]:
    for column, name in enumerate(draft.names, draft.first):
        reason = ""
        if not kept[column]:
            reason = draft.refused.get(name) or profiles.why_left_out(column, settings)
        kind = CellType(int(profiles.types[column])).name.lower()
        yield ColumnEntry(name, kind, int(profiles.distinct[column]), reason)
