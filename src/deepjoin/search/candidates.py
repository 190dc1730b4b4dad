"""Candidates: the columns that may join with a query, by equal cells and by similar cells.

Equal cells: postings are read rarest value first. When k columns already share more values with
the query than there are lists left, no unseen column can reach them, and the long lists are only
probed for the columns seen: the prefix filter that JOSIE builds on, in whole-array steps.

Similar cells: where a segment's values are few, all of them are compared with the query's; where
they are many, a few lists of near values are scanned instead (`deepjoin.embed.value_vectors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Float, Int, Int32, Integers, Marks, blocks, distinct, prefetch, ranges
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.scan import SLACK, CandidatePairs
from deepjoin.matching.similar import exact_similarities, postings_of
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.scores import CellMatches, PairScore
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.segment import Segment

#: One flag a column of a segment; not zero means marked.
Flags = npt.NDArray[np.uint8] | Marks

#: Below this many postings, sorting them all is faster than being clever.
_SCAN = 1 << 16
#: From this many candidates on, those that cannot be among the best are dropped first.
_MANY = 1 << 11
#: Below this many, plain Python is faster than a dozen array calls.
_FEW = 1 << 9
#: Postings of similar values read at a time.
_POSTINGS = 1 << 19
#: Cells compared with the values of candidates at a time; in between, a search can stop.
_CELLS = 1 << 12


def never() -> bool:
    """Never stop."""
    return False


@dataclass(frozen=True)
class OverlapCounts:
    """Columns that share a value with the query, and how many values each shares."""

    columns: Int32
    overlaps: Int

    def where(self, chosen: Marks) -> OverlapCounts:
        """Keep some of the columns."""
        return OverlapCounts(self.columns[chosen], self.overlaps[chosen])


class Overlap:
    """The posting lists of a query's values in one segment, rarest first."""

    def __init__(self, segment: Segment, query: SearchQuery) -> None:
        self.segment, self.values = segment, query.values_in(segment)
        index = segment.values
        values = self.values.numbers[self.values.known]
        frequency = index.frequency(values)
        self._order = np.argsort(frequency, kind="stable")
        self._frequency = frequency[self._order]
        self._lists = index.posting_lists(values[self._order], self._frequency)
        self._columns = index.columns

    def candidates(self, options: SearchOptions, demoted: Flags | None) -> OverlapCounts:
        """Find the live columns that can be among the best, except the query's own table."""
        dead, catalog = self.segment.dead, self.segment.catalog
        own = None if options.exclude is None else catalog.find_table(options.exclude)
        if options.columns is None:
            found = self.all()
        else:
            more = 0 if own is None else len(catalog.columns_of(own))
            second_class = demoted if dead is None else dead
            if demoted is not None and dead is not None:
                second_class = (demoted != 0) | dead
            found = self.best(options.columns + more, second_class)
        if dead is not None:
            found = found.where(~dead[found.columns])
        if own is not None:
            found = found.where(catalog.column_tables[found.columns] != own)
        return found

    def all(self) -> OverlapCounts:
        """Count the overlap of every column that shares a value."""
        return self._count(self._lists)

    def best(self, k: int, second_class: Flags | None) -> OverlapCounts:
        """Return at least all columns that can be among the best k, with exact overlaps.

        Columns marked in ``second_class`` rank behind all others, or were removed from the lake,
        so they do not count towards the k that stop the search.
        """
        rare = int(np.searchsorted(np.cumsum(self._frequency), _SCAN))
        left = len(self._lists) - rare
        if left > 0:
            seen = self._count(self._lists[:rare])
            least = _least_of_best(seen, k, second_class)
            if least > left:  # a column not seen yet has at most `left`
                possible = seen.where(seen.overlaps + left >= least)
                more = weigh(self._lists[rare:], np.ones(left, np.int64), possible.columns)
                return OverlapCounts(possible.columns, possible.overlaps + more)
        found = self._count(self._lists)
        if len(found.columns) <= _MANY:
            return found
        least = _least_of_best(found, k, second_class)
        return found.where(found.overlaps >= least)

    def weigh(self, columns: Int32, weights: Int) -> Int:
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

    def _count(self, lists: Sequence[Integers]) -> OverlapCounts:
        if not lists:
            return OverlapCounts(np.zeros(0, np.int32), np.zeros(0, np.int64))
        merged = np.concatenate(lists)
        if len(merged) > self._columns:  # long lists: one counter a column beats a sort
            counts = np.bincount(merged, minlength=self._columns)
            columns = np.flatnonzero(counts).astype(np.int32)
            return OverlapCounts(columns, counts[columns])
        merged.sort()
        changes = np.empty(len(merged) + 1, bool)
        changes[0] = changes[-1] = True
        np.not_equal(merged[1:], merged[:-1], out=changes[1:-1])
        bounds = np.flatnonzero(changes)
        # Wide again: in a byte, the column behind 255 would be 0.
        return OverlapCounts(merged[bounds[:-1]].astype(np.int32), np.diff(bounds))


def _least_of_best(found: OverlapCounts, k: int, second_class: Flags | None) -> int:
    """Return the overlap of the k-th best first-class candidate, 0 when there are fewer."""
    overlaps = found.overlaps
    if second_class is not None:
        overlaps = overlaps[second_class[found.columns] == 0]
    if len(overlaps) < k or k == 0:
        return 0
    # Overlaps are small numbers: counting them is faster than a partial sort.
    from_the_top = np.cumsum(np.bincount(overlaps)[::-1])
    return len(from_the_top) - 1 - int(np.searchsorted(from_the_top, k))


def weigh(lists: Sequence[Integers], weights: Int, columns: Int32) -> Int:
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


class SimilarCells:
    """The values of one segment that are similar to a query's cells, or equal to them."""

    def __init__(
        self,
        segment: Segment,
        query: SearchQuery,
        score: PairScore,
        encoder: CellEncoder,
        *,
        threads: int = 1,
    ) -> None:
        assert segment.cells is not None
        self.segment, self._query, self._score, self._encoder = segment, query, score, encoder
        self._cells: CellVectors = segment.cells
        self._threads = threads
        self.equal = query.values_in(segment).numbers
        self._near: list[CandidatePairs] = []
        #: What the cells of the query count in each column, as far as they were looked up.
        self.promised: Float = np.zeros(0, np.float32)
        #: Marks the cells whose similar values are all known: lists may miss some.
        self._found_all = np.zeros(len(query), bool)

    def look_up(self, cells: Int, probes: int | None) -> None:
        """Find values near some cells in ``probes`` lists for each; None compares all values.

        Call ``forget`` before looking up the same cells again.
        """
        vectors, least = self._query.encode(cells), self._score.least
        near = self._cells.near(vectors, least, self._threads, probes)
        self._near.append(near.renumbered(cells))
        self._found_all[cells] = probes is None or not self._cells.has_lists

    def forget(self) -> None:
        """Forget what was found."""
        self._near = []

    @property
    def _known(self) -> CandidatePairs:
        return CandidatePairs.concatenate([CandidatePairs.none(), *self._near])

    def known_matches(self, columns: Int) -> CellMatches:
        """Find which cells match which values of some columns, as far as they were looked up."""
        pairs = self._known.with_equal(self.equal)
        return CellMatches.of(pairs, self.segment.values, columns).ordered()

    def column_sums(self, exclude: str | None, scale: float = 1.0) -> Float:
        """Sum over the query's cells what the best pair of each counts, for every column.

        Each cell that was looked up stands for ``scale`` cells of the query; equal cells are
        all counted. Columns that are not part of the lake, or of the query's own table, have 0.
        """
        index = self.segment.values
        pairs = self._known
        pairs = pairs.where(pairs.values != self.equal[pairs.cells])
        counts = self._score(pairs.similarities)
        # Ascending: where a column holds several near values, the best is written last. One key,
        # half the time of two: the bits of a number from 0 order as it does.
        order = np.argsort(pairs.cells << 32 | counts.view(np.uint32))
        total, best = np.zeros(index.columns, np.float32), np.zeros(index.columns, np.float32)
        cells, values, counts = pairs.cells[order], pairs.values[order], counts[order]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        equals = self.equal[cells[starts]].tolist()
        bounds = np.append(starts, len(cells)).tolist()
        before = np.append(0, np.cumsum(index.frequency(values)))[bounds]
        # The postings of many cells are read together, as far as that takes little memory.
        for first, last in blocks(np.diff(before), _POSTINGS):
            some = slice(bounds[first], bounds[last])
            which, every = postings_of(index, values[some])
            counted = counts[some][which]
            for number in range(first, last):
                here = slice(*(before[number : number + 2] - before[first]).tolist())
                columns = every[here]
                best[columns] = counted[here]
                if equals[number] >= 0:  # these columns have the cell itself, counted below
                    best[index.postings(equals[number])] = 0
                total[columns] += best[columns]  # once, however often a column occurs
        _, columns = postings_of(index, self.equal[self.equal >= 0])
        if scale != 1:
            total *= np.float32(scale)
        np.add.at(total, columns, np.float32(1))
        if self.segment.dead is not None:
            total[self.segment.dead] = 0
        own = None if exclude is None else self.segment.catalog.find_table(exclude)
        if own is not None:
            total[self.segment.catalog.columns_of(own)] = 0
        return total

    def matches_in(
        self, columns: Int, cells: Int, stop: Callable[[], bool] = never
    ) -> tuple[CellMatches, int]:
        """Find which cells match which values of some columns, and how many cells were compared.

        Cells that ``stop`` leaves no time for match equal values alone, and so do cells that
        are not given.
        """
        if self._found_all[cells].all():
            chosen = np.zeros(len(self._found_all), bool)
            chosen[cells] = True
            known = [pairs.where(chosen[pairs.cells]) for pairs in self._near]
            return self._matches(known, columns), len(cells)
        index, least = self.segment.values, self._score.least
        starts, sizes = np.asarray(index.column_offsets[columns]), index.sizes(columns)
        prefetch(index.cell_values, starts, sizes)
        values = distinct(index.cell_values[ranges(starts, sizes)]).astype(np.int64)
        found: list[CandidatePairs] = []
        compared = 0
        while compared < len(cells) and not (compared and stop()):
            some = cells[compared : compared + _CELLS]
            vectors = self._query.encode(some)
            near = self._cells.vectors.among(values, vectors, least, self._threads)
            found.append(near.renumbered(some))
            compared += len(some)
        return self._matches(found, columns), compared

    def _matches(self, pairs: Sequence[CandidatePairs], columns: Int) -> CellMatches:
        every = CandidatePairs.concatenate([CandidatePairs.none(), *pairs]).with_equal(self.equal)
        matches = CellMatches.of(every, self.segment.values, columns)
        # What six bits leave open, a match or not, is computed again from the strings.
        error = self._cells.vectors.errors_of(matches.values) + SLACK
        needed = matches.decisive(self._score.tau, float(error.max(initial=0)))
        if not needed.all():
            matches, error = matches.where(needed), error[needed]
        unsure = np.abs(matches.similarities - self._score.tau) <= error
        rows = np.flatnonzero((matches.similarities < 1) & unsure)
        if len(rows) == 0:
            return matches.ordered()
        # Many columns hold the same value, so a pair of cells may come many times.
        decided, which = np.unique(
            matches.cells[rows] << 32 | matches.values[rows], return_inverse=True
        )
        different, places = np.unique(decided >> 32, return_inverse=True)
        vectors = self._query.encode(different)
        found = exact_similarities(vectors, places, self._exact, decided & 0xFFFFFFFF)
        return matches.with_similarities(rows, found[which]).ordered()

    def _exact(self, values: Int) -> Float:
        strings = self.segment.values.values
        return self._encoder.encode([strings[value] for value in values.tolist()])
