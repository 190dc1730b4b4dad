"""Training pairs: a self-join of columns with a threshold (paper, section 4.1).

Prefix filter: a column x with n values that must share at least ``a`` of them with another column
looks up only its n - a + 1 rarest values, since any partner holds at least one of these. Candidates
are then counted in full, and dropped as soon as too few values are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Array, Float, Hashes, Int, Marks, blocks, ranges
from deepjoin.build.engine import Engine, Step
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import TrainingColumns, read_arrays, readable
from deepjoin.lazy import cached_property
from deepjoin.progress import Progress, no_progress
from deepjoin.relating.prefix_filter import PrefixCandidates, counted, least_shared

#: A range of columns: the first, and one past the last.
Block = tuple[int, int]
Compare = Callable[[Block], Iterator["ColumnPairs"]]

#: Postings read, and cells looked up, at a time; this bounds the memory.
_WORK = 1 << 22
#: Reading all postings of a column is faster if they are at most this many times its prefix's.
_EASY = 8
#: Cells compared by meaning at a time, and the least probability with which two values match.
_CELLS, _MATCH = 1 << 16, 0.5


@dataclass(frozen=True)
class ColumnPairs:
    """Columns x, each with columns y it joins with; sorted by x, then best first, then by y."""

    x: Int
    y: Int
    #: Share of the values of x that y matches.
    joinability: Float

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Array) -> ColumnPairs:
        """Keep some pairs, in this order."""
        return ColumnPairs(self.x[rows], self.y[rows], self.joinability[rows])

    def write(self, path: Path) -> None:
        """Write the pairs to a file."""
        with path.open("wb") as file:
            np.savez(file, x=self.x, y=self.y, joinability=self.joinability)

    @classmethod
    def read(cls, path: Path) -> ColumnPairs:
        """Read what `write` wrote."""
        with readable(path, "pairs"), read_arrays(path) as arrays:
            x, y, joinability = (arrays[name] for name in ("x", "y", "joinability"))
            found = [(str(array.dtype), array.shape) for array in (x, y, joinability)]
            if found != [(kind, (x.size,)) for kind in ("int64", "int64", "float32")]:
                raise ValueError("its arrays are not those of pairs")
            return cls(x, y, joinability)


@dataclass(frozen=True)
class PairRule:
    """Which pairs a self-join keeps."""

    threshold: float = 0.7
    #: Pairs kept for each x and for each y; None keeps all.
    most: int | None = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise DeepJoinError(
                f"The threshold of the self-join is {self.threshold}; it must be above 0 and at "
                "most 1. Give one such as 0.7."
            )
        if self.most is not None and self.most < 1:
            raise DeepJoinError(
                f"The number of pairs per column is {self.most}; give 1 or more, or none."
            )

    def filled(self, columns: TrainingColumns) -> Int:
        """Return the columns with cells; refuse columns of a single table, which have no pair."""
        if len(tables := np.unique(columns.tables)) < 2:
            raise DeepJoinError(
                f"{len(columns)} columns of {len(tables)} tables came; a pair has columns of two "
                "tables. Give more tables."
            )
        return np.flatnonzero(columns.sizes)

    def least(self, sizes: Int) -> Int:
        """Return how many values of columns of these sizes must match.

        >>> PairRule(0.7).least(np.array([1, 3, 10])).tolist()
        [1, 3, 7]
        """
        return least_shared(sizes, self.threshold)

    def capped(self, pairs: ColumnPairs, by: Int) -> ColumnPairs:
        """Keep the best pairs of each number in ``by``; ties are broken at random."""
        if self.most is None:
            return pairs
        order = np.argsort(by, kind="stable")
        worse = _worse(pairs, self.seed)[order]
        starts = np.flatnonzero(np.diff(by[order], prepend=-1))
        kept = np.ones(len(order), bool)
        for start, stop in pairwise([*starts.tolist(), len(order)]):
            if stop - start > self.most:
                kept[start + np.argpartition(worse[start:stop], self.most)[self.most :]] = False
        return pairs.take(np.sort(order[kept]))

    def best(self, columns: TrainingColumns, found: Iterable[ColumnPairs]) -> ColumnPairs:
        """Keep the best pairs of each x and each y of different tables, in order."""
        kept = [ColumnPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))]
        for some in found:
            across = some.take(columns.tables[some.x] != columns.tables[some.y])
            kept.append(self.capped(across, across.x))
        x, y, joinability = (
            np.concatenate([getattr(one, name) for one in kept])
            for name in ("x", "y", "joinability")
        )
        pairs = self.capped(ColumnPairs(x, y, joinability), y)
        self._check(columns, pairs)
        return pairs.take(np.lexsort((pairs.y, -pairs.joinability, pairs.x)))

    def _check(self, columns: TrainingColumns, pairs: ColumnPairs) -> None:
        tables = len(np.unique(columns.tables))
        if len(pairs) == 0:
            raise DeepJoinError(
                f"No two of {len(columns)} columns of {tables} tables have a joinability of "
                f"{self.threshold} or more. Lower `threshold` or give more tables."
            )
        numbers = np.unique(np.append(pairs.x, pairs.y)).tolist()
        first, *others = (np.sort(columns.values[columns.places(number)]) for number in numbers)
        if all(np.array_equal(first, other) for other in others):
            raise DeepJoinError(
                f"All {len(pairs)} joinable pairs in {tables} tables are copies of one column; "
                "pairs of two or more columns are needed. Lower `threshold` or give more tables."
            )


def _worse(pairs: ColumnPairs, seed: int) -> Hashes:
    """Return numbers that are larger the less joinable a pair is, random among equals."""
    mixed = np.full(len(pairs), seed % 2**64, np.uint64)
    # Both columns count: by one alone, all columns x would choose the same few of equal y.
    for numbers in (pairs.x, pairs.y):
        mixed = (mixed ^ numbers.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    # As whole numbers, the bits of positive fractions have the order of the fractions.
    better = pairs.joinability.view(np.uint32).astype(np.uint64) << np.uint64(32)
    return ~better & np.uint64(0xFFFFFFFF00000000) | mixed >> np.uint64(32)


def equi_pairs(
    columns: TrainingColumns,
    threshold: float = 0.7,
    most: int | None = 50,
    seed: int = 0,
    progress: Progress = no_progress,
    engine: Engine | None = None,
) -> ColumnPairs:
    """Find the pairs (x, y) of different tables where y holds this share of the values of x.

    An ``engine`` compares blocks of columns elsewhere; the pairs are the same.

    >>> from deepjoin.model import Column
    >>> lists = ["GE", "IBM"], ["GE", "IBM", "SAP"], ["Rome", "Oslo"]
    >>> columns = TrainingColumns.of([Column(cells) for cells in lists], [0, 1, 2])
    >>> pairs = equi_pairs(columns)
    >>> pairs.x.tolist(), pairs.y.tolist(), pairs.joinability.tolist()
    ([0], [1], [1.0])
    """
    rule = PairRule(threshold, most, seed)
    filled = rule.filled(columns)
    cells = incidence(columns)
    compare = _EqualValues(filled, cells[filled], _ValuePostings(cells.T.tocsr()), rule)
    if engine is not None:
        compare.held.prepare()
    found = _compared(compare.blocks(), compare, engine, len(filled), progress)
    return rule.best(columns, found)


def semantic_pairs(
    columns: TrainingColumns,
    near: Any,
    threshold: float = 0.7,
    most: int | None = 50,
    seed: int = 0,
    progress: Progress = no_progress,
    engine: Engine | None = None,
) -> ColumnPairs:
    """Find the pairs (x, y) of different tables where y matches this share of the values of x.

    ``near`` is the sparse matrix of `deepjoin.lab.training.prepare`; values match from a
    probability of one half on, that is from tau on. An ``engine`` compares blocks of columns
    elsewhere.
    """
    rule = PairRule(threshold, most, seed)
    filled = rule.filled(columns)
    cells = incidence(columns)
    matches = near[: cells.shape[1], : cells.shape[1]]
    matches.data = (matches.data >= _MATCH).astype(np.int32)
    matches.eliminate_zeros()
    compare = _SimilarValues(filled, cells, cells.T.tocsr(), matches, rule)
    tasks = list(blocks(columns.sizes[filled], _CELLS))
    return rule.best(columns, _compared(tasks, compare, engine, len(filled), progress))


def _compared(
    tasks: Sequence[Block], compare: Compare, engine: Engine | None, total: int, progress: Progress
) -> Iterator[ColumnPairs]:
    """Compare blocks of columns, in this process or by an engine."""
    if engine is None:
        for task in tasks:
            yield from compare(task)
            progress(task[1], total, "columns compared")
        return
    step = Step(
        partial(_as_tables, compare),
        named=lambda block: f"{block[1] - block[0]:,} columns to compare with the others",
    )
    with closing(engine.flow(tasks, step)) as tables:
        for table in tables:
            names = ("x", "y", "joinability")
            yield ColumnPairs(*(table[name].to_numpy() for name in names))
            progress(table["done"][0].as_py(), total, "columns compared")


def _as_tables(compare: Compare, task: Block) -> Iterator[pa.Table]:
    for pairs in compare(task):
        columns = {"x": pairs.x, "y": pairs.y, "joinability": pairs.joinability}
        yield pa.table({"done": np.full(len(pairs), task[1]), **columns})


def incidence(columns: TrainingColumns) -> Any:
    """Return the sparse matrix of columns and the values they hold."""
    from scipy.sparse import csr_array

    ones = np.ones(len(columns.values), np.int32)
    shape = (len(columns), len(columns.frequency))
    return csr_array((ones, columns.values, columns.offsets), shape=shape)


class _ValuePostings:
    """The columns that match each value: a sparse matrix of values and columns."""

    def __init__(self, matrix: Any) -> None:
        # A column counts once, however many of its values match.
        matrix.data[:] = 1
        self.matrix = matrix
        self.frequency: Int = np.diff(matrix.indptr).astype(np.int64)

    @cached_property
    def _keys(self) -> Int:
        values = np.repeat(np.arange(len(self.frequency)), self.frequency)
        return np.sort(values * self.matrix.shape[1] + self.matrix.indices)

    def prepare(self) -> None:
        """Compute the keys before copies are sent, so that no receiver has to."""
        _ = self._keys

    def have(self, values: Int, columns: Int) -> Marks:
        """Return for each value and column whether they match."""
        keys = values * self.matrix.shape[1] + columns
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        same: Marks = self._keys[at] == keys
        return same


class _EqualValues:
    """Counts the values that blocks of columns share with others; engines pickle it.

    ``cells`` is the sparse matrix of the ``columns`` compared and their values.
    """

    def __init__(self, columns: Int, cells: Any, held: _ValuePostings, rule: PairRule) -> None:
        from scipy.sparse import csr_array

        self._columns, self.held = columns, held
        self._offsets = cells.indptr.astype(np.int64)
        self._sizes = np.diff(self._offsets)
        self._least = rule.least(self._sizes)
        # The values of each column, rarest first.
        owners = np.repeat(np.arange(len(self._sizes)), self._sizes)
        order = np.lexsort((held.frequency[cells.indices], owners))
        self._values = cells.indices[order].astype(np.int64)
        prefixes = self._sizes - self._least + 1
        work = np.concatenate([[0], np.cumsum(held.frequency[self._values])])
        first, last = work[self._offsets[:-1]], work[self._offsets[1:]]
        easy = last - first <= _EASY * (work[self._offsets[:-1] + prefixes] - first)
        self._prefixes = np.where(easy, self._sizes, prefixes)
        places = ranges(self._offsets[:-1], self._prefixes)
        ends = np.concatenate([[0], np.cumsum(self._prefixes)])
        #: The sparse matrix of the columns and the values of their prefixes.
        self._looked_up = csr_array(
            (np.ones(len(places), np.int32), self._values[places], ends),
            shape=(len(self._sizes), cells.shape[1]),
        )

    def blocks(self) -> list[Block]:
        """Cut the columns into blocks of bounded work."""
        return list(blocks(self._looked_up @ self.held.frequency, _WORK))

    def __call__(self, block: Block) -> Iterator[ColumnPairs]:
        """Yield the pairs of a block."""
        start, stop = block
        common = (self._looked_up[start:stop] @ self.held.matrix).tocoo()
        rows = start + common.row.astype(np.int64)
        found = PrefixCandidates(rows, common.col, self._prefixes[rows], common.data)
        found = counted(found, self._sizes, self._least, _WORK, self._matches)
        share = (found.matched / self._sizes[found.rows]).astype(np.float32)
        yield ColumnPairs(self._columns[found.rows], found.columns.astype(np.int64), share)

    def _matches(self, found: PrefixCandidates, lengths: Int) -> Int:
        """Look up this many more values of each pair, and count those that match."""
        values = self._values[ranges(self._offsets[found.rows] + found.seen, lengths)]
        which = np.repeat(np.arange(len(lengths)), lengths)
        matching = self.held.have(values, found.columns[which])
        return np.bincount(which[matching], minlength=len(lengths))


@dataclass(frozen=True)
class _SimilarValues:
    """Counts the values that blocks of columns match by meaning; engines pickle it."""

    columns: Int
    #: Sparse matrices: columns and values, values and columns, values and the values they match.
    cells: Any
    held: Any
    matches: Any
    rule: PairRule

    def __call__(self, block: Block) -> Iterator[ColumnPairs]:
        """Yield the pairs of a block, some columns at a time, which bounds the memory."""
        from scipy.sparse import csr_array

        some = self.columns[slice(*block)]
        cells = self.cells[some]
        values, places = np.unique(cells.indices, return_inverse=True)
        narrow = csr_array((cells.data, places, cells.indptr), shape=(len(some), len(values)))
        held = _ValuePostings(self.matches[values] @ self.held)
        compare = _EqualValues(some, narrow, held, self.rule)
        for part in compare.blocks():
            yield from compare(part)
