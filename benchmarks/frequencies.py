"""Document frequencies of a corpus: measured, scaled to another number of columns, compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Int
from deepjoin.normalise.canonical import canonical_array, hash_array
from deepjoin.read.corpus import CorpusSource

Numbers = npt.NDArray[np.generic]

#: Lower ends of the buckets: columns a value is in, and the same as a share of all columns.
ABSOLUTE = (1, 2, 3, 4, 10, 32, 100, 316, 1000, 10_000)
RELATIVE = (0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
#: Up to the first, a frequency is a number of columns; from the second on, a share of them.
_RARE = 3
_FREQUENT_SHARE = 1e-3


@dataclass(frozen=True)
class Measured:
    """Counts of distinct values that characterise a corpus."""

    #: The number of columns that hold each value.
    frequencies: Int
    #: The number of values of each column.
    sizes: Int
    #: The lengths of a sample of values, in corpus order.
    lengths: Int


def measure(corpus: CorpusSource, file: str = "columns.parquet") -> Measured:
    """Count the values of a corpus as the basic profile compares them, blanks dropped."""
    hashes, sizes, lengths = [], [], []
    for block in corpus.blocks(file, ("cells",)):
        values, columns = distinct_in_columns(block["cells"])
        hashes.append(hash_array(values))
        sizes.append(np.bincount(columns, minlength=block.num_rows))
        lengths.append(np.asarray(pc.utf8_length(values[::16])))
    frequencies = np.unique(np.concatenate(hashes), return_counts=True)[1]
    return Measured(frequencies, np.concatenate(sizes), np.concatenate(lengths).astype(np.int64))


def distinct_in_columns(lists: pa.LargeListArray) -> tuple[pa.Array, Int]:
    """Return the distinct canonical values of each list, and the list of each value."""
    lengths = np.diff(np.asarray(lists.offsets))
    values = canonical_array(lists.flatten().cast(pa.string()), "basic")
    pairs = pa.table({"column": np.repeat(np.arange(len(lists)), lengths), "value": values})
    pairs = pairs.filter(pc.fill_null(pc.not_equal(pairs["value"], ""), False))
    pairs = pairs.group_by(["column", "value"], use_threads=False).aggregate([])
    return pairs["value"].combine_chunks(), np.asarray(pairs["column"])


def scaled(measured: Measured, columns: int) -> Int:
    """Return the frequencies of values that a larger or smaller lake shares, highest first.

    Each class of values keeps its share of the cells. A value in up to 3 columns stays in as
    many; one in a thousandth of the columns or more stays in that share of them; in between
    the factor goes from one rule to the other, evenly in the logarithm of the frequency.
    Values in a single column are not returned: they fill what room is left.
    """
    known, values = np.unique(measured.frequencies, return_counts=True)
    factor = columns / len(measured.sizes)
    frequent = max(_FREQUENT_SHARE * len(measured.sizes), 2 * _RARE)
    weight = np.clip(np.log(known / _RARE) / np.log(frequent / _RARE), 0, 1)
    new = np.minimum(np.rint(known * factor**weight), columns).astype(np.int64)
    exact = np.cumsum(values * known / np.maximum(new, 1) * factor)
    counts = np.diff(np.rint(exact).astype(np.int64), prepend=0)
    return np.repeat(new, counts)[np.repeat(new, counts) > 1][::-1]


def histogram(measured: Measured) -> list[dict[str, Any]]:
    """Return the share of values and of cells in each bucket of document frequency."""
    frequencies = measured.frequencies
    shares = frequencies / len(measured.sizes)
    return [
        *_buckets("columns", frequencies, np.array(ABSOLUTE), frequencies),
        *_buckets("share of columns", shares, np.array(RELATIVE), frequencies),
    ]


def _buckets(kind: str, keys: Numbers, edges: Numbers, cells: Int) -> list[dict[str, Any]]:
    which = np.searchsorted(edges, keys, side="right") - 1
    values = np.bincount(which, minlength=len(edges)) / len(keys)
    held = np.bincount(which, cells, len(edges)) / cells.sum()
    parts = zip(edges.tolist(), values.tolist(), held.tolist(), strict=True)
    return [{"by": kind, "from": edge, "values": v, "cells": c} for edge, v, c in parts]
