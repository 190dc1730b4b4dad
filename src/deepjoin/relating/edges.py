"""Pairs of columns that join: as arrays in memory, and as the edges of a graph on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import (
    Array,
    ArrayWriter,
    Int,
    blocks,
    create_array,
    load_array,
    places_in_runs,
    ranges,
)
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import cardinality_of

#: Edges worked on at a time.
_EDGES = 1 << 20
#: What the codes of `JoinedColumns.repeats` stand for.
CARDINALITIES = tuple(cardinality_of(1 + (code & 1), 1 + (code >> 1)) for code in range(4))


def check_share(least: float) -> None:
    """Refuse a threshold out of range; 0 is, since every two columns reach it."""
    if not 0 < least <= 1:
        raise DeepJoinError(
            f"min_joinability is {least}; it must be above 0 and at most 1, e.g. 0.5."
        )


class JoinedColumns(NamedTuple):
    """Pairs of columns by number, by ``a``, then by ``b``; ``a`` has no more values than ``b``."""

    a: Int
    b: Int
    #: How many distinct values the two share.
    matched: Int
    #: 1 if a shared value occurs more than once in ``a``, plus 2 if one does so in ``b``.
    repeats: npt.NDArray[np.uint8]

    @classmethod
    def sorted(cls, parts: Iterable[JoinedColumns]) -> JoinedColumns:
        """Put the pairs of all parts in one order."""
        none = np.zeros(0, np.int64)
        first = cls(none, none, none, np.zeros(0, np.uint8))
        whole = cls(*map(np.concatenate, zip(first, *parts, strict=True)))
        return whole.take(np.lexsort((whole.b, whole.a)))

    def take(self, rows: Array) -> JoinedColumns:
        """Keep some pairs, in this order."""
        return JoinedColumns(self.a[rows], self.b[rows], self.matched[rows], self.repeats[rows])


class EdgeList:
    """Edges in the order of their smaller columns ``a``, then of ``b``; memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self._offsets = load_array(folder / "a_offsets.npy")
        self._b, self._matched, self._repeats = (
            load_array(folder / f"{name}.npy") for name in ("b", "matched", "repeats")
        )
        self._by_b = load_array(folder / "by_b.npy")
        self._by_b_offsets = load_array(folder / "b_offsets.npy")

    def __len__(self) -> int:
        return len(self._b)

    @property
    def counts(self) -> Int:
        """How many edges each column has as the smaller one."""
        return np.diff(self._offsets)

    def batches(self) -> Iterator[JoinedColumns]:
        """Yield all edges, some at a time."""
        for first, last in blocks(self.counts, _EDGES):
            yield self.of_smaller(np.arange(first, last))

    def of_smaller(self, columns: Int) -> JoinedColumns:
        """Return the edges of which these columns are the smaller."""
        counts = self._offsets[columns + 1] - self._offsets[columns]
        edges = ranges(self._offsets[columns], counts)
        return self._edges(np.repeat(columns, counts), edges)

    def count(self, column: int) -> int:
        """Count the edges of a column."""
        offsets = (self._offsets, self._by_b_offsets)
        return sum(int(of[column + 1] - of[column]) for of in offsets)

    def of(self, column: int) -> JoinedColumns:
        """Return all edges of a column."""
        start, stop = self._by_b_offsets[column : column + 2].tolist()
        edges = self._by_b[start:stop].astype(np.int64)
        a = np.searchsorted(self._offsets, edges, "right") - 1
        larger = self._edges(a, edges)
        return JoinedColumns.sorted([larger, self.of_smaller(np.array([column]))])

    def _edges(self, a: Int, edges: Int) -> JoinedColumns:
        b, matched = (array[edges].astype(np.int64) for array in (self._b, self._matched))
        return JoinedColumns(a, b, matched, self._repeats[edges])


class EdgeListWriter:
    """Writes edges that come in the order of their columns ``a``."""

    def __init__(self, folder: Path, columns: int) -> None:
        # Appended to files: only the counts of each column are held in memory.
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._counts, self._b_counts = np.zeros((2, columns), np.int64)
        self._b = ArrayWriter(folder / "b.npy", np.uint32)
        self._matched = ArrayWriter(folder / "matched.npy", np.uint32)
        self._repeats = ArrayWriter(folder / "repeats.npy", np.uint8)

    def append(self, found: JoinedColumns) -> None:
        """Write the next edges."""
        np.add.at(self._counts, found.a, 1)
        np.add.at(self._b_counts, found.b, 1)
        self._b.append(found.b)
        self._matched.append(found.matched)
        self._repeats.append(found.repeats)

    def finish(self) -> None:
        """Write where the edges of each column are, and list them by their larger columns."""
        self._close()
        for name, counts in (("a_offsets", self._counts), ("b_offsets", self._b_counts)):
            with ArrayWriter(self._folder / f"{name}.npy", np.int64) as writer:
                writer.append(np.append(0, np.cumsum(counts)))
        # Block by block, with the next free place of each column: the edges may not fit in memory.
        b, free = load_array(self._folder / "b.npy"), np.cumsum(self._b_counts) - self._b_counts
        kind = np.uint32 if len(b) < 1 << 32 else np.uint64
        by_b = create_array(self._folder / "by_b.npy", kind, len(b))
        for start in range(0, len(b), _EDGES):
            order = np.argsort(b[start : start + _EDGES], kind="stable")
            columns = b[start : start + _EDGES][order].astype(np.int64)
            by_b[free[columns] + places_in_runs(columns)] = start + order
            np.add.at(free, columns, 1)

    def __enter__(self) -> EdgeListWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        for writer in (self._b, self._matched, self._repeats):
            writer.close()
