"""A change of the lake under way: segments to come and tables to go, until it is committed."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deepjoin._version import __version__
from deepjoin.build.build import Means, SegmentBuilder, Titles
from deepjoin.build.build_corpus import build_corpus
from deepjoin.build.build_elsewhere import PartJob
from deepjoin.build.encoding import Encoding
from deepjoin.build.merging import LARGEST, merge_segments, worth_merging
from deepjoin.errors import DeepJoinError
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import NO_VECTORS, Settings, Vectors
from deepjoin.store.ledger import Entry, Key, entries_of, rows_of
from deepjoin.store.manifest import FORMAT, READS, SEGMENTS, Described, Manifest, SegmentRecord
from deepjoin.store.models import located
from deepjoin.store.open_index import opened
from deepjoin.store.segment import FRAMES, Segment
from deepjoin.store.storage import IndexWriter


@dataclass
class Plan:
    """What the lake is to be, apart from its segments."""

    settings: Settings
    sources: list[Described]
    #: Tables the user took out, which are not to come back by themselves.
    excluded: set[str] = field(default_factory=set)
    vectors: Vectors = NO_VECTORS


class Update:
    """Holds the records of the lake as they will be; nothing of it is seen before `commit`."""

    def __init__(
        self, writer: IndexWriter, plan: Plan, records: Iterable[SegmentRecord], means: Means
    ) -> None:
        self._writer = writer
        self.means = means
        self.plan = plan
        self.records = list(records)
        self._before = {record.name for record in self.records}
        self._encoding = Encoding(plan.vectors, plan.settings, writer.folder, means)
        self._rounds = 0
        self._opened: list[Segment] = []

    @contextmanager
    def building(self, keep: bool = False) -> Iterator[SegmentBuilder]:
        """Build another segment; when all went well, it takes the place of what it read again."""
        out, scratch = self._next_folders()
        with SegmentBuilder(out, scratch, self.plan.settings, self.means, keep) as build:
            yield build
            build.finish()
        self._join(out, build.read_keys)

    def build_corpus(self, corpus: CorpusSource, key: Key) -> None:
        """Build a segment of a whole corpus."""
        out, scratch = self._next_folders()
        build_corpus(corpus, key, self.plan.settings, out, scratch, self.means)
        self._join(out, [key])
        self.drop_tables(self.plan.excluded)

    def _next_folders(self) -> tuple[Path, Path]:
        self._rounds += 1
        here = self._writer.scratch
        return here / f"segment-{self._rounds}", here / f"spill-{self._rounds}"

    def part_job(self, titles: Titles) -> PartJob:
        """Say what those must know who build parts elsewhere."""
        plan = self.plan
        cells = located(plan.vectors.cells, self._writer.folder)
        vectors = replace(plan.vectors, cells=cells)
        return PartJob(plan.settings, vectors, self.means.memory, titles, plan.excluded)

    def new_folder(self) -> Path:
        """Make room for what is built elsewhere."""
        folder, _ = self._next_folders()
        folder.mkdir()
        return folder

    def join_parts(self, parts: Sequence[Path]) -> list[Entry]:
        """Make one segment of parts that have the vectors of their cells; returns its entries."""
        segments = [Segment(part) for part in parts]
        entries = [entry for segment in segments for entry in entries_of(segment.ledger)]
        out = parts[0]
        if len(parts) > 1:
            out, scratch = self._next_folders()
            merge_segments(segments, out, scratch, self.means, whole=False)
            self._encoding.merge(segments, out, renew=True)
            for part in parts:
                # A mapped file stays on some file systems, and goes with the scratch folder.
                shutil.rmtree(part, ignore_errors=True)
        self._place(out, [entry.key for entry in entries])
        return entries

    def _join(self, built: Path, read: Collection[Key]) -> None:
        self._encoding.dress(built)
        self._place(built, read)

    def _place(self, built: Path, read: Collection[Key]) -> None:
        self.drop(read)
        _refuse_namesakes(Segment(built), self.segments())
        self.records.append(self._writer.place(built))

    def drop(self, keys: Collection[Key]) -> None:
        """Take out the tables that the lake has of some items."""
        for number, segment in enumerate(self.segments()):
            self._remove(number, set(tables_of(segment, keys)))

    def drop_tables(self, names: Iterable[str]) -> set[str]:
        """Take out tables by name; returns the names that were there."""
        dropped: set[str] = set()
        wanted = set(names)
        for number, segment in enumerate(self.segments()):
            found = {name: segment.find_table(name) for name in wanted}
            here = {name: table for name, table in found.items() if table is not None}
            self._remove(number, set(here.values()))
            dropped |= here.keys()
        return dropped

    def _remove(self, number: int, tables: set[int]) -> None:
        if tables:
            self.records[number] = self.records[number].without(tables)

    def segments(self) -> list[Segment]:
        """Open the segments as they are to be."""
        folder = self._writer.folder / SEGMENTS
        self._opened = opened(folder, self.records, self._opened)
        return self._opened

    def tidy(self, whole: bool = False) -> None:
        """Merge segments that have become too many or too empty, or all of them."""
        first = 0
        if not whole:
            sizes = [record.bytes for record in self.records]
            shares = [
                len(segment.removed) / max(1, len(segment.catalog.table_names))
                for segment in self.segments()
            ]
            first = min(worth_merging(sizes, shares), self._first_of_several())
        if first == len(self.records):
            return
        segments = self.segments()[first:]
        out, scratch = self._next_folders()
        merge_segments(segments, out, scratch, self.means, whole=first == 0)
        self._encoding.merge(segments, out, renew=whole)
        known = _frames_of(segments, self.records[first:])
        self.records[first:] = [self._writer.place(out, known)]

    def _first_of_several(self) -> int:
        """Return from where on segments are pieces of this build; their number for one or none.

        They become one: where checkpoints came, which is a matter of time, must not be seen in
        what is found.
        """
        new = [n for n, record in enumerate(self.records) if record.name not in self._before]
        if len(new) < 2 or sum(self.records[n].bytes for n in new) > LARGEST:
            return len(self.records)
        return new[0]

    def checkpoint(self, key: str) -> None:
        """Put what is whole where a later run with the same key finds it."""
        self._writer.set_pending(key, self.plan.settings.salt, self.records)

    def resume(self, key: str) -> bool:
        """Take up what a run with the same key left."""
        left = self._writer.pending(key)
        if left:
            self.records = left
        return bool(left)

    def commit(self) -> None:
        """Make this the lake; vectors that it lacks come after, segment by segment."""
        self._commit()
        for number, segment in enumerate(self.segments()):
            if self._encoding.lacking(segment):
                self._complete(number, segment)
                self._commit()

    def _complete(self, number: int, segment: Segment) -> None:
        """Put a segment with all its vectors in the place of one without."""
        out, _ = self._next_folders()
        self._encoding.complete(segment, out, self.segments())
        record = self.records[number]
        known = {(segment.folder / name).stat().st_ino: of for name, of in record.files.items()}
        self.records[number] = replace(self._writer.place(out, known), removed=record.removed)

    def _commit(self) -> None:
        plan = self.plan
        self._writer.commit(
            Manifest(
                *(FORMAT, __version__, READS, plan.settings, tuple(plan.sources)),
                *(tuple(self.records), tuple(sorted(plan.excluded)), plan.vectors),
            )
        )


def _frames_of(
    segments: Sequence[Segment], records: Sequence[SegmentRecord]
) -> dict[int, tuple[int, str]]:
    """Find the fingerprints of tables kept in segments, which a merge takes over as they are."""
    return {
        (segment.folder / name).stat().st_ino: fingerprint
        for segment, record in zip(segments, records, strict=True)
        for name, fingerprint in record.files.items()
        if name.startswith(f"{FRAMES}/")
    }


def tables_of(segment: Segment, keys: Collection[Key]) -> list[int]:
    """Return the numbers of the live tables that came from some items."""
    rows = rows_of(segment.ledger, keys)
    if not rows:
        return []
    tables = np.flatnonzero(np.isin(segment.catalog.table_items, rows)).tolist()
    return [number for number in tables if number not in segment.removed]


def _refuse_namesakes(new: Segment, others: Sequence[Segment]) -> None:
    """Refuse a table whose name another table of the lake has."""
    for other in others:
        small, large = sorted((new, other), key=lambda segment: len(segment.catalog.table_names))
        for number in small.live_tables:
            name = small.catalog.table_names[number]
            if large.find_table(name) is not None:
                raise namesake(name)


def namesake(name: str) -> DeepJoinError:
    """Say that two tables would have one name."""
    return DeepJoinError(
        f"Another table of the lake is named '{name}' as well. Take it out with deepjoin remove, "
        "or rename one of the two."
    )
