"""Evidence for hits, measured on the stored cells: what matches what, how often, what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import EquiEvidence, Match
from deepjoin.normalise.distinct import DistinctCells
from deepjoin.store.values.index import ValueIndex

Int = npt.NDArray[np.int64]
Columns = npt.NDArray[np.int32]

#: Larger columns are probed for the query's values instead of being read whole.
_LARGE = 4096


@dataclass(frozen=True)
class QueryValues:
    """The query as a set, with the numbers its values have in one value index (-1: unknown)."""

    distinct: DistinctCells
    numbers: Int
    #: The values the index knows: which they are, in ascending order of their numbers.
    known: Int

    @classmethod
    def of(cls, distinct: DistinctCells, index: ValueIndex) -> QueryValues:
        """Look the query's values up, or what stands for them in a lake of hashes."""
        held = distinct.values if distinct.hidden is None else distinct.hidden
        numbers = index.look_up(held)
        order = np.argsort(numbers, kind="stable")
        return cls(distinct, numbers, order[numbers[order] >= 0])


class Verified(NamedTuple):
    """The evidence of one query and one column."""

    equi: EquiEvidence
    target_size: int
    cardinality: str
    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]


def verify(
    query: QueryValues,
    index: ValueIndex,
    columns: Columns,
    target_cells: list[int],
    show: int | None,
) -> Iterator[Verified]:
    """Measure the equi-join of the query with each column; list up to ``show`` cells a kind.

    A lake of hashes has no cells to list.
    """
    if query.distinct.hidden is not None:
        show = 0
    hit, who, place = _matched(query, index, columns)
    bounds = np.searchsorted(hit, np.arange(len(columns) + 1)).tolist()
    sizes = index.sizes(columns).tolist()
    # Matches are few: plain lists are faster than array calls from here on.
    asked, theirs = who.tolist(), index.cell_counts[place].tolist()
    spelled = index.cell_spellings[place].tolist()
    counts, query_cells = query.distinct.counts, sum(query.distinct.counts)
    match = _matcher(query.distinct, index)
    for i, (start, stop) in enumerate(pairwise(bounds)):
        here, other = asked[start:stop], theirs[start:stop]
        own = [counts[q] for q in here]
        join_size = sum(map(mul, own, other))
        equi = EquiEvidence(
            joinability=len(here) / len(counts),
            reverse=len(here) / sizes[i],
            matched=len(here),
            join_size=join_size,
            multiset=join_size / (query_cells * target_cells[i]),
        )
        cardinality = cardinality_of(max(own), max(other)) if here else ""
        matches = tuple(map(match, here[:show], spelled[start:stop]))
        yield Verified(equi, sizes[i], cardinality, matches, _unmatched(query.distinct, here, show))


def _matched(query: QueryValues, index: ValueIndex, columns: Columns) -> tuple[Int, Int, Int]:
    """Find the cells that meet: which hit, which query value, which entry of the forward index.

    Ordered by hit, then by the query's own order.
    """
    wanted = query.numbers[query.known]
    if len(wanted) == 0:
        return (np.zeros(0, np.int64),) * 3
    hits, whos, places = [], [], []
    small: list[tuple[int, int, int]] = []
    for i, column in enumerate(columns.tolist()):
        start, stop = index.cells_of(column)
        if stop - start <= _LARGE:
            small.append((i, start, stop))
            continue
        # Of the same type, or the whole column would be copied to be searched.
        at = np.searchsorted(index.cell_values[start:stop], wanted.astype(np.uint32))
        here = index.cell_values[start + np.minimum(at, stop - start - 1)] == wanted
        hits.append(np.full(int(here.sum()), i))
        whos.append(query.known[here])
        places.append(start + at[here])
    if small:
        which, starts, stops = np.array(small).T
        sizes = stops - starts
        place = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        values = index.cell_values[place]
        at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
        here = wanted[at] == values
        hits.append(np.repeat(which, sizes)[here])
        whos.append(query.known[at[here]])
        places.append(place[here])
    hit, who, place = (np.concatenate(parts) for parts in (hits, whos, places))
    order = np.lexsort((who, hit))
    return hit[order], who[order], place[order]


def _matcher(distinct: DistinctCells, index: ValueIndex) -> Callable[[int, int], Match]:
    """Make matches from a query value and a spelling number; hits share most of them."""
    values, spellings = distinct.values, distinct.spellings

    @cache
    def match(who: int, spelling: int) -> Match:
        return Match(spellings[who], index.spelling(values[who], spelling))

    return match


def _unmatched(distinct: DistinctCells, who: list[int], show: int | None) -> tuple[str, ...]:
    matched = set(who)
    return tuple([s for q, s in enumerate(distinct.spellings) if q not in matched][:show])
