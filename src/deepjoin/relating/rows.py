"""Columns of one segment, and the columns of a segment that hold enough of their values.

Of a column x with n values, of which a must be held, the n - a + 1 rarest are looked up: every
column that holds a of them all has one of these (prefix filter). What is found this way is then
counted in full against its stored cells, and dropped as soon as too few values are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import blocks, ranges
from deepjoin.relating.found import Found
from deepjoin.relating.postings import Postings
from deepjoin.relating.prefix_filter import Candidates, counted, least_shared
from deepjoin.relating.translation import Translation
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]

#: Postings read, and cells looked up, at a time: this bounds the memory.
WORK = 1 << 21
#: Columns of about one size are searched together.
_CLASSES = (8, 16, 32, 64, 256, 2048)


@dataclass(frozen=True)
class Part:
    """A segment and the numbers of its columns in the lake."""

    segment: Segment
    start: int
    stop: int

    @cached_property
    def offsets(self) -> Int:
        """Where the cells of each column start."""
        return np.asarray(self.segment.values.column_offsets)

    @cached_property
    def repeats(self) -> npt.NDArray[np.bool_]:
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
        sizes = self.offsets[columns + 1] - self.offsets[columns]
        # Halving takes as many steps as the largest column needs, so few wait for it.
        classes = np.searchsorted(_CLASSES, sizes)
        for number in range(len(_CLASSES) + 1):
            here = np.flatnonzero(classes == number)
            if len(here):
                places[here] = self._halved(columns[here], values[here])
        return places

    def _halved(self, columns: Int, values: Int) -> Int:
        """Find values among ascending cells: halve all ranges at once until each is one cell."""
        low, high = self.offsets[columns], self.offsets[columns + 1] - 1
        cells = self.segment.values.cell_values
        wanted = values.astype(cells.dtype)
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            below = cells[middle] < wanted
            low = np.where(below, np.minimum(middle + 1, high), low)
            high = np.where(below, high, middle)
        return np.where(cells[low] == wanted, low, -1)


class Rows:
    """Columns x of one segment, with their values as another segment has them, rarest first."""

    def __init__(
        self,
        columns: Int,
        own: Part,
        other: Part,
        translation: Translation,
        postings: Postings,
        share: float,
        rank: Int,
    ) -> None:
        self.columns, self._own, self._other = columns, own, other
        self._postings, self._rank = postings, rank
        starts = own.offsets[columns - own.start]
        self._sizes = own.offsets[columns - own.start + 1] - starts
        self._offsets = np.cumsum(self._sizes) - self._sizes
        self._least = least_shared(self._sizes, share)
        self._heads = self._sizes - self._least + 1
        self._order(ranges(starts, self._sizes), translation)
        before = np.append(0, np.cumsum(self._frequency))
        #: How many postings are read for each column, and how many pairs that gave.
        self.work: Int = before[self._offsets + self._heads] - before[self._offsets]
        self.candidates = 0

    def _order(self, places: Int, translation: Translation) -> None:
        """Put the values of each column in order; those the other segment lacks come first."""
        values = translation(self._own.segment.values.cell_values[places].astype(np.int64))
        frequency = self._postings.frequency(values)
        row = np.repeat(np.arange(len(self._sizes)), self._sizes)
        order = np.lexsort((frequency, row))
        self._places, self._values = places[order], values[order]
        self._frequency = frequency[order]

    def pairs(self, run: slice) -> Found:
        """Find what the columns of a run of numbers join with."""
        first, last = np.searchsorted(self.columns, [run.start, run.stop]).tolist()
        candidates = self._looked_up(first, last)
        self.candidates += len(candidates.rows)
        found = counted(candidates, self._sizes, self._least, WORK, self._matches)
        a, b = self.columns[found.rows], found.columns + self._other.start
        return Found(a, b, found.matched, self._repeats(found))

    def _looked_up(self, first: int, last: int) -> Candidates:
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
            later = self._later(rows, columns)
            key, count = np.unique(rows[later] * width + columns[later], return_counts=True)
            keys.append(key)
            counts.append(count)
        key, count = _summed(np.concatenate(keys), np.concatenate(counts))
        rows = key // max(1, width)
        return Candidates(rows, key % max(1, width), self._heads[rows], count)

    def _later(self, rows: Int, columns: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Choose the columns that are to be found from these rows, not the other way round."""
        later: npt.NDArray[np.bool_] = (
            self._rank[columns + self._other.start] > self._rank[self.columns[rows]]
        )
        return later

    def _matches(self, found: Candidates, lengths: Int) -> Int:
        """Compare so many more values of each pair, and count those that are shared."""
        which, at = self._compared(found.rows, found.columns, found.seen, lengths)
        return np.bincount(which[at >= 0], minlength=len(lengths))

    def _compared(self, rows: Int, columns: Int, seen: Int, lengths: Int) -> tuple[Int, Int]:
        """Look for so many values of each row in its column: which pair, and where it is."""
        which = np.repeat(np.arange(len(rows)), lengths)
        values = self._values[ranges(self._offsets[rows] + seen, lengths)]
        return which, self._other.find(columns[which], values)

    def _repeats(self, found: Candidates) -> npt.NDArray[np.uint8]:
        """Say of each pair on which side a shared value occurs more than once."""
        repeats = np.zeros(len(found.rows), np.uint8)
        mine = self._own.repeats[self.columns[found.rows] - self._own.start]
        often = np.flatnonzero(mine | self._other.repeats[found.columns])
        for start, stop in blocks(self._sizes[found.rows[often]], WORK):
            pairs = often[start:stop]
            repeats[pairs] = self._repeats_of(found.rows[pairs], found.columns[pairs])
        return repeats

    def _repeats_of(self, rows: Int, columns: Int) -> npt.NDArray[np.uint8]:
        sizes = self._sizes[rows]
        which = np.repeat(np.arange(len(rows)), sizes)
        places = ranges(self._offsets[rows], sizes)
        known = self._values[places] >= 0
        which, places = which[known], places[known]
        at = self._other.find(columns[which], self._values[places])
        shared = at >= 0
        mine = self._own.segment.values.cell_counts[self._places[places[shared]]] > 1
        theirs = self._other.segment.values.cell_counts[at[shared]] > 1
        repeats = np.zeros(len(rows), np.uint8)
        repeats[which[shared][mine]] |= 1
        repeats[which[shared][theirs]] |= 2
        return repeats


def _summed(keys: Int, counts: Int) -> tuple[Int, Int]:
    """Add up the counts of equal keys."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts
