"""The search: lists in batches, rarest first, and in between the sets that promise most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.lab.josie.cost import CostModel
from deepjoin.lab.josie.counter import Counter, overlap_of, score_of
from deepjoin.lab.josie.estimate import Benefits, Estimates, ListCosts, estimate
from deepjoin.lab.josie.index import Asked, SetIndex

Int = npt.NDArray[np.int64]

#: How many lists are read between two looks at the candidates, as in the paper's experiments.
BATCH = 20

_NONE = np.zeros(0, np.int64)


@dataclass
class Reading:
    """What queries have read."""

    lists: int = 0
    postings: int = 0
    sets: int = 0
    #: Tokens of the sets that were read.
    tokens: int = 0

    def add(self, other: Reading) -> None:
        """Add what another query, or another segment, has read."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Found(NamedTuple):
    """All sets not worse than the k-th by overlap and size, with exact overlaps."""

    sets: npt.NDArray[np.int32]
    overlaps: Int
    #: The score below which no set is among the best.
    least: int
    reading: Reading


def score_from(overlap: int) -> int:
    """Return the score that all sets of this overlap have at least, and no others."""
    return (overlap - 1 << 32) + 1


class Josie:
    """Finds the sets that share most tokens with a query."""

    def __init__(self, index: SetIndex, costs: CostModel, batch: int = BATCH) -> None:
        self.index, self.costs, self.batch = index, costs, batch
        # Threads that search at once have one each; a pop from a list is never shared.
        self._free: list[npt.NDArray[np.int32]] = []

    def search(
        self, values: Int, k: int | None, least: int = score_from(1), ignored: Int = _NONE
    ) -> Found:
        """Find the best k sets and all that tie with the last, or all from a score on.

        ``values`` are distinct numbers of values; the sets in ``ignored`` are left out.
        """
        asked = self.index.asked(values)
        slots = self._free.pop() if self._free else np.zeros(len(self.index.sizes), np.int32)
        capacity = min(int(asked.lengths.sum()), len(slots))
        counter = Counter(slots, self.index.sizes, capacity, ignored)
        found = _Run(self, asked, counter, k, least).finished()
        counter.clear()
        self._free.append(slots)
        return found


@dataclass
class _Top:
    """The scores of the best k sets that were read so far."""

    k: int | None
    floor: int
    heap: list[int] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.k is not None and len(self.heap) == self.k

    @property
    def least(self) -> int:
        """The score below which no set is among the best any more."""
        return max(self.floor, self.heap[0]) if self.full and self.heap else self.floor

    def push(self, score: int) -> None:
        if self.full:
            heapq.heappushpop(self.heap, score)
        else:
            heapq.heappush(self.heap, score)

    def with_overlap(self, overlap: int) -> int:
        """Say which overlap the k-th would have after a set with this one."""
        second = min((overlap_of(score) for score in self.heap[1:3]), default=overlap)
        return max(overlap_of(self.least), min(overlap, second))


class _Run:
    """One query on its way through the lists."""

    def __init__(
        self, lake: Josie, asked: Asked, counter: Counter, k: int | None, least: int
    ) -> None:
        self._lake, self._asked, self._counter = lake, asked, counter
        self._top = _Top(k, least)
        self._reading = Reading()
        self._lists = ListCosts(asked, lake.costs)
        self._read: list[tuple[int, int]] = []
        # A set that no list before has shares what is left at most, and is no smaller than that.
        self._unseen = score_of(asked.left[:-1], asked.left[:-1])

    def finished(self) -> Found:
        """Read until no set can be among the best whose overlap is not known."""
        asked, counter, top = self._asked, self._counter, self._top
        at = 0
        while at < len(asked) and top.k != 0:
            counter.prune(int(asked.left[at]), top.least)
            prefix = int(np.count_nonzero(self._unseen >= top.least))
            if at >= prefix and len(counter.rows) == 0:
                break
            # Where the prefix ends, a batch ends: from there on, no set is new.
            end = prefix if at < prefix else len(asked)
            stop = min(at + self._lake.batch, end)
            self._merge(at, stop, new=at < prefix)
            at = stop
            if at < len(asked):
                self._probe(at)
        return self._found()

    def _merge(self, start: int, stop: int, *, new: bool) -> None:
        read = self._lake.index.read(self._asked, start, stop)
        self._reading.lists += stop - start
        self._reading.postings += len(read.sets)
        self._counter.add(read, self._asked, start, new=new)

    def _probe(self, at: int) -> None:
        """Read sets, those expected to be best first, while that beats reading lists."""
        top, asked, lake = self._top, self._asked, self._lake
        if top.k is None or not (top.full or len(self._counter.rows) >= top.k):
            return
        span = at, min(at + lake.batch, len(asked))
        found = estimate(self._counter, asked, span, lake.batch, lake.costs)
        promising = _by_promise(found, overlap_of(top.least) + top.full)
        if len(promising) == 0:
            return
        benefits = Benefits(found, self._lists, span)
        for place in promising.tolist():
            overlap, kth = int(found.overlap[place]), overlap_of(top.least)
            if top.full:
                gain = benefits.probe(kth, top.with_overlap(overlap)) - found.cost[place]
                if overlap <= kth or gain < benefits.lists(kth) - benefits.lists_cost:
                    break
            self._read_set(int(found.rows[place]), at)
            benefits.forget(place)

    def _read_set(self, row: int, at: int) -> None:
        """Count what a set shares with the rest of the query, behind its latest match."""
        counter, index = self._counter, self._lake.index
        position = int(counter.latest[row]) + 1
        number = counter.take(row)
        rest = self._asked.tokens[len(self._asked.tokens) - int(self._asked.left[at]) :]
        size, overlap = int(index.sizes[number]), int(counter.partial[row])
        if position < size:
            overlap += index.shared(number, position, rest)
            self._reading.sets += 1
            self._reading.tokens += size - position
        self._read.append((number, overlap))
        self._top.push((overlap << 32) - size)

    def _found(self) -> Found:
        """Put together what was read and what was counted in all lists."""
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
        return Found(sets[best], overlaps[best], least, self._reading)


def _by_promise(found: Estimates, least: int) -> Int:
    """Order the candidates that are expected to reach an overlap: best first, cheapest first."""
    places = np.flatnonzero(found.overlap >= least)
    order = np.lexsort((found.cost[places], -found.overlap[places]))
    return np.asarray(places[order])
