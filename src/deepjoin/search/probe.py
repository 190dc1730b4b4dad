"""One query in one segment: its candidates, and the best of them by the ranking's keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from deepjoin.search.base import Wanted
from deepjoin.search.overlap import Candidates, Columns, Marks, Overlap
from deepjoin.search.ranking import Key, Keys, best_rows, name_similarity
from deepjoin.search.verify import QueryValues
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]


class Probe:
    """The query's values as one segment knows them."""

    def __init__(self, segment: Segment, values: QueryValues) -> None:
        self.segment = segment
        self.values = values
        self.overlap = Overlap(segment.values, values.numbers[values.known])

    def best(self, wanted: Wanted, demoted: Marks | None, rarity: Rarity) -> Best:
        """Rank the segment's columns; those marked in ``demoted`` come behind all others."""
        found = self._candidates(wanted, demoted)
        size = len(self.values.distinct)
        if wanted.threshold > 0:
            found = found.where(found.overlaps / size >= wanted.threshold)
        if wanted.k == 0 or len(found.columns) == 0:
            return Best(self, np.zeros(0, np.int32), [])
        primary = (size - found.overlaps << 32) | self.segment.values.sizes(found.columns)
        if demoted is not None:
            primary |= (demoted[found.columns] != 0).astype(np.int64) << 62
        keys: list[Key] = [
            lambda rows: primary[rows],
            lambda rows: -rarity.of(self, found.columns[rows]),
            lambda rows: self._name_keys(wanted.name, found.columns[rows]),
        ]
        order = self.segment.catalog.column_order[found.columns]
        rows, known = best_rows(order, wanted.k, keys)
        return Best(self, found.columns[rows], known)

    def _candidates(self, wanted: Wanted, demoted: Marks | None) -> Candidates:
        """Find the live columns that can be among the best, the query's own table left out."""
        dead, catalog = self.segment.dead, self.segment.catalog
        own = None if wanted.exclude is None else catalog.find_table(wanted.exclude)
        if wanted.k is None:
            found = self.overlap.all()
        else:
            more = 0 if own is None else len(catalog.columns_of(own))
            found = self.overlap.best(wanted.k + more, _either(demoted, dead))
        if dead is not None:
            found = found.where(~dead[found.columns])
        if own is not None:
            found = found.where(catalog.column_tables[found.columns] != own)
        return found

    def _name_keys(self, name: str, columns: Columns) -> npt.NDArray[np.float64]:
        names = self.segment.catalog.column_names
        if not name:
            return np.zeros(len(columns))
        return np.array([-name_similarity(name, names[c]) for c in columns.tolist()])


class Rarity:
    """Sums the inverse document frequency, over the whole lake, of what a column shares.

    Whole millibits, so that sums do not depend on the order of addition.
    """

    def __init__(self, probes: Sequence[Probe], size: int, columns: int) -> None:
        self._probes, self._size, self._columns = probes, size, columns

    def of(self, probe: Probe, columns: Columns) -> Int:
        """Weigh columns of one segment."""
        return probe.overlap.weigh(columns, self._weights[probe.values.known])

    @cached_property
    def _weights(self) -> Int:
        frequency = np.zeros(self._size, np.int64)
        for probe in self._probes:
            known = probe.values.known
            frequency[known] += probe.segment.frequency(probe.values.numbers[known])
        bits = np.log2((self._columns + 1) / np.maximum(1, frequency))
        weights: Int = np.rint(1000 * bits).astype(np.int64)
        return weights


@dataclass(frozen=True)
class Best:
    """The best columns of one segment, best first, with the keys that put them there."""

    probe: Probe
    columns: Columns
    keys: list[Keys]

    def place(self, i: int) -> tuple[str, int]:
        """Say where a column stands in the lake, however it is cut: its table, then itself."""
        catalog = self.probe.segment.catalog
        column = self.columns[i]
        return catalog.table_names[int(catalog.column_tables[column])], int(column)


def merged(parts: Sequence[Best], k: int | None) -> list[tuple[int, int]]:
    """Put the best of several segments in one order: (which part, which of its columns)."""
    which = np.repeat(np.arange(len(parts)), [len(part.columns) for part in parts])
    rows = np.concatenate([np.arange(len(part.columns)) for part in parts])
    keys = [np.concatenate(of) for of in zip(*(part.keys for part in parts), strict=True)]
    order = np.lexsort(tuple(reversed(keys)))
    tied = np.all([of[order][1:] == of[order][:-1] for of in keys], axis=0)
    pairs = list(zip(which[order].tolist(), rows[order].tolist(), strict=True))
    for start, stop in _runs(tied):
        pairs[start:stop] = sorted(
            pairs[start:stop], key=lambda pair: parts[pair[0]].place(pair[1])
        )
    return pairs[:k]


def _runs(tied: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Find the stretches whose members are all tied with their neighbours."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], tied, [False]]).astype(np.int8)))
    return [(start, stop + 1) for start, stop in changes.reshape(-1, 2).tolist()]


def _either(one: Marks | None, other: Marks | None) -> Marks | None:
    if one is None or other is None:
        return other if one is None else one
    either: Marks = (one != 0) | (other != 0)
    return either
