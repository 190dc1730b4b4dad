"""The method of JOSIE as published, for comparison: it finds what exact-equi finds.

Lists are read in batches, rarest first, alternating with promising sets; a cost model, fitted to
what reading costs here, decides which comes next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Integers
from deepjoin.lab.josie_index import CandidateCounter, SetIndex, TokenQuery, overlap_of, score_of
from deepjoin.search.candidates import Flags, Overlap, OverlapCounts
from deepjoin.search.context import SearchContext
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.store.segment import Segment

_POINTS, _REPEATS = 8, 3
_LISTS, _SETS, _TOKENS = 20, 10, 100
#: Lists read between two estimates, as in the paper's experiments.
BATCH = 20
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class CostModel:
    """Seconds for each list and posting, set and token: the paper's two linear models."""

    per_list: float
    per_posting: float
    per_set: float
    per_token: float

    def lists(self, lengths: Int) -> Double:
        """Estimate the seconds to read lists."""
        return self.per_list + self.per_posting * lengths.astype(np.float64)

    def sets(self, lengths: Integers) -> Double:
        """Estimate the seconds to read the rest of sets; an empty rest is not read."""
        return np.where(lengths > 0, self.per_set + self.per_token * lengths, 0.0)


def fit(index: SetIndex) -> CostModel:
    """Time lists and sets of many lengths, and fit both models by least squares."""
    lists = [_timed_lists(index, groups) for groups in _spread(np.diff(index.list_offsets), _LISTS)]
    # A sample of all tokens as a query: which tokens these are does not affect the time.
    tokens = np.sort(index.set_tokens[:: max(1, len(index.set_tokens) // _TOKENS)])
    sets = [_timed_sets(index, numbers, tokens) for numbers in _spread(index.sizes, _SETS)]
    return CostModel(*_line(lists), *_line(sets))


def _spread(lengths: Integers, count: int) -> list[Int]:
    """Choose groups of similar length, from the shortest to the longest, in equal ratios."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    if len(order) == 0:
        return []
    # Lengths of lists are skewed: equal steps would time long lists only.
    wanted = np.geomspace(1, lengths[order[-1]], _POINTS)
    starts = np.searchsorted(lengths[order], wanted)
    starts = np.unique(np.minimum(starts, max(0, len(order) - count)))
    return [np.sort(order[start : start + count]) for start in starts.tolist()]


def _timed_lists(index: SetIndex, groups: Int) -> tuple[int, int, float]:
    """Time reading and counting a batch of lists."""
    lengths = index.list_offsets[groups + 1] - index.list_offsets[groups]
    starts = np.arange(len(groups))
    tokens = index.firsts[groups]
    left = len(groups) - np.arange(len(groups) + 1)
    query = TokenQuery(tokens, groups, tokens, np.ones_like(starts), starts, lengths, left)
    slots = np.zeros(len(index.sizes), np.int32)

    def read() -> None:
        counter = CandidateCounter(slots, index.sizes, int(lengths.sum()), np.zeros(0, np.int64))
        counter.add(index.read(query, 0, len(query)), query, 0, new=True)
        counter.clear()

    return len(groups), int(lengths.sum()), _fastest(read)


def _timed_sets(index: SetIndex, numbers: Int, tokens: Int32) -> tuple[int, int, float]:
    """Time reading some sets."""

    def read() -> None:
        for number in numbers.tolist():
            index.shared(number, 0, tokens)

    return len(numbers), int(index.sizes[numbers].sum()), _fastest(read)


def _fastest(read: Callable[[], None]) -> float:
    """Return the fastest of a few runs; other load on the machine only adds time."""
    times = []
    for _ in range(_REPEATS):
        started = perf_counter()
        read()
        times.append(perf_counter() - started)
    return max(min(times), 1e-9)


def _line(measured: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """Fit seconds = a * count + b * entries by relative errors."""
    if not measured:
        return 0.0, 0.0
    count, entries, seconds = np.array(measured, np.float64).T
    sides = np.stack([count, entries], axis=1) / seconds[:, None]
    found, *_ = np.linalg.lstsq(sides, np.ones(len(sides)))
    each, entry = np.maximum(found, 0.0).tolist()
    return each, entry


class Estimates(NamedTuple):
    """Estimates for candidates seen long enough: their overlap, and the cost of their sets."""

    rows: Int
    #: The largest possible overlap now, and after the next lists.
    bound: Int
    next_bound: Int
    overlap: Int
    cost: Double
    #: What the next lists save of that cost if it stays a candidate.
    saved: Double


def estimate(
    counter: CandidateCounter,
    query: TokenQuery,
    span: tuple[int, int],
    batch: int,
    costs: CostModel,
) -> Estimates:
    """Extrapolate the rate of matches so far; ``span`` is the next batch of lists."""
    total = len(query.tokens)
    position, ahead = (total - int(query.left[place]) for place in span)
    rows = counter.rows[position - counter.first_in_query[counter.rows] >= batch]
    partial, latest = counter.partial[rows], counter.latest[rows]
    first, sizes = counter.first_in_query[rows], counter.sizes(rows)
    bound = counter.bounds(rows, total - position)
    rate = partial / (position - first)
    overlap = np.minimum((rate * (total - first)).astype(np.int64), bound)
    cut = (ahead - position) / (total - first) * (sizes - counter.first_position[rows])
    after = np.maximum(sizes - latest - 1 - cut.astype(np.int64), 0)
    more = (rate * (ahead - position)).astype(np.int64)
    next_bound = np.minimum(partial + more + np.minimum(total - ahead, after), bound)
    cost = costs.sets(sizes - latest - 1)
    return Estimates(rows, bound, next_bound, overlap, cost, cost - costs.sets(after))


class ListCosts:
    """Cumulative cost of the lists of a query, and the lists needed for each k-th overlap."""

    def __init__(self, query: TokenQuery, costs: CostModel) -> None:
        self.until: Double = np.append(0.0, np.cumsum(costs.lists(query.lengths)))
        overlaps = np.arange(len(query.tokens) + 2)
        # A set with this overlap is in a list that has as many tokens left.
        self.needed: Int = len(query) - np.searchsorted(query.left[-2::-1], overlaps)


class Benefits:
    """What reading saves, for every possible overlap of the k-th best set.

    Tables by that overlap make the estimate for a candidate a look-up; summing over all other
    candidates each time would be quadratic.
    """

    def __init__(self, found: Estimates, lists: ListCosts, span: tuple[int, int]) -> None:
        self._found = found
        count = len(lists.needed)
        at_stake = np.bincount(found.bound + 1, found.cost, count)
        self._out_of_reach: Double = np.cumsum(at_stake)
        steps = np.bincount(found.next_bound + 1, found.cost - found.saved, count) - at_stake
        steps[0] += found.saved.sum()
        self._by_lists: Double = np.cumsum(steps)
        start, stop = span
        #: The cost of the next batch of lists.
        self.lists_cost = float(lists.until[stop] - lists.until[start])
        self._prefix: Double = lists.until[np.maximum(lists.needed, start)]

    def lists(self, kth: int) -> float:
        """Estimate what the next lists save: candidates are dropped or have less left to read."""
        return float(self._by_lists[kth])

    def probe(self, kth: int, then: int) -> float:
        """Estimate what a better k-th overlap saves: lists not read and candidates dropped."""
        lists = self._prefix[kth] - self._prefix[then]
        return float(lists + self._out_of_reach[then] - self._out_of_reach[kth])

    def forget(self, place: int) -> None:
        """Remove a candidate whose set was read."""
        found = self._found
        bound, next_bound = int(found.bound[place]), int(found.next_bound[place])
        cost, saved = found.cost[place], found.saved[place]
        self._out_of_reach[bound + 1 :] -= cost
        self._by_lists[: bound + 1] -= saved
        self._by_lists[next_bound + 1 : bound + 1] -= cost - saved


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
