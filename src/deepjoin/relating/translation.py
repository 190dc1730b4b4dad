"""The number that each value of one segment has in another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]

#: Values compared at a time.
_VALUES = 1 << 20


class Translation:
    """Values of one segment as another numbers them: 4 bytes a value, none for the same segment."""

    def __init__(self, one: Segment, other: Segment) -> None:
        self._numbers = None if one is other else _translated(one, other)

    def __call__(self, values: Int) -> Int:
        """Return the numbers of values in the other segment, -1 for those it does not have."""
        if self._numbers is None:
            return values
        return self._numbers[values].astype(np.int64) - 1


def _translated(one: Segment, other: Segment) -> npt.NDArray[np.uint32]:
    """Find all values of a segment in another; what is stored is the number and 1, 0 for none."""
    numbers = np.zeros(len(one.values.hashes), np.uint32)
    if len(other.values.hashes) == 0:
        return numbers
    mine, theirs = (load_strings(segment.folder, "values") for segment in (one, other))
    for start in range(0, len(numbers), _VALUES):
        hashes = one.values.hashes[start : start + _VALUES]
        at = np.searchsorted(other.values.hashes, hashes)
        at = np.minimum(at, len(other.values.hashes) - 1)
        here = np.flatnonzero(other.values.hashes[at] == hashes)
        found = at[here]
        equal = pc.equal(mine.take(pa.array(here + start)), theirs.take(pa.array(found)))
        same = np.asarray(equal)
        numbers[start + here[same]] = found[same] + 1
        # Different strings of one hash, nearly never: walk on to the very one.
        left = (start + here[~same]).tolist()
        numbers[left] = other.values.look_up([mine[value].as_py() for value in left]) + 1
    return numbers
