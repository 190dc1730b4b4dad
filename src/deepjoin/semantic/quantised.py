"""Value vectors in 8 bits, with a proven bound on what that costs, and the scan that uses it.

A unit vector v is turned by a fixed rotation and stored as scale * codes; error is the length of
what is lost. For a unit vector q, given as a multiple of small whole numbers with error e_q,
the product of the codes is off by at most error + e_q * (1 + error) (Cauchy-Schwarz), so no pair
that reaches the floor is missed. Pairs that may reach it are computed again with q in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError
from deepjoin.semantic.kernel import LARGEST_SIGNED, ZERO_POINT, Codes, Signed, multiplier
from deepjoin.semantic.pairs import Pairs
from deepjoin.values.arrays import ArrayWriter, load_array

Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]

#: More than single precision loses in a product of two unit vectors, rotated or not.
SLACK = 1e-5
#: The files of a segment's vectors, in its folder.
FILES = ("vector_codes.npy", "vector_scales.npy", "vector_errors.npy", "vector_rotation.npy")

_LARGEST = 127
_ROUNDING = 1e-6
_SEED = 20221
#: Rows a step: codes and sums of one step stay in the cache.
_ROWS, _SUMS = 1 << 14, 1 << 19
#: More than any sum, and exact as a floating-point number.
_NEVER = 1 << 30


def write_vectors(folder: Path, blocks: Iterable[npt.ArrayLike], dimension: int) -> int:
    """Store unit vectors, zero vectors among them, given in blocks; return how many."""
    rotation = _rotation(dimension)
    codes, scales, errors, turned = (folder / name for name in FILES)
    with (
        ArrayWriter(turned, np.float32) as to_rotation,
        ArrayWriter(codes, np.uint8) as to_codes,
        ArrayWriter(scales, np.float32) as to_scales,
        ArrayWriter(errors, np.float32) as to_errors,
    ):
        to_rotation.append(rotation.ravel())
        for block in blocks:
            rows, scale, error = _quantise(checked(block, dimension) @ rotation)
            to_codes.append(rows.ravel())
            to_scales.append(scale)
            to_errors.append(error)
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


def _rotation(dimension: int) -> Float:
    """Return a fixed random rotation: it spreads every vector evenly over the dimensions."""
    noise = np.random.default_rng(_SEED).standard_normal((dimension, dimension))
    return np.asarray(np.linalg.qr(noise)[0], np.float32)


def _quantise(rows: Float) -> tuple[Codes, Float, Float]:
    """Return codes, the scale of each row, and the length of what rounding loses."""
    scale = np.max(np.abs(rows), axis=1, initial=0) / _LARGEST
    signed = np.rint(rows / np.where(scale > 0, scale, 1)[:, None])
    # Never 0, which stands for equal cells.
    error = np.linalg.norm(rows - signed * scale[:, None], axis=1) + np.float32(_ROUNDING)
    codes = (signed + ZERO_POINT).astype(np.uint8)
    return codes, scale.astype(np.float32), error.astype(np.float32)


class ValueVectors:
    """The stored vectors of one segment's values, mapped; a value's number is its row."""

    def __init__(self, folder: Path) -> None:
        codes, self.scales, self.errors, rotation = (load_array(folder / name) for name in FILES)
        self.dimension = round(len(rotation) ** 0.5)
        self._rotation = rotation.reshape(self.dimension, self.dimension)
        self.codes: Codes = codes.reshape(-1, self.dimension)

    def __len__(self) -> int:
        return len(self.scales)

    def near(self, queries: npt.ArrayLike, floor: float, threads: int = 2) -> Pairs:
        """Find every (query, value) whose cosine can reach the floor, which is above 0."""
        if not 0 < floor <= 1:
            raise DeepJoinError(f"The cosine bound is {floor}; it is above 0 and at most 1.")
        vectors = checked(queries, self.dimension)
        there = np.flatnonzero(vectors.any(axis=1))
        if len(there) == 0 or len(self) == 0:
            return Pairs.none()
        found = _Scan(self, vectors[there] @ self._rotation, floor, threads).run()
        return Pairs(there[found.cells], found.values, found.similarities, found.errors)


class _Scan:
    """One pass of some queries over all values, a block at a time."""

    def __init__(self, vectors: ValueVectors, turned: Float, floor: float, threads: int) -> None:
        self._vectors, self._turned, self._floor = vectors, turned, floor - SLACK
        self._multiply = multiplier(threads)
        self._step = float(np.abs(turned).max()) / LARGEST_SIGNED
        rounded = np.rint(turned / self._step)
        self._error = float(np.linalg.norm(turned - rounded * self._step, axis=1).max())
        self._signed: Signed = np.ascontiguousarray(rounded.astype(np.int8).T)

    def run(self) -> Pairs:
        """Collect the pairs of all blocks."""
        rows = max(256, min(_ROWS, _SUMS // len(self._turned)))
        blocks = range(0, len(self._vectors), rows)
        return Pairs.concatenate([self._block(start, start + rows) for start in blocks])

    def _block(self, start: int, stop: int) -> Pairs:
        codes = self._vectors.codes[start:stop]
        sums = self._multiply(codes, self._signed)
        flat = np.flatnonzero(sums >= self._least(start, stop)[:, None])
        rows, cells = np.divmod(flat, len(self._turned))
        return self._refined(start, rows, cells)

    def _least(self, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Return the smallest sum of each row that can still mean a cosine at the floor."""
        scales, errors = self._vectors.scales[start:stop], self._vectors.errors[start:stop]
        bound = (self._floor - self._error) - (1 + self._error) * errors
        with np.errstate(divide="ignore"):
            least = np.floor(bound / (scales * np.float32(self._step)))
        return np.where(scales > 0, np.clip(least, -_NEVER, _NEVER), _NEVER).astype(np.int32)

    def _refined(self, start: int, rows: Int, cells: Int) -> Pairs:
        """Compute pairs again with the queries in full precision; drop those that fall short."""
        similarities = np.empty(len(rows), np.float32)
        codes = self._vectors.codes
        for at in range(0, len(rows), _ROWS):
            here = slice(at, at + _ROWS)
            signed = codes[start + rows[here]].astype(np.float32) - ZERO_POINT
            similarities[here] = np.einsum("ij,ij->i", signed, self._turned[cells[here]])
        values = start + rows
        similarities *= self._vectors.scales[values]
        errors = self._vectors.errors[values]
        kept = similarities + errors >= self._floor
        return Pairs(cells[kept], values[kept], similarities[kept], errors[kept])
