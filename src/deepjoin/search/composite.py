"""Search with a key of several columns: the tables whose rows hold the query's tuples.

The score of a table is the share of the query's distinct tuples found in its rows, under the best
mapping of the query's columns to the table's. Postings bound it: no mapping finds more tuples than
its columns hold values of each part. Tables are verified on their rows, best bound first, until no
other can be among the best; ties at the end are verified as well, so the answer equals that of
comparing everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, distinct
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.tokens import text_array
from deepjoin.embed.scan import CandidatePairs
from deepjoin.embed.value_vectors import PROBES
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import ONE, cardinality_of
from deepjoin.matching.similar import ExactPairs
from deepjoin.model import (
    Brings,
    Column,
    EquiEvidence,
    Hit,
    Match,
    Results,
    SemanticEvidence,
)
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import EQUAL_CELLS, SIMILAR_CELLS
from deepjoin.search.likely import KeySide, column_place, key_probabilities, spelled
from deepjoin.search.mappings import Mapping, MappingSearch, SegmentTables
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.ranking import CHANCE_DIGITS
from deepjoin.search.rewriting import PROGRAM, columns_by_program
from deepjoin.search.searcher import Stopwatch
from deepjoin.search.tuples import (
    BY_PROGRAM,
    SEPARATOR,
    Found,
    PartPairs,
    TableRows,
    TupleQuery,
    count_distinct,
    key_columns,
)
from deepjoin.store.feedback import Decided
from deepjoin.store.segment import Segment
from deepjoin.store.values.rows import NOT_STORED

#: Methods that search with several columns, with the joins they answer.
METHODS = {"hybrid": ("any", "equi", "semantic"), "exact-equi": ("equi",)}
#: Programs are looked for unless a table has this share of the tuples without them.
_ENOUGH = 0.5
#: Tables whose probability is estimated to order joins of kind any.
_WEIGHED = 30
#: Digits of a probability that is shown.
_SHOWN = 4
#: Cells looked up by meaning at a time.
_BLOCK = 512


@dataclass
class CompositeSearch:
    """Finds the tables whose rows hold most of a query's tuples; threads may share it.

    With an encoder, each part matches equal values and those whose cosine is at least ``tau``.
    """

    context: SearchContext
    join: str
    encoder: CellEncoder | None = None
    tau: float = 1.0
    _segments: list[Segment] = field(init=False)

    def __post_init__(self) -> None:
        check_rows(self.context)
        self._segments = [one for one in self.context.segments if len(key_columns(one))]

    def search(self, columns: Sequence[Column], options: SearchOptions) -> Results:
        """Return the best tables, each with its best mapping."""
        watch = Stopwatch()
        if options.exclude is None:
            options = replace(options, exclude=columns[0].table)
        query = TupleQuery(columns, self.context.profile, self.context.key, self.encoder)
        watch.lap("encode")
        places = [
            SegmentTables(segment, query, self._pairs(query, segment)) for segment in self._segments
        ]
        by_chance = self.join == "any" and options.k not in (None, 0)
        # Joins of kind any are ordered by probability: more tables are measured than returned.
        pool = replace(options, k=max(options.k or 0, _WEIGHED)) if by_chance else options
        run = MappingSearch(query, places, pool)
        ranked = run.ranked() if len(query) else []
        if self._is_worth_programs(query, ranked, options) and self._add_programs(places, options):
            run = MappingSearch(query, places, pool)
            ranked = run.ranked()
        watch.lap("candidates")
        measured = [_measure(query, place, mapping.columns) for place, mapping in ranked]
        chances = _probabilities(query, measured, options.decided(*columns))
        if by_chance:
            order = _by_chance(measured, chances)[: options.k]
            measured, chances = [measured[at] for at in order.tolist()], chances[order]
        hits = [
            self._hit(rank, query, one, chance, options.show)
            for rank, (one, chance) in enumerate(zip(measured, chances.tolist(), strict=True), 1)
        ]
        return Results(query.described(), tuple(hits), watch.stop("verify"), run.partial)

    def explain(
        self,
        columns: Sequence[Column],
        target: tuple[Segment, str, Sequence[str]],
        show: int | None,
    ) -> Hit:
        """Measure how a query joins with some columns of a table, mapped in this order."""
        segment, table, names = target
        if len(columns) != len(names):
            raise DeepJoinError(
                f"The query has {len(columns)} columns and the target {len(names)}; name one for "
                "each, in the same order."
            )
        theirs = [_find_column(segment, table, name) for name in names]
        query = TupleQuery(columns, self.context.profile, self.context.key, self.encoder)
        place = SegmentTables(segment, query, self._pairs(query, segment))
        measured = _measure(query, place, tuple(theirs))
        return self._hit(1, query, measured, float(_probabilities(query, [measured], {})[0]), show)

    def _pairs(self, query: TupleQuery, segment: Segment) -> list[PartPairs]:
        """Find the values of a segment that match each part."""
        if self.encoder is None:
            return [PartPairs.equal(part, segment) for part in query.parts]
        return [self._similar(part, segment, self.encoder) for part in query.parts]

    def _is_worth_programs(
        self,
        query: TupleQuery,
        ranked: Sequence[tuple[SegmentTables, Mapping]],
        options: SearchOptions,
    ) -> bool:
        """Check whether parts may have to be rewritten: no table has many tuples as they are."""
        if self.join != "any" or self.encoder is None or not options.programs or options.k == 0:
            return False
        most = ranked[0][1].found if ranked else 0
        return not options.is_late and len(query) > 1 and most < _ENOUGH * len(query)

    def _add_programs(self, places: Sequence[SegmentTables], options: SearchOptions) -> bool:
        """Look for columns that match parts by a program; first where the other parts match."""
        if not places:
            return False
        segments, anything = [place.segment for place in places], replace(options, threshold=0.0)
        numbers = {id(segment): number for number, segment in enumerate(segments)}
        parts, found = places[0].query.parts, False
        for is_narrow in (True, False):
            for part, values in enumerate(parts):
                tables = [place.with_others(part) for place in places] if is_narrow else None
                if tables is not None and not any(marks.any() for marks in tables):
                    continue
                for match in columns_by_program(
                    values, segments, anything, self.tau, lambda *_: True, tables
                ):
                    by_program = np.isin(match.cells, list(match.rewritten))
                    place = places[numbers[id(match.segment)]]
                    place.add_programs(
                        part, match.column, match.values[by_program], match.cells[by_program]
                    )
                    place.programs[part, match.column] = match.programs
                    found = True
            if found:
                return True
        return False

    def _similar(self, part: SearchQuery, segment: Segment, encoder: CellEncoder) -> PartPairs:
        """Pair the values of a part with equal ones and, if they are words, with similar ones."""
        numbers = part.values_in(segment).numbers
        words = np.zeros(0, np.int64)
        if len(part):
            kinds = np.asarray(cell_types(text_array(part.cells.values)))
            # Other numbers and dates are other values, however similar they look.
            words = np.flatnonzero(kinds == CellType.TEXT)
        near = [CandidatePairs.none()]
        if segment.cells is not None:
            for start in range(0, len(words), _BLOCK):
                some = words[start : start + _BLOCK]
                found = segment.cells.near(part.encode(some), self.tau, 2, PROBES)
                near.append(found.renumbered(some))
        pairs = CandidatePairs.concatenate(near).with_equal(numbers)
        strings = segment.values.values
        exact = ExactPairs(
            pairs,
            part.vectors,
            lambda values: encoder.encode([strings[value] for value in values.tolist()]),
        )
        similar = exact.similarities(np.arange(len(pairs)))
        kept = np.flatnonzero(similar >= round(self.tau * ONE))
        shares = (similar[kept] / ONE).astype(np.float32)
        return PartPairs.of(pairs.values[kept], pairs.cells[kept], shares).with_few(part, segment)

    def _hit(
        self,
        rank: int,
        query: TupleQuery,
        measured: _Measured,
        chance: float,
        show: int | None,
    ) -> Hit:
        """Describe a table under a mapping: what matches, how often, and what does not."""
        place, columns, found, tuples, tuples_there, _ = measured
        rows, keys, size = place.rows, place.keys, len(query)

        def evidence(pairs: Found, of: Int) -> tuple[float, float, int]:
            matched = len(np.unique(of))
            theirs = _target_tuples(rows, columns, pairs.rows)
            return matched / max(1, size), theirs / max(1, tuples_there), matched

        is_equal = found.similarities >= 1
        equal = found.where(is_equal)
        share, reverse, matched = evidence(equal, tuples[is_equal])
        theirs = np.bincount(tuples[is_equal], minlength=size)
        join_size = int((theirs * query.counts).sum())
        equi = EquiEvidence(
            share,
            reverse,
            matched,
            join_size,
            join_size / max(1, query.rows * len(rows.ranks(columns[0]))),
        )
        semantic = None
        if self.encoder is not None:
            semantic = SemanticEvidence(*evidence(found, tuples), self.tau)
        every = np.bincount(tuples, minlength=size)
        here = np.flatnonzero(every)
        cardinality = ""
        if len(here):
            cardinality = cardinality_of(int(query.counts[here].max()), int(every[here].max()))
        programs = [place.programs.get((part, column), ()) for part, column in enumerate(columns)]
        by_program = found.similarities == BY_PROGRAM
        ways = {
            EQUAL_CELLS: matched > 0,
            SIMILAR_CELLS: bool(np.any(~is_equal & ~by_program)),
            PROGRAM: bool(np.any(by_program)),
        }
        joinability = share if semantic is None else semantic.joinability
        matches = _matches(place, columns, found, tuples, show)
        missing = (query.spelled(number) for number in np.flatnonzero(every == 0)[:show].tolist())
        names, table = tuple(map(keys.name, columns)), int(keys.tables[columns[0]])
        return Hit(
            rank=rank,
            table=keys.table_names[table],
            column=names[0],
            column_id=keys.column_id(columns[0]),
            type=CellType(int(keys.types[columns[0]])).name.lower(),
            generic="",
            join=self.join,
            score=joinability,
            joinability=joinability,
            probability=round(chance, _SHOWN),
            equi=equi,
            semantic=semantic,
            query_size=size,
            target_size=tuples_there,
            cardinality=cardinality,
            matches=tuple(matches),
            unmatched=tuple(missing),
            found_by=tuple(way for way, used in ways.items() if used),
            programs=tuple(program for of in programs for program in of),
            bring=partial(_brings, place.segment, table, names),
            columns=names,
        )


class _Measured(NamedTuple):
    """A table under a mapping: the rows that hold tuples, and what it has in all."""

    place: SegmentTables
    columns: tuple[int, ...]
    found: Found
    #: The tuple of each row found.
    tuples: Int
    #: Distinct tuples and complete rows of the table.
    size: int
    rows: int


def _measure(query: TupleQuery, place: SegmentTables, columns: tuple[int, ...]) -> _Measured:
    found, numbers = place.found(columns)
    _, keys = place.rows.tuples_of(columns)
    return _Measured(
        place, columns, found, numbers[found.beginnings], count_distinct(keys), len(keys)
    )


def _by_chance(measured: Sequence[_Measured], chances: Double) -> Int:
    """Order tables by probability, those with most tuples first where that is equal.

    A table that repeats its tuples comes after one that has as many of the query's, each once.
    """
    found = np.array([len(np.unique(one.tuples)) for one in measured], np.int64)
    unique = np.array([one.size == one.rows for one in measured], bool)
    raised = chances.copy()
    for at in np.flatnonzero(unique & (chances > 0)).tolist():
        others = chances[~unique & (found <= found[at]) & (chances < 1)]
        raised[at] = max(raised[at], others.max(initial=0.0))
    return np.argsort(-np.round(raised, CHANCE_DIGITS), kind="stable")


def _probabilities(query: TupleQuery, measured: Sequence[_Measured], decided: Decided) -> Double:
    """Return the chance of each table; what a person said makes it 1 or 0."""
    if not measured:
        return np.zeros(0)
    mine = KeySide(
        [column.name for column in query.columns],
        query.columns[0].title or "",
        query.columns[0].table or "",
        len(query),
        int(query.counts.sum()),
        [int(part.kind) for part in query.parts],
        [int(part.generic) for part in query.parts],
        spellings=[spelled(part.cells.values) for part in query.parts],
    )
    theirs, shares, reverse = [], [], []
    for one in measured:
        keys, columns = one.place.keys, np.asarray(one.columns)
        table = int(keys.tables[columns[0]])
        theirs.append(
            KeySide(
                [keys.name(column) for column in one.columns],
                one.place.segment.catalog.titles(np.array([table]))[0],
                keys.table_names[table],
                one.size,
                one.rows,
                keys.types[columns].tolist(),
                keys.generic[columns].tolist(),
                min(column_place(keys.column_id(column)) for column in one.columns),
            )
        )
        shares.append(len(np.unique(one.tuples)) / max(1, len(query)))
        there = _target_tuples(one.place.rows, one.columns, one.found.rows)
        reverse.append(there / max(1, one.size))
    chances = key_probabilities(mine, theirs, np.array(shares), np.array(reverse))
    for at, side in enumerate(theirs):
        said = decided.get((side.table, tuple(side.names)))
        chances[at] = chances[at] if said is None else float(said)
    return chances


def _matches(
    place: SegmentTables, columns: Sequence[int], found: Found, tuples: Int, show: int | None
) -> list[Match]:
    """Pair each tuple with the most similar of its rows, the first of equally similar ones."""
    order = np.lexsort((found.rows, -found.similarities, tuples))
    firsts = order[np.append(True, np.diff(tuples[order]) != 0)[: len(order)]]
    query = place.query
    # Similar pairs first: they are the ones to check.
    firsts = firsts[np.argsort(found.similarities[firsts] >= 1, kind="stable")]
    matches = []
    for pair in firsts[:show].tolist():
        row = int(found.rows[pair])
        cells = (
            place.keys.spelled(column, int(place.rows.ranks(column)[row])) for column in columns
        )
        target = SEPARATOR.join(cells)
        is_program = found.similarities[pair] == BY_PROGRAM
        similarity = round(float(found.similarities[pair]), 6)
        how = "program" if is_program else "equal" if similarity >= 1 else "similar"
        matches.append(Match(query.spelled(int(tuples[pair])), target, similarity, how))
    return matches


def _target_tuples(rows: TableRows, columns: Sequence[int], which: Int) -> int:
    """Count the distinct tuples of some rows."""
    if len(which) == 0:
        return 0
    complete, keys = rows.tuples_of(columns)
    return count_distinct(keys[np.searchsorted(complete, distinct(which))])


def _find_column(segment: Segment, table: str, name: str) -> int:
    """Return a column of a table by its name; a wrong name raises with the nearest one."""
    number, keys = segment.catalog.find_table(table), key_columns(segment)
    columns = [] if number is None else keys.columns_of(number)
    found = [column for column in columns if keys.name(column) == name]
    return found[0] if found else segment.catalog.find_column(table, name)


def _brings(segment: Segment, table: int, names: Sequence[str]) -> Brings:
    entry = segment.catalog.table(table)
    others = (column.name for column in entry.columns if column.name not in names)
    return Brings(tuple(others), entry.sample)


def check_rows(context: SearchContext) -> None:
    """Refuse an index that does not store rows, and say what to run."""
    if context.settings.hash_only:
        raise DeepJoinError(
            f"{context.location} holds hashes of values and no rows, which a key of several "
            "columns needs. Search with one column."
        )
    if any(segment.rows is None for segment in context.segments):
        raise DeepJoinError(
            f"{context.location} was made by an earlier version and stores no rows, which a key "
            "of several columns needs; one column can be searched with. Build it again with: "
            f"deepjoin index SOURCE -o {context.location} --rebuild"
        )
    if all(
        segment.rows is not None and bool(np.all(np.asarray(segment.rows.widths) == NOT_STORED))
        for segment in context.segments
    ) and any(segment.values.columns for segment in context.segments):
        raise DeepJoinError(
            f"{context.location} was made of a corpus of columns, which has no rows. A key of "
            "several columns needs tables; search with one column."
        )


def composite(context: SearchContext, method: str, join: str, tau: float | None) -> CompositeSearch:
    """Make a search with several columns, or say why this method or join cannot be had."""
    if method not in METHODS:
        raise DeepJoinError(
            f"Method '{method}' searches with one column. With several, use {' or '.join(METHODS)}."
        )
    if method == "exact-equi" and join == "any":
        join = "equi"
    if join == "equi" or (join == "any" and not context.has_cells):
        return CompositeSearch(context, join)
    encoder = context.cell_encoder()
    return CompositeSearch(context, join, encoder, encoder.tau if tau is None else tau)
