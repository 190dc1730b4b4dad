"""The value index on disk: written in one pass from postings, read by memory mapping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import (
    ArrayWriter,
    Int,
    Int32,
    Integers,
    Strings,
    StringsWriter,
    create_array,
    load_array,
    load_offsets,
    narrow,
    prefetch,
    ranges,
    shorten,
)
from deepjoin.errors import DeepJoinError
from deepjoin.normalise.canonical import hash_values
from deepjoin.packing import PackedArray, load_numbers, pack
from deepjoin.store.values.postings import Postings
from deepjoin.store.values.spellings import spelled_as, stored_spellings

#: In ``cell_spellings``: the cell is spelled as its canonical value.
AS_VALUE = 0xFFFFFFFF

#: How far a hash may be from where even spreading puts it, in a segment of millions of values.
_NEAR = 2048

#: The forward index, one entry a (column, value): grouped by column, values ascending.
FORWARD = ("cell_values", "cell_counts", "cell_rows", "cell_spellings")
#: What of it is packed, since searches read it for hits alone, and how much larger each number is
#: stored: so a spelling that is the value's own is 0.
PACKED = {"cell_counts": 0, "cell_rows": 0, "cell_spellings": 1}


class ValueIndex:
    """Distinct values in hash order, the columns that hold each, and each column's values."""

    def __init__(self, folder: Path) -> None:
        self.hashes = load_array(folder / "value_hashes.npy")
        self.values = Strings.load(folder, "values")
        self.posting_offsets = load_offsets(folder / "posting_offsets.npy")
        self.posting_columns = load_array(folder / "posting_columns.npy")
        self.column_offsets = load_offsets(folder / "column_offsets.npy")
        self._spellings = Strings.load(folder, "spellings")
        self.cell_values = load_array(folder / "cell_values.npy")
        self.cell_counts, self.cell_rows, self.cell_spellings = (
            load_numbers(folder / f"{name}.npy", more) for name, more in PACKED.items()
        )

    @property
    def columns(self) -> int:
        """How many columns are indexed."""
        return len(self.column_offsets) - 1

    def look_up(self, values: Sequence[str]) -> Int:
        """Give each canonical string its value number, or -1 where no column holds it."""
        if len(self.hashes) == 0:
            return np.full(len(values), -1)
        hashes = hash_values(values)
        # Hashes are spread evenly, so a value is near its share of the way.
        guess = (hashes / 2.0**64 * len(self.hashes)).astype(np.int64)
        prefetch(self.hashes, guess - _NEAR, 2 * _NEAR)
        places = self.hashes.searchsorted(hashes)
        same = self.hashes[np.minimum(places, len(self.hashes) - 1)] == hashes
        numbers = np.where(same, places, -1)
        (found,) = same.nonzero()
        texts = self.values.take(places[found])
        others = [i for i, text in zip(found.tolist(), texts, strict=True) if text != values[i]]
        for i in others:
            # Walk the values of one hash, nearly always one, to the very string.
            at = int(places[i])
            while self.values[at] != values[i]:
                at += 1
                if at == len(self.hashes) or self.hashes[at] != hashes[i]:
                    at = -1
                    break
            numbers[i] = at
        return numbers

    @property
    def is_outdated(self) -> bool:
        """Whether a version before format 4 wrote it, which packed nothing."""
        return not isinstance(self.cell_counts, PackedArray)

    def frequency(self, values: Int) -> Int:
        """Document frequency: in how many columns each value occurs."""
        prefetch(self.posting_offsets, values, 2)
        found = self.posting_offsets[values + 1] - self.posting_offsets[values]
        return np.asarray(found, np.int64)

    def posting_lists(self, values: Int, frequency: Int) -> list[Integers]:
        """Return the columns that hold each value, ascending, a list for each.

        They are as narrow as they are stored: to calculate with them, widen them.
        """
        starts = np.asarray(self.posting_offsets[values], np.int64)
        bounds = zip(starts.tolist(), (starts + frequency).tolist(), strict=True)
        return [self.posting_columns[start:stop] for start, stop in bounds]

    def postings(self, value: int) -> Int32:
        """Return the columns that hold a value, ascending."""
        start, stop = self.posting_offsets[value], self.posting_offsets[value + 1]
        return np.asarray(self.posting_columns[start:stop], np.int32)

    def holders(self, values: Int, frequency: Int) -> Int32:
        """Return the columns that hold each value, one value after the other."""
        starts = np.asarray(self.posting_offsets[values], np.int64)
        prefetch(self.posting_columns, starts, frequency)
        return np.asarray(self.posting_columns[ranges(starts, frequency)], np.int32)

    def sizes(self, columns: Integers) -> Int:
        """Return the number of distinct values of each of these columns."""
        return np.asarray(self.column_offsets[columns + 1] - self.column_offsets[columns])

    def cells_of(self, column: int) -> tuple[int, int]:
        """Return where a column's entries of the forward index start and stop."""
        return int(self.column_offsets[column]), int(self.column_offsets[column + 1])

    def entries(self, column: int) -> Int:
        """Return a column's entries of the forward index, in order of first appearance."""
        start, stop = self.cells_of(column)
        return np.argsort(self.cell_rows[start:stop], kind="stable") + start

    def cells(self, entries: Int) -> list[str]:
        """Spell entries of the forward index as their tables do."""
        values = self.values.take(self.cell_values[entries].astype(np.int64))
        return list(map(self.spelling, values, self.cell_spellings[entries].tolist()))

    def spelling(self, value: str, number: int) -> str:
        """Return a cell as its table spells it, given its value and its spelling number."""
        return value if number == AS_VALUE else spelled_as(value, self._spellings.raw(number))


class ValueIndexWriter:
    """Writes the inverted index in one pass and scatters the forward index beside it."""

    def __init__(self, folder: Path, sizes: Int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
        with ArrayWriter(folder / "column_offsets.npy", np.int64) as writer:
            writer.append(offsets)
        shorten(folder / "column_offsets.npy", wide=True)
        self._next = offsets[:-1].copy()
        self._forward = {
            name: create_array(folder / f"{name}.npy", np.uint32, int(offsets[-1]))
            for name in FORWARD
        }
        self._hashes = ArrayWriter(folder / "value_hashes.npy", np.uint64)
        self._values = StringsWriter(folder, "values")
        self._posting_offsets = ArrayWriter(folder / "posting_offsets.npy", np.int64)
        self._posting_offsets.append([0])
        self._posting_columns = ArrayWriter(folder / "posting_columns.npy", np.int32)
        self._spellings = StringsWriter(folder, "spellings")

    def append(self, postings: Postings, column_numbers: Int) -> None:
        """Write one partition; ``column_numbers`` are its columns' numbers in the index."""
        first_value = self._hashes.length
        if first_value + len(postings.hashes) >= AS_VALUE:
            raise DeepJoinError(
                f"More than {AS_VALUE:,} distinct values; index the folders one by one."
            )
        columns = column_numbers[postings.column]
        frequency = np.bincount(postings.value, minlength=len(postings.hashes))
        self._posting_offsets.append(np.cumsum(frequency) + self._posting_columns.length)
        self._posting_columns.append(columns)
        self._hashes.append(postings.hashes)
        self._values.append(postings.values)
        # Partitions come in value order, so each column's next free place keeps it sorted.
        order = np.argsort(columns, kind="stable")
        grouped = columns[order]
        starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: len(grouped)])
        sizes = np.diff(np.append(starts, len(grouped)))
        rank = np.arange(len(grouped)) - np.repeat(starts, sizes)
        places = self._next[grouped] + rank
        self._next[grouped[starts]] += sizes
        self._forward["cell_values"][places] = postings.value[order] + first_value
        self._forward["cell_counts"][places] = postings.count[order]
        self._forward["cell_rows"][places] = postings.row[order]
        self._forward["cell_spellings"][places] = self._spelling_numbers(postings)[order]

    def _spelling_numbers(self, postings: Postings) -> npt.NDArray[np.uint32]:
        """Store how cells of the partition are spelled, what many have in common once."""
        value = postings.values.take(pa.array(postings.value))
        other = pc.not_equal(postings.spellings, value)
        encoded = stored_spellings(value.filter(other), postings.spellings.filter(other))
        encoded = encoded.dictionary_encode()
        numbers = np.full(len(value), AS_VALUE, np.uint32)
        numbers[np.asarray(other)] = np.asarray(encoded.indices) + self._spellings.length
        self._spellings.append(encoded.dictionary)
        return numbers

    def __enter__(self) -> ValueIndexWriter:
        return self

    def __exit__(self, *error: object) -> None:
        # `IndexWriter.place` syncs the files; syncing the maps as well would take twice as long.
        self._forward.clear()
        self._values.close()
        self._spellings.close()
        for writer in (self._hashes, self._posting_offsets, self._posting_columns):
            writer.close()
        shorten(self._folder / "posting_offsets.npy")
        narrow(self._folder / "posting_columns.npy")
        for name, more in PACKED.items():
            pack(self._folder / f"{name}.npy", more)
