"""Pairs of columns that a self-join found, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.matching.joinability import cardinality_of

Int = npt.NDArray[np.int64]

#: What `Found.repeats` stands for.
CARDINALITIES = tuple(cardinality_of(1 + (code & 1), 1 + (code >> 1)) for code in range(4))


class Found(NamedTuple):
    """Pairs of columns by number, by ``a``, then by ``b``; ``a`` has no more values than ``b``."""

    a: Int
    b: Int
    #: How many distinct values the two share.
    matched: Int
    #: 1 if a shared value occurs more than once in ``a``, plus 2 if one does so in ``b``.
    repeats: npt.NDArray[np.uint8]

    def take(self, rows: npt.NDArray[Any]) -> Found:
        """Keep some pairs, in this order."""
        return Found(*(array[rows] for array in self))


def together(found: Iterable[Found]) -> Found:
    """Put pairs in one order."""
    none = np.zeros(0, np.int64)
    parts = zip(Found(none, none, none, np.zeros(0, np.uint8)), *found, strict=True)
    whole = Found(*map(np.concatenate, parts))
    return whole.take(np.lexsort((whole.b, whole.a)))
