"""Value vectors in 8 bits, with a proven bound on what that costs, and lists of near ones.

A unit vector v is rotated by a fixed matrix and stored as scale * codes; its error is the length
of what is lost. Rows are in the order of the values, or in that of the lists (`ORDER_FILES`).

`ValueVectors.near` scans all rows and misses nothing. `ValueLists.near` scans a few lists: it
misses a pair whose value is in none of them; what it finds is as exact as in the full scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import ArrayWriter, Float, Int, Int32, distinct, load_array, prefetch
from deepjoin.embed.scan import ZERO_POINT, CandidatePairs, Codes, QuantisedRows, Scan
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property

#: The files of a segment's vectors, in its folder.
FILES = ("vector_codes.npy", "vector_scales.npy", "vector_errors.npy", "vector_rotation.npy")
#: The value of each row, and the row of each value: only where rows are in the order of lists.
ORDER_FILES = ("vector_values.npy", "vector_rows.npy")
#: The lists, if any: codes of the middle of each, all of one scale, where each list starts, and
#: the rows in all lists.
LIST_FILES = ("list_codes.npy", "list_offsets.npy", "list_rows.npy")

LARGEST_CODE = 127
_ROUNDING = 1e-6
_SEED = 20221
#: Lists scanned for each cell, and pairs kept of each: a cell near to more says nothing.
PROBES, MOST = 6, 2_000
#: Lists whose best stands for all when the nearest lists are sought.
_GROUP = 64
#: Cells that share their lists, which costs little and finds more.
_CELLS = 64
#: Up to this many vectors are those of a query; so many of them are rotated at a time.
_FEW, _AT_ONCE = 512, 16
#: Vectors rounded at a time.
_BLOCK = 1 << 16


def write_vectors(folder: Path, blocks: Iterable[npt.ArrayLike], dimension: int) -> int:
    """Store unit vectors, zero vectors among them, given in blocks; return how many."""
    rotation = new_rotation(dimension)
    rows = (quantised(block, rotation) for block in blocks)
    return write_in_order(folder, rows, rotation)


def write_in_order(folder: Path, blocks: Iterable[QuantisedRows], rotation: Float) -> int:
    """Store rows in the order of the values; remove the lists of earlier rows."""
    for name in (*ORDER_FILES, *LIST_FILES):
        (folder / name).unlink(missing_ok=True)
    return write_rows([folder / name for name in FILES], blocks, rotation)


def write_rows(paths: Sequence[Path], blocks: Iterable[QuantisedRows], rotation: Float) -> int:
    """Write rows to four files, in the order of `FILES`; return how many."""
    codes, scales, errors, turned = paths
    with (
        ArrayWriter(turned, np.float32) as to_rotation,
        ArrayWriter(codes, np.uint8) as to_codes,
        ArrayWriter(scales, np.float32) as to_scales,
        ArrayWriter(errors, np.float32) as to_errors,
    ):
        to_rotation.append(rotation.ravel())
        for block in blocks:
            to_codes.append(block.codes.ravel())
            to_scales.append(block.scales)
            to_errors.append(block.errors)
        return to_scales.length


def checked(vectors: npt.ArrayLike, dimension: int) -> Float:
    """Refuse what is not a matrix of unit or zero vectors of this dimension."""
    matrix = np.ascontiguousarray(vectors, np.float32)
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise DeepJoinError(
            f"Vectors of shape {matrix.shape} where rows of {dimension} numbers are stored. "
            "Encode queries with the encoder of the index."
        )
    squares = np.einsum("ij,ij->i", matrix, matrix)
    # Written so that NaN fails as well.
    wrong = np.flatnonzero(~((np.abs(squares - 1) < 1e-5) | (squares == 0)))
    if len(wrong):
        raise DeepJoinError(
            f"Vector {wrong[0]} has the squared length {squares[wrong[0]]:.4g}; "
            "1, or 0 for a value without a vector, is allowed. Normalise the vectors first."
        )
    return matrix


@lru_cache(maxsize=2)
def new_rotation(dimension: int) -> Float:
    """Return a fixed random rotation: it spreads every vector evenly over the dimensions."""
    noise = np.random.default_rng(_SEED).standard_normal((dimension, dimension))
    rotation = np.asarray(np.linalg.qr(noise)[0], np.float32)
    rotation.flags.writeable = False
    return rotation


def rotated(vectors: Float, rotation: Float) -> Float:
    """Rotate vectors, in double precision: so a row does not depend on the rows beside it."""
    wide = rotation.astype(np.float64)
    if len(vectors) > _FEW:
        return np.asarray(vectors.astype(np.float64) @ wide, np.float32)
    # A few at a time, for which no library wakes threads: that takes longer than the products.
    parts = [vectors[at : at + _AT_ONCE].astype(np.float64) @ wide
             for at in range(0, max(1, len(vectors)), _AT_ONCE)]  # fmt: skip
    return np.asarray(np.concatenate(parts), np.float32)


def quantised(vectors: npt.ArrayLike, rotation: Float) -> QuantisedRows:
    """Rotate vectors and round them: codes, the scale of each, the length of what is lost."""
    rows = rotated(checked(vectors, len(rotation)), rotation)
    scale = np.max(np.abs(rows), axis=1, initial=0) / LARGEST_CODE
    signed = np.rint(rows / np.where(scale > 0, scale, 1)[:, None])
    # Never 0, which stands for equal cells.
    error = np.linalg.norm(rows - signed * scale[:, None], axis=1) + np.float32(_ROUNDING)
    codes: Codes = (signed + ZERO_POINT).astype(np.uint8)
    return QuantisedRows(codes, scale.astype(np.float32), error.astype(np.float32))


class ValueVectors:
    """Vectors of values in 8 bits: those of a segment, mapped from its files, or in memory."""

    def __init__(
        self, stored: QuantisedRows, rotation: Float, order: tuple[Int32, Int32] | None = None
    ) -> None:
        self.stored, self.rotation, self.dimension = stored, rotation, len(rotation)
        #: The value of each row and the row of each value, if they are not the same.
        self._values: Int32 | None = None if order is None else order[0]
        self._rows: Int32 | None = None if order is None else order[1]

    @classmethod
    def open(cls, folder: Path) -> ValueVectors:
        """Map the vectors of a segment."""
        codes, scales, errors, rotation = (load_array(folder / name) for name in FILES)
        dimension = round(len(rotation) ** 0.5)
        stored = QuantisedRows(codes.reshape(-1, dimension), scales, errors)
        order = None
        if (folder / ORDER_FILES[0]).exists():
            values, rows = (load_array(folder / name) for name in ORDER_FILES)
            order = values, rows
        return cls(stored, rotation.reshape(dimension, dimension), order)

    @classmethod
    def of(cls, vectors: Float) -> ValueVectors:
        """Round vectors in memory, block by block."""
        rotation = new_rotation(vectors.shape[1])
        starts = range(0, max(1, len(vectors)), _BLOCK)
        parts = [quantised(vectors[start : start + _BLOCK], rotation) for start in starts]
        return cls(QuantisedRows(*map(np.concatenate, zip(*parts, strict=True))), rotation)

    def __len__(self) -> int:
        return len(self.stored.scales)

    def near(self, queries: npt.ArrayLike, floor: float, threads: int = 2) -> CandidatePairs:
        """Find every (query, value) whose cosine can reach the floor, which is above 0."""
        there, turned = self.turned(queries, floor)
        return self.found(there, turned, floor, None, threads)

    def among(
        self, values: Int, queries: npt.ArrayLike, floor: float, threads: int = 2
    ) -> CandidatePairs:
        """Find every pair with some values, given once each, whose cosine can reach the floor."""
        there, turned = self.turned(queries, floor)
        return self.found(there, turned, floor, np.sort(self.rows_of(values)), threads)

    def turned(self, queries: npt.ArrayLike, floor: float) -> tuple[Int, Float]:
        """Check queries and floor; return which queries have a vector, and those rotated."""
        if not 0 < floor <= 1:
            raise DeepJoinError(f"The cosine bound is {floor}; it is above 0 and at most 1.")
        vectors = checked(queries, self.dimension)
        there = np.flatnonzero(vectors.any(axis=1))
        return there, rotated(vectors[there], self.rotation)

    def found(
        self, cells: Int, turned: Float, floor: float, rows: Int | None, threads: int
    ) -> CandidatePairs:
        """Scan all rows, or some; the pairs have the numbers of cells and values."""
        if len(cells) == 0 or len(self if rows is None else rows) == 0:
            return CandidatePairs.none()
        found = Scan(turned, floor, threads).run(self.stored, rows)
        return CandidatePairs(
            cells[found.cells], self.values_of(found.values), found.similarities, found.errors
        )

    def values_of(self, rows: Int) -> Int:
        """Return the values that rows stand for."""
        if self._values is None:
            return rows
        prefetch(self._values, rows)
        return self._values[rows].astype(np.int64)

    def rows_of(self, values: Int) -> Int:
        """Return the rows in which values are stored."""
        if self._rows is None:
            return values
        prefetch(self._rows, values)
        return self._rows[values].astype(np.int64)

    def errors_of(self, values: Int) -> Float:
        """Return how far the stored vectors of some values are from the exact ones."""
        return self.stored.errors[self.rows_of(values)]

    @cached_property
    def errors(self) -> Float:
        """The errors of all values, in their order."""
        return self.stored.errors if self._rows is None else self.stored.errors[self._rows]


class ValueLists:
    """The lists of one segment's values, mapped from its files."""

    def __init__(self, folder: Path, vectors: ValueVectors | None = None) -> None:
        missing = [name for name in LIST_FILES if not (folder / name).exists()]
        if missing:
            raise DeepJoinError(
                f"No lists of near values in {folder}: {missing[0]} is missing. "
                "Search exactly, or index again."
            )
        codes, self._offsets, self._rows = (load_array(folder / name) for name in LIST_FILES)
        self.vectors = ValueVectors.open(folder) if vectors is None else vectors
        self._middles: Codes = codes.reshape(-1, self.vectors.dimension)

    def __len__(self) -> int:
        return len(self._middles)

    def near(
        self, queries: npt.ArrayLike, floor: float, threads: int = 2,
        probes: int = PROBES, most: int = MOST,
    ) -> CandidatePairs:  # fmt: skip
        """Find values near each query: in the lists nearest to any of them, the best of each."""
        there, turned = self.vectors.turned(queries, floor)
        if len(there) == 0 or len(self) == 0:
            return CandidatePairs.none()
        found = [CandidatePairs.none()]
        for start in range(0, len(there), _CELLS):
            cells, some = there[start : start + _CELLS], turned[start : start + _CELLS]
            likeness = Scan(some, floor, threads).products(self._middles)
            rows = self._members(_nearest(likeness, probes))
            found.append(_best(self.vectors.found(cells, some, floor, rows, threads), most))
        return CandidatePairs.concatenate(found)

    def _members(self, lists: Int) -> Int:
        """Return the rows in some lists, ascending, each once."""
        starts, stops = self._offsets[lists].tolist(), self._offsets[lists + 1].tolist()
        prefetch(self._rows, starts, np.subtract(stops, starts))
        parts = [self._rows[start:stop] for start, stop in zip(starts, stops, strict=True)]
        rows: Int = distinct(np.concatenate(parts)).astype(np.int64)
        return rows


def _nearest(likeness: Int32, probes: int) -> Int:
    """Return the lists nearest to the queries, the columns: at least ``probes`` of each."""
    best = likeness
    if probes * _GROUP < len(likeness):
        best = np.maximum.reduceat(likeness, np.arange(0, len(likeness), _GROUP), axis=0)
    # As many groups reach the bound as lists are wanted, so at least as many lists do.
    wanted = min(probes, len(best))
    bound = np.partition(best, -wanted, axis=0)[-wanted]
    nearest: Int = distinct(np.flatnonzero(likeness >= bound) // likeness.shape[1])
    return nearest


def _best(pairs: CandidatePairs, most: int) -> CandidatePairs:
    """Keep the best pairs of each cell."""
    if len(pairs) == 0 or np.bincount(pairs.cells).max() <= most:
        return pairs
    order = np.lexsort((-pairs.similarities, pairs.cells))
    cells = pairs.cells[order]
    first = np.searchsorted(cells, cells)
    return pairs.where(np.sort(order[np.arange(len(cells)) - first < most]))
