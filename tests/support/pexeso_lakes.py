"""Random vectors and columns, and a brute-force count of their matches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Float, Int
from deepjoin.lab.pexeso import ColumnValues
from deepjoin.matching.joinability import least, similarities


def unit(rows: npt.ArrayLike) -> Float:
    """Scale rows to length 1, but for those that are 0."""
    matrix = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def columns_of(lists: list[list[int]]) -> ColumnValues:
    """Lay columns one behind the other."""
    offsets = np.cumsum([0, *map(len, lists)])
    return ColumnValues(offsets, np.array([v for one in lists for v in one], np.int64))


def counted(vectors: Float, lists: list[list[int]], query: Float, tau: float) -> Int:
    """Count by comparing everything: the vectors of the query with a match in each column."""
    near = np.array([similarities(row, vectors) >= least(tau) for row in query])
    near = near.reshape(len(query), len(vectors))
    return np.array([int(near[:, one].any(axis=1).sum()) for one in lists], np.int64)


def drawn_lake(seed: int, clustered: bool, dimension: int) -> tuple[Float, list[list[int]], Float]:
    """Make vectors, columns and a query, with duplicates and zero vectors among them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((6, dimension))
    spread = 0.25 if clustered else 3.0

    def some(count: int) -> Float:
        noise = spread * random.standard_normal((count, dimension))
        return unit(centres[random.integers(0, 6, count)] + noise)

    vectors = some(60)
    vectors[random.integers(0, 60, 5)] = 0
    lists = [np.unique(random.integers(0, 60, random.integers(1, 12))).tolist() for _ in range(25)]
    query = np.concatenate([some(7), vectors[random.integers(0, 60, 4)]])
    return vectors, [*lists, []], query
