"""Precision and NDCG against the exact answer (paper, section 5.1), with and without ties."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deepjoin.evaluation.truth import Truth


def precision(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """Share of the exact top k, by id, that was found; None when nothing matches the query."""
    right = set(truth.ranked[:k])
    return len(right.intersection(found[:k])) / len(right) if right else None


def precision_ties(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """Share of the top k as joinable as the k-th best; None when the k-th best is 0."""
    kth = truth.kth(k)
    if kth == 0:
        return None
    return sum(truth.joinability.get(column, 0.0) >= kth for column in found[:k]) / k


def ndcg(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """DCG over the exact DCG; None when nothing matches the query."""
    best = _dcg(list(truth.joinability.values())[:k])
    gains = [truth.joinability.get(column, 0.0) for column in found[:k]]
    return _dcg(gains) / best if best else None


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def mean(values: Sequence[float | None]) -> tuple[float | None, int]:
    """Average what is there, and count it."""
    present = [value for value in values if value is not None]
    return (sum(present) / len(present) if present else None), len(present)


def interval(values: Sequence[float | None], seed: int) -> tuple[float | None, float | None]:
    """Bootstrap 95% interval of the mean over queries."""
    present = np.array([value for value in values if value is not None])
    if len(present) == 0:
        return None, None
    draws = np.random.default_rng(seed).integers(len(present), size=(1000, len(present)))
    low, high = np.percentile(present[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)
