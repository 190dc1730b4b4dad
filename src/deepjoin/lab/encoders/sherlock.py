"""Columns of numbers by their statistics (paper, section 2.1, after Sherlock): no model at all.

What Sherlock measures of a column is measured here: how many cells there are and how varied they
are, how long they are, which characters they have, and, as the numbers are to be compared, the
range and the shape of their distribution. Each statistic becomes an angle, and a vector its cosine
and sine, so that all vectors have one length, no statistic outweighs the others, and nothing
depends on which columns there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.embed.columns.base import ColumnEncoder, FloatMatrix
from deepjoin.embed.columns.text import Frequency
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.checkpoints import encodable
from deepjoin.model import Column
from deepjoin.normalise.canonical import CellType, canonical_array, cell_types
from deepjoin.normalise.distinct import DistinctCells, distinct_cells

Floats = npt.NDArray[np.float64]

#: Changes with the statistics or their scales: other vectors cannot be compared.
_VERSION = 1
#: All characters a number has.
_CHARACTERS = "0123456789.-"
_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1)
#: Turns for each factor of ten between two numbers: the first tell far ones apart, the last near.
_TURNS = np.array([1 / 64, 1 / 16, 1 / 4, 1, 4])
#: Numbers below are about 0, and those beyond about the same.
_LEAST, _MOST = 1e-3, 1e30
#: Sizes at which the angle is half of a right one.
_CELLS, _LENGTH, _CHARACTER, _BITS = 1e4, 8.0, 1.0, 8.0


class SherlockEncoder(ColumnEncoder):
    """The statistics of columns of numbers; other columns have none."""

    kind = "sherlock"
    counted = True

    def __init__(self, profile: str) -> None:
        self.name, self._profile = "sherlock", profile
        self.digest = f"sherlock-{_VERSION}-{profile}"
        self.dimension = 2 * len(angles(["1"], [1]))

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> FloatMatrix:
        """Return the vector of each column; zeros for one that is not of numbers alone."""
        vectors = np.zeros((len(columns), self.dimension), np.float32)
        for place, column in enumerate(columns):
            cells = distinct_cells(column.cells, self._profile)
            if numbers := _numbers(cells):
                turned = angles(numbers, cells.counts)
                vectors[place] = np.concatenate([np.cos(turned), np.sin(turned)])
        return vectors


def _numbers(cells: DistinctCells) -> list[str]:
    """Write the values of a column as numbers; nothing if one of them is none."""
    clean = [encodable(value) for value in cells.values]
    values = canonical_array(pa.array(clean, pa.string()))
    kinds = np.asarray(cell_types(values))
    is_number = np.isin(kinds, (CellType.INTEGER, CellType.DECIMAL))
    numbers: list[str] = values.to_pylist() if is_number.all() else []
    return numbers


def angles(numbers: Sequence[str], counts: Sequence[int]) -> Floats:
    """Measure a column by its distinct numbers, as they are written, and how often each occurs.

    Statistics of the numbers themselves turn with their logarithm, at several speeds; all others
    stay within a right angle.
    """
    values = np.clip(np.array([float(one) for one in numbers]), -_MOST, _MOST)
    lengths = np.array([len(one) for one in numbers], np.float64)
    held = np.array([[one.count(sign) for sign in _CHARACTERS] for one in numbers], np.float64)
    mean, deviation, *shape = _moments(values)
    sizes = np.array([mean, deviation, *np.quantile(values, _QUANTILES)])
    long = np.array([*_moments(lengths)[:2], *np.quantile(lengths, (0, 0.5, 1))])
    bounded = np.concatenate(
        [
            _rising(long, _LENGTH),
            _rising(np.concatenate([held.mean(axis=0), held.std(axis=0)]), _CHARACTER),
            _repetition(np.array(counts, np.float64)),
            [np.mean(values % 1 == 0), np.mean(values < 0), np.mean(values == 0)],
            0.5 + 0.5 * np.tanh(np.array([*shape, *_moments(lengths)[2:]]) / 4),
        ]
    )
    decades = np.sign(sizes) * np.log10(1 + np.abs(sizes) / _LEAST)
    turned = 2 * np.pi * np.outer(decades, _TURNS).ravel()
    return np.concatenate([turned, np.pi / 2 * bounded])


def _rising(sizes: Floats, half: float) -> Floats:
    """Bring sizes from 0 on into the range from 0 to 1.

    >>> _rising(np.array([0.0, 8.0, 24.0]), 8.0).tolist()
    [0.0, 0.5, 0.75]
    """
    return sizes / (sizes + half)


def _repetition(counts: Floats) -> Floats:
    """Say how many cells and how many distinct ones there are, their share and their entropy."""
    chances = counts / counts.sum()
    entropy = -(chances * np.log2(chances)).sum()
    many = np.log10(1 + np.array([counts.sum(), len(counts)]))
    share = len(counts) / counts.sum()
    half = np.log10(1 + _CELLS)
    return np.concatenate([_rising(many, half), [share], _rising(np.array([entropy]), _BITS)])


def _moments(numbers: Floats) -> tuple[float, float, float, float]:
    """Return mean, standard deviation, skewness and excess of kurtosis.

    >>> _moments(np.array([1.0, 3.0]))
    (2.0, 1.0, 0.0, -2.0)
    """
    mean, deviation = float(numbers.mean()), float(numbers.std())
    if deviation <= 1e-12 * abs(mean):
        return mean, 0.0, 0.0, 0.0
    scaled = (numbers - mean) / deviation
    return mean, deviation, float((scaled**3).mean()), float((scaled**4).mean()) - 3


def load_sherlock(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Give the statistics of columns; there is nothing to load."""
    if where:
        raise DeepJoinError(
            f"'{where}' stands behind 'sherlock:', which reads no file. Give --encoder sherlock:"
        )
    return SherlockEncoder(profile)
