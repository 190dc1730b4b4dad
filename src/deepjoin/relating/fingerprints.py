"""What tells a column from all others, wherever the lake keeps it: its table, place and cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest

from deepjoin.arrays import blocks
from deepjoin.store.numbering import Int, Numbering
from deepjoin.store.segment import Segment

#: Two words a column; none is zero but that of a column that joins with nothing.
Prints = npt.NDArray[np.uint64]

#: Cells read at a time.
_CELLS = 1 << 21


def fingerprints(lake: Numbering, known: Mapping[str, Prints]) -> Prints:
    """Give every column that can be joined on 128 bits that stand for all that its joins need.

    A column of the same fingerprint has the same values, as often, in a table of the same name:
    a segment that was merged into another keeps those of its columns. Segments never change, so
    those that are ``known`` by name are not read.
    """
    prints = np.zeros((len(lake.sizes), 2), np.uint64)
    starts = lake.column_starts.tolist()
    for segment, start, stop in zip(lake.segments, starts, starts[1:], strict=False):
        if segment.folder.name in known:
            prints[start:stop] = known[segment.folder.name]
            continue
        wanted = np.flatnonzero(lake.joins[start:stop])
        digests = b"".join(_digests(segment, wanted))
        prints[start + wanted] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    prints[~lake.joins] = 0
    return prints


def _digests(segment: Segment, columns: Int) -> Iterator[bytes]:
    """Yield the digests of some columns of a segment."""
    index, catalog = segment.values, segment.catalog
    offsets = np.asarray(index.column_offsets)
    places = _places(catalog.column_tables)
    for first, last in blocks(index.sizes(columns), _CELLS):
        chosen = columns[first:last]
        start = int(offsets[chosen[0]])
        stop = int(offsets[chosen[-1] + 1])
        hashes = index.hashes[index.cell_values[start:stop]]
        counts = index.cell_counts[start:stop]
        for column in chosen.tolist():
            cells = slice(int(offsets[column]) - start, int(offsets[column + 1]) - start)
            table = catalog.table_names[int(catalog.column_tables[column])]
            head = f"{places[column]} {len(table)} {table}".encode("utf-8", "surrogatepass")
            yield xxh3_128_digest(head + hashes[cells].tobytes() + counts[cells].tobytes())


def _places(tables: npt.NDArray[np.integer]) -> Int:
    """Return which column of its table each one is."""
    order = np.argsort(tables, kind="stable")
    starts = np.flatnonzero(np.diff(tables[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return places


def matching(prints: Prints, earlier: Prints) -> Int:
    """Return for each column which of the earlier ones it is, or -1.

    >>> earlier = np.array([[0, 0], [7, 1], [5, 2]], np.uint64)
    >>> matching(np.array([[5, 2], [7, 9], [0, 0]], np.uint64), earlier).tolist()
    [2, -1, -1]
    """
    if len(earlier) == 0:
        return np.full(len(prints), -1)
    order = np.argsort(earlier[:, 0], kind="stable")
    at = np.searchsorted(earlier[order, 0], prints[:, 0])
    found = order[np.minimum(at, len(order) - 1)]
    # Two earlier columns of one first word, nearly never: the second is taken for a new one.
    same = (earlier[found] == prints).all(axis=1) & prints.any(axis=1)
    return np.where(same, found, -1)
