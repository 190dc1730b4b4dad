"""Search with a key of several columns: the tables whose rows hold the query's tuples.

The score of a table is the share of the query's distinct tuples found in its rows, under the best
mapping of the query's columns to the table's. Postings bound it: no mapping finds more tuples than
its columns hold values of each part. Tables are verified on their rows, best bound first, until no
other can be among the best; ties at the end are verified as well, so the answer equals that of
comparing everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Marks, distinct
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.tokens import text_array
from deepjoin.embed.scan import CandidatePairs
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import ONE, cardinality_of
from deepjoin.matching.similar import ExactPairs
from deepjoin.model import (
    Brings,
    Column,
    EquiEvidence,
    Hit,
    Match,
    Partial,
    Results,
    SemanticEvidence,
)
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.search.blocks import PartColumns, TooManyMappings, verify_together
from deepjoin.search.candidates import weigh
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import EQUAL_CELLS, SIMILAR_CELLS
from deepjoin.search.likely import KeySide, column_place, key_probabilities
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import CHANCE_DIGITS, name_similarity
from deepjoin.search.searcher import Stopwatch
from deepjoin.search.tuples import (
    SEPARATOR,
    Found,
    Level,
    PartPairs,
    TableRows,
    TupleQuery,
    count_distinct,
)
from deepjoin.store.feedback import Decided
from deepjoin.store.segment import Segment
from deepjoin.store.values.rows import NOT_STORED

#: Methods that search with several columns, with the joins they answer.
METHODS = {"hybrid": ("any", "equi", "semantic"), "exact-equi": ("equi",)}
#: Postings that are all counted; of longer lists, only those of candidate tables.
_COUNTED = 1 << 22
#: Columns tried for one table at most: a table of flags maps in too many ways.
_TRIED = 5000
#: Tables that are looked at first, verified one by one before others are verified together, how
#: many of those at a time, and how many rows they have at most.
_FIRST_TABLES, _ONE_BY_ONE, _BLOCK_TABLES, _SMALL_ROWS = 256, 32, 4096, 4096
#: Tables whose probability is estimated to order joins of kind any.
_WEIGHED = 30
#: Digits of a probability that is shown.
_SHOWN = 4
#: Cells looked up by meaning at a time.
_BLOCK = 512


class Mapping(NamedTuple):
    """A table, the column of each part of the query, and how many tuples its rows hold."""

    found: int
    columns: tuple[int, ...]


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
        self._segments = [one for one in self.context.segments if one.values.columns]

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
        run = _Run(query, places, pool)
        ranked = run.ranked() if len(query) else []
        watch.lap("candidates")
        measured = [_measure(query, place, mapping.columns) for place, mapping in ranked]
        chances = _probabilities(query, measured, options.decided(*columns))
        if by_chance:
            order = np.argsort(-np.round(chances, CHANCE_DIGITS), kind="stable")[: options.k]
            measured, chances = [measured[at] for at in order.tolist()], chances[order]
        hits = [
            self._hit(rank, query, one, chance, options.show)
            for rank, (one, chance) in enumerate(zip(measured, chances.tolist(), strict=True), 1)
        ]
        return Results(query.described(), tuple(hits), watch.stop("verify"), run.partial)

    def explain(
        self, columns: Sequence[Column], target: tuple[Segment, Sequence[int]], show: int | None
    ) -> Hit:
        """Measure how a query joins with some columns of a table, mapped in this order."""
        segment, theirs = target
        if len(columns) != len(theirs):
            raise DeepJoinError(
                f"The query has {len(columns)} columns and the target {len(theirs)}; name one for "
                "each, in the same order."
            )
        query = TupleQuery(columns, self.context.profile, self.context.key, self.encoder)
        place = SegmentTables(segment, query, self._pairs(query, segment))
        measured = _measure(query, place, tuple(theirs))
        return self._hit(1, query, measured, float(_probabilities(query, [measured], {})[0]), show)

    def _pairs(self, query: TupleQuery, segment: Segment) -> list[PartPairs]:
        """Find the values of a segment that match each part."""
        if self.encoder is None:
            return [PartPairs.equal(part, segment) for part in query.parts]
        return [self._similar(part, segment, self.encoder) for part in query.parts]

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
                found = segment.cells.near(part.encode(some), self.tau, 2, True)
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
        return PartPairs.of(pairs.values[kept], pairs.cells[kept], shares)

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
        rows, segment = place.rows, place.segment
        catalog = segment.catalog
        size = len(query)

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
        ways = {EQUAL_CELLS: matched > 0, SIMILAR_CELLS: bool(len(here) > matched)}
        joinability = share if semantic is None else semantic.joinability
        matches = _matches(place, columns, found, tuples, show)
        missing = (query.spelled(number) for number in np.flatnonzero(every == 0)[:show].tolist())
        names = tuple(catalog.column_names[column] for column in columns)
        table = int(catalog.column_tables[columns[0]])
        return Hit(
            rank=rank,
            table=catalog.table_names[table],
            column=names[0],
            column_id=catalog.column_ids[columns[0]],
            type=catalog.type_name(columns[0]),
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
            bring=partial(_brings, segment, columns[0], names),
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
    )
    theirs, shares, reverse = [], [], []
    for one in measured:
        catalog, columns = one.place.segment.catalog, np.asarray(one.columns)
        table = int(catalog.column_tables[one.columns[0]])
        theirs.append(
            KeySide(
                list(catalog.column_names.take(columns)),
                catalog.titles(np.array([table]))[0],
                catalog.table_names[table],
                one.size,
                one.rows,
                np.asarray(catalog.column_types[columns]).tolist(),
                np.asarray(catalog.column_generic[columns]).tolist(),
                min(column_place(of) for of in catalog.column_ids.take(columns)),
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
    index, query = place.segment.values, place.query
    # Similar pairs first: they are the ones to check.
    firsts = firsts[np.argsort(found.similarities[firsts] >= 1, kind="stable")]
    matches = []
    for pair in firsts[:show].tolist():
        row = int(found.rows[pair])
        entries = [
            index.cells_of(column)[0] + int(place.rows.ranks(column)[row]) for column in columns
        ]
        target = SEPARATOR.join(index.cells(np.array(entries)))
        similarity = round(float(found.similarities[pair]), 6)
        how = "equal" if similarity >= 1 else "similar"
        matches.append(Match(query.spelled(int(tuples[pair])), target, similarity, how))
    return matches


def _target_tuples(rows: TableRows, columns: Sequence[int], which: Int) -> int:
    """Count the distinct tuples of some rows."""
    if len(which) == 0:
        return 0
    complete, keys = rows.tuples_of(columns)
    return count_distinct(keys[np.searchsorted(complete, distinct(which))])


def _brings(segment: Segment, column: int, names: Sequence[str]) -> Brings:
    others, sample = segment.catalog.others_and_sample(column)
    return Brings(tuple(name for name in others if name not in names), sample)


class SegmentTables:
    """The tables of one segment that may hold tuples of a query."""

    def __init__(self, segment: Segment, query: TupleQuery, pairs: Sequence[PartPairs]) -> None:
        self.segment, self.query = segment, query
        self.rows = TableRows(segment, pairs)
        index = segment.values
        #: How many columns hold the values of each part, a column counted for each value.
        self.postings = [int(index.frequency(of.values).sum()) for of in pairs]
        #: For each part whose postings are not too many, the tables that hold its values.
        self._holders: dict[int, tuple[Int, Int]] = {}

    def bounds(self, exclude: str | None, least: int) -> Iterator[PartColumns]:
        """Return, for each part, the columns that may take it, their tables and upper bounds.

        Only of tables that have a column for every part; sorted by table, then by bound.
        """
        segment, tables = self.segment, self.segment.catalog.column_tables
        assert segment.rows is not None
        out = np.asarray(segment.rows.widths) == NOT_STORED
        marks = excluded_columns(segment, exclude)
        if marks is not None:
            out = out | marks
        possible = np.ones(len(segment.catalog.table_names), bool)
        # A row holds one tuple, or as many as its values match values of the parts.
        each = prod(of.most for of in self.rows.pairs)
        rows = np.asarray(segment.catalog.column_cells).astype(np.float64) * each
        columns: dict[int, tuple[Int, Double]] = {}
        # From the part with the fewest postings on; the lists of others are only probed.
        for part in np.argsort(self.postings, kind="stable").tolist():
            found, bounds = self._bounds(part, None if possible.all() else possible)
            bounds = np.minimum(bounds, rows[found])
            kept = (bounds >= least) & ~out[found] & possible[tables[found]]
            columns[part] = found[kept], bounds[kept]
            here = np.zeros(len(possible), bool)
            here[tables[found[kept]]] = True
            possible &= here
        for part in range(len(self.query.parts)):
            found, bounds = columns[part]
            kept = possible[tables[found]]
            found, bounds = found[kept], bounds[kept]
            order = np.lexsort((found, -bounds, tables[found]))
            owners = tables[found[order]].astype(np.int64)
            yield PartColumns(found[order], owners, bounds[order])

    def _bounds(self, part: int, possible: Int | None) -> tuple[Int, Double]:
        """Bound how many tuples have a value of this part in each column."""
        index, pairs = self.segment.values, self.rows.pairs[part]
        weights = self.query.weights(part)[pairs.cells]
        frequency = index.frequency(pairs.values)
        if self.postings[part] > _COUNTED and possible is not None:
            wanted = np.flatnonzero(possible[self.segment.catalog.column_tables]).astype(np.int32)
            lists: list[Int32] = [index.postings(value) for value in pairs.values.tolist()]
            sums = weigh(lists, weights, wanted)
            return wanted[sums > 0].astype(np.int64), sums[sums > 0].astype(np.float64)
        holders = index.holders(pairs.values, frequency)
        bounds = np.bincount(holders, np.repeat(weights, frequency), index.columns)
        tables = np.asarray(self.segment.catalog.column_tables)[holders]
        self._holders[part] = tables, np.repeat(pairs.cells, frequency)
        columns = np.flatnonzero(bounds)
        return columns, np.minimum(bounds[columns], len(self.query))

    def has_programs(self, tables: Int) -> Marks:
        """Mark the tables with a column that matches a part by a program."""
        columns = [column for of in self.rows.pairs for column in of.of_column]
        owners = np.asarray(self.segment.catalog.column_tables)[np.array(columns, np.int64)]
        return np.isin(tables, owners)

    def promised(self, tables: Int) -> Int:
        """Bound how many tuples tables hold: those whose parts each are somewhere in the table."""
        query = self.query
        places = np.full(len(self.segment.catalog.table_names), -1)
        places[tables] = np.arange(len(tables))
        possible = np.ones((len(tables), len(query)), bool)
        for part, (owners, cells) in self._holders.items():
            at = places[owners]
            here = np.flatnonzero(at >= 0)
            held = np.zeros((len(tables), len(query.parts[part])), bool)
            held[at[here], cells[here]] = True
            possible &= held[:, query.tuples[:, part]]
        return np.count_nonzero(possible, axis=1)

    def found(self, columns: Sequence[int]) -> tuple[Found, Int]:
        """Find the tuples in the rows under a mapping, and the numbers of the beginnings."""
        levels, numbers = self.query.levels(range(len(columns)))
        found: Found | None = None
        for part, (level, column) in enumerate(zip(levels, columns, strict=True)):
            found = self.rows.extend(found, level, part, column)
        assert found is not None
        return found, numbers


class _Run:
    """One search: tables are verified best bound first, until no other can be among the best."""

    def __init__(
        self, query: TupleQuery, places: Sequence[SegmentTables], options: SearchOptions
    ) -> None:
        self._query, self._places, self._options = query, places, options
        self.partial: Partial | None = None
        self._verified_tables, self._is_late = 0, False
        # Shares are compared with a little tolerance: .7 of 10 tuples is 7.
        self._least = max(1, int(np.ceil(options.threshold * len(query) - 1e-9)))
        #: The counts of the best k tables so far, smallest first.
        self._best: list[int] = []
        totals = np.sum([place.postings for place in places] or [[0] * len(query.parts)], axis=0)
        #: Parts that few columns hold come first: they leave the fewest rows.
        self._order = np.argsort(totals, kind="stable").tolist()
        self._levels, _ = query.levels(self._order)

    @property
    def needed(self) -> int:
        """How many tuples a table must hold to be among the best, ties included."""
        k = self._options.k
        full = k is not None and len(self._best) >= k
        return max(self._least, self._best[0]) if full else self._least

    def ranked(self) -> list[tuple[SegmentTables, Mapping]]:
        """Return the best tables, best first, each with its best mapping."""
        if self._options.k == 0:
            return []
        columns: list[list[PartColumns]] = []
        numbers, owners, most = [], [], []
        for number, place in enumerate(self._places):
            parts = list(place.bounds(self._options.exclude, self._least))
            columns.append(parts)
            owners.append(np.unique(parts[0].tables))
            numbers.append(np.full(len(owners[-1]), number))
            # The bound of a table: that of its best column for the part that has the least.
            best_of = [of.bounds[np.searchsorted(of.tables, owners[-1])] for of in parts]
            most.append(np.minimum.reduce(best_of))
        which, tables = (np.concatenate([np.zeros(0, int), *of]) for of in (numbers, owners))
        bounds: Double = np.concatenate([np.zeros(0), *most])
        found: list[tuple[SegmentTables, list[Mapping]]] = []
        order = np.argsort(-bounds, kind="stable")
        done, block = 0, _FIRST_TABLES
        while done < len(order) and bounds[order[done]] >= self.needed and not self._is_late:
            some = order[done : done + block]
            some = some[bounds[some] >= self.needed]
            for number, place in enumerate(self._places):
                mine = tables[some[which[some] == number]]
                for mappings in self._verified(place, columns[number], mine):
                    found.append((place, mappings))
                    heapq.heappush(self._best, mappings[0].found)
                    if self._options.k is not None and len(self._best) > self._options.k:
                        heapq.heappop(self._best)
            done, block = done + block, min(_BLOCK_TABLES, 4 * block)
        if self._is_late:
            text = "tables were verified until the time was up"
            self.partial = Partial(text, self._verified_tables, len(order))
        needed = self.needed
        tied = [(place, of) for place, of in found if of[0].found >= needed]
        best = [min((_key(place, one), one) for one in of) for place, of in tied]
        ranked = sorted(range(len(tied)), key=lambda number: best[number][0])
        return [(tied[number][0], best[number][1]) for number in ranked[: self._options.k]]

    def _verified(
        self, place: SegmentTables, columns: Sequence[PartColumns], tables: Int
    ) -> Iterator[list[Mapping]]:
        """Verify tables of one segment: the most promising alone, then small ones together."""
        assert place.segment.rows is not None
        first = columns[0].columns[np.searchsorted(columns[0].tables, tables)]
        small = np.asarray(place.segment.rows.counts)[first] <= _SMALL_ROWS
        small &= ~place.has_programs(tables)
        # Reading small tables is as fast as knowing what they promise.
        weighed = len(tables) <= _FIRST_TABLES
        promised = np.full(len(tables), len(self._query))
        promised[~small | weighed] = place.promised(tables[~small | weighed])
        order = np.argsort(-promised, kind="stable")
        alone = order[: max(0, _ONE_BY_ONE - self._verified_tables)] if weighed else order[:0]
        yield from self._one_by_one(place, columns, tables[alone], promised[alone])
        rest = order[len(alone) :]
        rest = rest[promised[rest] >= self.needed]
        yield from self._verified_together(place, columns, np.sort(tables[rest[small[rest]]]))
        rest = rest[~small[rest]]
        yield from self._one_by_one(place, columns, tables[rest], promised[rest])

    def _one_by_one(
        self, place: SegmentTables, columns: Sequence[PartColumns], tables: Int, promised: Int
    ) -> Iterator[list[Mapping]]:
        for table, most in zip(tables.tolist(), promised.tolist(), strict=True):
            if most < self.needed or self._stop():
                return
            mappings = self._verify(place, [_of_table(of, table) for of in columns])
            self._verified_tables += 1
            if mappings:
                yield mappings

    def _stop(self) -> bool:
        """Tell whether the time is up; something is returned even then."""
        self._is_late = self._options.is_late and bool(self._best)
        return self._is_late

    def _verified_together(
        self, place: SegmentTables, columns: Sequence[PartColumns], tables: Int
    ) -> Iterator[list[Mapping]]:
        if len(tables) == 0 or self._stop():
            return
        pairs = [place.rows.pairs[part] for part in self._order]
        parts = [
            (columns[part], level) for part, level in zip(self._order, self._levels, strict=True)
        ]
        try:
            found = verify_together(place.segment, pairs, parts, tables, self.needed)
        except TooManyMappings:
            if len(tables) == 1:
                most = np.array([len(self._query)])
                yield from self._one_by_one(place, columns, tables, most)
                return
            for half in np.array_split(tables, 2):
                yield from self._verified_together(place, columns, half)
            return
        self._verified_tables += len(tables)
        which, chosen, counts = found
        mapped: dict[int, list[Mapping]] = {}
        by_part = [chosen[self._order.index(part)].tolist() for part in range(len(chosen))]
        for table, count, *of in zip(which.tolist(), counts.tolist(), *by_part, strict=True):
            best = mapped.setdefault(table, [])
            if best and best[0].found > count:
                continue
            if best and best[0].found < count:
                best.clear()
            best.append(Mapping(count, tuple(of)))
        yield from mapped.values()

    def _verify(
        self, place: SegmentTables, columns: Sequence[tuple[list[int], list[float]]]
    ) -> list[Mapping]:
        """Return the mappings that find most tuples in a table's rows, if they are enough."""
        best: list[Mapping] = []
        tried = 0
        query, takers = self._query, [np.array(of, np.int64) for of, _ in columns]
        held = []
        for part, theirs in enumerate(takers):
            marks = np.zeros((len(theirs), len(query.parts[part])), bool)
            for row, column in zip(marks, theirs.tolist(), strict=True):
                row[place.rows.holds(part, column)] = True
            held.append(marks)
        # Only tuples all of whose parts are in the table count.
        possible = np.logical_and.reduce(
            [marks.any(axis=0)[query.tuples[:, part]] for part, marks in enumerate(held)]
        )
        weights = [
            np.bincount(of.of_tuples[possible], minlength=len(of.keys)) for of in self._levels
        ]

        def needed() -> int:
            return max(self.needed, best[0].found if best else 0)

        def descend(depth: int, found: Found | None, chosen: dict[int, int]) -> None:
            nonlocal tried, best
            part, level = self._order[depth], self._levels[depth]
            before, values = level.parts
            here = held[part][:, values]
            if found is not None:
                reached = np.zeros(len(self._levels[depth - 1].keys), bool)
                reached[found.beginnings] = True
                here = here & reached[before]
            bounds = here @ weights[depth].astype(np.float64)
            for at in np.argsort(-bounds, kind="stable").tolist():
                column = int(takers[part][at])
                if bounds[at] < needed() or tried >= _TRIED:
                    break
                if column in chosen.values():
                    continue
                tried += 1
                more = place.rows.extend(found, level, part, column)
                count = _count(level, more)
                if count < needed():
                    continue
                mapped = chosen | {part: column}
                if depth + 1 < len(self._order):
                    descend(depth + 1, more, mapped)
                    continue
                one = Mapping(count, tuple(mapped[part] for part in range(len(mapped))))
                best = [*best, one] if best and best[0].found == count else [one]

        descend(0, None, {})
        if tried >= _TRIED:
            name = place.segment.catalog.table_names[
                int(place.segment.catalog.column_tables[columns[0][0][0]])
            ]
            text = f"{name} can be mapped in too many ways; the first {_TRIED:,} were tried"
            self.partial = Partial(text, _TRIED, _TRIED)
        return best


def _of_table(part: PartColumns, table: int) -> tuple[list[int], list[float]]:
    """Return the columns of one table that may take a part, best first, with their bounds."""
    here = slice(*np.searchsorted(part.tables, (table, table + 1)).tolist())
    return part.columns[here].tolist(), part.bounds[here].tolist()


def _count(level: Level, found: Found) -> int:
    """Count the tuples that begin with one of those found."""
    marks = np.zeros(len(level.keys), bool)
    marks[found.beginnings] = True
    return int(level.tuples[marks].sum())


def _key(
    place: SegmentTables, mapping: Mapping
) -> tuple[int, bool, float, float, str, tuple[int, ...]]:
    """Rank tables and mappings: tuples found, unique tuples, equal names, similar names, place."""
    catalog, columns = place.segment.catalog, mapping.columns
    names = [column.name for column in place.query.columns]
    theirs = [catalog.column_names[column] for column in columns]
    likeness = [
        name_similarity(one, other) if one else 0.0
        for one, other in zip(names, theirs, strict=True)
    ]
    equal = sum(one.lower() == other.lower() for one, other in zip(names, theirs, strict=True))
    return (
        -mapping.found,
        not place.rows.is_unique(columns),
        -equal,
        -round(sum(likeness), 9),
        catalog.table_names[int(catalog.column_tables[columns[0]])],
        columns,
    )


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
