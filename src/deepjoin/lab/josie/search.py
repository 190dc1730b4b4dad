"""The method of JOSIE as published, for comparison: it finds what exact-equi finds.

Lists are read in batches, rarest first, alternating with promising sets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Int, Int32
from deepjoin.lab.josie.cost import Benefits, CostModel, ListCosts, estimate, fit
from deepjoin.lab.josie.index import CandidateCounter, SetIndex, TokenQuery, overlap_of, score_of
from deepjoin.search.candidates import Flags, Overlap, OverlapCounts
from deepjoin.search.context import SearchContext
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.store.segment import Segment

#: Lists read between two estimates, as in the paper's experiments.
BATCH = 20

_NONE = np.zeros(0, np.int64)


@dataclass
class ReadCounts:
    """What queries have read."""

    lists: int = 0
    postings: int = 0
    sets: int = 0
    #: Tokens of the sets that were read.
    tokens: int = 0

    def add(self, other: ReadCounts) -> None:
        """Add what another query or segment has read."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class BestSets(NamedTuple):
    """All sets no worse than the k-th by overlap and size, with exact overlaps."""

    sets: Int32
    overlaps: Int
    #: The score below which no set is among the best.
    least: int
    reading: ReadCounts


def score_from(overlap: int) -> int:
    """Return the least score of a set with this overlap."""
    return (overlap - 1 << 32) + 1


class Josie:
    """Finds the sets that share the most tokens with a query."""

    def __init__(self, index: SetIndex, costs: CostModel, batch: int = BATCH) -> None:
        self.index, self.costs, self.batch = index, costs, batch
        # Concurrent searches use one array each; list.pop is atomic.
        self._free: list[Int32] = []

    def search(
        self, values: Int, k: int | None, least: int = score_from(1), ignored: Int = _NONE
    ) -> BestSets:
        """Find the best k sets and all ties with the last, or all with a least score.

        ``values`` are distinct numbers of values; the sets in ``ignored`` are left out.
        """
        query = self.index.query(values)
        slots = self._free.pop() if self._free else np.zeros(len(self.index.sizes), np.int32)
        capacity = min(int(query.lengths.sum()), len(slots))
        counter = CandidateCounter(slots, self.index.sizes, capacity, ignored)
        found = _JosieRun(self, query, counter, k, least).finished()
        counter.clear()
        self._free.append(slots)
        return found


@dataclass
class _TopScores:
    """The scores of the best k sets read so far."""

    k: int | None
    floor: int
    heap: list[int] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.k is not None and len(self.heap) == self.k

    @property
    def least(self) -> int:
        """The score below which no set can be among the best."""
        return max(self.floor, self.heap[0]) if self.full and self.heap else self.floor

    def push(self, score: int) -> None:
        if self.full:
            heapq.heappushpop(self.heap, score)
        else:
            heapq.heappush(self.heap, score)

    def with_overlap(self, overlap: int) -> int:
        """Return the overlap of the k-th best after adding a set with this overlap."""
        second = min((overlap_of(score) for score in self.heap[1:3]), default=overlap)
        return max(overlap_of(self.least), min(overlap, second))


class _JosieRun:
    """One query on its way through the lists."""

    def __init__(
        self, lake: Josie, query: TokenQuery, counter: CandidateCounter, k: int | None, least: int
    ) -> None:
        self._lake, self._query, self._counter = lake, query, counter
        self._top = _TopScores(k, least)
        self._reading = ReadCounts()
        self._lists = ListCosts(query, lake.costs)
        self._read: list[tuple[int, int]] = []
        # A set in no earlier list shares at most the tokens left, and is at least that large.
        self._unseen = score_of(query.left[:-1], query.left[:-1])

    def finished(self) -> BestSets:
        """Read until the overlap of every set that can be among the best is known."""
        query, counter, top = self._query, self._counter, self._top
        at = 0
        while at < len(query) and top.k != 0:
            counter.prune(int(query.left[at]), top.least)
            prefix = int(np.count_nonzero(self._unseen >= top.least))
            if at >= prefix and len(counter.rows) == 0:
                break
            # A batch ends with the prefix: from there on no set is new.
            end = prefix if at < prefix else len(query)
            stop = min(at + self._lake.batch, end)
            read = self._lake.index.read(query, at, stop)
            self._reading.lists += stop - at
            self._reading.postings += len(read.sets)
            counter.add(read, query, at, new=at < prefix)
            at = stop
            if at < len(query):
                self._probe(at)
        return self._found()

    def _probe(self, at: int) -> None:
        """Read sets, most promising first, while that is expected to beat reading lists."""
        top, query, lake = self._top, self._query, self._lake
        if top.k is None or not (top.full or len(self._counter.rows) >= top.k):
            return
        span = at, min(at + lake.batch, len(query))
        found = estimate(self._counter, query, span, lake.batch, lake.costs)
        promising = np.flatnonzero(found.overlap >= overlap_of(top.least) + top.full)
        best_first = np.lexsort((found.cost[promising], -found.overlap[promising]))
        if len(promising) == 0:
            return
        benefits = Benefits(found, self._lists, span)
        for place in promising[best_first].tolist():
            overlap, kth = int(found.overlap[place]), overlap_of(top.least)
            if top.full:
                gain = benefits.probe(kth, top.with_overlap(overlap)) - found.cost[place]
                if overlap <= kth or gain < benefits.lists(kth) - benefits.lists_cost:
                    break
            self._read_set(int(found.rows[place]), at)
            benefits.forget(place)

    def _read_set(self, row: int, at: int) -> None:
        """Count the tokens a set shares with the rest of the query, after its latest match."""
        counter, index = self._counter, self._lake.index
        position = int(counter.latest[row]) + 1
        number = counter.take(row)
        rest = self._query.tokens[len(self._query.tokens) - int(self._query.left[at]) :]
        size, overlap = int(index.sizes[number]), int(counter.partial[row])
        if position < size:
            overlap += index.shared(number, position, rest)
            self._reading.sets += 1
            self._reading.tokens += size - position
        self._read.append((number, overlap))
        self._top.push((overlap << 32) - size)

    def _found(self) -> BestSets:
        """Combine the sets that were read with those counted in all lists."""
        counter, k = self._counter, self._top.k
        counter.prune(0, self._top.least)
        read = np.array(self._read, np.int64).reshape(-1, 2)
        sets = np.concatenate([read[:, 0].astype(np.int32), counter.sets[counter.rows]])
        overlaps = np.concatenate([read[:, 1], counter.partial[counter.rows]])
        scores = score_of(overlaps, self._lake.index.sizes[sets])
        least = self._top.least
        if k and len(scores) >= k:
            least = max(least, int(np.partition(scores, -k)[-k]))
        best = scores >= least
        return BestSets(sets[best], overlaps[best], least, self._reading)


def josie(context: SearchContext, join: str, tau: float | None) -> JosieSearch:
    """Search by prefix and position filters and a cost model, fitted when this is opened."""
    return JosieSearch(context.segments, context.profile, context.key)


class JosieSearch(EquiSearch):
    """Ranks as exact-equi does; its sets and lists are built again, in memory."""

    found_by = "josie"

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        costs: Callable[[SetIndex], CostModel] = fit,
        batch: int = BATCH,
    ) -> None:
        super().__init__(segments, profile, key)
        self.lakes = [_lake(segment, costs, batch) for segment in self._segments]
        #: What the latest query has read; not safe for several threads.
        self.reading = ReadCounts()

    def _overlaps(self, query: SearchQuery) -> Iterator[Overlap]:
        running = _Running()
        self.reading = running.reading
        # The k-th score of earlier segments bounds later ones, so they read less.
        for segment, lake in zip(self._segments, self.lakes, strict=True):
            if len(query.values_in(segment).known):
                yield _JosieOverlap(segment, query, lake, running)


def _lake(segment: Segment, costs: Callable[[SetIndex], CostModel], batch: int) -> Josie:
    values = segment.values
    offsets, cells = np.asarray(values.column_offsets), np.asarray(values.cell_values)
    index = SetIndex.of(offsets, cells, segment.dead)
    return Josie(index, costs(index), batch)


@dataclass
class _Running:
    """The k-th best score over the segments searched so far, which bounds the next ones."""

    least: int = score_from(1)
    reading: ReadCounts = field(default_factory=ReadCounts)


class _JosieOverlap(Overlap):
    """The query's values in one segment, whose candidates JOSIE finds."""

    def __init__(
        self, segment: Segment, query: SearchQuery, lake: Josie, running: _Running
    ) -> None:
        super().__init__(segment, query)
        self._size, self._lake, self._running = len(query), lake, running

    def candidates(self, options: SearchOptions, demoted: Flags | None) -> OverlapCounts:
        """Ask JOSIE for the best columns, or for all that reach the threshold."""
        catalog = self.segment.catalog
        own = None if options.exclude is None else catalog.find_table(options.exclude)
        ignored = [] if own is None else catalog.columns_of(own)
        # A little less, because the division that decides may round up.
        least = score_from(max(1, ceil(options.threshold * self._size * (1 - 1e-9))))
        found = self._lake.search(
            self.values.numbers[self.values.known],
            options.columns,
            max(least, self._running.least),
            np.asarray(ignored, np.int64),
        )
        self._running.reading.add(found.reading)
        if options.columns is not None:
            self._running.least = found.least
        return OverlapCounts(found.sets, found.overlaps)
