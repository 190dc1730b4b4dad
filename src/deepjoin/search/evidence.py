"""Evidence for hits, measured on the stored cells: what matches what, how often, what does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Marks, distinct, ranges
from deepjoin.lazy import cached_property
from deepjoin.matching.careful import AlikePairs, look_alike
from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import (
    Brings,
    EquiEvidence,
    Hit,
    Match,
    Program,
    SemanticEvidence,
    hit_to_measure,
)
from deepjoin.normalise.canonical import CellType, cell_type
from deepjoin.progress import check_stop
from deepjoin.search.likely import QueryFacts
from deepjoin.search.query import SearchQuery
from deepjoin.store.catalog import Catalog
from deepjoin.store.segment import Segment

#: A segment and the number of one of its columns.
Place = tuple[Segment, int]

#: Digits of a probability.
_SHOWN = 4
EQUAL_CELLS, SIMILAR_CELLS = "exact-equi", "cell-vectors"
#: Larger columns are probed for the query's values instead of being read whole.
_LARGE = 4096
#: A column that holds this share of the numbers around the query's would hold any of them.
_DENSE = 0.5
#: A lake has thousands of columns, so what has this chance in one of them happens in some.
_CHANCE = 0.001
#: Similar pairs of a hit that are looked at again, and the least chance that keeps one.
_CHECKED, _PLAUSIBLE = 1000, 0.21


class EquiJoin(NamedTuple):
    """The equi-join of a query and a column, measured."""

    equi: EquiEvidence
    target_size: int
    cardinality: str
    matches: tuple[Match, ...]
    unmatched: tuple[str, ...]


@dataclass(frozen=True)
class ColumnMatch:
    """How a column matches a query by meaning: the cells that match, each with its best value."""

    segment: Segment
    column: int
    cells: Int
    values: Int
    similarities: Double
    semantic: SemanticEvidence
    join: str
    score: float
    joinability: float
    #: How it was found; empty: by the cells that match, equal or similar.
    found_by: tuple[str, ...] = field(default=())
    #: None: to be found from the equal cells.
    probability: float | None = None
    #: Programs that make cells match, and the cells that match by one.
    programs: tuple[Program, ...] = ()
    rewritten: frozenset[int] = frozenset()


def equi_hits(
    query: SearchQuery,
    places: Sequence[Place],
    show: int | None,
    *,
    join: str = "equi",
    found_by: tuple[str, ...] = (EQUAL_CELLS,),
    scores: Sequence[float] | None = None,
    overlaps: Sequence[int] | None = None,
) -> list[Hit]:
    """Make hits of columns, with up to ``show`` cells a kind; the score may be the method's.

    With the ``overlaps`` of the columns, their evidence is measured when any of it is first read.
    """
    evidence = _LaterEvidence(query, places, show)
    hits = []
    for i, place in enumerate(places):
        known = _described(i + 1, *place, query)
        known |= {"join": join, "semantic": None, "found_by": found_by}
        if overlaps is None:
            known |= evidence.fields(i) | evidence.fields(i, "probability")
            share = known["equi"].joinability
        else:
            share = overlaps[i] / len(query)
        known |= {"joinability": share, "score": share if scores is None else scores[i]}
        hits.append(hit_to_measure(known, partial(evidence.fields, i)))
    return hits


class _LaterEvidence:
    """The equi-joins of a query and some columns, measured together when one is first asked for."""

    def __init__(self, query: SearchQuery, places: Sequence[Place], show: int | None) -> None:
        self._query, self._places, self._show = query, places, show

    def fields(self, row: int, wanted: str = "") -> dict[str, Any]:
        """Return fields of a hit: its probability, or all others that its values tell."""
        return {wanted: self._chances[row]} if wanted == "probability" else self._fields[row]

    @cached_property
    def _fields(self) -> list[dict[str, Any]]:
        with self._query.reading():
            found = []
            for place, one in zip(self._places, self._joined, strict=True):
                generic = _generic(self._query, *place, one.equi.matched)
                found.append({"generic": generic, **one._asdict()})
            return found

    @cached_property
    def _joined(self) -> list[EquiJoin]:
        return _joined(self._query, self._places, self._show)

    @cached_property
    def _chances(self) -> list[float]:
        with self._query.reading():
            chances = _chances(self._query, self._places, self._joined)
            return [round(chance, _SHOWN) for chance in chances]


def semantic_hits(query: SearchQuery, found: Sequence[ColumnMatch], show: int | None) -> list[Hit]:
    """Make hits of columns that match by meaning, with up to ``show`` cells a kind."""
    # Every equal cell, since a pair of equal cells is shown as the equi-join has it.
    joined = _joined(query, [(one.segment, one.column) for one in found], None)
    spellings, counts = query.cells.spellings, query.cells.counts
    hits = []
    unknown = [at for at, one in enumerate(found) if one.probability is None]
    places = [(found[at].segment, found[at].column) for at in unknown]
    chances = dict(
        zip(unknown, _chances(query, places, [joined[at] for at in unknown]), strict=True)
    )
    believed = _believed(query, found)
    for rank, (one, equi, (texts, most)) in enumerate(
        zip(believed, joined, _spelled(believed), strict=True), 1
    ):
        check_stop()
        cells = one.cells.tolist()
        matched = set(cells)
        equal = {match.query: match for match in equi.matches}
        matches = [
            equal.get(spellings[cell])
            or Match(
                spellings[cell],
                text,
                round(similarity, 6),
                "program" if cell in one.rewritten else "equal" if similarity >= 1 else "similar",
            )
            for cell, text, similarity in zip(cells, texts, one.similarities.tolist(), strict=True)
        ]
        # Pairs to check first, which equal ones would crowd out.
        matches = sorted(matches, key=lambda match: match.how == "equal")[:show]
        unmatched = [text for cell, text in enumerate(spellings) if cell not in matched]
        mine = max((counts[cell] for cell in cells), default=1)
        equals = equi.equi.matched
        ways = {EQUAL_CELLS: equals > 0, SIMILAR_CELLS: len(matched) > equals}
        hits.append(
            Hit(
                **_described(rank, one.segment, one.column, query),
                generic=_generic(query, one.segment, one.column, equi.equi.matched),
                join=one.join,
                score=one.score,
                joinability=one.joinability,
                probability=round(chances.get(rank - 1, one.probability or 0.0), _SHOWN),
                equi=equi.equi,
                semantic=one.semantic,
                target_size=equi.target_size,
                cardinality=cardinality_of(mine, most) if matched else "",
                matches=tuple(matches),
                unmatched=tuple(unmatched[:show]),
                found_by=one.found_by or tuple(way for way, used in ways.items() if used),
                programs=one.programs,
            )
        )
    return hits


def _spelled(found: Sequence[ColumnMatch]) -> list[tuple[list[str], int]]:
    """Return the matched values of each column as its table spells them, and the most of one."""
    spelled: list[tuple[list[str], int]] = [([], 1)] * len(found)
    for rows in _by_segment([(one.segment, one.column) for one in found]):
        index, entries = found[rows[0]].segment.values, []
        for one in map(found.__getitem__, rows):
            # Where they are in the forward index; what is packed there is read for all together.
            start, stop = index.cells_of(one.column)
            held = index.cell_values[start:stop]
            entries.append(start + np.searchsorted(held, one.values.astype(held.dtype)))
        every = np.concatenate(entries)
        texts, counts = index.cells(every), index.cell_counts[every]
        ends = np.cumsum([len(some) for some in entries]).tolist()
        for row, first, last in zip(rows, [0, *ends], ends, strict=False):
            spelled[row] = texts[first:last], int(counts[first:last].max(initial=1))
    return spelled


def _chances(
    query: SearchQuery, places: Sequence[Place], joined: Sequence[EquiJoin]
) -> list[float]:
    """Return the probability of joins by equal cells."""
    facts, found = QueryFacts(query), np.zeros(len(places))
    for rows in _by_segment(places):
        some = [joined[row].equi for row in rows]
        found[rows] = facts.probabilities(
            *(places[rows[0]][0], np.array([places[row][1] for row in rows])),
            np.array([one.joinability for one in some]),
            np.array([one.reverse for one in some]),
            np.zeros(len(rows)),
        )
    chances: list[float] = found.tolist()
    return chances


def _believed(query: SearchQuery, found: Sequence[ColumnMatch]) -> list[ColumnMatch]:
    """Leave out similar cells that are probably two things; scores keep counting vectors alone."""
    believed, places, groups = list(found), [], []
    for place, one in enumerate(found):
        similar = np.flatnonzero(one.similarities < 1)
        if one.join == "any" and query.cells.hidden is None and 0 < len(similar) <= _CHECKED:
            mine = [query.cells.values[cell] for cell in one.cells[similar].tolist()]
            theirs = one.segment.values.values.take(one.values[similar])
            groups.append(AlikePairs(mine, theirs, one.similarities[similar]))
            places.append((place, similar))
    for (place, similar), group, doubtful in zip(
        places, groups, look_alike(groups, _PLAUSIBLE), strict=True
    ):
        # Numbers and dates match equal ones alone: 1060 is not PEN-1060-RED.
        for side in group[:2]:
            doubtful |= np.array([cell_type(value) is not CellType.TEXT for value in side])
        if doubtful.any():
            one = found[place]
            kept = np.ones(len(one.cells), bool)
            kept[similar[doubtful]] = False
            believed[place] = _kept(query, one, kept)
    return believed


def _kept(query: SearchQuery, one: ColumnMatch, kept: Marks) -> ColumnMatch:
    """Keep some of the matching cells."""
    held = one.values[kept]
    size = int(one.segment.values.sizes(np.array([one.column]))[0])
    semantic = one.semantic._replace(
        joinability=len(held) / len(query),
        reverse=len(distinct(held)) / size,
        matched=len(held),
    )
    parts = one.cells[kept], held, one.similarities[kept]
    return replace(one, cells=parts[0], values=parts[1], similarities=parts[2], semantic=semantic)


def _described(rank: int, segment: Segment, column: int, query: SearchQuery) -> dict[str, Any]:
    """Return what is known of a hit before its evidence."""
    catalog = segment.catalog
    return {
        "rank": rank,
        "table": catalog.table_names[int(catalog.column_tables[column])],
        "column": catalog.column_names[column],
        "column_id": catalog.column_ids[column],
        "type": catalog.type_name(column),
        "query_size": len(query),
        "bring": partial(_brings, catalog, column),
    }


def _generic(query: SearchQuery, segment: Segment, column: int, matched: int) -> str:
    """Return why a match says little: the column is a generic key, or would hold any numbers."""
    own = segment.catalog.generic_name(column)
    if own:
        return own
    share = query.share_around(segment, column)
    # The chance that as many numbers of the range are found there, whatever they are about.
    if share >= _DENSE or (share and share**matched >= _CHANCE):
        return "range"
    # What matches is generic, wherever it is found.
    return query.generic.name.lower() if query.generic else ""


def _brings(catalog: Catalog, column: int) -> Brings:
    return Brings(*catalog.others_and_sample(column))


def _joined(query: SearchQuery, places: Sequence[Place], show: int | None) -> list[EquiJoin]:
    """Measure the equi-join of the query with each column, those of a segment together."""
    joined: dict[int, EquiJoin] = {}
    for of in _by_segment(places):
        columns = [places[row][1] for row in of]
        joined |= zip(of, _joined_segment(query, places[of[0]][0], columns, show), strict=True)
    return [joined[row] for row in range(len(places))]


def _by_segment(places: Sequence[Place]) -> list[list[int]]:
    """Group columns by their segments; numbers are places in the list."""
    # Segments have no hash of their own; they live as long as the search.
    rows: dict[int, list[int]] = {}
    for row, (segment, _) in enumerate(places):
        rows.setdefault(id(segment), []).append(row)
    return list(rows.values())


def _joined_segment(
    query: SearchQuery, segment: Segment, columns: list[int], show: int | None
) -> Iterator[EquiJoin]:
    cells, index = query.cells, segment.values
    if cells.hidden is not None:
        show = 0  # a lake of hashes has no cells to list
    hit, who, entry = _shared_cells(query, segment, columns)
    bounds = np.searchsorted(hit, np.arange(len(columns) + 1)).tolist()
    sizes = index.sizes(np.array(columns)).tolist()
    target_cells = segment.catalog.column_cells[columns].tolist()
    # Matches are few: plain lists are faster than array calls from here on.
    mine, theirs = who.tolist(), index.cell_counts[entry].tolist()
    spelled = index.cell_spellings[entry].tolist()
    counts, query_cells = cells.counts, sum(cells.counts)

    @cache  # hits share most of their matches
    def match(cell: int, spelling: int) -> Match:
        return Match(cells.spellings[cell], index.spelling(cells.values[cell], spelling))

    for i, (start, stop) in enumerate(pairwise(bounds)):
        check_stop()
        here, other = mine[start:stop], theirs[start:stop]
        own = [counts[cell] for cell in here]
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
        unmatched: list[str] = []
        if len(here) < len(counts):
            matched = set(here)
            unmatched = [text for cell, text in enumerate(cells.spellings) if cell not in matched]
        yield EquiJoin(equi, sizes[i], cardinality, matches, tuple(unmatched[:show]))


def _shared_cells(query: SearchQuery, segment: Segment, columns: list[int]) -> tuple[Int, Int, Int]:
    """Find equal cells: which column, which cell of the query, which entry of the forward index.

    Sorted by column, then by the query's own order.
    """
    index, (numbers, known) = segment.values, query.values_in(segment)
    wanted = numbers[known]
    if len(wanted) == 0:
        return (np.zeros(0, np.int64),) * 3
    hits, whos, entries = [], [], []
    starts = np.asarray(index.column_offsets[np.array(columns)], np.int64)
    sizes = index.sizes(np.array(columns))
    (small,) = (sizes <= _LARGE).nonzero()
    if len(small):  # compared together, in one pass
        entry = ranges(starts[small], sizes[small])
        values = index.cell_values[entry]
        at = np.minimum(wanted.searchsorted(values), len(wanted) - 1)
        (here,) = (wanted[at] == values).nonzero()
        hits.append(np.repeat(small, sizes[small])[here])
        whos.append(known[at[here]])
        entries.append(entry[here])
    for i in np.flatnonzero(sizes > _LARGE).tolist() if len(small) < len(columns) else ():
        start, stop = int(starts[i]), int(starts[i] + sizes[i])
        # Of the same type, or the whole column would be copied to be searched.
        at = np.searchsorted(index.cell_values[start:stop], wanted.astype(np.uint32))
        here = index.cell_values[start + np.minimum(at, stop - start - 1)] == wanted
        hits.append(np.full(int(here.sum()), i))
        whos.append(known[here])
        entries.append(start + at[here])
    hit, who, entry = (np.concatenate(parts) for parts in (hits, whos, entries))
    order = np.argsort(hit * len(query) + who)
    return hit[order], who[order], entry[order]
