"""Precision, NDCG and recall against exact answers (paper, section 5.1) and against labels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from deepjoin.arrays import Double
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.truth import Truth
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.read.corpus import CorpusSource
from deepjoin.read.formats import unreadable

FIELDS = ("query_id", "column_id", "entity_jn", "surface_equi_jn")
#: A column is relevant if it holds at least this share of the query's entities, and hard to find
#: if it holds less than this share of its strings.
RELEVANT, EASY = 0.7, 0.3
#: Labels are stored in single precision, so bounds need a tolerance.
_TOLERANCE = 1e-6
#: `candidates` looks for the exact top 10 among the first 500.
BEST, CANDIDATES = 10, 500
Row = dict[str, Any]
#: Column ids, best first, for each query.
Rankings = Sequence[Sequence[str]]
#: Seed and number of draws of the bootstrap.
SEED, _DRAWS = 0, 2000


@dataclass(frozen=True)
class Labels:
    """Labels of one query: the share of its entities, and of its strings, in labelled columns."""

    gains: dict[str, float]
    surface: dict[str, float]

    @cached_property
    def relevant(self) -> frozenset[str]:
        """The columns that answer the query."""
        least = RELEVANT - _TOLERANCE
        return frozenset(column for column, gain in self.gains.items() if gain >= least)

    @cached_property
    def hard(self) -> frozenset[str]:
        """The relevant columns that spell the entities differently."""
        least = EASY - _TOLERANCE
        return frozenset(column for column in self.relevant if self.surface[column] < least)

    @cached_property
    def easy(self) -> frozenset[str]:
        """The relevant columns that equal strings suffice to find."""
        return self.relevant - self.hard


def read_labels(source: CorpusSource, queries: Sequence[Column]) -> list[Labels] | None:
    """Read the labels of each query, except those of its own table; None without labels."""
    path = source.folder / "labels.parquet"
    try:
        table = source.labels()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error, "is not a readable Parquet file") from None
    if table is None:
        return None
    if missing := [name for name in FIELDS if name not in table.column_names]:
        raise DeepJoinError(f"{path} has no {', '.join(missing)}. Labels have {', '.join(FIELDS)}.")
    table_of = {query.column_id: query.table for query in queries}
    tables: dict[str, str] = {}
    for block in source.blocks(names=("column_id", "table_id")):
        ids = (block[name].to_pylist() for name in ("column_id", "table_id"))
        tables.update(zip(*ids, strict=True))
    found: dict[str, Labels] = defaultdict(lambda: Labels({}, {}))
    for query, column, gain, surface in zip(*(table[name].to_pylist() for name in FIELDS),
                                            strict=True):  # fmt: skip
        if query not in table_of:
            continue
        if column not in tables:
            raise DeepJoinError(
                f"{path} labels the column '{column}', which is not in columns.parquet. Label "
                "columns of the corpus only."
            )
        if table_of[query] != tables[column]:
            found[query].gains[column], found[query].surface[column] = gain, surface
    return [found[query.column_id or ""] for query in queries]


def precision(found: Sequence[str], truth: Truth, k: int) -> float | None:
    """Share of the exact top k, by id, that was found; None when nothing matches the query.

    Of columns as joinable as the k-th, those that the order of `Truth` puts first count.
    """
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
    """DCG by the labels over the best possible; None for a query without labels."""
    return _ratio([labels.gains.get(column, 0.0) for column in found[:k]], labels.gains, k)


def hard_recall_labels(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """Share of the hard columns in the top k after removing the easy ones.

    ``found`` must be longer than k by the number of easy ones.
    """
    rest = [column for column in found if column not in labels.easy]
    return _share(rest[:k], labels.hard, k)


def pooled_precision(found: Sequence[str], labels: Labels, k: int) -> float | None:
    """Share of the top k that is relevant; None when nothing is relevant."""
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
    """F1 of two averages, as in the paper; None if one of them is unknown."""
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
    """Return the mean of the values that are not None, and their number."""
    present = [value for value in values if value is not None]
    return (sum(present) / len(present) if present else None), len(present)


def interval(values: Sequence[float | None], seed: int) -> tuple[float | None, float | None]:
    """Bootstrap 95% interval of the mean over queries."""
    present = np.array([value for value in values if value is not None])
    if len(present) == 0:
        return None, None
    low, high = _bounds(present, seed)
    return low, high


def _bounds(values: Double, seed: int) -> tuple[float, float]:
    """Draw queries with replacement; the means of 95% of the draws lie between these bounds."""
    draws = np.random.default_rng(seed).integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two methods over the same queries, with its 95% interval."""

    mean: float
    low: float
    high: float
    #: Queries that both methods have a value for.
    queries: int

    @classmethod
    def of(
        cls, one: Sequence[float | None], other: Sequence[float | None], seed: int = SEED
    ) -> PairedDifference | None:
        """Compare query by query; None if no query has both values.

        >>> PairedDifference.of([1.0, 0.5, None], [0.5, 0.0, 1.0])
        PairedDifference(mean=0.5, low=0.5, high=0.5, queries=2)
        """
        pairs = zip(one, other, strict=True)
        apart = np.array([a - b for a, b in pairs if a is not None and b is not None])
        if len(apart) == 0:
            return None
        return cls(float(apart.mean()), *_bounds(apart, seed), len(apart))

    @property
    def sign(self) -> int:
        """1 if the interval is above 0, -1 if it is below, 0 if it contains 0."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f}, {self.queries:,} queries)"


def queries_digest(queries: Sequence[Column]) -> str:
    """Identify the queries of a row, in order: values of rows with the same digest are paired."""
    content = [(query.column_id, query.table, query.name, query.cells) for query in queries]
    return str(xxhash.xxh3_64_hexdigest(repr(content).encode()))


def merged(*rows: Row) -> Row:
    """Combine rows, with the values of each query of all of them."""
    every = {name: values for row in rows for name, values in row.get("per_query", {}).items()}
    row = {name: value for row in rows for name, value in row.items() if name != "per_query"}
    return row | {"per_query": every}


def _per_query(**values: Sequence[float | None]) -> Row:
    """Keep the value of each query, rounded to four digits; None where a query has none."""
    return {
        "per_query": {
            name: [None if one is None else round(one, 4) for one in each]
            for name, each in values.items()
        }
    }


def accuracy(found: Rankings, truth: Sequence[Truth], k: int) -> Row:
    """Measure against the exact answers, by id and tie-aware; None where there are none."""
    pairs = list(zip(found, truth, strict=True))
    by_id = [precision(ids, right, k) for ids, right in pairs]
    tied = [precision_ties(ids, right, k) for ids, right in pairs]
    gains = [ndcg(ids, right, k) for ids, right in pairs]
    row: Row = {}
    for name, values in (("precision", by_id), ("precision_ties", tied), ("ndcg", gains)):
        row[name] = mean(values)[0]
        row[f"{name}_low"], row[f"{name}_high"] = interval(values, SEED)
    row |= {"queries_ties": mean(tied)[1], "queries_ndcg": mean(gains)[1]}
    return row | _per_query(precision=by_id, precision_ties=tied, ndcg=gains)


def candidates_of(deeper: Rankings, truth: Sequence[Truth]) -> Row:
    """Measure how much of the exact top 10 is among the first 500."""
    values = [candidates(*pair) for pair in zip(deeper, truth, strict=True)]
    share, queries = mean(values)
    row = {"candidates_500": share, "queries_candidates": queries}
    return row | _per_query(candidates_500=values)


def by_labels(found: Rankings, deeper: Rankings, labels: Sequence[Labels], k: int) -> Row:
    """Measure against the labels."""
    pairs = list(zip(found, labels, strict=True))
    right = [precision_labels(*pair, k) for pair in pairs]
    gains = [ndcg_labels(*pair, k) for pair in pairs]
    hard = [hard_recall_labels(*pair, k) for pair in zip(deeper, labels, strict=True)]
    row: Row = {}
    row["precision_labels"], row["queries_labels"] = mean(right)
    row["ndcg_labels"], row["queries_ndcg_labels"] = mean(gains)
    row["hard_recall_labels"], row["queries_hard_labels"] = mean(hard)
    return row | _per_query(precision_labels=right, ndcg_labels=gains, hard_recall_labels=hard)


@dataclass(frozen=True)
class Pool:
    """What all methods of a run found, which is what the paper's experts label."""

    methods: tuple[str, ...]
    #: For each method, what it found for each query.
    found: tuple[Rankings, ...]

    def measured(self, found: Rankings, labels: Sequence[Labels], k: int) -> Row:
        """Measure one method by the labels within the pool, as the paper's experts do."""
        pairs = list(zip(found, labels, strict=True))
        rights = [pooled_precision(*pair, k) for pair in pairs]
        right, _ = mean(rights)
        pools = zip(*self.found, strict=True)
        recalls = [pooled_recall(*pair, pool, k) for pair, pool in zip(pairs, pools, strict=True)]
        recall, queries = mean(recalls)
        row = {
            "pooled_precision": right,
            "pooled_recall": recall,
            "pooled_f1": harmonic(right, recall),
            "queries_pooled": queries,
            "pooled_methods": list(self.methods),
        }
        return row | _per_query(pooled_precision=rights, pooled_recall=recalls)
