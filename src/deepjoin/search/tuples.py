"""Tuples of a query, and the rows of a table that hold them.

A query of several columns is a set of tuples: one part a column. `TableRows` answers, for a table
and a mapping of parts to its columns, which tuples are found in its rows; parts are added one at a
time, and what is found never grows, so a mapping is given up as soon as it cannot be among the
best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Float, Int, Int32, Marks, distinct, find_sorted, ranges
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.normalise.distinct import canonical_all
from deepjoin.search.query import SearchQuery
from deepjoin.store.segment import Segment

#: Key columns of one query at most: with more, there are too many ways to map them.
MOST_PARTS = 8
#: Parts of a tuple in one text.
SEPARATOR = " · "
#: From this many possible tuples on, those of a table are sorted instead of marked.
_MARKED = 1 << 24
#: Rows among which a repeated tuple is looked for before all of them are.
_FIRST_ROWS = 1 << 12
#: Bytes of decoded columns that a search keeps.
_KEPT_BYTES = 256 << 20


class Level(NamedTuple):
    """The distinct beginnings of a query's tuples, up to one part."""

    #: Ascending: the number of the beginning one part shorter, times the part's values, plus the
    #: value of the part. A beginning's number is its place here.
    keys: Int
    values: int
    #: How many tuples have each beginning.
    tuples: Int


class TupleQuery:
    """A query of several columns: its distinct tuples, none of which has a missing part."""

    def __init__(
        self,
        columns: Sequence[Column],
        profile: str,
        key: bytes = b"",
        encoder: CellEncoder | None = None,
    ) -> None:
        check_key([column.name for column in columns])
        rows = {len(column.cells) for column in columns}
        if len(rows) > 1:
            lengths = ", ".join(f"{one.name} {len(one.cells):,}" for one in columns)
            raise DeepJoinError(f"The columns of a key must be equally long, but are: {lengths}.")
        if any(column.column_id is not None for column in columns):
            raise DeepJoinError(
                "A column fetched from the lake has its values in no order of rows, so several of "
                "them are no tuples. Pass the whole table as a frame (lake.read) with `on`."
            )
        self.columns = columns
        self.parts = [SearchQuery(column, profile, key, encoder) for column in columns]
        self.rows = rows.pop()
        numbers = np.stack([value_numbers(part, profile) for part in self.parts], axis=1)
        complete = np.flatnonzero((numbers >= 0).all(axis=1))
        numbered: Int = np.zeros(len(complete), np.int64)
        for at, part in enumerate(self.parts):
            numbered = numbered * max(1, len(part)) + numbers[complete, at]
            numbered = np.unique(numbered, return_inverse=True)[1]
        _, first, counts = np.unique(numbered, return_index=True, return_counts=True)
        order = np.argsort(first)
        #: The value of each part, tuple by tuple, in order of first appearance.
        self.tuples: Int = numbers[complete[first[order]]].astype(np.int64)
        #: How many rows have each tuple, and the first of them.
        self.counts: Int = counts[order]
        self._first_rows: Int = complete[first[order]]

    def __len__(self) -> int:
        return len(self.tuples)

    def spelled(self, number: int) -> str:
        """Return a tuple as the query spells it."""
        row = int(self._first_rows[number])
        return SEPARATOR.join((column.cells[row] or "").strip() for column in self.columns)

    def weights(self, part: int) -> Int:
        """Count the tuples that have each value of a part."""
        return np.bincount(self.tuples[:, part], minlength=len(self.parts[part]))

    def levels(self, order: Sequence[int]) -> tuple[list[Level], Int]:
        """Return the beginnings of all tuples, parts in this order, and which tuple is which."""
        beginning: Int = np.zeros(len(self), np.int64)
        levels = []
        for part in order:
            size = max(1, len(self.parts[part]))
            keys, beginning, counts = np.unique(
                beginning * size + self.tuples[:, part], return_inverse=True, return_counts=True
            )
            levels.append(Level(keys, size, counts))
        numbers = np.empty(len(self), np.int64)
        numbers[beginning] = np.arange(len(self))
        return levels, numbers

    def described(self) -> dict[str, object]:
        """Describe the query as results show it."""
        names = [column.name for column in self.columns]
        return {
            "table": self.columns[0].table,
            "column": names[0],
            "columns": names,
            "cells": self.rows,
            "size": len(self),
        }


def check_key(names: Sequence[str], what: str = "`on`") -> None:
    """Refuse a key that names a column twice, or has too many columns."""
    for name in names:
        if name and list(names).count(name) > 1:
            raise DeepJoinError(f"{what} has '{name}' twice; name each key column once.")
    if len(names) > MOST_PARTS:
        raise DeepJoinError(
            f"{what} has {len(names)} columns; a key has at most {MOST_PARTS}. "
            "Leave out those that the others determine."
        )


def value_numbers(part: SearchQuery, profile: str) -> Int32:
    """Return the number of each cell's value among the distinct ones; -1 for a missing cell."""
    numbers = {value: number for number, value in enumerate(part.cells.values)}
    spelled = [cell for cell in dict.fromkeys(part.column.cells) if cell is not None]
    values = zip(spelled, canonical_all(spelled, profile), strict=True)
    known: dict[str | None, int] = {cell: numbers.get(value, -1) for cell, value in values}
    return np.array([known.get(cell, -1) for cell in part.column.cells], np.int32)


@dataclass(frozen=True)
class PartPairs:
    """Which values of a segment match which values of a part; sorted by the segment's values."""

    values: Int
    cells: Int
    similarities: Float

    @classmethod
    def of(cls, values: Int, cells: Int, similarities: Float) -> PartPairs:
        """Sort pairs by value; of one value, the most similar cell comes first."""
        order = np.lexsort((-similarities, values))
        return cls(values[order], cells[order], similarities[order])

    @classmethod
    def equal(cls, part: SearchQuery, segment: Segment) -> PartPairs:
        """Pair each value with the equal one."""
        numbers, known = part.values_in(segment)
        return cls(numbers[known], known, np.ones(len(known), np.float32))


class Found(NamedTuple):
    """Rows of a table with the beginnings of tuples that they hold."""

    rows: Int
    beginnings: Int
    #: Of the least similar part.
    similarities: Float

    def where(self, chosen: Marks) -> Found:
        """Keep some of the rows."""
        return Found(self.rows[chosen], self.beginnings[chosen], self.similarities[chosen])


class TableRows:
    """The rows of one segment's tables, with what a query's parts match in them."""

    def __init__(self, segment: Segment, pairs: Sequence[PartPairs]) -> None:
        self.segment, self.pairs = segment, pairs
        self._ranks: dict[int, Int32] = {}
        self._kept = 0

    def ranks(self, column: int) -> Int32:
        """Return the rank of each row's value; the columns decoded last are kept."""
        found = self._ranks.get(column)
        if found is None:
            assert self.segment.rows is not None
            present = int(self.segment.catalog.column_cells[column])
            found = self.segment.rows.ranks(column, present)
            if self._kept + found.nbytes > _KEPT_BYTES:
                self._ranks, self._kept = {}, 0
            self._ranks[column] = found
            self._kept += found.nbytes
        return found

    def extend(self, found: Found | None, level: Level, part: int, column: int) -> Found:
        """Keep the rows whose value of this column matches the next part of a tuple."""
        ranks = self.ranks(column)
        rows = np.arange(len(ranks)) if found is None else found.rows
        ranks = ranks if found is None else ranks[rows]
        held = self.segment.values.cell_values[slice(*self.segment.values.cells_of(column))]
        pairs = self.pairs[part]
        at = find_sorted(held, pairs.values.astype(held.dtype))
        here = np.flatnonzero(at >= 0)
        # One more, for missing cells: rank -1 is the last.
        counts = np.bincount(at[here], minlength=len(held) + 1)
        each = counts[ranks]
        if len(here) and counts.max() > 1:
            which = np.repeat(np.arange(len(rows)), each)
            starts = np.cumsum(counts) - counts
            pair = here[ranges(starts[ranks], each)]
        else:
            which = np.flatnonzero(each)
            place = np.zeros(len(held) + 1, np.int64)
            place[at[here]] = here
            pair = place[ranks[which]]
        before = np.zeros(len(which), np.int64) if found is None else found.beginnings[which]
        beginnings = find_sorted(level.keys, before * level.values + pairs.cells[pair])
        kept = np.flatnonzero(beginnings >= 0)
        similar = pairs.similarities[pair[kept]]
        if found is not None:
            similar = np.minimum(similar, found.similarities[which[kept]])
        return Found(rows[which[kept]], beginnings[kept], similar)

    def tuples_of(self, columns: Sequence[int]) -> tuple[Int, Int]:
        """Return the complete rows of some columns, and a number for each one's tuple."""
        ranks = [self.ranks(column) for column in columns]
        rows = np.flatnonzero(np.logical_and.reduce([of >= 0 for of in ranks]))
        keys: Int = np.zeros(len(rows), np.int64)
        most = 1
        sizes = self.segment.values.sizes(np.asarray(columns)).tolist()
        for of, size in zip(ranks, sizes, strict=True):
            if most * size >= 1 << 62:
                keys = np.unique(keys, return_inverse=True)[1]
                most = len(keys) + 1
            keys = keys * size + of[rows]
            most *= size
        return rows, keys

    def is_unique(self, columns: Sequence[int]) -> bool:
        """Tell whether no two complete rows have the same tuple."""
        _, keys = self.tuples_of(columns)
        for count in (_FIRST_ROWS, len(keys)):
            some = keys[:count]
            if count_distinct(some) < len(some):
                return False
        return True


def count_distinct(keys: Int) -> int:
    """Count the distinct numbers, none of which is negative."""
    most = int(keys.max(initial=0)) + 1
    if most > max(_MARKED, 8 * len(keys)):
        return len(distinct(keys))
    marks = np.zeros(most, bool)
    marks[keys] = True
    return int(np.count_nonzero(marks))
