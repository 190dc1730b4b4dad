"""Value vectors in 8 bits, with a proven bound on what that costs.

A unit vector v is turned by a fixed rotation and stored as scale * codes; error is the length of
what is lost. Rows are in the order of the values, or in another that a further file tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import ArrayWriter, load_array
from deepjoin.embed.kernel import ZERO_POINT, Codes
from deepjoin.embed.pairs import Pairs
from deepjoin.embed.scan import SLACK, Rows, Scan
from deepjoin.errors import DeepJoinError

__all__ = ["FILES", "LIST_FILES", "ORDER_FILES", "SLACK", "ValueVectors", "write_vectors"]

Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

#: The files of a segment's vectors, in its folder.
FILES = ("vector_codes.npy", "vector_scales.npy", "vector_errors.npy", "vector_rotation.npy")
#: Which value each row belongs to, and back: there only if rows are not in order of the values.
ORDER_FILES = ("vector_values.npy", "vector_rows.npy")
#: The lists of a segment that has some: codes of the middle of each, all of one scale, where each
#: list starts, and the rows in all lists.
LIST_FILES = ("list_codes.npy", "list_offsets.npy", "list_rows.npy")

LARGEST_CODE = 127
_ROUNDING = 1e-6
_SEED = 20221


def write_vectors(folder: Path, blocks: Iterable[npt.ArrayLike], dimension: int) -> int:
    """Store unit vectors, zero vectors among them, given in blocks; return how many."""
    rotation = new_rotation(dimension)
    rows = (quantised(block, rotation) for block in blocks)
    return write_in_order(folder, rows, rotation)


def write_in_order(folder: Path, blocks: Iterable[Rows], rotation: Float) -> int:
    """Store rows in order of the values, without the lists others may have had here."""
    for name in (*ORDER_FILES, *LIST_FILES):
        (folder / name).unlink(missing_ok=True)
    return write_rows([folder / name for name in FILES], blocks, rotation)


def write_rows(paths: Sequence[Path], blocks: Iterable[Rows], rotation: Float) -> int:
    """Write rows as they are into the files that `FILES` names; return how many."""
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
    """Turn vectors, in double precision: so a row does not depend on the rows beside it."""
    return np.asarray(vectors.astype(np.float64) @ rotation.astype(np.float64), np.float32)


def quantised(vectors: npt.ArrayLike, rotation: Float) -> Rows:
    """Turn vectors and round them: codes, the scale of each, the length of what is lost."""
    rows = rotated(checked(vectors, len(rotation)), rotation)
    scale = np.max(np.abs(rows), axis=1, initial=0) / LARGEST_CODE
    signed = np.rint(rows / np.where(scale > 0, scale, 1)[:, None])
    # Never 0, which stands for equal cells.
    error = np.linalg.norm(rows - signed * scale[:, None], axis=1) + np.float32(_ROUNDING)
    codes: Codes = (signed + ZERO_POINT).astype(np.uint8)
    return Rows(codes, scale.astype(np.float32), error.astype(np.float32))


class ValueVectors:
    """The stored vectors of one segment's values, mapped."""

    def __init__(self, folder: Path) -> None:
        codes, scales, errors, rotation = (load_array(folder / name) for name in FILES)
        self.dimension = round(len(rotation) ** 0.5)
        self.rotation: Float = rotation.reshape(self.dimension, self.dimension)
        self.stored = Rows(codes.reshape(-1, self.dimension), scales, errors)
        self._values: Int32 | None = None
        self._rows: Int32 | None = None
        if (folder / ORDER_FILES[0]).exists():
            self._values, self._rows = (load_array(folder / name) for name in ORDER_FILES)

    def __len__(self) -> int:
        return len(self.stored.scales)

    def near(self, queries: npt.ArrayLike, floor: float, threads: int = 2) -> Pairs:
        """Find every (query, value) whose cosine can reach the floor, which is above 0."""
        there, turned = self.turned(queries, floor)
        return self.found(there, turned, floor, None, threads)

    def among(self, values: Int, queries: npt.ArrayLike, floor: float, threads: int = 2) -> Pairs:
        """Find every pair whose cosine can reach the floor with some values, given once each."""
        there, turned = self.turned(queries, floor)
        return self.found(there, turned, floor, np.sort(self.rows_of(values)), threads)

    def turned(self, queries: npt.ArrayLike, floor: float) -> tuple[Int, Float]:
        """Check what is asked; return which queries have a vector, and these rotated."""
        if not 0 < floor <= 1:
            raise DeepJoinError(f"The cosine bound is {floor}; it is above 0 and at most 1.")
        vectors = checked(queries, self.dimension)
        there = np.flatnonzero(vectors.any(axis=1))
        return there, rotated(vectors[there], self.rotation)

    def found(
        self, cells: Int, turned: Float, floor: float, rows: Int | None, threads: int
    ) -> Pairs:
        """Scan all rows, or some; the pairs have the numbers of cells and values."""
        if len(cells) == 0 or len(self if rows is None else rows) == 0:
            return Pairs.none()
        found = Scan(turned, floor, threads).run(self.stored, rows)
        return Pairs(
            cells[found.cells], self.values_of(found.values), found.similarities, found.errors
        )

    def values_of(self, rows: Int) -> Int:
        """Return the values that rows stand for."""
        return rows if self._values is None else self._values[rows].astype(np.int64)

    def rows_of(self, values: Int) -> Int:
        """Return the rows in which values are stored."""
        return values if self._rows is None else self._rows[values].astype(np.int64)

    def errors_of(self, values: Int) -> Float:
        """Return how far the stored vectors of some values are from their own."""
        return self.stored.errors[self.rows_of(values)]

    @cached_property
    def errors(self) -> Float:
        """Those of all values, in their order."""
        return self.stored.errors if self._rows is None else self.stored.errors[self._rows]
