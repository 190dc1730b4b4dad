"""Assignment of values to the columns of a generated lake.

Columns lie on a line, in families of similar size. A value that several columns share goes into
one stretch of neighbours just long enough for it; stretches begin at multiples of their length,
so that values share stretches and columns of a family join, as tables on one topic do. Families
differ in how much they take of values that many columns have, and that few have. What room is
left takes values of no other column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deepjoin.arrays import Double, Int, Int32
from frequencies import Measured, scaled

FAMILY = 16
_FAMILIES_MIXED = 64
_POSTINGS = 1 << 22
#: Values in so many columns or more are shared by many; in this share of them, go anywhere.
_MANY = 8
_ANYWHERE = 1e-3


@dataclass(frozen=True)
class Layout:
    """The lake as numbers: the values of each column, and the column at each place of the line."""

    offsets: Int
    values: Int32
    line: Int
    #: How many different values there are; larger numbers are values of no column.
    count: int

    def column(self, number: int) -> Int32:
        """Return the values of a column."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]


def make_layout(
    measured: Measured, columns: int, last_sizes: Int, random: np.random.Generator
) -> Layout:
    """Lay out a lake; the last columns get the sizes given. Holds about 60 bytes a cell."""
    frequencies = scaled(measured, columns)
    line = random.permutation(columns)
    sizes = _in_families(random.choice(measured.sizes[measured.sizes > 0], columns), random)
    sizes[np.argsort(line)[columns - len(last_sizes) :]] = last_sizes
    placed = list(_placed(frequencies, sizes, random))
    shared = np.concatenate([places for places, _ in placed])
    numbers = np.concatenate([values for _, values in placed])
    room = np.maximum(sizes - np.bincount(shared, minlength=columns), 0)
    alone = np.repeat(np.arange(columns, dtype=np.int32), room)
    count = len(frequencies) + len(alone)
    numbers = np.append(numbers, np.arange(len(frequencies), count, dtype=np.int32))
    holders = line[np.append(shared, alone)]
    order = np.argsort(holders << 32 | random.integers(1 << 32, size=len(holders)))
    offsets = np.append(0, np.cumsum(np.bincount(holders, minlength=columns)))
    return Layout(offsets, numbers[order], line, count)


def _in_families(sizes: Int, random: np.random.Generator) -> Int:
    """Group similar sizes into families, in random order."""
    whole = len(sizes) // FAMILY * FAMILY
    mixed = FAMILY * _FAMILIES_MIXED
    parts = [np.sort(sizes[at : min(at + mixed, whole)]) for at in range(0, whole, mixed)]
    families = [random.permutation(part.reshape(-1, FAMILY)).ravel() for part in parts]
    return np.concatenate([*families, sizes[whole:]])


def _placed(
    frequencies: Int, sizes: Int, random: np.random.Generator
) -> Iterator[tuple[Int32, Int32]]:
    """Yield (places on the line, values), some millions at a time; frequencies descend."""
    by_many, by_few = _appetites(sizes, random)
    many = int(np.searchsorted(-frequencies, -_MANY, "right"))
    for mass, first, last in ((by_many, 0, many), (by_few, many, len(frequencies))):
        before = np.cumsum(frequencies[first:last])
        steps = np.arange(0, before[-1] if len(before) else 0, _POSTINGS)
        cuts = first + np.searchsorted(before, steps)
        for start, stop in zip(cuts, np.append(cuts[1:], last), strict=True):
            here = frequencies[start:stop]
            value = np.repeat(np.arange(start, stop, dtype=np.int32), here)
            yield _places(here, mass, random), value


def _appetites(sizes: Int, random: np.random.Generator) -> tuple[Double, Double]:
    """Cumulate, along the line taken twice, how much columns take of each kind of value."""
    families = len(sizes) // FAMILY + 1
    many = random.random(families) ** 5
    few = random.beta(0.4, 0.14, families) * (1 - many)
    weights = (sizes * np.repeat(kind, FAMILY)[: len(sizes)] + 1e-6 for kind in (many, few))
    by_many, by_few = (np.append(0, np.cumsum(np.append(one, one))) for one in weights)
    return by_many, by_few


def _places(frequencies: Int, mass: Double, random: np.random.Generator) -> Int32:
    """Give each value a stretch of the line, and one column in each equal part of it."""
    columns = (len(mass) - 1) // 2
    reach = np.int64(2) ** np.ceil(np.log2(frequencies)).astype(np.int64)
    reach[(frequencies >= _ANYWHERE * columns) | (reach > columns)] = columns
    home = np.searchsorted(mass, random.uniform(0, mass[columns], len(reach)), "right") - 1
    home -= home % reach
    turn = np.arange(frequencies.sum()) - np.repeat(
        np.cumsum(frequencies) - frequencies, frequencies
    )
    home, reach, parts = (np.repeat(one, frequencies) for one in (home, reach, frequencies))
    first, after = home + turn * reach // parts, home + (turn + 1) * reach // parts
    point = mass[first] + random.random(len(first)) * (mass[after] - mass[first])
    place = np.clip(np.searchsorted(mass, point, "right") - 1, first, after - 1)
    return np.asarray(place % columns, np.int32)
