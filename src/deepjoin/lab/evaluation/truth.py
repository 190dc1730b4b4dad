"""Exact answers: equi-joins by brute force, semantic joins by the exact engine.

Brute force uses only the definitions and nothing of the index, so that the two can disagree.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from deepjoin.embed.cells import CellEncoder
from deepjoin.lake import Lake
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.model import Column, Results
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.ranking import name_similarity
from deepjoin.settings import SearchSettings

#: Factor by which a search is deepened while all its hits tie with the last one needed.
_DEEPER = 4


@dataclass(frozen=True)
class Truth:
    """The exact answer to one query: the joinability of matching columns, best first.

    It has all matching columns for equi-joins. For semantic joins it has the best ones and all
    ties with the last of them; ``below`` adds others that a method found.
    """

    joinability: dict[str, float]
    below: dict[str, float] = field(default_factory=dict)

    @property
    def ranked(self) -> list[str]:
        """Column ids, best first."""
        return list(self.joinability)

    def of(self, column: str) -> float:
        """Return the joinability of a column."""
        return self.joinability.get(column, self.below.get(column, 0.0))

    def kth(self, k: int) -> float:
        """Return the joinability of the k-th best column, 0 when fewer match."""
        values = list(self.joinability.values())
        return values[k - 1] if len(values) >= k else 0.0


@dataclass(frozen=True)
class _MatchingColumn:
    column_id: str
    #: Order among equals: by table name, then by position in the corpus.
    place: tuple[str, int]
    name: str
    size: int
    shared: tuple[str, ...]


def brute_force(columns: Iterable[Column], queries: Sequence[Column], profile: str) -> list[Truth]:
    """Compare all columns with all queries, in one pass over the columns."""
    query_values = [frozenset(distinct_cells(query.cells, profile).values) for query in queries]
    # From values to the queries that hold them: one pass over the corpus serves all queries.
    holders: dict[str, list[int]] = defaultdict(list)
    for number, values in enumerate(query_values):
        for value in values:
            holders[value].append(number)
    found: list[list[_MatchingColumn]] = [[] for _ in queries]
    frequency: Counter[str] = Counter()
    kept = 0
    for column in columns:
        values = frozenset(distinct_cells(column.cells, profile).values)
        if not values:
            continue  # an index has no empty columns either, so they do not count below
        shared_with: dict[int, list[str]] = defaultdict(list)
        for value in values:
            if value in holders:
                frequency[value] += 1
                for query in holders[value]:
                    shared_with[query].append(value)
        for query, shared in shared_with.items():
            if queries[query].table is None or queries[query].table != column.table:
                found[query].append(
                    _MatchingColumn(
                        *(column.column_id or "", (column.table or "", kept), column.name),
                        *(len(values), tuple(shared)),
                    )
                )
        kept += 1
    return [
        _ranked(found[i], queries[i].name, len(query_values[i]), frequency, kept)
        for i in range(len(queries))
    ]


def _ranked(
    found: list[_MatchingColumn], name: str, size: int, frequency: Counter[str], columns: int
) -> Truth:
    def key(one: _MatchingColumn) -> tuple[int, int, int, float, tuple[str, int]]:
        bits = (math.log2((columns + 1) / frequency[value]) for value in one.shared)
        # In whole numbers, because a sum of fractions depends on its order.
        rarity = sum(round(1000 * one) for one in bits)
        similarity = name_similarity(name, one.name)
        return (-len(one.shared), one.size, -rarity, -similarity, one.place)

    return Truth({one.column_id: len(one.shared) / size for one in sorted(found, key=key)})


def semantic_truth(
    lake: Lake, queries: Sequence[Column], tau: float | None, depth: int
) -> Iterator[Truth]:
    """Find the best ``depth`` columns of each query, and all that tie with the last of them."""
    for query in queries:

        def best(k: int, query: Column = query) -> Results:
            settings = SearchSettings(tau=tau, matches=0)
            return lake.search(
                query, k, join="semantic", method="exact-semantic", settings=settings
            )

        # A few more than needed: most ties with the last one are then there at once.
        k = depth + depth // 2
        results = best(k)
        while len(results) == k and results[-1].joinability == results[depth - 1].joinability:
            k *= _DEEPER
            results = best(k)
        last = results[min(depth, len(results)) - 1].joinability if results else 0.0
        yield Truth({hit.column_id: hit.joinability for hit in results if hit.joinability >= last})


def with_found(
    truth: Sequence[Truth],
    found: Sequence[Sequence[str]],
    source: CorpusSource,
    queries: Sequence[Column],
    encoder: CellEncoder,
    tau: float,
    profile: str,
) -> list[Truth]:
    """Add the joinability of columns found below the depth of the truth, which NDCG needs."""
    unknown: dict[str, list[int]] = defaultdict(list)
    for number, (right, ids) in enumerate(zip(truth, found, strict=True)):
        for column in set(ids) - right.joinability.keys():
            unknown[column].append(number)
    below: list[dict[str, float]] = [{} for _ in truth]
    # One pass over the corpus for all queries; it need not fit into memory.
    for target in source.columns() if unknown else ():
        for number in unknown.get(target.column_id or "", ()):
            below[number][target.column_id or ""] = semantic_joinability(
                queries[number].cells, target.cells, encoder.encode, tau, profile
            )
    return [replace(right, below=more) for right, more in zip(truth, below, strict=True)]
