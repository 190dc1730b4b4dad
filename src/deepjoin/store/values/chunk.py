"""First step of a build: a chunk of cells to its distinct (column, value) rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Hashes, Int, Int32
from deepjoin.normalise.canonical import canonical_array, hash_array
from deepjoin.normalise.private import hidden_array
from deepjoin.store.values.profile import Traits

#: Three of these fit one 64-bit sort key: column, value and position within a chunk.
MAX_CHUNK = 1 << 20

PARTITION_BITS = 6

#: A row of a chunk: one column holds one value, this often, first at this row in this spelling.
#: Where values are hidden, the spelling is the number of characters the value had.
ROWS = pa.schema(
    {
        "hash": pa.uint64(),
        "column": pa.uint32(),
        "row": pa.uint32(),
        "count": pa.uint32(),
        # Large offsets: a partition may hold more than 2 GiB of text.
        "value": pa.large_string(),
        "spelling": pa.large_string(),
    }
)


@dataclass(frozen=True)
class Chunk:
    """Cells of many columns, flat: cell i is in row ``rows[i]`` of column ``columns[i]``."""

    columns: Int
    rows: Int
    cells: pa.StringArray


class RowGroups(NamedTuple):
    """Cells of a chunk by (column, value): groups are numbered column after column."""

    #: The hash of each group's value.
    hashes: Hashes
    #: The group of each cell; -1 for a missing one.
    of_cell: Int32


@dataclass(frozen=True)
class ReducedChunk:
    """The distinct rows of a chunk, by hash partition, and two counts a column.

    ``present`` and ``too_long`` start at column ``first``: cells with a value, cells over the
    length limit. ``traits``, from the same column on, are of values that are now hidden.
    """

    rows: pa.RecordBatch
    first: int
    present: Int
    too_long: Int
    traits: Traits | None = None
    #: Which value each cell has, for chunks whose rows are stored.
    groups: RowGroups | None = None


def reduce_chunk(
    chunk: Chunk, profile: str, max_cell: int, key: bytes = b"", with_rows: bool = False
) -> ReducedChunk:
    """Find the distinct values of each column of a chunk, with counts and first spellings.

    Given a key, values are replaced by hashes and spellings are dropped. ``with_rows`` adds which
    value each cell has.
    """
    encoded = chunk.cells.dictionary_encode()
    spelled, spelling_of = encoded.dictionary, _codes(encoded)
    long = pc.greater(pc.utf8_length(spelled), max_cell)
    values = canonical_array(pc.if_else(long, None, spelled), profile)
    values = pc.if_else(pc.equal(values, ""), None, values).dictionary_encode()
    # A missing cell's spelling is -1, which picks the extra last entry.
    value_of = np.append(_codes(values), -1)[spelling_of]

    first = int(chunk.columns.min()) if len(chunk.columns) else 0
    span = int(chunk.columns.max()) - first + 1 if len(chunk.columns) else 0
    local = chunk.columns - first
    here = np.flatnonzero(value_of >= 0)
    present = np.bincount(local[here], minlength=span)
    is_long = np.append(np.asarray(long.fill_null(False)), False)[spelling_of]
    too_long = np.bincount(local[is_long], minlength=span)

    positions, counts, of_cell = _group(local[here], value_of[here], here)
    texts, traits = values.dictionary, None
    if key:
        traits = Traits(span)
        traits.add(texts, value_of[positions], local[positions])
        spelled, spelling_of = pc.utf8_length(texts).cast(pa.string()), value_of
        texts = hidden_array(texts, key)
    hashes = hash_array(texts)[value_of[positions]]
    groups = None
    if with_rows:
        every = np.full(len(chunk.columns), -1, np.int32)
        every[here] = of_cell
        groups = RowGroups(hashes, every)
    order = np.argsort(partition_of(hashes), kind="stable")
    positions = positions[order]

    def picked(strings: pa.Array, numbers: Int) -> pa.Array:
        return strings.take(pa.array(numbers[positions])).cast(pa.large_string())

    rows = pa.record_batch(
        {
            "hash": hashes[order],
            "column": chunk.columns[positions].astype(np.uint32),
            "row": chunk.rows[positions].astype(np.uint32),
            "count": counts[order].astype(np.uint32),
            "value": picked(texts, value_of),
            "spelling": picked(spelled, spelling_of),
        },
        schema=ROWS,
    )
    return ReducedChunk(rows, first, present, too_long, traits, groups)


def partition_of(hashes: Hashes) -> npt.NDArray[np.uint8]:
    """Return the hash partition of each row; ascending partitions hold ascending hashes."""
    return (hashes >> np.uint64(64 - PARTITION_BITS)).astype(np.uint8)


def _codes(encoded: pa.DictionaryArray) -> Int:
    return np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)


def _group(columns: Int, values: Int, positions: Int) -> tuple[Int, Int, Int]:
    """Group cells by (column, value): the first position and the size of each group.

    Then the group of each cell, in the order given: of ascending positions.
    """
    if len(positions) == 0:
        return positions, positions, positions
    # One plain sort of packed keys is several times faster than a stable argsort, and leaves
    # the smallest position, the first appearance, in front of each group.
    bits = int(positions[-1]).bit_length()
    value_bits = int(values.max()).bit_length()
    keys = (((columns << value_bits) | values) << bits) | positions
    keys.sort()
    group = keys >> bits
    is_new = np.append(True, group[1:] != group[:-1])
    starts = np.flatnonzero(is_new)
    counts = np.diff(np.append(starts, len(keys)))
    keys &= (1 << bits) - 1
    numbers = np.empty(int(positions[-1]) + 1, np.int64)
    numbers[keys] = np.cumsum(is_new) - 1
    return keys[starts], counts, numbers[positions]
