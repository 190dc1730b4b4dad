"""Segments become one: tables that left are dropped, and no table is read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.arrays import load_strings
from deepjoin.build.build import Means
from deepjoin.store.catalog import CatalogWriter
from deepjoin.store.copies import link_or_copy
from deepjoin.store.ledger import Entry, Key, entries_of, write_ledger
from deepjoin.store.report import live_report, sum_of
from deepjoin.store.segment import FRAMES, Segment
from deepjoin.store.values.builder import MergeInput, merge_values

Int = npt.NDArray[np.int64]

#: A segment is merged with those behind it unless it is this many times as large: so there
#: are few segments, and an entry is rewritten few times.
_RATIO = 4
#: One that has lost more of its tables than this share is rewritten.
_MOST_REMOVED = 0.25
#: Segments do not grow beyond so many bytes by themselves: a merge writes all of them again, and
#: one segment numbers at most four billion values.
LARGEST = 128 << 30


def worth_merging(sizes: Sequence[int], removed: Sequence[float]) -> int:
    """Return from which segment on all should become one; their number if none should.

    ``removed`` is the share of each segment's tables that have left the lake.
    """
    first = len(sizes) - 1
    while (
        first > 0
        and sizes[first - 1] < _RATIO * sum(sizes[first:])
        and sum(sizes[first - 1 :]) <= LARGEST
    ):
        first -= 1
    emptied = [number for number, share in enumerate(removed) if share > _MOST_REMOVED]
    if emptied:
        return min(first, emptied[0])
    return first if len(sizes) - first > 1 else len(sizes)


def merge_segments(
    segments: Sequence[Segment], out: Path, scratch: Path, means: Means, whole: bool
) -> None:
    """Write one segment that stands for several; ``whole`` if there are none before them."""
    parts = [MergeInput(one.folder, one.values, kept_columns(one)) for one in segments]
    merge_values(parts, out, scratch, means.memory, means.threads)
    rows, entries = _merged_ledger(segments, whole)
    with CatalogWriter(out) as catalog:
        first = 0
        for segment, part, items in zip(segments, parts, rows, strict=True):
            _append_tables(catalog, segment, items)
            _append_columns(catalog, segment, part.kept, first)
            _keep_frames(segment, out / FRAMES, first)
            first += len(segment.live_tables)
        names = ("column_types", "column_generic", "column_cells")
        catalog.finish(*(_gathered(segments, parts, name) for name in names))
    write_ledger(out, entries)
    sum_of([live_report(segment) for segment in segments]).saved(out)


def kept_columns(segment: Segment) -> npt.NDArray[np.bool_]:
    """Mark the columns of a segment that a merge keeps: those still part of the lake."""
    return np.ones(segment.values.columns, bool) if segment.dead is None else ~segment.dead


def _gathered(
    segments: Sequence[Segment], parts: Sequence[MergeInput], name: str
) -> npt.NDArray[np.int64]:
    pairs = zip(segments, parts, strict=True)
    arrays = [getattr(segment.catalog, name)[part.kept] for segment, part in pairs]
    gathered: Int = np.concatenate(arrays)
    return gathered


def _merged_ledger(segments: Sequence[Segment], whole: bool) -> tuple[list[Int], list[Entry]]:
    """Keep the latest entry of each item; also say which entry each old row has become.

    Entries of items that are gone cover those of earlier segments, and go when there are none.
    """
    ledgers = [entries_of(segment.ledger) for segment in segments]
    latest: dict[Key, Entry] = {}
    for ledger in ledgers:
        latest |= {entry.key: entry for entry in ledger}
    kept = [entry for entry in latest.values() if not (whole and entry.gone)]
    place = {entry.key: number for number, entry in enumerate(kept)}
    rows = [np.array([place.get(e.key, -1) for e in ledger], np.int64) for ledger in ledgers]
    return rows, kept


def _append_tables(catalog: CatalogWriter, segment: Segment, items: Int) -> None:
    live = np.array(segment.live_tables, np.int64)
    names, entries = (
        load_strings(segment.folder, name).take(pa.array(live))
        for name in ("table_names", "table_entries")
    )
    catalog.append_tables(names, entries, items[segment.catalog.table_items[live]])


def _append_columns(
    catalog: CatalogWriter, segment: Segment, kept: npt.NDArray[np.bool_], first: int
) -> None:
    numbers = np.zeros(len(segment.catalog.table_names), np.int64)
    numbers[segment.live_tables] = np.arange(len(segment.live_tables)) + first
    mask = pa.array(kept)
    ids, names = (
        load_strings(segment.folder, name).filter(mask) for name in ("column_ids", "column_names")
    )
    catalog.add_columns(ids, names, numbers[segment.catalog.column_tables[kept]])


def _keep_frames(segment: Segment, out: Path, first: int) -> None:
    """Take the tables that live in the index along, under their new numbers."""
    if not (segment.folder / FRAMES).is_dir():
        return
    for new, old in enumerate(segment.live_tables, first):
        frame = segment.folder / FRAMES / f"{old}.parquet"
        if not frame.exists():
            continue
        out.mkdir(exist_ok=True)
        link_or_copy(frame, out / f"{new}.parquet")
