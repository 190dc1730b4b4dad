"""What a source of tables is: the items it lists, and what it can do."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import xxhash

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.model import Table

if TYPE_CHECKING:
    from deepjoin.read.corpus import CorpusSource
    from deepjoin.read.database import DatabaseSource
    from deepjoin.settings import Settings

#: Bytes hashed at a time.
_BLOCK = 1 << 22
#: Nanoseconds; some file systems store times to the second or two only, and clocks differ.
_LATELY = 2_000_000_000
_SOON = 1_000_000_000

#: A path as users pass it.
Location = str | os.PathLike[str]
#: Where a source is, as the manifest of an index keeps it: its kind, what reopens it, no secrets.
Description = dict[str, Any]


@dataclass(frozen=True)
class Skipped:
    """Something a source passed over, and why.

    ``passing`` says that the reason may go away although the thing itself does not change: a
    missing package or permission, a failing disk.
    """

    name: str
    reason: str
    passing: bool = False


@dataclass(frozen=True)
class Listing:
    """The tables inside an item, unread, and what was passed over."""

    tables: tuple[Table, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def without_tables(cls, name: str, reason: str, passing: bool = False) -> Listing:
        """List an item that was passed over."""
        return cls(skipped=(Skipped(name, reason, passing),))


@dataclass(frozen=True)
class Item:
    """A part of a source that changes as a whole: a file, a folder of parts, a database table.

    ``stamp`` changes whenever the content may have changed, and is '' when only reading can
    show that. When it has changed, ``digest`` hashes the content to see whether that did too;
    None where reading the tables again is as cheap.
    """

    name: str
    stamp: str
    listing: Callable[[], Listing]
    digest: Callable[[], str] | None = None
    #: Whether it was passed over without looking into it.
    is_passed_over: bool = False
    #: Bytes to read; None if unknown.
    size: int | None = None


class Source(ABC):
    """Where tables come from. A source declares what it can do; callers never check its class.

    To add a kind of source, derive from this class, implement the abstract methods, override
    what else the source can do, and enter its module, which has a function ``reopen``, in
    `deepjoin.read.KINDS`. Every source keeps these rules:

    - Listing reads no tables and yields the same items in the same order until something
      changes. Nothing is left out silently: what is passed over is listed with its reason.
    - The stamp of an item changes whenever its content may have changed.
    - A table can be opened many times and has the same cells until its stamp changes.
    - A description holds no secrets, and ``reopen`` makes the same source from it.
    """

    #: The key of the source in `deepjoin.read.KINDS` and in descriptions.
    kind: ClassVar[str]
    #: Whether the tables exist only in this process, so that an index must keep copies.
    in_memory: ClassVar[bool] = False
    #: Whether other processes and machines can read a pickled copy of the source.
    is_portable: ClassVar[bool] = False
    #: Places that a reopened source had before and that no longer exist.
    gone: tuple[Path, ...] = ()
    #: What the user should know of the latest listing before the tables are read.
    warnings: Sequence[str] = ()
    #: What the latest call of `tables` passed over; complete when that iterator is exhausted.
    skipped: list[Skipped]

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """List everything that may hold tables, unread, in the same order each time."""

    @abstractmethod
    def table(self, name: str) -> Table:
        """Open one table by its name, without listing the others."""

    @abstractmethod
    def describe(self, index: Path) -> Description:
        """Describe where the source is, relative to an index folder if it is local."""

    def tables(self) -> Iterator[Table]:
        """List the tables, unread, in the order of the items."""
        self.skipped = []
        return unfold(self.items(), self.skipped)

    @property
    def folder(self) -> Path | None:
        """The local folder the user named, where the index goes by default."""
        return None

    @property
    def as_corpus(self) -> CorpusSource | None:
        """The source as a stream of columns, if it stores columns instead of tables."""
        return None

    @property
    def as_database(self) -> DatabaseSource | None:
        """The source as a database, if SQL can be run where the tables are."""
        return None

    def path(self, table: str) -> Path | None:
        """Return the local file that holds a table, or None if no single file does."""
        return None

    def column_names(self, table: str) -> Mapping[str, str]:
        """Map column ids to the names that `table` gives the columns, where these differ."""
        return {}

    def within(self, owner: Description, index: Path, settings: Settings) -> Source | None:
        """Return the same tables under the names of an indexed source that includes them all.

        None if the owner, given by its description, does not include them.
        """
        return None

    def apart(self) -> Source:
        """Return the same tables under longer names, which distinguish them from other sources'."""
        return self


def skipped_item(name: str, reason: str, passing: bool = False) -> Item:
    """List something that is passed over without looking into it."""
    listing = Listing.without_tables(name, reason, passing)
    return Item(name, f"skipped: {reason}", lambda: listing, is_passed_over=True, size=0)


def left_out(tables: int) -> str:
    """Give the reason why nothing of a source is left to read."""
    all_of_them = f"all {tables:,} tables" if tables > 1 else "its one table"
    return f"the patterns to include and exclude leave out {all_of_them}"


def digest_of(item: Item) -> str:
    """Hash the content of an item; '' where that cannot be done."""
    try:
        return item.digest() if item.digest else ""
    except OSError:  # reading its tables reports why
        return ""


def file_stamp(status: os.stat_result, with_status: bool = True) -> str:
    """Return the stamp of a file: its size, the time of its last change, and which file it is.

    Size and time may be those of another file that took its place, or be set by whoever wrote it;
    its number and the time of its last move or other change of status are the system's own.
    A file changed a moment ago has none: it may change again within the same tick of its clock.
    A time far in the future counts, or the file would be read again until then.
    The change of status is left out of a file whose status reading changes.
    """
    if -_SOON <= time.time_ns() - status.st_mtime_ns < _LATELY:
        return ""
    stamp = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return f"{stamp}-{status.st_ctime_ns}" if with_status else stamp


def file_digest(path: Location) -> str:
    """Hash the bytes of a file."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def group_stamp(stamps: Iterable[tuple[str, str]]) -> str:
    """Combine the names and stamps of several files; '' if one of them has no stamp."""
    digest, count = xxhash.xxh3_64(), 0
    for name, stamp in stamps:
        if not stamp:
            return ""
        digest.update(f"{name} {stamp}\n".encode())
        count += 1
    return f"{count}-{digest.hexdigest()}"


def group_digest(root: Path, names: Iterable[str]) -> str:
    """Hash the names and bytes of several files."""
    digest = xxhash.xxh3_128()
    for name in names:
        digest.update(f"{name} {file_digest(root / name)}\n".encode())
    return digest.hexdigest()


def relative(path: Path, index: Path) -> str:
    """Write a path relative to an index folder, so that both can move together."""
    return Path(os.path.relpath(path.resolve(), index.resolve())).as_posix()


def tables_gone(folder: Path) -> DeepJoinError:
    """Make the error for an index whose tables are no longer where they were."""
    return DeepJoinError(
        f"The tables of this index were in {folder}, which is gone. "
        "Searches still work; to join, put the folder back or index it again."
    )


def without_sheets(name: str) -> Iterator[str]:
    """Yield the file names that a table's name may begin with: all of it, or up to a # in it.

    >>> list(without_sheets("a#b.xlsx#Sheet"))
    ['a#b.xlsx#Sheet', 'a#b.xlsx', 'a']
    """
    yield name
    yield from (name[:at] for at in range(len(name) - 1, 0, -1) if name[at] == "#")


def table_in(tables: Sequence[Table], name: str, file: str, place: str) -> Table:
    """Pick a table of a file by its name; a file of one table also answers to its own name."""
    for table in tables:
        if table.name == name or (len(tables) == 1 and name == file):
            return table
    raise unknown_name("table", name, place, [table.name for table in tables])


def unfold(items: Iterable[Item], skipped: list[Skipped]) -> Iterator[Table]:
    """Yield the tables of all items; what they pass over goes to the list ``skipped``."""
    for item in items:
        listing = item.listing()
        skipped.extend(listing.skipped)
        yield from listing.tables
