"""A segment: an immutable part of an index; merges replace it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.store.catalog import Catalog
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.ledger import read_ledger
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]

#: Folder, inside a segment, of the tables that came from memory.
FRAMES = "frames"


class Segment:
    """Tables that were indexed together, some of which may have left the lake since."""

    def __init__(self, folder: Path, removed: Iterable[int] = ()) -> None:
        self.folder = folder
        self.values = ValueIndex(folder)
        self.catalog = Catalog(folder)
        self.ledger = read_ledger(folder)
        #: None in a lake without vectors.
        self.cells = CellVectors.open(folder)
        self.removed: frozenset[int] = frozenset()
        self._set_removed(removed)

    def without(self, removed: Iterable[int]) -> Segment:
        """Return the same segment, with these tables and no others out of the lake."""
        other = Segment.__new__(Segment)
        other.folder, other.values, other.catalog = self.folder, self.values, self.catalog
        other.ledger, other.cells = self.ledger, self.cells
        other._set_removed(removed)
        return other

    def _set_removed(self, removed: Iterable[int]) -> None:
        self.removed = frozenset(removed)
        if not all(0 <= number < len(self.catalog.table_names) for number in self.removed):
            raise ValueError("a removed table that is not there")

    @property
    def live_tables(self) -> list[int]:
        """The numbers of the tables that are still part of the lake."""
        return [n for n in range(len(self.catalog.table_names)) if n not in self.removed]

    @cached_property
    def live_columns(self) -> int:
        """How many columns are still part of the lake."""
        return self.values.columns - (0 if self.dead is None else int(self.dead.sum()))

    @cached_property
    def dead(self) -> npt.NDArray[np.bool_] | None:
        """Marks the columns of tables that were removed; None when none was."""
        if not self.removed:
            return None
        gone = np.zeros(len(self.catalog.table_names), bool)
        gone[list(self.removed)] = True
        return gone[self.catalog.column_tables]

    def frequency(self, values: Int) -> Int:
        """Document frequency: in how many live columns each value occurs."""
        frequency = self.values.frequency(values)
        if self.dead is None:
            return frequency
        numbers, counts = self._lost
        if len(numbers) == 0:
            return frequency
        at = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        return frequency - np.where(numbers[at] == values, counts[at], 0)

    @cached_property
    def _lost(self) -> tuple[Int, Int]:
        """Of each value in dead columns, its number and in how many it is."""
        assert self.dead is not None
        columns = np.flatnonzero(self.dead)
        sizes = self.values.sizes(columns)
        starts = np.asarray(self.values.column_offsets)[columns]
        places = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        numbers, counts = np.unique(self.values.cell_values[places], return_counts=True)
        return numbers.astype(np.int64), counts

    @property
    def live_hashes(self) -> npt.NDArray[np.uint64]:
        """The hashes of the values that some live column holds, ascending."""
        hashes = self.values.hashes
        if self.dead is None:
            return hashes
        numbers, counts = self._lost
        live = np.ones(len(hashes), bool)
        live[numbers] = self.values.frequency(numbers) > counts
        return np.asarray(hashes[live])

    def find_table(self, name: str) -> int | None:
        """Return the number of a live table, or None."""
        number = self.catalog.find_table(name)
        return None if number in self.removed else number
