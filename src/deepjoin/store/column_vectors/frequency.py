"""In how many columns values are, as it was once: so texts and vectors do not drift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import load_array
from deepjoin.normalise.hashing import hash_values
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: The files of a snapshot, in the folder of a segment.
FILES = ("frequency_hashes.npy", "frequency_counts.npy", "frequency_columns.npy")


def write_frequency(segments: Sequence[Segment], folder: Path) -> None:
    """Count in how many live columns of a lake each value is, if in more than one."""
    held = [_held(segment) for segment in segments]
    hashes = np.concatenate([np.zeros(0, np.uint64), *(found[0] for found in held)])
    counts = np.concatenate([np.zeros(0, np.int64), *(found[1] for found in held)])
    if len(segments) > 1:
        hashes, group = np.unique(hashes, return_inverse=True)
        counts = np.bincount(group, counts, len(hashes)).astype(np.int64)
    shared = counts > 1
    columns = sum(segment.live_columns for segment in segments)
    np.save(folder / FILES[0], hashes[shared])
    np.save(folder / FILES[1], counts[shared].astype(np.uint32))
    np.save(folder / FILES[2], np.array([columns], np.int64))


def _held(segment: Segment) -> tuple[Hashes, Int]:
    counts = segment.frequency(np.arange(len(segment.values.hashes)))
    return np.asarray(segment.values.hashes), np.asarray(counts, np.int64)


class FrequencySnapshot:
    """A `Frequency` for texts, read from disk; values in one column count as unknown, 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hashes, self._counts, columns = (load_array(folder / name) for name in FILES)
        #: How many columns the lake had.
        self.columns = int(columns[0])

    @staticmethod
    def exists(folder: Path) -> bool:
        """Tell whether the folder of a segment holds a snapshot."""
        return (folder / FILES[-1]).exists()

    def __call__(self, values: Sequence[str]) -> Int:
        """Look up canonical values, or what stands for them in a lake of hashes."""
        return self.of_hashes(hash_values(values))

    def of_hashes(self, hashes: Hashes) -> Int:
        """Look up values by their hashes."""
        if len(self._hashes) == 0:
            return np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._counts[at], 0).astype(np.int64)

    def of_segment(self, segment: Segment) -> Int:
        """Look up the values of a segment, which may share some that were not shared before."""
        hashes = np.asarray(segment.values.hashes)
        return np.maximum(self.of_hashes(hashes), segment.frequency(np.arange(len(hashes))))

    def of_query(self, hashes: Hashes, segments: Sequence[Segment]) -> Int:
        """Look up the values of a query: as often as a segment or the snapshot has them."""
        found = [self.of_hashes(hashes), *(_frequency_in(segment, hashes) for segment in segments)]
        return np.asarray(np.max(found, axis=0), np.int64)


def _frequency_in(segment: Segment, hashes: Hashes) -> Int:
    held = segment.values.hashes
    if len(held) == 0 or len(hashes) == 0:
        return np.zeros(len(hashes), np.int64)
    at = np.minimum(np.searchsorted(held, hashes), len(held) - 1)
    return np.where(held[at] == hashes, segment.frequency(at), 0)
