"""Which tables hold most tuples of a query, and under which mapping of its columns to theirs.

Postings bound what a table can hold. Tables are verified on their rows, those that promise most
first, until no other can be among the best; ties with the last are verified as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Marks
from deepjoin.model import Partial, Program
from deepjoin.search.blocks import PartColumns, TooManyMappings, verify_together
from deepjoin.search.candidates import weigh
from deepjoin.search.likely import column_place
from deepjoin.search.query import SearchOptions
from deepjoin.search.ranking import name_similarity
from deepjoin.search.tuples import Found, Level, PartPairs, TableRows, TupleQuery, key_columns
from deepjoin.store.segment import Segment

#: Postings that are all counted; of longer lists, only those of candidate tables.
_COUNTED = 1 << 22
#: Columns tried for one table at most: a table of flags maps in too many ways.
_TRIED = 5000
#: Tables that are looked at first, verified one by one before others are verified together, how
#: many of those at a time, and how many rows they have at most.
_FIRST_TABLES, _ONE_BY_ONE, _BLOCK_TABLES, _SMALL_ROWS = 256, 32, 4096, 4096


class Mapping(NamedTuple):
    """A table, the column of each part of the query, and how many tuples its rows hold."""

    found: int
    columns: tuple[int, ...]


class SegmentTables:
    """The tables of one segment that may hold tuples of a query."""

    def __init__(self, segment: Segment, query: TupleQuery, pairs: Sequence[PartPairs]) -> None:
        self.segment, self.query, self.keys = segment, query, key_columns(segment)
        self.rows = TableRows(self.keys, pairs)
        #: How many columns hold the values of each part, a column counted for each value.
        self.postings = [int(self.keys.frequency(of.values).sum()) for of in pairs]
        #: For each part whose postings are not too many, the tables that hold its values.
        self._holders: dict[int, tuple[Int, Int]] = {}
        #: Programs by which columns match parts.
        self.programs: dict[tuple[int, int], tuple[Program, ...]] = {}

    def bounds(self, exclude: str | None, least: int) -> Iterator[PartColumns]:
        """Return, for each part, the columns that may take it, their tables and upper bounds.

        Only of tables that have a column for every part; sorted by table, then by bound.
        """
        segment, tables = self.segment, self.keys.tables
        possible = np.ones(len(self.keys.table_names), bool)
        possible[list(segment.removed)] = False
        own = None if exclude is None else segment.find_table(exclude)
        if own is not None:
            possible[own] = False
        # A row holds one tuple, or as many as its values match values of the parts.
        each = prod(of.most for of in self.rows.pairs)
        rows = self.keys.present.astype(np.float64) * each
        columns: dict[int, tuple[Int, Double]] = {}
        # From the part with the fewest postings on; the lists of others are only probed.
        for part in np.argsort(self.postings, kind="stable").tolist():
            found, bounds = self._bounds(part, None if possible.all() else possible)
            bounds = np.minimum(bounds, rows[found])
            kept = (bounds >= least) & self.keys.stored[found] & possible[tables[found]]
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
        keys, pairs = self.keys, self.rows.pairs[part]
        weights = self.query.weights(part)[pairs.cells]
        frequency = keys.frequency(pairs.values)
        if self.postings[part] > _COUNTED and possible is not None:
            wanted = np.flatnonzero(possible[keys.tables]).astype(np.int32)
            lists: list[Int32] = [keys.postings(value) for value in pairs.values.tolist()]
            sums = weigh(lists, weights, wanted)
            for column in pairs.of_column:
                sums[wanted == column] = len(self.query)
            return wanted[sums > 0].astype(np.int64), sums[sums > 0].astype(np.float64)
        holders = keys.holders(pairs.values, frequency)
        bounds = np.bincount(holders, np.repeat(weights, frequency), len(keys))
        cells = np.repeat(pairs.cells, frequency)
        for column in pairs.of_column:
            held = self.rows.holds(part, column)
            bounds[column] = self.query.weights(part)[held].sum()
            holders = np.append(holders, np.full(len(held), column, np.int32))
            cells = np.append(cells, held)
        self._holders[part] = keys.tables[holders], cells
        columns = np.flatnonzero(bounds)
        return columns, np.minimum(bounds[columns], len(self.query))

    def add_programs(self, part: int, column: int, values: Int, cells: Int) -> None:
        """Let a column match more values of a part: those that a program makes of each other."""
        pairs = list(self.rows.pairs)
        pairs[part] = pairs[part].with_programs(column, values, cells)
        self.rows = TableRows(self.keys, pairs)

    def has_programs(self, tables: Int) -> Marks:
        """Mark the tables with a column that matches a part by a program."""
        columns = [column for _, column in self.programs]
        owners = self.keys.tables[np.array(columns, np.int64)]
        return np.isin(tables, owners)

    def with_others(self, part: int) -> Marks:
        """Mark the tables that hold values of every other part."""
        marks = np.ones(len(self.keys.table_names), bool)
        for other, (owners, _) in self._holders.items():
            if other != part:
                marks &= np.isin(np.arange(len(marks)), owners)
        return marks

    def promised(self, tables: Int) -> Int:
        """Bound how many tuples tables hold: those whose parts each are somewhere in the table."""
        query = self.query
        places = np.full(len(self.keys.table_names), -1)
        places[tables] = np.arange(len(tables))
        possible = np.ones((len(tables), len(query)), bool)
        for part, (owners, cells) in self._holders.items():
            at = places[owners]
            here = np.flatnonzero(at >= 0)
            held = np.zeros((len(tables), len(query.parts[part])), bool)
            held[at[here], cells[here]] = True
            possible &= held[:, query.tuples[:, part]]
        return np.asarray(np.count_nonzero(possible, axis=1), np.int64)

    def found(self, columns: Sequence[int]) -> tuple[Found, Int]:
        """Find the tuples in the rows under a mapping, and the numbers of the beginnings."""
        levels, numbers = self.query.levels(range(len(columns)))
        found: Found | None = None
        for part, (level, column) in enumerate(zip(levels, columns, strict=True)):
            found = self.rows.extend(found, level, part, column)
        assert found is not None
        return found, numbers


class MappingSearch:
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
        first = columns[0].columns[np.searchsorted(columns[0].tables, tables)]
        small = place.keys.counts[first] <= _SMALL_ROWS
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
        """Check whether the time is up; something is returned even then."""
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
            found = verify_together(place.keys, pairs, parts, tables, self.needed)
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
        possible: Marks = np.ones(len(query), bool)
        for part, marks in enumerate(held):
            possible &= np.asarray(marks.any(axis=0))[query.tuples[:, part]]
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
            name = place.keys.table_names[int(place.keys.tables[columns[0][0][0]])]
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
    keys, columns = place.keys, mapping.columns
    names = [column.name for column in place.query.columns]
    theirs = list(map(keys.name, columns))
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
        keys.table_names[int(keys.tables[columns[0]])],
        tuple(column_place(keys.column_id(column)) for column in columns),
    )
