"""Boosted decision trees as plain numbers: a small model that needs no library to run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int

#: Rows weighed at a time, so that the nodes of all trees stay in the cache.
_ROWS = 256


@dataclass(frozen=True)
class Trees:
    """An ensemble of binary trees; nodes of all are in one list, a leaf leads to itself."""

    base: float
    roots: Int
    features: Int
    thresholds: Float
    #: Two nodes for each node: where to go above the threshold, and up to it.
    children: Int
    leaves: Double
    depth: int

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Trees:
        """Read an ensemble from what `json` gives."""
        trees: list[list[list[float]]] = stored["trees"]
        roots = np.cumsum([0, *map(len, trees)])[:-1]
        # A node: feature, threshold, child if at most the threshold, child if above, value.
        nodes = np.array([node for tree in trees for node in tree])
        first = np.repeat(roots, [len(tree) for tree in trees])
        children = nodes[:, [3, 2]].astype(np.int64) + first[:, None]
        return cls(
            float(stored["base"]),
            roots,
            nodes[:, 0].astype(np.int64),
            nodes[:, 1].astype(np.float32),
            children.ravel(),
            nodes[:, 4],
            int(stored["depth"]),
        )

    def chance(self, rows: Float) -> Double:
        """Return the probability for each row of features."""
        total = np.empty(len(rows))
        # All trees at once: there are more trees than rows where a search asks for one hit.
        for start in range(0, len(rows), _ROWS):
            block = np.ascontiguousarray(rows[start : start + _ROWS], np.float32)
            cells, width = block.ravel(), block.shape[1]
            places = np.arange(len(block)) * width
            nodes = np.repeat(self.roots[:, None], len(block), axis=1)
            for _ in range(self.depth):
                below = cells[places + self.features[nodes]] <= self.thresholds[nodes]
                nodes = self.children[2 * nodes + below]
            total[start : start + _ROWS] = self.leaves[nodes].sum(axis=0) + self.base
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
