"""The prefix filter of self-joins: which pairs of columns share enough values.

A column y that must share a of the n values of a column x misses at most n - a of them, so it
holds at least one of any n - a + 1. Looking up that many finds every such y, and the rarest
values have the shortest postings. Each candidate is then counted in full against its stored
cells, and dropped as soon as too few values are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Int, Int32, Integers, Marks, blocks, ranges
from deepjoin.lazy import cached_property
from deepjoin.relating.edges import JoinedColumns
from deepjoin.store.segment import Segment

#: Postings read, and cells looked up, at a time: this bounds the memory.
WORK = 1 << 21
#: Columns of about one size are searched together.
_CLASSES = (8, 16, 32, 64, 256, 2048)


class PrefixCandidates(NamedTuple):
    """Pairs of a row and a column: how many values were compared, and how many of these match."""

    rows: Int
    columns: Int
    seen: Int
    matched: Int

    def where(self, chosen: Marks) -> PrefixCandidates:
        """Keep some pairs."""
        return PrefixCandidates(*(array[chosen] for array in self))


#: Compares this many more values of each pair, and returns how many of them match.
Compare = Callable[[PrefixCandidates, Int], Int]
#: Marks which pairs of columns, by number in the lake, are wanted.
Wanted = Callable[[Integers, Integers], Marks]


def least_shared(sizes: Int, threshold: float) -> Int:
    """Return how many values of columns of these sizes reach a share.

    >>> least_shared(np.array([1, 3, 10]), 0.7).tolist()
    [1, 3, 7]
    """
    least: Int = np.ceil(threshold * sizes).astype(np.int64)
    # The product may be rounded across a whole number; the quotient is what is compared.
    least -= (least - 1) / sizes >= threshold
    least += least / sizes < threshold
    return least


def counted(
    found: PrefixCandidates, sizes: Int, least: Int, work: int, compare: Compare
) -> PrefixCandidates:
    """Compare all values, ever more at a time; drop pairs that can no longer reach the least.

    ``sizes`` and ``least`` are those of the rows; about ``work`` values are compared at a time.
    """
    done, width = [], 1
    while True:
        left = sizes[found.rows] - found.seen
        possible = found.matched + left >= least[found.rows]
        done.append(found.where(possible & (left == 0)))
        found, left = found.where(possible & (left > 0)), left[possible & (left > 0)]
        if len(left) == 0:
            return PrefixCandidates(*map(np.concatenate, zip(*done, strict=True)))
        lengths = np.minimum(left, width)
        matched = found.matched + compare(found, lengths)
        found = found._replace(seen=found.seen + lengths, matched=matched)
        width = min(2 * width, max(1, work // len(left)))


@dataclass(frozen=True)
class NumberedSegment:
    """A segment and the numbers of its columns in the lake."""

    segment: Segment
    start: int
    stop: int

    @cached_property
    def offsets(self) -> Int:
        """Where the cells of each column start."""
        return np.asarray(self.segment.values.column_offsets)

    @cached_property
    def repeats(self) -> Marks:
        """Mark the columns in which a value occurs more than once."""
        marks = np.zeros(self.stop - self.start, bool)
        counts = self.segment.values.cell_counts
        for start in range(0, len(counts), WORK):
            often = np.flatnonzero(counts[start : start + WORK] > 1) + start
            marks[np.searchsorted(self.offsets, often, "right") - 1] = True
        return marks

    def find(self, columns: Int, values: Int) -> Int:
        """Return where each of these columns has this value among its cells; -1 if nowhere."""
        places = np.empty(len(columns), np.int64)
        cells = self.segment.values.cell_values
        sizes = self.offsets[columns + 1] - self.offsets[columns]
        # Halving takes as many steps as the largest column needs, so few wait for it.
        classes = np.searchsorted(_CLASSES, sizes)
        for number in range(len(_CLASSES) + 1):
            here = np.flatnonzero(classes == number)
            if len(here) == 0:
                continue
            # Cells ascend: halve all ranges at once until each is one cell.
            low, high = self.offsets[columns[here]], self.offsets[columns[here] + 1] - 1
            wanted = values[here].astype(cells.dtype)
            for _ in range(int((high - low).max(initial=0)).bit_length()):
                middle = (low + high) >> 1
                below = cells[middle] < wanted
                low = np.where(below, np.minimum(middle + 1, high), low)
                high = np.where(below, high, middle)
            places[here] = np.where(cells[low] == wanted, low, -1)
        return places


class ValuePostings(Protocol):
    """The columns that hold values; -1 is a value that the segment does not have."""

    def frequency(self, values: Int) -> Int:
        """Count the columns that hold each value."""

    def read(self, values: Int, frequency: Int) -> Int32:
        """Return the columns of each value, one value after the other."""


class PrefixLookup:
    """Columns x of one segment, with their values as another segment has them, rarest first."""

    def __init__(
        self,
        columns: Int,
        own: NumberedSegment,
        other: NumberedSegment,
        translation: Callable[[Int], Int],
        postings: ValuePostings,
        share: float,
        rank: Int,
        wanted: Wanted | None = None,
    ) -> None:
        self.columns, self._own, self._other = columns, own, other
        self._postings, self._rank, self._wanted = postings, rank, wanted
        starts = own.offsets[columns - own.start]
        self._sizes = own.offsets[columns - own.start + 1] - starts
        self._offsets = np.cumsum(self._sizes) - self._sizes
        self._least = least_shared(self._sizes, share)
        self._heads = self._sizes - self._least + 1
        # The values of each column, rarest first; those that the other segment lacks lead.
        places = ranges(starts, self._sizes)
        values = translation(own.segment.values.cell_values[places].astype(np.int64))
        frequency = postings.frequency(values)
        order = np.lexsort((frequency, np.repeat(np.arange(len(self._sizes)), self._sizes)))
        self._places, self._values = places[order], values[order]
        self._frequency = frequency[order]
        before = np.append(0, np.cumsum(self._frequency))
        #: How many postings are read for each column, and how many pairs that gave.
        self.work: Int = before[self._offsets + self._heads] - before[self._offsets]
        self.candidates = 0

    def pairs(self, run: slice) -> JoinedColumns:
        """Find the columns that those of a run of numbers join with."""

        def compare(pairs: PrefixCandidates, lengths: Int) -> Int:
            which = np.repeat(np.arange(len(lengths)), lengths)
            values = self._values[ranges(self._offsets[pairs.rows] + pairs.seen, lengths)]
            at = self._other.find(pairs.columns[which], values)
            return np.bincount(which[at >= 0], minlength=len(lengths))

        first, last = np.searchsorted(self.columns, [run.start, run.stop]).tolist()
        candidates = self._looked_up(first, last)
        self.candidates += len(candidates.rows)
        found = counted(candidates, self._sizes, self._least, WORK, compare)
        a, b = self.columns[found.rows], found.columns + self._other.start
        return JoinedColumns(a, b, found.matched, self._repeats(found))

    def _looked_up(self, first: int, last: int) -> PrefixCandidates:
        """Look up the rarest values of some rows, and count how many of these a column holds."""
        places = ranges(self._offsets[first:last], self._heads[first:last])
        places = places[self._frequency[places] > 0]
        row = np.searchsorted(self._offsets[first:last], places, "right") - 1 + first
        width = self._other.stop - self._other.start
        keys = [np.zeros(0, np.int64)]
        counts = [np.zeros(0, np.int64)]
        for start, stop in blocks(self._frequency[places], WORK):
            lengths = self._frequency[places[start:stop]]
            columns = self._postings.read(self._values[places[start:stop]], lengths)
            rows = np.repeat(row[start:stop], lengths)
            # A pair is found from its smaller column alone.
            mine, theirs = self.columns[rows], columns + self._other.start
            later = np.flatnonzero(self._rank[theirs] > self._rank[mine])
            if self._wanted is not None:
                later = later[self._wanted(mine[later], theirs[later])]
            key, count = np.unique(rows[later] * width + columns[later], return_counts=True)
            keys.append(key)
            counts.append(count)
        key, count = np.concatenate(keys), np.concatenate(counts)
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        if len(starts):
            key, count = key[order][starts], np.add.reduceat(count[order], starts)
        rows = key // max(1, width)
        return PrefixCandidates(rows, key % max(1, width), self._heads[rows], count)

    def _repeats(self, found: PrefixCandidates) -> npt.NDArray[np.uint8]:
        """Mark for each pair on which side a shared value occurs more than once."""
        repeats = np.zeros(len(found.rows), np.uint8)
        mine = self._own.repeats[self.columns[found.rows] - self._own.start]
        often = np.flatnonzero(mine | self._other.repeats[found.columns])
        for start, stop in blocks(self._sizes[found.rows[often]], WORK):
            pairs = often[start:stop]
            rows, sizes = found.rows[pairs], self._sizes[found.rows[pairs]]
            which, places = np.repeat(pairs, sizes), ranges(self._offsets[rows], sizes)
            known = self._values[places] >= 0
            which, places = which[known], places[known]
            at = self._other.find(found.columns[which], self._values[places])
            shared = at >= 0
            which, places, at = which[shared], places[shared], at[shared]
            often_here = self._own.segment.values.cell_counts[self._places[places]] > 1
            often_there = self._other.segment.values.cell_counts[at] > 1
            repeats[which[often_here]] |= 1
            repeats[which[often_there]] |= 2
        return repeats
