"""The method of JOSIE as published, for comparison: it finds what exact-equi finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from deepjoin.lab.josie.cost import CostModel, fit
from deepjoin.lab.josie.index import SetIndex
from deepjoin.lab.josie.search import BATCH, Josie, Reading, score_from
from deepjoin.model import Column, Hit
from deepjoin.normalise.distinct import DistinctCells
from deepjoin.search.base import Wanted
from deepjoin.search.exact_equi import ExactEqui, Overlapping
from deepjoin.search.ground import Ground
from deepjoin.search.overlap import Candidates, Marks
from deepjoin.search.probe import Probe
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.search.verify import QueryValues
from deepjoin.store.segment import Segment

FOUND_BY = ("josie",)


def josie(ground: Ground, join: str, tau: float | None) -> JosieSearch:
    """Search by prefix and position filters and a cost model, fitted when this is opened."""
    return JosieSearch(ground.segments, ground.profile, ground.key)


class JosieSearch(ExactEqui):
    """Ranks as exact-equi does; its sets and lists are made anew, in memory."""

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        costs: Callable[[SetIndex], CostModel] = fit,
        batch: int = BATCH,
    ) -> None:
        super().__init__(segments, profile, key)
        self.lakes = [_lake(segment, costs, batch) for segment in self._segments]
        #: What the query that began last has read; not for several threads.
        self.reading = Reading()

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Overlapping:
        return _Published.of(super()._ranking(watch, query, wanted))

    def _probes(self, distinct: DistinctCells) -> Iterator[Probe]:
        running = _Running()
        self.reading = running.reading
        for segment, lake in zip(self._segments, self.lakes, strict=True):
            values = QueryValues.of(distinct, segment.values)
            if len(values.known):
                yield _JosieProbe(segment, values, lake, running)


def _lake(segment: Segment, costs: Callable[[SetIndex], CostModel], batch: int) -> Josie:
    values = segment.values
    offsets, cells = np.asarray(values.column_offsets), np.asarray(values.cell_values)
    index = SetIndex.of(offsets, cells, segment.dead)
    return Josie(index, costs(index), batch)


@dataclass
class _Running:
    """What the segments asked before tell the next: the k-th best so far."""

    least: int = score_from(1)
    reading: Reading = field(default_factory=Reading)


class _JosieProbe(Probe):
    """The query's values in one segment, whose candidates JOSIE finds."""

    def __init__(
        self, segment: Segment, values: QueryValues, lake: Josie, running: _Running
    ) -> None:
        super().__init__(segment, values)
        self._lake, self._running = lake, running

    def _candidates(self, wanted: Wanted, demoted: Marks | None) -> Candidates:
        catalog, size = self.segment.catalog, len(self.values.distinct)
        own = None if wanted.exclude is None else catalog.find_table(wanted.exclude)
        ignored = [] if own is None else catalog.columns_of(own)
        # A little less, as the division that decides may be rounded up.
        least = score_from(max(1, ceil(wanted.threshold * size * (1 - 1e-9))))
        found = self._lake.search(
            self.values.numbers[self.values.known],
            wanted.k,
            max(least, self._running.least),
            np.asarray(ignored, np.int64),
        )
        self._running.reading.add(found.reading)
        if wanted.k is not None:
            self._running.least = found.least
        return Candidates(found.sets, found.overlaps)


class _Published(Overlapping):
    """What JOSIE found, said to be so."""

    @classmethod
    def of(cls, ranking: Overlapping) -> _Published:
        """Take a ranking over."""
        return cls(ranking.distinct, ranking._parts, ranking._pairs)

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure some of the columns."""
        return [replace(hit, found_by=FOUND_BY) for hit in super().hits(chosen, show)]
