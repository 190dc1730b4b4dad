"""Pairs of values worth comparing: those that share rare character trigrams or close vectors.

Comparing all pairs of two columns of 100,000 values is 10 billion comparisons. Values that are
written alike share trigrams that few others have, so each value is only compared with the values
that share its rarest ones, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deepjoin.arrays import Array, Double, Float, Int, ranges

#: Characters of a value that are compared; longer cells are texts rather than keys.
MOST_CHARACTERS = 400
#: Postings that all values together may read, and the least and the most for one value.
_POSTINGS, _LEAST, _MOST = 20_000_000, 200, 4000
#: Postings that are added up at a time, and pairs that may have a counter each.
_BLOCK, _DENSE = 4_000_000, 16_000_000
#: Scores from which the best are chosen before they are put in order.
_MANY = 10_000


@dataclass(frozen=True)
class Grams:
    """The distinct trigrams of values, by value: ``starts`` has one entry more than values."""

    starts: Int
    grams: Int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def owners(self) -> Int:
        """The value of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @classmethod
    def of(cls, values: list[str]) -> Grams:
        """Cut values, with a space at both ends, into trigrams; grams are hashes."""
        texts = [f" {value[:MOST_CHARACTERS]} " for value in values]
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), np.uint32)
        lengths = np.array([len(text) for text in texts], np.int64)
        ends = np.cumsum(lengths)
        at = ranges(ends - lengths, np.maximum(lengths - 2, 0))
        wide = codes.astype(np.int64)
        # 21 bits hold any character, so three of them are one number without collisions.
        grams = (wide[at] << 42) | (wide[at + 1] << 21) | wide[at + 2]
        owners = np.repeat(np.arange(len(texts)), np.maximum(lengths - 2, 0))
        order = np.lexsort((grams, owners))
        owners, grams = owners[order], grams[order]
        new = np.ones(len(grams), bool)
        new[1:] = (owners[1:] != owners[:-1]) | (grams[1:] != grams[:-1])
        owners, grams = owners[new], grams[new]
        return cls(np.searchsorted(owners, np.arange(len(texts) + 1)), grams)


class GramSpace:
    """Trigrams of two columns with their weights: rare ones weigh more.

    With ``groups``, the pair of columns that each value is of, several such pairs: a trigram then
    has a weight in each.
    """

    def __init__(
        self, left: list[str], right: list[str], groups: tuple[Int, Int] | None = None
    ) -> None:
        sides = Grams.of(left), Grams.of(right)
        known, numbers = np.unique(
            np.concatenate([side.grams for side in sides]), return_inverse=True
        )
        values: Int | int = len(left) + len(right)
        if groups is not None:
            owners = [of[side.owners] for of, side in zip(groups, sides, strict=True)]
            numbers = np.concatenate(owners) * len(known) + numbers
            apart, numbers = np.unique(numbers, return_inverse=True)
            values = np.bincount(np.concatenate(groups))[apart // len(known)]
            known = apart
        split = len(sides[0].grams)
        self.left = Grams(sides[0].starts, numbers[:split])
        self.right = Grams(sides[1].starts, numbers[split:])
        counts = np.bincount(numbers, minlength=len(known))
        self.weights: Double = np.log1p(values / np.maximum(counts, 1)) ** 2
        self._count = len(known)

    def norms(self, side: Grams) -> Double:
        """Return the length of each value's vector of weights."""
        sums = np.bincount(side.owners, self.weights[side.grams], len(side))
        return np.sqrt(np.maximum(sums, 1e-12))

    def cosines(self, left: Int, right: Int, sides: tuple[Grams, Grams]) -> Double:
        """Compare pairs: the cosine of weighted trigrams."""
        mine, theirs = sides
        keys = theirs.owners * self._count + theirs.grams
        lengths = np.diff(mine.starts)[left]
        at = ranges(mine.starts[left], lengths)
        pair = np.repeat(np.arange(len(left)), lengths)
        wanted = right[pair] * self._count + mine.grams[at]
        if len(keys) == 0 or len(wanted) == 0:
            return np.zeros(len(left))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        shared = keys[place] == wanted
        dots = np.bincount(pair[shared], self.weights[mine.grams[at[shared]]], len(left))
        return dots / (self.norms(mine)[left] * self.norms(theirs)[right])

    def nearest(self, sides: tuple[Grams, Grams], count: int, same: bool) -> tuple[Int, Int]:
        """Propose for each value of the first side up to ``count`` of the second.

        ``same`` says that both sides are one column: a value is not proposed to itself.
        """
        mine, theirs = sides
        # Postings: the values of theirs by gram.
        order = np.argsort(theirs.grams, kind="stable")
        holders = theirs.owners[order]
        starts = np.searchsorted(theirs.grams[order], np.arange(self._count + 1))
        sizes = np.diff(starts)
        owners = mine.owners
        rare = np.lexsort((sizes[mine.grams], owners))
        owners, grams = owners[rare], mine.grams[rare]
        reads = np.cumsum(sizes[grams])
        before = np.concatenate([[0], reads])[mine.starts[:-1]]
        spent = reads - sizes[grams] - before[owners]
        budget = np.clip(_POSTINGS // max(len(mine), 1), _LEAST, _MOST)
        used = (spent < budget) & (sizes[grams] > 0)
        # One gram may be everywhere: its postings alone could exceed what memory holds.
        used &= sizes[grams] <= max(4 * int(budget), 1000)
        owners, grams = owners[used], grams[used]
        norms = self.norms(theirs)
        found: list[tuple[Array, Array]] = []
        for begin, end in _blocks(sizes[grams], owners):
            here = grams[begin:end]
            reach = sizes[here]
            at = ranges(starts[here], reach)
            pairs = np.repeat(owners[begin:end], reach) * len(theirs) + holders[at]
            weights = np.repeat(self.weights[here], reach)
            first = int(owners[begin]) * len(theirs)
            if (int(owners[end - 1]) + 1) * len(theirs) - first <= _DENSE:
                # A counter for every pair is several times as fast as sorting them.
                sums = np.bincount(pairs - first, weights)
                distinct = np.flatnonzero(sums)
                sums, distinct = sums[distinct], distinct + first
            else:
                distinct, inverse = np.unique(pairs, return_inverse=True)
                sums = np.bincount(inverse, weights)
            who, other = np.divmod(distinct, len(theirs))
            scores = sums / norms[other]
            if same:
                kept = who != other
                who, other, scores = who[kept], other[kept], scores[kept]
            best = leading(who, scores, count)
            found.append((who[best], other[best]))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        who, other = (np.concatenate(part) for part in zip(*found, strict=True))
        return who, other


def _blocks(reads: Int, owners: Int) -> Iterator[tuple[int, int]]:
    """Split entries into blocks of whole owners that read about ``_BLOCK`` postings each."""
    if len(owners) == 0:
        return
    ends = np.flatnonzero(np.diff(owners, append=-1)) + 1
    total = np.cumsum(reads)[ends - 1]
    begin, base = 0, 0
    for end, read in zip(ends.tolist(), total.tolist(), strict=True):
        if read - base >= _BLOCK or end == len(owners):
            yield begin, end
            begin, base = end, read


def leading(owners: Int, scores: Array, count: int) -> Int:
    """Return the places of each owner's ``count`` best scores, owner by owner, best first."""
    if len(owners) > _MANY:
        some = _possible(owners, scores, count)
        if len(some) < len(owners):
            return some[leading(owners[some], scores[some], count)]
    order = np.lexsort((-scores, owners))
    sorted_ = owners[order]
    first = np.searchsorted(sorted_, sorted_, side="left")
    return order[np.arange(len(order)) - first < count]


def _possible(owners: Int, scores: Array, count: int) -> Int:
    """Leave out scores that are certainly not among the ``count`` best of their owner."""
    low = float(scores.min())
    span = float(scores.max()) - low or 1.0
    # One number orders by owner, then by score: it is sorted much faster than two keys.
    keys = owners + (1 - (scores - low) / span) * 0.5
    counts = np.bincount(owners)
    ends = np.cumsum(counts)
    last = np.minimum(ends - counts + count, ends) - 1
    bounds = np.sort(keys)[last] + 1e-6
    return np.flatnonzero(keys <= bounds[owners])


def near_vectors(mine: Float, theirs: Float, count: int, least: float) -> tuple[Int, Int]:
    """Propose for each vector up to ``count`` that are close; approximate where they are many."""
    from deepjoin.matching.joinability import ONE
    from deepjoin.matching.similar import ROWS, SimilarValues

    if len(mine) * len(theirs) <= 1_000_000_000:
        targets = SimilarValues(theirs)
        found = []
        for start in range(0, len(mine), ROWS):
            near = targets.nearest(mine[start : start + ROWS], count, round(least * ONE))
            found.append((near.mine + start, near.theirs))
        who, other = (np.concatenate(part) for part in zip(*found, strict=True))
        return who, other
    import faiss

    lists = int(np.sqrt(len(theirs)))
    coarse = faiss.IndexFlatIP(theirs.shape[1])
    index = faiss.IndexIVFFlat(coarse, theirs.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.nprobe = 5, 4
    index.train(theirs[:: max(1, len(theirs) // (64 * lists))])
    index.add(theirs)
    cosines, places = index.search(mine, count)
    row, at = np.nonzero((cosines >= least) & (places >= 0))
    return row, places[row, at].astype(np.int64)
