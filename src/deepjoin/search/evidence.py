"""Hits that match by meaning: which cell is like which, and how the columns join as strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import Hit, Match, SemanticEvidence
from deepjoin.normalise.distinct import DistinctCells
from deepjoin.search.hits import Judged, hit
from deepjoin.search.verify import QueryValues, Verified, verify
from deepjoin.store.segment import Segment
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Meaning:
    """How a column matches a query: cells that have a match, and the likest value of each."""

    segment: Segment
    column: int
    cells: Int
    values: Int
    similarities: npt.NDArray[np.float64]
    semantic: SemanticEvidence
    join: str
    score: float
    joinability: float


def hits_by_meaning(
    distinct: DistinctCells, meanings: Sequence[Meaning], show: int | None
) -> list[Hit]:
    """Make hits, in this order, with up to ``show`` cells a kind."""
    verified: dict[int, Verified] = {}
    for segment in {id(one.segment): one.segment for one in meanings}.values():
        places = [place for place, one in enumerate(meanings) if one.segment is segment]
        columns = np.array([meanings[place].column for place in places])
        verified |= zip(places, _verified(distinct, segment, columns), strict=True)
    return [
        _hit(place + 1, distinct, one, verified[place], show) for place, one in enumerate(meanings)
    ]


def _verified(distinct: DistinctCells, segment: Segment, columns: Int) -> Iterator[Verified]:
    """Measure the equi-join with some columns of a segment, every cell listed."""
    values = QueryValues.of(distinct, segment.values)
    cells = segment.catalog.column_cells[columns].tolist()
    return verify(values, segment.values, columns.astype(np.int32), cells, None)


def _hit(rank: int, distinct: DistinctCells, one: Meaning, equi: Verified, show: int | None) -> Hit:
    index, spellings = one.segment.values, distinct.spellings
    places = _places(index, one.column, one.values)
    matched = set(one.cells.tolist())
    without = [text for cell, text in enumerate(spellings) if cell not in matched]
    judged = Judged(
        *(one.join, one.score, one.joinability, _found_by(equi, len(matched)), one.semantic),
        tuple(_matches(distinct, one, places, equi)[:show]),
        tuple(without[:show]),
    )
    mine = max((distinct.counts[cell] for cell in matched), default=1)
    theirs = int(index.cell_counts[places].max(initial=1))
    measured = equi._replace(cardinality=cardinality_of(mine, theirs) if matched else "")
    return hit(rank, one.segment.catalog, one.column, len(distinct), measured, judged)


def _matches(distinct: DistinctCells, one: Meaning, places: Int, equi: Verified) -> list[Match]:
    """List what matches what, as the tables spell it; equal cells as the equi-join has them."""
    equal = {match.query: match for match in equi.matches}
    index, spellings = one.segment.values, distinct.spellings
    found = zip(one.cells, one.values, index.cell_spellings[places], one.similarities, strict=True)
    return [
        equal.get(spellings[cell])
        or Match(
            spellings[cell],
            index.spelling(index.values[int(value)], int(spelling)),
            round(float(likeness), 6),
        )
        for cell, value, spelling, likeness in found
    ]


def _places(index: ValueIndex, column: int, values: Int) -> Int:
    """Find the entries of a column's forward index that hold some of its values."""
    start, stop = index.cells_of(column)
    held = index.cell_values[start:stop]
    return start + np.searchsorted(held, values.astype(held.dtype))


def _found_by(equi: Verified, matched: int) -> tuple[str, ...]:
    """Name the ways that lead to a hit: equal cells, similar cells."""
    ways = {"exact-equi": equi.equi.matched > 0, "cell-vectors": matched > equi.equi.matched}
    return tuple(way for way, used in ways.items() if used)
