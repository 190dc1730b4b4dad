"""Sketches and meanings of columns: vectors of their values, weighed by rarity and summed.

A sketch sums a random direction for each value. Two columns that share values have sketches
that point the same way; no model is needed, and the same hash gives the same direction
everywhere. Values found in one column only are left out: nothing can match them, and they
would add noise.

A meaning sums the cell vectors of the values, so columns that say the same in other words point
the same way. There, values of one column only count most: their meaning may be in others.

How rare a value is comes from a snapshot of the frequencies, so that the vectors of segments
that are encoded later can be compared with earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import Float, Half, Hashes, Int, find_sorted, load_array
from deepjoin.embed.cells import CellEncoder, has_meaning
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.normalise.canonical import hash_values
from deepjoin.normalise.cells import distinct_cells
from deepjoin.progress import Progress, no_progress
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.segment import Segment

#: From the numbers of values to a vector each.
Vectors = Callable[[Int], Float]

#: The files of a snapshot of frequencies, in the folder of a segment.
SNAPSHOT = ("frequency_hashes.npy", "frequency_counts.npy", "frequency_columns.npy")
DIMENSIONS = (384, 768, 1536)
#: Versions of directions and weights: vectors of different versions cannot be compared.
_SKETCH_VERSION = 1
MEANING_VERSION = 2
#: The last number of a column's vector, which queries do not have, is as long as this many of
#: the rarest values (of a meaning, their root): without it, columns of two or three values
#: would rank above those that hold more.
_STEADY_SKETCH = 4
_STEADY_MEANING = 32
#: Values summed, and columns held, at a time.
_VALUES = 1 << 12
_COLUMNS = 1 << 13
#: The signs that a byte encodes.
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1


def write_frequency(segments: Sequence[Segment], folder: Path) -> None:
    """Count in how many live columns of a lake each value is, if in more than one."""
    counted = [(one.values.hashes, one.frequency(np.arange(len(one.values.hashes))))
               for one in segments]  # fmt: skip
    hashes = np.concatenate([np.zeros(0, np.uint64), *(found for found, _ in counted)])
    counts = np.concatenate([np.zeros(0, np.int64), *(found for _, found in counted)])
    if len(segments) > 1:
        hashes, group = np.unique(hashes, return_inverse=True)
        counts = np.bincount(group, counts, len(hashes)).astype(np.int64)
    shared = counts > 1
    columns = sum(segment.live_columns for segment in segments)
    np.save(folder / SNAPSHOT[0], hashes[shared])
    np.save(folder / SNAPSHOT[1], counts[shared].astype(np.uint32))
    np.save(folder / SNAPSHOT[2], np.array([columns], np.int64))


class FrequencySnapshot:
    """A `Frequency` for texts, read from disk; values in one column count as unknown, 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hashes, self._counts, columns = (load_array(folder / name) for name in SNAPSHOT)
        #: How many columns the lake had.
        self.columns = int(columns[0])

    @staticmethod
    def exists(folder: Path) -> bool:
        """Check whether the folder of a segment holds a snapshot."""
        return (folder / SNAPSHOT[-1]).exists()

    def __call__(self, values: Sequence[str]) -> Int:
        """Look up canonical values, or their hashes in a private lake."""
        return self.of_hashes(hash_values(values))

    def of_hashes(self, hashes: Hashes) -> Int:
        """Look up values by their hashes."""
        at = find_sorted(self._hashes, hashes)
        found = np.zeros(len(hashes), np.int64)
        found[at >= 0] = self._counts[at[at >= 0]]
        return found

    def of_segment(self, segment: Segment) -> Int:
        """Look up the values of a segment, which may share some that were not shared before."""
        hashes = np.asarray(segment.values.hashes)
        return np.maximum(self.of_hashes(hashes), segment.frequency(np.arange(len(hashes))))

    def of_query(self, hashes: Hashes, segments: Sequence[Segment]) -> Int:
        """Look up the values of a query: the highest count of the snapshot and the segments."""
        found = self.of_hashes(hashes)
        for segment in segments:
            at = find_sorted(segment.values.hashes, hashes)
            held = np.flatnonzero(at >= 0)
            found[held] = np.maximum(found[held], segment.frequency(at[held]))
        return found


def sketch_digest(dimension: int) -> str:
    """Identify everything a sketch depends on besides the lake."""
    return f"sketch-{_SKETCH_VERSION}-{dimension}"


def check_dimension(dimension: int) -> None:
    """Refuse a dimension that is not made of whole 64-bit words."""
    if dimension < 64 or dimension % 64:
        raise DeepJoinError(
            f"A sketch cannot have {dimension} dimensions; give a multiple of 64, best one of "
            f"{', '.join(map(str, DIMENSIONS))}."
        )


def directions(hashes: Hashes, dimension: int) -> Float:
    """Give each value the direction, one sign a dimension, that follows from its hash."""
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
    progress: Progress = no_progress,
) -> Iterator[Half]:
    """Sketch the columns of a segment, some at a time; one without shared values is all zeros."""
    check_dimension(dimension)
    columns = max(frequency.columns, segment.live_columns)
    weighed = weights(frequency.of_segment(segment), columns)
    steady = float(weights(np.array([2]), columns)[0]) * (_STEADY_SKETCH * dimension) ** 0.5

    def signs(values: Int) -> Float:
        return directions(segment.values.hashes[values], dimension)

    count = segment.values.columns
    for start in range(0, count, _COLUMNS):
        stop = min(start + _COLUMNS, count)
        sums = column_sums(segment, weighed, (start, stop), dimension, signs)
        sums[sums.any(axis=1), -1] = steady
        yield unit(sums).astype(np.float16)
        progress(stop, count, "sketches")


def column_sums(
    segment: Segment, weighed: Float, columns: tuple[int, int], dimension: int, vectors: Vectors
) -> Float:
    """Add up the weighed vectors of the values of each column of a range."""
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


def unit(rows: npt.NDArray[np.floating[Any]]) -> Float:
    """Scale rows to length 1 in single precision, and leave zeros."""
    wide = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(lengths > 0, lengths, 1)[:, None]
    return wide


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


def meaning_digest(cells: str, version: int = MEANING_VERSION) -> str:
    """Identify everything a meaning depends on besides the lake; ``cells`` is the encoder."""
    return f"meaning-{version}-{cells}"


def rarity(frequencies: Int, columns: int) -> Float:
    """Weigh values by their rarity, those in one column the most."""
    return np.log((columns + 1) / np.maximum(frequencies, 1)).astype(np.float32)


def meaning_rows(
    segment: Segment,
    cells: CellVectors,
    frequency: FrequencySnapshot,
    progress: Progress = no_progress,
) -> Iterator[Half]:
    """Sum the cell vectors of each column of a segment, some at a time; rows have length 1."""
    columns = max(frequency.columns, segment.live_columns)
    weighed = rarity(frequency.of_segment(segment), columns)
    steady = _STEADY_MEANING**0.5 * np.log(columns + 1)
    stored, dimension = cells.vectors, cells.vectors.dimension

    def vectors(values: Int) -> Float:
        found = stored.take(values)
        return found.floats()

    count = segment.values.columns
    for start in range(0, count, _COLUMNS):
        stop = min(start + _COLUMNS, count)
        sums = column_sums(segment, weighed, (start, stop), dimension, vectors)
        turned = sums @ stored.rotation.T
        rows = np.pad(turned, ((0, 0), (0, 1)), constant_values=steady)
        yield unit(rows).astype(np.float16)
        progress(stop, count, "meanings")


class Meaning:
    """Makes the meanings of queries, for the segments of a lake."""

    def __init__(
        self,
        segments: Sequence[Segment],
        frequency: FrequencySnapshot,
        encoder: CellEncoder,
        profile: str,
    ) -> None:
        self._segments, self._frequency = segments, frequency
        self._encoder, self._profile = encoder, profile
        live = (segment.live_columns for segment in segments)
        self._columns = max([frequency.columns, *live])

    def __call__(self, query: Column) -> Float:
        """Sum the cell vectors of a query: all zeros if no value has one."""
        values = distinct_cells(query.cells, self._profile).values
        found = self._frequency.of_query(hash_values(values), self._segments)
        # Lone surrogates, which no lake holds, cannot be encoded.
        known = [value.encode("utf-8", "replace").decode() for value in values]
        weights = rarity(found, self._columns) * has_meaning(pa.array(known, pa.string()))
        return np.append(weights @ self._encoder.encode(known), np.float32(0))
