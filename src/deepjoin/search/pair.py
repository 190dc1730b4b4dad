"""The evidence of one pair of columns, measured as that of a hit, whether or not it is one."""

from __future__ import annotations

import numpy as np

from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, Hit
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.search.by_meaning import NameVectors, name_likeness
from deepjoin.search.evidence import hits_by_meaning
from deepjoin.search.exact_equi import FOUND_BY
from deepjoin.search.ground import Ground
from deepjoin.search.hits import Judged, hit
from deepjoin.search.measured import Measured
from deepjoin.search.question import Question, Side
from deepjoin.search.soft import Count
from deepjoin.search.verify import QueryValues, verify
from deepjoin.store.segment import Segment


def measure_pair(
    ground: Ground,
    query: Column,
    target: tuple[Segment, int],
    join: str,
    tau: float | None,
    show: int | None,
) -> Hit:
    """Measure how a query joins with a column of a segment; list up to ``show`` cells a kind."""
    if not distinct_cells(query.cells, ground.profile).values:
        raise DeepJoinError("The query column has no values: every cell is missing or blank.")
    if join == "equi" or (join == "any" and not ground.has_cells):
        return _by_equality(ground, query, target, show)
    return _by_meaning(ground, query, target, join, tau, show)


def _by_equality(
    ground: Ground, query: Column, target: tuple[Segment, int], show: int | None
) -> Hit:
    segment, column = target
    distinct = distinct_cells(query.cells, ground.profile, ground.key)
    values, columns = QueryValues.of(distinct, segment.values), np.array([column], np.int32)
    cells = segment.catalog.column_cells[columns].tolist()
    (measured,) = verify(values, segment.values, columns, cells, show)
    share = measured.equi.joinability
    judged = Judged("equi", share, share, FOUND_BY if measured.equi.matched else ())
    return hit(1, segment.catalog, column, len(distinct), measured, judged)


def _by_meaning(
    ground: Ground,
    query: Column,
    target: tuple[Segment, int],
    join: str,
    tau: float | None,
    show: int | None,
) -> Hit:
    segment, column = target
    encoder, columns = ground.cell_encoder(), np.array([column])
    count = Count.of(join, encoder, tau)
    question = Question.of(query, ground.profile, encoder, count)
    side = Side(segment, question, encoder, threads=1, complete=False)
    likeness = name_likeness(NameVectors(encoder), segment, columns, query.name)
    meetings = side.meetings(columns, in_full=True)
    measured = Measured.of(segment, columns, meetings, count, likeness)
    meaning = measured.meaning(0, len(question), count.tau)
    return hits_by_meaning(question.distinct, [meaning], show)[0]
