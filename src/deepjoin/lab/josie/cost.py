"""The cost model of JOSIE: what reading costs here, and whether to read sets or lists next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Integers
from deepjoin.lab.josie.index import CandidateCounter, SetIndex, TokenQuery

_POINTS, _REPEATS = 8, 3
_LISTS, _SETS, _TOKENS = 20, 10, 100


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
