"""The right answers to semantic joins: the best by the exact engine, others by the definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepjoin.embed.cells import CellEncoder
from deepjoin.lab.evaluation.truth import Truth
from deepjoin.lake import Lake
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.model import Column, Results
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import SearchSettings

#: By how much deeper a search goes when all it found ties with the last one wanted.
_DEEPER = 4


def semantic_truth(
    lake: Lake, queries: Sequence[Column], tau: float | None, depth: int
) -> Iterator[Truth]:
    """Find the best ``depth`` columns of each query, and all that tie with the last of them."""
    for query in queries:
        asked = depth + depth // 2
        results = _best(lake, query, tau, asked)
        while len(results) == asked and results[-1].joinability == results[depth - 1].joinability:
            asked *= _DEEPER
            results = _best(lake, query, tau, asked)
        last = results[min(depth, len(results)) - 1].joinability if results else 0.0
        yield Truth({hit.column_id: hit.joinability for hit in results if hit.joinability >= last})


def _best(lake: Lake, query: Column, tau: float | None, k: int) -> Results:
    return lake.search(
        query,
        k,
        join="semantic",
        method="exact-semantic",
        settings=SearchSettings(tau=tau, matches=0),
    )


def with_found(
    truth: Sequence[Truth],
    found: Sequence[Sequence[str]],
    source: CorpusSource,
    queries: Sequence[Column],
    encoder: CellEncoder,
    tau: float,
    profile: str,
) -> list[Truth]:
    """Measure what was found below the depth of the truth, which NDCG has to know."""
    asking: dict[str, list[int]] = defaultdict(list)
    for number, (right, ids) in enumerate(zip(truth, found, strict=True)):
        for column in set(ids) - right.joinability.keys():
            asking[column].append(number)
    below: list[dict[str, float]] = [{} for _ in truth]
    for target in source.columns() if asking else ():
        for number in asking.get(target.column_id or "", ()):
            below[number][target.column_id or ""] = semantic_joinability(
                queries[number].cells, target.cells, encoder.encode, tau, profile
            )
    return [replace(right, below=more) for right, more in zip(truth, below, strict=True)]
