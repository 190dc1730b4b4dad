"""Change an index: list, compare, read, merge, commit, embed. Every writing command runs this."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from xxhash import xxh3_64_hexdigest

from deepjoin.build.encoding import is_outdated
from deepjoin.build.engine import BuildResources
from deepjoin.build.listing import Changes, ListedItem, list_items
from deepjoin.build.reading import read_changes
from deepjoin.build.segment_builder import Titles
from deepjoin.build.update import IndexPlan, IndexUpdate, namesake, tables_of
from deepjoin.checksums import NAME as CHECKSUMS
from deepjoin.errors import DeepJoinError, resource_limit
from deepjoin.memory import LEAST
from deepjoin.read import Source, open_sources
from deepjoin.read.walk import is_glob
from deepjoin.store.ledger import Key, known_items
from deepjoin.store.manifest import MANIFEST, SegmentRecord, read_manifest
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.remote import editing
from deepjoin.store.segment import Segment
from deepjoin.store.storage import clear_up, writing

Outcome = TypeVar("Outcome")
Location = str | Path


def run(command: IndexCommand[Outcome]) -> Outcome:
    """Run a command that changes an index: the whole flow, top to bottom.

    One process writes at a time. Readers see nothing before the commit; a run that stops earlier
    leaves checkpoints, which the next run with the same key resumes.
    """
    if command.resources.memory < LEAST:
        command.resources.notify(
            f"A build needs about {LEAST >> 20}M of memory; the given limit is lower and will be "
            "exceeded."
        )
    with disk_errors(command.folder), writing(command.folder) as writer:
        plan, records = command.begin()
        update = IndexUpdate(writer, plan, records, command.resources)
        listed = command.list_items(update)  # items of the sources, as they are now
        earlier, key = command.earlier(update), command.key(plan)
        resumed = bool(key) and update.resume(key)
        changes = command.compare(update, listed, resumed)  # new, changed, touched, gone
        digests = read_changes(update, changes, key, command.titles, earlier)  # write segments
        command.finish(update, listed)
        update.merge(command.merges_all)  # segments that are too many or too empty
        update.commit()  # readers see the change
        update.embed()  # column vectors, committed segment by segment
        return command.outcome(changes, digests)


class IndexCommand(ABC, Generic[Outcome]):
    """What one writing command does at each step of the flow; the defaults change nothing."""

    #: Titles and contexts that the user gives tables, by name.
    titles: Titles = MappingProxyType({})
    #: Whether to merge all segments into one.
    merges_all = False

    def __init__(self, folder: Path, resources: BuildResources) -> None:
        self.folder, self.resources = folder, resources

    def begin(self) -> tuple[IndexPlan, Sequence[SegmentRecord]]:
        """Return what the index is, apart from its segments, and the segments to build upon."""
        manifest = read_manifest(self.folder)
        plan = IndexPlan(
            *(manifest.settings, list(manifest.sources), set(manifest.excluded)), manifest.vectors
        )
        return plan, manifest.segments

    def list_items(self, update: IndexUpdate) -> list[ListedItem]:
        """List the items that may have to be read."""
        return []

    def earlier(self, update: IndexUpdate) -> Sequence[Segment]:
        """Return the segments whose tables may have titles that users gave."""
        return update.segments()

    def key(self, plan: IndexPlan) -> str:
        """Identify the runs that may resume where this one stopped; "" if none may."""
        return ""

    def compare(self, update: IndexUpdate, listed: Sequence[ListedItem], resumed: bool) -> Changes:
        """Compare the listing with what the update has, some of it read by an interrupted run."""
        return Changes()

    def finish(self, update: IndexUpdate, listed: Sequence[ListedItem]) -> None:
        """Change what needs no reading, when everything is read."""

    @abstractmethod
    def outcome(self, changes: Changes, digests: Mapping[Key, str]) -> Outcome:
        """Return what the caller wants to know."""


def add_tables(location: Location, source: object, resources: BuildResources) -> list[str]:
    """Read tables into a lake, in place of those that came from the same files.

    Returns their names. From then on a refresh reads them again when they change.
    """
    with editing(location, resources.progress) as folder:
        read_manifest(folder)  # refuses what is not an index, before a lock file is made in it
        return run(AddTables(folder, resources, source))


class AddTables(IndexCommand[list[str]]):
    """Adds a source to an index, or items to a source that it has."""

    def __init__(self, folder: Path, resources: BuildResources, source: object) -> None:
        super().__init__(folder, resources)
        self._source = source
        self._excluded: set[str] = set()
        self._names: list[str] = []

    def list_items(self, update: IndexUpdate) -> list[ListedItem]:
        """List the items of the source, and refuse names that other tables have."""
        plan = update.plan
        listed = []
        for source in open_sources(self._source, plan.settings, [self.folder]):
            number, owner = self._owner(plan, source)
            listed += list_items({number: owner}, plan.settings, self.resources.notify)
        # Tables that were removed come back when they are added.
        self._excluded, plan.excluded = plan.excluded, set()
        keys = [one.key for one in listed]
        for segment in update.segments():
            own = set(tables_of(segment, keys))
            for one in listed:
                table = segment.find_table(one.item.name)
                if table is not None and table not in own:
                    raise namesake(one.item.name)
        return listed

    def _owner(self, plan: IndexPlan, source: Source) -> tuple[int, Source]:
        """Find the source of the lake that has these tables already, or make it another one.

        Tables from elsewhere get the name of their folder or database as a prefix, because many
        would otherwise have names that the lake already uses.
        """
        for number, known in enumerate(plan.sources):
            part = source.within(known, self.folder, plan.settings)
            if part is not None:
                return number, part
        if source.describe(self.folder) not in plan.sources:
            source = source.apart()
        described = source.describe(self.folder)
        for number, known in enumerate(plan.sources):
            if known == described or known["kind"] == described["kind"] == "memory":
                return number, source
        plan.sources.append(described)
        return len(plan.sources) - 1, source

    def key(self, plan: IndexPlan) -> str:
        """Identify runs that add the same sources to the same state of the index."""
        manifest = (self.folder / MANIFEST).read_bytes()
        return xxh3_64_hexdigest(manifest + repr(plan.sources).encode("utf-8", "replace"))

    def compare(self, update: IndexUpdate, listed: Sequence[ListedItem], resumed: bool) -> Changes:
        """Read everything, except what an interrupted run has read already."""
        if not resumed:
            return Changes(new=list(listed))
        known = known_items([segment.ledger for segment in update.segments()])
        stamps = {key: entry.stamp for key, entry in known.items()}
        return Changes(
            new=[
                one for one in listed if not one.item.stamp or stamps.get(one.key) != one.item.stamp
            ]
        )

    def finish(self, update: IndexUpdate, listed: Sequence[ListedItem]) -> None:
        """Keep removed tables out, except those that were added."""
        keys = {one.key for one in listed}
        self._names = sorted(
            segment.catalog.table_names[number]
            for segment in update.segments()
            for number in tables_of(segment, keys)
        )
        update.plan.excluded = self._excluded - set(self._names)

    def outcome(self, changes: Changes, digests: Mapping[Key, str]) -> list[str]:
        """Return the names of the tables."""
        return self._names


def remove_tables(
    location: Location, patterns: Iterable[str], resources: BuildResources
) -> list[str]:
    """Remove tables from a lake, by name or pattern; a refresh does not bring them back."""
    with editing(location, resources.progress) as folder:
        read_manifest(folder)
        return run(RemoveTables(folder, resources, patterns))


class RemoveTables(IndexCommand[list[str]]):
    """Removes tables by name or pattern."""

    def __init__(self, folder: Path, resources: BuildResources, patterns: Iterable[str]) -> None:
        super().__init__(folder, resources)
        self._patterns = patterns
        self._names: list[str] = []

    def finish(self, update: IndexUpdate, listed: Sequence[ListedItem]) -> None:
        """Drop the tables, and the sources that have none left."""
        lake = OpenIndex(self.folder)
        found: set[str] = set()
        for pattern in self._patterns:
            names = [pattern] if pattern in lake else []
            if not names and is_glob(pattern):
                names = [name for name in lake.tables if fnmatchcase(name, pattern)]
            found.update(names or [lake.full_name(pattern)])
        self._names = sorted(found)
        update.drop_tables(self._names)
        plan = update.plan
        plan.excluded |= {name for name in found if lake.source_of(name)["kind"] != "memory"}
        # The first source stays: it is the one that the index was made of.
        used = {0} | {
            segment.ledger["source"][row].as_py()
            for segment in update.segments()
            for row in set(segment.catalog.table_items[segment.live_tables].tolist())
        }
        for number in range(1, len(plan.sources)):
            if number not in used and plan.sources[number]["kind"] != "memory":
                plan.sources[number] = {"kind": "gone"}

    def outcome(self, changes: Changes, digests: Mapping[Key, str]) -> list[str]:
        """Return the names of the tables."""
        return self._names


def compact(location: Location, resources: BuildResources) -> bool:
    """Merge all segments into one without removed tables; False if there is nothing to do.

    The segment of an index of an earlier version is written anew, in the present format.
    Columns are encoded again if the frequencies of values have changed since.
    """
    with editing(location, resources.progress) as folder:
        lake = OpenIndex(folder)
        only = len(lake.records) == 1 and not lake.records[0].removed
        sealed = all(CHECKSUMS in record.files for record in lake.records)
        present = sealed and not any(one.is_outdated for one in lake.segments)
        if only and present and not is_outdated(lake.segments):
            clear_up(folder)
            return False
        return run(Compact(folder, resources))


class Compact(IndexCommand[bool]):
    """Merges all segments into one."""

    merges_all = True

    def outcome(self, changes: Changes, digests: Mapping[Key, str]) -> bool:
        """Return that the index has changed."""
        return True


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into one line."""
    try:
        yield
    except OSError as error:
        short_write = error.errno is None and "requested and" in str(error)  # NumPy's words
        if short_write or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DeepJoinError(
                f"No space left on the disk of {folder}; the index is consistent. "
                "Free some space, or choose another disk with `out`."
            ) from None
        if limit := resource_limit(error):
            raise limit from None
        raise DeepJoinError(
            f"Cannot write the index in {folder}: {error.strerror or error}."
        ) from None
