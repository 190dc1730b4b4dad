"""Boosted trees and small networks as plain numbers: models that need no library to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int, distinct
from deepjoin.lazy import cached_property

#: Fewer rows walk through the trees, some at a time so that the nodes stay in the cache.
_FEW, _WALKED = 64, 256
#: Rows whose masks are held at a time, and the leaves that a mask has bits for.
_MASKED, _LEAVES = 128, 16
#: Rows that pass a network at a time, and the standard deviations at which features are cut.
_BLOCK, _FAR = 1 << 11, 4.0
#: Rows of a matrix product: for so few (by 81 features and 48 cells, under 1 << 18 products),
#: OpenBLAS starts no threads, which would keep spinning.
_SMALL = 64


class TreeSum:
    """The sum of small trees; the nodes of all are in one list, and a leaf leads to itself.

    Many rows are not led through the trees. Where a feature lies among all its thresholds says
    which leaves it rules out, in every tree, and the first leaf that no feature rules out is the
    one that a walk would reach (QuickScorer, Lucchese et al. 2015).
    """

    def __init__(
        self, roots: Int, features: Int, thresholds: Float, left: Int, right: Int, values: Double
    ) -> None:
        self._roots, self._features, self._thresholds = roots, features, thresholds
        self._left, self._values = left, values
        #: Two nodes for each: where to go above its threshold, and up to it.
        self._children = np.stack([right, left], axis=1).ravel()
        #: The inner nodes of each level, and the trees that they are of.
        self._levels: list[tuple[Int, Int]] = []
        nodes, trees = roots, np.arange(len(roots))
        while len(inner := np.flatnonzero(left[nodes] != nodes)):
            nodes, trees = nodes[inner], trees[inner]
            self._levels.append((nodes, trees))
            nodes, trees = np.concatenate([left[nodes], right[nodes]]), np.tile(trees, 2)

    def __call__(self, rows: Array) -> Double:
        """Add up the trees for each row of features."""
        # In single precision, as the thresholds were chosen.
        rows = np.asarray(rows, np.float32)
        found = np.empty(len(rows))
        if len(rows) < _FEW or self._masks is None:
            for start in range(0, len(rows), _WALKED):
                found[start : start + _WALKED] = self._walked(rows[start : start + _WALKED])
            return found
        tables, values = self._masks
        # What all rows have in common, such as what a query is, is looked up once.
        whole, varied = np.full(len(self._roots), 0xFFFF, np.uint16), []
        for feature, known, masks in tables:
            column = rows[:, feature]
            if (column == column[0]).all():
                whole &= masks[np.searchsorted(known, column[0])]
            else:
                varied.append((masks, np.searchsorted(known, column)))
        first = np.arange(len(self._roots)) * _LEAVES
        for start in range(0, len(rows), _MASKED):
            some = slice(start, start + _MASKED)
            left = np.tile(whole, (len(found[some]), 1))
            for masks, place in varied:
                left &= masks.take(place[some], axis=0)
            # The lowest bit that is left has as many zeros behind it.
            leaves = np.bitwise_count((left - np.uint16(1)) & ~left)
            found[some] = values.take(first + leaves).sum(axis=1)
        return found

    def _walked(self, rows: Float) -> Double:
        cells, owners = rows.ravel(), np.arange(len(rows)) * rows.shape[1]
        nodes = np.repeat(self._roots[:, None], len(rows), axis=1)
        for _ in self._levels:
            below = cells[owners + self._features[nodes]] <= self._thresholds[nodes]
            nodes = self._children[2 * nodes + below]
        total: Double = self._values[nodes].sum(axis=0)
        return total

    @cached_property
    def _masks(self) -> tuple[list[tuple[int, Float, Array]], Double] | None:
        """For each feature, its thresholds and the leaves left over between them; the leaves.

        None for trees with more leaves than a mask has bits.
        """
        below, above = self._children[1::2], self._children[::2]
        count = np.ones(len(below), np.int64)
        for nodes, _ in reversed(self._levels):
            count[nodes] = count[below[nodes]] + count[above[nodes]]
        if count[self._roots].max(initial=0) > _LEAVES:
            return None
        first, tree = np.zeros(len(below), np.int64), np.zeros(len(below), np.int64)
        tree[self._roots] = np.arange(len(self._roots))
        for nodes, trees in self._levels:
            for children in (below[nodes], above[nodes]):
                first[children], tree[children] = first[nodes], trees
            first[above[nodes]] += count[below[nodes]]
        inner = np.flatnonzero(below != np.arange(len(below)))
        # Above its threshold, a node rules out the leaves below.
        ruled_out = ((1 << count[below]) - 1) << first
        tables = []
        for feature in distinct(self._features[inner]).tolist():
            nodes = inner[self._features[inner] == feature]
            known, at = np.unique(self._thresholds[nodes], return_inverse=True)
            masks = np.full((len(known) + 1, len(self._roots)), 0xFFFF, np.uint16)
            kept = (0xFFFF & ~ruled_out[nodes]).astype(np.uint16)
            np.bitwise_and.at(masks, (at + 1, tree[nodes]), kept)
            tables.append((feature, known, np.bitwise_and.accumulate(masks, axis=0)))
        values = np.zeros(len(self._roots) * _LEAVES)
        leaves = np.flatnonzero(below == np.arange(len(below)))
        values[tree[leaves] * _LEAVES + first[leaves]] = self._values[leaves]
        return tables, values


@dataclass(frozen=True)
class Trees:
    """An ensemble of binary trees whose sum is the log of the odds."""

    base: float
    total: TreeSum

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Trees:
        """Read an ensemble from what `json` gives."""
        trees: list[list[list[float]]] = stored["trees"]
        roots = np.cumsum([0, *map(len, trees)])[:-1]
        # A node: feature, threshold, child if at most the threshold, child if above, value.
        nodes = np.array([node for tree in trees for node in tree])
        first = np.repeat(roots, [len(tree) for tree in trees])
        left, right = (nodes[:, at].astype(np.int64) + first for at in (2, 3))
        parts = roots, nodes[:, 0].astype(np.int64), nodes[:, 1].astype(np.float32)
        return cls(float(stored["base"]), TreeSum(*parts, left, right, nodes[:, 4]))

    def log_odds(self, rows: Float) -> Double:
        """Return the log of the odds for each row of features."""
        return np.asarray(self.total(rows) + self.base)

    def chance(self, rows: Float) -> Double:
        """Return the probability for each row of features."""
        return np.asarray(1 / (1 + np.exp(-self.log_odds(rows))))


@dataclass(frozen=True)
class Network:
    """A network of few layers that scores rows of features, with SiLU between the layers."""

    #: Mean and standard deviation of each feature.
    mean: Float
    deviation: Float
    #: Weights (inputs by outputs) and biases; the last layer has one output.
    layers: tuple[tuple[Float, Float], ...]

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Network:
        """Read a network from what `json` gives."""
        layers = [tuple(np.array(part, np.float32) for part in layer) for layer in stored["layers"]]
        mean, deviation = (np.array(stored[name], np.float32) for name in ("mean", "deviation"))
        return cls(mean, deviation, tuple((weights, bias) for weights, bias in layers))

    def __call__(self, rows: Float) -> Double:
        """Score each row of features."""
        found = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            cells = np.zeros((-(-len(part) // _SMALL), _SMALL, len(self.mean)), np.float32)
            cells.reshape(-1, len(self.mean))[: len(part)] = part
            cells -= self.mean
            cells /= self.deviation
            np.clip(cells, -_FAR, _FAR, out=cells)
            for weights, bias in self.layers[:-1]:
                cells = cells @ weights
                cells += bias
                # The logistic function as a hyperbolic tangent, which cannot overflow.
                cells *= 0.5 + 0.5 * np.tanh(0.5 * cells)
            weights, bias = self.layers[-1]
            found[start : start + _BLOCK] = (cells @ weights + bias).ravel()[: len(part)]
        return found


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
