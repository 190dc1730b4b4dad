"""Vectors as files have them: six bits a number, of which a scan reads the first four.

The range of a row, from minus to plus its bound, is cut into 64 equal parts, and a number is stored
as the part it is in; it stands for the middle of that part. The first four bits cut the range into
16 parts: half the bytes of 8-bit codes, for products that decide which rows are read in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Float, Integers, Rows, prefetch

Codes = npt.NDArray[np.uint8]

#: A code of 8 bits stands for the number that is this much smaller.
ZERO_POINT = 128
#: Bits that are scanned, and those of the rest.
COARSE, FINER = 4, 2
#: Parts of a row's range.
PARTS = 1 << COARSE + FINER
#: Rows have a multiple of this many numbers, so that each half and quarter fills bytes.
_GROUP = 8
#: The bounds a row may have, 24 to an octave: its number is one byte.
BOUNDS: Float = (1.0001 * np.exp2(-np.arange(256) / 24)).astype(np.float32)
#: What single precision loses when a row is rotated, and its errors are computed.
_ROUNDING = 1e-6


class Rough(NamedTuple):
    """Rows of small whole numbers: off by at most their errors from the vectors they stand for.

    A row is its scale times (codes - zero point + offset).
    """

    #: Parts of each row, as wide as each other.
    parts: tuple[Codes, ...]
    zero_point: int
    offset: float
    scales: Float
    errors: Float


class QuantisedRows(NamedTuple):
    """Vectors in 8 bits: each is its scale times (codes - zero point), off by at most its error.

    Scales and errors have half precision in files of earlier versions, single precision elsewhere.
    """

    codes: Codes
    scales: Rows
    errors: Rows

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.scales)

    def prefetch(self, starts: npt.ArrayLike, lengths: npt.ArrayLike = 1) -> None:
        """Start reading rows that will be needed soon."""
        for array in self:
            prefetch(array, starts, lengths)

    def take(self, rows: Integers) -> QuantisedRows:
        """Copy some rows."""
        return QuantisedRows(
            np.take(self.codes, rows, axis=0),
            np.take(self.scales, rows).astype(np.float32),
            np.take(self.errors, rows).astype(np.float32),
        )

    def rough(self, rows: Integers | slice) -> Rough:
        """Return some rows as they are scanned: all their bits."""
        scales, errors = (one[rows].astype(np.float32) for one in self[1:])
        codes = self.codes[rows] if isinstance(rows, slice) else np.take(self.codes, rows, axis=0)
        return Rough((codes,), ZERO_POINT, 0, scales, errors)

    def errors_of(self, rows: Integers) -> Float:
        """Return how far some rows are from their vectors at most."""
        return self.errors[rows].astype(np.float32)

    def floats(self) -> Float:
        """Return the rows as numbers."""
        wide: Float = self.codes.astype(np.float32)
        wide -= ZERO_POINT
        wide *= self.scales.astype(np.float32)[:, None]
        return wide


class PackedRows(NamedTuple):
    """Vectors in six bits, mapped from files or to be written."""

    #: Two numbers in a byte: the first half of the row in the low bits, the other in the high ones.
    codes: Codes
    #: The other bits, four numbers in a byte, a quarter of the row in each place.
    finer: Codes
    #: Which of `BOUNDS` each row has.
    bounds: Codes
    #: How far any row is at most from its vector, as a share of its bound: by all bits, by four.
    errors: Float
    dimension: int

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.bounds)

    @classmethod
    def none(cls, dimension: int) -> PackedRows:
        """Return no rows."""
        return cls.pack(np.zeros((0, dimension), np.float32))

    @classmethod
    def pack(cls, vectors: Float, lost: Rows | float = 0) -> PackedRows:
        """Round vectors, each of which may already be as far from the true one as was lost."""
        dimension = vectors.shape[1]
        most = np.max(np.abs(vectors), axis=1, initial=BOUNDS[-1])
        # Downwards in numbers, so upwards in bounds.
        bounds = np.floor(np.log2(BOUNDS[0] / most) * 24).astype(np.int64)
        bounds -= BOUNDS[bounds] < most
        bound = BOUNDS[bounds]
        scaled = vectors * (PARTS / 2 / bound)[:, None]
        parts = np.zeros((len(vectors), _width(dimension)), np.uint8)
        parts[:, :dimension] = np.clip(np.floor(scaled) + PARTS / 2, 0, PARTS - 1)
        coarse: Codes = parts >> np.uint8(FINER)
        finer: Codes = parts & np.uint8((1 << FINER) - 1)
        errors = [
            _largest_error(scaled, some[:, :dimension], 1 << bits, (lost + _ROUNDING) / bound)
            for some, bits in ((parts, COARSE + FINER), (coarse, COARSE))
        ]
        return cls(
            _folded(coarse, COARSE), _folded(finer, FINER), bounds.astype(np.uint8),
            np.array(errors, np.float32), dimension,
        )  # fmt: skip

    @classmethod
    def concatenate(cls, parts: Iterable[PackedRows], dimension: int) -> PackedRows:
        """Put rows behind each other."""
        every = [cls.none(dimension), *parts]
        codes, finer, bounds = (np.concatenate([one[i] for one in every]) for i in range(3))
        errors = np.max([one.errors for one in every], axis=0)
        return cls(codes, finer, bounds, errors, dimension)

    def prefetch(self, starts: npt.ArrayLike, lengths: npt.ArrayLike = 1) -> None:
        """Start reading what a scan of these rows reads."""
        prefetch(self.codes, starts, lengths)
        prefetch(self.bounds, starts, lengths)

    def some(self, rows: Integers) -> PackedRows:
        """Copy some rows as they are."""
        prefetch(self.finer, rows)
        codes, finer = (np.take(one, rows, axis=0) for one in (self.codes, self.finer))
        return self._replace(codes=codes, finer=finer, bounds=np.take(self.bounds, rows))

    def take(self, rows: Integers) -> QuantisedRows:
        """Copy some rows with all their bits, in the form of 8 bits."""
        chosen = self.some(rows)
        parts = _unfolded(chosen.codes, COARSE) << np.uint8(FINER)
        parts |= _unfolded(chosen.finer, FINER)
        # Twice the number, in the middle of its part, is odd: from 1 - PARTS to PARTS - 1.
        parts *= 2
        parts += np.uint8(ZERO_POINT + 1 - PARTS)
        bounds = BOUNDS[chosen.bounds]
        codes = np.ascontiguousarray(parts[:, : self.dimension])
        return QuantisedRows(codes, bounds / np.float32(PARTS), bounds * self.errors[0])

    def rough(self, rows: Integers | slice) -> Rough:
        """Return the first four bits of some rows."""
        if isinstance(rows, slice):
            codes, bounds = self.codes[rows], BOUNDS[self.bounds[rows]]
        else:
            codes, bounds = np.take(self.codes, rows, axis=0), BOUNDS[np.take(self.bounds, rows)]
        halves = codes & np.uint8((1 << COARSE) - 1), codes >> np.uint8(COARSE)
        half = 1 << COARSE - 1
        return Rough(halves, half, 0.5, bounds / np.float32(half), bounds * self.errors[1])

    def is_filled(self) -> bool:
        """Check whether all numbers behind the last of each row are 0, as they were written."""
        behind = [
            _unfolded(one, bits)[:, self.dimension :]
            for one, bits in ((self.codes, COARSE), (self.finer, FINER))
        ]
        return not any(one.any() for one in behind)

    def errors_of(self, rows: Integers) -> Float:
        """Return how far some rows are from their vectors at most."""
        errors: Float = BOUNDS[np.take(self.bounds, rows)] * self.errors[0]
        return errors


#: Rows of vectors, in memory or in files.
VectorRows = QuantisedRows | PackedRows


def _width(dimension: int) -> int:
    """Return how many numbers a row has in files."""
    return -(-dimension // _GROUP) * _GROUP


def code_bytes(dimension: int) -> tuple[int, int]:
    """Return the bytes of a row: of the bits that are scanned, and of the others."""
    return _width(dimension) * COARSE // 8, _width(dimension) * FINER // 8


def _largest_error(scaled: Float, parts: Codes, count: int, lost: Rows | float) -> np.float32:
    """Return how far a row is at most from the middles of its parts, as a share of its bound."""
    middles = (parts.astype(np.float32) + np.float32(0.5)) * np.float32(2 / count) - 1
    off = scaled * np.float32(2 / PARTS) - middles
    lengths = np.sqrt(np.einsum("ij,ij->i", off, off, dtype=np.float64)) + lost
    above: np.float32 = np.nextafter(np.float32(lengths.max(initial=0)), np.float32(np.inf))
    return above


def _folded(numbers: Codes, bits: int) -> Codes:
    """Put numbers of so few bits together in bytes: the first part of each row in the low bits."""
    folded = np.zeros((len(numbers), numbers.shape[1] * bits // 8), np.uint8)
    for place, part in enumerate(np.split(numbers, 8 // bits, axis=1)):
        folded |= part << np.uint8(bits * place)
    return folded


def _unfolded(folded: Codes, bits: int) -> Codes:
    """Take numbers of so few bits out of their bytes."""
    mask = np.uint8((1 << bits) - 1)
    parts = [folded >> np.uint8(bits * place) & mask for place in range(8 // bits)]
    return np.concatenate(parts, axis=1)
