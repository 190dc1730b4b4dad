"""Search by column vectors, as the paper publishes it: the nearest columns, never verified.

The evidence of a hit is measured for display and changes neither order nor membership.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.model import Column, Hit, Results
from deepjoin.normalise.distinct import DistinctCells, distinct_cells
from deepjoin.search.base import Ranking, Searching, Wanted, excluded_columns
from deepjoin.search.evidence import Meaning, hits_by_meaning
from deepjoin.search.hits import Judged, hit
from deepjoin.search.measured import Measured
from deepjoin.search.question import Question, Side, vectors_of
from deepjoin.search.soft import Count
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.search.stores import EmbeddedStore, OpenStore
from deepjoin.search.verify import QueryValues, Verified, verify
from deepjoin.store.column_vectors.columns import ColumnVectors
from deepjoin.store.segment import Segment

Float = npt.NDArray[np.float32]
#: From a query to its vector; zeros where nothing is known of it.
ToVector = Callable[[Column], Float]

#: Of each space: what its vectors are called, and the option that makes them.
_CALLED = {
    "columns": ("column vectors", "--encoder default"),
    "sketch": ("sketches", "--sketch 768"),
    "both": ("column vectors with sketches", "--encoder default --sketch 768"),
}
#: Columns looked at for each table asked for, before looking at all.
_A_TABLE = 8


class Near(NamedTuple):
    """A column of the lake and how near the query it is."""

    segment: int
    column: int
    similarity: float


class VectorSearcher(Searching):
    """Ranks by the similarity of one vector a column: the cosine, or the distance below 0.

    Columns of equal similarity come by their tables' names, then by their place in the table.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        space: str,
        vector: ToVector,
        profile: str,
        key: bytes = b"",
        *,
        method: str = "deepjoin",
        join: str = "equi",
        about: tuple[str, str] | None = None,
        location: object = "The index",
        remedy: str = "",
        encoder: CellEncoder | None = None,
        store: OpenStore = EmbeddedStore,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        vectors = opened_vectors(self._segments, space, about, location, remedy)
        self._store = store(self._segments, vectors, space)
        self.vector, self._profile, self._key = vector, profile, key
        self._method, self._join, self._encoder = method, join, encoder

    def nearest(self, query: Column, k: int | None, exclude_table: str | None) -> list[Near]:
        """Return the k columns nearest to a query, or all; none for a query of unknown values."""
        return self._nearest(self.vector(query), k, exclude_table)

    def _nearest(self, vector: Float, k: int | None, exclude: str | None) -> list[Near]:
        if not np.any(vector):
            return []
        excluded = [excluded_columns(segment, exclude) for segment in self._segments]
        found: list[Near] = []
        for number, near in enumerate(self._store.nearest(vector, k, excluded)):
            like = 1 - near.distances if self._store.metric == "cosine" else -near.distances
            pairs = zip(near.ids.tolist(), like.tolist(), strict=True)
            found += [Near(number, column, similarity) for column, similarity in pairs]
        return found if len(self._segments) == 1 else sorted(found, key=self._key_of)[:k]

    def _key_of(self, near: Near) -> tuple[float, str, int]:
        catalog = self._segments[near.segment].catalog
        table = catalog.table_names[int(catalog.column_tables[near.column])]
        return -near.similarity, table, near.column

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> NearColumns:
        self._refuse(1.0 if wanted.k is None else wanted.threshold)
        return self._near_columns(watch, query, wanted.k, wanted.exclude)

    def _refuse(self, threshold: float) -> None:
        if threshold > 0:
            raise DeepJoinError(
                f"A minimum joinability came with method '{self._method}', which does not verify "
                "its hits; min_joinability needs a method that does: use hybrid."
            )

    def _near_columns(
        self, watch: Stopwatch, query: Column, k: int | None, exclude: str | None
    ) -> NearColumns:
        distinct = distinct_cells(query.cells, self._profile, self._key)
        vector = self.vector(query) if len(distinct) else np.zeros(1, np.float32)
        watch.lap("encode")
        found = self._nearest(vector, k, exclude)
        watch.lap("candidates")
        if self._join == "semantic" and self._encoder is not None:
            question = Question(distinct, vectors_of(distinct.values, self._encoder),
                                Count.of("semantic", self._encoder, None))  # fmt: skip
            return NearByMeaning(question, self._segments, found, self._method, self._encoder)
        return NearColumns(distinct, self._segments, found, self._method, self._join)

    def search_tables(
        self,
        query: Column,
        k: int | None,
        exclude_table: str | None,
        min_joinability: float,
        show: int | None,
    ) -> Results:
        """Return the nearest column of each of the nearest k tables.

        Beside it are the table's other columns that are nearer than the last of the tables.
        """
        self._refuse(min_joinability)
        return _ByTable(self, k).search_tables(query, k, exclude_table, 0.0, show)

    def rank_tables(
        self, watch: Stopwatch, query: Column, tables: int | None, exclude: str | None
    ) -> NearColumns:
        """Rank columns down to the first one of the last table asked for."""
        columns = None if tables is None else _A_TABLE * max(1, tables)
        while True:
            ranking = self._near_columns(watch, query, columns, exclude)
            last = ranking.first_of(tables)
            if last is not None or columns is None or len(ranking.places) < columns:
                return ranking.cut(last)
            columns *= 4


class _ByTable(Searching):
    """Groups the columns of a vector search by table."""

    def __init__(self, searcher: VectorSearcher, tables: int | None) -> None:
        self._searcher, self._tables = searcher, tables

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> NearColumns:
        return self._searcher.rank_tables(watch, query, self._tables, wanted.exclude)


class NearColumns(Ranking):
    """The columns near a query, as hits with what their equi-join is worth."""

    def __init__(
        self,
        distinct: DistinctCells,
        segments: Sequence[Segment],
        found: list[Near],
        method: str,
        join: str,
    ) -> None:
        self.distinct, self._segments = distinct, segments
        self._found, self._method, self._join = found, method, join

    @property
    def places(self) -> list[tuple[Segment, int]]:
        """The segment and the number of each column."""
        return [(self._segments[near.segment], near.column) for near in self._found]

    def first_of(self, tables: int | None) -> int | None:
        """Return the place of the first column of this many-th table; None if there is none."""
        seen: set[tuple[int, int]] = set()
        for place, near in enumerate(self._found):
            catalog = self._segments[near.segment].catalog
            seen.add((near.segment, int(catalog.column_tables[near.column])))
            if len(seen) == tables:
                return place
        return None

    def cut(self, last: int | None) -> NearColumns:
        """Leave out what comes after a place."""
        shorter = copy(self)
        shorter._found = self._found if last is None else self._found[: last + 1]
        return shorter

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure the equi-join of some columns, those of a segment together."""
        some = [self._found[place] for place in chosen]
        measured: dict[tuple[int, int], Verified] = {}
        for number in {near.segment for near in some}:
            columns = [near.column for near in some if near.segment == number]
            verified = self._verified(number, columns, show)
            measured |= {(number, column): one for column, one in verified.items()}
        hits = []
        for rank, near in enumerate(some, 1):
            equi = measured[near.segment, near.column]
            judged = Judged(self._join, near.similarity, equi.equi.joinability, (self._method,))
            catalog = self._segments[near.segment].catalog
            hits.append(hit(rank, catalog, near.column, len(self.distinct), equi, judged))
        return hits

    def _verified(self, number: int, columns: list[int], show: int | None) -> dict[int, Verified]:
        segment = self._segments[number]
        values = QueryValues.of(self.distinct, segment.values)
        cells = segment.catalog.column_cells[columns].tolist()
        found = verify(values, segment.values, np.array(columns, np.int32), cells, show)
        return dict(zip(columns, found, strict=True))


class NearByMeaning(NearColumns):
    """The same for semantic joins: the evidence is what cells match by meaning."""

    def __init__(
        self,
        question: Question,
        segments: Sequence[Segment],
        found: list[Near],
        method: str,
        encoder: CellEncoder,
    ) -> None:
        super().__init__(question.distinct, segments, found, method, "semantic")
        self._question, self._encoder = question, encoder

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure the semantic join of some columns, those of a segment together."""
        some = [self._found[place] for place in chosen]
        measured: dict[tuple[int, int], Meaning] = {}
        for number in {near.segment for near in some}:
            columns = [near.column for near in some if near.segment == number]
            measured |= {(number, one.column): one for one in self._meanings(number, columns)}
        meanings = [measured[near.segment, near.column] for near in some]
        return [
            replace(hit, score=near.similarity, found_by=(self._method,))
            for near, hit in zip(some, hits_by_meaning(self.distinct, meanings, show), strict=True)
        ]

    def _meanings(self, number: int, columns: list[int]) -> list[Meaning]:
        segment, count, numbers = self._segments[number], self._question.count, np.array(columns)
        side = Side(segment, self._question, self._encoder, 1, complete=True)
        meetings = side.meetings(numbers, in_full=True)
        measured = Measured.of(segment, numbers, meetings, count, np.zeros(len(columns)))
        return [measured.meaning(row, len(self.distinct), count.tau) for row in range(len(columns))]


def opened_vectors(
    segments: Sequence[Segment],
    space: str,
    about: tuple[str, str] | None = None,
    location: object = "The index",
    remedy: str = "",
) -> list[ColumnVectors]:
    """Open the vectors of all segments; ``about`` is name and digest of who made the query's."""
    found = [ColumnVectors.open(segment.folder, space) for segment in segments]
    complete = [one for one in found if one is not None and one.complete]
    called, option = _CALLED[space]
    if len(complete) < len(found):
        raise DeepJoinError(
            f"{location} has no {called} ({len(found) - len(complete)} of {len(found)} segments "
            f"are without). Make them with: deepjoin index {location} {remedy or option}"
        )
    for one in complete:
        if about is not None and one.about.digest != about[1]:
            raise _another(one.about.name, one.about.digest, about, remedy or option, location)
    return complete


def _another(
    theirs: str, digest: str, ours: tuple[str, str], remedy: str, location: object
) -> IndexUnusable:
    """Say that the vectors of the index and of the query cannot be compared."""
    return IndexUnusable(
        f"{location} was encoded by '{theirs}' ({digest}), not by '{ours[0]}' ({ours[1]}). "
        f"Encode it again with: deepjoin index {location} {remedy}"
    )
