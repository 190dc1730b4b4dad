"""The method of PEXESO as published, for comparison: it finds what exact-semantic finds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepjoin.arrays import load_strings
from deepjoin.embed.cells import CellEncoder, encode_many
from deepjoin.lab.pexeso.pexeso import ColumnValues, Pexeso, PexesoWork
from deepjoin.memory import DEFAULT
from deepjoin.model import Column
from deepjoin.search.candidates import SimilarCells
from deepjoin.search.context import SearchContext
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import SemanticRanking, rank_by_meaning
from deepjoin.search.scores import ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.segment import Segment

FOUND_BY = ("pexeso",)


def pexeso(context: SearchContext, join: str, tau: float | None) -> PexesoSearch:
    """Search by pivots and a grid, with the encoder's own tau by default."""
    return PexesoSearch(context.segments, context.profile, context.cell_encoder(), tau)


class PexesoSearch(Searcher):
    """Ranks by semantic joinability; its grids hold all vectors in memory, in full precision."""

    def __init__(
        self, segments: Sequence[Segment], profile: str, encoder: CellEncoder, tau: float | None
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder = profile, encoder
        self._score = PairScore.of("semantic", encoder, tau)
        self._grids = [self._grid(segment) for segment in self._segments]

    def _grid(self, segment: Segment) -> Pexeso:
        # Encoded again: the lemmas hold for exact vectors, and an index stores rounded ones.
        strings = load_strings(segment.folder, "values")
        vectors = encode_many(self._encoder, DEFAULT)(strings)
        index = segment.values
        columns = ColumnValues(
            np.asarray(index.column_offsets), np.asarray(index.cell_values, np.int64)
        )
        return Pexeso(vectors, columns, segment.catalog.column_order, tau=self._score.tau)

    @property
    def work(self) -> list[PexesoWork]:
        """What the latest search did in each segment; not safe for several threads."""
        return [grid.work for grid in self._grids]

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> SemanticRanking:
        cells = SearchQuery(query, self._profile, encoder=self._encoder)
        watch.lap("encode")
        scored = [
            self._scored(segment, grid, cells, options)
            for segment, grid in zip(self._segments, self._grids, strict=True)
            if len(cells) and options.columns != 0
        ]
        watch.lap("candidates")
        limits = options.columns, options.threshold, self._score.tau
        return rank_by_meaning(cells, scored, *limits, found_by=FOUND_BY)

    def _scored(
        self, segment: Segment, grid: Pexeso, query: SearchQuery, options: SearchOptions
    ) -> ColumnScores:
        """Ask the grid for the best k, or for all that reach the threshold, and measure them."""
        cells = SimilarCells(segment, query, self._score, self._encoder)
        out, tau = excluded_columns(segment, options.exclude), self._score.tau
        if options.columns is not None:
            found = grid.search(query.vectors, tau, options.columns, out, cells.equal)[0]
        else:
            # A little less, because the division that decides may round up.
            least = int(np.ceil(options.threshold * len(query) * (1 - 1e-9)))
            found = grid.joinable(query.vectors, tau, max(1, least), cells.equal)
            found = found if out is None else found[~out[found]]
        columns = np.sort(found)
        matches, _ = cells.matches_in(columns, np.arange(len(query)))
        return ColumnScores.of(segment, columns, matches, self._score, np.zeros(len(columns)))
