"""How joinable views are, exactly: for the loss, and for validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Joinability:
    """Joinability by definition 2.1; where ``near`` is given, a value counts by its chance.

    ``near`` is a sparse matrix of values: 1 for each with itself, and the chances that others
    mean the same. Of several near values in one column the sum counts, 1 at most.

    >>> Joinability(3)([np.array([0, 1])], [np.array([1, 2]), np.array([2])]).tolist()
    [[0.5, 0.0]]
    """

    def __init__(self, values: int, near: Any = None) -> None:
        self._values, self._near = values, near

    def __call__(self, x: Sequence[Int], y: Sequence[Int]) -> Floats:
        """Return a row for each x: the share of its values that match one of each y."""
        mine, held = self._incidence(x), self._incidence(y).T.tocsr()
        if self._near is not None:
            used, mine.indices = np.unique(mine.indices, return_inverse=True)
            mine = mine[:, : len(used)]
            held = self._near[used] @ held
            np.minimum(held.data, 1, out=held.data)
        found: Floats = (mine @ held).toarray().astype(np.float32)
        sizes = np.array([max(1, len(one)) for one in x], np.float32)
        return found / sizes[:, None]

    def _incidence(self, views: Sequence[Int]) -> Any:
        from scipy.sparse import csr_array

        ends = np.cumsum([0, *(len(one) for one in views)])
        values = np.concatenate([np.zeros(0, np.int64), *views])
        return csr_array(
            (np.ones(len(values), np.float32), values, ends), shape=(len(views), self._values)
        )
