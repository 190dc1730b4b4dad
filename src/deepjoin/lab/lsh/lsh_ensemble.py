"""The method of LSH Ensemble, for comparison: estimated containments, never verified.

The evidence of a hit is measured for display and changes neither order nor membership.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepjoin.arrays import Double, Int, Marks
from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.lab.lsh.minhash import (
    PLACES,
    THRESHOLDS,
    Hashes,
    LshIndex,
    Permutations,
    containment,
    sign_columns,
)
from deepjoin.model import Column
from deepjoin.search.context import SearchContext
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.search.ranking import Ranking
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.search.vectors import NearColumn, near_ranking, nearest_first
from deepjoin.store.segment import Segment

METHOD = "lsh-ensemble"


def lsh_ensemble(context: SearchContext, join: str, tau: float | None) -> LshEnsemble:
    """Search by MinHash signatures; for semantic joins only the evidence is by meaning."""
    cells = context.cell_encoder() if join == "semantic" and context.has_cells else None
    return LshEnsemble(context.segments, context.profile, context.key, join=join, encoder=cells)


class LshEnsemble(Searcher):
    """Ranks by estimated containment; its tables hold all signatures in memory.

    Ties are broken by the name of the table, then by the position of the column.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        join: str = "equi",
        encoder: CellEncoder | None = None,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key = profile, key
        self._join, self._encoder = join, encoder
        self._permutations = Permutations.of_datasketch()
        self._columns = _ColumnsBySize(self._segments)
        self._signatures = self._columns.signatures(self._permutations)
        sizes = self._columns.sizes
        self._index = LshIndex(self._signatures, sizes) if len(sizes) else None

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        if options.threshold > 0:
            raise DeepJoinError(
                f"A minimum joinability came with method '{METHOD}', which does not verify its "
                "hits; min_joinability needs a method that does: use hybrid."
            )
        cells = SearchQuery(query, self._profile, self._key, self._encoder)
        held = cells.cells.values if cells.cells.hidden is None else cells.cells.hidden
        signature = self._permutations.signature(held) if held else np.zeros(0, np.uint32)
        watch.lap("encode")
        found = self._found(signature, len(held), options) if held and options.columns != 0 else []
        watch.lap("candidates")
        return near_ranking(cells, self._segments, found, METHOD, self._join, self._encoder)

    def _found(self, signature: Hashes, size: int, options: SearchOptions) -> list[NearColumn]:
        """Lower the threshold until the estimates of k columns reach it, or to the last one."""
        out = self._columns.excluded(options.exclude)
        rows = np.zeros(0, np.int64)
        estimates: Double = np.zeros(0)
        for threshold in THRESHOLDS if self._index is not None else ():
            assert self._index is not None
            more = self._index.find(signature, size, threshold)
            # Columns found at a higher threshold have their estimates already.
            more = np.setdiff1d(more if out is None else more[~out[more]], rows)
            sizes = self._columns.sizes[more]
            likely = containment(signature, size, self._signatures[more], sizes)
            rows, estimates = np.append(rows, more), np.append(estimates, likely)
            if options.columns is not None and (estimates >= threshold).sum() >= options.columns:
                break
        return self._columns.best(rows, estimates, options.columns)


class _ColumnsBySize:
    """The live columns of a lake with values, as rows in ascending order of size."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        every = [np.diff(np.asarray(one.values.column_offsets)) for one in segments]
        for sizes, segment in zip(every, segments, strict=True):
            if segment.dead is not None:
                sizes[segment.dead] = 0
        self._counts = [len(sizes) for sizes in every]
        sizes = np.concatenate([np.zeros(0, np.int64), *every])
        # LSH Ensemble partitions columns by size, so that a partition is a range of rows.
        order = np.argsort(sizes, kind="stable")
        #: The number of each row among all columns of all segments.
        self._places = order[np.searchsorted(sizes[order], 1) :]
        #: How many distinct values each row has, ascending.
        self.sizes: Int = sizes[self._places]

    def signatures(self, permutations: Permutations) -> Hashes:
        """Compute the signatures of all columns."""
        rows = np.full(sum(self._counts), -1)
        rows[self._places] = np.arange(len(self._places))
        signatures = np.empty((len(self._places), PLACES), np.uint32)
        ends = np.cumsum(self._counts).tolist()
        for segment, count, end in zip(self._segments, self._counts, ends, strict=True):
            sign_columns(segment, permutations, rows[end - count : end], signatures)
        return signatures

    def excluded(self, table: str | None) -> Marks | None:
        """Mark the rows of a table."""
        if all(table is None or one.find_table(table) is None for one in self._segments):
            return None
        marks = [excluded_columns(segment, table) for segment in self._segments]
        filled = [
            np.zeros(count, bool) if mark is None else mark
            for mark, count in zip(marks, self._counts, strict=True)
        ]
        return np.asarray(np.concatenate(filled)[self._places])

    def best(self, rows: Int, estimates: Double, k: int | None) -> list[NearColumn]:
        """Sort rows by their estimates, and keep the first k."""
        if k is not None and k < len(rows):
            least = np.partition(estimates, len(rows) - k)[len(rows) - k]
            rows, estimates = rows[estimates >= least], estimates[estimates >= least]
        ends = np.cumsum(self._counts)
        places = self._places[rows]
        owners = np.searchsorted(ends, places, side="right")
        columns = places - ends[owners] + np.array(self._counts, np.int64)[owners]
        each = zip(owners.tolist(), columns.tolist(), estimates.tolist(), strict=True)
        return nearest_first(self._segments, [NearColumn(*one) for one in each])[:k]
