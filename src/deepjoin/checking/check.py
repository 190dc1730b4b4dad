"""Whether an index is as it was written, fits together, and answers what its tables say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.checking.comparing import Comparison, spread
from deepjoin.checking.contents import content_problems
from deepjoin.checking.soundness import array_problems
from deepjoin.checking.vector_contents import VectorContents
from deepjoin.checking.vector_soundness import vector_problems
from deepjoin.errors import IndexUnusable
from deepjoin.progress import Progress, no_progress
from deepjoin.read.source import Skipped
from deepjoin.relating.graph import graph_problems
from deepjoin.store.ledger import entries_of, known_items
from deepjoin.store.manifest import (
    MANIFEST,
    READS,
    SEGMENTS,
    Manifest,
    SegmentRecord,
    read_manifest,
)
from deepjoin.store.models import shown
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment
from deepjoin.store.storage import PENDING, FilesRead, compare_files, named_segments

#: How often the files are gone through while other processes commit.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Check:
    """What was looked at and what was found; true if the index is sound."""

    segments: int = 0
    files: int = 0
    bytes: int = 0
    tables_compared: int = 0
    #: Tables that are other than when they were indexed: the next `deepjoin index` reads them.
    changed: list[str] = field(default_factory=list)
    #: Tables that cannot be opened any more, and why.
    unreachable: list[Skipped] = field(default_factory=list)
    #: What is wrong, each in one line that says what to do.
    problems: list[str] = field(default_factory=list)
    #: What is no part of the index; the next `deepjoin index` clears it up.
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


def check_index(
    folder: Path,
    tables: int | None = 100,
    progress: Progress | None = None,
    place: str | Path | None = None,
) -> Check:
    """Look for damage in an index folder; nothing is written.

    Every file is read; ``tables`` of the lake, spread over it, are read again and compared
    (None: all). ``place`` is what the user calls the folder.
    """
    job = _Job(folder, progress or no_progress)
    problems = job.problems()
    found = Check(
        *(len(job.records), job.read.files, job.read.bytes), problems=problems, notes=job.notes()
    )
    if found:
        found = _compared(found, OpenIndex(folder), tables, job.progress)
    return replace(found, problems=list(_advised(found.problems, folder, place or folder)))


def _advised(problems: Sequence[str], folder: Path, place: str | Path) -> Iterator[str]:
    """Say of each problem what to do: vectors are made again without reading a table."""
    usual = f"Build it again: deepjoin index SOURCE -o {place} --rebuild"
    again = _encoding_again(folder) if any("/vectors/" in text for text in problems) else {}
    for text in problems:
        parts = text.split(" ")[0].split("/")
        options = again.get(parts[2]) if parts[1:2] == ["vectors"] and len(parts) > 2 else None
        hint = f"Encode again with: deepjoin index {place} {options}" if options else usual
        yield f"{text}. {hint}"


def _encoding_again(folder: Path) -> dict[str, str]:
    """Give the options that make each kind of vectors anew, if the lake can be opened for it."""
    try:
        vectors = OpenIndex(folder).vectors
    except IndexUnusable:
        return {}
    cells, encoder = shown(vectors.cells, folder), shown(vectors.encoder, folder)
    sketch = f"--sketch 0, then --sketch {vectors.sketch}"
    columns = f"--encoder none, then --encoder {encoder}"
    made = {"columns": columns, "sketch": sketch, "both": sketch}
    return made | {"cells": f"--cells none, then --cells {cells}"}


def _compared(found: Check, lake: OpenIndex, tables: int | None, progress: Progress) -> Check:
    """Go on from files to the lake they are."""
    problems = [*_namesakes(lake), *_orphans(lake)]
    if problems or tables == 0:
        return replace(found, problems=problems)
    if lake.reads != READS:
        note = "An earlier version read tables otherwise, so none were compared."
        return replace(found, notes=[*found.notes, note])
    comparison = Comparison(lake)
    comparison.run(spread(lake.segments, tables), progress)
    return replace(
        found,
        tables_compared=comparison.compared,
        changed=comparison.changed,
        unreachable=comparison.unreachable,
        problems=comparison.problems,
    )


def _manifest_bytes(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        return b""


class _Job:
    """The files of one index folder."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self.records: Sequence[SegmentRecord] = ()
        self.read = FilesRead()
        self._notes: list[str] = []

    def problems(self) -> list[str]:
        """Go through the files, and through what they hold if they are what was written."""
        for _ in range(_ATTEMPTS):
            before = _manifest_bytes(self.folder)
            try:
                found = list(self.files_read()) or list(self._contents())
            except OSError as error:
                found = [f"{error.filename} cannot be read: {error.strerror}"]
            # A commit in between removes the segments of the older manifest.
            if not found or _manifest_bytes(self.folder) == before:
                break
        return found

    def files_read(self) -> Iterator[str]:
        """Read every file that the manifest names, and compare sizes and checksums."""
        self.records = named_segments(self.folder)
        self.read = FilesRead()
        return compare_files(self.folder, self.records, self.read, self.progress)

    def _path(self, name: str) -> Path:
        return self.folder / SEGMENTS / name

    def _contents(self) -> Iterator[str]:
        """See that what the files hold fits together."""
        manifest = read_manifest(self.folder)
        encoded = VectorContents(manifest, self.folder, self._path(manifest.segments[0].name))
        sound = True
        for record in self.records:
            self.progress(0, 1, record.name)
            found = self._in_segment(record, manifest)
            sound = sound and not found
            if sound:  # columns are encoded with what the oldest segment counts
                found = list(encoded.problems(Segment(self._path(record.name), record.removed)))
            yield from (f"{record.name}/{text}" for text in found)
        self._notes = encoded.notes

    def _in_segment(self, record: SegmentRecord, manifest: Manifest) -> list[str]:
        """Go from the arrays of a segment to what they say, and to its vectors."""
        folder = self._path(record.name)
        kinds = [source["kind"] for source in manifest.sources]
        arrays, found = array_problems(folder, manifest.settings)
        if not found:
            sizes = len(arrays["value_hashes"]), len(arrays["column_tables"])
            found = list(content_problems(folder, arrays, record.removed, kinds))
            found += vector_problems(folder, record.files, *sizes)
        return found

    def notes(self) -> list[str]:
        """Name what lies in the folder and is no part of the index."""
        named = {record.name: record.files.keys() for record in self.records}
        notes = list(self._notes)
        for path in sorted((self.folder / SEGMENTS).glob("*")):
            if path.name not in named:
                notes.append(f"{path} is of no use; the next deepjoin index removes it.")
                continue
            there = {one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()}
            notes += [
                f"{path / name} is no part of the index; nothing reads it."
                for name in sorted(there - named[path.name])
            ]
        notes += [
            f"The saved graph is damaged ({name} is not what was written); the next deepjoin "
            "graph makes it anew."
            for name in graph_problems(self.folder)[:1]
        ]
        if (self.folder / PENDING).exists():
            notes.append("A build was interrupted; the next deepjoin index goes on with it.")
        return notes


def _namesakes(lake: OpenIndex) -> Iterator[str]:
    """Find tables of one name."""
    names = pa.chunked_array(
        [
            load_strings(one.folder, "table_names").take(pa.array(one.live_tables, pa.int64()))
            for one in lake.segments
        ]
    )
    for one in pc.value_counts(names).to_pylist():
        if one["counts"] > 1:
            yield f"{one['counts']} tables are named '{one['values']}'"


def _orphans(lake: OpenIndex) -> Iterator[str]:
    """Find tables of items that the lake holds to be gone."""
    known = known_items([segment.ledger for segment in lake.segments])
    for segment in lake.segments:
        keys = [entry.key for entry in entries_of(segment.ledger)]
        gone = np.array([key not in known for key in keys], bool)
        items = segment.catalog.table_items[segment.live_tables]
        for table in np.array(segment.live_tables, np.int64)[gone[items]].tolist():
            name = segment.catalog.table_names[table]
            yield f"{name} is in the index, though its file is noted to be gone"
