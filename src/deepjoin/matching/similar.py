"""Which values are similar: the one place that finds them, for search, joins and training.

It takes two steps. Candidates come from one of three searches: a scan of rounded vectors, which
misses nothing (`ValueVectors.near`), lists of near values, which look at a part
(`ValueLists.near`), or products in single precision, block by block, whose bound rises as better
values are found (`SimilarValues`). Then the exact vectors decide (`exact_similarities`): in
double precision, rounded to whole millionths, so all callers agree to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deepjoin.arrays import Array, Float, Int, Int32, distinct
from deepjoin.embed.scan import CandidatePairs
from deepjoin.embed.value_vectors import ValueVectors
from deepjoin.matching.joinability import ONE, similarities
from deepjoin.progress import check_stop

if TYPE_CHECKING:
    from deepjoin.store.values.index import ValueIndex

#: Returns the vectors of values, by their numbers, exactly as the encoder computes them.
ExactVectors = Callable[[Int], Float]

#: Rows of mine and of theirs whose products are held at a time: 64 MB.
ROWS, COLUMNS = 2048, 8192
#: Pairs decided at a time; each is a row of double precision on both sides.
_DECIDED = 1 << 16


def exact_similarities(queries: Float, cells: Int, exact: ExactVectors, values: Int) -> Int:
    """Return the similarity of each cell with its value, in millionths, from exact vectors."""
    different, rows = np.unique(values, return_inverse=True)
    vectors = exact(different)
    decided = np.empty(len(cells), np.int64)
    for start in range(0, len(cells), _DECIDED):
        check_stop()
        part = slice(start, start + _DECIDED)
        decided[part] = similarities(vectors[rows[part]], queries[cells[part]])
    return decided


def postings_of(index: ValueIndex, values: Int) -> tuple[Int, Int32]:
    """Return the columns that hold some values, as pairs of (which value, column)."""
    lengths = index.frequency(values)
    return np.repeat(np.arange(len(values)), lengths), index.holders(values, lengths)


class ExactPairs:
    """Candidate pairs of one query, decided on demand: each similarity is computed once."""

    def __init__(self, pairs: CandidatePairs, queries: Float, exact: ExactVectors) -> None:
        self.pairs = pairs
        self._queries, self._exact = queries, exact
        self._known = np.where(pairs.errors > 0, -1, ONE)

    def similarities(self, wanted: Int) -> Int:
        """Return the similarities of some pairs in millionths; 0 for those below."""
        new = distinct(wanted[self._known[wanted] < 0])
        if len(new):
            cells, values = self.pairs.cells[new], self.pairs.values[new]
            found = exact_similarities(self._queries, cells, self._exact, values)
            self._known[new] = np.maximum(found, 0)
        return self._known[wanted]


@dataclass(frozen=True)
class ValuePairs:
    """Which value of mine meets which of theirs, by number; similarities in millionths."""

    mine: Int
    theirs: Int
    similarities: Int

    @classmethod
    def none(cls) -> ValuePairs:
        """Return no pairs."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def concatenate(cls, parts: Iterable[ValuePairs]) -> ValuePairs:
        """Concatenate lists of pairs."""
        some = [cls.none(), *parts]
        names = ("mine", "theirs", "similarities")
        return cls(*(np.concatenate([getattr(part, name) for part in some]) for name in names))

    def __len__(self) -> int:
        return len(self.mine)

    def where(self, chosen: Array) -> ValuePairs:
        """Keep some of the pairs."""
        return ValuePairs(self.mine[chosen], self.theirs[chosen], self.similarities[chosen])

    def renumbered(self, mine: Int, theirs: Int) -> ValuePairs:
        """Renumber both sides: each value by its number elsewhere."""
        return ValuePairs(mine[self.mine], theirs[self.theirs], self.similarities)

    def leading(self, count: int) -> ValuePairs:
        """Keep the most similar pairs of each value of mine, of equals the first of theirs."""
        order = np.lexsort((self.theirs, -self.similarities, self.mine))
        mine = self.mine[order]
        firsts = np.searchsorted(mine, mine, side="left")
        return self.where(order[np.arange(len(order)) - firsts < count])


class SimilarValues:
    """The unit vectors of their values, searched exactly for those similar to some of mine.

    Products in blocks suit few values a row: a block is all that is held at a time, so a million
    values can meet a million. ``eight_bit`` scans 8-bit copies instead: faster where every value
    above a floor is wanted, for a quarter more memory.
    """

    def __init__(self, vectors: Float, *, eight_bit: bool = False, threads: int = 2) -> None:
        self._vectors, self._threads = vectors, threads
        self._scanned = ValueVectors.of(vectors) if eight_bit else None
        # Twice the most that summing products in single precision can lose, and a rounding.
        self._slack = np.float32(2 * vectors.shape[1] * np.finfo(np.float32).eps + 2 / ONE)

    def nearest(self, rows: Float, count: int, least: int) -> ValuePairs:
        """Return for each row its most similar vectors, up to ``count``, that reach ``least``."""
        found = ValuePairs.none()
        bound = np.full(len(rows), least / ONE, np.float32)
        for mine, theirs in self._candidates(rows, bound, least, count):
            decided = self._decided(rows, mine, theirs, least)
            found = ValuePairs.concatenate([found, decided]).leading(count)
            # Later candidates of a row that has enough must reach its last.
            owners, places = np.unique(found.mine, return_index=True)
            full = np.diff(places, append=len(found)) == count
            last = found.similarities[places[full] + count - 1]
            bound[owners[full]] = (last / ONE).astype(np.float32)
        return found

    def reaching(self, rows: Float, least: int) -> Iterator[ValuePairs]:
        """Return all pairs that reach ``least``, a block at a time."""
        bound = np.full(len(rows), least / ONE, np.float32)
        for mine, theirs in self._candidates(rows, bound, least, None):
            yield self._decided(rows, mine, theirs, least)

    def _candidates(
        self, rows: Float, bound: Float, least: int, count: int | None
    ) -> Iterator[tuple[Int, Int]]:
        """Find what may be among the best ``count`` of a row, or may reach its bound.

        The caller may raise bounds between one block and the next.
        """
        if self._scanned is not None:
            pairs = self._scanned.near(rows, least / ONE, self._threads)
            yield pairs.cells, pairs.values
            return
        for start in range(0, len(self._vectors), COLUMNS):
            check_stop()
            products = rows @ self._vectors[start : start + COLUMNS].T
            lowest = bound - self._slack
            some = np.flatnonzero(products.max(axis=1) >= lowest)
            products, lowest = products[some], lowest[some]
            if count is not None and count < products.shape[1]:
                last = np.partition(products, -count, axis=1)[:, -count]
                lowest = np.maximum(lowest, last - self._slack)
            places, columns = np.nonzero(products >= lowest[:, None])
            if len(places):
                yield some[places], columns + start

    def _decided(self, rows: Float, mine: Int, theirs: Int, least: int) -> ValuePairs:
        exact = exact_similarities(rows, mine, self._vectors.__getitem__, theirs)
        return ValuePairs(mine, theirs, exact).where(exact >= least)
