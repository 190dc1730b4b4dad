"""Foreign keys of several columns: tuples of one table that are tuples of another.

Two tables of a source that share two to six names of columns are compared row by row. Where one
column more or less decides nothing, the key has all columns that both tables name alike, as people
declare it. A key is then weighed like a column: `KeyPair` has the same numbers for its tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Int, Marks, find_sorted
from deepjoin.matching.names import key_words
from deepjoin.store.segment import Numbering
from deepjoin.store.values.rows import NOT_STORED

#: Columns of a key.
_LEAST_COLUMNS, _MOST_COLUMNS = 2, 6
#: A name that more tables have is that of a family of tables, which are copies of each other.
_TABLES = 50
#: Rows compared at most; pairs of tables that are left out are counted.
_ROWS = 30_000_000
#: Rows of the child without a parent that are shown.
_ORPHANS = 10
#: The least share of the child's tuples, and of each of its columns' values, in the parent.
_CONTAINED = 0.5


class KeyPair(NamedTuple):
    """A key of several columns and the key of another table that holds its tuples."""

    child: tuple[int, ...]
    parent: tuple[int, ...]
    #: Distinct tuples and complete rows of each, and the child's tuples that the parent has.
    child_size: int
    child_rows: int
    parent_size: int
    parent_rows: int
    matched: int
    #: Complete rows of the child whose tuple the parent lacks, and the first of them.
    orphans: int
    orphan_rows: tuple[int, ...]
    #: The most rows of the child that share a tuple with the parent.
    most: int


@dataclass
class KeyFinder:
    """Finds foreign keys of several columns in the rows of tables."""

    columns: Numbering
    #: The table and the source of each column.
    tables: Int
    sources: Int
    #: The place of each column in its table.
    places: Int
    joins: Marks
    #: Pairs of tables that were not compared, because that would have taken too long.
    left_out: int = 0
    _work: int = 0
    _ranks: dict[int, Int] = field(default_factory=dict)

    def found(self) -> Iterator[KeyPair]:
        """Yield the keys of all pairs of tables."""
        for child, parent in self._shared():
            if self._work > _ROWS:
                self.left_out += 1
                continue
            one = self._compared(child, parent)
            if one is not None:
                yield one

    def _shared(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the columns that two tables of a source name alike, in the parent's order."""
        by_name: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
        width: dict[int, int] = defaultdict(int)
        for column in np.flatnonzero(self.joins).tolist():
            table = int(self.tables[column])
            width[table] += 1
            if self.has_rows([column]):
                name = "".join(key_words(self.columns.column_name(column)))
                if name:
                    by_name[int(self.sources[table]), name].setdefault(table, column)
        together: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for holders in by_name.values():
            if 1 < len(holders) <= _TABLES:
                for one, other in combinations(sorted(holders), 2):
                    together[one, other].append((holders[one], holders[other]))
        for (one, other), pairs in together.items():
            copies = len(pairs) == width[one] == width[other]
            if not _LEAST_COLUMNS <= len(pairs) <= _MOST_COLUMNS or copies:
                continue
            for child, parent in ((0, 1), (1, 0)):
                ordered = sorted(pairs, key=lambda pair: int(self.places[pair[parent]]))
                yield [pair[child] for pair in ordered], [pair[parent] for pair in ordered]

    def has_rows(self, columns: Sequence[int]) -> bool:
        """Check whether it is known which rows of some columns belong together."""
        return all(
            segment.rows is not None and int(segment.rows.widths[number]) != NOT_STORED
            for segment, number in map(self.columns.column, columns)
        )

    def _compared(self, child: Sequence[int], parent: Sequence[int]) -> KeyPair | None:
        """Compare the rows of two tables; None if the one does not refer to the other."""
        pairs = list(zip(child, parent, strict=True))
        rows = [(self._own(a), self._own(b)) for a, b in pairs]
        if len({len(of) for of, _ in rows}) > 1 or len({len(of) for _, of in rows}) > 1:
            return None
        self._work += len(pairs) * (len(rows[0][0]) + len(rows[0][1]))
        # A column that is unique alone is a key of one column.
        if any(_is_unique(of) for _, of in rows):
            return None
        there = [self._in_parent(a, b) for a, b in pairs]
        kept = [
            at
            for at, (of, known) in enumerate(zip(rows, there, strict=True))
            if (known >= 0).sum() >= _CONTAINED * max(1, (of[0] >= 0).sum())
        ]
        while len(kept) >= _LEAST_COLUMNS:
            one = self.measured([pairs[at] for at in kept])
            if one.parent_size < one.parent_rows or one.parent_rows == 0:
                return None  # fewer columns are not a key either
            if one.child_size and one.matched >= _CONTAINED * one.child_size:
                return one
            # Without the column whose values the parent lacks most often.
            worst = min(kept, key=lambda at: int((there[at] >= 0).sum()))
            kept = [at for at in kept if at != worst]
        return None

    def measured(self, pairs: Sequence[tuple[int, int]]) -> KeyPair:
        """Compare the tuples of two tables, whatever comes of it."""
        theirs = [self._own(parent) for _, parent in pairs]
        there = [self._in_parent(child, parent) for child, parent in pairs]
        # Numbered together, in the ranks of the parent: equal numbers are equal tuples.
        both = _tuples([np.append(one, other) for one, other in zip(theirs, there, strict=True)])
        held = both[: len(theirs[0])]
        held = held[held >= 0]
        own = _tuples([self._own(child) for child, _ in pairs])
        has = np.isin(both[len(theirs[0]) :], held) & (own >= 0)
        orphans = np.flatnonzero((own >= 0) & ~has)
        matched, counts = np.unique(own[has], return_counts=True)
        return KeyPair(
            tuple(child for child, _ in pairs),
            tuple(parent for _, parent in pairs),
            len(np.unique(own[own >= 0])),
            int((own >= 0).sum()),
            len(np.unique(held)),
            len(held),
            len(matched),
            len(orphans),
            tuple(orphans[:_ORPHANS].tolist()),
            int(counts.max(initial=1)),
        )

    def _own(self, column: int) -> Int:
        """Return the rank of each row's value; -1 for a missing cell."""
        if column not in self._ranks:
            if len(self._ranks) > 64:
                self._ranks.clear()
            segment, number = self.columns.column(column)
            assert segment.rows is not None
            present = int(segment.catalog.column_cells[number])
            self._ranks[column] = segment.rows.ranks(number, present).astype(np.int64)
        return self._ranks[column]

    def _in_parent(self, child: int, parent: int) -> Int:
        """Return the rank that each row's value has among those of the parent; -1 for none."""
        (one, x), (other, y) = self.columns.column(child), self.columns.column(parent)
        values = one.values.cell_values[slice(*one.values.cells_of(x))].astype(np.int64)
        if one is not other:
            values = other.values.look_up([one.values.values[value] for value in values.tolist()])
        held = other.values.cell_values[slice(*other.values.cells_of(y))].astype(np.int64)
        ranks = np.append(find_sorted(held, values), -1)  # -1 for missing cells
        found: Int = ranks[self._own(child)]
        return found

    def texts(self, columns: Sequence[int], rows: Sequence[int]) -> tuple[str, ...]:
        """Return tuples of some rows as text."""
        found = []
        for row in rows:
            parts = []
            for column in columns:
                segment, number = self.columns.column(column)
                start = segment.values.cells_of(number)[0]
                at = np.array([start + int(self._own(column)[row])])
                parts.append(segment.values.cells(at)[0])
            found.append(" + ".join(parts))
        return tuple(found)


def _is_unique(ranks: Int) -> bool:
    held = ranks[ranks >= 0]
    return len(held) == 0 or len(np.unique(held)) == len(held)


def _complete(parts: Sequence[Int]) -> Marks:
    found: Marks = np.logical_and.reduce([part >= 0 for part in parts])
    return found


def _tuples(parts: Sequence[Int]) -> Int:
    """Give every tuple of rows a number; -1 for one with a missing cell."""
    keys = np.zeros(len(parts[0]), np.int64)
    for part in parts:
        size = int(part.max(initial=0)) + 2
        # Numbers that are not too large for the next column.
        keys = np.unique(keys * size + part + 1, return_inverse=True)[1].astype(np.int64)
    return np.where(_complete(parts), keys, -1)
