"""Pairs of columns to learn from: a self-join with a threshold (paper, section 4.1).

Of a column x with n values, n - a + 1 are looked up, the rarest, where a is how many another
column must share: one that shares a of all has one of these at least (prefix filter). What is
found this way is then counted in full, and dropped as soon as too few values are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import blocks, ranges
from deepjoin.build.engine import Engine, Step
from deepjoin.embed.columns.reasons import reason
from deepjoin.errors import DeepJoinError
from deepjoin.lab.training.columns import Int, TrainingColumns
from deepjoin.relating.prefix_filter import Candidates, counted, least_shared

Float = npt.NDArray[np.float32]
#: Told how many columns are done, of how many, and what is being done.
Told = Callable[[int, int, str], None]

#: Postings read, and cells looked up, at a time: this bounds the memory.
_WORK = 1 << 22
#: To read all postings of a column is faster if they are at most so many times those of its head.
_EASY = 8


def unheard(done: int, total: int, text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Pairs:
    """Columns x, each with columns y it joins with; by x, best first, then by y."""

    x: Int
    y: Int
    #: Share of the values of x that y matches.
    joinability: Float

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: npt.NDArray[Any]) -> Pairs:
        """Keep some pairs, in this order."""
        return Pairs(self.x[rows], self.y[rows], self.joinability[rows])

    def write(self, path: Path) -> None:
        """Write all to one file."""
        with path.open("wb") as file:
            np.savez(file, x=self.x, y=self.y, joinability=self.joinability)

    @classmethod
    def read(cls, path: Path) -> Pairs:
        """Read what `write` wrote."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return cls(*_checked(arrays["x"], arrays["y"], arrays["joinability"]))
        except (OSError, EOFError, ValueError, KeyError, RuntimeError, BadZipFile) as error:
            raise DeepJoinError(
                f"The pairs to train on, {path}, cannot be read: {reason(error)} "
                "Remove the file and train again."
            ) from None


#: The first of some columns, and the one behind the last.
Block = tuple[int, int]
Compare = Callable[[Block], Iterator[Pairs]]


@dataclass(frozen=True)
class SelfJoin:
    """What a self-join keeps."""

    threshold: float = 0.7
    #: Pairs with one x, and with one y, at most; None keeps all.
    most: int | None = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise DeepJoinError(
                f"The threshold of the self-join is {self.threshold}; "
                "it is above 0 and at most 1. Give one such as 0.7."
            )
        if self.most is not None and self.most < 1:
            raise DeepJoinError(
                f"The number of pairs per column is {self.most}; give 1 or more, or none."
            )

    def asked(self, columns: TrainingColumns) -> Int:
        """Take the columns with cells; refuse columns that can have no pair."""
        if len(tables := np.unique(columns.tables)) < 2:
            raise DeepJoinError(
                f"{len(columns)} columns of {len(tables)} tables came; a pair has columns of two "
                "tables. Give more tables."
            )
        return np.flatnonzero(columns.sizes)

    def least(self, sizes: Int) -> Int:
        """Return how many values of columns of these sizes must match.

        >>> SelfJoin(0.7).least(np.array([1, 3, 10])).tolist()
        [1, 3, 7]
        """
        return least_shared(sizes, self.threshold)

    def capped(self, pairs: Pairs, by: Int) -> Pairs:
        """Keep the best pairs of each number in ``by``; which of equals is left to chance."""
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

    def best(self, columns: TrainingColumns, found: Iterable[Pairs]) -> Pairs:
        """Keep the best pairs of each x and each y of different tables, in order."""
        kept = [_none(), *(self._of_two_tables(columns, pairs) for pairs in found)]
        names = ("x", "y", "joinability")
        pairs = Pairs(*(np.concatenate([getattr(one, name) for one in kept]) for name in names))
        pairs = self.capped(pairs, pairs.y)
        self._check(columns, pairs)
        return pairs.take(np.lexsort((pairs.y, -pairs.joinability, pairs.x)))

    def _of_two_tables(self, columns: TrainingColumns, pairs: Pairs) -> Pairs:
        pairs = pairs.take(columns.tables[pairs.x] != columns.tables[pairs.y])
        return self.capped(pairs, pairs.x)

    def _check(self, columns: TrainingColumns, pairs: Pairs) -> None:
        tables = len(np.unique(columns.tables))
        if len(pairs) == 0:
            raise DeepJoinError(
                f"No two of {len(columns)} columns of {tables} tables have a joinability of "
                f"{self.threshold} or more. Lower --threshold or give more tables."
            )
        if _one_set(columns, np.unique(np.append(pairs.x, pairs.y))):
            raise DeepJoinError(
                f"All {len(pairs)} joinable pairs in {tables} tables are copies of one column; "
                "pairs of two or more columns are needed. Lower --threshold or give more tables."
            )


def equi_pairs(
    columns: TrainingColumns,
    threshold: float = 0.7,
    most: int | None = 50,
    seed: int = 0,
    told: Told = unheard,
    engine: Engine | None = None,
) -> Pairs:
    """Find the pairs (x, y) of different tables where y holds this share of the values of x.

    An ``engine`` compares some columns at a time elsewhere; the pairs are the same.

    >>> from deepjoin.model import Column
    >>> lists = ["GE", "IBM"], ["GE", "IBM", "SAP"], ["Rome", "Oslo"]
    >>> columns = TrainingColumns.of([Column(cells) for cells in lists], [0, 1, 2])
    >>> pairs = equi_pairs(columns)
    >>> pairs.x.tolist(), pairs.y.tolist(), pairs.joinability.tolist()
    ([0], [1], [1.0])
    """
    wanted = SelfJoin(threshold, most, seed)
    asked = wanted.asked(columns)
    cells = incidence(columns)
    held = Postings(cells.T.tocsr())

    compare = _Overlaps.of(asked, cells[asked], held, wanted)
    if engine is not None:
        held.get_ready()

    def found() -> Iterator[Pairs]:
        for stop, pairs in compared(compare.blocks(), compare, engine):
            yield pairs
            told(stop, len(asked), "columns compared")

    return wanted.best(columns, found())


def compared(
    tasks: Sequence[Block], compare: Compare, engine: Engine | None
) -> Iterator[tuple[int, Pairs]]:
    """Compare blocks of columns, here or elsewhere; yields how many are done, and their pairs."""
    if engine is None:
        yield from ((task[1], pairs) for task in tasks for pairs in compare(task))
        return
    step = Step(partial(_told_as_table, compare), named=_columns_named)
    with closing(engine.flow(tasks, step)) as tables:
        for table in tables:
            names = ("x", "y", "joinability")
            yield table["done"][0].as_py(), Pairs(*(table[name].to_numpy() for name in names))


def _columns_named(block: Block) -> str:
    return f"{block[1] - block[0]:,} columns to compare with the others"


def _told_as_table(compare: Compare, task: Block) -> Iterator[pa.Table]:
    for pairs in compare(task):
        done = np.full(len(pairs), task[1])
        columns = {"x": pairs.x, "y": pairs.y, "joinability": pairs.joinability}
        yield pa.table({"done": done, **columns})


def incidence(columns: TrainingColumns) -> Any:
    """Return the sparse matrix of columns and the values they hold."""
    from scipy.sparse import csr_array

    ones = np.ones(len(columns.values), np.int32)
    shape = (len(columns), len(columns.frequency))
    return csr_array((ones, columns.values, columns.offsets), shape=shape)


class Postings:
    """Which columns match each value: a sparse matrix of values and columns."""

    def __init__(self, matrix: Any) -> None:
        # A column counts once, however many of its values match.
        matrix.data[:] = 1
        self.matrix = matrix
        self.frequency: Int = np.diff(matrix.indptr).astype(np.int64)

    @cached_property
    def _keys(self) -> Int:
        values = np.repeat(np.arange(len(self.frequency)), self.frequency)
        return np.sort(values * self.matrix.shape[1] + self.matrix.indices)

    def get_ready(self) -> None:
        """Do once what everybody would do who is sent a copy."""
        _ = self._keys

    def have(self, values: Int, columns: Int) -> npt.NDArray[np.bool_]:
        """Say of each value and column whether they match."""
        keys = values * self.matrix.shape[1] + columns
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        same: npt.NDArray[np.bool_] = self._keys[at] == keys
        return same


class _Rows(NamedTuple):
    """The values of columns x, rarest first; how many must match, and how many come first."""

    offsets: Int
    values: Int
    sizes: Int
    least: Int
    heads: Int


def overlaps(
    asked: Int, cells: Any, held: Postings, wanted: SelfJoin
) -> Iterator[tuple[int, Pairs]]:
    """Yield the pairs of the columns asked about, some columns at a time, and how many are done.

    ``cells`` is a sparse matrix of these columns and their values.
    """
    compare = _Overlaps.of(asked, cells, held, wanted)
    yield from compared(compare.blocks(), compare, None)


@dataclass(frozen=True)
class _Overlaps:
    """Counts what blocks of columns share with others; as one value, it can be sent elsewhere."""

    asked: Int
    rows: _Rows
    #: The sparse matrix of these columns and the values that are looked up first.
    heads: Any
    held: Postings

    @classmethod
    def of(cls, asked: Int, cells: Any, held: Postings, wanted: SelfJoin) -> _Overlaps:
        """Put the values of the columns in order."""
        rows = _rarest_first(cells, held.frequency, wanted)
        return cls(asked, rows, _heads(rows, cells.shape[1]), held)

    def blocks(self) -> list[Block]:
        """Cut the columns asked about into blocks of bounded work."""
        return list(blocks(self.heads @ self.held.frequency, _WORK))

    def __call__(self, block: Block) -> Iterator[Pairs]:
        """Yield the pairs of a block."""
        start, stop = block
        rows = self.rows
        common = (self.heads[start:stop] @ self.held.matrix).tocoo()
        number = start + common.row.astype(np.int64)
        found = Candidates(number, common.col, rows.heads[number], common.data)
        compare = partial(_matches, rows=rows, held=self.held)
        found = counted(found, rows.sizes, rows.least, _WORK, compare)
        share = (found.matched / rows.sizes[found.rows]).astype(np.float32)
        yield Pairs(self.asked[found.rows], found.columns.astype(np.int64), share)


def _rarest_first(cells: Any, frequency: Int, wanted: SelfJoin) -> _Rows:
    offsets, sizes = cells.indptr.astype(np.int64), np.diff(cells.indptr).astype(np.int64)
    order = np.lexsort((frequency[cells.indices], np.repeat(np.arange(len(sizes)), sizes)))
    values, least = cells.indices[order].astype(np.int64), wanted.least(sizes)
    heads = sizes - least + 1
    work = np.concatenate([[0], np.cumsum(frequency[values])])
    first, last = work[offsets[:-1]], work[offsets[1:]]
    easy = last - first <= _EASY * (work[offsets[:-1] + heads] - first)
    return _Rows(offsets, values, sizes, least, np.where(easy, sizes, heads))


def _heads(rows: _Rows, width: int) -> Any:
    """Return the sparse matrix of the values that are looked up first."""
    from scipy.sparse import csr_array

    places = ranges(rows.offsets[:-1], rows.heads)
    offsets = np.concatenate([[0], np.cumsum(rows.heads)])
    ones = np.ones(len(places), np.int32)
    return csr_array((ones, rows.values[places], offsets), shape=(len(rows.heads), width))


def _matches(found: Candidates, lengths: Int, rows: _Rows, held: Postings) -> Int:
    """Look up so many more values of each pair, and count those that match."""
    values = rows.values[ranges(rows.offsets[found.rows] + found.seen, lengths)]
    which = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(which[held.have(values, found.columns[which])], minlength=len(lengths))


def _worse(pairs: Pairs, seed: int) -> npt.NDArray[np.uint64]:
    """Return numbers that are larger the less joinable a pair is, random among equals."""
    mixed = np.full(len(pairs), seed % 2**64, np.uint64)
    # Both columns count: by one alone, all columns x would choose the same few of equal y.
    for numbers in (pairs.x, pairs.y):
        mixed = (mixed ^ numbers.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    # As whole numbers, the bits of positive fractions have the order of the fractions.
    better = pairs.joinability.view(np.uint32).astype(np.uint64) << np.uint64(32)
    return ~better & np.uint64(0xFFFFFFFF00000000) | mixed >> np.uint64(32)


def _checked(*arrays: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Refuse arrays that are not those of pairs."""
    found = [(str(array.dtype), array.shape) for array in arrays]
    if found != [(kind, (arrays[0].size,)) for kind in ("int64", "int64", "float32")]:
        raise ValueError("its arrays are not those of pairs")
    return arrays


def _none() -> Pairs:
    nothing = np.zeros(0, np.int64)
    return Pairs(nothing, nothing, np.zeros(0, np.float32))


def _one_set(columns: TrainingColumns, numbers: Int) -> bool:
    """Say whether columns all hold the same values."""
    sets = (np.sort(columns.values[columns.places(number)]) for number in numbers.tolist())
    first = next(sets)
    return all(np.array_equal(first, other) for other in sets)
