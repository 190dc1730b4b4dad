"""Vectors of a merged segment: copied from the segments it is made of, not encoded again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.embed.scan import QuantisedRows
from deepjoin.embed.value_vectors import ValueVectors, new_rotation, quantised, write_in_order
from deepjoin.errors import DeepJoinError

Float = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]
#: Stored vectors, numbers of some of their values, and the numbers these get in the copy.
Source = tuple[ValueVectors, Int, Int]
#: Numbers in the copy, and vectors to be stored for them.
Encoded = tuple[Int, npt.ArrayLike]
_Part = tuple[QuantisedRows, Int, Int]

_BLOCK = 1 << 16


def same_rotation(vectors: Sequence[ValueVectors]) -> bool:
    """Say whether vectors of all of these can be copied into one segment."""
    return all(np.array_equal(one.rotation, vectors[0].rotation) for one in vectors)


def copy_vectors(
    out: Path,
    count: int,
    dimension: int,
    sources: Sequence[Source],
    encoded: Encoded | None = None,
) -> None:
    """Write the vectors of ``count`` values: those of the sources as they are stored there.

    Where two sources have a value, the later counts; ``encoded`` has values no source has.
    """
    rotation = _rotation([vectors for vectors, _, _ in sources], dimension)
    parts = [(one.stored, one.rows_of(old), new) for one, old, new in sources]
    if encoded is not None:
        numbers, rows = encoded
        parts.append((quantised(rows, rotation), np.arange(len(numbers)), numbers))
    write_in_order(out, _Copy(parts, count, dimension).blocks(), rotation)


def _rotation(vectors: Sequence[ValueVectors], dimension: int) -> Float:
    if not vectors:
        return new_rotation(dimension)
    if vectors[0].dimension != dimension or not same_rotation(vectors):
        found = sorted({one.dimension for one in vectors})
        raise DeepJoinError(
            f"Vectors of dimensions {found} came, where one rotation of dimension {dimension} "
            "is allowed. Encode the values again."
        )
    return vectors[0].rotation


class _Copy:
    """For every value of the copy, which part has it and in which row."""

    def __init__(self, parts: Sequence[_Part], count: int, dimension: int) -> None:
        self._parts, self._dimension = [rows for rows, _, _ in parts], dimension
        self._owner = np.full(count, -1, np.int32)
        self._row = np.zeros(count, np.int64)
        for number, (_, rows, values) in enumerate(parts):
            self._owner[values] = number
            self._row[values] = rows
        missing = np.flatnonzero(self._owner < 0)
        if len(missing):
            raise DeepJoinError(
                f"{len(missing)} of {count} values have no vector, the first is {missing[0]}. "
                "Give a vector for every value no source has."
            )

    def blocks(self) -> Iterator[QuantisedRows]:
        """Yield the rows in order of the values."""
        for start in range(0, len(self._owner), _BLOCK):
            yield self._block(
                self._owner[start : start + _BLOCK], self._row[start : start + _BLOCK]
            )

    def _block(self, owner: npt.NDArray[np.int32], row: Int) -> QuantisedRows:
        codes = np.empty((len(owner), self._dimension), np.uint8)
        scales, errors = np.empty(len(owner), np.float32), np.empty(len(owner), np.float32)
        for number, part in enumerate(self._parts):
            mine = np.flatnonzero(owner == number)
            codes[mine], scales[mine], errors[mine] = part.take(row[mine])
        return QuantisedRows(codes, scales, errors)
