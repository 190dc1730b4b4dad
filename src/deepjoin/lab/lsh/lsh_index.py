"""LSH Ensemble of datasketch for every threshold at once, its hash tables held as arrays.

datasketch chooses the partitions by size, and for each threshold how many bands of how many
places to look at; it also runs the search. Only its tables, which are dictionaries of sets, are
replaced: they take about 64 KB a column, and one set of them serves a single threshold.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.lab.lsh.minhash import PLACES, SCHEME, SEED, Hashes, Int

#: Containments searched for, one after the other, until enough columns are found.
THRESHOLDS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
#: As many partitions as datasketch has by default.
_PARTITIONS = 16
#: Sizes told apart when partitions are chosen, which takes the square of them.
_SIZES = 400
#: Makes one number of the places of a band.
_FACTOR = np.uint32(0x9E3779B1)


class LshIndex:
    """Sets by signature and size, ascending by size; finds those that may contain a query."""

    def __init__(self, signatures: Hashes, sizes: Int) -> None:
        bounds = _partitions(sizes)
        rows = {r for one in map(_tuned, THRESHOLDS) for r in one.params[:, 1].tolist()}
        turned = np.ascontiguousarray(signatures.T)  # a band's places lie together
        tables = {r: [_Band(signatures, turned, b * r, r) for b in range(PLACES // r)]
                  for r in rows}  # fmt: skip
        ends = np.searchsorted(sizes, [upper for _, upper in bounds], side="right").tolist()
        starts = [0, *ends[:-1]]
        indexes = [
            {r: _banded(r, [_Part(table, *within) for table in tables[r]]) for r in rows}
            for within in zip(starts, ends, strict=True)
        ]
        self._ensembles = {threshold: _filled(threshold, indexes, bounds)
                           for threshold in THRESHOLDS}  # fmt: skip

    def find(self, signature: Hashes, size: int, threshold: float) -> Int:
        """Return the sets that may hold this share of a set, ascending."""
        from datasketch import LeanMinHash

        asked = LeanMinHash(seed=SEED, hashvalues=signature, scheme=SCHEME)
        found = set(self._ensembles[threshold].query(asked, size))
        return np.sort(np.fromiter(found, np.int64, len(found)))


@cache
def _tuned(threshold: float) -> Any:
    """Let datasketch choose the bands for a threshold, which takes it a while."""
    from datasketch import MinHashLSHEnsemble

    return MinHashLSHEnsemble(threshold, PLACES, _PARTITIONS)


def _filled(threshold: float, indexes: list[dict[int, Any]], bounds: list[tuple[int, int]]) -> Any:
    """Give an ensemble of datasketch tables that are filled already."""
    ensemble = copy(_tuned(threshold))
    ensemble.indexes = indexes
    ensemble.lowers, ensemble.uppers = (list(side) for side in zip(*bounds, strict=True))
    return ensemble


def _banded(rows: int, tables: list[_Part]) -> Any:
    from datasketch import MinHashLSH

    lsh = MinHashLSH(num_perm=PLACES, params=(PLACES // rows, rows))
    lsh.hashtables = tables
    return lsh


def _partitions(sizes: Int) -> list[tuple[int, int]]:
    """Choose partitions of sizes, ascending; many sizes are rounded up to some of them."""
    from datasketch.lshensemble_partition import optimal_partitions

    distinct, counts = np.unique(sizes, return_counts=True)
    if len(distinct) > _SIZES:
        # Evenly in the logarithm: what counts is the ratio of a size to its partition's largest.
        even = np.geomspace(distinct[0], distinct[-1], _SIZES)
        last = np.unique(np.searchsorted(distinct, even[1:] * (1 + 1e-9), side="right")) - 1
        starts = np.concatenate([[0], last[:-1] + 1])
        counts, distinct = np.add.reduceat(counts, starts), distinct[last]
    found = optimal_partitions(distinct, counts, _PARTITIONS)
    return [(int(lower), int(upper)) for lower, upper in found]


class _Band:
    """The sets by some places of their signatures: key and number in one, ascending."""

    def __init__(self, signatures: Hashes, turned: Hashes, first: int, rows: int) -> None:
        self._places = signatures[:, first : first + rows]
        keys = _keys(turned[first : first + rows]).astype(np.uint64) << np.uint64(32)
        self._entries = np.sort(keys | np.arange(len(keys), dtype=np.uint64))
        # One query asks the same of every partition and threshold.
        self._last: tuple[bytes, npt.NDArray[np.uint32]] = (b"", np.zeros(0, np.uint32))

    def find(self, band: bytes) -> npt.NDArray[np.uint32]:
        """Return the sets whose places are these, ascending."""
        asked, found = self._last
        if asked != band:
            found = self._look_up(np.frombuffer(band, np.uint32).byteswap())
            self._last = band, found
        return found

    def _look_up(self, places: Hashes) -> npt.NDArray[np.uint32]:
        key = np.uint64(_keys(places[:, None])[0]) << np.uint64(32)
        start, stop = self._entries.searchsorted([key, key + np.uint64((1 << 32) - 1)])
        found = self._entries[start:stop].astype(np.uint32)
        return np.asarray(found[(self._places[found] == places).all(axis=1)])


def _keys(places: Hashes) -> Hashes:
    """Make one number of each column of places."""
    keys: Hashes = places[0].copy()
    for place in places[1:]:
        keys *= _FACTOR
        keys += place
    return keys


class _Part:
    """One partition's share of a band, as datasketch reads a hash table."""

    def __init__(self, table: _Band, start: int, stop: int) -> None:
        self._table, self._start, self._stop = table, start, stop

    def __contains__(self, band: bytes) -> bool:
        return len(self._table.find(band)) > 0

    def __getitem__(self, band: bytes) -> list[int]:
        found = self._table.find(band)
        start, stop = found.searchsorted([self._start, self._stop])
        return list(found[start:stop].tolist())
