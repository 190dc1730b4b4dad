"""Brings an index up to its sources: lists them, reads what is other than it was, commits."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from deepjoin.build.build import Means, Titles
from deepjoin.build.changes import Changes, Found, compare, list_items, renamed
from deepjoin.build.encoding import Encoding
from deepjoin.build.item_reader import ItemReader
from deepjoin.build.update import Plan, Update
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.read import Source, reopen
from deepjoin.read.frames import MemorySource
from deepjoin.settings import Settings, Vectors
from deepjoin.store.ledger import entries_of, known_items
from deepjoin.store.manifest import MANIFEST, READS, Described, Manifest
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.origin import TableOrigin
from deepjoin.store.segment import Segment
from deepjoin.store.storage import clear_up, writing


@dataclass(frozen=True)
class Refreshed:
    """How many items were other than before; one that was renamed is new, and gone, as well."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    renamed: int = 0
    #: Whether everything was read, changed or not.
    whole: bool = False
    #: Whether vectors were made of tables that are as they were.
    encoded: bool = False
    #: Why sources could not be looked at; their tables stay as they were.
    unreachable: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.new or self.changed or self.gone)


class Refresh:
    """One run over the sources of an index folder."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        vectors: Vectors,
        sources: Sequence[Source],
        described: Sequence[Described],
        titles: Titles,
        means: Means,
    ) -> None:
        self._folder, self._titles, self._means = folder, titles, means
        self._plan = Plan(settings, list(described), vectors=vectors)
        self._given = len(described)
        self._sources: dict[int, Source] = dict(enumerate(sources))
        self._unreachable: list[str] = []

    def refresh(self, before: OpenIndex) -> Refreshed:
        """Read what has changed since an index was made."""
        found = self._found(before)
        changes = self._changes(found, before.segments)
        _refuse_emptied(before, found, changes)
        done = Refreshed()
        lacks_vectors = self._lacks_vectors(before)
        if changes.new or changes.changed or changes.gone or lacks_vectors:
            done = replace(self._write(before, found, keep=True), encoded=lacks_vectors)
        elif changes.touched:
            with suppress(DeepJoinError):  # another stamp need not be noted
                self._write(before, found, keep=True)
        else:
            clear_up(self._folder)
        return replace(done, unreachable=tuple(self._unreachable))

    def _lacks_vectors(self, before: OpenIndex) -> bool:
        plan = self._plan
        encoding = Encoding(plan.vectors, plan.settings, self._folder, self._means)
        return any(map(encoding.lacking, before.segments))

    def rebuild(self, before: OpenIndex | Manifest | None) -> Refreshed:
        """Read everything; what was added to an earlier index of the same sources stays.

        Of an index that is damaged, the manifest says what that was.
        """
        found = self._listed() if before is None else self._found(before)
        if self._unreachable:
            raise DeepJoinError(
                f"{self._unreachable[0]} Its tables cannot be read again; "
                "take them out first with: deepjoin remove"
            )
        whole = before if isinstance(before, OpenIndex) else None
        return replace(self._write(whole, found, keep=False), whole=True)

    def _found(self, before: OpenIndex | Manifest) -> list[Found]:
        """List everything that belongs to an index, its own sources and those added to it."""
        self._take_over(before)
        return self._listed()

    def _take_over(self, before: OpenIndex | Manifest) -> None:
        """Go on with sources that were added, and without tables that were taken out."""
        if list(before.sources[: self._given]) != self._plan.sources[: self._given]:
            raise self._overtaken("has become the index of other tables")
        self._plan.excluded = set(before.excluded)
        self._plan.sources[self._given :] = before.sources[self._given :]
        self._unreachable = []
        for number in range(self._given, len(before.sources)):
            source = self._reopened(number)
            if source is not None:
                self._sources[number] = source
        if not self._sources and self._unreachable:
            raise DeepJoinError(self._unreachable[0])

    def _overtaken(self, how: str) -> DeepJoinError:
        return DeepJoinError(
            f"{self._folder} {how} since this command began: another process wrote it. "
            "Run the same command again."
        )

    def _reopened(self, number: int) -> Source | None:
        """Reopen a source; one that cannot be reached keeps its tables, and is told."""
        try:
            source = reopen(self._plan.sources[number], self._folder, self._plan.settings)
        except DeepJoinError as error:
            self._unreachable.append(str(error))
            return None
        for place in source.gone if source else ():
            if not place.parent.exists():
                self._unreachable.append(f"{place} is gone, and the folder it was in.")
                return None
        return source

    def _listed(self) -> list[Found]:
        found = list_items(self._sources, self._plan.settings)
        _check_titles(self._titles, {one.item.name for one in found})
        return found

    def _changes(self, found: Sequence[Found], segments: Sequence[Segment]) -> Changes:
        """Compare the listing with what segments hold of the sources that were listed."""
        known = known_items([segment.ledger for segment in segments])
        listed = {key: entry for key, entry in known.items() if key.source in self._sources}
        changes = compare(found, listed)
        if self._titles:
            self._retitle(changes, found, segments)
        return changes

    def _retitle(
        self, changes: Changes, found: Sequence[Found], segments: Sequence[Segment]
    ) -> None:
        """Read tables again that are to have other titles."""
        wanted = set()
        for segment in segments:
            keys = known_items([segment.ledger])
            of_row = {known.row: key for key, known in keys.items()}
            for number in segment.live_tables:
                entry = segment.catalog.table(number)
                title, context = self._titles.get(entry.name, (None, None))
                if title not in (None, entry.title) or context not in (None, entry.context):
                    wanted.add(of_row.get(int(segment.catalog.table_items[number])))
        wanted -= {one.key for one in changes.to_read}
        changes.changed += [one for one in found if one.key in wanted]
        changes.touched = [one for one in changes.touched if one[0].key not in wanted]

    def _write(self, before: OpenIndex | None, found: list[Found], keep: bool) -> Refreshed:
        """Do the work under the lock; ``keep`` builds upon the segments that are there."""
        with disk_errors(self._folder), writing(self._folder) as writer:
            if before is not None:
                found = self._caught_up(before, found)
                if keep and before.settings != self._plan.settings:
                    raise self._overtaken("has other settings")
            records = before.records if before is not None and keep else ()
            if before is not None and not keep:
                found = [*found, *_frames_of(before)]
            update = Update(writer, self._plan, records, self._means)
            pending = self._pending_key(keep)
            update.resume(pending)
            return self._apply(update, found, pending, before.segments if before else ())

    def _caught_up(self, before: OpenIndex, found: list[Found]) -> list[Found]:
        """List again if another writer was faster; what it stores must be what we would."""
        settings = before.settings
        if not before.reopen():
            return found
        if before.settings != settings:
            raise self._overtaken("has other settings")
        return self._found(before)

    def _apply(
        self, update: Update, found: Sequence[Found], pending: str, before: Sequence[Segment]
    ) -> Refreshed:
        segments = update.segments()
        known = known_items([segment.ledger for segment in segments])
        changes = self._changes(found, segments)
        counts = (len(changes.new), len(changes.changed), len(changes.gone))
        gone = [known[key].digest for key in changes.gone]
        new = [one.key for one in changes.new]
        reader = ItemReader(update, pending, self._titles, before)
        reader.apply(changes)
        update.tidy()
        update.commit()
        return Refreshed(*counts, renamed(gone, (reader.digests.get(key, "") for key in new)))

    def _pending_key(self, keep: bool) -> str:
        """Sum up what a later run must have in common to go on where this one stopped."""
        manifest = (self._folder / MANIFEST).read_bytes() if keep else b""
        plan = repr((READS, self._plan.settings, self._plan.sources, sorted(self._plan.excluded)))
        titles = repr(sorted(self._titles.items()))
        return xxh3_64_hexdigest(manifest + (plan + titles).encode("utf-8", "replace"))


def _refuse_emptied(before: OpenIndex, found: Sequence[Found], changes: Changes) -> None:
    """Take a lake whose tables are all gone at once for a disk that is not mounted."""
    if before.report.tables and changes.gone and not found:
        raise DeepJoinError(
            f"The sources of {before.location} list nothing, though it has "
            f"{before.report.tables:,} tables of them. Mount their disk; if they are really gone, "
            "run it with --rebuild."
        )


def _check_titles(titles: Titles, items: set[str]) -> None:
    """See that every title is of a file that is there, or of a sheet in one."""
    for name in titles:
        if name not in items and name.partition("#")[0] not in items:
            raise unknown_name("table", name, "the source, though it has a title", sorted(items))


def _frames_of(lake: OpenIndex) -> list[Found]:
    """Find the tables that only the index itself has, to read them into another."""
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
            found.append(Found(key, item, source))
    return found


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Put what the disk says into one line."""
    try:
        yield
    except OSError as error:
        short_write = error.errno is None and "requested and" in str(error)  # NumPy's words
        if short_write or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DeepJoinError(
                f"No space left on the disk of {folder}; the index is whole. "
                "Free some space, or choose another disk with -o."
            ) from None
        raise DeepJoinError(
            f"Cannot write the index in {folder}: {error.strerror or error}."
        ) from None
