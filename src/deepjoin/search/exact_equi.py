"""Exact equi-join search: the columns with the highest |Q ∩ X| / |Q|, each hit verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepjoin.model import Column, Hit
from deepjoin.normalise.distinct import DistinctCells, distinct_cells
from deepjoin.search.base import Ranking, Searching, Wanted
from deepjoin.search.ground import Ground
from deepjoin.search.hits import Judged, hit
from deepjoin.search.overlap import Marks
from deepjoin.search.probe import Best, Probe, Rarity, merged
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.search.verify import QueryValues, Verified, verify
from deepjoin.store.segment import Segment

#: Candidates come from the postings, whichever way they are ranked.
FOUND_BY = ("exact-equi",)


def exact_equi(ground: Ground, join: str, tau: float | None) -> ExactEqui:
    """Search by definition 2.1 alone."""
    return ExactEqui(ground.segments, ground.profile, ground.key)


class ExactEqui(Searching):
    """Ranks by equi-joinability alone; ties by reverse coverage, rarity, name, then place."""

    def __init__(self, segments: Sequence[Segment], profile: str, key: bytes = b"") -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key = profile, key

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Overlapping:
        """Look the query's values up and rank the columns that hold them."""
        distinct = distinct_cells(query.cells, self._profile, self._key)
        probes = list(self._probes(distinct))
        watch.lap("encode")
        columns = sum(segment.live_columns for segment in self._segments)
        rarity = Rarity(probes, len(distinct), columns)
        parts = [probe.best(wanted, self._demoted(probe), rarity) for probe in probes]
        parts = [part for part in parts if len(part.columns)]
        if len(parts) == 1:
            pairs = [(0, row) for row in range(len(parts[0].columns))]
        else:
            pairs = merged(parts, wanted.k) if parts else []
        watch.lap("candidates")
        return Overlapping(distinct, parts, pairs)

    def _probes(self, distinct: DistinctCells) -> Iterator[Probe]:
        for segment in self._segments:
            values = QueryValues.of(distinct, segment.values)
            if len(values.known):
                yield Probe(segment, values)

    def _demoted(self, probe: Probe) -> Marks | None:
        """Mark the columns that rank behind all others: none, by the definition."""
        return None


class Overlapping(Ranking):
    """Columns that share values with a query; a pair is (which part, which of its columns)."""

    def __init__(
        self, distinct: DistinctCells, parts: list[Best], pairs: list[tuple[int, int]]
    ) -> None:
        self.distinct, self._parts, self._pairs = distinct, parts, pairs

    @property
    def places(self) -> list[tuple[Segment, int]]:
        """The segment and the number of each column."""
        parts = self._parts
        return [(parts[w].probe.segment, int(parts[w].columns[row])) for w, row in self._pairs]

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure some of the columns, those of a segment together."""
        pairs = [self._pairs[place] for place in chosen]
        verified = [
            _verified(part, [row for which, row in pairs if which == number], show)
            for number, part in enumerate(self._parts)
        ]
        size = len(self.distinct)
        hits = []
        for rank, (which, row) in enumerate(pairs, 1):
            part, measured = self._parts[which], verified[which][row]
            share = measured.equi.joinability
            judged = Judged("equi", share, share, FOUND_BY)
            catalog = part.probe.segment.catalog
            hits.append(hit(rank, catalog, int(part.columns[row]), size, measured, judged))
        return hits


def _verified(part: Best, rows: list[int], show: int | None) -> dict[int, Verified]:
    """Measure the chosen columns of one segment."""
    if not rows:
        return {}
    columns = part.columns[rows]
    segment = part.probe.segment
    cells = segment.catalog.column_cells[columns].tolist()
    measured = verify(part.probe.values, segment.values, columns, cells, show)
    return dict(zip(rows, measured, strict=True))
