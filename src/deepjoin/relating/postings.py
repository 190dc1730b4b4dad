"""Which columns of a segment hold each of its values: all columns, or some of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import ranges
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]


class Postings(Protocol):
    """The columns behind values; a value is a number of the segment, -1 one it does not have."""

    def frequency(self, values: Int) -> Int:
        """Say in how many columns each value is."""

    def read(self, values: Int, frequency: Int) -> npt.NDArray[np.int32]:
        """Return the columns of each value, one value's after the other's."""


class AllPostings:
    """Those of a whole segment, as they are stored."""

    def __init__(self, index: ValueIndex) -> None:
        self._index = index

    def frequency(self, values: Int) -> Int:
        """Say in how many columns each value is."""
        if len(self._index.hashes) == 0:
            return np.zeros(len(values), np.int64)
        return np.where(values >= 0, self._index.frequency(np.maximum(values, 0)), 0)

    def read(self, values: Int, frequency: Int) -> npt.NDArray[np.int32]:
        """Return the columns of each value, one value's after the other's."""
        places = ranges(np.asarray(self._index.posting_offsets)[values], frequency)
        return np.asarray(self._index.posting_columns[places])


class SomePostings:
    """Those of a few columns, made of what the columns hold."""

    def __init__(self, index: ValueIndex, columns: Int) -> None:
        sizes = index.sizes(columns)
        values = index.cell_values[ranges(np.asarray(index.column_offsets)[columns], sizes)]
        order = np.argsort(values, kind="stable")
        self._columns = np.repeat(columns, sizes)[order].astype(np.int32)
        self._values, self._starts = np.unique(values[order], return_index=True)
        self._lengths = np.diff(np.append(self._starts, len(order)))

    def frequency(self, values: Int) -> Int:
        """Say in how many columns each value is."""
        at = self._places(values)
        return np.where(self._values[at] == values, self._lengths[at], 0)

    def read(self, values: Int, frequency: Int) -> npt.NDArray[np.int32]:
        """Return the columns of each value, one value's after the other's."""
        return np.asarray(self._columns[ranges(self._starts[self._places(values)], frequency)])

    def _places(self, values: Int) -> Int:
        # A stored value is an unsigned number; compared with -1 it must not wrap.
        wanted = np.maximum(values, 0).astype(self._values.dtype)
        return np.minimum(np.searchsorted(self._values, wanted), len(self._values) - 1)
