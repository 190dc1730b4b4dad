"""Between what and what the score of each column lies, from similarities with errors.

A cell of the query counts once for a column, with its best match there. Columns that cannot be
among the best need no exact similarity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.embed.pairs import Pairs, Postings
from deepjoin.embed.scan import SLACK
from deepjoin.matching.joinability import ONE
from deepjoin.matching.joinability import least as least_of

Scores = npt.NDArray[np.float64]


#: Turns cosines into what they are worth, 0 to 1; never less for a higher cosine.
Worth = Callable[[Scores], npt.NDArray[Any]]


@dataclass(frozen=True)
class Measure:
    """How a cell's best similarity counts: in full ("semantic"), or what it is worth ("any")."""

    join: str
    #: The cosine that makes a match.
    floor: float
    #: For "any": what a cosine counts; itself if None.
    worth: Worth | None = None

    @property
    def least(self) -> int:
        """The floor in millionths."""
        return least_of(self.floor)

    def counted(self, similarities: npt.NDArray[Any]) -> Scores:
        """Turn best similarities, in millionths, into the millionths they add to a score."""
        return np.where(similarities >= self.least, self._worth(similarities), 0.0)

    def most(self, similarities: npt.NDArray[Any]) -> Scores:
        """Return what similarities up to these count at most."""
        # A function of the caller may fall by what rounding does; ours do not.
        spare = 0.0 if self.worth is None else 1.0
        return np.where(similarities >= self.least, self._worth(similarities) + spare, 0.0)

    def _worth(self, similarities: npt.NDArray[Any]) -> Scores:
        if self.join == "semantic":
            return np.full(similarities.shape, float(ONE))
        if self.worth is None:
            return similarities.astype(np.float64)
        return np.rint(ONE * self.worth(similarities / ONE).astype(np.float64))


@dataclass(frozen=True)
class Bounds:
    """Of every column of a segment, the least and the most its summed score can be."""

    lower: Scores
    upper: Scores

    @classmethod
    def of(cls, pairs: Pairs, postings: Postings, columns: int, measure: Measure) -> Bounds:
        """Add up the best bounds of each cell in each column."""
        low, high = pair_bounds(pairs)
        low, high = measure.counted(low), measure.most(high)
        return cls(_summed(pairs, postings, columns, low), _summed(pairs, postings, columns, high))


def pair_bounds(pairs: Pairs) -> tuple[Scores, Scores]:
    """Return the least and the most each pair's similarity can be, in millionths."""
    # Equal cells are known to be 1; anything else stays below what rounding could add.
    error = np.where(pairs.errors > 0, pairs.errors + SLACK, 0.0)
    similarity = pairs.similarities.astype(np.float64)
    return np.maximum(similarity - error, 0) * ONE, np.minimum(similarity + error, 1) * ONE


def _summed(pairs: Pairs, postings: Postings, columns: int, counted: Scores) -> Scores:
    """Sum over the cells what the best pair of each cell counts for each column."""
    counts = counted[postings.pairs]
    cells = pairs.cells[postings.pairs]
    used = np.flatnonzero(counts > 0)
    order = used[np.lexsort((counts[used], cells[used]))]
    ends = np.flatnonzero(np.diff(cells[order], append=-1)) + 1
    total, best = np.zeros(columns), np.zeros(columns)
    start = 0
    for stop in ends.tolist():
        here = order[start:stop]
        at = postings.columns[here]
        best[at] = counts[here]  # ascending: of the same column, the best is written last
        total[at] += best[at]  # and added once, however often the column occurs
        start = stop
    return total
