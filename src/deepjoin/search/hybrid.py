"""The default search: every candidate verified, keys that say little ranked last.

Equi-joins count equal cells (`EquiSearch`). Joins "semantic" and "any" count similar cells as
well (`SemanticSearch`). Either way the steps are: query, candidates, scores, ranking, evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, Hit
from deepjoin.search.candidates import Overlap, SimilarCells
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import EQUAL_CELLS, Place, equi_hits, semantic_hits
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.ranking import (
    EquiRanking,
    Key,
    RankedColumns,
    Rarity,
    SemanticRanking,
    best_rows,
    merge_segments,
    name_similarity,
    rank_by_meaning,
)
from deepjoin.search.scores import ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic, generic_of

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Real = npt.NDArray[np.float64]

#: This many of the best columns, or this many times k, are measured.
_MEASURED, _TIMES = 200, 4
#: How much more columns are measured if too few of these hold a match.
_GROWTH = 8
#: Names whose vectors are kept at most.
_NAMES = 1 << 16
#: What the reverse coverage adds to a score when the columns to measure are chosen.
_TIE = 0.05


def hybrid(context: SearchContext, join: str, tau: float | None) -> Searcher:
    """Search by equal cells for "equi", by what cells mean for "semantic" and "any".

    Without cell vectors, "any" means equal cells alone, and the hits say so.
    """
    if _by_equality(context, join):
        return EquiSearch(context.segments, context.profile, context.key, demote_generic=True)
    encoder = context.cell_encoder()
    return SemanticSearch(context.segments, context.profile, encoder, join, tau)


def _by_equality(context: SearchContext, join: str) -> bool:
    return join == "equi" or (join == "any" and not context.has_cells)


class EquiSearch(Searcher):
    """Ranks by equi-joinability; ties by reverse coverage, rarity, name, then place.

    ``demote_generic`` ranks row numbers, years and flags below informative keys, except for a
    query that is itself such a key.
    """

    #: What hits say they were found by.
    found_by = EQUAL_CELLS

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        demote_generic: bool = False,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key, self._demote = profile, key, demote_generic

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> EquiRanking:
        cells = SearchQuery(query, self._profile, self._key)
        overlaps = list(self._overlaps(cells))
        demote = self._demote and generic_of(cells.cells.values) is Generic.NO
        watch.lap("encode")
        live = sum(segment.live_columns for segment in self._segments)
        rarity = Rarity(overlaps, len(cells), live)
        ranked = [self._ranked(overlap, cells, options, rarity, demote) for overlap in overlaps]
        places = merge_segments(ranked, options.k)
        watch.lap("candidates")
        return EquiRanking(cells, places, found_by=self.found_by)

    def _overlaps(self, query: SearchQuery) -> Iterator[Overlap]:
        """Look the query up in each segment, and read its posting lists."""
        for segment in self._segments:
            if len(query.values_in(segment).known):
                yield Overlap(segment, query)

    def _ranked(
        self,
        overlap: Overlap,
        query: SearchQuery,
        options: SearchOptions,
        rarity: Rarity,
        demote: bool,
    ) -> RankedColumns:
        """Rank the columns of one segment."""
        segment, size = overlap.segment, len(query)
        names = segment.catalog.column_names
        demoted = np.asarray(segment.catalog.column_generic) if demote else None
        found = overlap.candidates(options, demoted)
        if options.threshold > 0:
            found = found.where(found.overlaps / size >= options.threshold)
        if options.k == 0 or len(found.columns) == 0:
            return RankedColumns(segment, np.zeros(0, np.int32), [])
        # The first keys packed into one number: generic or not, missing values, size.
        primary = (size - found.overlaps << 32) | segment.values.sizes(found.columns)
        if demoted is not None:
            primary |= (demoted[found.columns] != 0).astype(np.int64) << 62

        def by_name(rows: Int) -> Real:
            if not query.name:
                return np.zeros(len(rows))
            columns = found.columns[rows].tolist()
            return np.array([-name_similarity(query.name, names[column]) for column in columns])

        keys: list[Key] = [
            lambda rows: primary[rows],
            lambda rows: -rarity.of(overlap, found.columns[rows]),
            by_name,
        ]
        order = segment.catalog.column_order[found.columns]
        rows, known = best_rows(order, options.k, keys)
        return RankedColumns(segment, found.columns[rows], known)


class SemanticSearch(Searcher):
    """Ranks by the share of the query's cells that a column holds, in any spelling.

    Join "any" counts each cell by the chance of a match, "semantic" as 1 from tau on. Similar
    values lead to candidates; those that promise most are measured on their stored cells.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        encoder: CellEncoder,
        join: str,
        tau: float | None = None,
        threads: int = 2,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder, self._threads = profile, encoder, threads
        self._score = PairScore.of(join, encoder, tau)
        self._names = NameVectors(encoder)

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> SemanticRanking:
        cells = SearchQuery(query, self._profile, encoder=self._encoder)
        watch.lap("encode")
        ranking = self._ranked(cells, options, complete=options.k is None)
        has_lists = any(segment.cells and segment.cells.has_lists for segment in self._segments)
        if options.k is not None and len(ranking.places) < options.k and has_lists:
            # Lists may miss what is far; then everything is compared.
            ranking = self._ranked(cells, options, complete=True)
        watch.lap("candidates")
        return ranking

    def _ranked(
        self, query: SearchQuery, options: SearchOptions, *, complete: bool
    ) -> SemanticRanking:
        if len(query) == 0 or options.k == 0 or not self._segments:
            return SemanticRanking(query, [], lambda chosen: [])
        near = [
            SimilarCells(
                *(segment, query, self._score, self._encoder),
                threads=self._threads,
                complete=complete,
            )
            for segment in self._segments
        ]
        demote = generic_of(query.cells.values) is Generic.NO
        which, columns = _by_promise(near, options, len(query), demote)
        k, tau = options.k, self._score.tau
        most = len(columns) if k is None else max(_MEASURED, _TIMES * k)
        while True:
            scored = []
            for number, cells in enumerate(near):
                mine = np.sort(columns[:most][which[:most] == number])
                matches = cells.matches_in(mine, in_full=not cells.is_complete)
                names = self._names.similarity(query.name, cells.segment, mine)
                scored.append(ColumnScores.of(cells.segment, mine, matches, self._score, names))
            ranking = rank_by_meaning(query, scored, k, options.threshold, tau, demote=demote)
            # Columns may promise much and hold no match; then more of them are measured.
            if most >= len(columns) or len(ranking.places) >= (k or 0):
                return ranking
            most *= _GROWTH


def _by_promise(
    near: Sequence[SimilarCells], options: SearchOptions, size: int, demote: bool
) -> tuple[Int, Int]:
    """Return the columns worth measuring, best first: which segment each is of, and its number."""
    sums = [cells.column_sums(options.exclude) for cells in near]
    found = [np.flatnonzero(of) for of in sums]
    scores = np.concatenate([of[columns] for of, columns in zip(sums, found, strict=True)])
    which = np.repeat(np.arange(len(near)), [len(columns) for columns in found])
    # Of columns that hold as much, those that hold little else can be among the best.
    sizes = [one.segment.values.sizes(c) for one, c in zip(near, found, strict=True)]
    keys = scores * (1 + _TIE / np.maximum(1, np.concatenate(sizes)))
    if demote:
        generic = [one.segment.catalog.column_generic for one in near]
        marks = [of[c] != 0 for of, c in zip(generic, found, strict=True)]
        keys = keys - (size + 1) * np.concatenate(marks)
    # A little less than the threshold, since these sums are in single precision.
    reach = np.flatnonzero(scores >= options.threshold * size * (1 - 1e-6))
    order = reach[np.argsort(-keys[reach], kind="stable")]
    return which[order], np.concatenate(found)[order]


class NameVectors:
    """The vectors of column names, kept: many columns of a lake share a few names."""

    def __init__(self, encoder: CellEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Float] = {}

    def similarity(self, name: str, segment: Segment, columns: Int) -> Real:
        """Return the cosine of a name with those of some columns, 0 where it is below 0."""
        if len(self._known) > _NAMES:
            self._known = {}
        known, every = self._known, segment.catalog.column_names
        names = [name, *(every[column] for column in columns.tolist())]
        new = [one for one in dict.fromkeys(names) if one not in known]
        if new:
            known |= zip(new, self._encoder.encode(new), strict=True)
        vectors = np.stack([known[one] for one in names]).astype(np.float64)
        cosines: Real = vectors[1:] @ vectors[0]
        return np.maximum(0, cosines)


def explain_pair(
    context: SearchContext,
    column: Column,
    target: Place,
    join: str,
    tau: float | None,
    show: int | None,
) -> Hit:
    """Measure how a query joins with one column as a search would, whether or not it is a hit."""
    segment, number = target
    if _by_equality(context, join):
        query = SearchQuery(column, context.profile, context.key)
        _check_not_empty(query)
        (hit,) = equi_hits(query, [target], show)
        return hit if hit.equi.matched else replace(hit, found_by=())
    encoder, columns = context.cell_encoder(), np.array([number])
    query = SearchQuery(column, context.profile, encoder=encoder)
    _check_not_empty(query)
    score = PairScore.of(join, encoder, tau)
    matches = SimilarCells(segment, query, score, encoder).matches_in(columns, in_full=True)
    names = NameVectors(encoder).similarity(column.name, segment, columns)
    scores = ColumnScores.of(segment, columns, matches, score, names)
    (hit,) = semantic_hits(query, [scores.match(0, len(query), score.tau)], show)
    return hit


def _check_not_empty(query: SearchQuery) -> None:
    if len(query) == 0:
        raise DeepJoinError("The query column has no values: every cell is missing or blank.")
