"""The method of PEXESO as published, for comparison: it finds what exact-semantic finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import load_strings
from deepjoin.embed.cells import CellEncoder
from deepjoin.lab.pexeso.pexeso import ColumnValues, Pexeso
from deepjoin.model import Column, Hit
from deepjoin.search.base import Searching, Wanted, excluded_columns
from deepjoin.search.ground import Ground
from deepjoin.search.meant import Meant
from deepjoin.search.measured import Measured
from deepjoin.search.question import Question, Side
from deepjoin.search.soft import Count
from deepjoin.search.stopwatch import Stopwatch
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]

FOUND_BY = ("pexeso",)


def pexeso(ground: Ground, join: str, tau: float | None) -> PexesoSearch:
    """Search by pivots and a grid, with the encoder's own tau unless another is given."""
    return PexesoSearch(ground.segments, ground.profile, ground.cell_encoder(), tau)


class PexesoSearch(Searching):
    """Ranks by semantic joinability; its grids hold all vectors in memory, in full precision."""

    def __init__(
        self, segments: Sequence[Segment], profile: str, encoder: CellEncoder, tau: float | None
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder = profile, encoder
        self._count = Count.of("semantic", encoder, tau)
        self._grids = [self._grid(segment) for segment in self._segments]

    def _grid(self, segment: Segment) -> Pexeso:
        vectors = self._encoder.encode(load_strings(segment.folder, "values"))
        index = segment.values
        columns = ColumnValues(
            np.asarray(index.column_offsets), np.asarray(index.cell_values, np.int64)
        )
        return Pexeso(vectors, columns, segment.catalog.column_order)

    def _ranking(self, watch: Stopwatch, query: Column, wanted: Wanted) -> Meant:
        question = Question.of(query, self._profile, self._encoder, self._count)
        watch.lap("encode")
        measured = [
            self._measured(segment, grid, question, wanted)
            for segment, grid in zip(self._segments, self._grids, strict=True)
            if len(question) and wanted.k != 0
        ]
        watch.lap("candidates")
        return _Published.of(question, measured, wanted, demote=False)

    def _measured(
        self, segment: Segment, grid: Pexeso, question: Question, wanted: Wanted
    ) -> Measured:
        side = Side(segment, question, self._encoder, 1, complete=True)
        columns = np.sort(self._found(side, grid, question, wanted))
        meetings = side.meetings(columns, in_full=True)
        return Measured.of(segment, columns, meetings, self._count, np.zeros(len(columns)))

    def _found(self, side: Side, grid: Pexeso, question: Question, wanted: Wanted) -> Int:
        """Ask the grid for the best k, or for all that reach the threshold."""
        out = excluded_columns(side.segment, wanted.exclude)
        tau = self._count.tau
        if wanted.k is not None:
            return grid.search(question.vectors, tau, wanted.k, out, side.equal)[0]
        least = int(np.ceil(wanted.threshold * len(question) * (1 - 1e-9)))
        found = grid.joinable(question.vectors, tau, max(1, least), side.equal)
        return found if out is None else found[~out[found]]


class _Published(Meant):
    """What the grid found, said to be so."""

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Say of some columns what matches what."""
        return [replace(hit, found_by=FOUND_BY) for hit in super().hits(chosen, show)]
