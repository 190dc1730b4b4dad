"""What is known of each column after a build: size, type, lengths, and whether it is generic."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Double, Int, Marks
from deepjoin.normalise.canonical import CellType, canonical, cell_types
from deepjoin.settings import Settings

if TYPE_CHECKING:
    from deepjoin.store.values.postings import Postings

_FLAG_SET = frozenset(("0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "x"))
_DIGITS = re.compile(r"0|[1-9][0-9]{0,17}")
#: Numbers of a grid that a column may fill; finer fractions are measured, and rarely met twice.
_GRID = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,3})?")
#: How many numbers around those of a query are looked up.
_AROUND = 64
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
    mean_length: Double
    types: npt.NDArray[np.uint8]
    generic: npt.NDArray[np.uint8]

    def why_left_out(self, column: int, settings: Settings) -> str:
        """Return why a column that was read is not indexed."""
        distinct = int(self.distinct[column])
        if distinct == 0 and self.too_long[column]:
            return f"cells longer than {settings.max_cell} characters"
        if distinct == 0:
            return "no values"
        if distinct < settings.min_distinct:
            return f"fewer than {settings.min_distinct} distinct values ({distinct})"
        return f"long text (mean {self.mean_length[column]:.0f} characters)"


def generic_of(values: Sequence[str]) -> Generic:
    """Classify one column by its distinct canonical values, as `Traits` does for many.

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


def numbers_around(values: Sequence[str]) -> list[str]:
    """Return some numbers in and around the range of such values, none of them among these.

    They have as many decimals as the values. A column that holds most of these holds the values
    as well, whatever they are about.

    >>> numbers_around(["4", "6"]), numbers_around(["4", "six"])
    (['1', '2', '3', '5', '7', '8', '9'], [])
    >>> numbers_around(["0.4", "0.6"])
    ['0.1', '0.2', '0.3', '0.5', '0.7', '0.8', '0.9']
    """
    if not values or not all(_GRID.fullmatch(value) for value in values):
        return []
    places = max(len(value.partition(".")[2]) for value in values)
    numbers = {int(Decimal(value).scaleb(places)) for value in values}
    low, high = min(numbers), max(numbers)
    span = high - low + 1
    around = range(low - span if low < 0 else max(0, low - span), high + span + 1)
    # Drawn, not at even distances: those could all be multiples of ten, which a column may hold.
    drawn = around if len(around) <= _AROUND else random.Random(0).sample(around, _AROUND)
    return [canonical(str(Decimal(n).scaleb(-places))) for n in drawn if n not in numbers]


class Traits:
    """Facts about columns that do not depend on counts: the types and the range of their values."""

    def __init__(self, columns: int) -> None:
        #: Whether a column holds values of each type.
        self.kinds = np.zeros((len(CellType), columns), bool)
        #: Whether it holds a value that is not a flag.
        self.ordinary = np.zeros(columns, bool)
        self.minimum = np.full(columns, _NO_MINIMUM)
        self.maximum = np.full(columns, _NO_MAXIMUM)

    def add(self, values: pa.Array, value: Int, column: Int) -> None:
        """Take in that column ``column[i]`` holds the string ``values[value[i]]``."""
        types = np.asarray(cell_types(values))
        self.kinds[types[value], column] = True
        is_flag = np.asarray(pc.is_in(values, pa.array(sorted(_FLAG_SET))))
        self.ordinary[column[~is_flag[value]]] = True
        integer = types == CellType.INTEGER
        numbers, here = _numbers(values, integer), integer[value]
        np.minimum.at(self.minimum, column[here], numbers[value[here]])
        np.maximum.at(self.maximum, column[here], numbers[value[here]])

    def include(self, first: int, other: Traits) -> Traits:
        """Take in what is known of the columns from ``first`` on, with room for more of them."""
        stop = first + len(other.ordinary)
        whole = self if len(self.ordinary) >= stop else self.of(max(stop, 2 * len(self.ordinary)))
        whole.kinds[:, first:stop] |= other.kinds
        whole.ordinary[first:stop] |= other.ordinary
        for mine, theirs, pick in (
            (whole.minimum, other.minimum, np.minimum),
            (whole.maximum, other.maximum, np.maximum),
        ):
            mine[first:stop] = pick(mine[first:stop], theirs)
        return whole

    def of(self, columns: int) -> Traits:
        """Return the traits of this many columns; those not seen so far have none."""
        cut = Traits(columns)
        here = min(columns, len(self.ordinary))
        for name, array in vars(cut).items():
            array[..., :here] = getattr(self, name)[..., :here]
        return cut

    def types(self) -> npt.NDArray[np.uint8]:
        """Give each column the type that all its values share."""
        text, integer, decimal, date = self.kinds
        number = integer | decimal
        conditions = [
            integer & ~(text | decimal | date),
            number & ~(text | date),
            date & ~(text | number),
        ]
        choices = [CellType.INTEGER, CellType.DECIMAL, CellType.DATE]
        return np.select(conditions, choices, CellType.TEXT).astype(np.uint8)

    def generic(self, types: npt.NDArray[np.uint8], distinct: Int) -> npt.NDArray[np.uint8]:
        """Find the columns that are generic keys, and of which kind."""
        integer = types == CellType.INTEGER
        low, high = self.minimum, self.maximum
        span = np.where(integer & (low >= 0) & (high < 1 << 40), high - low + 1, _NO_MINIMUM)
        conditions = [
            (distinct > 0) & ~self.ordinary,
            integer & (low >= _YEARS[0]) & (high <= _YEARS[1]),
            (low >= 0) & (low <= 1) & (span <= _SPARSE * distinct),
        ]
        choices = [Generic.FLAG, Generic.YEAR, Generic.RUN]
        return np.select(conditions, choices, Generic.NO).astype(np.uint8)


def classified(values: pa.Array) -> tuple[CellType, Generic]:
    """Return the type of one column's distinct canonical values, and its kind of generic key."""
    traits, places = Traits(1), np.arange(len(values))
    traits.add(values, places, np.zeros_like(places))
    types = traits.types()
    generic = traits.generic(types, np.array([len(values)]))
    return CellType(int(types[0])), Generic(int(generic[0]))


def _numbers(values: pa.Array, integer: Marks) -> Int:
    """Read the integers; one too long counts as a bound that no range can include."""
    short = integer & (np.asarray(pc.binary_length(values)) <= _MAX_DIGITS)
    numbers = np.full(len(integer), _NO_MINIMUM - 1)
    numbers[short] = np.asarray(values.filter(pa.array(short)).cast(pa.int64()))
    return numbers


class ColumnTallies:
    """Adds up the facts of all columns over the partitions of a build.

    Of hidden values only lengths are left to add up; their ``traits`` were found before.
    """

    def __init__(self, columns: int, traits: Traits | None = None) -> None:
        self._distinct = np.zeros(columns, np.int64)
        self._length = np.zeros(columns, np.int64)
        self._hidden = traits is not None
        self._traits = Traits(columns) if traits is None else traits.of(columns)

    def add(self, postings: Postings) -> Postings:
        """Count the values of one partition, no value being in two; return what to store of it."""
        value, column = postings.value, postings.column
        np.add.at(self._distinct, column, 1)
        if self._hidden:
            np.add.at(self._length, column, np.asarray(postings.spellings.cast(pa.int64())))
            return postings.unspelled()
        np.add.at(self._length, column, np.asarray(pc.utf8_length(postings.values))[value])
        self._traits.add(postings.values, value, column)
        return postings

    def profiles(self, present: Int, too_long: Int) -> ColumnProfiles:
        """Return the profiles once every partition has been added."""
        types = self._traits.types()
        return ColumnProfiles(
            self._distinct,
            present,
            too_long,
            self._length / np.maximum(1, self._distinct),
            types,
            self._traits.generic(types, self._distinct),
        )
