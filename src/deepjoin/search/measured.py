"""What was measured of columns that may match by meaning: what they are ranked and shown by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from deepjoin.model import SemanticEvidence
from deepjoin.search.evidence import Meaning
from deepjoin.search.ranking import name_similarity
from deepjoin.search.soft import Count, Meetings, shared_sums
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]

#: What the likeness of the columns' names adds, beside 1 for the cells.
NAME_WEIGHT = 0.06
#: Scores nearer than this are equal: likeness is stored in 8 bits.
_DIGITS = 4
#: What follows depends on the order of additions.
_SHOWN = 5


@dataclass(frozen=True)
class Measured:
    """Some columns of one segment: which cells meet which values in them, and how they score."""

    segment: Segment
    columns: Int
    #: Where cells meet values at tau or above.
    matched: Meetings
    #: What the query's cells count in each column, summed.
    sums: Real
    names: Real
    join: str

    @classmethod
    def of(
        cls, segment: Segment, columns: Int, meetings: Meetings, count: Count, names: Real
    ) -> Measured:
        """Score columns by where the query's cells meet them."""
        best = meetings.best()
        counts = count(best.similarities)
        sums: Real = (
            np.bincount(best.columns, counts, len(columns)).astype(np.float64)
            if count.join == "semantic"
            else shared_sums(best, counts, len(columns))
        )
        matched = meetings.where(meetings.similarities >= count.tau)
        return cls(segment, columns, matched, sums, names, count.join)

    def rows(self, size: int, threshold: float) -> list[int]:
        """Return the columns that hold a match and reach a joinability."""
        good = (self._matched_cells > 0) & (self.sums / size >= threshold)
        return np.flatnonzero(good).tolist()

    @cached_property
    def _best(self) -> Meetings:
        return self.matched.best()

    @cached_property
    def _matched_cells(self) -> Int:
        return np.bincount(self._best.columns, minlength=len(self.columns))

    @cached_property
    def _matched_values(self) -> Int:
        held = np.unique(np.stack([self.matched.columns, self.matched.values]), axis=1)
        return np.bincount(held[0], minlength=len(self.columns))

    @cached_property
    def _sizes(self) -> Int:
        return self.segment.values.sizes(self.columns)

    @cached_property
    def _likeness(self) -> Real:
        """Sum the cosines of the cells that match: of ties, the likest is the surest."""
        likeness = np.bincount(self._best.columns, self._best.similarities, len(self.columns))
        return likeness.astype(np.float64)

    def score(self, row: int, size: int) -> float:
        """Return what a column is ranked by: joinability and, a little, its name."""
        joinability = self.joinability(row, size)
        if self.join == "semantic":
            return joinability
        named = joinability + NAME_WEIGHT * float(self.names[row])
        return round(named / (1 + NAME_WEIGHT), _SHOWN)

    def joinability(self, row: int, size: int) -> float:
        """Return the share of the query's cells that a column holds, or is likely to."""
        share = float(self.sums[row]) / size
        return share if self.join == "semantic" else round(share, _SHOWN)

    def key(self, row: int, size: int, name: str, demote: bool) -> tuple[object, ...]:
        """Return what puts a column before others: the smaller, the better."""
        catalog, column = self.segment.catalog, int(self.columns[row])
        return (
            demote and bool(catalog.column_generic[column]),
            -round(self.score(row, size), _DIGITS),
            -round(float(self._matched_values[row] / self._sizes[row]), _DIGITS),
            -round(float(self._likeness[row]), _DIGITS),
            -name_similarity(name, catalog.column_names[column]) if name else 0.0,
            catalog.table_names[int(catalog.column_tables[column])],
            column,
        )

    def meaning(self, row: int, size: int, tau: float) -> Meaning:
        """Say how a column matches: the cells in the query's order, each with its likest value."""
        best = self._best
        here = slice(*np.searchsorted(best.columns, [row, row + 1]).tolist())
        matched = int(self._matched_cells[row])
        reverse = float(self._matched_values[row] / self._sizes[row])
        return Meaning(
            *(self.segment, int(self.columns[row]), best.cells[here], best.values[here]),
            best.similarities[here].astype(np.float64),
            SemanticEvidence(matched / size, reverse, matched, tau),
            *(self.join, self.score(row, size), self.joinability(row, size)),
        )
