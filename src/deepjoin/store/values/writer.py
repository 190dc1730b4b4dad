"""Last step of a build: postings, partition by partition, to the files of the value index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import ArrayWriter, StringsWriter, create_array
from deepjoin.errors import DeepJoinError
from deepjoin.store.values.merge import Postings

Int = npt.NDArray[np.int64]

#: In ``cell_spellings``: the cell is spelled as its canonical value.
AS_VALUE = 0xFFFFFFFF

#: The forward index, one entry a (column, value): grouped by column, values ascending.
FORWARD = ("cell_values", "cell_counts", "cell_rows", "cell_spellings")


class ValueIndexWriter:
    """Writes the inverted index in one pass and scatters the forward index beside it."""

    def __init__(self, folder: Path, sizes: Int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
        with ArrayWriter(folder / "column_offsets.npy", np.int64) as writer:
            writer.append(offsets)
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
        """Write one partition; its columns get the numbers they are to have in the index."""
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
        self._scatter(columns, postings, first_value)

    def _scatter(self, columns: Int, postings: Postings, first_value: int) -> None:
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
        """Store each distinct spelling of the partition once; most cells need none."""
        value = postings.values.take(pa.array(postings.value))
        other = pc.not_equal(postings.spellings, value)
        encoded = postings.spellings.filter(other).dictionary_encode()
        numbers = np.full(len(value), AS_VALUE, np.uint32)
        numbers[np.asarray(other)] = np.asarray(encoded.indices) + self._spellings.length
        self._spellings.append(encoded.dictionary)
        return numbers

    def __enter__(self) -> ValueIndexWriter:
        return self

    def __exit__(self, *error: object) -> None:
        # Whoever stores the files syncs them; syncing the maps as well takes twice as long.
        self._forward.clear()
        self._values.close()
        self._spellings.close()
        for writer in (self._hashes, self._posting_offsets, self._posting_columns):
            writer.close()
