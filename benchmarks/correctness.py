"""Correctness of answers: every column of the corpus against every query, by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

import deepjoin
from common import K, QuerySets, Row, emit, say, show
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.lab.evaluation.truth import Truth, brute_force
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.values.profile import Generic, generic_of

Answer = list[tuple[str, float]]
#: Cells of queries in one pass of brute force.
_CELLS_AT_ONCE = 20_000


@dataclass(frozen=True)
class Expected:
    """The right top 10 of one query: by joinability alone, and with generic keys last."""

    exact: Answer
    hybrid: Answer


def check(corpus: CorpusSource, index: Path, sets: QuerySets) -> None:
    """Compare every answer with brute force."""
    lake = deepjoin.open(index)
    for name, queries in sets.items():
        right = list(expected(corpus, lake, queries))
        row = emit("equi_search", what="check", set=name, **compare(lake, queries, right))
        show([list(row)[2:6], list(row.values())[2:6]])


def expected(
    corpus: CorpusSource, lake: deepjoin.Lake, queries: Sequence[deepjoin.Column]
) -> Iterator[Expected]:
    """Find the right answers by comparing every column with every query."""
    generic = np.flatnonzero(np.asarray(lake.catalog.column_generic)).tolist()
    said_little = {lake.catalog.column_ids[number] for number in generic}
    for some in _portions(queries):
        say(f"brute force: {len(some)} queries")
        for truth in brute_force(corpus.columns(), some, SETTINGS.profile):
            yield _expected(truth, said_little)


def _portions(queries: Sequence[deepjoin.Column]) -> Iterator[Sequence[deepjoin.Column]]:
    """Yield batches of queries whose matches with the lake fit in memory."""
    portion = np.cumsum([len(query.cells) for query in queries]) // _CELLS_AT_ONCE
    for _, numbers in groupby(range(len(queries)), key=portion.__getitem__):
        yield [queries[number] for number in numbers]


def _expected(truth: Truth, said_little: set[str]) -> Expected:
    pairs = list(truth.joinability.items())
    moved = sorted(pairs, key=lambda pair: pair[0] in said_little)
    return Expected(pairs[:K], moved[:K])


def compare(lake: deepjoin.Lake, queries: Sequence[deepjoin.Column], right: list[Expected]) -> Row:
    """Count the queries whose answers are those of brute force."""
    counts = dict.fromkeys(("exact_equal", "hybrid_equal", "hybrid_equal_generic_last"), 0)
    wrong: list[str] = []
    for query, one in zip(queries, right, strict=True):
        exact, hybrid = (_answer(lake, query, method) for method in ("exact-equi", "hybrid"))
        same = exact == one.exact
        counts["exact_equal"] += same
        counts["hybrid_equal"] += _scores(hybrid) == _scores(one.exact)
        in_order = hybrid == (one.exact if _is_generic(query) else one.hybrid)
        counts["hybrid_equal_generic_last"] += in_order
        if not (same and in_order):
            wrong.append(query.column_id or query.name)
    tenth = [_scores(one.exact)[K - 1] if len(one.exact) == K else 0.0 for one in right]
    return {
        "queries": len(queries),
        **counts,
        "wrong": wrong,
        "best_joinability": float(np.mean([one.exact[0][1] if one.exact else 0 for one in right])),
        "tenth_joinability": float(np.mean(tenth)),
        "tenth_above_0": float(np.mean(np.array(tenth) > 0)),
    }


def _is_generic(query: deepjoin.Column) -> bool:
    """Return whether a query is generic itself: then the order does not change."""
    values = distinct_cells(query.cells, SETTINGS.profile).values
    return generic_of(values) is not Generic.NO


def _answer(lake: deepjoin.Lake, query: deepjoin.Column, method: str) -> Answer:
    hits = lake.search(query, K, method=method, join="equi")
    return [(hit.column_id, hit.joinability) for hit in hits]


def _scores(answer: Answer) -> list[float]:
    return sorted((score for _, score in answer), reverse=True)
