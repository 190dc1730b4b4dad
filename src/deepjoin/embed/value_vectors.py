"""Value vectors in few bits, with a proven bound on what that costs, and lists of near ones.

A unit vector is rotated by a fixed matrix and rounded (`deepjoin.embed.packed`); its error is the
length of what is lost. Rows are in the order of the values, or in that of the lists
(`ORDER_FILES`); values without a vector have no row.

`ValueVectors.near` scans all rows and misses nothing. `ValueLists.near` scans a few lists: it
misses a pair whose value is in none of them; what it finds is as exact as in the full scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import (
    ArrayWriter,
    Float,
    Int,
    Int32,
    Marks,
    distinct,
    load_array,
    places_in_runs,
    prefetch,
    ranges,
)
from deepjoin.embed.packed import (
    ZERO_POINT,
    Codes,
    PackedRows,
    QuantisedRows,
    VectorRows,
    code_bytes,
)
from deepjoin.embed.scan import CandidatePairs, Scan
from deepjoin.errors import DeepJoinError
from deepjoin.packing import load_numbers, pack

#: The files of a segment's vectors, in its folder: as `PackedRows` has them, and the rotation.
FILES = (
    *("vector_codes.npy", "vector_finer.npy", "vector_bounds.npy", "vector_errors.npy"),
    "vector_rotation.npy",
)
#: The files of earlier versions: 8-bit codes, a scale and an error for each row.
OLD_FILES = ("vector_codes.npy", "vector_scales.npy", "vector_errors.npy", "vector_rotation.npy")
#: The value of each row, and the row of each value or -1: where rows are in the order of lists, or
#: some value has none.
ORDER_FILES = ("vector_values.npy", "vector_rows.npy")
#: How much larger these are stored, so that no row, -1, is the least number.
NO_ROW = 1
#: The lists, if any: codes of the middle of each, all of one scale, where each list starts, and
#: the rows in all lists, ascending in each: how much larger each is than the one before.
LIST_FILES = ("list_codes.npy", "list_offsets.npy", "list_gaps.npy")
#: Instead of gaps, the rows themselves: as earlier versions wrote them.
OLD_ROWS = "list_rows.npy"
#: A gap that is as large as this goes on in the next number.
LARGEST_GAP = (1 << 16) - 1

LARGEST_CODE = 127
_ROUNDING = 1e-6
_SEED = 20221
#: Lists scanned for each cell, and pairs kept of each: a cell near to more says nothing.
PROBES, MOST = 8, 2_000
#: Lists whose best stands for all when the nearest lists are sought.
_GROUP = 64
#: Cells that share their lists: it finds more, but more of them compare too much.
_CELLS = 32
#: The most products of a matrix product for which OpenBLAS starts no threads.
_PRODUCTS = 1 << 18
#: Vectors rounded at a time, and as many of them as stay in the processor's cache meanwhile.
_BLOCK, _ROUNDED = 1 << 16, 1 << 11


class ValueRows(NamedTuple):
    """Vectors of values in a row: which of them have one, and those."""

    there: Marks
    rows: PackedRows


def write_vectors(folder: Path, blocks: Iterable[npt.ArrayLike], dimension: int) -> int:
    """Store unit vectors, given in blocks, and zeros for values without one; return how many."""
    rotation = new_rotation(dimension)
    rows = (packed(block, rotation) for block in blocks)
    return write_in_order(folder, rows, rotation)


def write_in_order(folder: Path, blocks: Iterable[ValueRows], rotation: Float) -> int:
    """Store vectors in the order of their values; remove earlier lists.

    Return how many values there are.
    """
    for name in (*ORDER_FILES, *LIST_FILES, *OLD_FILES, OLD_ROWS):
        (folder / name).unlink(missing_ok=True)
    numbers = [np.zeros(0, np.int32)]
    count = 0

    def there() -> Iterator[PackedRows]:
        nonlocal count
        for block in blocks:
            numbers.append((np.flatnonzero(block.there) + count).astype(np.int32))
            count += len(block.there)
            yield block.rows

    if write_rows([folder / name for name in FILES], there(), rotation) < count:
        write_order(folder, np.concatenate(numbers), count)
    return count


def write_order(folder: Path, values: Int32, count: int) -> None:
    """Write which values, of how many, the rows belong to."""
    rows = np.full(count, -1, np.int32)
    rows[values] = np.arange(len(values), dtype=np.int32)
    for name, array in zip(ORDER_FILES, (values, rows), strict=True):
        with ArrayWriter(folder / name, np.int32) as to:
            to.append(array)
        pack(folder / name, NO_ROW)


def write_rows(paths: Sequence[Path], blocks: Iterable[PackedRows], rotation: Float) -> int:
    """Write rows to files, in the order of `FILES`; return how many."""
    codes, finer, bounds, errors, turned = paths
    largest = PackedRows.none(len(rotation)).errors
    with (
        ArrayWriter(turned, np.float32) as to_rotation,
        ArrayWriter(codes, np.uint8) as to_codes,
        ArrayWriter(finer, np.uint8) as to_finer,
        ArrayWriter(bounds, np.uint8) as to_bounds,
        ArrayWriter(errors, np.float32) as to_errors,
    ):
        to_rotation.append(rotation.ravel())
        for block in blocks:
            to_codes.append(block.codes.ravel())
            to_finer.append(block.finer.ravel())
            to_bounds.append(block.bounds)
            largest = np.maximum(largest, block.errors)
        to_errors.append(largest)
        return to_bounds.length


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
    # A few rows at a time, for which no library wakes threads: they wait for each other longer than
    # the products take, and ours work on other rows meanwhile.
    few = max(1, _PRODUCTS // wide.size)
    whole = len(vectors) - len(vectors) % few
    stacked = vectors[:whole].astype(np.float64).reshape(-1, few, len(wide)) @ wide
    rest = vectors[whole:].astype(np.float64) @ wide
    return np.asarray(np.concatenate([stacked.reshape(-1, len(wide)), rest]), np.float32)


def packed(vectors: npt.ArrayLike, rotation: Float) -> ValueRows:
    """Rotate vectors and round them as files have them; zeros stand for no vector."""
    whole = checked(vectors, len(rotation))
    there: Marks = np.einsum("ij,ij->i", whole, whole) > 0
    numbers = np.flatnonzero(there)
    parts = (
        PackedRows.pack(rotated(whole[numbers[start : start + _ROUNDED]], rotation))
        for start in range(0, len(numbers), _ROUNDED)
    )
    return ValueRows(there, PackedRows.concatenate(parts, len(rotation)))


def quantised(vectors: npt.ArrayLike, rotation: Float) -> QuantisedRows:
    """Rotate vectors and round them to 8 bits; zeros have the scale 0."""
    whole = checked(vectors, len(rotation))
    codes = np.full(whole.shape, ZERO_POINT, np.uint8)
    scales, errors = np.zeros((2, len(whole)), np.float32)
    there = np.flatnonzero(np.einsum("ij,ij->i", whole, whole))
    for start in range(0, len(there), _ROUNDED):
        here = there[start : start + _ROUNDED]
        rows = rotated(whole[here], rotation)
        scales[here] = scale = np.max(np.abs(rows), axis=1, initial=0) / np.float32(LARGEST_CODE)
        signed = np.rint(rows / scale[:, None])
        codes[here] = signed + ZERO_POINT
        signed *= scale[:, None]
        rows -= signed
        errors[here] = np.linalg.norm(rows, axis=1)
    errors += np.float32(_ROUNDING)  # never 0, which stands for equal cells
    return QuantisedRows(codes, scales, errors)


class ValueVectors:
    """Rounded vectors of values: those of a segment, mapped from its files, or in memory."""

    def __init__(
        self, stored: VectorRows, rotation: Float, order: tuple[Any, Any] | None = None
    ) -> None:
        self.stored, self.rotation, self.dimension = stored, rotation, len(rotation)
        #: How many values there are, with a vector or without.
        self.count = stored.size if order is None else len(order[1])
        #: The value of each row and the row of each value, if they are not the same.
        self._values: Any = None if order is None else order[0]
        self._rows: Any = None if order is None else order[1]

    @classmethod
    def open(cls, folder: Path) -> ValueVectors:
        """Map the vectors of a segment."""
        is_old = (folder / OLD_FILES[1]).exists()
        *arrays, rotation = (load_array(folder / name) for name in (OLD_FILES if is_old else FILES))
        dimension = round(len(rotation) ** 0.5)
        stored: VectorRows
        if is_old:
            codes, scales, errors = arrays
            stored = QuantisedRows(codes.reshape(-1, dimension), scales, errors)
        else:
            codes, finer, bounds, errors = arrays
            sizes = code_bytes(dimension)
            codes, finer = (
                one.reshape(-1, size) for one, size in zip((codes, finer), sizes, strict=True)
            )
            stored = PackedRows(codes, finer, bounds, np.asarray(errors), dimension)
        order = None
        if (folder / ORDER_FILES[0]).exists():
            values, rows = (load_numbers(folder / name, NO_ROW) for name in ORDER_FILES)
            order = values, rows
        return cls(stored, rotation.reshape(dimension, dimension), order)

    @classmethod
    def of(cls, vectors: Float) -> ValueVectors:
        """Round vectors in memory, block by block."""
        rotation = new_rotation(vectors.shape[1])
        starts = range(0, max(1, len(vectors)), _BLOCK)
        parts = [quantised(vectors[start : start + _BLOCK], rotation) for start in starts]
        return cls(QuantisedRows(*map(np.concatenate, zip(*parts, strict=True))), rotation)

    @property
    def is_outdated(self) -> bool:
        """Whether a version before format 4 wrote them, in 8 bits."""
        return isinstance(self.stored, QuantisedRows)

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self.stored.size

    def near(self, queries: npt.ArrayLike, floor: float, threads: int = 2) -> CandidatePairs:
        """Find every (query, value) whose cosine can reach the floor, which is above 0."""
        there, turned = self.turned(queries, floor)
        return self.found(there, turned, floor, None, threads)

    def among(
        self, values: Int, queries: npt.ArrayLike, floor: float, threads: int = 2
    ) -> CandidatePairs:
        """Find every pair with some values, given once each, whose cosine can reach the floor."""
        there, turned = self.turned(queries, floor)
        rows = np.sort(self.rows_of(values))
        return self.found(there, turned, floor, rows[np.searchsorted(rows, 0) :], threads)

    def turned(self, queries: npt.ArrayLike, floor: float) -> tuple[Int, Float]:
        """Check queries and floor; return which queries have a vector, and those rotated."""
        if not 0 < floor <= 1:
            raise DeepJoinError(f"The cosine bound is {floor}; it is above 0 and at most 1.")
        vectors = checked(queries, self.dimension)
        there = np.flatnonzero(vectors.any(axis=1))
        return there, rotated(vectors[there], self.rotation)

    def found(
        self, cells: Int, turned: Float, floor: float, rows: Int | None, threads: int,
        proven: bool = True,
    ) -> CandidatePairs:  # fmt: skip
        """Scan all rows, or some; the pairs have the numbers of cells and values.

        If not ``proven``, a pair is missed now and then.
        """
        if len(cells) == 0 or len(self if rows is None else rows) == 0:
            return CandidatePairs.none()
        found = Scan(turned, floor, threads, proven).run(self.stored, rows)
        return CandidatePairs(
            cells[found.cells], self.values_of(found.values), found.similarities, found.errors
        )

    def values_of(self, rows: Int) -> Int:
        """Return the values that rows stand for."""
        if self._values is None:
            return rows
        prefetch(self._values, rows)
        values: Int = self._values[rows].astype(np.int64)
        return values

    def rows_of(self, values: Int) -> Int:
        """Return the rows in which values are stored; -1 for values without a vector."""
        if self._rows is None:
            return values
        prefetch(self._rows, values)
        rows: Int = self._rows[values].view(np.int32).astype(np.int64)
        return rows

    def take(self, values: Int) -> QuantisedRows:
        """Copy the rows of some values; those of values without a vector have the scale 0."""
        rows = self.rows_of(values)
        if not len(self):
            codes = np.full((len(rows), self.dimension), ZERO_POINT, np.uint8)
            return QuantisedRows(codes, *np.zeros((2, len(rows)), np.float32))
        found = self.stored.take(np.maximum(rows, 0))
        without = rows < 0
        found.codes[without], found.scales[without], found.errors[without] = ZERO_POINT, 0, 0
        return found

    def copy(self, values: Int) -> ValueRows:
        """Copy the rows of some values as files have them."""
        rows = self.rows_of(values)
        return ValueRows(rows >= 0, self.packed(rows[rows >= 0]))

    def packed(self, rows: Int) -> PackedRows:
        """Copy some rows as files have them; what an earlier version wrote is rounded again."""
        if isinstance(self.stored, PackedRows):
            return self.stored.some(rows)
        found = self.stored.take(rows)
        return PackedRows.pack(found.floats(), found.errors)

    def errors_of(self, values: Int) -> Float:
        """Return how far the vectors of some values are from the exact ones; 0 if there is none."""
        if not len(self):
            return np.zeros(len(values), np.float32)
        rows = self.rows_of(values)
        errors = self.stored.errors_of(np.maximum(rows, 0))
        return np.where(rows < 0, np.float32(0), errors)


class ValueLists:
    """The lists of one segment's values, mapped from its files."""

    def __init__(self, folder: Path, vectors: ValueVectors | None = None) -> None:
        self._is_old = (folder / OLD_ROWS).exists()
        files = (*LIST_FILES[:-1], OLD_ROWS) if self._is_old else LIST_FILES
        missing = [name for name in files if not (folder / name).exists()]
        if missing:
            raise DeepJoinError(
                f"No lists of near values in {folder}: {missing[0]} is missing. "
                "Search exactly, or index again."
            )
        codes, self._offsets, self._members = (load_array(folder / name) for name in files)
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
            rows = self.members(_nearest(likeness, probes))
            near = self.vectors.found(cells, some, floor, rows, threads, proven=False)
            found.append(_best(near, most))
        return CandidatePairs.concatenate(found)

    def members(self, lists: Int) -> Int:
        """Return the rows in some lists, ascending, each once."""
        starts = self._offsets[lists]
        sizes = self._offsets[lists + 1] - starts
        prefetch(self._members, starts, sizes)
        found = self._members[ranges(starts, sizes)]
        rows = found if self._is_old else rows_of_gaps(found, sizes)
        return np.asarray(distinct(rows), np.int64)


def gaps_of_rows(rows: Int, starts: Int) -> tuple[npt.NDArray[np.uint16], Int]:
    """Encode rows of lists that start at these places; return the gaps, and where lists start.

    >>> gaps, starts = gaps_of_rows(np.array([3, 5, 70000, 1]), np.array([0, 3, 4]))
    >>> gaps.tolist(), starts.tolist()
    ([3, 2, 65535, 4460, 1], [0, 4, 5])
    """
    firsts = starts[:-1][np.diff(starts) > 0]
    gaps = np.diff(rows, prepend=0)
    gaps[firsts] = rows[firsts]
    more, rest = np.divmod(gaps, LARGEST_GAP)
    ends = np.append(0, np.cumsum(more + 1))
    encoded = np.full(ends[-1], LARGEST_GAP, np.uint16)
    encoded[ends[1:] - 1] = rest
    return encoded, ends[starts]


def rows_of_gaps(gaps: npt.NDArray[np.uint16], sizes: Int) -> npt.NDArray[np.uint32]:
    """Decode the gaps of lists of the given lengths, list after list."""
    # Sums over all lists may pass 32 bits; the differences are right again.
    rows: npt.NDArray[np.uint32] = np.cumsum(gaps, dtype=np.uint32)
    rows -= np.repeat(np.append(np.uint32(0), rows)[np.cumsum(sizes) - sizes], sizes)
    goes_on = gaps == LARGEST_GAP
    return rows[~goes_on] if goes_on.any() else rows


def _nearest(likeness: Int32, probes: int) -> Int:
    """Return the lists nearest to the queries, the columns: ``probes`` of each, and ties."""
    if probes * _GROUP < len(likeness):
        starts = np.arange(0, len(likeness), _GROUP)
        best = _group_best(likeness)
        # As many groups reach the bound as lists are wanted, so at least as many lists do.
        bound = np.partition(best, -probes, axis=0)[-probes]
        groups, cells = np.divmod(np.flatnonzero(best >= bound), likeness.shape[1])
        sizes = np.minimum(_GROUP, len(likeness) - starts[groups])
        lists, cells = ranges(starts[groups], sizes), np.repeat(cells, sizes)
    else:
        wanted = min(probes, len(likeness))
        bound = np.partition(likeness, -wanted, axis=0)[-wanted]
        lists, cells = np.divmod(np.arange(likeness.size), likeness.shape[1])
    found = likeness[lists, cells]
    reached = found >= bound[cells]
    lists, cells, found = lists[reached], cells[reached], found[reached]
    # Of these few, the bound that exactly the wanted ones reach.
    order = np.lexsort((-found, cells))
    last = order[places_in_runs(cells[order]) == min(probes, len(likeness)) - 1]
    bound[cells[last]] = found[last]
    nearest: Int = distinct(lists[found >= bound[cells]])
    return nearest


def _group_best(likeness: Int32) -> Int32:
    """Return the largest number of each column in each group of rows."""
    # Half of each group against the other half: ``reduceat`` takes five times as long.
    count, columns = likeness.shape
    whole = count - count % _GROUP
    best = likeness[:whole].reshape(-1, _GROUP * columns)
    while best.shape[1] > columns:
        half = best.shape[1] // 2
        best = np.maximum(best[:, :half], best[:, half:])
    rest = [likeness[whole:].max(axis=0, keepdims=True)] if whole < count else []
    return np.concatenate([best, *rest])


def _best(pairs: CandidatePairs, most: int) -> CandidatePairs:
    """Keep the best pairs of each cell."""
    if len(pairs) == 0 or np.bincount(pairs.cells).max() <= most:
        return pairs
    order = np.lexsort((-pairs.similarities, pairs.cells))
    cells = pairs.cells[order]
    first = np.searchsorted(cells, cells)
    return pairs.where(np.sort(order[np.arange(len(cells)) - first < most]))
