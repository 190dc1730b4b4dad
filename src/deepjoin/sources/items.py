"""What a source is made of: parts that change as a whole, each noticed by a stamp."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from deepjoin.columns import Table

_BLOCK = 1 << 22


@dataclass(frozen=True)
class Skipped:
    """Something a source passed over, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """The tables inside an item, unread, and what was passed over."""

    tables: tuple[Table, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Item:
    """A part of a source that changes as a whole: a file, a folder of parts, a database table.

    ``stamp`` is another whenever the content may be another, and '' when nothing can be said
    without reading. Where it has changed, ``digest`` sums up the content to see whether that
    has; None where reading the tables again is as cheap.
    """

    name: str
    stamp: str
    listing: Callable[[], Listing]
    digest: Callable[[], str] | None = None


def file_stamp(status: os.stat_result) -> str:
    """Give the stamp of a file: its size and the time of its last change."""
    return f"{status.st_size}-{status.st_mtime_ns}"


def file_digest(path: Path) -> str:
    """Sum up the bytes of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def unfold(items: Iterable[Item], skipped: list[Skipped]) -> Iterator[Table]:
    """Yield the tables of all items; what they pass over goes to the list ``skipped``."""
    for item in items:
        listing = item.listing()
        skipped.extend(listing.skipped)
        yield from listing.tables
