"""A query by what its cells mean, and what each segment has to say to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.scan import SLACK, CandidatePairs
from deepjoin.matching.joinability import similarities
from deepjoin.model import Column
from deepjoin.normalise.distinct import DistinctCells, distinct_cells
from deepjoin.search.base import excluded_columns
from deepjoin.search.soft import Count, Meetings, column_sums
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Question:
    """A query's distinct cells with their vectors, and how pairs of cells count."""

    distinct: DistinctCells
    vectors: Float
    count: Count

    @classmethod
    def of(cls, query: Column, profile: str, encoder: CellEncoder, count: Count) -> Question:
        """Reduce a query to its distinct cells and encode them."""
        distinct = distinct_cells(query.cells, profile)
        return cls(distinct, vectors_of(distinct.values, encoder), count)

    def __len__(self) -> int:
        return len(self.distinct)


def vectors_of(values: list[str], encoder: CellEncoder) -> Float:
    """Encode a query's values, lone surrogates among them, which no lake holds."""
    return encoder.encode([value.encode("utf-8", "replace").decode() for value in values])


class Side:
    """One segment in the light of one query."""

    def __init__(
        self, segment: Segment, question: Question, encoder: CellEncoder, threads: int,
        complete: bool,
    ) -> None:  # fmt: skip
        assert segment.cells is not None
        self.segment, self._question, self._encoder = segment, question, encoder
        self._cells: CellVectors = segment.cells
        self._threads, self._complete = threads, complete
        self.equal = segment.values.look_up(question.distinct.values)

    @property
    def is_complete(self) -> bool:
        """Whether everything near the query's cells was found, not only what lists lead to."""
        return self._complete or not self._cells.has_lists

    @cached_property
    def _near(self) -> CandidatePairs:
        asked = self._question
        near = self._cells.near(asked.vectors, asked.count.least, self._threads, self._complete)
        return near.with_equal(self.equal)

    def sums(self, exclude: str | None) -> Float:
        """Say of every column what the query's cells count in it; 0 for one that is out."""
        counts = self._question.count(self._near.similarities)
        sums = column_sums(self._near, counts, self.segment.values)
        out = excluded_columns(self.segment, exclude)
        if out is not None:
            sums[out] = 0
        return sums

    def meetings(self, columns: Int, in_full: bool) -> Meetings:
        """Find where the query's cells meet some columns; in full, all of theirs are compared."""
        pairs = self._among(columns) if in_full else self._near
        return self._decided(Meetings.of(pairs, self.segment.values, columns))

    def _among(self, columns: Int) -> CandidatePairs:
        """Compare the query's cells with the values of some columns, and with no others."""
        asked = self._question
        values = self._values_of(columns)
        near = self._cells.vectors.among(values, asked.vectors, asked.count.least, self._threads)
        return near.with_equal(self.equal)

    def _decided(self, meetings: Meetings) -> Meetings:
        """Compute again, from the strings, what stored vectors leave open: a match or not."""
        count = self._question.count
        open_ = meetings.similarities < 1
        error = self._cells.vectors.errors_of(meetings.values) + SLACK
        rows = np.flatnonzero(open_ & (np.abs(meetings.similarities - count.tau) <= error))
        if len(rows) == 0:
            return meetings
        values, place = np.unique(meetings.values[rows], return_inverse=True)
        exact = self._encoder.encode([self.segment.values.values[v] for v in values.tolist()])
        found = similarities(exact[place], self._question.vectors[meetings.cells[rows]])
        return meetings.with_similarities(rows, found)

    def _values_of(self, columns: Int) -> Int:
        index = self.segment.values
        held = [index.cell_values[slice(*index.cells_of(one))] for one in columns.tolist()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *held]))
