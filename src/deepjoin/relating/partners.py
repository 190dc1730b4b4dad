"""The columns that join with a column of the lake, in either direction, from the postings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Array, Double, Int, blocks
from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import ColumnPlace, JoinEdge
from deepjoin.relating.edges import EdgeList
from deepjoin.store.segment import Numbering, Segment

#: Postings read at a time: this bounds the memory.
_WORK = 1 << 22


class JoinLink(NamedTuple):
    """Two columns that join, by number, and how many distinct values they share."""

    a: int
    b: int
    matched: int
    strength: float
    chance: float


class JoinLinks(NamedTuple):
    """Pairs of columns of one lake that join: ``a`` of the table in question, ``b`` of others."""

    a: Int
    b: Int
    #: How many distinct values the two share.
    matched: Int
    #: The share of the smaller column's distinct values that the other holds.
    strength: Double
    #: The chance that a person would make the join; 0 until it is estimated.
    chance: Double

    @classmethod
    def of(cls, a: Int, b: Int, matched: Int, strength: Double) -> JoinLinks:
        """Make pairs whose chances are not estimated yet."""
        return cls(a, b, matched, strength, np.zeros(len(b)))

    @classmethod
    def joined(cls, parts: Iterable[JoinLinks]) -> JoinLinks:
        """Concatenate pairs."""
        none = np.zeros(0, np.int64)
        first = cls.of(none, none, none, np.zeros(0))
        return cls(*map(np.concatenate, zip(first, *parts, strict=True)))

    def take(self, rows: Array) -> JoinLinks:
        """Keep some pairs, in this order."""
        whole = self.a[rows], self.b[rows], self.matched[rows]
        return JoinLinks(*whole, self.strength[rows], self.chance[rows])

    def each(self) -> list[JoinLink]:
        """List the pairs."""
        return [JoinLink(*of) for of in zip(*(array.tolist() for array in self), strict=True)]


class ReadBudget:
    """Limits what is read for one answer, and notes whether anything was left out."""

    def __init__(self, columns: int, postings: int) -> None:
        self._columns, self._postings = columns, postings
        #: Columns whose partners were looked for.
        self.searched = 0
        self.spent = False

    def take(self, postings: int) -> bool:
        """Allow the search for one column's partners, or note that it was left out."""
        if self.searched >= self._columns or postings > self._postings:
            self.spent = True
            return False
        self.searched += 1
        self._postings -= postings
        return True


class Partners(ABC):
    """Finds the columns that join with those of a table, as far as the budget goes."""

    def __init__(self, lake: Numbering, least: float, budget: ReadBudget) -> None:
        self._lake, self._least, self._budget = lake, least, budget

    def of_table(self, table: int) -> JoinLinks:
        """Return all pairs of a table's columns and columns of others that join."""
        return JoinLinks.joined(map(self.of_column, self._lake.columns_of(table)))

    @abstractmethod
    def of_column(self, column: int) -> JoinLinks:
        """Return all pairs of a column and columns of other tables that join."""


class FoundPartners(Partners):
    """Searches the postings, which needs no work beforehand."""

    def of_column(self, column: int) -> JoinLinks:
        """Count the values that every other column shares with this one."""
        lake = self._lake
        values = list(values_in_segments(lake, column))
        work = sum(
            int(one.values.frequency(numbers).sum())
            for one, numbers in zip(lake.segments, values, strict=True)
        )
        if not self._budget.take(work):
            return JoinLinks.joined([])
        parts = [
            _overlaps(one, numbers) for one, numbers in zip(lake.segments, values, strict=True)
        ]
        starts = lake.column_starts.tolist()
        found = [columns + start for (columns, _), start in zip(parts, starts, strict=False)]
        b, matched = np.concatenate(found), np.concatenate([counts for _, counts in parts])
        strength = matched / np.minimum(lake.sizes[b], lake.sizes[column])
        good = (strength >= self._least) & lake.joins[b]
        good &= lake.tables[b] != lake.tables[column]
        return JoinLinks.of(np.full(len(b), column), b, matched, strength).take(good)


class SavedPartners(Partners):
    """Reads the pairs from the saved graph of the lake."""

    def __init__(self, lake: Numbering, least: float, budget: ReadBudget, edges: EdgeList) -> None:
        super().__init__(lake, least, budget)
        self._edges = edges

    def of_column(self, column: int) -> JoinLinks:
        """Read the edges of the column, which may be the smaller or the larger of a pair."""
        if not self._budget.take(self._edges.count(column)):
            return JoinLinks.joined([])
        found = self._edges.of(column)
        others = np.where(found.a == column, found.b, found.a)
        # The smaller column of an edge is `a`, and the share is of its values.
        strength = found.matched / self._lake.sizes[found.a]
        links = JoinLinks.of(np.full(len(others), column), others, found.matched, strength)
        return links.take(strength >= self._least)


def values_in_segments(lake: Numbering, column: int) -> Iterator[Int]:
    """Yield the numbers that the values of a column have in each segment that knows them."""
    owner, number = lake.column(column)
    start, stop = owner.values.cells_of(number)
    own = owner.values.cell_values[start:stop].astype(np.int64)
    texts: list[str] | None = None
    for segment in lake.segments:
        if segment is owner:
            yield own
            continue
        if texts is None:
            texts = [owner.values.values[value] for value in own.tolist()]
        numbers = segment.values.look_up(texts)
        yield numbers[numbers >= 0]


def _overlaps(segment: Segment, values: Int) -> tuple[Int, Int]:
    """Count how many of some values each column of a segment holds, where it holds any."""
    index = segment.values
    frequency = index.frequency(values)
    if frequency.sum() < index.columns >> 2:  # few: sorting them beats a counter a column
        few, held = np.unique(index.holders(values, frequency), return_counts=True)
        return few.astype(np.int64), held
    counts = np.zeros(index.columns, np.int64)
    for start, stop in blocks(frequency, _WORK):
        columns = index.holders(values[start:stop], frequency[start:stop])
        counts += np.bincount(columns, minlength=index.columns)
    found = np.flatnonzero(counts)
    return found, counts[found]


def edge(lake: Numbering, a: int, b: int, matched: int) -> JoinEdge:
    """Describe the join of two columns that share ``matched`` values."""
    (one, x), (other, y) = lake.column(a), lake.column(b)
    mine, theirs = slice(*one.values.cells_of(x)), slice(*other.values.cells_of(y))
    values = one.values.cell_values[mine].astype(np.int64)
    if one is not other:
        values = other.values.look_up([one.values.values[value] for value in values.tolist()])
    held = other.values.cell_values[theirs]
    unique = values.min(initial=0) >= 0
    _, here, there = np.intersect1d(values, held, assume_unique=unique, return_indices=True)
    most = one.values.cell_counts[mine][here], other.values.cell_counts[theirs][there]
    shares = matched / int(lake.sizes[a]), matched / int(lake.sizes[b])
    cardinality = cardinality_of(*(int(counts.max(initial=1)) for counts in most))
    left, right = (
        ColumnPlace(
            lake.table_name(int(lake.tables[column])),
            lake.column_name(column),
            lake.column_id(column),
        )
        for column in (a, b)
    )
    return JoinEdge(left, right, *shares, matched, cardinality)
