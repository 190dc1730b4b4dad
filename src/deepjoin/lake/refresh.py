"""Brings an index up to its sources: lists them, reads what is other than it was, commits."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lake.build import Means, Titles
from deepjoin.lake.changes import Changes, Found, compare, list_items, renamed
from deepjoin.lake.manifest import MANIFEST, READS, Described
from deepjoin.lake.origin import frames_of, reopen
from deepjoin.lake.reading import ItemReader
from deepjoin.lake.storage import clear_up, writing
from deepjoin.lake.update import Plan, Update
from deepjoin.lake.view import LakeView
from deepjoin.ledger import known_items
from deepjoin.segment import Segment
from deepjoin.settings import Settings
from deepjoin.sources import LastingSource
from deepjoin.sources.files import FileSource


@dataclass(frozen=True)
class Refreshed:
    """How many items were other than before; one that was renamed is new, and gone, as well."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    renamed: int = 0
    #: Whether everything was read, changed or not.
    whole: bool = False

    def __bool__(self) -> bool:
        return bool(self.whole or self.new or self.changed or self.gone)


class Refresh:
    """One run over the sources of an index folder."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        sources: Sequence[LastingSource],
        described: Sequence[Described],
        titles: Titles,
        means: Means,
    ) -> None:
        self._folder, self._titles, self._means = folder, titles, means
        self._plan = Plan(settings, list(described))
        self._given = len(described)
        self._sources: dict[int, LastingSource] = dict(enumerate(sources))

    def refresh(self, before: LakeView) -> Refreshed:
        """Read what has changed since an index was made."""
        found = self._found(before)
        changes = self._changes(found, before.segments)
        if changes.new or changes.changed or changes.gone:
            return self._write(before, found, keep=True)
        if changes.touched:
            with suppress(DeepJoinError):  # another stamp need not be noted
                self._write(before, found, keep=True)
        else:
            clear_up(self._folder)
        return Refreshed()

    def rebuild(self, before: LakeView | None) -> Refreshed:
        """Read everything; what was added to an earlier index of the same sources stays."""
        found = self._listed() if before is None else self._found(before)
        return replace(self._write(before, found, keep=False), whole=True)

    def _found(self, before: LakeView) -> list[Found]:
        """List everything that belongs to an index, its own sources and those added to it."""
        self._take_over(before)
        return self._listed()

    def _take_over(self, before: LakeView) -> None:
        """Go on with sources that were added, and without tables that were taken out."""
        if list(before.sources[: self._given]) != self._plan.sources[: self._given]:
            raise DeepJoinError(f"{self._folder} has become the index of other tables meanwhile.")
        self._plan.excluded = set(before.excluded)
        del self._plan.sources[self._given :]
        for number in range(self._given, len(before.sources)):
            self._plan.sources.append(before.sources[number])
            source = reopen(before.sources[number], self._folder, self._plan.settings)
            if source is not None:
                self._sources[number] = source

    def _listed(self) -> list[Found]:
        found = list_items(self._sources, self._plan.settings)
        _refuse_vanished(self._sources.values())
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

    def _write(self, before: LakeView | None, found: list[Found], keep: bool) -> Refreshed:
        """Do the work under the lock; ``keep`` builds upon the segments that are there."""
        with disk_errors(self._folder), writing(self._folder) as writer:
            if before is not None and before.reopen():  # another writer was faster
                found = self._found(before)
            records = before.records if before is not None and keep else ()
            if before is not None and not keep:
                found = [*found, *frames_of(before)]
            update = Update(writer, self._plan, records, self._means)
            pending = self._pending_key(keep)
            update.resume(pending)
            return self._apply(update, found, pending)

    def _apply(self, update: Update, found: Sequence[Found], pending: str) -> Refreshed:
        segments = update.segments()
        known = known_items([segment.ledger for segment in segments])
        changes = self._changes(found, segments)
        counts = (len(changes.new), len(changes.changed), len(changes.gone))
        gone = [known[key].digest for key in changes.gone]
        new = [one.key for one in changes.new]
        reader = ItemReader(update, pending, self._titles)
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


def _refuse_vanished(sources: Iterable[LastingSource]) -> None:
    """Take files for deleted only where the folder they were in is still there."""
    for source in sources:
        for place in source.gone if isinstance(source, FileSource) else ():
            if not place.parent.exists():
                raise DeepJoinError(
                    f"{place} is gone, and the folder it was in. Put it back (or mount its disk), "
                    "or take its tables out with: deepjoin remove"
                )


def _check_titles(titles: Titles, items: set[str]) -> None:
    """See that every title is of a file that is there, or of a sheet in one."""
    for name in titles:
        if name not in items and name.partition("#")[0] not in items:
            raise unknown_name("table", name, "the source, though it has a title", sorted(items))


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Put what the disk says into one line."""
    try:
        yield
    except OSError as error:
        short_write = error.errno is None and "requested and" in str(error)  # NumPy's words
        if short_write or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DeepJoinError(
                f"No space left on the disk of {folder}; the index is as it was before. "
                "Free some space, or choose another disk with -o."
            ) from None
        raise DeepJoinError(
            f"Cannot write the index in {folder}: {error.strerror or error}."
        ) from None
