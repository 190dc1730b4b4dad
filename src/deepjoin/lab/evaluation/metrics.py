"""Precision and NDCG against the exact answer (paper, section 5.1) and against labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from deepjoin.lab.evaluation.labels import Labels
from deepjoin.lab.evaluation.truth import Truth

#: Of the exact top so many, how many are among the first so many.
BEST, CANDIDATES = 10, 500


def precision(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """Share of the exact top k, by id, that was found; None when nothing matches the query."""
    right = set(truth.ranked[:k])
    return len(right.intersection(found[:k])) / len(right) if right else None


def precision_ties(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """Share of the top k as joinable as the k-th best; None when the k-th best is 0."""
    kth = truth.kth(k)
    if kth == 0:
        return None
    return sum(truth.of(column) >= kth for column in found[:k]) / k


def candidates(found: Sequence[str], truth: Truth) -> float | None:
    """Share of the exact top 10 among the first 500; any column as joinable as the tenth counts."""
    tenth = truth.kth(BEST)
    if tenth == 0:
        return None
    return min(BEST, sum(truth.of(column) >= tenth for column in found[:CANDIDATES])) / BEST


def ndcg(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """DCG over the exact DCG; None when nothing matches the query."""
    return _ratio([truth.of(column) for column in found[:k]], truth.joinability, k)


def precision_labels(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """Share of the relevant columns in the top k, of as many as fit; None when there are none."""
    return _share(found[:k], labels.relevant, k)


def ndcg_labels(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """DCG by the labels over the best that could be; None for a query without labels."""
    return _ratio([labels.gains.get(column, 0.0) for column in found[:k]], labels.gains, k)


def hard_recall_labels(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """Share of the hard columns in the top k that is left once the easy ones are taken out.

    ``found`` must go as much deeper than k as there are easy ones.
    """
    rest = [column for column in found if column not in labels.easy]
    return _share(rest[:k], labels.hard, k)


def pooled_precision(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """Share of what is in the top k that is relevant; None when nothing is relevant."""
    if not labels.relevant:
        return None
    return len(labels.relevant.intersection(found[:k])) / max(1, len(found[:k]))


def pooled_recall(
    found: Sequence[str], labels: Labels, pool: Sequence[Sequence[str]], k: int
) -> float | None:
    """Share of the relevant columns in the top k of any method; None when no method has one."""
    right = labels.relevant.intersection(chain.from_iterable(one[:k] for one in pool))
    return len(right.intersection(found[:k])) / len(right) if right else None


def harmonic(precision: float | None, recall: float | None) -> float | None:
    """F1 of two averages, as the paper has it; None where one of them is not known."""
    if precision is None or recall is None:
        return None
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _share(found: Sequence[str], right: frozenset[str], k: int) -> float | None:
    return len(right.intersection(found)) / min(k, len(right)) if right else None


def _ratio(gains: Sequence[float], possible: Mapping[str, float], k: int) -> float | None:
    best = _dcg(sorted(possible.values(), reverse=True)[:k])
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
