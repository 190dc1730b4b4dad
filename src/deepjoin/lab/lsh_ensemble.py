"""The method of LSH Ensemble, for comparison: estimated containments, never verified.

The evidence of a hit is measured for display and changes neither order nor membership.

datasketch chooses the partitions by size and, for each threshold, how many bands of how many
places to compare; it also runs the search. Only its hash tables, dictionaries of sets that take
about 64 KB a column and serve one threshold, are replaced by arrays that serve all thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Double, Int, Marks
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column
from deepjoin.normalise.canonical import hash_values
from deepjoin.optional import require
from deepjoin.search.context import SearchContext
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import Ranking
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.search.vectors import NearColumn, near_ranking, nearest_first
from deepjoin.store.segment import Segment

METHOD = "lsh-ensemble"
Hashes = npt.NDArray[np.uint32]
#: Length of a signature, the default of datasketch, and the seed of its permutations.
PLACES, SEED = 128, 1
#: The name that datasketch has for 32-bit permutations by odd factors.
SCHEME = "affine32"
#: Cells hashed at a time, so that they fit the cache of a processor.
_CELLS = 1 << 18
#: Containments searched in turn until enough columns are found.
THRESHOLDS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
#: Number of partitions, the default of datasketch.
_PARTITIONS = 16
#: Distinct sizes used to choose partitions, whose cost is quadratic in them.
_SIZES = 400
#: Multiplier of the hash of a band.
_FACTOR = np.uint32(0x9E3779B1)


def lsh_ensemble(context: SearchContext, join: str, tau: float | None) -> LshEnsemble:
    """Search by MinHash signatures; for semantic joins only the evidence is by meaning."""
    cells = context.cell_encoder() if join == "semantic" and context.has_cells else None
    return LshEnsemble(context.segments, context.profile, context.key, join=join, encoder=cells)


class LshEnsemble(Searcher):
    """Ranks by estimated containment; its tables hold all signatures in memory.

    Ties are broken by the name of the table, then by the position of the column.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        join: str = "equi",
        encoder: CellEncoder | None = None,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key = profile, key
        self._join, self._encoder = join, encoder
        self._permutations = Permutations.of_datasketch()
        self._columns = _ColumnsBySize(self._segments)
        self._signatures = self._columns.signatures(self._permutations)
        sizes = self._columns.sizes
        self._index = LshIndex(self._signatures, sizes) if len(sizes) else None

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        if options.threshold > 0:
            raise DeepJoinError(
                f"A minimum joinability came with method '{METHOD}', which does not verify its "
                "hits; min_joinability needs a method that does: use hybrid."
            )
        cells = SearchQuery(query, self._profile, self._key, self._encoder)
        held = cells.cells.values if cells.cells.hidden is None else cells.cells.hidden
        signature = self._permutations.signature(held) if held else np.zeros(0, np.uint32)
        watch.lap("encode")
        found = self._found(signature, len(held), options) if held and options.columns != 0 else []
        watch.lap("candidates")
        return near_ranking(cells, self._segments, found, METHOD, self._join, self._encoder)

    def _found(self, signature: Hashes, size: int, options: SearchOptions) -> list[NearColumn]:
        """Lower the threshold until the estimates of k columns reach it, or to the last one."""
        out = self._columns.excluded(options.exclude)
        rows = np.zeros(0, np.int64)
        estimates: Double = np.zeros(0)
        for threshold in THRESHOLDS if self._index is not None else ():
            assert self._index is not None
            more = self._index.find(signature, size, threshold)
            # Columns found at a higher threshold have their estimates already.
            more = np.setdiff1d(more if out is None else more[~out[more]], rows)
            sizes = self._columns.sizes[more]
            likely = containment(signature, size, self._signatures[more], sizes)
            rows, estimates = np.append(rows, more), np.append(estimates, likely)
            if options.columns is not None and (estimates >= threshold).sum() >= options.columns:
                break
        return self._columns.best(rows, estimates, options.columns)


class _ColumnsBySize:
    """The live columns of a lake with values, as rows in ascending order of size."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        every = [np.diff(np.asarray(one.values.column_offsets)) for one in segments]
        for sizes, segment in zip(every, segments, strict=True):
            if segment.dead is not None:
                sizes[segment.dead] = 0
        self._counts = [len(sizes) for sizes in every]
        sizes = np.concatenate([np.zeros(0, np.int64), *every])
        # LSH Ensemble partitions columns by size, so that a partition is a range of rows.
        order = np.argsort(sizes, kind="stable")
        #: The number of each row among all columns of all segments.
        self._places = order[np.searchsorted(sizes[order], 1) :]
        #: How many distinct values each row has, ascending.
        self.sizes: Int = sizes[self._places]

    def signatures(self, permutations: Permutations) -> Hashes:
        """Compute the signatures of all columns."""
        rows = np.full(sum(self._counts), -1)
        rows[self._places] = np.arange(len(self._places))
        signatures = np.empty((len(self._places), PLACES), np.uint32)
        ends = np.cumsum(self._counts).tolist()
        for segment, count, end in zip(self._segments, self._counts, ends, strict=True):
            sign_columns(segment, permutations, rows[end - count : end], signatures)
        return signatures

    def excluded(self, table: str | None) -> Marks | None:
        """Mark the rows of a table."""
        if all(table is None or one.find_table(table) is None for one in self._segments):
            return None
        marks = [excluded_columns(segment, table) for segment in self._segments]
        filled = [
            np.zeros(count, bool) if mark is None else mark
            for mark, count in zip(marks, self._counts, strict=True)
        ]
        return np.asarray(np.concatenate(filled)[self._places])

    def best(self, rows: Int, estimates: Double, k: int | None) -> list[NearColumn]:
        """Sort rows by their estimates, and keep the first k."""
        if k is not None and k < len(rows):
            least = np.partition(estimates, len(rows) - k)[len(rows) - k]
            rows, estimates = rows[estimates >= least], estimates[estimates >= least]
        ends = np.cumsum(self._counts)
        places = self._places[rows]
        owners = np.searchsorted(ends, places, side="right")
        columns = places - ends[owners] + np.array(self._counts, np.int64)[owners]
        each = zip(owners.tolist(), columns.tolist(), estimates.tolist(), strict=True)
        return nearest_first(self._segments, [NearColumn(*one) for one in each])[:k]


@dataclass(frozen=True)
class Permutations:
    """The permutations h -> factor * h + term of 32-bit hashes, wrapping around."""

    factors: Hashes
    terms: Hashes

    @classmethod
    def of_datasketch(cls) -> Permutations:
        """Take those of datasketch, so that its objects are compatible."""
        datasketch: Any = require("datasketch", "baselines", "Method 'lsh-ensemble'")
        return cls(*datasketch.MinHash(PLACES, SEED, scheme=SCHEME).permutations)

    def signature(self, values: Sequence[str]) -> Hashes:
        """Compute the signature of a set of distinct values."""
        return np.asarray(self.minima(mixed(hash_values(values)), np.zeros(1, np.int64))[0])

    def minima(self, cells: Hashes, starts: Int) -> Hashes:
        """Return the smallest permuted hashes of the sets that start at some cells, a row each."""
        found = np.empty((len(self.factors), len(starts)), np.uint32)
        permuted = np.empty_like(cells)
        for place, (factor, term) in enumerate(zip(self.factors, self.terms, strict=True)):
            np.multiply(cells, factor, out=permuted)
            np.add(permuted, term, out=permuted)
            np.minimum.reduceat(permuted, starts, out=found[place])
        return found.T


def mixed(hashes: npt.NDArray[np.uint64]) -> Hashes:
    """Shorten hashes to 32 bits and mix them, as this scheme of datasketch does."""
    short = hashes.astype(np.uint32)
    short ^= short >> np.uint32(16)
    short *= np.uint32(0x85EBCA6B)
    short ^= short >> np.uint32(13)
    short *= np.uint32(0xC2B2AE35)
    short ^= short >> np.uint32(16)
    return short


def sign_columns(
    segment: Segment, permutations: Permutations, rows: Int, signatures: Hashes
) -> None:
    """Write the signature of each column of a segment into its row; -1 skips a column."""
    index = segment.values
    hashes, offsets = mixed(np.asarray(index.hashes)), np.asarray(index.column_offsets)
    first, columns = 0, len(offsets) - 1
    while first < columns:
        # As many columns as fit, or one that is larger.
        last = int(np.searchsorted(offsets, offsets[first] + _CELLS, side="right")) - 1
        last = max(first + 1, last)
        cells = hashes[index.cell_values[offsets[first] : offsets[last]]]
        # No column of a lake is empty.
        found = permutations.minima(cells, offsets[first:last] - offsets[first])
        kept = rows[first:last] >= 0
        signatures[rows[first:last][kept]] = found[kept]
        first = last


def containment(signature: Hashes, size: int, signatures: Hashes, sizes: Int) -> Double:
    """Estimate the share of a set of this size that each of some other sets holds."""
    jaccard = (signatures == signature).sum(axis=1) / len(signature)
    shared = jaccard * (size + sizes) / (1 + jaccard)
    return np.asarray(np.minimum(shared, np.minimum(size, sizes)) / size)


class LshIndex:
    """LSH Ensemble over signatures of sets, sorted by size."""

    def __init__(self, signatures: Hashes, sizes: Int) -> None:
        bounds = _partitions(sizes)
        rows = {r for one in map(_tuned, THRESHOLDS) for r in one.params[:, 1].tolist()}
        turned = np.ascontiguousarray(signatures.T)  # the places of a band are contiguous
        tables = {r: [_Band(signatures, turned, b * r, r) for b in range(PLACES // r)]
                  for r in rows}  # fmt: skip
        ends = np.searchsorted(sizes, [upper for _, upper in bounds], side="right").tolist()
        starts = [0, *ends[:-1]]
        indexes = [
            {r: _banded(r, [_PartitionOfBand(table, *within) for table in tables[r]]) for r in rows}
            for within in zip(starts, ends, strict=True)
        ]
        self._ensembles = {}
        for threshold in THRESHOLDS:
            ensemble = copy(_tuned(threshold))
            ensemble.indexes = indexes
            ensemble.lowers, ensemble.uppers = (list(side) for side in zip(*bounds, strict=True))
            self._ensembles[threshold] = ensemble

    def find(self, signature: Hashes, size: int, threshold: float) -> Int:
        """Return the sets that may hold this share of a set, ascending."""
        from datasketch import LeanMinHash

        query = LeanMinHash(seed=SEED, hashvalues=signature, scheme=SCHEME)
        found = set(self._ensembles[threshold].query(query, size))
        return np.sort(np.fromiter(found, np.int64, len(found)))


@cache
def _tuned(threshold: float) -> Any:
    """Let datasketch choose the bands for a threshold; cached, because it is slow."""
    from datasketch import MinHashLSHEnsemble

    return MinHashLSHEnsemble(threshold, PLACES, _PARTITIONS)


def _banded(rows: int, tables: list[_PartitionOfBand]) -> Any:
    from datasketch import MinHashLSH

    lsh = MinHashLSH(num_perm=PLACES, params=(PLACES // rows, rows))
    lsh.hashtables = tables
    return lsh


def _partitions(sizes: Int) -> list[tuple[int, int]]:
    """Choose partitions of ascending sizes; if there are many, sizes are rounded up first."""
    from datasketch.lshensemble_partition import optimal_partitions

    distinct, counts = np.unique(sizes, return_counts=True)
    if len(distinct) > _SIZES:
        # Evenly in the logarithm: the error depends on the ratio of a size to the largest of its
        # partition.
        even = np.geomspace(distinct[0], distinct[-1], _SIZES)
        last = np.unique(np.searchsorted(distinct, even[1:] * (1 + 1e-9), side="right")) - 1
        starts = np.concatenate([[0], last[:-1] + 1])
        counts, distinct = np.add.reduceat(counts, starts), distinct[last]
    found = optimal_partitions(distinct, counts, _PARTITIONS)
    return [(int(lower), int(upper)) for lower, upper in found]


class _Band:
    """One band of all signatures: hash and number of each set in one integer, sorted."""

    def __init__(self, signatures: Hashes, turned: Hashes, first: int, rows: int) -> None:
        self._places = signatures[:, first : first + rows]
        keys = _keys(turned[first : first + rows]).astype(np.uint64) << np.uint64(32)
        self._entries = np.sort(keys | np.arange(len(keys), dtype=np.uint64))
        # A query looks up the same band for every partition and threshold.
        self._last: tuple[bytes, npt.NDArray[np.uint32]] = (b"", np.zeros(0, np.uint32))

    def find(self, band: bytes) -> npt.NDArray[np.uint32]:
        """Return the sets with this band, ascending."""
        last, found = self._last
        if last != band:
            places = np.frombuffer(band, np.uint32).byteswap()
            key = np.uint64(_keys(places[:, None])[0]) << np.uint64(32)
            start, stop = self._entries.searchsorted([key, key + np.uint64((1 << 32) - 1)])
            found = self._entries[start:stop].astype(np.uint32)
            found = np.asarray(found[(self._places[found] == places).all(axis=1)])
            self._last = band, found
        return found


def _keys(places: Hashes) -> Hashes:
    """Hash each column of places to one number."""
    keys: Hashes = places[0].copy()
    for place in places[1:]:
        keys *= _FACTOR
        keys += place
    return keys


class _PartitionOfBand:
    """The entries of a band in one partition, in the form of a hash table of datasketch."""

    def __init__(self, table: _Band, start: int, stop: int) -> None:
        self._table, self._start, self._stop = table, start, stop

    def __contains__(self, band: bytes) -> bool:
        return len(self._table.find(band)) > 0

    def __getitem__(self, band: bytes) -> list[int]:
        found = self._table.find(band)
        start, stop = found.searchsorted([self._start, self._stop])
        return list(found[start:stop].tolist())
