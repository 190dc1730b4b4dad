"""An index while it changes: segments are added, merged and encoded until all is committed."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from deepjoin._version import __version__
from deepjoin.arrays import Int, Marks, load_strings
from deepjoin.build.encoding import Encoding, kept_columns
from deepjoin.build.engine import BuildResources
from deepjoin.build.segment_builder import SegmentBuilder, Titles, build_corpus
from deepjoin.build.workers import PartJob
from deepjoin.checksums import NAME as CHECKSUMS
from deepjoin.errors import DeepJoinError
from deepjoin.files import link_or_copy
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import NO_VECTORS, Settings, Vectors
from deepjoin.store.catalog import Catalog, CatalogWriter
from deepjoin.store.ledger import LEDGER, Entry, Key, entries_of, rows_of, write_ledger
from deepjoin.store.manifest import (
    FORMAT,
    READS,
    SEGMENTS,
    Described,
    Manifest,
    SegmentRecord,
    damaged,
)
from deepjoin.store.models import located
from deepjoin.store.open_index import opened
from deepjoin.store.report import live_report, sum_of
from deepjoin.store.segment import FRAMES, SMALL, Segment
from deepjoin.store.storage import FilesRead, IndexWriter, Known, compare_files
from deepjoin.store.values.builder import MergeInput, merge_values

#: A segment is merged with those behind it unless it is this many times as large: so there are
#: few segments, and an entry is rewritten few times.
_RATIO = 4
#: A segment that has lost more than this share of its tables is rewritten.
_MOST_REMOVED = 0.25
#: Bytes beyond which segments do not grow by themselves: a merge writes all of them again, and
#: one segment numbers at most four billion values.
LARGEST = 128 << 30
_COLUMN_ARRAYS = ("column_types", "column_generic", "column_cells")


@dataclass
class IndexPlan:
    """What the manifest will say apart from its segments."""

    settings: Settings
    sources: list[Described]
    #: Tables the user removed; a refresh does not bring them back.
    excluded: set[str] = field(default_factory=set)
    vectors: Vectors = NO_VECTORS


class IndexUpdate:
    """The records of an index as they will be; readers see nothing of it before `commit`."""

    def __init__(
        self,
        writer: IndexWriter,
        plan: IndexPlan,
        records: Iterable[SegmentRecord],
        resources: BuildResources,
    ) -> None:
        self._writer = writer
        self.resources = resources
        self.plan = plan
        self.records = list(records)
        self._before = {record.name for record in self.records}
        self._encoding = Encoding(plan.vectors, plan.settings, writer.folder, resources)
        self._rounds = 0
        self._opened: list[Segment] = []

    def segments(self) -> list[Segment]:
        """Open the segments as they will be."""
        folder = self._writer.folder / SEGMENTS
        self._opened = opened(folder, self.records, self._opened)
        return self._opened

    @contextmanager
    def building(self, keep: bool = False) -> Iterator[SegmentBuilder]:
        """Build another segment; on success, it replaces what it has read again."""
        out, scratch = self._next_folders()
        with SegmentBuilder(out, scratch, self.plan.settings, self.resources, keep) as build:
            yield build
            build.finish()
        self._encoding.write_of_values(out)
        self._place(out, build.read_keys)

    def build_corpus(self, corpus: CorpusSource, key: Key) -> None:
        """Build a segment of a whole corpus."""
        out, scratch = self._next_folders()
        build_corpus(corpus, key, self.plan.settings, out, scratch, self.resources)
        self._encoding.write_of_values(out)
        self._place(out, [key])
        self.drop_tables(self.plan.excluded)

    def part_job(self, titles: Titles) -> PartJob:
        """Describe the build for the workers of an engine."""
        plan = self.plan
        cells = located(plan.vectors.cells, self._writer.folder)
        vectors = replace(plan.vectors, cells=cells)
        return PartJob(plan.settings, vectors, self.resources.memory, titles, plan.excluded)

    def new_folder(self) -> Path:
        """Make a scratch folder for a part that is built elsewhere."""
        folder, _ = self._next_folders()
        folder.mkdir()
        return folder

    def join_parts(self, parts: Sequence[Path]) -> list[Entry]:
        """Make one segment of parts that have their cell vectors; return its ledger entries."""
        segments = [Segment(part) for part in parts]
        entries = [entry for segment in segments for entry in entries_of(segment.ledger)]
        out = parts[0]
        if len(parts) > 1:
            out, scratch = self._next_folders()
            merge_segments(segments, out, scratch, self.resources, whole=False)
            self._encoding.merge(segments, out, renew=True)
            for part in parts:
                # Some file systems keep mapped files; these go with the scratch folder.
                shutil.rmtree(part, ignore_errors=True)
        self._place(out, [entry.key for entry in entries])
        return entries

    def _next_folders(self) -> tuple[Path, Path]:
        self._rounds += 1
        here = self._writer.scratch
        return here / f"segment-{self._rounds}", here / f"spill-{self._rounds}"

    def _place(self, built: Path, read: Collection[Key]) -> None:
        """Add a segment in the place of the tables that were read again."""
        self._encoding.write_signatures(built)
        for number, segment in enumerate(self.segments()):
            self._remove(number, set(tables_of(segment, read)))
        new = Segment(built)
        for other in self.segments():
            small, large = sorted((new, other), key=lambda one: len(one.catalog.table_names))
            for number in small.live_tables:
                name = small.catalog.table_names[number]
                if large.find_table(name) is not None:
                    raise namesake(name)
        self.records.append(self._writer.place(built))

    def drop_tables(self, names: Iterable[str]) -> None:
        """Remove tables by name."""
        wanted = set(names)
        for number, segment in enumerate(self.segments()):
            found = (segment.find_table(name) for name in wanted)
            self._remove(number, {table for table in found if table is not None})

    def _remove(self, number: int, tables: set[int]) -> None:
        if tables:
            self.records[number] = self.records[number].without(tables)

    def checkpoint(self, key: str) -> None:
        """Keep the segments so far where a later run with the same key finds them."""
        self._writer.set_pending(key, self.plan.settings.salt, self.records)

    def resume(self, key: str) -> bool:
        """Continue from the checkpoint of a run with the same key, if there is one."""
        left = self._writer.pending(key)
        if left:
            self.records = left
        return bool(left)

    def merge(self, whole: bool = False) -> None:
        """Merge segments that have become too many or too empty, or all of them."""
        first = 0
        if not whole:
            sizes = [record.bytes for record in self.records]
            shares = [
                len(segment.removed) / max(1, len(segment.catalog.table_names))
                for segment in self.segments()
            ]
            first = worth_merging(sizes, shares)
            # Segments of this build become one: where checkpoints fell, which depends on the
            # clock, must not show in what is found.
            new = [n for n, record in enumerate(self.records) if record.name not in self._before]
            if len(new) > 1 and sum(sizes[n] for n in new) <= LARGEST:
                first = min(first, new[0])
        if first == len(self.records):
            return
        segments = self.segments()[first:]
        for segment, record in zip(segments, self.records[first:], strict=True):
            self._verify(segment, record)
        out, scratch = self._next_folders()
        merge_segments(segments, out, scratch, self.resources, whole=first == 0)
        self._encoding.merge(segments, out, renew=whole)
        self._encoding.write_signatures(out)
        # Kept frames are linked, so their checksums need not be computed again.
        self.records[first:] = [self._writer.place(out, _shared(segments, self.records[first:]))]

    def _verify(self, segment: Segment, record: SegmentRecord) -> None:
        """Verify what is about to be copied: damage must not get new checksums."""
        segment.settle(whole=True)
        # What else is read is verified then; without checksums of blocks, nothing would be.
        if CHECKSUMS not in record.files:
            folder = self._writer.folder
            for problem in compare_files(folder, [record], FilesRead()):
                raise damaged(folder, problem)

    def commit(self) -> None:
        """Make this the index that readers open."""
        plan = self.plan
        self._writer.commit(
            Manifest(
                *(FORMAT, __version__, READS, plan.settings, tuple(plan.sources)),
                *(tuple(self.records), tuple(sorted(plan.excluded)), plan.vectors),
            )
        )

    def embed(self) -> None:
        """Add the vectors that segments lack; each segment is committed when it has them."""
        for number, segment in enumerate(self.segments()):
            if not self._encoding.lacking(segment):
                continue
            out, _ = self._next_folders()
            # Vectors that are replaced may be damaged: what stays is verified when it is linked.
            self._encoding.complete(segment, out, self.segments())
            record = self.records[number]
            known = _shared([segment], [record])
            self.records[number] = replace(self._writer.place(out, known), removed=record.removed)
            self.commit()


def _shared(segments: Sequence[Segment], records: Sequence[SegmentRecord]) -> Known:
    """Return the files of segments, to which another one may have links."""
    return {
        (path := segment.folder / name).stat().st_ino: (path, fingerprint)
        for segment, record in zip(segments, records, strict=True)
        for name, fingerprint in record.files.items()
    }


def tables_of(segment: Segment, keys: Collection[Key]) -> list[int]:
    """Return the numbers of the live tables that came from some items."""
    rows = rows_of(segment.ledger, keys)
    if not rows:
        return []
    tables = np.flatnonzero(np.isin(segment.catalog.table_items, rows)).tolist()
    return [number for number in tables if number not in segment.removed]


def namesake(name: str) -> DeepJoinError:
    """Make the error that two tables would have one name."""
    return DeepJoinError(
        f"Another table of the lake is named '{name}' as well. Remove it with: deepjoin remove, "
        "or rename one of the two."
    )


def worth_merging(sizes: Sequence[int], removed: Sequence[float]) -> int:
    """Return the first of the last segments to merge into one; their number for none.

    ``removed`` is the share of each segment's tables that were removed.
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
    segments: Sequence[Segment], out: Path, scratch: Path, resources: BuildResources, whole: bool
) -> None:
    """Write one segment in place of several, without their removed tables; reads no table.

    ``whole`` if there are no segments before these.
    """
    parts = [MergeInput(one.folder, one.values, one.rows, kept_columns(one)) for one in segments]
    merge_values(parts, out, scratch, resources.memory, resources.threads)
    ledgers = [entries_of(segment.ledger) for segment in segments]
    latest: dict[Key, Entry] = {}
    for ledger in ledgers:
        latest |= {entry.key: entry for entry in ledger}
    # Entries of gone items hide those of earlier segments; without any, nobody needs them.
    entries = [entry for entry in latest.values() if not (whole and entry.gone)]
    place = {entry.key: number for number, entry in enumerate(entries)}
    with CatalogWriter(out) as catalog:
        first = 0
        for segment, part, ledger in zip(segments, parts, ledgers, strict=True):
            rows = np.array([place.get(entry.key, -1) for entry in ledger], np.int64)
            _append(catalog, segment, part.kept, rows, first)
            _link_frames(segment, out / FRAMES, first)
            first += len(segment.live_tables)
        arrays = (
            [
                getattr(one.catalog, name)[part.kept]
                for one, part in zip(segments, parts, strict=True)
            ]
            for name in _COLUMN_ARRAYS
        )
        catalog.finish(*map(np.concatenate, arrays))
    write_ledger(out, entries)
    sum_of([live_report(segment) for segment in segments]).saved(out)
    _merge_small(segments, out / SMALL, scratch / SMALL, resources)


def _merge_small(
    segments: Sequence[Segment], out: Path, scratch: Path, resources: BuildResources
) -> None:
    """Merge the columns that are stored for relations alone, if there are any."""
    small = [segment.small for segment in segments]
    parts = [
        MergeInput(one.folder, one.values, one.rows, kept_columns(one)) for one in small if one
    ]
    if not parts:
        return
    merge_values(parts, out, scratch, resources.memory, resources.threads)
    whole = Catalog(out.parent)
    with CatalogWriter(out) as catalog:
        names = [whole.table_names[number] for number in range(len(whole.table_names))]
        short = (
            replace(whole.table(number), context="", columns=(), sample=(), notes=())
            for number in range(len(names))
        )
        catalog.add_tables(list(short), whole.table_items)
        numbers = {name: number for number, name in enumerate(names)}
        arrays: list[list[Int]] = [[], [], []]
        for one in filter(None, small):
            kept, theirs = kept_columns(one), one.catalog
            tables = [theirs.table_names[int(at)] for at in theirs.column_tables[kept]]
            mask = pa.array(kept)
            ids, named = (
                load_strings(one.folder, name).filter(mask)
                for name in ("column_ids", "column_names")
            )
            catalog.add_columns(ids, named, np.array([numbers[name] for name in tables], np.int64))
            for name, of in zip(_COLUMN_ARRAYS, arrays, strict=True):
                of.append(getattr(theirs, name)[kept])
        catalog.finish(*map(np.concatenate, arrays))
    link_or_copy(out.parent / LEDGER, out / LEDGER)


def _append(catalog: CatalogWriter, segment: Segment, kept: Marks, rows: Int, first: int) -> None:
    """Append the live tables of a segment, which are numbered from ``first``, and their columns."""
    live = np.array(segment.live_tables, np.int64)
    table_names, table_entries = (
        load_strings(segment.folder, name).take(pa.array(live))
        for name in ("table_names", "table_entries")
    )
    catalog.append_tables(table_names, table_entries, rows[segment.catalog.table_items[live]])
    numbers = np.zeros(len(segment.catalog.table_names), np.int64)
    numbers[live] = np.arange(len(live)) + first
    mask = pa.array(kept)
    ids, names = (
        load_strings(segment.folder, name).filter(mask) for name in ("column_ids", "column_names")
    )
    catalog.add_columns(ids, names, numbers[segment.catalog.column_tables[kept]])


def _link_frames(segment: Segment, out: Path, first: int) -> None:
    """Take along the tables that only the index has, under their new numbers."""
    if not (segment.folder / FRAMES).is_dir():
        return
    for new, old in enumerate(segment.live_tables, first):
        frame = segment.folder / FRAMES / f"{old}.parquet"
        if frame.exists():
            out.mkdir(exist_ok=True)
            link_or_copy(frame, out / f"{new}.parquet")
