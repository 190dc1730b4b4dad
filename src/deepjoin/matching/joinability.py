"""The paper's definitions as pure functions (section 2.1): the oracle of every exact method."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from deepjoin.normalise.distinct import DistinctCells, distinct_cells

Cells = Iterable[str | None]
#: Gives canonical values their vectors, rows of length 1, or 0 for a value without one.
Encode = Callable[[list[str]], npt.NDArray[np.float32]]

#: Similarities are whole millionths: single precision carries no more, and sums have no order.
ONE = 1_000_000


def equi_joinability(query: Cells, target: Cells, profile: str = "default") -> float:
    """Share of the query's distinct values found in the target (definition 2.1).

    >>> equi_joinability(["Apple", "GE", "Yahoo!", "ge"], ["apple", "IBM", "GE"])
    0.6666666666666666
    """
    wanted = set(distinct_cells(query, profile).values)
    held = set(distinct_cells(target, profile).values)
    return len(wanted & held) / len(wanted) if wanted else 0.0


def semantic_joinability(
    query: Cells, target: Cells, encode: Encode, tau: float, profile: str = "default"
) -> float:
    """Share of the query's distinct values with a match in the target (definition 2.2).

    Two values match if they are equal or the cosine of their vectors reaches tau.
    """
    best = best_similarities(query, target, encode, profile)
    return float(np.mean(best >= least(tau))) if len(best) else 0.0


def soft_joinability(
    query: Cells, target: Cells, encode: Encode, floor: float, profile: str = "default"
) -> float:
    """Mean over the query's distinct values: 1 if found, else the best cosine from the floor up."""
    best = best_similarities(query, target, encode, profile)
    return int(best[best >= least(floor)].sum()) / (ONE * len(best)) if len(best) else 0.0


def best_similarities(
    query: Cells, target: Cells, encode: Encode, profile: str = "default"
) -> npt.NDArray[np.int64]:
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


def similarities(
    rows: npt.NDArray[np.float32], others: npt.NDArray[np.float32]
) -> npt.NDArray[np.int64]:
    """Return the cosine of each pair of unit vectors in whole millionths, row by row."""
    products = (rows.astype(np.float64) * others.astype(np.float64)).sum(axis=-1)
    rounded: npt.NDArray[np.int64] = np.rint(np.minimum(products, 1) * ONE).astype(np.int64)
    return rounded


def least(bound: float) -> int:
    """Return the smallest similarity, in millionths, that reaches a cosine bound.

    >>> least(0.7)
    700000
    """
    return round(bound * ONE)


def join_size(query: Cells, target: Cells, profile: str = "default") -> int:
    """Count the rows of the inner join of the two columns, duplicates included.

    >>> join_size(["a", "a", "b"], ["a", "A", "c"])
    4
    """
    mine, theirs = (_counts(distinct_cells(cells, profile)) for cells in (query, target))
    return sum(count * theirs.get(value, 0) for value, count in mine.items())


def multiset_joinability(query: Cells, target: Cells, profile: str = "default") -> float:
    """Join results over |Q| times |X|, columns taken as multisets (section 2.1, last remark)."""
    query, target = list(query), list(target)
    sizes = [sum(distinct_cells(cells, profile).counts) for cells in (query, target)]
    pairs = sizes[0] * sizes[1]
    return join_size(query, target, profile) / pairs if pairs else 0.0


def cardinality(query: Cells, target: Cells, profile: str = "default") -> str:
    """Return the cardinality of the matched values: 1:1, 1:n, n:1 or n:m, query side first.

    >>> cardinality(["a", "b"], ["a", "a", "b"])
    '1:n'
    """
    mine, theirs = (_counts(distinct_cells(cells, profile)) for cells in (query, target))
    matched = mine.keys() & theirs.keys()
    return cardinality_of(
        max((mine[value] for value in matched), default=1),
        max((theirs[value] for value in matched), default=1),
    )


def cardinality_of(query_repeats: int, target_repeats: int) -> str:
    """Name the cardinality, given how often a matched value occurs at most on each side."""
    if query_repeats > 1:
        return "n:m" if target_repeats > 1 else "n:1"
    return "1:n" if target_repeats > 1 else "1:1"


def _counts(distinct: DistinctCells) -> dict[str, int]:
    return dict(zip(distinct.values, distinct.counts, strict=True))
