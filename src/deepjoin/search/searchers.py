"""Searchers of an open lake, each made once and shared by all threads that search it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from deepjoin.search.base import Searching

#: Those used longest ago are given up: callers choose tau, and each one has a searcher.
_MOST = 16


class _Place:
    """Where one searcher goes; who comes while it is being made waits for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.searcher: Searching | None = None


class Searchers:
    """The searchers used last, by what they were made for."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def get(self, asked: Hashable, make: Callable[[], Searching]) -> Searching:
        """Return the searcher made for this before, or make it; one that fails is tried again."""
        with self._lock:
            place = self._places.setdefault(asked, _Place())
            self._places.move_to_end(asked)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
        with place.lock:
            if place.searcher is None:
                place.searcher = make()
            return place.searcher
