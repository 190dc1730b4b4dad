"""The paper's definitions as pure functions (section 2.1): the oracle of every exact method."""

from __future__ import annotations

from collections.abc import Iterable

from deepjoin.distinct import DistinctCells, distinct_cells

Cells = Iterable[str | None]


def equi_joinability(query: Cells, target: Cells, profile: str = "default") -> float:
    """Share of the query's distinct values found in the target (definition 2.1).

    >>> equi_joinability(["Apple", "GE", "Yahoo!", "ge"], ["apple", "IBM", "GE"])
    0.6666666666666666
    """
    wanted = set(distinct_cells(query, profile).values)
    held = set(distinct_cells(target, profile).values)
    return len(wanted & held) / len(wanted) if wanted else 0.0


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
    """Say how many rows meet on the matched values: 1:1, 1:n, n:1 or n:m, query side first.

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
