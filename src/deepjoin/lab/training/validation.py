"""Columns held back from training: how well an encoder finds those that are joinable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.lab.training.columns import TrainingColumns

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
#: From columns to how joinable each of the first is with each of the second.
Joined = Callable[[Sequence[Int], Sequence[Int]], Floats]

K = 10
#: The share of the columns held back, how many columns are searched at most, and for how many.
_SHARE, _COLUMNS, _QUERIES = 0.1, 5_000, 400


def split(columns: TrainingColumns, seed: int) -> tuple[Int, Int]:
    """Choose the columns to train on and those to validate with; no table is in both."""
    wanted = min(_SHARE * len(columns), _COLUMNS)
    tables, group = np.unique(columns.tables, return_inverse=True)
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(tables))
    # A table that is larger than what is wanted would leave little to train on.
    small = order[sizes[order] <= max(wanted, sizes.min())]
    held = small[np.cumsum(sizes[small]) - sizes[small] < wanted]
    is_held = np.isin(group, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def searched(training: Int, held: Int, seed: int) -> Int:
    """Choose the columns that are searched: those held back first, and others if these are few."""
    others = np.random.default_rng([seed, 3]).permutation(training)
    return np.concatenate([held, others[: max(0, _COLUMNS - len(held))]])


@dataclass(frozen=True)
class Validation:
    """Queries among columns, and how joinable they are with each of them."""

    columns: TrainingColumns
    queries: Int
    joinability: Floats

    @classmethod
    def of(cls, columns: TrainingColumns, held: int, joined: Joined, seed: int) -> Validation:
        """Choose queries, among the first columns, that have something to find.

        Their own tables never count.
        """
        random = np.random.default_rng([seed, 2])
        queries = random.permutation(held)[: 4 * _QUERIES]
        sets = [columns.values[columns.places(one)] for one in range(len(columns))]
        found = joined([sets[one] for one in queries], sets)
        found[columns.tables[queries][:, None] == columns.tables[None, :]] = 0
        answered = np.flatnonzero(found.max(axis=1, initial=0) > 0)[:_QUERIES]
        return cls(columns, queries[answered], found[answered])

    def precision(self, scores: Floats) -> float:
        """Share of the ten best by score that are as joinable as the tenth best.

        Where fewer than ten columns are joinable at all, of as many as are.
        """
        own = self.columns.tables[self.queries][:, None] == self.columns.tables[None, :]
        scores = np.where(own, -np.inf, scores)
        shares = [_share(*row) for row in zip(scores, self.joinability, strict=True)]
        return float(np.mean(shares)) if shares else 0.0


def _share(scores: Floats, joinability: Floats) -> float:
    k = min(K, int((joinability > 0).sum()))
    least = np.partition(joinability, -k)[-k]
    best = np.argsort(-scores, kind="stable")[:k]
    return float((joinability[best] >= least).mean())
