"""PEXESO's pivots (its section 3.3): outliers that principal components single out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float32]
Distances = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

#: Outliers looked at for each pivot, and vectors they are sought among.
_OUTLIERS, _SAMPLE = 10, 2_000
_SEED = 20221


def choose_pivots(vectors: Float, count: int) -> Float:
    """Choose pivots among unit vectors; fewer if there are fewer different ones."""
    if len(vectors) > _SAMPLE:
        chosen = np.random.default_rng(_SEED).choice(len(vectors), _SAMPLE, replace=False)
        vectors = vectors[np.sort(chosen)]
    outliers = farthest_first(vectors, _OUTLIERS * count)
    loadings = _loadings(distances(vectors, vectors[outliers]))
    return vectors[outliers[_one_each(loadings, count)]]


def farthest_first(vectors: Float, count: int) -> Int:
    """Take, again and again, the vector farthest from all that were taken; no vector twice."""
    nearest = np.full(len(vectors), np.inf)
    taken: list[int] = []
    while len(taken) < min(count, len(vectors)):
        farthest = int(np.argmax(nearest))
        if nearest[farthest] <= 0:
            break
        taken.append(farthest)
        nearest = np.minimum(nearest, distances(vectors, vectors[farthest : farthest + 1])[:, 0])
        nearest[farthest] = 0
    return np.array(taken, np.int64)


def _loadings(table: Distances) -> Distances:
    """Return the principal components of the distances, the strongest first, as rows."""
    centred = table - table.sum(axis=0) / max(1, len(table))
    return np.asarray(np.linalg.eigh(centred.T @ centred)[1].T[::-1])


def _one_each(loadings: Distances, count: int) -> Int:
    """Take for each component the candidate with the largest loading that is not taken yet."""
    chosen: list[int] = []
    for component in np.abs(loadings[:count]):
        free = [i for i in np.argsort(-component, kind="stable").tolist() if i not in chosen]
        chosen.append(free[0])
    return np.array(chosen, np.int64)


def distances(vectors: Float, pivots: Float) -> Distances:
    """Return the Euclidean distance of every vector to every pivot."""
    columns = [
        np.linalg.norm(vectors.astype(np.float64) - pivot.astype(np.float64), axis=1)
        for pivot in pivots
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(vectors), 0))
