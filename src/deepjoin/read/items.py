"""What a source is made of: parts that change as a whole, each noticed by a stamp."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from deepjoin.model import Table

_BLOCK = 1 << 22
#: Nanoseconds; some file systems tell times to the second or two only, and clocks differ.
_LATELY = 2_000_000_000
_SOON = 1_000_000_000


@dataclass(frozen=True)
class Skipped:
    """Something a source passed over, and why.

    ``passing`` tells that the reason may pass without the thing itself being another: a missing
    package or permission, a disk that fails.
    """

    name: str
    reason: str
    passing: bool = False


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
    #: Whether it was passed over without a look into it.
    is_passed_over: bool = False
    #: Bytes to read; None where nobody knows.
    size: int | None = None


def skipped_item(name: str, reason: str, passing: bool = False) -> Item:
    """Stand in for something that is passed over without a look into it."""
    listing = Listing(skipped=(Skipped(name, reason, passing),))
    return Item(name, f"skipped: {reason}", lambda: listing, is_passed_over=True, size=0)


def left_out(tables: int) -> str:
    """Say that nothing of a source is left to read."""
    all_of_them = f"all {tables:,} tables" if tables > 1 else "its one table"
    return f"the patterns to include and exclude leave out {all_of_them}"


def digest_of(item: Item) -> str:
    """Sum up the content of an item; '' where that cannot be done."""
    try:
        return item.digest() if item.digest else ""
    except OSError:  # reading its tables will say why
        return ""


def file_stamp(status: os.stat_result) -> str:
    """Give the stamp of a file: its size and the time of its last change.

    A file changed a moment ago has none: it may change again within the same tick of its clock.
    One with a time far in the future has, or it would be read again until then.
    """
    if -_SOON <= time.time_ns() - status.st_mtime_ns < _LATELY:
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def file_digest(path: Path) -> str:
    """Sum up the bytes of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def relative(path: Path, index: Path) -> str:
    """Write a path down as an index folder stores it, so that both can move together."""
    return Path(os.path.relpath(path.resolve(), index.resolve())).as_posix()


def unfold(items: Iterable[Item], skipped: list[Skipped]) -> Iterator[Table]:
    """Yield the tables of all items; what they pass over goes to the list ``skipped``."""
    for item in items:
        listing = item.listing()
        skipped.extend(listing.skipped)
        yield from listing.tables
