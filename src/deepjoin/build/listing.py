"""List the items of all sources and compare them with what the index knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.memory import DEFAULT, check_reading
from deepjoin.normalise.private import hidden_text
from deepjoin.normalise.private import key as key_of
from deepjoin.progress import Notify, no_notice
from deepjoin.read import Source
from deepjoin.read.source import Item, digest_of
from deepjoin.settings import Settings
from deepjoin.store.ledger import Key, Known


class ListedItem(NamedTuple):
    """An item as a source lists it now."""

    key: Key
    item: Item
    source: Source


@dataclass
class Changes:
    """What has changed since the sources were last read."""

    new: list[ListedItem] = field(default_factory=list)
    changed: list[ListedItem] = field(default_factory=list)
    #: Items with a new stamp and the same content, as in a copied folder; with what was known.
    touched: list[tuple[ListedItem, Known]] = field(default_factory=list)
    gone: dict[Key, Known] = field(default_factory=dict)

    @property
    def to_read(self) -> list[ListedItem]:
        """New and changed items, in the order of the sources."""
        return sorted([*self.new, *self.changed], key=lambda one: one.key)

    def renamed(self, digests: Mapping[Key, str]) -> int:
        """Count gone items whose content is new under another name, given digests by item."""
        now = {digests.get(one.key, "") for one in self.new} - {""}
        return sum(known.digest in now for known in self.gone.values())


def list_items(
    sources: Mapping[int, Source], settings: Settings, notify: Notify = no_notice
) -> list[ListedItem]:
    """List the items of numbered sources; a private index hides their stamps and digests.

    Warnings of the sources go to ``notify``, or where nobody listens to the log.
    """
    hidden_by = key_of(settings)
    try:
        listed = [
            ListedItem(Key(number, item.name), hidden_item(item, hidden_by), source)
            for number, source in sources.items()
            for item in source.items()
        ]
    except OSError as error:
        raise DeepJoinError(f"Cannot list the tables of the source: {error}.") from None
    for text in (text for source in sources.values() for text in source.warnings):
        if notify is no_notice:
            logging.getLogger("deepjoin").warning("%s", text)
        else:
            notify(f"warning: {text}")
    return listed


def hidden_item(item: Item, key: bytes) -> Item:
    """Hash what is remembered of an item: a version or a small file's digest may reveal a cell."""
    digest = item.digest
    if not key:
        return item
    return replace(
        item,
        stamp=hidden_text(item.stamp, key),
        digest=None if digest is None else lambda: hidden_text(digest(), key),
    )


def compare(
    listed: Iterable[ListedItem], known: Mapping[Key, Known], memory: int = DEFAULT
) -> Changes:
    """Compare what the sources list with what the index knows: stamps first, then contents."""
    changes = Changes()
    left = dict(known)
    unseen = set()
    for one in listed:
        if one.item.is_passed_over and any(skip.passing for skip in one.item.listing().skipped):
            unseen.add(one.key)
        before = left.pop(one.key, None)
        if before is None:
            changes.new.append(one)
        elif before.may_pass and tried(one.item, memory) is not True:
            changes.changed.append(one)
        elif not one.item.stamp or one.item.stamp != before.stamp:
            digest = digest_of(one.item) if before.digest else ""
            if digest and digest == before.digest:
                changes.touched.append((one, before))
            else:
                changes.changed.append(one)
    for key, before in left.items():
        # Items inside a folder that cannot be looked into for now are hidden, not gone.
        parts = key.item.split("/")
        folders = (Key(key.source, "/".join(parts[:end])) for end in range(1, len(parts)))
        if not unseen.intersection(folders):
            changes.gone[key] = before
    return changes


def tried(item: Item, memory: int = 0) -> bool | None:
    """Try to read an item: None if it can be read, else whether the reason may pass by itself.

    What takes more than a build with this much memory may take is not read.
    """
    try:
        listing = item.listing()
        for table in listing.tables:
            reading = table.open()
            check_reading(reading.memory, memory)
            next(iter(reading), None)
    except UnreadableTable as error:
        return error.passing
    if any(skipped.passing for skipped in listing.skipped):
        return True
    return None if listing.tables else False
