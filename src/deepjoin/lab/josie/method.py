"""The method of JOSIE as published, for comparison: it finds what exact-equi finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from deepjoin.lab.josie.cost import CostModel, fit
from deepjoin.lab.josie.index import SetIndex
from deepjoin.lab.josie.search import BATCH, Josie, ReadCounts, score_from
from deepjoin.search.candidates import Flags, Overlap, OverlapCounts
from deepjoin.search.context import SearchContext
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.store.segment import Segment


def josie(context: SearchContext, join: str, tau: float | None) -> JosieSearch:
    """Search by prefix and position filters and a cost model, fitted when this is opened."""
    return JosieSearch(context.segments, context.profile, context.key)


class JosieSearch(EquiSearch):
    """Ranks as exact-equi does; its sets and lists are built again, in memory."""

    found_by = "josie"

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
        #: What the latest query has read; not safe for several threads.
        self.reading = ReadCounts()

    def _overlaps(self, query: SearchQuery) -> Iterator[Overlap]:
        running = _Running()
        self.reading = running.reading
        # The k-th score of earlier segments bounds later ones, so they read less.
        for segment, lake in zip(self._segments, self.lakes, strict=True):
            if len(query.values_in(segment).known):
                yield _JosieOverlap(segment, query, lake, running)


def _lake(segment: Segment, costs: Callable[[SetIndex], CostModel], batch: int) -> Josie:
    values = segment.values
    offsets, cells = np.asarray(values.column_offsets), np.asarray(values.cell_values)
    index = SetIndex.of(offsets, cells, segment.dead)
    return Josie(index, costs(index), batch)


@dataclass
class _Running:
    """The k-th best score over the segments searched so far, which bounds the next ones."""

    least: int = score_from(1)
    reading: ReadCounts = field(default_factory=ReadCounts)


class _JosieOverlap(Overlap):
    """The query's values in one segment, whose candidates JOSIE finds."""

    def __init__(
        self, segment: Segment, query: SearchQuery, lake: Josie, running: _Running
    ) -> None:
        super().__init__(segment, query)
        self._size, self._lake, self._running = len(query), lake, running

    def candidates(self, options: SearchOptions, demoted: Flags | None) -> OverlapCounts:
        """Ask JOSIE for the best columns, or for all that reach the threshold."""
        catalog = self.segment.catalog
        own = None if options.exclude is None else catalog.find_table(options.exclude)
        ignored = [] if own is None else catalog.columns_of(own)
        # A little less, because the division that decides may round up.
        least = score_from(max(1, ceil(options.threshold * self._size * (1 - 1e-9))))
        found = self._lake.search(
            self.values.numbers[self.values.known],
            options.columns,
            max(least, self._running.least),
            np.asarray(ignored, np.int64),
        )
        self._running.reading.add(found.reading)
        if options.columns is not None:
            self._running.least = found.least
        return OverlapCounts(found.sets, found.overlaps)
