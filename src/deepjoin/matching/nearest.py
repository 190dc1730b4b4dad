"""Nearest vectors, exactly: single-precision products in blocks find candidates, which are weighed.

A block of products is all that is held at a time, so a million values can meet a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.matching.joinability import ONE, similarities

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: Rows of mine and of theirs whose products are held at a time: 64 MB.
ROWS, COLUMNS = 2048, 8192
#: Pairs weighed at a time; each is a row of double precision on both sides.
_WEIGHED = 1 << 16


@dataclass(frozen=True)
class ValuePairs:
    """Which value of mine meets which of theirs, by number; similarities in millionths."""

    mine: Ints
    theirs: Ints
    similarities: Ints

    @classmethod
    def none(cls) -> ValuePairs:
        """Return no pairs."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def concatenate(cls, parts: Iterable[ValuePairs]) -> ValuePairs:
        """Put lists of pairs one behind the other."""
        some = [cls.none(), *parts]
        names = ("mine", "theirs", "similarities")
        return cls(*(np.concatenate([getattr(part, name) for part in some]) for name in names))

    def __len__(self) -> int:
        return len(self.mine)

    def where(self, chosen: npt.NDArray[Any]) -> ValuePairs:
        """Keep some of the pairs."""
        return ValuePairs(self.mine[chosen], self.theirs[chosen], self.similarities[chosen])

    def renumbered(self, mine: Ints, theirs: Ints) -> ValuePairs:
        """Give each side the numbers that its values have elsewhere."""
        return ValuePairs(mine[self.mine], theirs[self.theirs], self.similarities)

    def leading(self, count: int) -> ValuePairs:
        """Keep the most similar pairs of each value of mine, of equals the first of theirs."""
        order = np.lexsort((self.theirs, -self.similarities, self.mine))
        mine = self.mine[order]
        firsts = np.searchsorted(mine, mine, side="left")
        return self.where(order[np.arange(len(order)) - firsts < count])


class Targets:
    """The unit vectors of their values, to be scanned for those nearest to some of mine."""

    def __init__(self, vectors: Floats) -> None:
        self._vectors = vectors
        # Twice the most that summing products in single precision can lose, and a rounding.
        self._slack = np.float32(2 * vectors.shape[1] * np.finfo(np.float32).eps + 2 / ONE)

    def nearest(self, rows: Floats, count: int, least: int) -> ValuePairs:
        """Return for each row its most similar vectors, up to ``count``, that reach ``least``."""
        found = ValuePairs.none()
        bound = np.full(len(rows), least / ONE, np.float32)
        for start, products in self._products(rows):
            near = self._leading(products, bound - self._slack, count)
            if not len(near[0]):
                continue
            weighed = self._weighed(rows, near, start, least)
            found = ValuePairs.concatenate([found, weighed]).leading(count)
            mine, places = np.unique(found.mine, return_index=True)
            full = np.diff(places, append=len(found)) == count
            last = found.similarities[places[full] + count - 1]
            bound[mine[full]] = (last / ONE).astype(np.float32)
        return found

    def reaching(self, rows: Floats, least: int) -> Iterator[ValuePairs]:
        """Return all pairs that reach ``least``, a block at a time."""
        for start, products in self._products(rows):
            mine, theirs = np.nonzero(products >= np.float32(least / ONE) - self._slack)
            if len(mine):
                yield self._weighed(rows, (mine, theirs), start, least)

    def _products(self, rows: Floats) -> Iterator[tuple[int, Floats]]:
        for start in range(0, len(self._vectors), COLUMNS):
            yield start, rows @ self._vectors[start : start + COLUMNS].T

    def _leading(self, products: Floats, bound: Floats, count: int) -> tuple[Ints, Ints]:
        """Find the places that may hold a row's most similar vectors."""
        rows = np.flatnonzero(products.max(axis=1) >= bound)
        some, lowest = products[rows], bound[rows]
        if count < some.shape[1]:
            last = np.partition(some, -count, axis=1)[:, -count]
            lowest = np.maximum(lowest, last - self._slack)
        places, columns = np.nonzero(some >= lowest[:, None])
        return rows[places], columns

    def _weighed(self, rows: Floats, near: tuple[Ints, Ints], start: int, least: int) -> ValuePairs:
        """Compute candidates in double precision and keep those that reach ``least``."""
        mine, theirs = near[0], near[1] + start
        exact = np.zeros(len(mine), np.int64)
        for first in range(0, len(mine), _WEIGHED):
            part = slice(first, first + _WEIGHED)
            exact[part] = similarities(rows[mine[part]], self._vectors[theirs[part]])
        return ValuePairs(mine, theirs, exact).where(exact >= least)
