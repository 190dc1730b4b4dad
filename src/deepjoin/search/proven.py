"""Columns an exact semantic method found, in one order, as hits with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deepjoin.matching.engine import ExactRanking
from deepjoin.model import Hit, SemanticEvidence
from deepjoin.normalise.distinct import DistinctCells
from deepjoin.search.base import Ranking
from deepjoin.search.evidence import Meaning, hits_by_meaning
from deepjoin.store.segment import Segment

FOUND_BY = ("exact-semantic",)


class Proven(Ranking):
    """What the engine found; of columns that score the same, those covered most come first."""

    def __init__(
        self, distinct: DistinctCells, segments: Sequence[Segment], found: ExactRanking, tau: float,
        k: int | None,
    ) -> None:  # fmt: skip
        self.distinct, self._segments, self._found, self._tau = distinct, segments, found, tau
        self._order = sorted(range(len(found)), key=self._key)[:k]

    def _key(self, place: int) -> tuple[float, float, str, int]:
        segment, column = self._place(place)
        catalog = segment.catalog
        table = catalog.table_names[int(catalog.column_tables[column])]
        return -float(self._found.scores[place]), -self._reverse(place), table, column

    def _reverse(self, place: int) -> float:
        segment, column = self._place(place)
        size = int(segment.values.sizes(np.array([column]))[0])
        return self._found.evidence[place].reverse / size

    def _place(self, place: int) -> tuple[Segment, int]:
        return self._segments[int(self._found.parts[place])], int(self._found.columns[place])

    @property
    def places(self) -> list[tuple[Segment, int]]:
        """The segment and the number of each column."""
        return [self._place(place) for place in self._order]

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Say of some columns what matches what."""
        meanings = [self._meaning(self._order[place]) for place in chosen]
        hits = hits_by_meaning(self.distinct, meanings, show)
        return [replace(hit, found_by=FOUND_BY) for hit in hits]

    def _meaning(self, number: int) -> Meaning:
        evidence, share = self._found.evidence[number], float(self._found.scores[number])
        matched = len(evidence.cells)
        return Meaning(
            *(*self._place(number), evidence.cells, evidence.values, evidence.similarities),
            SemanticEvidence(share, self._reverse(number), matched, self._tau),
            *("semantic", share, share),
        )
