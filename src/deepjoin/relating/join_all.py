"""The edges of a lake, written as they are found: all of them, or what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import ArrayWriter, load_array
from deepjoin.relating.edge_list import EdgeList, EdgeListWriter
from deepjoin.relating.fingerprints import Prints, fingerprints, matching
from deepjoin.relating.found import Found, together
from deepjoin.relating.self_join import SelfJoin
from deepjoin.store.numbering import Int, Numbering

#: Told how many columns are done, of how many, and what is being done.
Told = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Earlier:
    """The edges of a lake as it once was, and what its columns were."""

    edges: EdgeList
    prints: Prints
    #: The segments of then: their names, and how many columns each had.
    segments: Sequence[tuple[str, int]]

    @classmethod
    def open(cls, folder: Path, segments: Sequence[tuple[str, int]]) -> Earlier:
        """Map what `join_all` wrote."""
        prints = load_array(folder / "fingerprints.npy").reshape(-1, 2)
        return cls(EdgeList(folder), prints, segments)

    def prints_by_segment(self) -> dict[str, Prints]:
        """Return the fingerprints of each segment."""
        stops = np.cumsum([columns for _, columns in self.segments]).tolist()
        return {
            name: self.prints[stop - columns : stop]
            for (name, columns), stop in zip(self.segments, stops, strict=True)
        }


@dataclass(frozen=True)
class Work:
    """What it took to find the edges of a lake."""

    #: Columns that can be joined on, and how many of them were joined with all others.
    columns: int
    joined: int
    #: Edges left out because a column has more than were asked for.
    left_out: int
    postings: int
    candidates: int


def join_all(
    lake: Numbering,
    share: float,
    folder: Path,
    earlier: Earlier | None,
    most: int | None,
    told: Told,
) -> Work:
    """Write the edges of a lake to a folder; edges of two columns known from earlier are kept.

    ``most`` keeps the best so many edges of each column with larger ones.
    """
    prints = fingerprints(lake, {} if earlier is None else earlier.prints_by_segment())
    known = _Known(prints, earlier)
    join = SelfJoin(lake, share, lake.joins & (known.places < 0), known.counts)
    left_out = 0
    with EdgeListWriter(folder, len(lake.sizes)) as writer:
        for run, found in join.found():
            edges = together([found, known.edges(run)])
            kept = edges if most is None else edges.take(_best(lake, edges, most))
            left_out += len(edges.a) - len(kept.a)
            writer.append(kept)
            told(run.stop, len(lake.sizes), "columns")
        writer.finish()
    with ArrayWriter(folder / "fingerprints.npy", np.uint64) as words:
        words.append(prints.ravel())
    joined = int(join.new.sum())
    return Work(int(lake.joins.sum()), joined, left_out, join.postings, join.candidates)


class _Known:
    """Edges from earlier, between columns that are still there."""

    def __init__(self, prints: Prints, earlier: Earlier | None) -> None:
        self._earlier = earlier
        #: Which of the earlier columns each one is, -1 for a new one.
        self.places: Int = np.full(len(prints), -1)
        #: How many earlier edges each column had.
        self.counts: Int = np.zeros(len(prints), np.int64)
        if earlier is None:
            return
        self.places = matching(prints, earlier.prints)
        there = np.flatnonzero(self.places >= 0)
        self.counts[there] = earlier.edges.counts[self.places[there]]
        self._numbers = np.full(len(earlier.prints), -1)
        self._numbers[self.places[there]] = there

    def edges(self, run: slice) -> Found:
        """Return the edges that columns of a run have had, by the numbers of now."""
        if self._earlier is None:
            return together([])
        places = self.places[run]
        found = self._earlier.edges.of_smaller(places[places >= 0])
        found = found._replace(a=self._numbers[found.a], b=self._numbers[found.b])
        return found.take(found.b >= 0)


def _best(lake: Numbering, found: Found, most: int) -> npt.NDArray[np.int64]:
    """Choose the edges of each column ``a`` that share most, the other then being the smallest."""
    order = np.lexsort((lake.order[found.b], lake.sizes[found.b], -found.matched, found.a))
    starts = np.flatnonzero(np.diff(found.a[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    return np.sort(order[rank < most])
