"""Whether to read sets or lists next: what each is expected to cost and to save."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.lab.josie.cost import CostModel
from deepjoin.lab.josie.counter import Counter
from deepjoin.lab.josie.index import Asked

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


class Estimates(NamedTuple):
    """Of each candidate seen for long enough: its overlap, and what reading its set costs."""

    rows: Int
    #: What it can reach at most now, and at most after the next lists.
    bound: Int
    next_bound: Int
    overlap: Int
    cost: Float
    #: What the next lists save of its cost, though it stays a candidate.
    saved: Float


def estimate(
    counter: Counter, asked: Asked, span: tuple[int, int], batch: int, costs: CostModel
) -> Estimates:
    """Estimate from the rate of matches so far, with the lists up to ``span`` read or to be."""
    total = len(asked.tokens)
    position, ahead = (total - int(asked.left[place]) for place in span)
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
    """What the lists of a query cost, from the first list on, and up to any k-th overlap."""

    def __init__(self, asked: Asked, costs: CostModel) -> None:
        self.until: Float = np.append(0.0, np.cumsum(costs.lists(asked.lengths)))
        overlaps = np.arange(len(asked.tokens) + 2)
        # A set that shares so many tokens is in one of the lists with as many left.
        self.needed: Int = len(asked) - np.searchsorted(asked.left[-2::-1], overlaps)


class Benefits:
    """What is saved, for every overlap that the k-th best may have.

    Tables by that overlap make the estimate for a candidate a look-up, where adding up over all
    others each time would be quadratic.
    """

    def __init__(self, found: Estimates, lists: ListCosts, span: tuple[int, int]) -> None:
        self._found = found
        count = len(lists.needed)
        at_stake = np.bincount(found.bound + 1, found.cost, count)
        self._out_of_reach: Float = np.cumsum(at_stake)
        steps = np.bincount(found.next_bound + 1, found.cost - found.saved, count) - at_stake
        steps[0] += found.saved.sum()
        self._by_lists: Float = np.cumsum(steps)
        start, stop = span
        #: What the lists of the next batch cost.
        self.lists_cost = float(lists.until[stop] - lists.until[start])
        self._prefix: Float = lists.until[np.maximum(lists.needed, start)]

    def lists(self, kth: int) -> float:
        """Estimate what the next lists save: candidates fall, or have less left to read."""
        return float(self._by_lists[kth])

    def probe(self, kth: int, then: int) -> float:
        """Estimate what a better k-th saves: lists that need not be read, and candidates."""
        lists = self._prefix[kth] - self._prefix[then]
        return float(lists + self._out_of_reach[then] - self._out_of_reach[kth])

    def forget(self, place: int) -> None:
        """Leave out a candidate that was read."""
        found = self._found
        bound, next_bound = int(found.bound[place]), int(found.next_bound[place])
        cost, saved = found.cost[place], found.saved[place]
        self._out_of_reach[bound + 1 :] -= cost
        self._by_lists[: bound + 1] -= saved
        self._by_lists[next_bound + 1 : bound + 1] -= cost - saved
