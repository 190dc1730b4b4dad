"""The soft score: how likely the target holds a query's cells, in any spelling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.normalise.canonical import canonical

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


def soft_joinability(
    query: Sequence[str], target: Sequence[str], encoder: CellEncoder, profile: str = "default"
) -> float:
    """Average, over the query's distinct cells, the chance that the target holds each one.

    An equal cell counts 1, any other the chance of its best cosine. If several query cells share
    a best target cell, the likeliest counts in full and the n-th counts 1/n of its chance.
    """
    mine, theirs = (
        [cell for cell in dict.fromkeys(canonical(c, profile) for c in cells) if cell]
        for cells in (query, target)
    )
    if not mine or not theirs:
        return 0.0
    cosines = encoder.encode(mine) @ encoder.encode(theirs).T
    chances = match_chance(cosines, encoder.floor, encoder.tau)
    chances[np.array(mine)[:, None] == np.array(theirs)] = 1
    return float(shared(chances).mean())


def shared(chances: Floats) -> Floats:
    """Return each row's best chance; of rows with the same best column, the n-th counts 1/n."""
    best: Floats = chances.max(axis=1)
    places = chances.argmax(axis=1)
    counted, taken = np.zeros_like(best), np.zeros(chances.shape[1], np.int64)
    for row in np.argsort(-best, kind="stable"):
        taken[places[row]] += 1
        counted[row] = best[row] / taken[places[row]]
    return counted
