"""Search by one vector a column, as the paper publishes it: the nearest columns, never verified.

The evidence of a hit is measured for display and changes neither order nor membership.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Float
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.model import Column
from deepjoin.search.candidates import SimilarCells
from deepjoin.search.context import EmbeddedStore, SearchContext, VectorStore
from deepjoin.search.evidence import ColumnMatch
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import EquiRanking, Ranking, SemanticRanking, table_of
from deepjoin.search.scores import ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.column_vectors import (
    About,
    ColumnVectors,
    both_about,
    both_query,
    meaning_about,
)
from deepjoin.store.models import encode_command
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import Meaning, Sketcher, sketch_digest

#: Returns the vector of a query; zeros where nothing is known of it.
ToVector = Callable[[Column], Float]

#: Of each space: what its vectors are called, and the fields of `Vectors` that make them.
_CALLED: dict[str, tuple[str, dict[str, object]]] = {
    "columns": ("column vectors", {"encoder": "default"}),
    "sketch": ("sketches", {"sketch": 768}),
    "both": ("column vectors with sketches", {"encoder": "default", "sketch": 768}),
}
#: Columns ranked first for each table that is wanted.
_A_TABLE = 8


def deepjoin(context: SearchContext, join: str, tau: float | None) -> VectorSearcher:
    """Search by the model's vector of the column's text: the paper's system."""
    return _by_columns(context, join, "deepjoin", "")


def encoded_by(context: SearchContext, join: str, tau: float | None, kind: str) -> VectorSearcher:
    """Search by the column vectors of an encoder of another kind."""
    return _by_columns(context, join, kind, kind)


def _by_columns(context: SearchContext, join: str, method: str, kind: str) -> VectorSearcher:
    encoder = context.column_encoder(method, kind)
    vector, about = _encoded(context, encoder), _about(encoder)
    return _searcher(context, join, "columns", method, vector, about)


def sketch(context: SearchContext, join: str, tau: float | None) -> VectorSearcher:
    """Search by cells alone, summed up in one vector a column."""
    return _searcher(context, join, "sketch", "sketch", *_sketched(context))


def deepjoin_sketch(context: SearchContext, join: str, tau: float | None) -> VectorSearcher:
    """Search by the model's vector, the sketch and what the cells mean as one vector."""
    encoder = context.column_encoder("deepjoin-sketch")
    cells = context.cell_encoder() if context.has_cells else None
    encoded, (sketcher, sketched) = _encoded(context, encoder), _sketched(context)
    meaning, meaning_made_by = None, None
    if cells is not None:
        meaning = Meaning(context.segments, context.frequency(), cells, context.profile)
        meaning_made_by = meaning_about(cells.digest, cells.dimension)
    kind = "semantic" if join == "semantic" else "equi"

    def vector(query: Column) -> Float:
        means = None if meaning is None else meaning(query)[None]
        both = both_query(encoded(query)[None], sketcher(query)[None], kind, means)
        return np.asarray(both[0], np.float32)

    about = both_about(_about(encoder), sketched, meaning_made_by)
    return _searcher(context, join, "both", "deepjoin-sketch", vector, about)


def _encoded(context: SearchContext, encoder: ColumnEncoder) -> ToVector:
    frequency = context.frequency()
    return lambda query: encoder.encode_query(query, frequency)


def _about(encoder: ColumnEncoder) -> About:
    return About(encoder.name, encoder.digest, encoder.dimension)


def _sketched(context: SearchContext) -> tuple[Sketcher, About]:
    dimension = context.sketch_dimension()
    sketcher = Sketcher(
        context.segments, context.frequency(), dimension, context.profile, context.key
    )
    return sketcher, About("sketch", sketch_digest(dimension), dimension)


def _searcher(
    context: SearchContext, join: str, space: str, method: str, vector: ToVector, about: About
) -> VectorSearcher:
    segments = [segment for segment in context.segments if segment.values.columns]
    made_by = about.name, about.digest
    vectors = opened_vectors(segments, space, made_by, context.location, context.remedy(space))
    return VectorSearcher(
        *(segments, (context.store or EmbeddedStore)(segments, vectors, space), vector),
        profile=context.profile,
        key=context.key,
        method=method,
        join="equi" if join == "any" else join,
        # Without cell vectors, the evidence of a semantic join is that of equal cells.
        encoder=context.cell_encoder() if join == "semantic" and context.has_cells else None,
    )


class NearColumn(NamedTuple):
    """A column of the lake, the segment by its number, and its similarity to the query."""

    segment: int
    column: int
    similarity: float


class VectorSearcher(Searcher):
    """Ranks by the similarity of one vector a column: the cosine, or the distance below 0.

    Columns of equal similarity come by their tables' names, then by their place in the table.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        store: VectorStore,
        vector: ToVector,
        *,
        profile: str = "default",
        key: bytes = b"",
        method: str = "deepjoin",
        join: str = "equi",
        encoder: CellEncoder | None = None,
    ) -> None:
        self._segments, self._store, self.vector = segments, store, vector
        self._profile, self._key, self._method, self._join = profile, key, method, join
        # Cell vectors are only for the evidence of a semantic join, never for the order.
        self._encoder = encoder

    def nearest(self, query: Column, k: int | None, exclude_table: str | None) -> list[NearColumn]:
        """Return the k columns nearest to a query, or all; none for a query of unknown values."""
        return self._nearest(self.vector(query), k, exclude_table)

    def _nearest(self, vector: Float, k: int | None, exclude: str | None) -> list[NearColumn]:
        if not np.any(vector):  # a vector of zeros is near to nothing
            return []
        excluded = [excluded_columns(segment, exclude) for segment in self._segments]
        found: list[NearColumn] = []
        for number, near in enumerate(self._store.nearest(vector, k, excluded)):
            similar = 1 - near.distances if self._store.metric == "cosine" else -near.distances
            pairs = zip(near.ids.tolist(), similar.tolist(), strict=True)
            found += [NearColumn(number, column, similarity) for column, similarity in pairs]
        return found if len(self._segments) == 1 else nearest_first(self._segments, found)[:k]

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        if options.threshold > 0 or (options.k is None and not options.by_table):
            raise DeepJoinError(
                f"A minimum joinability came with method '{self._method}', which does not verify "
                "its hits; `min_joinability` needs a method that does: use hybrid."
            )
        cells = SearchQuery(query, self._profile, self._key, self._encoder)
        vector = self.vector(query) if len(cells) else np.zeros(1, np.float32)
        watch.lap("encode")
        if options.by_table:
            found = self._down_to_table(vector, options)
        else:
            found = self._nearest(vector, options.k, options.exclude)
        watch.lap("candidates")
        return near_ranking(cells, self._segments, found, self._method, self._join, self._encoder)

    def _down_to_table(self, vector: Float, options: SearchOptions) -> list[NearColumn]:
        """Return columns down to the first one of the last table that is wanted.

        So a table's other columns are listed only if they are nearer than the last table.
        """
        tables = options.k
        columns = None if tables is None else _A_TABLE * max(1, tables)
        while True:
            found = self._nearest(vector, columns, options.exclude)
            seen: set[tuple[int, int]] = set()
            for place, near in enumerate(found):
                catalog = self._segments[near.segment].catalog
                seen.add((near.segment, int(catalog.column_tables[near.column])))
                if len(seen) == tables:
                    return found[: place + 1]
            if columns is None or len(found) < columns:
                return found
            # Too few tables among these columns: look at more of them.
            columns *= 4


def nearest_first(segments: Sequence[Segment], found: Sequence[NearColumn]) -> list[NearColumn]:
    """Sort columns of several segments by similarity, then by table and place."""

    def key(near: NearColumn) -> tuple[float, str, int]:
        return -near.similarity, table_of(segments[near.segment], near.column), near.column

    return sorted(found, key=key)


def near_ranking(
    query: SearchQuery,
    segments: Sequence[Segment],
    found: Sequence[NearColumn],
    method: str,
    join: str,
    encoder: CellEncoder | None,
) -> Ranking:
    """Rank near columns by similarity; the evidence is equal cells or, with an encoder, similar."""
    places = [(segments[near.segment], near.column) for near in found]
    if encoder is None:
        scores = [near.similarity for near in found]
        return EquiRanking(query, places, join=join, found_by=method, scores=scores)
    score = PairScore.of("semantic", encoder, None)

    def matches(chosen: Sequence[int]) -> list[ColumnMatch]:
        some = [found[place] for place in chosen]
        measured: dict[tuple[int, int], ColumnMatch] = {}
        for number in {near.segment for near in some}:
            segment = segments[number]
            columns = np.array([near.column for near in some if near.segment == number])
            similar = SimilarCells(segment, query, score, encoder)
            cells, _ = similar.matches_in(columns, np.arange(len(query)))
            scores = ColumnScores.of(segment, columns, cells, score, np.zeros(len(columns)))
            for row, column in enumerate(columns.tolist()):
                measured[number, column] = scores.match(row, len(query), score.tau, (method,))
        return [replace(measured[near[:2]], score=near.similarity) for near in some]

    return SemanticRanking(query, places, matches)


def opened_vectors(
    segments: Sequence[Segment],
    space: str,
    about: tuple[str, str] | None = None,
    location: object = "The index",
    remedy: str = "",
) -> list[ColumnVectors]:
    """Open the vectors of all segments; ``about`` is name and digest of the query's encoder."""
    found = [ColumnVectors.open(segment.folder, space) for segment in segments]
    complete = [one for one in found if one is not None and one.complete]
    called, made_by = _CALLED[space]
    command = remedy or encode_command(location, **made_by)
    if len(complete) < len(found):
        raise DeepJoinError(
            f"{location} has no {called} ({len(found) - len(complete)} of {len(found)} segments "
            f"are without). Make them with: {command}"
        )
    for one in complete:
        if about is not None and one.about.digest != about[1]:
            raise IndexUnusable(
                f"{location} was encoded by '{one.about.name}' ({one.about.digest}), not by "
                f"'{about[0]}' ({about[1]}). Encode it again with: "
                f"{command}"
            )
    return complete
