"""Joinability by definition (section 2.1), and how similarities and cardinalities are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from deepjoin.arrays import Float, Int
from deepjoin.normalise.cells import distinct_cells

Cells = Iterable[str | None]
#: Gives canonical values their vectors, rows of length 1, or 0 for a value without one.
Encode = Callable[[list[str]], Float]

#: Similarities are whole millionths: single precision carries no more, and sums have no order.
ONE = 1_000_000


def semantic_joinability(
    query: Cells, target: Cells, encode: Encode, tau: float, profile: str = "default"
) -> float:
    """Share of the query's distinct values with a match in the target (definition 2.2).

    Two values match if they are equal or the cosine of their vectors reaches tau.
    """
    best = best_similarities(query, target, encode, profile)
    return float(np.mean(best >= least(tau))) if len(best) else 0.0


def best_similarities(query: Cells, target: Cells, encode: Encode, profile: str = "default") -> Int:
    """Return, for each distinct value of the query, its best similarity in the target.

    >>> def encode(values):
    ...     return np.array([[1, 0] if "a" in value else [0, 1] for value in values], np.float32)
    >>> best_similarities(["a", "b"], ["A", "aa"], encode).tolist()
    [1000000, 0]
    """
    mine, theirs = (distinct_cells(cells, profile).values for cells in (query, target))
    best = np.zeros(len(mine), np.int64)
    vectors = encode(theirs)
    held = set(theirs)
    for i, (value, vector) in enumerate(zip(mine, encode(mine), strict=True)):
        best[i] = ONE if value in held else similarities(vector, vectors).max(initial=0)
    return best


def similarities(rows: Float, others: Float) -> Int:
    """Return the cosine of each pair of unit vectors in whole millionths, row by row."""
    products = (rows.astype(np.float64) * others.astype(np.float64)).sum(axis=-1)
    rounded: Int = np.rint(np.minimum(products, 1) * ONE).astype(np.int64)
    return rounded


def least(bound: float) -> int:
    """Return the smallest similarity, in millionths, that reaches a cosine bound.

    >>> least(0.7)
    700000
    """
    return round(bound * ONE)


def cardinality_of(query_repeats: int, target_repeats: int) -> str:
    """Name the cardinality, given how often a matched value occurs at most on each side."""
    if query_repeats > 1:
        return "n:m" if target_repeats > 1 else "n:1"
    return "1:n" if target_repeats > 1 else "1:1"
