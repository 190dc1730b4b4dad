"""The frame of every search: a method ranks columns, and the best of them become hits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import compress
from operator import not_
from threading import Lock
from time import perf_counter

from deepjoin.model import Column, Hit, Partial, Results
from deepjoin.search.likely import spelled, with_decision
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.ranking import Ranking

#: Searchers kept by a lake: callers choose tau, and each tau has a searcher.
_KEPT = 16
#: Numbers found in a much longer column of numbers, below this share of it, are a coincidence.
_COINCIDENCE = 0.1
#: Hits with a smaller chance do not fill a page: those of any column, and of one whose characters
#: are digits from this share on, which meets others by chance.
_UNLIKELY, _UNLIKELY_NUMBERS, _NUMBERS = 0.05, 0.15, 0.3
#: A hit covers most of a column from this share on.
_MOST = 0.5
#: So few values are found in many columns; a lake does not index such columns either.
_FEW = 5


class Stopwatch:
    """Measures the steps of a search: each lap is the time since the one before.

    A step that comes several times has the sum.
    """

    def __init__(self) -> None:
        self._started = self._before = perf_counter()
        self._seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """End a step."""
        now = perf_counter()
        self._seconds[step] = self._seconds.get(step, 0.0) + now - self._before
        self._before = now

    def stop(self, step: str) -> dict[str, float]:
        """End a step and return the seconds of all so far, and the total."""
        self.lap(step)
        return self._seconds | {"total": self._before - self._started}


class Searcher(ABC):
    """A search method over the segments of a lake; threads share it."""

    def search(self, query: Column, options: SearchOptions) -> Results:
        """Return the best columns or tables; columns that share nothing are never among them."""
        *_, last = self.stages(query, options)
        return last

    def stages(self, query: Column, options: SearchOptions) -> Iterator[Results]:
        """Search, and return an answer whenever there is a better one; the last is the answer.

        Only with ``in_stages`` or a deadline are there others than the last.
        """
        watch = Stopwatch()
        for ranking in self._rankings(watch, query, options):
            hits = tuple(_hits(ranking, options))
            if decided := options.decided(query):
                hits = tuple(with_decision(hit, decided) for hit in hits)
            is_weighed = ranking.is_by_chance and bool(query.name)
            hits, unlikely = set_apart(hits, options, _least(ranking.query) if is_weighed else 0)
            seconds = watch.stop("verify")
            ranking.query.reading = partial(_measuring, seconds, options)
            described = ranking.query.described()
            yield Results(described, hits, seconds, ranking.partial, unlikely=unlikely)

    def _rankings(
        self, watch: Stopwatch, query: Column, options: SearchOptions
    ) -> Iterator[Ranking]:
        """Rank the columns of the lake, better each time; here once."""
        yield self._ranking(watch, query, options)

    @abstractmethod
    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        """Rank the columns of the lake; laps are "encode" and "candidates"."""


def set_apart(
    hits: Sequence[Hit], options: SearchOptions, usual: float
) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Separate the hits that a person would hardly make a join of.

    ``usual`` is the least chance where the caller names none; 0 if nothing is separated then. Of a
    list with room left only hits without a match are.
    """
    least = options.least
    if least == 0 or (least is None and (not usual or options.threshold > 0)):
        return tuple(hits), ()
    if least is not None:
        likely = [hit.probability >= least for hit in hits]
    else:
        is_full = len(hits) == options.k
        likely = [_is_likely(hit, usual) or bool(hit.matched and not is_full) for hit in hits]
    return tuple(compress(hits, likely)), tuple(compress(hits, map(not_, likely)))


def _least(query: SearchQuery) -> float:
    """Return the least chance of hits that are worth a place, for a query with a name."""
    _, digits = spelled(query.cells.values)
    return _UNLIKELY_NUMBERS if digits >= _NUMBERS else _UNLIKELY


def _is_likely(hit: Hit, least: float) -> bool:
    """Whether a hit is worth a place; one that covers little of both columns has to be likelier."""
    covers_much = max(hit.joinability, hit.reverse) >= _MOST
    return hit.probability >= (least if covers_much else 2 * least)


@contextmanager
def _measuring(seconds: dict[str, float], options: SearchOptions) -> Iterator[None]:
    """Measure evidence that is read after the search; its time is added to the answer's."""
    started = perf_counter()
    with options.reading():
        yield
    took = perf_counter() - started
    for step in ("verify", "total"):
        seconds[step] += took


def _hits(ranking: Ranking, options: SearchOptions) -> list[Hit]:
    """Make hits of the ranked columns, or of the best k tables: each by its best column."""
    if not options.by_table:
        return ranking.hits(range(len(ranking.places)), options.show)
    tables: dict[tuple[int, int], list[int]] = {}
    for place, (segment, column) in enumerate(ranking.places):
        owner = id(segment), int(segment.catalog.column_tables[column])
        if owner in tables or options.k is None or len(tables) < options.k:
            tables.setdefault(owner, []).append(place)
    hits = iter(ranking.hits([place for of in tables.values() for place in of], options.show))
    grouped = [[next(hits) for _ in of] for of in tables.values()]
    return [replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(grouped, 1)]


def search_columns(
    searcher: Searcher, columns: Sequence[Column], options: SearchOptions
) -> Iterator[Results]:
    """Search with one column, or with all columns of a table: equal cells of each come first.

    Of several columns, the answer is that of the best key; it has the others with it. Columns are
    completed best first, since a time limit may leave out the last ones.
    """
    several, running = len(columns) > 1, []
    for column in columns:
        own = options
        if options.exclude is None and column.table is not None:
            own = replace(own, exclude=column.table)
        running.append(searcher.stages(column, replace(own, in_stages=True) if several else own))
    if not several:
        yield from running[0]
        return
    answers = [next(one) for one in running]
    order = sorted(range(len(columns)), key=lambda n: _rank_as_key(answers[n]), reverse=True)
    for number in order:
        if answers[number].partial is not None:
            yield _together(answers)
            for better in running[number]:
                answers[number] = better
    yield _together(answers)


def _together(answers: Sequence[Results]) -> Results:
    """Return the answer of the best key with those of the other columns."""
    best, *others = sorted(answers, key=_rank_as_key, reverse=True)
    done, total = sum(one.partial is None for one in answers), len(answers)
    text = f"similar values of {done:,} of {total:,} columns were looked up"
    partial = Partial(text, done, total) if done < total else None
    return replace(best, others=tuple(others), partial=partial)


def _rank_as_key(results: Results) -> tuple[bool, float, int]:
    """Rank columns of a table as keys: meaningful first, then by coverage, then by matches."""
    if not results.hits:
        return (False, 0.0, 0)
    best = results.hits[0]
    coincidence = best.type in ("integer", "decimal") and best.reverse < _COINCIDENCE
    few = results.query["size"] < _FEW
    return (not (best.generic or coincidence or few), best.joinability, best.matched)


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
