"""Overlap of a query with every column of the lake, from the postings, exactly.

Postings are read rarest value first. When k columns already share more values with the query
than there are lists left, no unseen column can reach them, and the long lists are only probed
for the columns seen: the prefix filter that JOSIE builds on, in whole-array steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Columns = npt.NDArray[np.int32]
#: One flag a column of a segment; not zero means marked.
Marks = npt.NDArray[np.uint8] | npt.NDArray[np.bool_]

#: Below this many postings, sorting them all is faster than being clever.
_SCAN = 1 << 16
#: From this many candidates on, those that cannot be among the best are dropped first.
_MANY = 1 << 11
#: Below this many, plain Python is faster than a dozen array calls.
_FEW = 1 << 9


@dataclass(frozen=True)
class Candidates:
    """Columns that share a value with the query, and how many values each shares."""

    columns: Columns
    overlaps: Int

    def where(self, chosen: npt.NDArray[np.bool_]) -> Candidates:
        """Keep some of the candidates."""
        return Candidates(self.columns[chosen], self.overlaps[chosen])


class Overlap:
    """The posting lists of one query's values, rarest first."""

    def __init__(self, index: ValueIndex, values: Int) -> None:
        frequency = index.frequency(values)
        self._order = np.argsort(frequency, kind="stable")
        self._frequency = frequency[self._order]
        self._lists = [index.postings(value) for value in values[self._order].tolist()]
        self._columns = index.columns

    def all(self) -> Candidates:
        """Count the overlap of every column that shares a value."""
        return self._count(self._lists)

    def best(self, k: int, second_class: Marks | None) -> Candidates:
        """Return at least all columns that can be among the best k, with exact overlaps.

        Columns marked in ``second_class`` rank behind all others, or are no part of the lake
        any more, so they do not count towards the k that stop the search.
        """
        rare = int(np.searchsorted(np.cumsum(self._frequency), _SCAN))
        left = len(self._lists) - rare
        if left > 0:
            seen = self._count(self._lists[:rare])
            least = _least_of_best(seen, k, second_class)
            if least > left:  # a column not seen yet has at most `left`
                possible = seen.where(seen.overlaps + left >= least)
                more = weigh(self._lists[rare:], np.ones(left, np.int64), possible.columns)
                return Candidates(possible.columns, possible.overlaps + more)
        found = self._count(self._lists)
        if len(found.columns) <= _MANY:
            return found
        least = _least_of_best(found, k, second_class)
        return found.where(found.overlaps >= least)

    def weigh(self, columns: Columns, weights: Int) -> Int:
        """Sum, for each of these columns, the weights of the values it shares with the query."""
        weights = weights[self._order]
        if self._frequency.sum() > _FEW:
            return weigh(self._lists, weights, columns)
        sums = dict.fromkeys(columns.tolist(), 0)
        for one, weight in zip(self._lists, weights.tolist(), strict=True):
            for column in one.tolist():
                if column in sums:
                    sums[column] += weight
        return np.array(list(sums.values()), np.int64)

    def _count(self, lists: Sequence[Columns]) -> Candidates:
        if not lists:
            return Candidates(np.zeros(0, np.int32), np.zeros(0, np.int64))
        merged = np.concatenate(lists)
        if len(merged) > self._columns:  # long lists: one counter a column beats a sort
            counts = np.bincount(merged, minlength=self._columns)
            columns = np.flatnonzero(counts).astype(np.int32)
            return Candidates(columns, counts[columns])
        merged.sort()
        changes = np.empty(len(merged) + 1, bool)
        changes[0] = changes[-1] = True
        np.not_equal(merged[1:], merged[:-1], out=changes[1:-1])
        bounds = np.flatnonzero(changes)
        return Candidates(merged[bounds[:-1]], np.diff(bounds))


def _least_of_best(found: Candidates, k: int, second_class: Marks | None) -> int:
    """Return the overlap of the k-th best first-class candidate, 0 when there are fewer."""
    overlaps = found.overlaps
    if second_class is not None:
        overlaps = overlaps[second_class[found.columns] == 0]
    if len(overlaps) < k or k == 0:
        return 0
    # Overlaps are small numbers: counting them is faster than a partial sort.
    from_the_top = np.cumsum(np.bincount(overlaps)[::-1])
    return len(from_the_top) - 1 - int(np.searchsorted(from_the_top, k))


def weigh(lists: Sequence[Columns], weights: Int, columns: Columns) -> Int:
    """Sum, for each column, the weights of the lists it is in.

    Short lists are searched among the columns, all at once; the columns in each long list.
    """
    order = np.argsort(columns, kind="stable")
    wanted = columns[order]
    total = np.zeros(len(wanted), np.int64)
    lengths = np.array([len(one) for one in lists], np.int64)
    short = lengths <= max(256, 16 * len(wanted))
    if short.any():
        merged = np.concatenate(
            [one for one, is_short in zip(lists, short, strict=True) if is_short]
        )
        at = np.minimum(np.searchsorted(wanted, merged), len(wanted) - 1)
        here = wanted[at] == merged
        each = np.repeat(weights[short], lengths[short])[here]
        # Sums stay far below 2**53, so the floating-point counter is exact.
        total += np.bincount(at[here], each, len(wanted)).astype(np.int64)
    for number in np.flatnonzero(~short).tolist():
        one = lists[number]
        at = np.minimum(np.searchsorted(one, wanted), len(one) - 1)
        total[one[at] == wanted] += weights[number]
    result = np.empty_like(total)
    result[order] = total
    return result
