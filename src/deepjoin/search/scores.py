"""Scores: how many of the query's cells a column holds, or is likely to hold in other spellings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deepjoin.arrays import Double, Float, Int, Marks, distinct, find_sorted, ranges
from deepjoin.embed.cells import CellEncoder, match_chance
from deepjoin.embed.scan import CandidatePairs
from deepjoin.lazy import cached_property
from deepjoin.matching.joinability import ONE
from deepjoin.model import SemanticEvidence
from deepjoin.search.evidence import ColumnMatch
from deepjoin.store.segment import Segment
from deepjoin.store.values.index import ValueIndex

#: What the similarity of the columns' names adds, beside 1 for the cells.
NAME_WEIGHT = 0.06
#: Scores are shown with this many digits; later ones depend on the order of additions.
_SHOWN = 5
#: The most low bits of a value's number by which unwanted values are filtered out.
_MARKED_BITS = 20
#: The most pairs of a column and a cell that have a place each while the best are found.
_COUNTED = 1 << 26


@dataclass(frozen=True)
class PairScore:
    """What a pair of cells counts: the chance that they mean the same, or 1 from tau on."""

    join: str
    floor: float
    tau: float

    @classmethod
    def of(cls, join: str, encoder: CellEncoder, tau: float | None) -> PairScore:
        """Count as an encoder was calibrated, or with another tau."""
        if tau is None:
            return cls(join, encoder.floor, encoder.tau)
        # The chance of a match must have room to rise between the floor and tau.
        return cls(join, min(encoder.floor, 0.9 * tau), tau)

    @property
    def least(self) -> float:
        """The smallest cosine that counts."""
        return self.tau if self.join == "semantic" else self.floor

    def __call__(self, similarities: Float | Double) -> Float:
        """Return what pairs of these cosines count; equal cells have 1 exactly."""
        if self.join == "semantic":
            return (similarities >= self.tau).astype(np.float32)
        chances = match_chance(similarities.astype(np.float32), self.floor, self.tau)
        return np.where(similarities >= 1, np.float32(1), chances)


@dataclass(frozen=True)
class CellMatches:
    """Which cell matches which value in which column; `ordered` puts the best first."""

    columns: Int
    cells: Int
    values: Int
    similarities: Float | Double

    @classmethod
    def of(cls, pairs: CandidatePairs, index: ValueIndex, columns: Int) -> CellMatches:
        """Find the pairs whose value is in each of some columns, numbered 0, 1, 2.

        They come by column and value.
        """
        order = np.argsort(pairs.values)
        wanted = pairs.values[order]
        sizes = index.sizes(columns)
        held = index.cell_values[ranges(index.column_offsets[columns], sizes)]
        # The low bits of their numbers rule out most values.
        bits = min(_MARKED_BITS, (8 * len(wanted)).bit_length())
        marks = np.zeros(1 << bits, bool)
        marks[wanted & (len(marks) - 1)] = True
        here = np.flatnonzero(marks[held & np.uint32(len(marks) - 1)])
        held, which = held[here].astype(np.int64), np.repeat(np.arange(len(columns)), sizes)[here]
        first = find_sorted(wanted, held)
        same = np.flatnonzero(first >= 0)
        held, which, first = held[same], which[same], first[same]
        many = np.searchsorted(wanted, held, side="right") - first
        pair = order[ranges(first, many)]
        return cls(
            np.repeat(which, many),
            *(pairs.cells[pair], pairs.values[pair], pairs.similarities[pair]),
        )

    def decisive(self, tau: float, error: float) -> Marks:
        """Mark what may be the best of a cell, or tell that a value has a match at tau.

        No similarity is off by more than the error, so nothing that is left out can be either.
        """
        if len(self.cells) == 0:
            return np.zeros(0, bool)
        width = int(self.cells.max()) + 1
        # They come by column and value.
        starts = np.flatnonzero(_is_new(self.columns, self.values))
        of_value = np.maximum.reduceat(self.similarities, starts)
        of_value = np.repeat(of_value, np.diff(np.append(starts, len(self.cells))))
        groups = self.columns * width + self.cells
        if (int(self.columns[-1]) + 1) * width > _COUNTED:
            groups = np.unique(groups, return_inverse=True)[1]
        of_cell = np.zeros(int(groups.max()) + 1, self.similarities.dtype)
        np.maximum.at(of_cell, groups, self.similarities)
        least = np.maximum(of_value - 2 * error, tau - error)
        return np.asarray(self.similarities >= np.minimum(of_cell[groups] - 2 * error, least))

    def ordered(self) -> CellMatches:
        """Sort by column, cell, similarity, value; now they are sorted by column and value."""
        width = int(self.cells.max(initial=0)) + 1
        groups = self.columns * width + self.cells
        if len(groups) == 0 or groups.max() >= 1 << 31:
            return self.where(np.lexsort((-self.similarities, self.cells, self.columns)))
        # One key, a tenth of the time of three: the bits of a positive number order as it does.
        likeness = self.similarities.astype(np.float32).view(np.uint32)
        return self.where(np.argsort(groups << 32 | ~likeness, kind="stable"))

    def with_similarities(self, rows: Int, millionths: Int) -> CellMatches:
        """Replace the similarities of some rows by exact ones."""
        # In double precision, so that what reaches a bound in millionths reaches it here.
        better = self.similarities.astype(np.float64)
        better[rows] = millionths / ONE
        return replace(self, similarities=better)

    def where(self, chosen: Marks | Int) -> CellMatches:
        """Keep some of the matches."""
        return CellMatches(
            *(self.columns[chosen], self.cells[chosen]),
            *(self.values[chosen], self.similarities[chosen]),
        )

    def best(self) -> CellMatches:
        """Keep the most similar value of each cell in each column."""
        return self.where(_is_new(self.columns, self.cells))


@dataclass(frozen=True)
class ColumnScores:
    """Some columns of one segment: which cells match which values in them, and their scores."""

    segment: Segment
    columns: Int
    #: Pairs at tau or above.
    matched: CellMatches
    #: What the query's cells count in each column, summed.
    sums: Double
    #: Similarity of each column's name with the query's.
    names: Double
    join: str

    @classmethod
    def of(
        cls, segment: Segment, columns: Int, matches: CellMatches, score: PairScore, names: Double
    ) -> ColumnScores:
        """Score columns by the cells that match in them."""
        best = matches.best()
        counts: Float | Double = score(best.similarities)
        if score.join != "semantic":
            # Of cells that share a best value, the n-th counts one n-th: one value is one match.
            order = np.lexsort((best.cells, -counts, best.values, best.columns))
            best, counts = best.where(order), counts[order]
            new = _is_new(best.columns, best.values)
            first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
            counts = counts / (np.arange(len(order)) - first + 1)
        sums: Double = np.bincount(best.columns, counts, len(columns)).astype(np.float64)
        matched = matches.where(matches.similarities >= score.tau)
        return cls(segment, columns, matched, sums, names, score.join)

    @cached_property
    def _best(self) -> CellMatches:
        return self.matched.best()

    @cached_property
    def matched_cells(self) -> Int:
        """How many of the query's cells match in each column."""
        return np.bincount(self._best.columns, minlength=len(self.columns))

    @cached_property
    def reverse(self) -> Double:
        """Share of each column's values that match a cell of the query."""
        held = distinct(self.matched.columns << 32 | self.matched.values)
        values = np.bincount(held >> 32, minlength=len(self.columns))
        return values / self.segment.values.sizes(self.columns)

    @cached_property
    def likeness(self) -> Double:
        """Sum of the cosines of the cells that match: of ties, the most similar is the surest."""
        likeness = np.bincount(self._best.columns, self._best.similarities, len(self.columns))
        return likeness.astype(np.float64)

    def scores(self, size: int) -> Double:
        """Return the score of every column, before it is rounded."""
        shares = self.sums / size
        named: Double = (shares + NAME_WEIGHT * self.names) / (1 + NAME_WEIGHT)
        return shares if self.join == "semantic" else named

    def score(self, row: int, size: int) -> float:
        """Return what a column is ranked by: joinability and, a little, its name."""
        joinability = self.joinability(row, size)
        if self.join == "semantic":
            return joinability
        named = joinability + NAME_WEIGHT * float(self.names[row])
        return round(named / (1 + NAME_WEIGHT), _SHOWN)

    def joinability(self, row: int, size: int) -> float:
        """Return the share of the query's cells that a column holds, or is likely to hold."""
        share = float(self.sums[row]) / size
        return share if self.join == "semantic" else round(share, _SHOWN)

    def joinabilities(self, size: int) -> Double:
        """Return the joinability of every column."""
        return np.round(self.sums / size, _SHOWN)

    def match(self, row: int, size: int, tau: float, found_by: tuple[str, ...] = ()) -> ColumnMatch:
        """Return how a column matches: the cells in the query's order, each with its best value."""
        best = self._best
        here = slice(*np.searchsorted(best.columns, [row, row + 1]).tolist())
        matched = int(self.matched_cells[row])
        return ColumnMatch(
            *(self.segment, int(self.columns[row]), best.cells[here], best.values[here]),
            best.similarities[here].astype(np.float64),
            SemanticEvidence(matched / size, float(self.reverse[row]), matched, tau),
            *(self.join, self.score(row, size), self.joinability(row, size)),
            found_by,
        )


def _is_new(one: Int, other: Int) -> Marks:
    """Mark where a pair of keys differs from the one before."""
    new = np.ones(len(one), bool)
    new[1:] = (np.diff(one) != 0) | (np.diff(other) != 0)
    return new
