"""What all searches share: a method ranks columns, and hits are made of the best of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.model import Column, Hit, Results
from deepjoin.normalise.distinct import DistinctCells
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.store.segment import Segment

Marks = npt.NDArray[np.bool_]

#: How many matched and unmatched cells a hit lists unless told otherwise.
SHOWN = 20


@dataclass(frozen=True)
class Wanted:
    """What a search asks for; ``k`` None is everything that reaches ``threshold``."""

    k: int | None
    threshold: float
    exclude: str | None
    #: The query's name, which decides between hits that are equal otherwise.
    name: str


class Ranking(ABC):
    """Columns of the lake, best first; evidence is measured for those that become hits."""

    distinct: DistinctCells

    @property
    @abstractmethod
    def places(self) -> Sequence[tuple[Segment, int]]:
        """The segment and the number of each column."""

    @abstractmethod
    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure some of the columns and list up to ``show`` cells a kind; ranks are 1, 2, 3."""


class Searching(ABC):
    """A search method over the segments of a lake."""

    def search(
        self,
        query: Column,
        k: int,
        *,
        exclude_table: str | None = None,
        min_joinability: float = 0.0,
        show: int | None = SHOWN,
    ) -> Results:
        """Return the best k columns; columns that share nothing are never among them."""
        return self._search(query, Wanted(k, min_joinability, exclude_table, query.name), show)

    def search_above(
        self,
        query: Column,
        threshold: float,
        *,
        exclude_table: str | None = None,
        show: int | None = SHOWN,
    ) -> Results:
        """Return every column whose joinability reaches the threshold, best first."""
        return self._search(query, Wanted(None, threshold, exclude_table, query.name), show)

    def search_tables(
        self,
        query: Column,
        k: int | None,
        exclude_table: str | None,
        min_joinability: float,
        show: int | None,
    ) -> Results:
        """Return the best column of each of the best k tables, the table's others beside it."""
        watch = Stopwatch()
        ranking = self._ranking(watch, query, Wanted(None, min_joinability, exclude_table,
                                                     query.name))  # fmt: skip
        tables: dict[tuple[int, int], list[int]] = {}
        for place, (segment, column) in enumerate(ranking.places):
            owner = id(segment), int(segment.catalog.column_tables[column])
            if owner in tables or k is None or len(tables) < k:
                tables.setdefault(owner, []).append(place)
        hits = iter(ranking.hits([place for of in tables.values() for place in of], show))
        grouped = [[next(hits) for _ in of] for of in tables.values()]
        best_of = [replace(of[0], rank=n, also=tuple(of[1:])) for n, of in enumerate(grouped, 1)]
        return Results(_described(query, ranking), tuple(best_of), watch.stop("verify"))

    def _search(self, query: Column, wanted: Wanted, show: int | None) -> Results:
        watch = Stopwatch()
        ranking = self._ranking(watch, query, wanted)
        hits = ranking.hits(range(len(ranking.places)), show)
        return Results(_described(query, ranking), tuple(hits), watch.stop("verify"))

    @abstractmethod
    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Ranking:
        """Rank the columns of the lake; laps are "encode" and "candidates"."""


def _described(query: Column, ranking: Ranking) -> dict[str, Any]:
    return {
        "table": query.table,
        "column": query.name,
        "cells": len(query.cells),
        "size": len(ranking.distinct),
    }


def excluded_columns(segment: Segment, table: str | None) -> Marks | None:
    """Mark the columns that are out of the lake, and those of the query's own table."""
    own = None if table is None else segment.catalog.find_table(table)
    if own is None:
        return segment.dead
    marks = np.zeros(segment.values.columns, bool) if segment.dead is None else segment.dead.copy()
    marks[segment.catalog.columns_of(own)] = True
    return marks
