"""Tune a table: rows move so that spellings of one thing meet and its neighbours part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from deepjoin.lab.cell_table.features import Rows
from deepjoin.lab.cell_table.variants import Pair

Floats = npt.NDArray[np.floating[Any]]
Features = Callable[[list[str], Rows], csr_matrix]

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8
#: Stands for minus infinity where two strings of a batch must not repel each other.
_MASKED = -1e4


@dataclass(frozen=True)
class Tuning:
    """How fast rows move, how hard they are held back, how sharp the softmax is."""

    rate: float = 2e-3
    hold: float = 1.0
    scale: float = 20.0


class _Moves:
    """How far each row has moved, in its own lengths, with Adam's two running means."""

    def __init__(self, table: Floats) -> None:
        self.table = table
        self.lengths = np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-3)
        self.moved, self.mean, self.square = (np.zeros_like(table) for _ in range(3))
        self.steps = np.zeros((len(table), 1), np.float32)

    def rows(self, numbers: npt.NDArray[np.int64]) -> Floats:
        moved: Floats = self.table[numbers] + self.lengths[numbers] * self.moved[numbers]
        return moved

    def step(self, numbers: npt.NDArray[np.int64], slope: Floats, tuning: Tuning) -> None:
        held = 2 * tuning.hold / len(numbers) * self.moved[numbers]
        slope = slope * self.lengths[numbers] + held
        mean = _FIRST * self.mean[numbers] + (1 - _FIRST) * slope
        square = _SECOND * self.square[numbers] + (1 - _SECOND) * slope**2
        self.mean[numbers], self.square[numbers] = mean, square
        self.steps[numbers] += 1
        count = self.steps[numbers]
        ahead = (mean / (1 - _FIRST**count)) / (np.sqrt(square / (1 - _SECOND**count)) + _TINY)
        self.moved[numbers] -= tuning.rate * ahead


def tune(
    table: Floats, batches: Iterable[list[Pair]], steps: int, features: Features,
    tuning: Tuning | None = None,
) -> Floats:  # fmt: skip
    """Return the table after one pass over the batches; rows never seen stay as they were."""
    tuning, moves = tuning or Tuning(), _Moves(table)
    for done, batch in enumerate(batches):
        left, right = (
            features([getattr(p, side) for p in batch], moves.rows) for side in ("left", "right")
        )
        numbers = np.unique(np.concatenate([left.indices, right.indices]))
        slope = _slope(left[:, numbers], right[:, numbers], moves.rows(numbers), batch, tuning)
        slower = Tuning(tuning.rate * (1 - done / steps), tuning.hold, tuning.scale)
        moves.step(numbers, slope, slower)
    return moves.rows(np.arange(len(table)))


def _slope(
    left: csr_matrix, right: csr_matrix, rows: Floats, batch: list[Pair], tuning: Tuning
) -> Floats:
    """Differentiate the symmetric in-batch softmax loss by the rows that take part."""
    (mine, my_lengths), (theirs, their_lengths) = _unit(left @ rows), _unit(right @ rows)
    scores = tuning.scale * (mine @ theirs.T)
    scores[_same(batch)] = _MASKED
    by_scores = _softmax(scores, 1) + _softmax(scores, 0)
    by_scores[np.diag_indices(len(batch))] -= 2
    by_scores *= tuning.scale / len(batch)
    by_mine = _through_unit(by_scores @ theirs, mine, my_lengths)
    by_theirs = _through_unit(by_scores.T @ mine, theirs, their_lengths)
    slope: Floats = (left.T @ by_mine + right.T @ by_theirs).astype(np.float32)
    return slope


def _unit(vectors: Floats) -> tuple[Floats, Floats]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return vectors / lengths, lengths


def _through_unit(slope: Floats, unit: Floats, lengths: Floats) -> Floats:
    along: Floats = (slope * unit).sum(axis=1, keepdims=True)
    across: Floats = (slope - along * unit) / lengths
    return across


def _softmax(scores: Floats, axis: int) -> Floats:
    powers: Floats = np.exp(scores - scores.max(axis=axis, keepdims=True))
    shares: Floats = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def _same(batch: list[Pair]) -> npt.NDArray[np.bool_]:
    """Mark pairs of the batch that mean one thing, apart from each pair itself."""
    keys = np.array([pair.key for pair in batch])
    lefts = np.array([pair.left for pair in batch])
    rights = np.array([pair.right for pair in batch])
    same: npt.NDArray[np.bool_] = (keys[:, None] == keys) | (lefts[:, None] == rights)
    np.fill_diagonal(same, False)
    return same
