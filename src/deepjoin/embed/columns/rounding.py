"""Matrices in whole numbers of 8 bits, so rounded that products with real inputs change least.

Each row has steps of its own. The error made at one number is made good at those after it, as
far as their inputs go together; where inputs are not known, each goes to the nearest step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.weights import Floats

Codes = npt.NDArray[np.int8]
Doubles = npt.NDArray[np.float64]
_LARGEST = 127
#: Share of the mean moment added to each, so that the inverse exists.
_DAMPING = 0.01
_BLOCK = 64


def steps_of(matrix: Floats) -> Floats:
    """Return the step of each row, 1 for a row of zeros.

    >>> steps_of(np.array([[1, -127], [0, 0]], np.float32)).tolist()
    [1.0, 1.0]
    """
    largest = np.abs(matrix).max(axis=1)
    return np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)


def nearest(matrix: Floats) -> tuple[Codes, Floats]:
    """Round each number to the nearest step."""
    steps = steps_of(matrix)
    return _codes(matrix / steps[:, None]), steps


def rounded(matrix: Floats, moments: Doubles) -> tuple[Codes, Floats]:
    """Round a matrix whose inputs have these second moments, the most active inputs first."""
    steps = steps_of(matrix)
    order = np.argsort(-np.diag(moments), kind="stable")
    left = (matrix[:, order] / steps[:, None]).astype(np.float64)
    spread = _spread(moments[np.ix_(order, order)])
    codes = np.zeros(matrix.shape, np.int8)
    for start in range(0, len(order), _BLOCK):
        block = slice(start, start + _BLOCK)
        some, errors = _rounded_block(left[:, block], spread[block, block])
        codes[:, order[block]] = some
        left[:, start + _BLOCK :] -= errors @ spread[block, start + _BLOCK :]
    return codes, steps


def _rounded_block(left: Doubles, spread: Doubles) -> tuple[Codes, Doubles]:
    codes = np.zeros(left.shape, np.int8)
    errors = np.zeros(left.shape)
    for place in range(left.shape[1]):
        codes[:, place] = _codes(left[:, place])
        errors[:, place] = (left[:, place] - codes[:, place]) / spread[place, place]
        left[:, place:] -= np.outer(errors[:, place], spread[place, place:])
    return codes, errors


def _spread(moments: Doubles) -> Doubles:
    """Return how much of an error each later input takes over."""
    damping = max(_DAMPING * float(np.diag(moments).mean()), 1e-9)
    inverse = np.linalg.inv(moments + damping * np.eye(len(moments)))
    triangle: Doubles = np.linalg.cholesky(inverse).T
    return triangle


def _codes(numbers: npt.NDArray[np.floating]) -> Codes:
    codes: Codes = np.clip(np.rint(numbers), -_LARGEST, _LARGEST).astype(np.int8)
    return codes
