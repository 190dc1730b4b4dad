"""The current lake of a server: new requests get the newest index, running ones keep theirs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from deepjoin.errors import DeepJoinError, IndexUnusable, StoreUnusable, UnknownName
from deepjoin.lake import Lake
from deepjoin.lazy import cached_property
from deepjoin.model import Column, SearchMethod
from deepjoin.read.frames import columns_by_name, read_columns
from deepjoin.search.methods import served_methods
from deepjoin.store.directory import Directory
from deepjoin.store.manifest import MANIFEST, SEGMENTS, damaged

Done = TypeVar("Done")

_LOG = logging.getLogger("deepjoin.lake")
#: Seconds between checks of a folder, and of a bucket.
_EVERY, _EVERY_REMOTE = 1.0, 60.0
#: Seconds between two looks at the sizes of the mapped files, 50 microseconds each.
_MEASURED = 0.1
#: With more tables, finding the nearest name to a misspelt one would hold up other requests.
_MANY = 10_000


@dataclass(frozen=True)
class Opened:
    """One state of the lake, and the names in it."""

    lake: Lake
    #: How a client finds a table by part of its name.
    finder: str = ""

    def check_table(self, name: str) -> None:
        """Refuse an unknown table of a large lake; small lakes also name the nearest one."""
        if self.lake.report.tables > _MANY and name not in self.lake:
            raise UnknownName(
                f"No table '{name}' among {self.lake.report.tables:,}. Find it by part of its "
                f"name: {self.finder}"
            )

    def columns(self, table: str, on: str | Sequence[str] | None) -> list[Column]:
        """Read columns of a table to search with: one, several that are one key, or all."""
        self.check_table(table)
        index = self.lake.index
        if on is not None and not isinstance(on, str):
            return columns_by_name(read_columns(index.origin(table).table()), on, table)
        names = index.indexed_columns(table) if on is None else [on]
        if not names:
            raise DeepJoinError(f"No column of {table} is indexed.")
        return [index.column(table, name) for name in names]

    def files(self, tables: Iterable[str]) -> dict[Path, str]:
        """Map the local files of tables to the names that clients know them by."""
        found = {name: self.lake.index.origin(name).path() for name in tables}
        return {path: name for name, path in found.items() if path is not None}

    @cached_property
    def info(self) -> dict[str, Any]:
        """The lake in numbers."""
        return self.lake.info()

    @cached_property
    def methods(self) -> list[SearchMethod]:
        """The methods it can be searched with."""
        return served_methods(self.lake.context())

    @cached_property
    def directory(self) -> Directory:
        """The names, sorted on first use."""
        return Directory(self.lake.index)


class CurrentLake:
    """Holds an open lake, and replaces it by a newer one once that is ready to answer."""

    def __init__(self, lake: Lake, *, finder: str = "", every: float = _EVERY) -> None:
        self._lock = Lock()
        self._every = _EVERY_REMOTE if lake.index.url else every
        self._looked, self._measured = monotonic(), float("-inf")
        # None, because the index may have changed between being opened and the first check.
        self._stamp: tuple[int, ...] | None = None
        self._warned = ""
        #: How often a newer index was adopted.
        self.renewals = 0
        self._opened = Opened(lake, finder)
        if lake.store_problem:
            _LOG.warning(
                "%s Methods with column vectors fail until it answers.", lake.store_problem
            )

    @property
    def opened(self) -> Opened:
        """The newest state that is ready."""
        return self._opened

    @property
    def lake(self) -> Lake:
        """The newest lake that is ready."""
        return self._opened.lake

    @property
    def state(self) -> str:
        """Whether the index that is served is "current", "old", or "gone" from the disk."""
        if not self.lake.index.url and not _stamp(self.lake):
            return "gone"
        return "old" if self._warned else "current"

    def use(self, work: Callable[[Opened], Done]) -> Done:
        """Run work on the lake; run it again on the newer one if the files have disappeared."""
        opened = self._opened
        try:
            self.check_files()
            return work(opened)
        except IndexUnusable:
            self.renew()
            if self._opened is opened:  # no other thread found a newer one either
                raise
            return work(self._opened)

    def check_files(self) -> None:
        """Raise if a mapped file is shorter than it was: reading beyond its end kills a process.

        A file that is gone does no harm while it is mapped.
        """
        if monotonic() - self._measured < _MEASURED:
            return
        index = self.lake.index
        for record in index.records:
            for name, (size, _) in record.files.items():
                with suppress(FileNotFoundError):
                    found = os.stat(index.path / SEGMENTS / record.name / name).st_size
                    if found < size:
                        raise damaged(
                            index.location,
                            f"{record.name}/{name} has {found} bytes where {size} were written",
                        )
        self._measured = monotonic()

    def is_due(self) -> bool:
        """Check cheaply whether there may be a newer index; True at most once per interval."""
        if monotonic() - self._looked < self._every:
            return False
        self._looked = monotonic()
        return bool(self.lake.index.url) or _stamp(self.lake) != self._stamp

    def renew(self) -> bool:
        """Open the newest index for new requests; return False if it has not changed."""
        with self._lock:
            before, stamp = self.lake, _stamp(self.lake)
            try:
                lake = before.renewed()
                if lake is not before:
                    warm(lake)
            except DeepJoinError as error:
                # Tried again once the manifest changes; a vector store may recover without that.
                self._stamp = None if isinstance(error, StoreUnusable) else stamp
                problem = f"The newer index cannot be opened; the old one is still served: {error}"
                if problem != self._warned:  # not again every second
                    _LOG.warning("%s", problem)
                self._warned = problem
                return False
            self._stamp, self._warned = stamp, ""
            if lake is before:
                return False
            self._opened = replace(self._opened, lake=lake)
            self.renewals += 1
            return True


def warm(lake: Lake) -> None:
    """Load what the first search would otherwise wait for, by searching for a value of the lake."""
    values = lake.index.segments[0].values.values
    # Found by itself, so that nothing else is compared with all values of the lake.
    some = [values[0]] if len(values) else ["deepjoin"]
    for join in ("equi", "any"):
        lake.search(some, 1, join=join)


def _stamp(lake: Lake) -> tuple[int, ...]:
    """Identify a version of the manifest file without reading it."""
    try:
        found = os.stat(lake.path / MANIFEST)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
