"""The order of hits, defined: joinability, then reverse coverage, rarity, name, place."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Double, Int, Int32, Marks
from deepjoin.lazy import cached_property
from deepjoin.matching.names import home_of
from deepjoin.model import Hit, Partial
from deepjoin.search.candidates import Overlap
from deepjoin.search.evidence import EQUAL_CELLS, ColumnMatch, Place, equi_hits, semantic_hits
from deepjoin.search.likely import QueryFacts, decisions
from deepjoin.search.query import SearchQuery
from deepjoin.search.scores import ColumnScores
from deepjoin.store.segment import Segment

Keys = npt.NDArray[np.generic]
#: Returns a key for the rows of some candidates; smaller is better.
Key = Callable[[Int], Keys]

#: Scores nearer than this are equal: similarities come from rounded vectors.
_DIGITS = 4
#: Chances that are nearer than this are equal: then more matching cells decide.
CHANCE_DIGITS = 1
#: Tables of one family come behind others that are at least so likely; how many are looked through
#: for these, for each hit.
_LIKELY, _THROUGH = 0.5, 40
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+|\d+")


class Ranking(ABC):
    """Columns of the lake, best first; evidence is measured for those that become hits."""

    #: What is missing if the search was not complete.
    partial: Partial | None = None
    #: Whether columns are in the order of their probability.
    is_by_chance = False

    def __init__(self, query: SearchQuery, places: Sequence[Place]) -> None:
        self.query, self.places = query, places

    @abstractmethod
    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure some of the columns and list up to ``show`` cells a kind; ranks are 1, 2, 3."""


class EquiRanking(Ranking):
    """Columns whose evidence is their equi-join; the score is the joinability or the method's."""

    def __init__(
        self,
        query: SearchQuery,
        places: Sequence[Place],
        *,
        join: str = "equi",
        found_by: str = EQUAL_CELLS,
        scores: Sequence[float] | None = None,
        overlaps: Sequence[int] | None = None,
    ) -> None:
        super().__init__(query, places)
        self._join, self._found_by, self._scores = join, found_by, scores
        #: How many values each column shares with the query, if they were counted.
        self._overlaps = overlaps

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Measure the equi-join of some columns; where overlaps were counted, when it is read."""
        scores, overlaps = self._scores, self._overlaps
        return equi_hits(
            self.query,
            [self.places[place] for place in chosen],
            show,
            join=self._join,
            found_by=(self._found_by,),
            scores=None if scores is None else [scores[place] for place in chosen],
            overlaps=None if overlaps is None else [overlaps[place] for place in chosen],
        )


class SemanticRanking(Ranking):
    """Columns whose evidence is the cells that match by meaning, measured when they are chosen."""

    def __init__(
        self,
        query: SearchQuery,
        places: Sequence[Place],
        matches: Callable[[Sequence[int]], Sequence[ColumnMatch]],
    ) -> None:
        super().__init__(query, places)
        self.matches = matches

    def hits(self, chosen: Sequence[int], show: int | None) -> list[Hit]:
        """Show which cells of some columns match which of the query's."""
        return semantic_hits(self.query, self.matches(chosen), show)


class RankedColumns(NamedTuple):
    """The best columns of one segment, best first, with the keys that put them there."""

    segment: Segment
    columns: Int32
    #: How many values each shares with the query.
    overlaps: Int
    keys: list[Keys]


def best_rows(
    order: Int, k: int | None, keys: list[Key], *, every: bool = True
) -> tuple[Int, list[Keys]]:
    """Return the rows of the best k candidates, best first, and their keys.

    A later key is computed only for the candidates that the earlier ones leave in the running, and
    not at all, unless ``every`` one is wanted, if the first decides; ``order`` decides between
    those that all keys leave equal.
    """
    rows = np.arange(len(order))
    known: list[Keys] = []
    for key in keys:
        # Rarity and names cost much more than overlaps, so few candidates get that far.
        known.append(key(rows))
        if k is not None and len(rows) > k:
            running = _running(known, k)
            rows = rows[running]
            known = [values[running] for values in known]
        if not every and len(known) == 1:
            ascending = np.sort(known[0])
            if np.all(ascending[1:] != ascending[:-1]):
                break
    best = np.lexsort((order[rows], *reversed(known)))[:k]
    return rows[best], [values[best] for values in known]


def _running(known: list[Keys], k: int) -> Int:
    """Return the places not worse than the k-th, ties included."""
    first = known[0]
    if len(known) == 1:
        return np.flatnonzero(first <= np.partition(first, k - 1)[k - 1])
    order = np.lexsort(tuple(reversed(known)))
    last = order[k - 1]
    tied = np.all([values[order[k:]] == values[last] for values in known], axis=0)
    # Ties with the k-th follow it directly.
    return np.sort(order[: k + int(np.argmin(np.append(tied, False)))])


def merge_segments(parts: Sequence[RankedColumns], k: int | None) -> list[tuple[Place, int]]:
    """Put the best columns of several segments in one order, each with its overlap."""
    parts = [part for part in parts if len(part.columns)]
    places = [
        ((part.segment, column), overlap)
        for part in parts
        for column, overlap in zip(part.columns.tolist(), part.overlaps.tolist(), strict=True)
    ]
    if len(parts) < 2:
        return places
    keys = [np.concatenate(of) for of in zip(*(part.keys for part in parts), strict=True)]
    order = np.lexsort(tuple(reversed(keys)))
    tied = np.all([of[order][1:] == of[order][:-1] for of in keys], axis=0)
    ranked = [places[row] for row in order.tolist()]
    # Ties are decided by table and place, however the lake is cut into segments.
    changes = np.flatnonzero(np.diff(np.concatenate([[False], tied, [False]]).astype(np.int8)))
    for start, last in changes.reshape(-1, 2).tolist():
        ranked[start : last + 1] = sorted(
            ranked[start : last + 1], key=lambda one: _table_and_column(one[0])
        )
    return ranked[:k]


def _table_and_column(place: Place) -> tuple[str, int]:
    segment, column = place
    return table_of(segment, column), column


def table_of(segment: Segment, column: int) -> str:
    """Return the name of a column's table."""
    return segment.catalog.table_names[int(segment.catalog.column_tables[column])]


class Rarity:
    """Sums the inverse document frequency, over the whole lake, of the values a column shares.

    Whole millibits, so that sums do not depend on the order of addition.
    """

    def __init__(self, overlaps: Sequence[Overlap], size: int, columns: int) -> None:
        self._overlaps, self._size, self._columns = overlaps, size, columns

    def of(self, overlap: Overlap, columns: Int32) -> Int:
        """Weigh columns of one segment."""
        return overlap.weigh(columns, self._weights[overlap.values.known])

    @cached_property
    def _weights(self) -> Int:
        frequency = np.zeros(self._size, np.int64)
        for overlap in self._overlaps:
            numbers, known = overlap.values
            frequency[known] += overlap.segment.frequency(numbers[known])
        bits = np.log2((self._columns + 1) / np.maximum(1, frequency))
        weights: Int = np.rint(1000 * bits).astype(np.int64)
        return weights


def rank_by_meaning(
    query: SearchQuery,
    scored: Sequence[ColumnScores],
    k: int | None,
    threshold: float,
    tau: float,
    *,
    demote: bool = False,
    found_by: tuple[str, ...] = (),
    facts: QueryFacts | None = None,
) -> SemanticRanking:
    """Put scored columns of all segments in one order, and keep the best that match a cell.

    Joins of kind "any" are ordered by their probability, and those of one family of tables do not
    stay together; the others by the score. ``facts`` may know columns from an earlier step.
    """
    size = len(query)
    facts = facts or QueryFacts(query)
    pairs = _in_order(facts, scored, k, threshold, demote=demote)
    is_any = any(scores.join == "any" for scores in scored)
    if is_any and _by_family(facts, pairs)[1]:
        most = None if k is None else _THROUGH * k
        first, alike, rest = _by_family(
            facts, _in_order(facts, scored, most, threshold, demote=demote)
        )
        pairs = [*first, *alike, *rest][:k]

    def matches(chosen: Sequence[int]) -> list[ColumnMatch]:
        some = [pairs[place] for place in chosen]
        return [
            replace(
                scores.match(row, size, tau, found_by),
                probability=facts.chances(scores)[row],
            )
            for scores, row in some
        ]

    places = [(scores.segment, int(scores.columns[row])) for scores, row in pairs]
    ranking = SemanticRanking(query, places, matches)
    ranking.is_by_chance = is_any
    return ranking


def _by_family(
    facts: QueryFacts, pairs: Sequence[tuple[ColumnScores, int]]
) -> tuple[list[tuple[ColumnScores, int]], ...]:
    """Separate the likely columns that add no new kind of table from those before them, and after.

    Days of a forecast, years of a list and three columns of one table would fill the page. What a
    person accepted stays first.
    """
    parts: tuple[list[tuple[ColumnScores, int]], ...] = ([], [], [])
    seen = set[Hashable]()
    for pair in pairs:
        scores, row = pair
        chance = facts.chances(scores)[row]
        if parts[2] or round(chance, CHANCE_DIGITS) < _LIKELY:
            parts[2].append(pair)
            continue
        column = int(scores.columns[row])
        kin = {_family(scores.segment, column), table_of(scores.segment, column)}
        parts[bool(kin & seen) and chance < 1].append(pair)
        seen |= kin
    return parts


def _family(segment: Segment, column: int) -> Hashable:
    """Say which tables are one family: of one place and alike, or apart in numbers alone."""
    catalog, table = segment.catalog, table_of(segment, column)
    known = catalog.table(int(catalog.column_tables[column])).columns
    if not known:  # a collection of columns, which no place holds together
        return table
    names = (
        home_of(table) or table,
        catalog.column_names[column],
        *sorted({one.name for one in known}),
    )
    return tuple(_NUMBER.sub("#", name) for name in names)


def _in_order(
    facts: QueryFacts,
    scored: Sequence[ColumnScores],
    k: int | None,
    threshold: float,
    *,
    demote: bool,
) -> list[tuple[ColumnScores, int]]:
    """Return the best k columns that match a cell, each as a row of the scores of its segment."""
    query, name = facts.query, facts.query.name
    size = len(query)
    owners = [(scores, row) for scores in scored for row in range(len(scores.columns))]
    if not owners:
        return []
    keys = np.hstack([rank_keys(query, scores, facts, demote=demote) for scores in scored])
    good = [(scores.matched_cells > 0) & (scores.sums / size >= threshold) for scores in scored]
    order = np.flatnonzero(np.concatenate(good))
    order = order[np.lexsort(keys[::-1, order])]

    def by_name(number: int) -> tuple[object, ...]:
        scores, row = owners[number]
        place = scores.segment, int(scores.columns[row])
        other = scores.segment.catalog.column_names[place[1]]
        return (-name_similarity(name, other) if name else 0.0, *_table_and_column(place))

    best: list[int] = []
    starts = np.flatnonzero(_changes(keys[:, order]))
    # Names are read only of those that all numbers leave equal.
    for start, stop in pairwise([*starts.tolist(), len(order)]):
        tied = order[start:stop].tolist()
        best += sorted(tied, key=by_name) if len(tied) > 1 else tied
        if k is not None and len(best) >= k:
            break
    return [owners[number] for number in best[:k]]


def rank_keys(
    query: SearchQuery, scores: ColumnScores, facts: QueryFacts, *, demote: bool = False
) -> Double:
    """Return the keys of scored columns, the most important in the first row; smaller is better."""
    is_any, some = scores.join == "any", scores.columns
    nothing = np.zeros(len(some))
    last = scores.segment.catalog.column_generic[some] != 0 if demote else nothing
    # What a person said of a join comes before all that can be measured.
    said = decisions(query, scores.segment, some) if is_any else nothing
    chances = np.array(facts.chances(scores)) if is_any else nothing
    # Without a name, nothing but its cells speaks for a row number, and cells say little; and what
    # was typed in is all wanted.
    if not query.name:
        chances = chances * scores.joinabilities(len(query))
    chances = np.round(chances, CHANCE_DIGITS)
    first = -said, last * (not (is_any and query.name)), -chances, last
    # Of columns that match alike, the key of a table comes before those that refer to it as well.
    unique = nothing
    if is_any:
        cells = scores.segment.catalog.column_cells[some]
        is_key = scores.segment.values.sizes(some) >= cells
        # Without a name, a row number is no key to what was typed in.
        unique = np.where(
            bool(query.name) | (scores.segment.catalog.column_generic[some] == 0), is_key, 0.0
        )
    numbers = scores.scores(len(query)), unique, scores.reverse, scores.likeness
    return np.array([*first, *(-np.round(of, _DIGITS) for of in numbers)])


def _changes(keys: Double) -> Marks:
    """Mark the columns of a table of keys that differ from the one before."""
    new = np.ones(keys.shape[1], bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return new


@lru_cache(maxsize=1 << 16)
def name_similarity(one: str, other: str) -> float:
    """Share of words two column names have in common.

    >>> name_similarity("customer_country", "Country name")
    0.3333333333333333
    """
    mine, theirs = name_words(one), name_words(other)
    return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


@lru_cache(maxsize=1 << 12)
def name_words(name: str) -> frozenset[str]:
    """Split a column name into words, at case changes as well."""
    return frozenset(word.lower() for word in _WORD.findall(name))
