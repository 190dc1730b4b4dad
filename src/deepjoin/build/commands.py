"""Tables come and go: add, remove and compact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from deepjoin.build.build import Means
from deepjoin.build.changes import Changes, Found, list_items
from deepjoin.build.encoding import is_outdated
from deepjoin.build.item_reader import ItemReader
from deepjoin.build.refresh import Refresh, Refreshed, disk_errors
from deepjoin.build.update import Plan, Update, namesake, tables_of
from deepjoin.errors import unknown_name
from deepjoin.read import Source, open_sources
from deepjoin.read.walk import is_glob
from deepjoin.store.ledger import Key, known_items
from deepjoin.store.manifest import MANIFEST, read_manifest
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.remote import editing
from deepjoin.store.segment import Segment
from deepjoin.store.storage import clear_up, writing

Location = str | Path


def refresh_lake(location: Location, means: Means) -> Refreshed:
    """Bring a lake up to all of its sources, as its manifest describes them."""
    with editing(location) as folder:
        before = OpenIndex(folder)
        job = Refresh(folder, before.settings, before.vectors, [], [], {}, means)
        return job.refresh(before)


def add_tables(location: Location, source: object, means: Means) -> list[str]:
    """Read tables into a lake, in the place of those that came from the same files.

    Returns their names. From then on a refresh looks after them as well.
    """
    with editing(location) as folder, _updating(folder, means) as update:
        found = _found(folder, update.plan, open_sources(source, update.plan.settings, [folder]))
        lifted, update.plan.excluded = update.plan.excluded, set()
        _refuse_taken(update, found)
        pending = _pending_key(folder, update.plan)
        before = update.segments()
        left = _not_read(update, found) if update.resume(pending) else found
        ItemReader(update, pending, {}, before).apply(Changes(new=left))
        keys = {one.key for one in found}
        names = [name for segment in update.segments() for name in _names_of(segment, keys)]
        update.plan.excluded = lifted - set(names)
        update.tidy()
    return sorted(names)


def _pending_key(folder: Path, plan: Plan) -> str:
    """Sum up what another run must have in common to go on where this one stopped."""
    manifest = (folder / MANIFEST).read_bytes()
    return xxh3_64_hexdigest(manifest + repr(plan.sources).encode("utf-8", "replace"))


def _not_read(update: Update, found: Sequence[Found]) -> list[Found]:
    """Leave out what a run that was interrupted has read already."""
    known = known_items([segment.ledger for segment in update.segments()])
    stamps = {key: entry.stamp for key, entry in known.items()}
    return [one for one in found if not one.item.stamp or stamps.get(one.key) != one.item.stamp]


def remove_tables(location: Location, patterns: Iterable[str], means: Means) -> list[str]:
    """Take tables out of a lake, by name or pattern; a refresh does not bring them back."""
    with editing(location) as folder, _updating(folder, means) as update:
        lake = OpenIndex(folder)
        names = sorted({name for pattern in patterns for name in _matching(lake, pattern)})
        update.drop_tables(names)
        update.plan.excluded |= {name for name in names if lake.source_of(name)["kind"] != "memory"}
        _forget_emptied(update)
        update.tidy()
    return names


def _forget_emptied(update: Update) -> None:
    """Let go of sources that were added and have no table in the lake any more."""
    sources = update.plan.sources
    used = {0} | {
        segment.ledger["source"][row].as_py()
        for segment in update.segments()
        for row in set(segment.catalog.table_items[segment.live_tables].tolist())
    }
    for number in range(1, len(sources)):
        if number not in used and sources[number]["kind"] != "memory":
            sources[number] = {"kind": "gone"}


def compact(location: Location, means: Means) -> bool:
    """Merge all segments into one without the tables that left; False if it is so already.

    Columns are encoded again where the frequencies of now would show other cells of them.
    """
    with editing(location) as folder:
        lake = OpenIndex(folder)
        only = len(lake.records) == 1 and not lake.records[0].removed
        if only and not is_outdated(lake.segments):
            clear_up(folder)
            return False
        with _updating(folder, means) as update:
            update.tidy(whole=True)
        return True


@contextmanager
def _updating(folder: Path, means: Means) -> Iterator[Update]:
    """Change the lake as it is now; what went well is committed."""
    read_manifest(folder)  # what is no index is not to become one
    with disk_errors(folder), writing(folder) as writer:
        manifest = read_manifest(folder)
        plan = Plan(
            *(manifest.settings, list(manifest.sources), set(manifest.excluded)), manifest.vectors
        )
        update = Update(writer, plan, manifest.segments, means)
        yield update
        update.commit()


def _found(folder: Path, plan: Plan, sources: Sequence[Source]) -> list[Found]:
    """Give the items of sources their keys in the lake."""
    owners = (_owner(folder, plan, source) for source in sources)
    return [
        found for number, owner in owners for found in list_items({number: owner}, plan.settings)
    ]


def _owner(folder: Path, plan: Plan, source: Source) -> tuple[int, Source]:
    """Find the source of the lake that has these tables already, or make it another one.

    Tables from elsewhere get the name of their folder or database as a prefix, because many
    would otherwise have names that the lake already uses.
    """
    for number, known in enumerate(plan.sources):
        part = source.within(known, folder, plan.settings)
        if part is not None:
            return number, part
    if source.describe(folder) not in plan.sources:
        source = source.apart()
    described = source.describe(folder)
    for number, known in enumerate(plan.sources):
        if known == described or known["kind"] == described["kind"] == "memory":
            return number, source
    plan.sources.append(described)
    return len(plan.sources) - 1, source


def _refuse_taken(update: Update, found: Sequence[Found]) -> None:
    """Refuse namesakes of tables from elsewhere before anything is read."""
    keys = [one.key for one in found]
    for segment in update.segments():
        own = set(tables_of(segment, keys))
        for one in found:
            number = segment.find_table(one.item.name)
            if number is not None and number not in own:
                raise namesake(one.item.name)


def _names_of(segment: Segment, keys: set[Key]) -> Iterator[str]:
    """Name the live tables that came from some items."""
    return (segment.catalog.table_names[number] for number in tables_of(segment, keys))


def _matching(lake: OpenIndex, pattern: str) -> list[str]:
    if pattern in lake:
        return [pattern]
    names = [name for name in lake.tables if fnmatchcase(name, pattern)] if is_glob(pattern) else []
    if not names:
        raise unknown_name("table", pattern, str(lake.path), lake.tables)
    return names
