"""The columns of a segment as columns again: no table is read for their texts and sketches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.model import Column
from deepjoin.store.catalog import TableEntry
from deepjoin.store.segment import Segment
from deepjoin.store.values.index import AS_VALUE, ValueIndex

Int = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer[Any]]

#: Cells made at a time.
_CELLS = 1 << 18


def segment_columns(segment: Segment, numbers: Numbers, counted: bool = False) -> Iterator[Column]:
    """Give columns by their numbers: distinct cells as first spelled, in row order.

    ``counted`` repeats each cell as often as the table does.
    """
    words = _Words(segment)
    values, spellings = (load_strings(segment.folder, name) for name in ("values", "spellings"))
    for block in _blocks(segment.values, np.asarray(numbers, np.int64)):
        places, bounds = _places(segment.values, block)
        cells = _cells(segment.values, places, values, spellings)
        if counted:
            counts = np.asarray(segment.values.cell_counts)[places].astype(np.int64)
            cells = cells.take(pa.array(np.repeat(np.arange(len(places)), counts)))
            bounds = np.append(0, np.cumsum(counts))[bounds]
        texts = cells.to_pylist()
        for number, (start, stop) in zip(block.tolist(), pairwise(bounds.tolist()), strict=True):
            yield words.column(number, texts[start:stop])


def _blocks(index: ValueIndex, numbers: Int) -> Iterator[Int]:
    """Cut column numbers so that each piece has about so many cells."""
    ends = np.cumsum(index.sizes(numbers)) if len(numbers) else numbers
    start = 0
    while start < len(numbers):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _CELLS, side="right")))
        yield numbers[start:stop]
        start = stop


def _places(index: ValueIndex, columns: Int) -> tuple[Int, Int]:
    """Find the entries of columns in the forward index, each column's in row order."""
    sizes = index.sizes(columns)
    bounds = np.append(0, np.cumsum(sizes))
    starts = np.asarray(index.column_offsets)[columns]
    places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
    which = np.repeat(np.arange(len(columns)), sizes)
    order = np.lexsort((np.asarray(index.cell_rows)[places], which))
    return places[order], bounds


def _cells(index: ValueIndex, places: Int, values: pa.Array, spellings: pa.Array) -> pa.Array:
    """Spell the cells of some entries of the forward index."""
    numbers = np.asarray(index.cell_spellings)[places]
    own = numbers == AS_VALUE
    plain = values.take(pa.array(np.asarray(index.cell_values)[places]))
    if own.all():
        return plain
    other = spellings.take(pa.array(numbers[~own]))
    return pc.replace_with_mask(plain, pa.array(~own), other)


class _Words:
    """The words around columns; the table read last is kept, since columns come by table."""

    def __init__(self, segment: Segment) -> None:
        self._catalog = segment.catalog
        self._number, self._table = -1, TableEntry("")

    def column(self, number: int, cells: list[str]) -> Column:
        """Put the words around the cells of a column."""
        catalog = self._catalog
        table = int(catalog.column_tables[number])
        if table != self._number:
            self._number, self._table = table, catalog.table(table)
        entry = self._table
        words = entry.name, entry.title, entry.context
        return Column(cells, catalog.column_names[number], *words, catalog.column_ids[number])
