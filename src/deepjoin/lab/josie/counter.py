"""The sets that were seen in the lists read so far, and what each can still reach."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepjoin.lab.josie.index import Asked, Postings

Int = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]

#: In `slots`: not seen yet, and never to be looked at again.
UNSEEN, IGNORED = 0, -1


def score_of(overlap: Int, size: npt.NDArray[np.integer]) -> Int:
    """Rank sets as hits are ranked: by overlap, then the smaller set first."""
    return np.asarray((overlap << 32) - size)


def overlap_of(score: int) -> int:
    """Return the least overlap that can have this score."""
    return -(-score >> 32)


class Counter:
    """Candidates in rows, in the order in which they were first seen.

    ``slots`` has a number for every set of the lake: 0, or one more than its row.
    """

    def __init__(self, slots: Small, sizes: Small, capacity: int, ignored: Int) -> None:
        self._slots, self._sizes, self._ignored = slots, sizes, ignored
        self._count = 0
        self._alive = np.zeros(capacity, bool)
        self.sets = np.zeros(capacity, np.int32)
        self.partial, self.latest = (np.zeros(capacity, np.int32) for _ in range(2))
        self.first_position, self.first_in_query = (np.zeros(capacity, np.int32) for _ in range(2))
        #: The rows of the candidates that are still in the running.
        self.rows = np.zeros(0, np.int64)
        slots[ignored] = IGNORED

    def add(self, read: Postings, asked: Asked, start: int, *, new: bool) -> None:
        """Count the lists from ``start`` on; sets not seen before only where they may be new."""
        stop = start + len(read.lengths)
        if new:
            self._enter(read, asked.starts[start:stop])
        at = self._slots[read.sets] - 1
        seen = at >= 0
        at = at[seen]
        np.add.at(self.partial, at, np.repeat(asked.weights[start:stop], read.lengths)[seen])
        np.maximum.at(self.latest, at, read.positions[seen])

    def _enter(self, read: Postings, starts: Int) -> None:
        """Give a row to each set that is seen for the first time, in the lists' order."""
        places = np.flatnonzero(self._slots[read.sets] == UNSEEN)
        if len(places) == 0:
            return
        # Of a set in several lists, the first entry is written last, and stays.
        backwards = places[::-1]
        self._slots[read.sets[backwards]] = backwards + 1
        places = places[self._slots[read.sets[places]] == places + 1]
        rows = np.arange(self._count, self._count + len(places))
        sets = read.sets[places]
        self._slots[sets] = rows + 1
        self._count += len(rows)
        self._alive[rows] = True
        self.sets[rows] = sets
        self.first_position[rows] = read.positions[places]
        ends = np.cumsum(read.lengths)
        self.first_in_query[rows] = starts[np.searchsorted(ends, places, side="right")]
        self.rows = np.concatenate([self.rows, rows])

    def sizes(self, rows: Int) -> Small:
        """Return the sizes of the candidates' sets."""
        return np.asarray(self._sizes[self.sets[rows]])

    def bounds(self, rows: Int, left: int) -> Int:
        """Say what each can reach, with so many tokens of the query left: the position filter."""
        after = self.sizes(rows) - self.latest[rows] - 1
        return np.asarray(self.partial[rows] + np.minimum(left, after), np.int64)

    def prune(self, left: int, least: int) -> None:
        """Drop what was taken out, and what cannot reach a score any more."""
        rows = self.rows[self._alive[self.rows]]
        keep = score_of(self.bounds(rows, left), self.sizes(rows)) >= least
        self._slots[self.sets[rows[~keep]]] = IGNORED
        self.rows = rows[keep]

    def take(self, row: int) -> int:
        """Take a candidate out, and return its set."""
        self._alive[row] = False
        return int(self.sets[row])

    def clear(self) -> None:
        """Leave the slots as they were."""
        self._slots[self.sets[: self._count]] = UNSEEN
        self._slots[self._ignored] = UNSEEN
