"""Pairs of a query's cell and a value of the lake, and the columns that hold the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Which cell of the query is near which value; all arrays run in parallel."""

    cells: Int
    values: Int
    #: The cosine is within the error of the similarity.
    similarities: Float
    errors: Float

    @classmethod
    def none(cls) -> Pairs:
        """Return no pairs."""
        nothing, zero = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return cls(nothing, nothing, zero, zero)

    @classmethod
    def concatenate(cls, parts: Sequence[Pairs]) -> Pairs:
        """Put lists of pairs one behind the other."""
        names = ("cells", "values", "similarities", "errors")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.cells)

    def where(self, chosen: npt.NDArray[Any]) -> Pairs:
        """Keep some of the pairs."""
        return Pairs(
            self.cells[chosen], self.values[chosen], self.similarities[chosen], self.errors[chosen]
        )

    def with_equal(self, numbers: Int) -> Pairs:
        """Let each cell match the value it equals, whatever the vectors say; -1: there is none."""
        other = self.where(self.values != numbers[self.cells])
        cells = np.flatnonzero(numbers >= 0)
        one, zero = np.ones(len(cells), np.float32), np.zeros(len(cells), np.float32)
        return Pairs.concatenate([other, Pairs(cells, numbers[cells], one, zero)])


@dataclass(frozen=True)
class Postings:
    """Columns that hold the values of pairs: which pair, which column, in order of the pairs."""

    pairs: Int
    columns: Int

    @classmethod
    def of(cls, pairs: Pairs, index: ValueIndex, excluded: Marks | None) -> Postings:
        """Look up who holds the values; excluded columns are left out."""
        starts = index.posting_offsets[pairs.values]
        lengths = index.frequency(pairs.values)
        which = np.repeat(np.arange(len(pairs)), lengths)
        places = np.arange(len(which)) + (starts - np.cumsum(lengths) + lengths)[which]
        postings = cls(which, index.posting_columns[places].astype(np.int64))
        return postings if excluded is None else postings.where(~excluded[postings.columns])

    def where(self, chosen: npt.NDArray[Any]) -> Postings:
        """Keep some of the postings."""
        return Postings(self.pairs[chosen], self.columns[chosen])
