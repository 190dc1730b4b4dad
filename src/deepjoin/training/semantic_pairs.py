"""Pairs of columns that join by meaning: a self-join over matching values (paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deepjoin.training.columns import Int, TrainingColumns
from deepjoin.training.self_join import (
    Pairs,
    Postings,
    SelfJoin,
    Told,
    incidence,
    overlaps,
    unheard,
)
from deepjoin.values.prefix import blocks

#: Cells looked up at a time, and the least chance with which two values match.
_CELLS, _MATCH = 1 << 16, 0.5


def semantic_pairs(
    columns: TrainingColumns,
    near: Any,
    threshold: float = 0.7,
    most: int | None = 50,
    seed: int = 0,
    told: Told = unheard,
) -> Pairs:
    """Find the pairs (x, y) of different tables where y matches this share of the values of x.

    ``near`` is the sparse matrix of `deepjoin.training.near`; values match with a chance of one
    half or more, that is from tau on.
    """
    wanted = SelfJoin(threshold, most, seed)
    asked = wanted.asked(columns)
    cells = incidence(columns)
    held = cells.T.tocsr()
    matches = near[: cells.shape[1], : cells.shape[1]]
    matches.data = (matches.data >= _MATCH).astype(np.int32)
    matches.eliminate_zeros()

    def found() -> Iterator[Pairs]:
        for start, stop in blocks(columns.sizes[asked], _CELLS):
            some = asked[start:stop]
            values, places = np.unique(cells[some].indices, return_inverse=True)
            mine = _replaced(cells[some], places, len(values))
            matched = Postings(matches[values] @ held)
            yield from (pairs for _, pairs in overlaps(some, mine, matched, wanted))
            told(stop, len(asked), "columns compared")

    return wanted.best(columns, found())


def _replaced(cells: Any, places: Int, width: int) -> Any:
    """Give the values of a sparse matrix other numbers."""
    from scipy.sparse import csr_array

    return csr_array((cells.data, places, cells.indptr), shape=(cells.shape[0], width))
