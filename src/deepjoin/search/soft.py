"""From pairs of near cells to columns: how many of the query's cells each is likely to hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.score import match_chance
from deepjoin.embed.scan import CandidatePairs
from deepjoin.matching.joinability import ONE
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Real = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Count:
    """What a pair of cells counts: the chance that they mean one thing, or 1 from tau on."""

    join: str
    floor: float
    tau: float

    @classmethod
    def of(cls, join: str, encoder: CellEncoder, tau: float | None) -> Count:
        """Count as an encoder was calibrated, unless another tau is given."""
        if tau is None:
            return cls(join, encoder.floor, encoder.tau)
        return cls(join, min(encoder.floor, 0.9 * tau), tau)

    @property
    def least(self) -> float:
        """The smallest cosine that counts."""
        return self.tau if self.join == "semantic" else self.floor

    def __call__(self, similarities: Float | Real) -> Float:
        """Give what pairs of these cosines count; equal cells have 1 exactly."""
        if self.join == "semantic":
            return (similarities >= self.tau).astype(np.float32)
        chances = match_chance(similarities.astype(np.float32), self.floor, self.tau)
        return np.where(similarities >= 1, np.float32(1), chances)


def column_sums(pairs: CandidatePairs, counts: Float, index: ValueIndex) -> Float:
    """Sum over the query's cells what the best pair of each counts, for every column."""
    # Ascending: where a column holds several near values, the best is written last.
    order = np.lexsort((counts, pairs.cells))
    total, best = np.zeros(index.columns, np.float32), np.zeros(index.columns, np.float32)
    ends = np.flatnonzero(np.diff(pairs.cells[order], append=-1)) + 1
    start = 0
    for stop in ends.tolist():
        here = order[start:stop]
        columns, which = postings(index, pairs.values[here])
        best[columns] = counts[here][which]
        total[columns] += best[columns]  # once, however often a column occurs
        start = stop
    return total


def postings(index: ValueIndex, values: Int) -> tuple[Int, Int]:
    """Return the columns that hold some values, and which value each holds."""
    lengths = index.frequency(values)
    which = np.repeat(np.arange(len(values)), lengths)
    starts = index.posting_offsets[values]
    places = np.arange(len(which)) + (starts - np.cumsum(lengths) + lengths)[which]
    return index.posting_columns[places], which


@dataclass(frozen=True)
class Meetings:
    """Where columns and cells meet: all near values; in order of column, cell, likeness."""

    columns: Int
    cells: Int
    values: Int
    similarities: Float | Real

    @classmethod
    def of(cls, pairs: CandidatePairs, index: ValueIndex, columns: Int) -> Meetings:
        """Find the pairs whose value is in each of some columns, numbered 0, 1, 2."""
        order = np.argsort(pairs.values, kind="stable")
        wanted = pairs.values[order]
        which, held = _held(index, columns, wanted)
        first = np.searchsorted(wanted, held)
        many = np.searchsorted(wanted, held, side="right") - first
        of_pair = order[np.arange(many.sum()) + np.repeat(first - np.cumsum(many) + many, many)]
        found = cls(
            np.repeat(which, many),
            *(pairs.cells[of_pair], pairs.values[of_pair], pairs.similarities[of_pair]),
        )
        return found._sorted()

    def _sorted(self) -> Meetings:
        keys = (self.values, -self.similarities, self.cells, self.columns)
        return self.where(np.lexsort(keys))

    def with_similarities(self, rows: Int, millionths: Int) -> Meetings:
        """Put exact similarities in the place of some."""
        # In double precision, so that what reaches a bound in millionths reaches it here.
        better = self.similarities.astype(np.float64)
        better[rows] = millionths / ONE
        return replace(self, similarities=better)._sorted()

    def where(self, chosen: npt.NDArray[np.bool_] | Int) -> Meetings:
        """Keep some of the meetings."""
        return Meetings(
            *(self.columns[chosen], self.cells[chosen]),
            *(self.values[chosen], self.similarities[chosen]),
        )

    def best(self) -> Meetings:
        """Keep the likest value of each cell in each column."""
        new = np.ones(len(self.columns), bool)
        new[1:] = (np.diff(self.columns) != 0) | (np.diff(self.cells) != 0)
        return self.where(new)


def _held(index: ValueIndex, columns: Int, wanted: Int) -> tuple[Int, Int]:
    """Return which of some columns hold which of the wanted values, ascending."""
    starts = np.asarray(index.column_offsets)[columns]
    sizes = index.sizes(columns)
    places = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    values = index.cell_values[places].astype(np.int64)
    if len(wanted) == 0:
        return (np.zeros(0, np.int64),) * 2
    at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    here = wanted[at] == values
    return np.repeat(np.arange(len(columns)), sizes)[here], values[here]


def shared_sums(best: Meetings, counts: Float, columns: int) -> Real:
    """Sum counts by column; of cells that share a best value, the n-th counts one n-th."""
    order = np.lexsort((best.cells, -counts, best.values, best.columns))
    columns_of, values = best.columns[order], best.values[order]
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(columns_of) != 0) | (np.diff(values) != 0)
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    turn = np.arange(len(order)) - first + 1
    return np.bincount(columns_of, counts[order] / turn, columns).astype(np.float64)
