"""What has changed in the sources since they were last read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deepjoin.errors import DeepJoinError
from deepjoin.lake.reader import hidden_item
from deepjoin.ledger import Key, Known
from deepjoin.private import key as key_of
from deepjoin.settings import Settings
from deepjoin.sources import LastingSource
from deepjoin.sources.items import Item, digest_of


class Found(NamedTuple):
    """An item as a source lists it now."""

    key: Key
    item: Item
    source: LastingSource


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


def list_items(sources: Mapping[int, LastingSource], settings: Settings) -> list[Found]:
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
    for one in found:
        before = left.pop(one.key, None)
        if before is None:
            changes.new.append(one)
        elif not one.item.stamp or one.item.stamp != before.stamp:
            digest = digest_of(one.item) if before.digest else ""
            if digest and digest == before.digest:
                changes.touched.append((one, before))
            else:
                changes.changed.append(one)
    changes.gone = list(left)
    return changes


def renamed(gone: Iterable[str], new: Iterable[str]) -> int:
    """Count the contents, by their digests, that are gone from one name and new under another."""
    now = set(new) - {""}
    return sum(digest in now for digest in gone)
