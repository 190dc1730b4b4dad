"""All pairs of columns of a lake that join, exactly, from the postings.

Two columns join if one holds at least a share t of the other's distinct values. The one with
fewer values is then covered: a column x with n values has a = ceil(t n) of them in a column y
that has no fewer. So every pair is found once, from its smaller column (of equals, the first by
name), and only the n - a + 1 rarest values of that are looked up (`deepjoin.relating.rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deepjoin.arrays import blocks
from deepjoin.relating.found import Found, together
from deepjoin.relating.postings import AllPostings, SomePostings
from deepjoin.relating.rows import WORK, Part, Rows
from deepjoin.relating.translation import Translation
from deepjoin.store.numbering import Int, Marks, Numbering

#: Cells of columns x that are prepared at a time.
_CELLS = 1 << 20


@dataclass
class SelfJoin:
    """The columns of a lake joined with each other, where one of the two is new."""

    lake: Numbering
    #: The least share of the smaller column's distinct values that the other holds.
    share: float
    #: Marks the columns whose pairs are wanted; pairs of two others are known already.
    new: Marks
    #: How many pairs each column has already, which are to be put beside those that are found.
    known: Int
    #: How much was done so far: postings read, and pairs that had a value in common.
    postings: int = 0
    candidates: int = 0

    def found(self) -> Iterator[tuple[slice, Found]]:
        """Yield the pairs found from the columns of one number to another, run by run."""
        for part in self._parts:
            lookups = [_Lookup(self, part, other) for other in self._parts]
            sizes = self.lake.sizes[part.start : part.stop]
            for first, last in blocks(sizes, _CELLS):
                yield from self._block(slice(part.start + first, part.start + last), lookups)

    @cached_property
    def _parts(self) -> list[Part]:
        starts = self.lake.column_starts.tolist()
        return [Part(*of) for of in zip(self.lake.segments, starts[:-1], starts[1:], strict=True)]

    def _block(self, part: slice, lookups: Sequence[_Lookup]) -> Iterator[tuple[slice, Found]]:
        columns = np.arange(part.start, part.stop)[self.lake.joins[part]]
        prepared = [rows for lookup in lookups for rows in lookup.rows(columns)]
        work = self.known[part] + 1
        for rows in prepared:
            work[rows.columns - part.start] += rows.work
        for first, last in blocks(work, WORK):
            run = slice(part.start + first, part.start + last)
            yield run, together([self._of_other_tables(rows.pairs(run)) for rows in prepared])
        self.postings += sum(int(rows.work.sum()) for rows in prepared)
        self.candidates += sum(rows.candidates for rows in prepared)

    def _of_other_tables(self, found: Found) -> Found:
        return found.take(self.lake.tables[found.a] != self.lake.tables[found.b])

    @cached_property
    def rank(self) -> Int:
        """Order the columns by size, then by name; -1 for those that join with nothing."""
        rank = np.empty(len(self.lake.sizes), np.int64)
        rank[np.lexsort((self.lake.order, self.lake.sizes))] = np.arange(len(rank))
        rank[~self.lake.joins] = -1
        return rank


class _Lookup:
    """How columns of one segment are looked up in another."""

    def __init__(self, join: SelfJoin, own: Part, other: Part) -> None:
        self._join, self._own, self._other = join, own, other
        self._all = AllPostings(other.segment.values)
        self._translation = Translation(own.segment, other.segment)

    @cached_property
    def _new(self) -> SomePostings | None:
        """What is new in the other segment."""
        new = (self._join.new & self._join.lake.joins)[self._other.start : self._other.stop]
        columns = np.flatnonzero(new)
        return SomePostings(self._other.segment.values, columns) if len(columns) else None

    def rows(self, columns: Int) -> Iterator[Rows]:
        """Prepare columns: new ones for the whole segment, others for what is new in it."""
        new = self._join.new[columns]
        places = self._own, self._other, self._translation
        asked = self._join.share, self._join.rank
        if new.any():
            yield Rows(columns[new], *places, self._all, *asked)
        if not new.all() and self._new is not None:
            yield Rows(columns[~new], *places, self._new, *asked)
