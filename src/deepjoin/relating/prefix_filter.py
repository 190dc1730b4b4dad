"""The prefix filter of self-joins: which pairs of columns can share enough values.

Of a column with n values, any n - a + 1 hold one of every a: a column that shares a of all is
found by looking these up alone, and the rarest are the cheapest (prefix filter).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


class Candidates(NamedTuple):
    """Pairs of a row and a column: how many values were compared, and how many of these match."""

    rows: Int
    columns: Int
    seen: Int
    matched: Int

    def where(self, chosen: npt.NDArray[np.bool_]) -> Candidates:
        """Keep some pairs."""
        return Candidates(*(array[chosen] for array in self))


#: Compares this many more values of each pair, and returns how many of them match.
Compare = Callable[[Candidates, Int], Int]


def least_shared(sizes: Int, threshold: float) -> Int:
    """Return how many values of columns of these sizes reach a share.

    >>> least_shared(np.array([1, 3, 10]), 0.7).tolist()
    [1, 3, 7]
    """
    least: Int = np.ceil(threshold * sizes).astype(np.int64)
    # The product may be rounded across a whole number; the quotient is what is compared.
    least -= (least - 1) / sizes >= threshold
    least += least / sizes < threshold
    return least


def counted(found: Candidates, sizes: Int, least: Int, work: int, compare: Compare) -> Candidates:
    """Compare all values, more at a time, and drop pairs that can no longer have the least.

    ``sizes`` and ``least`` are those of the rows; about ``work`` values are compared at a time.
    """
    done, width = [], 1
    while True:
        left = sizes[found.rows] - found.seen
        possible = found.matched + left >= least[found.rows]
        done.append(found.where(possible & (left == 0)))
        found, left = found.where(possible & (left > 0)), left[possible & (left > 0)]
        if len(left) == 0:
            return Candidates(*map(np.concatenate, zip(*done, strict=True)))
        lengths = np.minimum(left, width)
        matched = found.matched + compare(found, lengths)
        found = found._replace(seen=found.seen + lengths, matched=matched)
        width = min(2 * width, max(1, work // len(left)))
