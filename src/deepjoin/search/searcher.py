"""The frame of every search: a method ranks columns, and the best of them become hits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Lock
from time import perf_counter

from deepjoin.model import Column, Results
from deepjoin.search.query import SearchOptions
from deepjoin.search.ranking import Ranking

#: How many matched and unmatched cells a hit lists by default.
SHOWN = 20
#: Searchers kept by a lake: callers choose tau, and each tau has a searcher.
_KEPT = 16


class Stopwatch:
    """Measures the steps of a search: each lap is the time since the one before."""

    def __init__(self) -> None:
        self._started = self._before = perf_counter()
        self._seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """End a step."""
        now = perf_counter()
        self._seconds[step] = now - self._before
        self._before = now

    def stop(self, step: str) -> dict[str, float]:
        """End the last step and return the seconds of all, and the total."""
        self.lap(step)
        self._seconds["total"] = self._before - self._started
        return self._seconds


class Searcher(ABC):
    """A search method over the segments of a lake; threads share it."""

    def search(
        self,
        query: Column,
        k: int | None,
        *,
        exclude_table: str | None = None,
        min_joinability: float = 0.0,
        show: int | None = SHOWN,
    ) -> Results:
        """Return the best k columns, or all; columns that share nothing are never among them."""
        watch = Stopwatch()
        options = SearchOptions(k, min_joinability, exclude_table)
        ranking = self._ranking(watch, query, options)
        hits = ranking.hits(range(len(ranking.places)), show)
        return Results(ranking.query.described(), tuple(hits), watch.stop("verify"))

    def search_tables(
        self,
        query: Column,
        k: int | None,
        *,
        exclude_table: str | None = None,
        min_joinability: float = 0.0,
        show: int | None = SHOWN,
    ) -> Results:
        """Return the best column of each of the best k tables, with the table's other columns."""
        watch = Stopwatch()
        options = SearchOptions(None, min_joinability, exclude_table)
        # All columns are ranked, since the best of a table may be far down the list.
        ranking = self._table_ranking(watch, query, options, k)
        tables: dict[tuple[int, int], list[int]] = {}
        for place, (segment, column) in enumerate(ranking.places):
            owner = id(segment), int(segment.catalog.column_tables[column])
            if owner in tables or k is None or len(tables) < k:
                tables.setdefault(owner, []).append(place)
        hits = iter(ranking.hits([place for of in tables.values() for place in of], show))
        grouped = [[next(hits) for _ in of] for of in tables.values()]
        best = [replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(grouped, 1)]
        return Results(ranking.query.described(), tuple(best), watch.stop("verify"))

    @abstractmethod
    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        """Rank the columns of the lake; laps are "encode" and "candidates"."""

    def _table_ranking(
        self, watch: Stopwatch, query: Column, options: SearchOptions, tables: int | None
    ) -> Ranking:
        """Rank as many columns as it takes to find the best tables: here, all."""
        return self._ranking(watch, query, options)


class _Place:
    """Where one searcher goes; threads that want it while it is being made wait for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.searcher: Searcher | None = None


class SearcherCache:
    """The searchers used last, each made once and shared by all threads of an open lake."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._lock = Lock()
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Searcher]) -> Searcher:
        """Return the searcher of a key, or make it; one that fails is tried again next time."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
        # Made outside the common lock: loading an encoder may take seconds.
        with place.lock:
            if place.searcher is None:
                place.searcher = make()
            return place.searcher
