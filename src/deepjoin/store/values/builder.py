"""Build a value index in bounded memory: reduce chunks, spill by hash, merge, write.

Only one chunk, one partition and a few numbers a column are held at a time; the rest is on
disk. Merging several indexes into one takes the same way, without reading a table again.
Why not an embedded database: ``docs/decisions/0003-value-index.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Int, Marks, load_strings
from deepjoin.errors import UnreadableTable
from deepjoin.memory import for_cells, rows_at_once
from deepjoin.normalise.private import key
from deepjoin.progress import worker_threads
from deepjoin.settings import Settings
from deepjoin.store.values.chunk import (
    MAX_CHUNK,
    ROWS,
    Chunk,
    ReducedChunk,
    partition_of,
    reduce_chunk,
)
from deepjoin.store.values.index import AS_VALUE, ValueIndex, ValueIndexWriter
from deepjoin.store.values.postings import Postings, Spill, merged_partitions
from deepjoin.store.values.profile import ColumnProfiles, ColumnTallies, Traits
from deepjoin.store.values.rows import (
    RowCodes,
    RowSpill,
    StoredRowLayout,
    merge_rows_of,
    write_no_rows,
    write_rows,
)
from deepjoin.store.values.spellings import load_spellings, respelled

#: Selects the columns to keep, from the profiles of all.
Choose = Callable[[ColumnProfiles], Marks]

#: Row numbers are stored in 32 bits.
_MAX_ROWS = (1 << 32) - 1

_CHUNK_CELLS = 1 << 19
_CHUNK_BYTES = 32 << 20
#: Bytes that a cell of a chunk takes while it is reduced: numbers, sort keys, strings.
_CELL_BYTES = 400


class ValueIndexBuilder:
    """Takes cells of numbered columns: columns in any order, the cells of each in row order.

    ``with_rows`` stores which value each row has, unless values are hidden.
    """

    def __init__(
        self,
        scratch: Path,
        settings: Settings,
        memory: int,
        threads: int = 2,
        *,
        with_rows: bool = False,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._threads = threads
        self._scratch = scratch
        self._settings = settings
        self._key = key(settings)
        #: Traits of columns whose values are hidden; they stay in memory and are never written.
        self._traits = Traits(0) if self._key else None
        self._spill = Spill(scratch, for_cells(memory))
        self._most_cells = _chunk_cells(memory, threads)
        self._most_bytes = min(_CHUNK_BYTES, max(1 << 20, memory // 16 // threads))
        # Which rows share a hidden value would say more about it than its hash does.
        stored = with_rows and not self._key
        self._rows = RowSpill(scratch / "rows") if stored else None
        self._pieces: list[tuple[int, int, pa.Array]] = []
        self._cells = self._bytes = 0
        self._present = np.zeros(0, np.int64)
        self._too_long = np.zeros(0, np.int64)
        self._pool = ThreadPoolExecutor(threads)
        self._reducing: deque[tuple[Chunk, Future[ReducedChunk]]] = deque()

    def add(self, column: int, first_row: int, cells: pa.Array) -> None:
        """Add consecutive cells of one column, starting at a row."""
        if first_row + len(cells) > _MAX_ROWS:
            raise UnreadableTable(f"it has more than {_MAX_ROWS:,} rows; split it into parts")
        for start in range(0, len(cells), self._most_cells):
            piece = cells.slice(start, self._most_cells)
            self._pieces.append((column, first_row + start, piece))
            self._cells += len(piece)
            self._bytes += piece.nbytes
            if self._cells >= self._most_cells or self._bytes >= self._most_bytes:
                self._reduce_pieces()

    def add_lists(self, first_column: int, lists: pa.ListArray) -> None:
        """Add whole columns at once: list i holds the cells of column ``first_column + i``."""
        offsets = np.asarray(lists.offsets).astype(np.int64)
        start = 0
        while start < len(lists):
            stop = (
                int(np.searchsorted(offsets, offsets[start] + self._most_cells, side="right")) - 1
            )
            stop = min(max(stop, start + 1), len(lists))
            if offsets[stop] - offsets[start] > MAX_CHUNK:  # one column larger than a chunk
                cells = lists.slice(start, 1).flatten()
                self.add(first_column + start, 0, cells.cast(pa.string()))
            else:
                lengths = np.diff(offsets[start : stop + 1])
                columns = np.repeat(np.arange(start, stop) + first_column, lengths)
                rows = np.arange(len(columns)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
                cells = lists.values.slice(int(offsets[start]), len(columns))
                self._submit(Chunk(columns, rows, cells.cast(pa.string())))
            start = stop

    def finish(
        self,
        out: Path,
        columns: int,
        choose: Choose,
        apart: tuple[Path, Choose] | None = None,
        rows: Int | None = None,
    ) -> tuple[ColumnProfiles, Marks, Marks]:
        """Write the index of the chosen columns, renumbered without gaps.

        Columns chosen by ``apart``, if any, get an index of their own there. ``rows`` is how many
        rows the table of each column has, if rows are stored. Returns what is known of all columns,
        which were chosen, and which are apart.
        """
        self._reduce_pieces()
        self._collect(0)
        self._spill.seal()
        tallies = ColumnTallies(columns, self._traits)
        # Which columns to keep is known only after the last partition, so postings wait where
        # their rows were: in memory, or on disk.
        merged: list[Postings | Path] = []
        for postings in merged_partitions(self._spill, self._pool, self._threads):
            stored = tallies.add(postings)
            if self._spill.on_disk:
                path = self._scratch / f"postings-{len(merged):02}"
                stored.save(path)
                merged.append(path)
            else:
                merged.append(stored)
        profiles = tallies.profiles(
            _grown(self._present, columns)[:columns], _grown(self._too_long, columns)[:columns]
        )
        kept, other = choose(profiles), np.zeros(columns, bool)
        chosen = [(out, kept)]
        if apart is not None:
            other = apart[1](profiles)
            if other.any():
                chosen.append((apart[0], other))
        layouts: dict[Path, StoredRowLayout] = {}
        for folder, marks in chosen:
            renumbered = np.cumsum(marks) - 1
            with ValueIndexWriter(folder, profiles.distinct[marks]) as writer:
                for one in merged:
                    postings = Postings.load(one) if isinstance(one, Path) else one
                    writer.append(postings.keep(marks), renumbered)
            if self._rows is None or rows is None:
                write_no_rows(folder, int(marks.sum()))
            else:
                numbers = np.where(marks, renumbered, -1)
                layouts[folder] = StoredRowLayout(numbers, rows[marks], profiles.present[marks])
        if self._rows is not None and layouts:
            write_rows(self._rows, layouts)
        return profiles, kept, other

    def __enter__(self) -> ValueIndexBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._spill.close()
        if self._rows is not None:
            self._rows.close()

    def _reduce_pieces(self) -> None:
        if not self._pieces:
            return
        lengths = np.array([len(cells) for _, _, cells in self._pieces])
        columns = np.repeat([column for column, _, _ in self._pieces], lengths)
        first = np.repeat([row for _, row, _ in self._pieces], lengths)
        rows = first + np.arange(len(columns)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        cells = pa.concat_arrays([cells for _, _, cells in self._pieces])
        self._pieces, self._cells, self._bytes = [], 0, 0
        self._submit(Chunk(columns, rows, cells))

    def _submit(self, chunk: Chunk) -> None:
        settings = self._settings
        how = settings.profile, settings.max_cell, self._key, self._rows is not None
        self._reducing.append((chunk, self._pool.submit(reduce_chunk, chunk, *how)))
        # Wait for the oldest when all threads are busy: chunks that wait would fill the memory.
        self._collect(self._threads)

    def _collect(self, waiting: int) -> None:
        """Take finished chunks in order until at most this many are running."""
        while len(self._reducing) > waiting:
            chunk, reducing = self._reducing.popleft()
            reduced = reducing.result()
            self._spill.append(reduced.rows)
            if self._rows is not None and reduced.groups is not None:
                self._rows.append(chunk.columns, chunk.rows, reduced.groups)
            if self._traits is not None and reduced.traits is not None:
                self._traits = self._traits.include(reduced.first, reduced.traits)
            stop = reduced.first + len(reduced.present)
            self._present = _grown(self._present, stop)
            self._too_long = _grown(self._too_long, stop)
            self._present[reduced.first : stop] += reduced.present
            self._too_long[reduced.first : stop] += reduced.too_long


def _chunk_cells(memory: int, threads: int) -> int:
    """Return how many cells a chunk has, so that those of all threads fit."""
    return rows_at_once(memory, _CELL_BYTES, 1 << 14, _CHUNK_CELLS, threads + 1)


def _grown(array: Int, length: int) -> Int:
    """Extend counts with zeros; doubling makes many small steps cheap."""
    if len(array) >= length:
        return array
    return np.concatenate([array, np.zeros(max(length, 2 * len(array)) - len(array), np.int64)])


@dataclass(frozen=True)
class MergeInput:
    """A value index to merge, and which of its columns to keep."""

    folder: Path
    values: ValueIndex
    rows: RowCodes | None
    kept: Marks


def merge_values(
    parts: Sequence[MergeInput], out: Path, scratch: Path, memory: int, threads: int
) -> None:
    """Write the kept columns of all parts as one index, numbered in the order of the parts."""
    scratch.mkdir(parents=True, exist_ok=True)
    spill = Spill(scratch, for_cells(memory))
    sizes = [np.diff(part.values.column_offsets)[part.kept] for part in parts]
    numbers = np.arange(sum(map(len, sizes)))
    with worker_threads(threads) as pool:
        first = 0
        for part in parts:
            for rows in _stored_rows(part, first, _chunk_cells(memory, 1)):
                spill.append(rows)
            first += int(part.kept.sum())
        spill.seal()
        with ValueIndexWriter(out, np.concatenate([np.zeros(0, np.int64), *sizes])) as writer:
            for postings in merged_partitions(spill, pool, threads):
                writer.append(postings, numbers)
    merge_rows_of(parts, out)


def _stored_rows(part: MergeInput, first: int, cells: int) -> Iterator[pa.RecordBatch]:
    """Turn a forward index back into the rows it was made of, a chunk at a time."""
    index = part.values
    strings, spellings = load_strings(part.folder, "values"), load_spellings(part.folder)
    offsets = np.asarray(index.column_offsets)
    renumbered = np.cumsum(part.kept) - 1 + first
    start = 0
    while start + 1 < len(offsets):
        stop = int(np.searchsorted(offsets, offsets[start] + cells, side="right")) - 1
        stop = max(stop, start + 1)
        column = np.repeat(np.arange(start, stop), np.diff(offsets[start : stop + 1]))
        here = np.flatnonzero(part.kept[column])
        column, places = column[here], here + int(offsets[start])
        start = stop
        if len(places) == 0:
            continue
        hashes = index.hashes[index.cell_values[places]]
        order = np.argsort(partition_of(hashes), kind="stable")
        places = places[order]
        values = strings.take(pa.array(index.cell_values[places]))
        spelled = index.cell_spellings[places]
        own = spelled != AS_VALUE
        numbers = pa.array(np.where(own, spelled, 0), mask=~own)
        yield pa.record_batch(
            {
                "hash": hashes[order],
                "column": renumbered[column[order]].astype(np.uint32),
                "row": index.cell_rows[places].astype(np.uint32),
                "count": index.cell_counts[places].astype(np.uint32),
                "value": values,
                "spelling": respelled(values, spellings.take(numbers)),
            },
            schema=ROWS,
        )
