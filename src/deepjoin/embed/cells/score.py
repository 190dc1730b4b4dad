"""The soft score: how likely the target holds a query's cells, in any spelling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

#: The logistic curve is this many units below its middle at the floor: a chance of .05.
_STEEPNESS = 3.0


def match_chance(cosines: Floats, floor: float, tau: float) -> Floats:
    """Turn cosines into chances that two cells mean the same: one half at tau, 0 below floor.

    >>> match_chance(np.array([0.5, 0.65, 0.9], np.float32), 0.55, 0.65).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    curve = 1 / (1 + np.exp(-_STEEPNESS * (cosines - tau) / (tau - floor)))
    return np.where(cosines >= floor, curve, 0).astype(np.float32)


def shared(chances: Floats) -> Floats:
    """Return each row's best chance; of rows with the same best column, the n-th counts 1/n."""
    best: Floats = chances.max(axis=1)
    places = chances.argmax(axis=1)
    counted, taken = np.zeros_like(best), np.zeros(chances.shape[1], np.int64)
    for row in np.argsort(-best, kind="stable"):
        taken[places[row]] += 1
        counted[row] = best[row] / taken[places[row]]
    return counted
