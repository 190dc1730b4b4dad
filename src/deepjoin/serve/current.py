"""The lake as it is now, for what serves it: work that runs keeps the one it started with."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from deepjoin.errors import DeepJoinError, IndexUnusable, StoreUnusable, UnknownName
from deepjoin.lake import Lake
from deepjoin.model import SearchMethod
from deepjoin.search.methods import served_methods
from deepjoin.store.directory import Directory
from deepjoin.store.manifest import MANIFEST

Done = TypeVar("Done")

_LOG = logging.getLogger("deepjoin.lake")
#: How often, in seconds, a folder is looked at, and how often a bucket.
_EVERY, _EVERY_REMOTE = 1.0, 60.0
#: Comparing a misspelt name with more tables would keep others waiting.
_MANY = 10_000


@dataclass(frozen=True)
class Opened:
    """One state of the lake, and the names in it."""

    lake: Lake
    #: How a client finds a table by a part of its name.
    finder: str = ""

    def check_table(self, name: str) -> None:
        """Refuse a table that a large lake does not have; a small one names the nearest itself."""
        if self.lake.report.tables > _MANY and name not in self.lake:
            raise UnknownName(
                f"No table '{name}' among {self.lake.report.tables:,}. Find it by a part of its "
                f"name: {self.finder}"
            )

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
        """The names, put in order when first asked for."""
        return Directory(self.lake.index)


class CurrentLake:
    """Holds an open lake and moves on to a newer one when there is one, ready to answer."""

    def __init__(self, lake: Lake, *, finder: str = "", every: float = _EVERY) -> None:
        self._lock = Lock()
        self._every = _EVERY_REMOTE if lake.index.url else every
        self._looked = monotonic()
        # None: the first look is a whole one, as the index may have changed since it was opened.
        self._stamp: tuple[int, ...] | None = None
        self._told = ""
        #: How often a newer lake took the place of the one before.
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

    def use(self, work: Callable[[Opened], Done]) -> Done:
        """Do something with the lake; again with the newer one if its files have gone."""
        opened = self._opened
        try:
            return work(opened)
        except IndexUnusable:
            self.renew()
            if self._opened is opened:  # nor has another thread found a newer one
                raise
            return work(self._opened)

    def is_due(self) -> bool:
        """Tell, cheaply, whether there may be something newer; True at most once in a while."""
        if monotonic() - self._looked < self._every:
            return False
        self._looked = monotonic()
        return bool(self.lake.index.url) or _stamp(self.lake) != self._stamp

    def renew(self) -> bool:
        """Open the lake as it is now and let new requests have it; False if it is the same."""
        with self._lock:
            before, stamp = self.lake, _stamp(self.lake)
            try:
                lake = before.renewed()
                if lake is not before:
                    warm(lake)
            except DeepJoinError as error:
                # Tried again when it is another; what a store lacks may come to it by itself.
                self._stamp = None if isinstance(error, StoreUnusable) else stamp
                self._tell(f"The newer index cannot be opened; the old one serves on: {error}")
                return False
            self._stamp, self._told = stamp, ""
            if lake is before:
                return False
            self._opened = replace(self._opened, lake=lake)
            self.renewals += 1
            return True

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            _LOG.warning("%s", problem)
        self._told = problem


def warm(lake: Lake) -> None:
    """Load what the first search would have to wait for, by searches for nothing."""
    for join in ("equi", "any"):
        lake.search(["deepjoin"], 0, join=join)


def _stamp(lake: Lake) -> tuple[int, ...]:
    """Tell one manifest file from another without reading it."""
    try:
        found = os.stat(lake.path / MANIFEST)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
