"""What self-joins are made of: how many values two columns must share, and whole-array ranges.

Of a column with n values, any n - a + 1 hold one of every a: a column that shares a of all is
found by looking these up alone, and the rarest are the cheapest (prefix filter).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


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


def blocks(work: Int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a list into runs of at most so much work, and one element more.

    >>> list(blocks(np.array([1, 1, 5, 1]), 2))
    [(0, 2), (2, 3), (3, 4)]
    """
    before = np.cumsum(work) - work
    starts = np.flatnonzero(np.diff(before // most, prepend=-1))
    return pairwise([*starts.tolist(), len(work)])


def ranges(starts: Int, lengths: Int) -> Int:
    """Return the numbers from each start on, so many of each, one after the other.

    >>> ranges(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
