"""The definitions of joinability, by comparing all cells: what exact methods must agree with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from deepjoin.arrays import Float
from deepjoin.embed.cells import CellEncoder, match_chance
from deepjoin.matching.joinability import (
    ONE,
    Cells,
    Encode,
    best_similarities,
    cardinality_of,
    least,
)
from deepjoin.normalise.cells import DistinctCells, distinct_cells


def equi_joinability(query: Cells, target: Cells, profile: str = "default") -> float:
    """Share of the query's distinct values found in the target (definition 2.1)."""
    wanted = set(distinct_cells(query, profile).values)
    held = set(distinct_cells(target, profile).values)
    return len(wanted & held) / len(wanted) if wanted else 0.0


def soft_joinability(
    query: Cells, target: Cells, encode: Encode, floor: float, profile: str = "default"
) -> float:
    """Mean over the query's distinct values: 1 if found, else the best cosine from the floor up."""
    best = best_similarities(query, target, encode, profile)
    return int(best[best >= least(floor)].sum()) / (ONE * len(best)) if len(best) else 0.0


def chance_joinability(
    query: Sequence[str], target: Sequence[str], encoder: CellEncoder, profile: str = "default"
) -> float:
    """Average, over the query's distinct cells, the chance that the target holds each one.

    An equal cell counts 1, any other the chance of its best cosine. If several query cells share
    a best target cell, the likeliest counts in full and the n-th counts 1/n of its chance.
    """
    return next(chance_joinabilities(query, target, encoder, profile))


def chance_joinabilities(
    query: Sequence[str],
    target: Sequence[str],
    encoder: CellEncoder,
    profile: str = "default",
    error: float = 0.0,
) -> Iterator[float]:
    """Yield what the joinability is if each cosine may be wrong by an error, which decides ties."""
    mine, theirs = (distinct_cells(cells, profile).values for cells in (query, target))
    if not mine or not theirs:
        yield 0.0
        return
    cosines = encoder.encode(mine) @ encoder.encode(theirs).T
    chances = match_chance(cosines, encoder.floor, encoder.tau)
    equal = np.array(mine)[:, None] == np.array(theirs)
    chances[equal] = 1
    cosines[equal] = 2  # no error makes another cell better than an equal one
    rows = np.arange(len(mine))
    near = cosines >= cosines.max(axis=1, keepdims=True) - 2 * error
    for places in product(*map(np.flatnonzero, near)):
        chosen = np.zeros_like(chances)
        chosen[rows, places] = chances[rows, places]
        yield float(shared(chosen).mean())


def shared(chances: Float) -> Float:
    """Return each row's best chance; of rows with the same best column, the n-th counts 1/n."""
    best: Float = chances.max(axis=1)
    places = chances.argmax(axis=1)
    counted, taken = np.zeros_like(best), np.zeros(chances.shape[1], np.int64)
    for row in np.argsort(-best, kind="stable"):
        taken[places[row]] += 1
        counted[row] = best[row] / taken[places[row]]
    return counted


def join_size(query: Cells, target: Cells, profile: str = "default") -> int:
    """Count the rows of the inner join of the two columns, duplicates included."""
    mine, theirs = (_counts(distinct_cells(cells, profile)) for cells in (query, target))
    return sum(count * theirs.get(value, 0) for value, count in mine.items())


def multiset_joinability(query: Cells, target: Cells, profile: str = "default") -> float:
    """Join results over |Q| times |X|, columns taken as multisets (section 2.1, last remark)."""
    query, target = list(query), list(target)
    sizes = [sum(distinct_cells(cells, profile).counts) for cells in (query, target)]
    pairs = sizes[0] * sizes[1]
    return join_size(query, target, profile) / pairs if pairs else 0.0


def cardinality(query: Cells, target: Cells, profile: str = "default") -> str:
    """Return the cardinality of the matched values: 1:1, 1:n, n:1 or n:m, query side first."""
    mine, theirs = (_counts(distinct_cells(cells, profile)) for cells in (query, target))
    matched = mine.keys() & theirs.keys()
    return cardinality_of(
        max((mine[value] for value in matched), default=1),
        max((theirs[value] for value in matched), default=1),
    )


def _counts(distinct: DistinctCells) -> dict[str, int]:
    return dict(zip(distinct.values, distinct.counts, strict=True))
