"""Refresh an index: list its sources, re-read what changed, commit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from deepjoin.build.encoding import Encoding
from deepjoin.build.engine import BuildResources
from deepjoin.build.listing import Changes, ListedItem, compare, list_items
from deepjoin.build.pipeline import IndexCommand, Location, run
from deepjoin.build.segment_builder import Titles
from deepjoin.build.update import IndexPlan, IndexUpdate
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.read import Source, reopen
from deepjoin.read.frames import MemorySource
from deepjoin.settings import Settings, Vectors
from deepjoin.store.ledger import Key, entries_of, known_items
from deepjoin.store.manifest import MANIFEST, READS, Manifest, SegmentRecord
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.origin import TableOrigin, root_of
from deepjoin.store.remote import editing
from deepjoin.store.segment import Segment
from deepjoin.store.storage import clear_up


@dataclass(frozen=True)
class Refreshed:
    """How many items have changed; a renamed item counts as new and as gone as well."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    renamed: int = 0
    #: Whether everything was read, changed or not.
    whole: bool = False
    #: Whether unchanged tables got new vectors.
    encoded: bool = False
    #: Why sources could not be listed; their tables stay as they were.
    unreachable: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.new or self.changed or self.gone)


class NoTables(DeepJoinError):
    """The sources of a new index have no table."""


def refresh_lake(location: Location, resources: BuildResources) -> Refreshed:
    """Refresh a lake from all of its sources, as its manifest describes them."""
    with editing(location, resources.progress) as folder:
        before = OpenIndex(folder)
        job = Refresh(folder, resources, before.settings, before.vectors, [], {})
        return job.refresh(before)


class Refresh(IndexCommand[Refreshed]):
    """Brings an index up to date with its sources; ``sources`` are the first of them.

    With ``needs_tables``, sources without any table make no index.
    """

    def __init__(
        self,
        folder: Path,
        resources: BuildResources,
        settings: Settings,
        vectors: Vectors,
        sources: Sequence[Source],
        titles: Titles,
        needs_tables: bool = False,
    ) -> None:
        super().__init__(folder, resources)
        self.titles, self._needs_tables = titles, needs_tables
        described = [source.describe(folder) for source in sources]
        self._plan = IndexPlan(settings, described, vectors=vectors)
        self._given = len(described)
        self._sources: dict[int, Source] = dict(enumerate(sources))
        self._unreachable: list[str] = []
        #: The index as it was, whether to build upon its segments, and what the sources list.
        self._before: OpenIndex | None = None
        self._upon = False
        self._listed: list[ListedItem] = []

    def refresh(self, before: OpenIndex) -> Refreshed:
        """Read what has changed since the index was made."""
        self._before, self._upon = before, True
        self._listed = self._list_all(before)
        changes = self._changes(self._listed, before.segments)
        if before.report.tables and changes.gone and not self._listed:
            # All tables gone at once is most likely a disk that is not mounted.
            raise DeepJoinError(
                f"The sources of {before.location} list nothing, though it has "
                f"{before.report.tables:,} tables of them. Mount their disk; if they are really "
                "gone, use `rebuild=True`."
            )
        plan, done = self._plan, Refreshed()
        encoding = Encoding(plan.vectors, plan.settings, self.folder, self.resources)
        lacks_vectors = any(map(encoding.lacking, before.segments))
        if changes.new or changes.changed or changes.gone or lacks_vectors:
            done = replace(run(self), encoded=lacks_vectors)
        elif changes.touched:
            with suppress(DeepJoinError):  # a new stamp need not be noted
                run(self)
        else:
            clear_up(self.folder)
        return replace(done, unreachable=tuple(self._unreachable))

    def rebuild(self, before: OpenIndex | Manifest | None) -> Refreshed:
        """Read everything; what was added to an earlier index of the same sources stays.

        The manifest of a damaged index says what that was.
        """
        self._before, self._upon = before if isinstance(before, OpenIndex) else None, False
        self._listed = self._list_all(before)
        if self._unreachable:
            raise DeepJoinError(
                f"{self._unreachable[0]} Its tables cannot be read again; "
                "remove them first with: deepjoin remove"
            )
        is_new = not self.folder.exists()
        try:
            return replace(run(self), whole=True)
        except NoTables:
            if is_new:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def begin(self) -> tuple[IndexPlan, Sequence[SegmentRecord]]:
        """List again if another writer was faster; what it stores must be what we would."""
        before = self._before
        if before is None:
            return self._plan, ()
        settings = before.settings
        if before.reopen():
            if before.settings != settings:
                raise self._overtaken("has other settings")
            self._listed = self._list_all(before)
        if not self._upon:
            return self._plan, ()
        if before.settings != self._plan.settings:
            raise self._overtaken("has other settings")
        return self._plan, before.records

    def list_items(self, update: IndexUpdate) -> list[ListedItem]:
        """Return what the sources list; a rebuild also reads the frames that only the index has."""
        if self._before is None or self._upon:
            return self._listed
        return [*self._listed, *_frames_of(self._before)]

    def earlier(self, update: IndexUpdate) -> Sequence[Segment]:
        """Return the segments of the index as it was."""
        return self._before.segments if self._before else ()

    def key(self, plan: IndexPlan) -> str:
        """Identify runs that make the same index of the same sources and the same state."""
        manifest = (self.folder / MANIFEST).read_bytes() if self._upon else b""
        shown = repr((READS, plan.settings, plan.sources, sorted(plan.excluded)))
        titles = repr(sorted(self.titles.items()))
        return xxh3_64_hexdigest(manifest + (shown + titles).encode("utf-8", "replace"))

    def compare(self, update: IndexUpdate, listed: Sequence[ListedItem], resumed: bool) -> Changes:
        """Compare the listing with what the update has of it."""
        return self._changes(listed, update.segments())

    def finish(self, update: IndexUpdate, listed: Sequence[ListedItem]) -> None:
        """Refuse to make an index without any table."""
        is_empty = not any(one.live_tables for one in update.segments())
        if not (self._needs_tables and is_empty) or self._upon:
            return
        first = self._plan.sources[0]
        place = root_of(first, self.folder) or first.get("url", "the source")
        entries = (entry for one in update.segments() for entry in entries_of(one.ledger))
        skipped = [one for entry in entries for one in entry.skipped]
        why = "it holds no file of a format that deepjoin reads (CSV, Parquet, JSON, Excel, ...)"
        if self._plan.settings.include or self._plan.settings.exclude:
            why = "`include` and `exclude` leave out every file that deepjoin could read"
        if skipped:
            count = f"{len(skipped):,} {'file is' if len(skipped) == 1 else 'files are'}"
            why = f"{count} not readable as tables, {skipped[0].name}: {skipped[0].reason}"
        raise NoTables(f"No index was made, since {place} has no table: {why.rstrip('.')}.")

    def outcome(self, changes: Changes, digests: Mapping[Key, str]) -> Refreshed:
        """Count what has changed."""
        counts = len(changes.new), len(changes.changed), len(changes.gone)
        return Refreshed(*counts, changes.renamed(digests))

    def _list_all(self, before: OpenIndex | Manifest | None) -> list[ListedItem]:
        """List the sources that were given, and those that the index has besides."""
        plan = self._plan
        if before is not None:
            if list(before.sources[: self._given]) != plan.sources[: self._given]:
                raise self._overtaken("has become the index of other tables")
            plan.excluded = set(before.excluded)
            plan.sources[self._given :] = before.sources[self._given :]
            self._unreachable = []
            for number in range(self._given, len(before.sources)):
                source = self._reopened(number)
                if source is not None:
                    self._sources[number] = source
            if not self._sources and self._unreachable:
                raise DeepJoinError(self._unreachable[0])
        listed = list_items(self._sources, plan.settings, self.resources.notify)
        items = {one.item.name for one in listed}
        for name in self.titles:
            if name not in items and name.partition("#")[0] not in items:
                raise unknown_name(
                    "table", name, "the source, though it has a title", sorted(items)
                )
        return listed

    def _overtaken(self, how: str) -> DeepJoinError:
        return DeepJoinError(
            f"{self.folder} {how} since this command began: another process wrote it. "
            "Run the same command again."
        )

    def _reopened(self, number: int) -> Source | None:
        """Reopen a source; one that cannot be reached keeps its tables, and is reported."""
        try:
            source = reopen(self._plan.sources[number], self.folder, self._plan.settings)
        except DeepJoinError as error:
            self._unreachable.append(str(error))
            return None
        for place in source.gone if source else ():
            if not place.parent.exists():
                self._unreachable.append(f"{place} is gone, and the folder it was in.")
                return None
        return source

    def _changes(self, listed: Sequence[ListedItem], segments: Sequence[Segment]) -> Changes:
        """Compare a listing with what segments hold of the sources that were listed."""
        known = known_items([segment.ledger for segment in segments])
        of_sources = {k: one for k, one in known.items() if k.source in self._sources}
        changes = compare(listed, of_sources, self.resources.memory)
        # Tables that get another title are read again.
        retitled = set()
        for segment in segments if self.titles else ():
            of_row = {one.row: key for key, one in known_items([segment.ledger]).items()}
            for number in segment.live_tables:
                entry = segment.catalog.table(number)
                title, context = self.titles.get(entry.name, (None, None))
                if title not in (None, entry.title) or context not in (None, entry.context):
                    retitled.add(of_row.get(int(segment.catalog.table_items[number])))
        retitled -= {one.key for one in changes.to_read}
        changes.changed += [one for one in listed if one.key in retitled]
        changes.touched = [one for one in changes.touched if one[0].key not in retitled]
        return changes


def _frames_of(lake: OpenIndex) -> list[ListedItem]:
    """List the tables that only the index itself has, to read them into another."""
    found = []
    for segment in lake.segments:
        entries = entries_of(segment.ledger)
        for number in segment.live_tables:
            key = entries[segment.catalog.table_items[number]].key
            if lake.sources[key.source]["kind"] != "memory":
                continue
            entry = segment.catalog.table(number)
            table = TableOrigin(lake, segment, number).table()
            source = MemorySource([replace(table, title=entry.title, context=entry.context)])
            (item,) = source.items()
            found.append(ListedItem(key, item, source))
    return found
