"""Sketches of columns: a random direction for each value, summed up, rare values the longer.

Two columns that share values have sketches that point the same way; no model is needed, and
the same hash gives the same direction everywhere. Values found in one column only are left
out: nothing can meet them, and they would add noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.normalise.hashing import hash_values
from deepjoin.store.column_vectors.frequency import FrequencySnapshot
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Half = npt.NDArray[np.float16]
Hashes = npt.NDArray[np.uint64]
Told = Callable[[int, int, str], None]
#: From the numbers of values to a vector each.
Vectors = Callable[[Int], Float]

DIMENSIONS = (384, 768, 1536)
#: Version of the directions and weights: sketches of another cannot be compared.
_VERSION = 1
#: The last number of a column's sketch, which queries do not have, is as long as so many of the
#: rarest values: without it, columns of two or three values outrank those that hold more.
_STEADY = 4
#: Values summed, and columns kept, at a time.
_VALUES = 1 << 12
_COLUMNS = 1 << 13
#: The signs that a byte stands for.
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1


def sketch_digest(dimension: int) -> str:
    """Return what stands for all a sketch depends on beside the lake."""
    return f"sketch-{_VERSION}-{dimension}"


def check_dimension(dimension: int) -> None:
    """Refuse a dimension that directions are not made for."""
    if dimension < 64 or dimension % 64:
        raise DeepJoinError(
            f"A sketch of {dimension} dimensions is asked for; it has a multiple of 64, "
            f"best one of {', '.join(map(str, DIMENSIONS))}."
        )


def directions(hashes: Hashes, dimension: int) -> Float:
    """Give each value the signs that its hash stands for."""
    steps = np.arange(1, dimension // 64 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = hashes[:, None] + steps
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    signs: Float = _SIGNS[mixed.astype("<u8").view(np.uint8)]
    return signs.reshape(len(hashes), dimension)


def weights(frequencies: Int, columns: int) -> Float:
    """Weigh values by the root of their rarity; those in one column weigh nothing."""
    rarity = np.log((columns + 1) / np.maximum(frequencies, 1))
    return np.where(frequencies > 1, np.sqrt(np.maximum(rarity, 0)), 0).astype(np.float32)


def sketch_rows(
    segment: Segment,
    frequency: FrequencySnapshot,
    dimension: int,
    told: Told = lambda done, total, text: None,
) -> Iterator[Half]:
    """Sketch every column of a segment, some at a time; without a shared value it is all zeros."""
    check_dimension(dimension)
    columns = max(frequency.columns, segment.live_columns)
    weighed = weights(frequency.of_segment(segment), columns)
    steady = float(weights(np.array([2]), columns)[0]) * (_STEADY * dimension) ** 0.5

    def signs(values: Int) -> Float:
        return directions(segment.values.hashes[values], dimension)

    count = segment.values.columns
    for start in range(0, count, _COLUMNS):
        stop = min(start + _COLUMNS, count)
        sums = column_sums(segment, weighed, (start, stop), dimension, signs)
        yield _steadied(sums, steady).astype(np.float16)
        told(stop, count, "sketches")


def column_sums(
    segment: Segment, weighed: Float, columns: tuple[int, int], dimension: int, vectors: Vectors
) -> Float:
    """Add up the weighed vectors of the values of columns from one up to another."""
    values, (start, stop) = segment.values, columns
    bounds = np.asarray(values.column_offsets[start : stop + 1])
    numbers = np.asarray(values.cell_values[bounds[0] : bounds[-1]])
    owners = np.repeat(np.arange(stop - start), np.diff(bounds))
    counted = weighed[numbers] > 0
    numbers, owners = numbers[counted], owners[counted]
    sums = np.zeros((stop - start, dimension), np.float32)
    for first in range(0, len(numbers), _VALUES):
        some, owner = numbers[first : first + _VALUES], owners[first : first + _VALUES]
        found = vectors(some)
        found *= weighed[some][:, None]
        runs = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        sums[owner[runs]] += np.add.reduceat(found, runs, axis=0)
    return sums


def _steadied(sums: Float, steady: float) -> Float:
    """Put the steady number in the last place, and scale to length 1."""
    filled = sums.any(axis=1)
    sums[filled, -1] = steady
    lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))
    sums /= np.where(lengths > 0, lengths, 1)[:, None]
    return sums


class Sketcher:
    """Sketches queries for the segments of a lake."""

    def __init__(
        self,
        segments: Sequence[Segment],
        frequency: FrequencySnapshot,
        dimension: int,
        profile: str,
        key: bytes = b"",
    ) -> None:
        check_dimension(dimension)
        self._segments, self._frequency, self._dimension = segments, frequency, dimension
        self._profile, self._key = profile, key
        live = (segment.live_columns for segment in segments)
        self._columns = max([frequency.columns, *live])

    def __call__(self, query: Column) -> Float:
        """Sketch a query: all zeros if it holds no value that columns of the lake share."""
        distinct = distinct_cells(query.cells, self._profile, self._key)
        hashes = hash_values(distinct.values if distinct.hidden is None else distinct.hidden)
        weighed = weights(self._frequency.of_query(hashes, self._segments), self._columns)
        hashes, weighed = hashes[weighed > 0], weighed[weighed > 0]
        vector = np.zeros(self._dimension, np.float32)
        for start in range(0, len(hashes), _VALUES):
            some = slice(start, start + _VALUES)
            vector += weighed[some] @ directions(hashes[some], self._dimension)
        vector[-1] = 0
        return vector
