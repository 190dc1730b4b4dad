"""Lists of near values: the values near a cell are found by looking at a few lists.

Approximate: a pair is missed if none of its value's lists is among those looked at.
What is found is exact within the error it comes with, as in the full scan.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import load_array
from deepjoin.embed.kernel import Codes, Sums
from deepjoin.embed.pairs import Pairs
from deepjoin.embed.quantised import LIST_FILES, ValueVectors
from deepjoin.embed.scan import Scan
from deepjoin.errors import DeepJoinError

Int = npt.NDArray[np.int64]

#: Lists looked at for each cell, and pairs kept of each: a cell near to more tells nothing.
PROBES, MOST = 6, 2_000
#: Lists whose best stands for all when the nearest lists are sought.
_GROUP = 64
#: Cells that look at each other's lists, which costs little and finds more.
_CELLS = 64


class ValueLists:
    """The lists of one segment's values, mapped."""

    def __init__(self, folder: Path, vectors: ValueVectors | None = None) -> None:
        missing = [name for name in LIST_FILES if not (folder / name).exists()]
        if missing:
            raise DeepJoinError(
                f"No lists of near values in {folder}: {missing[0]} is missing. "
                "Search exactly, or index again."
            )
        codes, self._offsets, self._rows = (load_array(folder / name) for name in LIST_FILES)
        self.vectors = ValueVectors(folder) if vectors is None else vectors
        self._middles: Codes = codes.reshape(-1, self.vectors.dimension)

    def __len__(self) -> int:
        return len(self._middles)

    def near(
        self, queries: npt.ArrayLike, floor: float, threads: int = 2,
        probes: int = PROBES, most: int = MOST,
    ) -> Pairs:  # fmt: skip
        """Find values near each query: in the lists nearest to any of them, the best of each."""
        there, turned = self.vectors.turned(queries, floor)
        if len(there) == 0 or len(self) == 0:
            return Pairs.none()
        found = [Pairs.none()]
        for start in range(0, len(there), _CELLS):
            cells, some = there[start : start + _CELLS], turned[start : start + _CELLS]
            likeness = Scan(some, floor, threads).products(self._middles)
            rows = self._members(_nearest(likeness, probes))
            found.append(_best(self.vectors.found(cells, some, floor, rows, threads), most))
        return Pairs.concatenate(found)

    def _members(self, lists: Int) -> Int:
        """Return the rows in some lists, ascending, each once."""
        starts, stops = self._offsets[lists].tolist(), self._offsets[lists + 1].tolist()
        parts = [self._rows[start:stop] for start, stop in zip(starts, stops, strict=True)]
        # Stable, because it makes use of the ascending runs.
        rows = np.sort(np.concatenate(parts), kind="stable")
        new = np.ones(len(rows), bool)
        np.not_equal(rows[1:], rows[:-1], out=new[1:])
        return rows[new].astype(np.int64)


def _nearest(likeness: Sums, probes: int) -> Int:
    """Return the lists nearest to any query, a column each: at least so many of each."""
    best = likeness
    if probes * _GROUP < len(likeness):
        best = np.maximum.reduceat(likeness, np.arange(0, len(likeness), _GROUP), axis=0)
    # As many groups reach the bound as lists are wanted, so at least as many lists do.
    wanted = min(probes, len(best))
    bound = np.partition(best, -wanted, axis=0)[-wanted]
    return np.unique(np.flatnonzero(likeness >= bound) // likeness.shape[1])


def _best(pairs: Pairs, most: int) -> Pairs:
    """Keep the best pairs of each cell."""
    if len(pairs) == 0 or np.bincount(pairs.cells).max() <= most:
        return pairs
    order = np.lexsort((-pairs.similarities, pairs.cells))
    cells = pairs.cells[order]
    first = np.searchsorted(cells, cells)
    return pairs.where(np.sort(order[np.arange(len(cells)) - first < most]))
