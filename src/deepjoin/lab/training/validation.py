"""Validation during training: how well an encoder finds the joinable ones of held-back columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepjoin.arrays import Float, Int
from deepjoin.lab.training.columns import TrainingColumns

#: From two lists of columns, as values, to the joinability of each x with each y.
Joined = Callable[[Sequence[Int], Sequence[Int]], Float]

K = 10
#: Share of the columns held back; most columns searched; most queries.
_SHARE, _COLUMNS, _QUERIES = 0.1, 5_000, 400


def split(columns: TrainingColumns, seed: int) -> tuple[Int, Int]:
    """Split columns into those to train on and those held back; no table is in both."""
    wanted = min(_SHARE * len(columns), _COLUMNS)
    tables, group = np.unique(columns.tables, return_inverse=True)
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(tables))
    # Holding back a table larger than the share would leave little to train on.
    small = order[sizes[order] <= max(wanted, sizes.min())]
    held = small[np.cumsum(sizes[small]) - sizes[small] < wanted]
    is_held = np.isin(group, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def searched(training: Int, held: Int, seed: int) -> Int:
    """Choose the columns to search: those held back first, then others if these are few."""
    others = np.random.default_rng([seed, 3]).permutation(training)
    return np.concatenate([held, others[: max(0, _COLUMNS - len(held))]])


@dataclass(frozen=True)
class Validation:
    """Columns, the queries among them, and the joinability of each query with each column."""

    columns: TrainingColumns
    queries: Int
    joinability: Float

    @classmethod
    def of(cls, columns: TrainingColumns, held: int, joined: Joined, seed: int) -> Validation:
        """Choose queries with a joinable column among the first ``held`` columns.

        Columns of the query's own table never count.
        """
        random = np.random.default_rng([seed, 2])
        queries = random.permutation(held)[: 4 * _QUERIES]
        sets = [columns.values[columns.places(one)] for one in range(len(columns))]
        found = joined([sets[one] for one in queries], sets)
        found[columns.tables[queries][:, None] == columns.tables[None, :]] = 0
        answered = np.flatnonzero(found.max(axis=1, initial=0) > 0)[:_QUERIES]
        return cls(columns, queries[answered], found[answered])

    def precision(self, scores: Float) -> list[float]:
        """Share of the ten best by score that are as joinable as the tenth best, query by query.

        For a query with fewer than ten joinable columns, that number replaces ten.
        """
        own = self.columns.tables[self.queries][:, None] == self.columns.tables[None, :]
        shares = []
        for row, joinability in zip(np.where(own, -np.inf, scores), self.joinability, strict=True):
            k = min(K, int((joinability > 0).sum()))
            least = np.partition(joinability, -k)[-k]
            best = np.argsort(-row, kind="stable")[:k]
            shares.append(float((joinability[best] >= least).mean()))
        return shares
