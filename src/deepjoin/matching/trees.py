"""Boosted decision trees as plain numbers: a small model that needs no library to run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int

#: Rows that are judged at a time, so that they stay in the processor's cache.
_ROWS = 4096


@dataclass(frozen=True)
class Trees:
    """An ensemble of binary trees, one row each; a leaf has itself as both children."""

    base: float
    features: Int
    thresholds: Float
    low: Int
    high: Int
    leaves: Double
    depth: int

    @classmethod
    def load(cls, stored: dict[str, object]) -> Trees:
        """Read an ensemble from what `json` gives."""
        trees: list[list[list[float]]] = stored["trees"]  # type: ignore[assignment]
        width = max(len(tree) for tree in trees)
        # A node: feature, threshold, child if at most the threshold, child if above, value.
        nodes = np.zeros((len(trees), width, 5))
        for number, tree in enumerate(trees):
            nodes[number, : len(tree)] = tree
        whole = nodes.astype(np.int64)
        return cls(
            float(stored["base"]),  # type: ignore[arg-type]
            whole[:, :, 0],
            nodes[:, :, 1].astype(np.float32),
            whole[:, :, 2],
            whole[:, :, 3],
            nodes[:, :, 4],
            int(stored["depth"]),  # type: ignore[call-overload]
        )

    def chance(self, rows: Float) -> Double:
        """Return the probability for each row of features."""
        total = np.full(len(rows), self.base)
        children = np.stack([self.high, self.low], axis=2).reshape(len(self.low), -1)
        for start in range(0, len(rows), _ROWS):
            block = np.ascontiguousarray(rows[start : start + _ROWS])
            cells, first = block.ravel(), np.arange(len(block)) * block.shape[1]
            for number in range(len(self.features)):
                at = np.zeros(len(block), np.int64)
                for _ in range(self.depth):
                    # Features of leaves are 0 and their children are themselves: going on is
                    # harmless.
                    cell = cells.take(first + self.features[number].take(at))
                    below = cell <= self.thresholds[number].take(at)
                    at = children[number].take(2 * at + below)
                total[start : start + _ROWS] += self.leaves[number].take(at)
        return np.asarray(1 / (1 + np.exp(-total)))


def load_trees(file: Path) -> dict[str, Trees]:
    """Read the ensembles of a file by name."""
    stored: dict[str, dict[str, object]] = json.loads(file.read_text("utf-8"))
    return {name: Trees.load(one) for name, one in stored.items() if isinstance(one, dict)}


def ordered(values: Array, owners: Int, count: int) -> tuple[Double, Double]:
    """Return, for each entry, the best value of its owner's other entries, and its rank from 0."""
    order = np.lexsort((-values, owners))
    sorted_owners, sorted_values = owners[order], values[order]
    first = np.searchsorted(sorted_owners, sorted_owners, side="left")
    rank = np.arange(len(order)) - first
    second = np.minimum(first + 1, len(order) - 1)
    has_second = sorted_owners[second] == sorted_owners
    best_other = np.where(
        rank == 0,
        np.where(has_second & (second != first), sorted_values[second], 0.0),
        sorted_values[first],
    )
    others, ranks = np.zeros(len(values)), np.zeros(len(values))
    others[order], ranks[order] = best_other, np.minimum(rank, count)
    return others, ranks
