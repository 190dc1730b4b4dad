"""Exact semantic search: the columns with the most cells that have a match, proven (PEXESO)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from deepjoin.arrays import load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.matching import engine
from deepjoin.matching.engine import Measure, SemanticQuery, SemanticSegment
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.search.base import Searching, Wanted, excluded_columns
from deepjoin.search.ground import Ground
from deepjoin.search.proven import Proven
from deepjoin.search.question import vectors_of
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.store.segment import Segment


def exact_semantic(ground: Ground, join: str, tau: float | None) -> Searching:
    """Search by definition 2.2 alone, with the encoder's own tau unless another is given."""
    encoder = ground.cell_encoder()
    return ExactSemantic(
        ground.segments, ground.profile, encoder, encoder.tau if tau is None else tau
    )


class ExactSemantic(Searching):
    """Ranks by semantic joinability; ties by reverse coverage, then by place."""

    def __init__(
        self, segments: Sequence[Segment], profile: str, encoder: CellEncoder, tau: float,
        threads: int = 2,
    ) -> None:  # fmt: skip
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder, self._tau = profile, encoder, tau
        parts = [self._part(segment) for segment in self._segments]
        self._engine = engine.SemanticEngine(parts, threads)

    def _part(self, segment: Segment) -> SemanticSegment:
        assert segment.cells is not None
        strings = load_strings(segment.folder, "values")
        return SemanticSegment(
            segment.values,
            segment.cells.vectors,
            lambda numbers: self._encoder.encode(strings.take(pa.array(numbers))),
            segment.catalog.column_order,
        )

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Proven:
        distinct = distinct_cells(query.cells, self._profile)
        asked = SemanticQuery(distinct.values, vectors_of(distinct.values, self._encoder))
        watch.lap("encode")
        # Ties with the k-th are asked for, to be decided here for all segments alike.
        search = engine.ExactRequest(
            Measure("semantic", self._tau), wanted.k, wanted.threshold, ties=True
        )
        excluded = [excluded_columns(segment, wanted.exclude) for segment in self._segments]
        found = self._engine.search(asked, search, excluded)
        watch.lap("candidates")
        return Proven(distinct, self._segments, found, self._tau, wanted.k)
