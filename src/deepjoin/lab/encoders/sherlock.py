"""Columns of numbers by their statistics (paper, section 2.1, after Sherlock): no model at all.

The statistics are those of Sherlock: number and variety of cells, their length and characters, and,
because numbers are compared, the range and shape of their distribution. Each statistic becomes an
angle, stored as cosine and sine, so that all vectors have the same length, no statistic outweighs
the others, and nothing depends on the other columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Double, Float
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import Frequency
from deepjoin.errors import DeepJoinError
from deepjoin.lab.encoders.checkpoints import are_numbers
from deepjoin.model import Column
from deepjoin.normalise.canonical import canonical_array
from deepjoin.normalise.cells import distinct_cells

#: Changes with the statistics or their scales, because vectors are then not comparable.
_VERSION = 1
#: The characters of numbers.
_CHARACTERS = "0123456789.-"
_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1)
#: Turns for each factor of ten: slow ones separate distant numbers, fast ones near numbers.
_TURNS = np.array([1 / 64, 1 / 16, 1 / 4, 1, 4])
#: Smaller numbers count as about 0, larger ones as about equal.
_LEAST, _MOST = 1e-3, 1e30
#: Sizes that map to half a right angle.
_CELLS, _LENGTH, _CHARACTER, _BITS = 1e4, 8.0, 1.0, 8.0


class SherlockEncoder(ColumnEncoder):
    """Statistics of number columns; other columns have none."""

    kind = "sherlock"
    counted = True

    def __init__(self, profile: str) -> None:
        self.name, self._profile = "sherlock", profile
        self.digest = f"sherlock-{_VERSION}-{profile}"
        self.dimension = 2 * len(angles(["1"], [1]))

    def encode(self, columns: Sequence[Column], frequency: Frequency) -> Float:
        """Return the vector of each column; zeros unless all its cells are numbers."""
        vectors = np.zeros((len(columns), self.dimension), np.float32)
        for place, column in enumerate(columns):
            cells = distinct_cells(column.cells, self._profile)
            if are_numbers(cells.values):
                turned = angles(canonical_array(pa.array(cells.values)).to_pylist(), cells.counts)
                vectors[place] = np.concatenate([np.cos(turned), np.sin(turned)])
        return vectors


def angles(numbers: Sequence[str], counts: Sequence[int]) -> Double:
    """Compute the angles of a column from its distinct numbers as written, and their counts.

    Statistics of the numbers themselves turn with their logarithm at several speeds; all others
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


def _rising(sizes: Double, half: float) -> Double:
    """Map sizes >= 0 to the range from 0 to 1.

    >>> _rising(np.array([0.0, 8.0, 24.0]), 8.0).tolist()
    [0.0, 0.5, 0.75]
    """
    return sizes / (sizes + half)


def _repetition(counts: Double) -> Double:
    """Measure the numbers of cells and of distinct cells, their ratio and the entropy."""
    chances = counts / counts.sum()
    entropy = -(chances * np.log2(chances)).sum()
    many = np.log10(1 + np.array([counts.sum(), len(counts)]))
    share = len(counts) / counts.sum()
    half = np.log10(1 + _CELLS)
    return np.concatenate([_rising(many, half), [share], _rising(np.array([entropy]), _BITS)])


def _moments(numbers: Double) -> tuple[float, float, float, float]:
    """Return mean, standard deviation, skewness and excess kurtosis.

    >>> _moments(np.array([1.0, 3.0]))
    (2.0, 1.0, 0.0, -2.0)
    """
    mean, deviation = float(numbers.mean()), float(numbers.std())
    if deviation <= 1e-12 * abs(mean):
        return mean, 0.0, 0.0, 0.0
    scaled = (numbers - mean) / deviation
    return mean, deviation, float((scaled**3).mean()), float((scaled**4).mean()) - 3


def load_sherlock(where: str, *, profile: str, device: str | None) -> ColumnEncoder:
    """Return the encoder; there is nothing to load."""
    if where:
        raise DeepJoinError(
            f"'{where}' follows 'sherlock:', which reads no file. Give `encoder=\"sherlock:\"`"
        )
    return SherlockEncoder(profile)
