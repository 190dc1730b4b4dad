"""Sense: the chance that a person who knows both tables would make a join.

Equal cells prove that cells are equal, not that a join means anything. Small boosted trees weigh
the evidence; they are plain numbers in ``sense.json``, made by `deepjoin.lab.sense`, and a logistic
curve on top of them turns their sum into a probability. Nothing is ruled out: what speaks against
a join lowers its probability.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from deepjoin.arrays import Array, Double, Float
from deepjoin.lazy import cached_property
from deepjoin.matching.trees import TreeSum

#: The numbers of all models, as `BoostedTrees.to_json` writes them.
NUMBERS = Path(__file__).with_name("sense.json")
#: Fields of `BoostedTrees` that are whole numbers.
_WHOLE = ("roots", "feature", "left", "right")


@dataclass(frozen=True)
class BoostedTrees:
    """A sum of decision trees over named features, and the curve that calibrates it.

    Nodes of all trees are in one list; a leaf leads to itself.
    """

    features: tuple[str, ...]
    roots: Array
    feature: Array
    threshold: Float
    left: Array
    right: Array
    value: Double
    depth: int
    base: float
    #: Slope and intercept of the logistic curve.
    curve: tuple[float, float] = (1.0, 0.0)

    def scores(self, rows: Double) -> Double:
        """Sum up the trees for each row of features."""
        return self._total(rows) + self.base

    @cached_property
    def _total(self) -> TreeSum:
        parts = self.roots, self.feature, self.threshold, self.left, self.right, self.value
        return TreeSum(*parts)

    def probabilities(self, rows: Double) -> Double:
        """Turn rows of features into calibrated probabilities."""
        slope, intercept = self.curve
        chances: Double = 1 / (1 + np.exp(-(slope * self.scores(rows) + intercept)))
        return chances

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, rounded where more digits change nothing."""
        return {
            "features": list(self.features),
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            # As many digits as single precision has.
            "threshold": [float(f"{of:.9g}") for of in self.threshold.tolist()],
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": [round(of, 5) for of in self.value.tolist()],
            "depth": self.depth,
            "base": round(self.base, 5),
            "curve": [round(of, 5) for of in self.curve],
        }

    @classmethod
    def from_json(cls, numbers: Mapping[str, Any]) -> BoostedTrees:
        """Read what `to_json` returned."""
        whole: dict[str, Any] = {name: np.array(numbers[name], np.int64) for name in _WHOLE}
        slope, intercept = numbers["curve"]
        return cls(
            features=tuple(numbers["features"]),
            **whole,
            threshold=np.array(numbers["threshold"], np.float32),
            value=np.array(numbers["value"], np.float64),
            depth=int(numbers["depth"]),
            base=float(numbers["base"]),
            curve=(float(slope), float(intercept)),
        )


@cache
def shipped_model(name: str, features: Sequence[str]) -> BoostedTrees:
    """Load one of the package's models; its features must be those that the caller measures."""
    model = BoostedTrees.from_json(json.loads(NUMBERS.read_text("utf-8"))[name])
    if model.features != tuple(features):
        raise ValueError(f"{NUMBERS.name} was made for other features of '{name}'")
    return model
