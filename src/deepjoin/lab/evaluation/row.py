"""One row of an evaluation: what a method found, against the truth and against labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepjoin.lab.evaluation import metrics
from deepjoin.lab.evaluation.labels import Labels
from deepjoin.lab.evaluation.metrics import mean
from deepjoin.lab.evaluation.truth import Truth

Row = dict[str, Any]
#: Column ids, best first, for each query.
Found = Sequence[Sequence[str]]

SEED = 0


def accuracy(found: Found, truth: Sequence[Truth], k: int) -> Row:
    """Measure against the exact answers; None where there are none."""
    pairs = list(zip(found, truth, strict=True))
    by_id = [metrics.precision(ids, right, k) for ids, right in pairs]
    low, high = metrics.interval(by_id, SEED)
    tied, queries_ties = mean([metrics.precision_ties(ids, right, k) for ids, right in pairs])
    gain, queries_ndcg = mean([metrics.ndcg(ids, right, k) for ids, right in pairs])
    return {
        "precision": mean(by_id)[0],
        "precision_ties": tied,
        "queries_ties": queries_ties,
        "precision_low": low,
        "precision_high": high,
        "ndcg": gain,
        "queries_ndcg": queries_ndcg,
    }


def candidates_of(deeper: Found, truth: Sequence[Truth]) -> Row:
    """Measure how much of the exact top 10 is among the first 500."""
    share, queries = mean([metrics.candidates(*pair) for pair in zip(deeper, truth, strict=True)])
    return {"candidates_500": share, "queries_candidates": queries}


def by_labels(found: Found, deeper: Found, labels: Sequence[Labels], k: int) -> Row:
    """Measure against what people say."""
    pairs = list(zip(found, labels, strict=True))
    right, queries = mean([metrics.precision_labels(*pair, k) for pair in pairs])
    gain, queries_ndcg = mean([metrics.ndcg_labels(*pair, k) for pair in pairs])
    deep = zip(deeper, labels, strict=True)
    hard, queries_hard = mean([metrics.hard_recall_labels(*pair, k) for pair in deep])
    return {
        "precision_labels": right,
        "queries_labels": queries,
        "ndcg_labels": gain,
        "queries_ndcg_labels": queries_ndcg,
        "hard_recall_labels": hard,
        "queries_hard_labels": queries_hard,
    }


@dataclass(frozen=True)
class Pool:
    """What all methods of a run found: columns beyond it are not known to be relevant or not."""

    methods: tuple[str, ...]
    #: For each method, what it found for each query.
    found: tuple[Found, ...]

    def measured(self, found: Found, labels: Sequence[Labels], k: int) -> Row:
        """Measure one method by labels as the paper's experts do: within the pool."""
        pairs = list(zip(found, labels, strict=True))
        right, _ = mean([metrics.pooled_precision(*pair, k) for pair in pairs])
        pools = zip(*self.found, strict=True)
        recalls = [
            metrics.pooled_recall(*pair, pool, k) for pair, pool in zip(pairs, pools, strict=True)
        ]
        recall, queries = mean(recalls)
        return {
            "pooled_precision": right,
            "pooled_recall": recall,
            "pooled_f1": metrics.harmonic(right, recall),
            "queries_pooled": queries,
            "pooled_methods": list(self.methods),
        }
