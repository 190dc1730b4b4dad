"""Exact semantic search: the columns with the highest joinability by vectors, and the proof.

One scan over 8-bit vectors finds every pair of cells that can match, with bounds (`quantised`);
the postings turn them into bounds for every column (`bounds`); columns that can be among the
best are measured with the encoder's own vectors, best bound first, until none is left that can
reach the k-th (`side`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.embed.pairs import Marks, Pairs
from deepjoin.errors import DeepJoinError
from deepjoin.matching.bounds import Measure
from deepjoin.matching.joinability import ONE
from deepjoin.matching.side import Evidence, Part, Query, Side

Int = npt.NDArray[np.int64]
#: For each segment, marks of columns that are no part of the lake, or None.
Excluded = Sequence[Marks | None]

#: Columns measured first, and by how much each further round is larger.
_FIRST, _GROWTH = 64, 8
#: Cells scanned together when there are many queries.
_CELLS = 256


@dataclass(frozen=True)
class Wanted:
    """What a search asks for; ``k`` None is everything that reaches ``threshold``."""

    measure: Measure
    k: int | None = 10
    threshold: float = 0.0
    #: Whether columns that tie with the k-th come as well, for the caller to choose from.
    ties: bool = False

    def __post_init__(self) -> None:
        if self.measure.join not in ("semantic", "any"):
            raise DeepJoinError(f"Unknown join '{self.measure.join}'. Joins: semantic, any.")
        if self.k is not None and self.k < 0:
            raise DeepJoinError(f"k is {self.k}; it is 0 or more.")


@dataclass(frozen=True)
class Found:
    """The best columns of all segments, best first; all lists run in parallel."""

    parts: Int
    columns: Int
    scores: npt.NDArray[np.float64]
    evidence: list[Evidence]

    def __len__(self) -> int:
        return len(self.columns)


class SemanticEngine:
    """Answers semantic queries over the segments of a lake, equal to comparing everything."""

    def __init__(self, parts: Sequence[Part], threads: int = 2) -> None:
        self._parts, self._threads = list(parts), threads

    def search(self, query: Query, wanted: Wanted, excluded: Excluded | None = None) -> Found:
        """Return the best columns; columns that match nothing are never among them."""
        near = [self._near(part, query, wanted) for part in self._parts]
        return self._ranked(query, near, wanted, excluded)

    def search_many(
        self, queries: Sequence[Query], wanted: Wanted, excluded: Sequence[Excluded] | None = None
    ) -> Iterator[Found]:
        """Answer many queries, several in one scan of the vectors."""
        for start, stop in _groups([len(query.values) for query in queries]):
            group = queries[start:stop]
            together = Query([], np.concatenate([query.vectors for query in group]))
            near = [self._near(part, together, wanted) for part in self._parts]
            ends = np.cumsum([0, *(len(query.values) for query in group)])
            for i, query in enumerate(group):
                own = [_cells_between(pairs, ends[i], ends[i + 1]) for pairs in near]
                marks = None if excluded is None else excluded[start + i]
                yield self._ranked(query, own, wanted, marks)

    def _near(self, part: Part, query: Query, wanted: Wanted) -> Pairs:
        return part.vectors.near(query.vectors, wanted.measure.floor, self._threads)

    def _ranked(
        self, query: Query, near: Sequence[Pairs], wanted: Wanted, excluded: Excluded | None
    ) -> Found:
        marks = excluded or [None] * len(self._parts)
        sides = [
            Side(part, query, pairs, wanted.measure, mark)
            for part, pairs, mark in zip(self._parts, near, marks, strict=True)
        ]
        if not query.values or wanted.k == 0 or not sides:
            return Found(*(np.zeros(0, np.int64),) * 2, np.zeros(0), [])
        candidates = _Candidates(sides, wanted, len(query.values))
        return candidates.measured()


class _Candidates:
    """Columns that can be among the best, those with the highest bound first."""

    def __init__(self, sides: Sequence[Side], wanted: Wanted, size: int) -> None:
        self._sides, self._wanted, self._whole = sides, wanted, ONE * size
        possible = [np.flatnonzero(side.bounds.upper > 0) for side in sides]
        self._parts = np.repeat(np.arange(len(sides)), [len(columns) for columns in possible])
        self._columns = np.concatenate(possible)
        bounds = zip(sides, possible, strict=True)
        self._upper = np.concatenate([side.bounds.upper[columns] for side, columns in bounds])
        self._keep(self._upper >= wanted.threshold * self._whole - 1)
        self._keep(np.argsort(-self._upper, kind="stable"))
        self._totals = np.zeros(len(self._columns), np.int64)

    def _keep(self, chosen: npt.NDArray[np.bool_] | Int) -> None:
        self._parts, self._columns = self._parts[chosen], self._columns[chosen]
        self._upper = self._upper[chosen]

    def measured(self) -> Found:
        """Measure until the rest cannot reach the k-th, and put what was measured in order."""
        done, size = 0, self._first_round()
        while done < len(self._columns) and self._upper[done] + 1 >= self._kth(done):
            self._measure(slice(done, done + size))
            done, size = done + size, size * _GROWTH
        return self._found()

    def _first_round(self) -> int:
        k = self._wanted.k
        return len(self._columns) if k is None else max(_FIRST, 2 * k)

    def _kth(self, done: int) -> int:
        """Return the k-th best total so far, 0 when there are fewer."""
        k = self._wanted.k
        if k is None or done < k:
            return 0
        return int(np.partition(self._totals[:done], -k)[-k])

    def _measure(self, here: slice) -> None:
        parts, columns, totals = self._parts[here], self._columns[here], self._totals[here]
        for number, side in enumerate(self._sides):
            mine = parts == number
            if mine.any():
                totals[mine] = side.totals(columns[mine])

    def _found(self) -> Found:
        good = (self._totals > 0) & (self._totals / self._whole >= self._wanted.threshold)
        parts, columns, totals = self._parts[good], self._columns[good], self._totals[good]
        places = np.empty(len(columns), np.int64)
        for number, side in enumerate(self._sides):
            places[parts == number] = side.part.order[columns[parts == number]]
        order = np.lexsort((columns, parts, places, -totals))[: self._wanted.k]
        if self._wanted.ties and len(order):
            last = totals[order[-1]]
            order = np.lexsort((columns, parts, places, -totals))[: int((totals >= last).sum())]
        parts, columns = parts[order], columns[order]
        evidence = self._evidence(parts, columns)
        return Found(parts, columns, totals[order] / self._whole, evidence)

    def _evidence(self, parts: Int, columns: Int) -> list[Evidence]:
        known: dict[tuple[int, int], Evidence] = {}
        for number, side in enumerate(self._sides):
            mine = columns[parts == number]
            for column, one in zip(mine.tolist(), side.evidence(mine), strict=True):
                known[number, column] = one
        return [known[pair] for pair in zip(parts.tolist(), columns.tolist(), strict=True)]


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut queries into runs that have some hundred cells together."""
    start = cells = 0
    for i, size in enumerate(sizes):
        if i > start and cells + size > _CELLS:
            yield start, i
            start, cells = i, 0
        cells += size
    if start < len(sizes):
        yield start, len(sizes)


def _cells_between(pairs: Pairs, start: int, stop: int) -> Pairs:
    """Return the pairs of some cells, numbered from 0."""
    own = pairs.where((pairs.cells >= start) & (pairs.cells < stop))
    return Pairs(own.cells - start, own.values, own.similarities, own.errors)
