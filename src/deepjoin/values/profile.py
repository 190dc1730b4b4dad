"""What is known of each column after a build: size, type, lengths, and whether it is generic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.canonical import CellType, cell_types
from deepjoin.settings import Settings
from deepjoin.values.merge import Postings

Int = npt.NDArray[np.int64]

_FLAG_SET = frozenset(("0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "x"))
_DIGITS = re.compile(r"0|[1-9][0-9]{0,17}")
_YEARS = (1800, 2100)
#: A run from 0 or 1 may have gaps, but holds at least every second number.
_SPARSE = 2
_NO_MAXIMUM = np.iinfo(np.int64).min
_NO_MINIMUM = np.iinfo(np.int64).max
#: Longer digit strings overflow 64 bits; they are never row numbers or years.
_MAX_DIGITS = 18


class Generic(IntEnum):
    """Keys that match everything and so say little: row numbers, years and flags."""

    NO = 0
    RUN = 1
    YEAR = 2
    FLAG = 3


@dataclass(frozen=True)
class ColumnProfiles:
    """One entry a column in every array."""

    distinct: Int
    present: Int
    too_long: Int
    mean_length: npt.NDArray[np.float64]
    types: npt.NDArray[np.uint8]
    generic: npt.NDArray[np.uint8]

    def why_left_out(self, column: int, settings: Settings) -> str:
        """Say why a column that was read is not indexed."""
        distinct = int(self.distinct[column])
        if distinct == 0 and self.too_long[column]:
            return f"cells longer than {settings.max_cell} characters"
        if distinct == 0:
            return "no values"
        if distinct < settings.min_distinct:
            return f"fewer than {settings.min_distinct} distinct values ({distinct})"
        return f"long text (mean {self.mean_length[column]:.0f} characters)"


def generic_of(values: Sequence[str]) -> Generic:
    """Say of one column's distinct canonical values what `ColumnTallies` says of many.

    >>> generic_of(["1999", "2000", "2003"]).name, generic_of(["1", "2", "4"]).name
    ('YEAR', 'RUN')
    """
    if not values:
        return Generic.NO
    if all(value in _FLAG_SET for value in values):
        return Generic.FLAG
    if not all(_DIGITS.fullmatch(value) for value in values):
        return Generic.NO
    numbers = [int(value) for value in values]
    low, high = min(numbers), max(numbers)
    if low >= _YEARS[0] and high <= _YEARS[1]:
        return Generic.YEAR
    return Generic.RUN if low <= 1 and high - low + 1 <= _SPARSE * len(values) else Generic.NO


class ColumnTallies:
    """Adds up the facts of all columns over the partitions of a build."""

    def __init__(self, columns: int) -> None:
        self._distinct = np.zeros(columns, np.int64)
        self._length = np.zeros(columns, np.int64)
        self._flags = np.zeros(columns, np.int64)
        self._by_type = np.zeros((len(CellType), columns), np.int64)
        self._minimum = np.full(columns, _NO_MINIMUM)
        self._maximum = np.full(columns, _NO_MAXIMUM)

    def add(self, postings: Postings) -> None:
        """Count the values of one partition; no value is in two."""
        value, column = postings.value, postings.column
        np.add.at(self._distinct, column, 1)
        np.add.at(self._length, column, np.asarray(pc.utf8_length(postings.values))[value])
        is_flag = np.asarray(pc.is_in(postings.values, pa.array(sorted(_FLAG_SET))))
        np.add.at(self._flags, column[is_flag[value]], 1)
        types = np.asarray(cell_types(postings.values))
        np.add.at(self._by_type, (types[value], column), 1)
        self._add_numbers(postings, types)

    def _add_numbers(self, postings: Postings, types: npt.NDArray[np.uint8]) -> None:
        short = np.asarray(pc.binary_length(postings.values)) <= _MAX_DIGITS
        number = (types == CellType.INTEGER) & short
        # A number too long to parse counts as its own bound, so that no range can include it.
        parsed = np.full(len(types), _NO_MINIMUM - 1)
        parsed[number] = np.asarray(postings.values.filter(pa.array(number)).cast(pa.int64()))
        here = (types == CellType.INTEGER)[postings.value]
        column, numbers = postings.column[here], parsed[postings.value[here]]
        np.minimum.at(self._minimum, column, numbers)
        np.maximum.at(self._maximum, column, numbers)

    def profiles(self, present: Int, too_long: Int) -> ColumnProfiles:
        """Draw the conclusions once every partition has been added."""
        types = self._types()
        return ColumnProfiles(
            self._distinct,
            present,
            too_long,
            self._length / np.maximum(1, self._distinct),
            types,
            self._generic(types),
        )

    def _types(self) -> npt.NDArray[np.uint8]:
        integers, dates = self._by_type[CellType.INTEGER], self._by_type[CellType.DATE]
        numbers = integers + self._by_type[CellType.DECIMAL]
        conditions = [
            self._distinct == 0,
            *(n == self._distinct for n in (integers, numbers, dates)),
        ]
        choices = [CellType.TEXT, CellType.INTEGER, CellType.DECIMAL, CellType.DATE]
        return np.select(conditions, choices, CellType.TEXT).astype(np.uint8)

    def _generic(self, types: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        integer = types == CellType.INTEGER
        low, high = self._minimum, self._maximum
        span = np.where(integer & (low >= 0) & (high < 1 << 40), high - low + 1, _NO_MINIMUM)
        conditions = [
            (self._distinct > 0) & (self._flags == self._distinct),
            integer & (low >= _YEARS[0]) & (high <= _YEARS[1]),
            (low >= 0) & (low <= 1) & (span <= _SPARSE * self._distinct),
        ]
        choices = [Generic.FLAG, Generic.YEAR, Generic.RUN]
        return np.select(conditions, choices, Generic.NO).astype(np.uint8)
