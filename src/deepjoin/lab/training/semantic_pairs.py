"""Pairs of columns that join by meaning: a self-join over matching values (paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepjoin.arrays import blocks
from deepjoin.build.engine import Engine
from deepjoin.lab.training.columns import Int, TrainingColumns
from deepjoin.lab.training.self_join import (
    Block,
    Pairs,
    Postings,
    SelfJoin,
    Told,
    compared,
    incidence,
    overlaps,
    unheard,
)

#: Cells looked up at a time, and the least chance with which two values match.
_CELLS, _MATCH = 1 << 16, 0.5


def semantic_pairs(
    columns: TrainingColumns,
    near: Any,
    threshold: float = 0.7,
    most: int | None = 50,
    seed: int = 0,
    told: Told = unheard,
    engine: Engine | None = None,
) -> Pairs:
    """Find the pairs (x, y) of different tables where y matches this share of the values of x.

    ``near`` is the sparse matrix of `deepjoin.lab.training.near`; values match with a chance of one
    half or more, that is from tau on. An ``engine`` compares some columns at a time elsewhere.
    """
    wanted = SelfJoin(threshold, most, seed)
    asked = wanted.asked(columns)
    cells = incidence(columns)
    held = cells.T.tocsr()
    matches = near[: cells.shape[1], : cells.shape[1]]
    matches.data = (matches.data >= _MATCH).astype(np.int32)
    matches.eliminate_zeros()

    compare = _Matched(asked, cells, held, matches, wanted)

    def found() -> Iterator[Pairs]:
        for stop, pairs in compared(list(blocks(columns.sizes[asked], _CELLS)), compare, engine):
            yield pairs
            told(stop, len(asked), "columns compared")

    return wanted.best(columns, found())


@dataclass(frozen=True)
class _Matched:
    """Counts what blocks of columns match of others; as one value, it can be sent elsewhere."""

    asked: Int
    #: Sparse matrices of columns and values, values and columns, values and those they match.
    cells: Any
    held: Any
    matches: Any
    wanted: SelfJoin

    def __call__(self, block: Block) -> Iterator[Pairs]:
        """Yield the pairs of a block."""
        some = self.asked[slice(*block)]
        values, places = np.unique(self.cells[some].indices, return_inverse=True)
        mine = _replaced(self.cells[some], places, len(values))
        matched = Postings(self.matches[values] @ self.held)
        yield from (pairs for _, pairs in overlaps(some, mine, matched, self.wanted))


def _replaced(cells: Any, places: Int, width: int) -> Any:
    """Give the values of a sparse matrix other numbers."""
    from scipy.sparse import csr_array

    return csr_array((cells.data, places, cells.indptr), shape=(cells.shape[0], width))
