"""Row alignment: which value each row of a column holds, so that tuples can be found in rows.

A column's values are ranked in the order of their hashes, which is the order of the forward index.
Row by row, the rank is stored in as many bits as the column needs; one more code stands for a
missing cell where there is one. Ranks do not change when segments are merged, so a merge copies
bytes. Why so: ``docs/decisions/0031-composite-keys.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import (
    Array,
    ArrayWriter,
    Int,
    Int32,
    Marks,
    StoredArray,
    create_array,
    load_array,
    load_offsets,
    shorten,
)
from deepjoin.store.values.chunk import RowGroups
from deepjoin.store.values.index import ValueIndex

CODES, OFFSETS, COUNTS, WIDTHS = "row_codes", "row_offsets", "row_counts", "row_widths"
#: The files, and what they hold.
ROW_FILES: dict[str, npt.DTypeLike] = {
    CODES: np.uint8,
    OFFSETS: np.int64,
    COUNTS: np.int64,
    WIDTHS: np.uint8,
}
#: The width of a column whose rows are not stored: of a corpus, or of a lake of hashes.
NOT_STORED = 255
#: Bytes behind the last column, since codes are read in words.
PADDING = 64
#: Codes are read in groups of eight, which end at a byte.
_GROUP = 8
#: The widest code that fits a word of four bytes wherever in a byte it starts.
_WORD = 25


class _SpilledRun(NamedTuple):
    """Consecutive cells of one column within a chunk."""

    column: int
    first_row: int
    start: int
    stop: int


class _SpilledChunk(NamedTuple):
    place: int
    groups: int
    cells: int
    runs: list[_SpilledRun]


class RowSpill:
    """Keeps the groups of all chunks in a scratch file until the values have their numbers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._chunks: list[_SpilledChunk] = []

    def append(self, columns: Int, rows: Int, groups: RowGroups) -> None:
        """Keep the groups of a chunk, whose cells are in these columns and rows."""
        breaks = (np.diff(columns) != 0) | (np.diff(rows) != 1)
        starts = np.append(0, np.flatnonzero(breaks) + 1)[: len(columns)]
        stops = np.append(starts[1:], len(columns))[: len(starts)]
        heads = (columns[starts].tolist(), rows[starts].tolist(), starts.tolist(), stops.tolist())
        runs = [_SpilledRun(*run) for run in zip(*heads, strict=True)]
        sizes = len(groups.hashes), len(groups.of_cell)
        self._chunks.append(_SpilledChunk(self._file.tell(), *sizes, runs))
        groups.hashes.astype(np.uint64).tofile(self._file)
        groups.of_cell.astype(np.int32).tofile(self._file)

    def close(self) -> None:
        """Close the scratch file."""
        self._file.close()

    def take(self) -> Iterator[tuple[list[_SpilledRun], RowGroups]]:
        """Return the chunks in the order in which they came, and remove the file."""
        self._file.close()
        with self._path.open("rb") as file:
            for chunk in self._chunks:
                file.seek(chunk.place)
                hashes = np.fromfile(file, np.uint64, chunk.groups)
                yield chunk.runs, RowGroups(hashes, np.fromfile(file, np.int32, chunk.cells))
        self._path.unlink()


@dataclass(frozen=True)
class StoredRowLayout:
    """The columns whose rows are stored: how many rows, and how many cells are not missing."""

    #: For each column that was read, its number in the index; -1 if it is not kept.
    numbers: Int
    #: For each column of the index.
    rows: Int
    present: Int


def write_rows(spill: RowSpill, layouts: Mapping[Path, StoredRowLayout]) -> None:
    """Write the rows of all kept columns beside their value indexes, which are written already."""
    writers = [_RowWriter(folder, layout) for folder, layout in layouts.items()]
    for runs, groups in spill.take():
        for writer in writers:
            writer.write(runs, groups)
    for writer in writers:
        writer.finish()


class _RowWriter:
    """Writes the rows of the columns of one value index."""

    def __init__(self, folder: Path, layout: StoredRowLayout) -> None:
        self._folder, self._layout, self._index = folder, layout, ValueIndex(folder)
        self._has_missing = layout.present < layout.rows
        most = np.maximum(0, np.diff(self._index.column_offsets) - 1) + self._has_missing
        self._widths = _bit_lengths(most)
        ends = np.cumsum(-(-layout.rows * self._widths // 8))
        self._offsets = np.append(0, ends).astype(np.int64)
        size = int(self._offsets[-1]) + PADDING
        self._codes = create_array(folder / f"{CODES}.npy", np.uint8, size)

    def write(self, runs: Sequence[_SpilledRun], groups: RowGroups) -> None:
        """Write those cells of a chunk that are in columns of this index."""
        index, widths = self._index, self._widths
        mine = [(int(self._layout.numbers[run.column]), run) for run in runs]
        mine = [(column, run) for column, run in mine if column >= 0 and widths[column] > 0]
        if not mine:
            return
        order = np.argsort(groups.hashes)
        values = np.empty(len(order), np.int64)
        values[order] = np.searchsorted(index.hashes, groups.hashes[order])
        for column, run in mine:
            of_cell = groups.of_cell[run.start : run.stop]
            here = of_cell[of_cell >= 0]
            if len(here) == 0:
                continue
            first, last = int(here.min()), int(here.max())
            # The first value of a hash is looked up; the column may hold the next one of it.
            held = index.cell_values[slice(*index.cells_of(column))]
            ranks = np.searchsorted(held, values[first : last + 1])
            written = np.append(ranks + self._has_missing[column], 0).astype(np.uint32)
            width = int(widths[column])
            start = 8 * int(self._offsets[column]) + width * run.first_row
            _pack(self._codes, start, written[np.where(of_cell < 0, -1, of_cell - first)], width)

    def finish(self) -> None:
        """Write where the rows of each column are."""
        _write_layout(self._folder, self._offsets, self._layout.rows, self._widths)


def write_no_rows(folder: Path, columns: int) -> None:
    """Note that the rows of these columns are not stored."""
    create_array(folder / f"{CODES}.npy", np.uint8, PADDING)
    nothing = np.zeros(columns, np.int64)
    _write_layout(folder, np.zeros(columns + 1, np.int64), nothing, nothing + NOT_STORED)


def _write_layout(folder: Path, offsets: Int, rows: Int, widths: Int) -> None:
    for name, array in ((OFFSETS, offsets), (COUNTS, rows), (WIDTHS, widths)):
        with ArrayWriter(folder / f"{name}.npy", ROW_FILES[name]) as writer:
            writer.append(array)
    shorten(folder / f"{OFFSETS}.npy", wide=True)


def _bit_lengths(numbers: Int) -> Int:
    """Return how many bits each number takes: 0 for 0, 1 for 1, 2 for 2 and 3.

    >>> _bit_lengths(np.array([0, 1, 2, 3, 4, 2**31])).tolist()
    [0, 1, 2, 2, 3, 32]
    """
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _pack(data: Array, start: int, codes: npt.NDArray[np.uint32], width: int) -> None:
    """Write codes of this width from a bit on; the bits there must be 0."""
    kind = np.dtype("<u1" if width <= 8 else "<u2" if width <= 16 else "<u4")
    narrow = codes.astype(kind).view(np.uint8).reshape(len(codes), kind.itemsize)
    bits = np.unpackbits(narrow, axis=1, count=width, bitorder="little").ravel()
    at, lead = divmod(start, 8)
    packed = np.packbits(np.concatenate([np.zeros(lead, np.uint8), bits]), bitorder="little")
    data[at : at + len(packed)] |= packed


class RowCodes:
    """The stored rows of a segment's columns."""

    def __init__(self, folder: Path) -> None:
        self.data, self.counts, self.widths = (
            load_array(folder / f"{name}.npy") for name in (CODES, COUNTS, WIDTHS)
        )
        self.offsets = load_offsets(folder / f"{OFFSETS}.npy")

    @classmethod
    def open(cls, folder: Path) -> RowCodes | None:
        """Map the rows of a segment; None for one of an earlier version, which has none."""
        return cls(folder) if (folder / f"{CODES}.npy").exists() else None

    def codes(self, column: int) -> npt.NDArray[np.uint32]:
        """Return the code of each row: ranks, from 1 on if the column has missing cells."""
        count, width = int(self.counts[column]), int(self.widths[column])
        if width == 0 or count == 0:
            return np.zeros(count, np.uint32)
        start = int(self.offsets[column])
        if width in (8, 16, 32):
            data = self.data[start : start + count * width // 8]
            return data.view(f"<u{width // 8}").astype(np.uint32)
        groups = -(-count // _GROUP)
        codes = np.empty(groups * _GROUP, np.uint32)
        word, mask = "<u4" if width <= _WORD else "<u8", (1 << width) - 1
        # The last word may reach into the next column, or the padding.
        held = self.data[start : start + groups * width + 8].data
        for place in range(_GROUP):
            # In each group of eight codes, the one at this place starts at the same bit.
            at, shift = divmod(place * width, 8)
            words: Array = np.ndarray((groups,), word, held, at, (width,))
            codes[place::_GROUP] = (words >> shift) & mask
        return codes[:count]

    def words(self, places: Int) -> npt.NDArray[np.uint64]:
        """Return the eight bytes from each of these places on as one number."""
        data: Any = self.data
        if isinstance(data, StoredArray):
            data.verify_rows(places)
            data.verify_rows(places + 7)
            data = data.mapped
        every: Array = np.ndarray((len(data) - 7,), "<u8", data.data, 0, (1,))
        return np.asarray(every[places])

    def ranks(self, column: int, present: int) -> Int32:
        """Return the rank of each row's value among the column's; -1 for a missing cell.

        ``present`` is how many cells of the column are not missing.
        """
        codes = self.codes(column).view(np.int32)
        return codes - np.int32(1) if present < len(codes) else codes


class RowPart(Protocol):
    """A segment to merge: its rows, and which of its columns to keep."""

    @property
    def rows(self) -> RowCodes | None:
        """The stored rows, if any."""

    @property
    def kept(self) -> Marks:
        """Marks the columns to keep."""


def merge_rows_of(parts: Sequence[RowPart], out: Path) -> None:
    """Copy the rows of the kept columns of all parts; without those of one part, there are none."""
    stored = [(part.rows, part.kept) for part in parts if part.rows is not None]
    if len(stored) < len(parts):
        return
    sizes, counts, widths = [], [], []
    with ArrayWriter(out / f"{CODES}.npy", np.uint8) as writer:
        for rows, kept in stored:
            offsets = np.asarray(rows.offsets)
            edges = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(int)))
            for first, last in edges.reshape(-1, 2).tolist():
                writer.append(rows.data[offsets[first] : offsets[last]])
            sizes.append(np.diff(offsets)[kept])
            counts.append(np.asarray(rows.counts)[kept])
            widths.append(np.asarray(rows.widths)[kept].astype(np.int64))
        writer.append(np.zeros(PADDING, np.uint8))
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
    _write_layout(out, ends, np.concatenate(counts), np.concatenate(widths))
