"""Several value indexes to one, from what they store: no table is read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.store.values.chunk import ROWS, partition_of
from deepjoin.store.values.index import ValueIndex
from deepjoin.store.values.partitions import merged_partitions
from deepjoin.store.values.spill import Spill
from deepjoin.store.values.writer import AS_VALUE, ValueIndexWriter

Int = npt.NDArray[np.int64]

_CHUNK_CELLS = 1 << 19


@dataclass(frozen=True)
class Part:
    """One of the indexes to be merged, and the columns of it that stay."""

    folder: Path
    values: ValueIndex
    kept: npt.NDArray[np.bool_]


def merge_values(
    parts: Sequence[Part], out: Path, scratch: Path, memory: int, threads: int
) -> None:
    """Write the columns that stay, numbered through in the order of the parts."""
    scratch.mkdir(parents=True, exist_ok=True)
    spill = Spill(scratch, memory)
    sizes = [np.diff(part.values.column_offsets)[part.kept] for part in parts]
    numbers = np.arange(sum(map(len, sizes)))
    with ThreadPoolExecutor(threads) as pool:
        first = 0
        for part in parts:
            for rows in _rows(part, first):
                spill.append(rows)
            first += int(part.kept.sum())
        spill.seal()
        with ValueIndexWriter(out, np.concatenate([np.zeros(0, np.int64), *sizes])) as writer:
            for postings in merged_partitions(spill, pool, threads):
                writer.append(postings, numbers)


def _rows(part: Part, first: int) -> Iterator[pa.RecordBatch]:
    """Turn the forward index back into the rows it was made of, a chunk at a time."""
    strings = load_strings(part.folder, "values")
    spellings = load_strings(part.folder, "spellings")
    offsets = np.asarray(part.values.column_offsets)
    renumbered = np.cumsum(part.kept) - 1 + first
    start = 0
    while start + 1 < len(offsets):
        stop = int(np.searchsorted(offsets, offsets[start] + _CHUNK_CELLS, side="right")) - 1
        stop = max(stop, start + 1)
        column = np.repeat(np.arange(start, stop), np.diff(offsets[start : stop + 1]))
        places = np.flatnonzero(part.kept[column]) + int(offsets[start])
        if len(places):
            numbers = renumbered[column[places - int(offsets[start])]]
            yield _batch(part.values, places, numbers, strings, spellings)
        start = stop


def _batch(
    index: ValueIndex, places: Int, columns: Int, strings: pa.Array, spellings: pa.Array
) -> pa.RecordBatch:
    """Fetch the cells at some places of the forward index, by partition."""
    hashes = index.hashes[index.cell_values[places]]
    order = np.argsort(partition_of(hashes), kind="stable")
    places = places[order]
    values = strings.take(pa.array(index.cell_values[places]))
    spelled = index.cell_spellings[places]
    own = spelled != AS_VALUE
    numbers = pa.array(np.where(own, spelled, 0), mask=~own)
    return pa.record_batch(
        {
            "hash": hashes[order],
            "column": columns[order].astype(np.uint32),
            "row": index.cell_rows[places],
            "count": index.cell_counts[places],
            "value": values,
            "spelling": pc.coalesce(spellings.take(numbers), values),
        },
        schema=ROWS,
    )
