"""The exact methods: each ranks by one definition of the paper and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deepjoin.arrays import load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.matching.engine import (
    ExactRequest,
    Measure,
    SemanticEngine,
    SemanticQuery,
    SemanticSegment,
)
from deepjoin.model import Column, SemanticEvidence
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import ColumnMatch
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import SemanticRanking, table_of
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.segment import Segment

FOUND_BY = ("exact-semantic",)


def exact_equi(context: SearchContext, join: str, tau: float | None) -> EquiSearch:
    """Search by definition 2.1 alone."""
    return EquiSearch(context.segments, context.profile, context.key)


def exact_semantic(context: SearchContext, join: str, tau: float | None) -> ExactSemantic:
    """Search by definition 2.2 alone, with the encoder's own tau by default."""
    encoder = context.cell_encoder()
    bound = encoder.tau if tau is None else tau
    return ExactSemantic(context.segments, context.profile, encoder, bound)


class ExactSemantic(Searcher):
    """Ranks by semantic joinability, proven; ties by reverse coverage, then by place."""

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        encoder: CellEncoder,
        tau: float,
        threads: int = 2,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder, self._tau = profile, encoder, tau
        self._engine = SemanticEngine([self._part(one) for one in self._segments], threads)

    def _part(self, segment: Segment) -> SemanticSegment:
        assert segment.cells is not None
        strings = load_strings(segment.folder, "values")
        return SemanticSegment(
            segment.values,
            segment.cells.vectors,
            lambda numbers: self._encoder.encode(strings.take(pa.array(numbers))),
            segment.catalog.column_order,
        )

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> SemanticRanking:
        cells = SearchQuery(query, self._profile, encoder=self._encoder)
        watch.lap("encode")
        measure = Measure("semantic", self._tau)
        # Ties with the k-th come as well, to be decided here for all segments alike.
        request = ExactRequest(measure, options.columns, options.threshold, ties=True)
        excluded = [excluded_columns(segment, options.exclude) for segment in self._segments]
        vectors = SemanticQuery(cells.cells.values, cells.vectors)
        found = self._engine.search(vectors, request, excluded)
        columns = []
        for i, evidence in enumerate(found.evidence):
            segment, column = self._segments[int(found.parts[i])], int(found.columns[i])
            size = int(segment.values.sizes(np.array([column]))[0])
            share, matched = float(found.scores[i]), len(evidence.cells)
            columns.append(
                ColumnMatch(
                    segment=segment,
                    column=column,
                    cells=evidence.cells,
                    values=evidence.values,
                    similarities=evidence.similarities,
                    semantic=SemanticEvidence(share, evidence.reverse / size, matched, self._tau),
                    join="semantic",
                    score=share,
                    joinability=share,
                    found_by=FOUND_BY,
                )
            )
        columns.sort(key=_key)
        best = columns[: options.columns]
        watch.lap("candidates")
        places = [(one.segment, one.column) for one in best]
        return SemanticRanking(cells, places, lambda chosen: [best[place] for place in chosen])


def _key(one: ColumnMatch) -> tuple[float, float, str, int]:
    return -one.score, -one.semantic.reverse, table_of(one.segment, one.column), one.column
