"""The value index as a memory map: look values up, walk postings, fetch a column's cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Strings, load_array
from deepjoin.normalise.hashing import hash_values
from deepjoin.store.values.writer import AS_VALUE, FORWARD

Int = npt.NDArray[np.int64]


class ValueIndex:
    """Distinct values in hash order, the columns that hold each, and each column's values."""

    def __init__(self, folder: Path) -> None:
        self.hashes = load_array(folder / "value_hashes.npy")
        self.values = Strings.load(folder, "values")
        self.posting_offsets = load_array(folder / "posting_offsets.npy")
        self.posting_columns = load_array(folder / "posting_columns.npy")
        self.column_offsets = load_array(folder / "column_offsets.npy")
        self._spellings = Strings.load(folder, "spellings")
        self.cell_values, self.cell_counts, self.cell_rows, self.cell_spellings = (
            load_array(folder / f"{name}.npy") for name in FORWARD
        )

    @property
    def columns(self) -> int:
        """How many columns are indexed."""
        return len(self.column_offsets) - 1

    def look_up(self, values: Sequence[str]) -> Int:
        """Give each canonical string its value number, or -1 where no column holds it."""
        if len(self.hashes) == 0:
            return np.full(len(values), -1)
        hashes = hash_values(values)
        places = np.searchsorted(self.hashes, hashes)
        numbers = np.full(len(values), -1)
        same = self.hashes[np.minimum(places, len(self.hashes) - 1)] == hashes
        for i in np.flatnonzero(same).tolist():
            numbers[i] = self._confirm(int(places[i]), hashes[i], values[i])
        return numbers

    def _confirm(self, at: int, wanted: np.uint64, value: str) -> int:
        """Walk the values of one hash, nearly always one, to the very string."""
        while self.values[at] != value:
            at += 1
            if at == len(self.hashes) or self.hashes[at] != wanted:
                return -1
        return at

    def frequency(self, values: Int) -> Int:
        """Document frequency: in how many columns each value occurs."""
        return np.asarray(self.posting_offsets[values + 1] - self.posting_offsets[values])

    def postings(self, value: int) -> npt.NDArray[np.int32]:
        """Return the columns that hold a value, ascending."""
        start, stop = self.posting_offsets[value], self.posting_offsets[value + 1]
        return np.asarray(self.posting_columns[start:stop])

    def sizes(self, columns: npt.NDArray[np.integer[Any]]) -> Int:
        """Return the number of distinct values of each of these columns."""
        return np.asarray(self.column_offsets[columns + 1] - self.column_offsets[columns])

    def cells_of(self, column: int) -> tuple[int, int]:
        """Return where a column's entries of the forward index start and stop."""
        return int(self.column_offsets[column]), int(self.column_offsets[column + 1])

    def spelling(self, value: str, number: int) -> str:
        """Return a cell as its table spells it, given its value and its spelling number."""
        return value if number == AS_VALUE else self._spellings[number]
