"""The exact methods: each ranks by one definition of the paper and nothing else.

In two stages, the nearest column vectors are candidates and the definition decides among them. The
paper names this as a stronger form of its own method (section 1). Every hit is exact; only a column
that is not a candidate can be missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Int, load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.matching.engine import (
    ExactRequest,
    Measure,
    SemanticEngine,
    SemanticQuery,
    SemanticSegment,
)
from deepjoin.model import Column, SemanticEvidence
from deepjoin.search.candidates import Flags, Overlap, OverlapCounts, SimilarCells
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import ColumnMatch
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import Ranking, SemanticRanking, rank_by_meaning, table_of
from deepjoin.search.scores import ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.search.vectors import VectorSearcher, deepjoin
from deepjoin.store.segment import Segment

FOUND_BY = ("exact-semantic",)
NAME = "deepjoin-exact"


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


def deepjoin_exact(context: SearchContext, join: str, tau: float | None) -> TwoStageSearch:
    """Search by the paper's vectors, then by definition 2.1 or 2.2 among the nearest."""
    encoder = context.cell_encoder() if join == "semantic" else None
    near = deepjoin(context, join, None)
    return TwoStageSearch(near, context.segments, context.profile, context.key, encoder, tau)


class TwoStageSearch(Searcher):
    """Ranks the nearest columns by joinability: equal cells or, with an encoder, similar ones."""

    def __init__(
        self,
        near: VectorSearcher,
        segments: Sequence[Segment],
        profile: str,
        key: bytes,
        encoder: CellEncoder | None,
        tau: float | None,
    ) -> None:
        self._near, self._profile, self._key, self._encoder = near, profile, key, encoder
        self._segments = [segment for segment in segments if segment.values.columns]
        self._score = None if encoder is None else PairScore.of("semantic", encoder, tau)

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        cells = SearchQuery(query, self._profile, self._key, self._encoder)
        most = max(options.verified, options.k or 0)
        found = self._near.nearest(query, most, options.exclude) if len(cells) else []
        candidates: dict[int, Int] = {}
        for number in {near.segment for near in found}:
            nearest = [near.column for near in found if near.segment == number]
            candidates[number] = np.sort(np.array(nearest, np.int64))
        watch.lap("encode")
        if self._encoder is None or self._score is None:
            among = _EquiAmong(self._segments, self._profile, self._key, candidates)
            return among.rank(watch, cells, options)
        scored = []
        for number, columns in candidates.items():
            segment = self._segments[number]
            similar = SimilarCells(segment, cells, self._score, self._encoder)
            matches, _ = similar.matches_in(columns, np.arange(len(cells)))
            nameless = np.zeros(len(columns))
            scored.append(ColumnScores.of(segment, columns, matches, self._score, nameless))
        watch.lap("candidates")
        limits = options.columns, options.threshold, self._score.tau
        return rank_by_meaning(cells, scored, *limits, found_by=(NAME,))


class _EquiAmong(EquiSearch):
    """Ranks some columns of each segment as exact-equi ranks all."""

    found_by = NAME

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes,
        candidates: Mapping[int, Int],
    ) -> None:
        super().__init__(segments, profile, key)
        self._candidates = candidates

    def _overlaps(self, query: SearchQuery) -> Iterator[Overlap]:
        for number, columns in sorted(self._candidates.items()):
            segment = self._segments[number]
            if len(query.values_in(segment).known):
                yield _OverlapAmong(segment, query, columns)


class _OverlapAmong(Overlap):
    """The query's values in one segment, counted in given columns alone."""

    def __init__(self, segment: Segment, query: SearchQuery, columns: Int) -> None:
        super().__init__(segment, query)
        self._chosen = columns.astype(np.int32)

    def candidates(self, options: SearchOptions, demoted: Flags | None) -> OverlapCounts:
        """Count the overlap of each column; those without any are dropped."""
        ones = np.ones(len(self.values.known), np.int64)
        found = OverlapCounts(self._chosen, self.weigh(self._chosen, ones))
        return found.where(found.overlaps > 0)
