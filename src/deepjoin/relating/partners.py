"""The columns that join with a column of the lake, in either direction, from the postings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import blocks, ranges
from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import ColumnPlace, JoinEdge
from deepjoin.relating.edges import EdgeList
from deepjoin.store.segment import Numbering, Segment
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]

#: Postings read at a time: this bounds the memory.
_WORK = 1 << 22


class JoinLink(NamedTuple):
    """Two columns that join, by number, and how many distinct values they share."""

    a: int
    b: int
    matched: int
    strength: float


@dataclass(frozen=True)
class JoinLinks:
    """Pairs of columns of one lake that join: ``a`` of the table in question, ``b`` of others."""

    a: Int
    b: Int
    #: How many distinct values the two share.
    matched: Int
    #: The share of the smaller column's distinct values that the other holds.
    strength: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.a)

    def take(self, rows: npt.NDArray[Any]) -> JoinLinks:
        """Keep some pairs, in this order."""
        return JoinLinks(self.a[rows], self.b[rows], self.matched[rows], self.strength[rows])

    def each(self) -> list[JoinLink]:
        """List the pairs."""
        arrays = (self.a, self.b, self.matched, self.strength)
        return [JoinLink(*of) for of in zip(*(array.tolist() for array in arrays), strict=True)]


def no_links() -> JoinLinks:
    """Return no pairs."""
    none = np.zeros(0, np.int64)
    return JoinLinks(none, none, none, np.zeros(0))


def joined_links(found: Iterable[JoinLinks]) -> JoinLinks:
    """Concatenate pairs."""
    parts = [no_links(), *found]
    names = ("a", "b", "matched", "strength")
    return JoinLinks(*(np.concatenate([getattr(one, name) for one in parts]) for name in names))


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


class Partners(Protocol):
    """Knows what joins with the columns of a table."""

    def of_table(self, table: int) -> JoinLinks:
        """Return all pairs of a table's columns and columns of others that join."""


class FoundPartners:
    """Finds what joins with the columns of a table, without any work beforehand."""

    def __init__(self, lake: Numbering, least: float, budget: ReadBudget) -> None:
        self._lake, self._least, self._budget = lake, least, budget

    def of_table(self, table: int) -> JoinLinks:
        """Return all pairs of a table's columns and columns of others that join."""
        return joined_links([self._of_column(one) for one in self._lake.columns_of(table)])

    def _of_column(self, column: int) -> JoinLinks:
        lake = self._lake
        values = list(values_in_segments(lake, column))
        work = sum(
            int(one.values.frequency(numbers).sum())
            for one, numbers in zip(lake.segments, values, strict=True)
        )
        if not self._budget.take(work):
            return no_links()
        parts = [
            _overlaps(one, numbers) for one, numbers in zip(lake.segments, values, strict=True)
        ]
        starts = lake.column_starts.tolist()
        found = [columns + start for (columns, _), start in zip(parts, starts, strict=False)]
        b, matched = np.concatenate(found), np.concatenate([counts for _, counts in parts])
        strength = matched / np.minimum(lake.sizes[b], lake.sizes[column])
        good = (strength >= self._least) & lake.joins[b]
        good &= lake.tables[b] != lake.tables[column]
        return JoinLinks(np.full(len(b), column), b, matched, strength).take(good)


class SavedPartners:
    """Reads what joins with the columns of a table from a graph."""

    def __init__(self, lake: Numbering, edges: EdgeList, least: float, budget: ReadBudget) -> None:
        self._lake, self._edges, self._least, self._budget = lake, edges, least, budget

    def of_table(self, table: int) -> JoinLinks:
        """Return all pairs of a table's columns and columns of others that join."""
        return joined_links([self._of_column(one) for one in self._lake.columns_of(table)])

    def _of_column(self, column: int) -> JoinLinks:
        if not self._budget.take(self._edges.count(column)):
            return no_links()
        found, sizes = self._edges.of(column), self._lake.sizes
        others = np.where(found.a == column, found.b, found.a)
        links = JoinLinks(
            np.full(len(others), column), others, found.matched, found.matched / sizes[found.a]
        )
        return links.take(links.strength >= self._least)


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
        few, held = np.unique(_read(index, values, frequency), return_counts=True)
        return few.astype(np.int64), held
    counts = np.zeros(index.columns, np.int64)
    for start, stop in blocks(frequency, _WORK):
        columns = _read(index, values[start:stop], frequency[start:stop])
        counts += np.bincount(columns, minlength=index.columns)
    found = np.flatnonzero(counts)
    return found, counts[found]


def _read(index: ValueIndex, values: Int, frequency: Int) -> npt.NDArray[np.int32]:
    """Return the columns of each value, one value's after the other's."""
    return np.asarray(index.posting_columns[ranges(index.posting_offsets[values], frequency)])


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
    return JoinEdge(_place(lake, a), _place(lake, b), *shares, matched, cardinality)


def _place(lake: Numbering, column: int) -> ColumnPlace:
    return ColumnPlace(lake.table_name(int(lake.tables[column])), lake.column_name(column))
