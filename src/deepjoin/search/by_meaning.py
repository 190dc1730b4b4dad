"""Search by what cells mean: near values give candidates, and every candidate is measured.

Where a segment's values are few, all of them are compared with the query's; where they are
many, lists of near ones are probed instead, and columns that look best are then compared in
full. Either way a hit is what its stored cells say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.model import Column
from deepjoin.search.base import Ranking, Searching, Wanted
from deepjoin.search.meant import Meant
from deepjoin.search.measured import Measured
from deepjoin.search.question import Question, Side
from deepjoin.search.soft import Count
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic, generic_of

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Real = npt.NDArray[np.float64]

#: So many of the best columns, or so many times k, are measured.
_MEASURED, _TIMES = 200, 4
#: By how much more columns are measured if too few of these hold a match.
_GROWTH = 8
#: Names whose vectors are kept at most.
_NAMES = 1 << 16
#: What the reverse coverage adds to a score when columns to be measured are chosen.
_TIE = 0.05


class NameVectors:
    """The vectors of column names, kept: many columns of a lake have the same few."""

    def __init__(self, encoder: CellEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Float] = {}

    def of(self, names: Sequence[str]) -> Float:
        """Encode names, each once."""
        if len(self._known) > _NAMES:
            self._known = {}
        known = self._known
        new = [name for name in dict.fromkeys(names) if name not in known]
        if new:
            known |= zip(new, self._encoder.encode(new), strict=True)
        return np.stack([known[name] for name in names])


class ByMeaning(Searching):
    """Ranks by the share of the query's cells that a column holds, in any spelling.

    Join "any" counts each cell by the chance of a match, "semantic" as 1 from tau on.
    """

    def __init__(
        self, segments: Sequence[Segment], profile: str, encoder: CellEncoder, join: str,
        tau: float | None = None, threads: int = 2,
    ) -> None:  # fmt: skip
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder = profile, encoder
        self._count = Count.of(join, encoder, tau)
        self._threads = threads
        self._names = NameVectors(encoder)

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Ranking:
        question = Question.of(query, self._profile, self._encoder, self._count)
        watch.lap("encode")
        ranking = self._ranked(question, query, wanted, complete=wanted.k is None)
        # Lists may miss what is far; then everything is compared.
        if wanted.k is not None and len(ranking.places) < wanted.k and self._has_lists:
            ranking = self._ranked(question, query, wanted, complete=True)
        watch.lap("candidates")
        return ranking

    @property
    def _has_lists(self) -> bool:
        return any(segment.cells and segment.cells.has_lists for segment in self._segments)

    def _ranked(self, question: Question, query: Column, wanted: Wanted, complete: bool) -> Meant:
        if len(question) == 0 or wanted.k == 0 or not self._segments:
            return Meant(question, [], [])
        sides = [
            Side(one, question, self._encoder, self._threads, complete) for one in self._segments
        ]
        demote = generic_of(question.distinct.values) is Generic.NO
        which, columns = _by_promise(sides, wanted, len(question), demote)
        most = len(columns) if wanted.k is None else max(_MEASURED, _TIMES * wanted.k)
        while True:
            measured = [
                self._measured(side, np.sort(columns[:most][which[:most] == number]), query.name)
                for number, side in enumerate(sides)
            ]
            ranking = Meant.of(question, measured, wanted, demote)
            # Columns may promise much and hold no match; then more of them are measured.
            if most >= len(columns) or len(ranking.places) >= (wanted.k or 0):
                return ranking
            most *= _GROWTH

    def _measured(self, side: Side, columns: Int, name: str) -> Measured:
        meetings = side.meetings(columns, in_full=not side.is_complete)
        likeness = name_likeness(self._names, side.segment, columns, name)
        return Measured.of(side.segment, columns, meetings, self._count, likeness)


def name_likeness(known: NameVectors, segment: Segment, columns: Int, name: str) -> Real:
    """Give the cosine of the columns' names with the query's, 0 where it is below 0."""
    names = segment.catalog.column_names
    vectors = known.of([name, *(names[column] for column in columns.tolist())])
    likeness: Real = vectors[1:].astype(np.float64) @ vectors[0].astype(np.float64)
    return np.maximum(0, likeness)


def _by_promise(sides: Sequence[Side], wanted: Wanted, size: int, demote: bool) -> tuple[Int, Int]:
    """Return the columns worth measuring, best first: which segment each is of, and its number."""
    sums = [side.sums(wanted.exclude) for side in sides]
    found = [np.flatnonzero(of) for of in sums]
    scores = np.concatenate([of[columns] for of, columns in zip(sums, found, strict=True)])
    which = np.repeat(np.arange(len(sides)), [len(columns) for columns in found])
    # Of columns that hold as much, those that hold little else can be among the best.
    sizes = [side.segment.values.sizes(c) for side, c in zip(sides, found, strict=True)]
    keys = scores * (1 + _TIE / np.maximum(1, np.concatenate(sizes)))
    if demote:
        generic = [side.segment.catalog.column_generic for side in sides]
        marks = [of[c] != 0 for of, c in zip(generic, found, strict=True)]
        keys = keys - (size + 1) * np.concatenate(marks)
    reach = np.flatnonzero(scores >= wanted.threshold * size * (1 - 1e-6))
    order = reach[np.argsort(-keys[reach], kind="stable")]
    return which[order], np.concatenate(found)[order]
