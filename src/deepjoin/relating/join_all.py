"""The edges of a lake, written as they are found: all of them, or what has changed since.

A column is recognised by a fingerprint of its table, place and cells, wherever the lake keeps it;
edges between two columns that are known from an earlier graph are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xxhash import xxh3_128_digest

from deepjoin.arrays import ArrayWriter, Hashes, Int, blocks, load_array, places_in_runs
from deepjoin.progress import Progress
from deepjoin.relating.edges import EdgeList, EdgeListWriter, JoinedColumns
from deepjoin.relating.self_join import SelfJoin
from deepjoin.store.segment import Numbering, Segment

#: Two words a column; both are zero only for a column that joins with nothing.
Prints = Hashes

#: Cells read at a time.
_CELLS = 1 << 21


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
    for first, last in blocks(index.sizes(columns), _CELLS):
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
