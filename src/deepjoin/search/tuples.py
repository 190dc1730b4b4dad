"""Tuples of a query, and the rows of a table that hold them.

A query of several columns is a set of tuples: one part a column. `TableRows` answers, for a table
and a mapping of parts to its columns, which tuples are found in its rows; parts are added one at a
time, and what is found never grows, so a mapping is given up as soon as it cannot be among the
best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Float, Int, Int32, Marks, distinct, find_sorted, ranges
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.normalise.cells import canonical_all
from deepjoin.search.query import SearchQuery
from deepjoin.store.key_columns import KeyColumns
from deepjoin.store.segment import Segment

#: Key columns of one query at most: with more, there are too many ways to map them.
MOST_PARTS = 8
#: Parts of a tuple in one text.
SEPARATOR = " · "
#: From this many possible tuples on, those of a table are sorted instead of marked.
_MARKED = 1 << 24
#: The similarity of values that match by a program: less than that of equal ones, more than that
#: of all others, whose similarities are millionths.
BY_PROGRAM = np.float32(1 - 2.0**-21)
#: Possible beginnings of tuples that are looked up in a table of all of them.
_POSSIBLE = 1 << 20
#: Rows among which a repeated tuple is looked for before all of them are.
_FIRST_ROWS = 1 << 12
#: Bytes of decoded columns that a search keeps.
_KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class Level:
    """The distinct beginnings of a query's tuples, up to one part."""

    #: Ascending: the number of the beginning one part shorter, times the part's values, plus the
    #: value of the part. A beginning's number is its place here.
    keys: Int
    values: int
    #: How many tuples have each beginning.
    tuples: Int
    #: The beginning of each tuple.
    of_tuples: Int

    @cached_property
    def parts(self) -> tuple[Int, Int]:
        """The beginning one part shorter and the value of the part, of each beginning."""
        before, value = np.divmod(self.keys, self.values)
        return before, value

    @cached_property
    def _places(self) -> Int32 | None:
        """Which beginning each possible key is, -1 for none; None if there are too many."""
        most = int(self.keys.max(initial=0)) + self.values
        if most > _POSSIBLE:
            return None
        places = np.full(most, -1, np.int32)
        places[self.keys] = np.arange(len(self.keys))
        return places

    def find(self, before: Int, values: Int) -> Int | Int32:
        """Return the number of each beginning, given one part less and the part; -1 for none."""
        keys = before * self.values + values
        places = self._places
        return find_sorted(self.keys, keys) if places is None else places[keys]


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
            levels.append(Level(keys, size, counts, beginning))
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
    #: All pairs of columns that have more: pairs by a program, which is one of two columns.
    of_column: Mapping[int, PartPairs] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """How many values of the part one value matches at most."""
        every = [self, *self.of_column.values()]
        return max(
            int(np.bincount(np.unique(of.values, return_inverse=True)[1]).max(initial=1))
            for of in every
        )

    def with_programs(self, column: int, values: Int, cells: Int) -> PartPairs:
        """Add pairs of one column that match by a program."""
        every, one = (np.stack(pair) for pair in ((self.values, self.cells), (values, cells)))
        known = set(map(tuple, one.T.tolist()))
        kept = np.array([tuple(pair) not in known for pair in every.T.tolist()], bool)
        merged = PartPairs.of(
            np.append(self.values[kept], values),
            np.append(self.cells[kept], cells),
            np.append(self.similarities[kept], np.full(len(values), BY_PROGRAM)),
        )
        return replace(self, of_column={**self.of_column, column: merged})

    def in_column(self, column: int) -> PartPairs:
        """Return the pairs that hold for a column."""
        return self.of_column.get(column, self)

    @classmethod
    def of(cls, values: Int, cells: Int, similarities: Float) -> PartPairs:
        """Sort pairs by value; of one value, the most similar cell comes first."""
        order = np.lexsort((-similarities, values))
        return cls(values[order], cells[order], similarities[order])

    @classmethod
    def equal(cls, part: SearchQuery, segment: Segment) -> PartPairs:
        """Pair each value with the equal one."""
        numbers, known = part.values_in(segment)
        ones = np.ones(len(known), np.float32)
        return cls(numbers[known], known, ones).with_few(part, segment)

    def with_few(self, part: SearchQuery, segment: Segment) -> PartPairs:
        """Add the equal values of columns below `min_distinct`."""
        keys, small = segment.key_columns, segment.small
        if keys is None or small is None or len(keys.parts) == 1:
            return self
        numbers, known = part.values_in(small)
        return PartPairs(
            np.append(self.values, numbers[known] + keys.parts[1].first_value),
            np.append(self.cells, known),
            np.append(self.similarities, np.ones(len(known), np.float32)),
        )


class Found(NamedTuple):
    """Rows of a table with the beginnings of tuples that they hold."""

    rows: Int
    beginnings: Int
    #: Of the least similar part.
    similarities: Float

    def where(self, chosen: Marks) -> Found:
        """Keep some of the rows."""
        return Found(self.rows[chosen], self.beginnings[chosen], self.similarities[chosen])


class _RankPairs(NamedTuple):
    """Which pair of a part each value of a column is in, by rank; missing cells come last."""

    #: The first pair of each rank; -1 where the part has none.
    first: Int32
    #: How many pairs each rank has, if any has several; they follow each other.
    counts: Int32 | None
    #: The part's values that the column holds.
    cells: Int


class TableRows:
    """The rows of one segment's tables, with what a query's parts match in them."""

    def __init__(self, columns: KeyColumns, pairs: Sequence[PartPairs]) -> None:
        self.columns, self.pairs = columns, pairs
        self._ranks: dict[int, Int32] = {}
        self._met: dict[tuple[int, int], _RankPairs] = {}
        self._kept = 0

    def ranks(self, column: int) -> Int32:
        """Return the rank of each row's value; the columns decoded last are kept."""
        found = self._ranks.get(column)
        if found is None:
            found = self.columns.ranks(column)
            self._keep(found.nbytes)
            self._ranks[column] = found
        return found

    def _keep(self, size: int) -> None:
        """Forget what was kept if this much more would be too much."""
        if self._kept + size > _KEPT_BYTES:
            self._ranks, self._met, self._kept = {}, {}, 0
        self._kept += size

    def _rank_pairs(self, part: int, column: int) -> _RankPairs:
        found = self._met.get((part, column))
        if found is None:
            held = self.columns.held(column)
            pairs = self.pairs[part].in_column(column)
            at = find_sorted(held, pairs.values)
            here = np.flatnonzero(at >= 0)
            first = np.full(len(held) + 1, -1, np.int32)
            first[at[here][::-1]] = here[::-1]
            counts = None
            if len(here) and np.any(np.diff(at[here]) == 0):
                counts = np.bincount(at[here], minlength=len(held) + 1).astype(np.int32)
            found = _RankPairs(first, counts, distinct(pairs.cells[here]))
            self._keep(first.nbytes * (1 if counts is None else 2))
            self._met[part, column] = found
        return found

    def holds(self, part: int, column: int) -> Int:
        """Return the values of a part that a column matches."""
        return self._rank_pairs(part, column).cells

    def extend(self, found: Found | None, level: Level, part: int, column: int) -> Found:
        """Keep the rows whose value of this column matches the next part of a tuple."""
        met, pairs = self._rank_pairs(part, column), self.pairs[part].in_column(column)
        ranks = self.ranks(column)
        if found is not None:
            ranks = ranks[found.rows]
        pair: Int | Int32 = met.first[ranks]
        which = np.flatnonzero(pair >= 0)
        pair = pair[which]
        if met.counts is not None:
            each = met.counts[ranks[which]].astype(np.int64)
            which, pair = np.repeat(which, each), ranges(pair.astype(np.int64), each)
        before = np.zeros(len(which), np.int64) if found is None else found.beginnings[which]
        beginnings = level.find(before, pairs.cells[pair])
        kept = np.flatnonzero(beginnings >= 0)
        which, similar = which[kept], pairs.similarities[pair[kept]]
        if found is None:
            return Found(which, beginnings[kept].astype(np.int64), similar)
        similar = np.minimum(similar, found.similarities[which])
        return Found(found.rows[which], beginnings[kept].astype(np.int64), similar)

    def tuples_of(self, columns: Sequence[int]) -> tuple[Int, Int]:
        """Return the complete rows of some columns, and a number for each one's tuple."""
        ranks = [self.ranks(column) for column in columns]
        rows = np.flatnonzero(np.logical_and.reduce([of >= 0 for of in ranks]))
        keys: Int = np.zeros(len(rows), np.int64)
        most = 1
        for of, size in zip(ranks, map(self.columns.size, columns), strict=True):
            if most * size >= 1 << 62:
                keys = np.unique(keys, return_inverse=True)[1]
                most = len(keys) + 1
            keys = keys * size + of[rows]
            most *= size
        return rows, keys

    def is_unique(self, columns: Sequence[int]) -> bool:
        """Check whether no two complete rows have the same tuple."""
        _, keys = self.tuples_of(columns)
        for count in (_FIRST_ROWS, len(keys)):
            some = keys[:count]
            if count_distinct(some) < len(some):
                return False
        return True


def key_columns(segment: Segment) -> KeyColumns:
    """Return the columns that keys may have, of a segment that stores rows."""
    columns = segment.key_columns
    assert columns is not None
    return columns


def count_distinct(keys: Int) -> int:
    """Count the distinct numbers, none of which is negative."""
    most = int(keys.max(initial=0)) + 1
    if most > max(_MARKED, 8 * len(keys)):
        return len(distinct(keys))
    marks = np.zeros(most, bool)
    marks[keys] = True
    return int(np.count_nonzero(marks))
