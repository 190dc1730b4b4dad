"""What has changed in the sources since they were last read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deepjoin.build.reader import hidden_item
from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.normalise.private import key as key_of
from deepjoin.read import Source
from deepjoin.read.source import Item, digest_of
from deepjoin.settings import Settings
from deepjoin.store.ledger import Key, Known


class Found(NamedTuple):
    """An item as a source lists it now."""

    key: Key
    item: Item
    source: Source


@dataclass
class Changes:
    """The items to read, those whose stamps alone are other, and those that are gone."""

    new: list[Found] = field(default_factory=list)
    changed: list[Found] = field(default_factory=list)
    #: With what was known of them: a copied folder has other times and the same contents.
    touched: list[tuple[Found, Known]] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)

    @property
    def to_read(self) -> list[Found]:
        """What has to be read, in the order of the sources."""
        return sorted([*self.new, *self.changed], key=lambda found: found.key)

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.touched or self.gone)


def list_items(sources: Mapping[int, Source], settings: Settings) -> list[Found]:
    """List the items of numbered sources; a private index hides their stamps and digests."""
    hidden_by = key_of(settings)
    try:
        return [
            Found(Key(number, item.name), hidden_item(item, hidden_by), source)
            for number, source in sources.items()
            for item in source.items()
        ]
    except OSError as error:
        raise DeepJoinError(f"Cannot list the tables of the source: {error}.") from None


def compare(found: Iterable[Found], known: Mapping[Key, Known]) -> Changes:
    """Compare what the sources list with what the lake knows: stamps first, then contents."""
    changes = Changes()
    left = dict(known)
    unseen = set()
    for one in found:
        if _is_unseen(one.item):
            unseen.add(one.key)
        before = left.pop(one.key, None)
        if before is None:
            changes.new.append(one)
        elif before.may_pass and tried(one.item) is not True:
            changes.changed.append(one)
        elif not one.item.stamp or one.item.stamp != before.stamp:
            digest = digest_of(one.item) if before.digest else ""
            if digest and digest == before.digest:
                changes.touched.append((one, before))
            else:
                changes.changed.append(one)
    changes.gone = [key for key in left if not _is_hidden(key, unseen)]
    return changes


def tried(item: Item) -> bool | None:
    """Try to read an item: None if that can be done, else whether the reason may pass by itself."""
    try:
        listing = item.listing()
        for table in listing.tables:
            next(iter(table.open()), None)
    except UnreadableTable as error:
        return error.passing
    if any(skipped.passing for skipped in listing.skipped):
        return True
    return None if listing.tables else False


def _is_unseen(item: Item) -> bool:
    """Tell whether an item is a place that could not be looked into, for now."""
    return item.is_passed_over and any(skipped.passing for skipped in item.listing().skipped)


def _is_hidden(key: Key, unseen: Collection[Key]) -> bool:
    """Tell whether an item is in a folder that could not be looked into."""
    parts = key.item.split("/")
    return any(Key(key.source, "/".join(parts[:end])) in unseen for end in range(1, len(parts)))


def renamed(gone: Iterable[str], new: Iterable[str]) -> int:
    """Count the contents, by their digests, that are gone from one name and new under another."""
    now = set(new) - {""}
    return sum(digest in now for digest in gone)
