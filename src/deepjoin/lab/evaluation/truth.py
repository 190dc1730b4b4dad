"""The right answers to equi-joins by brute force: every column against every query.

Nothing of the index is used here, only the definitions, so the two can disagree.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.search.ranking import name_similarity


@dataclass(frozen=True)
class Truth:
    """Of one query: the joinability of the columns that match it, best first.

    Equi-joins have all that match; semantic joins the best, with all that tie with the last,
    and ``below`` has others that a method found.
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
class _Found:
    column_id: str
    #: Where the column stands: its table's name, then the order of the corpus.
    place: tuple[str, int]
    name: str
    size: int
    shared: tuple[str, ...]


def brute_force(
    columns: Iterable[Column], queries: Sequence[Column], profile: str, min_distinct: int = 1
) -> list[Truth]:
    """Compare all columns with all queries, in one pass over the columns."""
    wanted = [frozenset(distinct_cells(query.cells, profile).values) for query in queries]
    asking: dict[str, list[int]] = defaultdict(list)
    for number, values in enumerate(wanted):
        for value in values:
            asking[value].append(number)
    found: list[list[_Found]] = [[] for _ in queries]
    frequency: Counter[str] = Counter()
    kept = 0
    for column in columns:
        values = frozenset(distinct_cells(column.cells, profile).values)
        if len(values) < min_distinct:
            continue
        meets: dict[int, list[str]] = defaultdict(list)
        for value in values:
            if value in asking:
                frequency[value] += 1
                for query in asking[value]:
                    meets[query].append(value)
        for query, shared in meets.items():
            if queries[query].table is None or queries[query].table != column.table:
                found[query].append(
                    _Found(
                        *(column.column_id or "", (column.table or "", kept), column.name),
                        *(len(values), tuple(shared)),
                    )
                )
        kept += 1
    return [
        _ranked(found[i], queries[i].name, len(wanted[i]), frequency, kept)
        for i in range(len(queries))
    ]


def _ranked(
    found: list[_Found], name: str, size: int, frequency: Counter[str], columns: int
) -> Truth:
    def key(one: _Found) -> tuple[int, int, int, float, tuple[str, int]]:
        rarity = sum(_millibits(columns, frequency[value]) for value in one.shared)
        similarity = name_similarity(name, one.name)
        return (-len(one.shared), one.size, -rarity, -similarity, one.place)

    return Truth({one.column_id: len(one.shared) / size for one in sorted(found, key=key)})


def _millibits(columns: int, frequency: int) -> int:
    return round(1000 * math.log2((columns + 1) / frequency))
