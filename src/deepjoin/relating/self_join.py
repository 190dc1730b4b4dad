"""All pairs of columns of a lake that join, exactly, from the postings.

Two columns join if one holds at least a share t of the other's distinct values. The one with
fewer values is then covered: a column x with n values has a = ceil(t n) of them in a column y
that has no fewer. So every pair is found once, from its smaller column (of equals, the first by
name), and only the n - a + 1 rarest values of that are looked up (`prefix_filter`).

For a graph, edges are written as they are found: all of them, or what has changed since an earlier
one. A column is recognised by a fingerprint of its table, place and cells, wherever the lake keeps
it; edges between two columns that are known from the earlier graph are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from deepjoin.arrays import (
    ArrayWriter,
    Hashes,
    Int,
    Int32,
    Marks,
    blocks,
    load_array,
    load_strings,
    places_in_runs,
    ranges,
)
from deepjoin.lazy import cached_property
from deepjoin.progress import Progress
from deepjoin.relating.edges import EdgeList, EdgeListWriter, JoinedColumns
from deepjoin.relating.prefix_filter import WORK, NumberedSegment, PrefixLookup, Wanted
from deepjoin.store.segment import Numbering, Segment
from deepjoin.store.values.index import ValueIndex

#: Cells of columns x prepared at a time.
_CELLS = 1 << 20
#: Values compared at a time.
_VALUES = 1 << 20
#: Two words a column; both are zero only for a column that joins with nothing.
Prints = Hashes
#: Cells read at a time for fingerprints.
_PRINTED = 1 << 21


@dataclass
class SelfJoin:
    """The columns of a lake joined with each other, where one of the two is new."""

    lake: Numbering
    #: The least share of the smaller column's distinct values that the other holds.
    share: float
    #: Marks the columns whose pairs are wanted; pairs of two others are known already.
    new: Marks
    #: How many known pairs each column has; they bound the runs as well.
    known: Int
    #: Marks the pairs that are wanted; by default, those of two tables.
    wanted: Wanted | None = None
    #: How much was done so far: postings read, and pairs that had a value in common.
    postings: int = 0
    candidates: int = 0

    def found(self) -> Iterator[tuple[slice, JoinedColumns]]:
        """Yield runs of column numbers, each with the pairs found from its columns."""
        for part in self._parts:
            lookups = [_SegmentLookup(self, part, other) for other in self._parts]
            sizes = self.lake.sizes[part.start : part.stop]
            for first, last in blocks(sizes, _CELLS):
                yield from self._block(slice(part.start + first, part.start + last), lookups)

    @cached_property
    def _parts(self) -> list[NumberedSegment]:
        starts = self.lake.column_starts.tolist()
        return [
            NumberedSegment(*of)
            for of in zip(self.lake.segments, starts[:-1], starts[1:], strict=True)
        ]

    def _block(
        self, part: slice, lookups: Sequence[_SegmentLookup]
    ) -> Iterator[tuple[slice, JoinedColumns]]:
        columns = np.arange(part.start, part.stop)[self.lake.joins[part]]
        prepared = [rows for lookup in lookups for rows in lookup.rows(columns)]
        work = self.known[part] + 1
        for rows in prepared:
            work[rows.columns - part.start] += rows.work
        for first, last in blocks(work, WORK):
            run = slice(part.start + first, part.start + last)
            found = JoinedColumns.sorted(rows.pairs(run) for rows in prepared)
            if self.wanted is None:
                found = found.take(self.lake.tables[found.a] != self.lake.tables[found.b])
            yield run, found
        self.postings += sum(int(rows.work.sum()) for rows in prepared)
        self.candidates += sum(rows.candidates for rows in prepared)

    @cached_property
    def rank(self) -> Int:
        """Order the columns by size, then by name; -1 for those that join with nothing."""
        rank = np.empty(len(self.lake.sizes), np.int64)
        rank[np.lexsort((self.lake.order, self.lake.sizes))] = np.arange(len(rank))
        rank[~self.lake.joins] = -1
        return rank


class _SegmentLookup:
    """How columns of one segment are looked up in another."""

    def __init__(self, join: SelfJoin, own: NumberedSegment, other: NumberedSegment) -> None:
        self._join, self._own, self._other = join, own, other
        self._all = AllPostings(other.segment.values)
        self._translation = ValueTranslation(own.segment, other.segment)

    @cached_property
    def _new(self) -> SomePostings | None:
        """What is new in the other segment."""
        new = (self._join.new & self._join.lake.joins)[self._other.start : self._other.stop]
        columns = np.flatnonzero(new)
        return SomePostings(self._other.segment.values, columns) if len(columns) else None

    def rows(self, columns: Int) -> Iterator[PrefixLookup]:
        """Prepare columns: new ones for the whole segment, others for what is new in it."""
        new = self._join.new[columns]
        places = self._own, self._other, self._translation
        limits = self._join.share, self._join.rank, self._join.wanted
        if new.any():
            yield PrefixLookup(columns[new], *places, self._all, *limits)
        if not new.all() and self._new is not None:
            yield PrefixLookup(columns[~new], *places, self._new, *limits)


class AllPostings:
    """The postings of a whole segment, as they are stored."""

    def __init__(self, index: ValueIndex) -> None:
        self._index = index

    def frequency(self, values: Int) -> Int:
        """Count the columns that hold each value."""
        if len(self._index.hashes) == 0:
            return np.zeros(len(values), np.int64)
        return np.where(values >= 0, self._index.frequency(np.maximum(values, 0)), 0)

    def read(self, values: Int, frequency: Int) -> Int32:
        """Return the columns of each value, one value after the other."""
        return self._index.holders(values, frequency)


class SomePostings:
    """The postings of a few columns, made from their cells."""

    def __init__(self, index: ValueIndex, columns: Int) -> None:
        sizes = index.sizes(columns)
        values = index.cell_values[ranges(index.column_offsets[columns], sizes)]
        order = np.argsort(values, kind="stable")
        self._columns = np.repeat(columns, sizes)[order].astype(np.int32)
        self._values, self._starts = np.unique(values[order], return_index=True)
        self._lengths = np.diff(np.append(self._starts, len(order)))

    def frequency(self, values: Int) -> Int:
        """Count the columns that hold each value."""
        at = self._places(values)
        return np.where(self._values[at] == values, self._lengths[at], 0)

    def read(self, values: Int, frequency: Int) -> Int32:
        """Return the columns of each value, one value after the other."""
        return np.asarray(self._columns[ranges(self._starts[self._places(values)], frequency)])

    def _places(self, values: Int) -> Int:
        # A stored value is an unsigned number; compared with -1 it must not wrap.
        wanted = np.maximum(values, 0).astype(self._values.dtype)
        return np.minimum(np.searchsorted(self._values, wanted), len(self._values) - 1)


class ValueTranslation:
    """Values of one segment as another numbers them: 4 bytes a value, none for the same segment."""

    def __init__(self, one: Segment, other: Segment) -> None:
        self._numbers = None if one is other else _translated(one, other)

    def __call__(self, values: Int) -> Int:
        """Return the numbers of values in the other segment, -1 for those it does not have."""
        if self._numbers is None:
            return values
        return self._numbers[values].astype(np.int64) - 1


def _translated(one: Segment, other: Segment) -> npt.NDArray[np.uint32]:
    """Find all values of a segment in another: the number plus 1, or 0 where there is none."""
    numbers = np.zeros(len(one.values.hashes), np.uint32)
    if len(other.values.hashes) == 0:
        return numbers
    mine, theirs = (load_strings(segment.folder, "values") for segment in (one, other))
    for start in range(0, len(numbers), _VALUES):
        hashes = one.values.hashes[start : start + _VALUES]
        at = np.searchsorted(other.values.hashes, hashes)
        at = np.minimum(at, len(other.values.hashes) - 1)
        here = np.flatnonzero(other.values.hashes[at] == hashes)
        found = at[here]
        equal = pc.equal(mine.take(pa.array(here + start)), theirs.take(pa.array(found)))
        same = np.asarray(equal)
        numbers[start + here[same]] = found[same] + 1
        # Different strings with one hash, nearly never: look these up by their text.
        left = (start + here[~same]).tolist()
        numbers[left] = other.values.look_up([mine[value].as_py() for value in left]) + 1
    return numbers


@dataclass(frozen=True)
class EarlierGraph:
    """The edges of an earlier state of a lake, and the fingerprints of its columns."""

    edges: EdgeList
    prints: Prints
    #: The segments of then: their names, and how many columns each had.
    segments: Sequence[tuple[str, int]]

    @classmethod
    def open(cls, folder: Path, segments: Sequence[tuple[str, int]]) -> EarlierGraph:
        """Map the files that `join_all` wrote."""
        prints = load_array(folder / "fingerprints.npy").reshape(-1, 2)
        return cls(EdgeList(folder), prints, segments)

    def prints_by_segment(self) -> dict[str, Prints]:
        """Return the fingerprints of the columns of each segment, by its name."""
        stops = np.cumsum([columns for _, columns in self.segments]).tolist()
        return {
            name: self.prints[stop - columns : stop]
            for (name, columns), stop in zip(self.segments, stops, strict=True)
        }


@dataclass(frozen=True)
class JoinWork:
    """What it took to find the edges of a lake."""

    #: Columns that can be joined on, and how many of them were joined with all others.
    columns: int
    joined: int
    #: Edges left out because a column has more than the most allowed.
    left_out: int
    postings: int
    candidates: int


def join_all(
    lake: Numbering,
    share: float,
    folder: Path,
    earlier: EarlierGraph | None,
    most: int | None,
    progress: Progress,
) -> JoinWork:
    """Write the edges of a lake to a folder; edges of two columns known from earlier are kept.

    ``most`` keeps only that many of each column's edges with larger ones, the best.
    """
    prints = fingerprints(lake, {} if earlier is None else earlier.prints_by_segment())
    known = _Known(prints, earlier)
    join = SelfJoin(lake, share, lake.joins & (known.places < 0), known.counts)
    left_out = 0
    with EdgeListWriter(folder, len(lake.sizes)) as writer:
        for run, found in join.found():
            edges = JoinedColumns.sorted([found, known.edges(run)])
            kept = edges if most is None else edges.take(_best(lake, edges, most))
            left_out += len(edges.a) - len(kept.a)
            writer.append(kept)
            progress(run.stop, len(lake.sizes), "columns")
        writer.finish()
    with ArrayWriter(folder / "fingerprints.npy", np.uint64) as words:
        words.append(prints.ravel())
    joined = int(join.new.sum())
    return JoinWork(int(lake.joins.sum()), joined, left_out, join.postings, join.candidates)


class _Known:
    """Edges from earlier, between columns that are still there."""

    def __init__(self, prints: Prints, earlier: EarlierGraph | None) -> None:
        self._earlier = earlier
        #: Which of the earlier columns each one is, -1 for a new one.
        self.places: Int = np.full(len(prints), -1)
        #: How many earlier edges each column had.
        self.counts: Int = np.zeros(len(prints), np.int64)
        if earlier is None:
            return
        self.places = known_columns(prints, earlier.prints)
        there = np.flatnonzero(self.places >= 0)
        self.counts[there] = earlier.edges.counts[self.places[there]]
        self._numbers = np.full(len(earlier.prints), -1)
        self._numbers[self.places[there]] = there

    def edges(self, run: slice) -> JoinedColumns:
        """Return the earlier edges of a run of columns, by their current numbers."""
        if self._earlier is None:
            return JoinedColumns.sorted([])
        places = self.places[run]
        found = self._earlier.edges.of_smaller(places[places >= 0])
        found = found._replace(a=self._numbers[found.a], b=self._numbers[found.b])
        return found.take(found.b >= 0)


def _best(lake: Numbering, found: JoinedColumns, most: int) -> Int:
    """Choose the edges of each column ``a`` that share most, the other then being the smallest."""
    order = np.lexsort((lake.order[found.b], lake.sizes[found.b], -found.matched, found.a))
    return np.sort(order[places_in_runs(found.a[order]) < most])


def fingerprints(lake: Numbering, known: Mapping[str, Prints]) -> Prints:
    """Compute a fingerprint of 128 bits for every column that can be joined on.

    A column of the same fingerprint has the same values, as often, in a table of the same name:
    a segment that was merged into another keeps those of its columns. Segments never change, so
    those that are ``known`` by name are not read.
    """
    prints = np.zeros((len(lake.sizes), 2), np.uint64)
    starts = lake.column_starts.tolist()
    for segment, start, stop in zip(lake.segments, starts, starts[1:], strict=False):
        if segment.folder.name in known:
            prints[start:stop] = known[segment.folder.name]
            continue
        wanted = np.flatnonzero(lake.joins[start:stop])
        digests = b"".join(_digests(segment, wanted))
        prints[start + wanted] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    prints[~lake.joins] = 0
    return prints


def _digests(segment: Segment, columns: Int) -> Iterator[bytes]:
    """Yield the digests of some columns of a segment."""
    index, catalog = segment.values, segment.catalog
    offsets = np.asarray(index.column_offsets)
    # Which column of its table each one is: two columns of a table may hold the same cells.
    order = np.argsort(catalog.column_tables, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = places_in_runs(catalog.column_tables[order])
    for first, last in blocks(index.sizes(columns), _PRINTED):
        chosen = columns[first:last]
        start = int(offsets[chosen[0]])
        stop = int(offsets[chosen[-1] + 1])
        hashes = index.hashes[index.cell_values[start:stop]]
        counts = index.cell_counts[start:stop].astype(np.uint32)
        for column in chosen.tolist():
            cells = slice(int(offsets[column]) - start, int(offsets[column + 1]) - start)
            table = catalog.table_names[int(catalog.column_tables[column])]
            head = f"{places[column]} {len(table)} {table}".encode("utf-8", "surrogatepass")
            yield xxh3_128_digest(head + hashes[cells].tobytes() + counts[cells].tobytes())


def known_columns(prints: Prints, earlier: Prints) -> Int:
    """Return for each column which of the earlier ones it is, or -1.

    >>> earlier = np.array([[0, 0], [7, 1], [5, 2]], np.uint64)
    >>> known_columns(np.array([[5, 2], [7, 9], [0, 0]], np.uint64), earlier).tolist()
    [2, -1, -1]
    """
    if len(earlier) == 0:
        return np.full(len(prints), -1)
    order = np.argsort(earlier[:, 0], kind="stable")
    at = np.searchsorted(earlier[order, 0], prints[:, 0])
    found = order[np.minimum(at, len(order) - 1)]
    # Two earlier columns with one first word, nearly never: the second counts as new.
    same = (earlier[found] == prints).all(axis=1) & prints.any(axis=1)
    return np.where(same, found, -1)
