"""Whether an index is as it was written, fits together, and answers what its tables say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from deepjoin.arrays import load_strings
from deepjoin.build.build import Progress, no_progress
from deepjoin.checking.comparing import Comparison, spread
from deepjoin.checking.contents import content_problems
from deepjoin.checking.soundness import array_problems
from deepjoin.checking.vector_contents import VectorContents
from deepjoin.checking.vector_soundness import vector_problems
from deepjoin.errors import IndexUnusable
from deepjoin.lake import Lake
from deepjoin.read.source import Skipped
from deepjoin.relating.graph_store import graph_problems
from deepjoin.store.ledger import entries_of, known_items
from deepjoin.store.manifest import (
    MANIFEST,
    READS,
    SEGMENTS,
    Manifest,
    SegmentRecord,
    read_manifest,
    segment_record,
)
from deepjoin.store.models import shown
from deepjoin.store.segment import Segment
from deepjoin.store.storage import PENDING

#: How often the files are gone through while other processes commit.
_ATTEMPTS = 5
_THREADS = 8
_BLOCK = 1 << 22


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
    found = Check(*(len(job.records), job.files, job.bytes), problems=problems, notes=job.notes())
    if found:
        found = _compared(found, Lake(folder), tables, job.progress)
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
        vectors = Lake(folder).vectors
    except IndexUnusable:
        return {}
    cells, encoder = shown(vectors.cells, folder), shown(vectors.encoder, folder)
    sketch = f"--sketch 0, then --sketch {vectors.sketch}"
    columns = f"--encoder none, then --encoder {encoder}"
    made = {"columns": columns, "sketch": sketch, "both": sketch}
    return made | {"cells": f"--cells none, then --cells {cells}"}


def _compared(found: Check, lake: Lake, tables: int | None, progress: Progress) -> Check:
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


def file_problems(folder: Path) -> list[str]:
    """Name the files of an index that are missing or not what was written."""
    return list(_Job(folder, no_progress).files_read())


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
        self.files = self.bytes = 0
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
        self.records = _records(self.folder)
        self.files = self.bytes = 0
        named = [
            (f"{record.name}/{name}", *wanted)
            for record in self.records
            for name, wanted in record.files.items()
        ]
        stop = Event()
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                read = pool.map(lambda one: _fingerprint(self._path(one[0]), stop), named)
                for (name, size, digest), found in zip(named, read, strict=True):
                    self.progress(0, 1, name)
                    if isinstance(found, str):
                        yield f"{name} {found}"
                        continue
                    self.files += 1
                    self.bytes += found[0]
                    if found[0] != size:
                        yield f"{name} has {found[0]} bytes where {size} were written"
                    elif found[1] != digest:
                        yield f"{name} is not what was written: its checksum is another"
            finally:
                stop.set()

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


def _records(folder: Path) -> Sequence[SegmentRecord]:
    """Read which files there should be; a manifest is good even where they are not."""
    try:
        return read_manifest(folder).segments
    except IndexUnusable:
        try:
            fields = json.loads((folder / MANIFEST).read_text("utf-8"))
            records = [segment_record(one) for one in fields["segments"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            records = []
        if all(_is_whole(folder / SEGMENTS / record.name, record) for record in records):
            raise
        return records


def _is_whole(segment: Path, record: SegmentRecord) -> bool:
    try:
        return all(
            (segment / name).stat().st_size == size for name, (size, _) in record.files.items()
        )
    except OSError:
        return False


def _fingerprint(path: Path, stop: Event) -> tuple[int, str] | str:
    """Return size and checksum of a file, or why they cannot be told."""
    digest, size = xxhash.xxh3_64(), 0
    try:
        with path.open("rb") as file:
            while not stop.is_set() and (block := file.read(_BLOCK)):
                digest.update(block)
                size += len(block)
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return size, digest.hexdigest()


def _namesakes(lake: Lake) -> Iterator[str]:
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


def _orphans(lake: Lake) -> Iterator[str]:
    """Find tables of items that the lake holds to be gone."""
    known = known_items([segment.ledger for segment in lake.segments])
    for segment in lake.segments:
        keys = [entry.key for entry in entries_of(segment.ledger)]
        gone = np.array([key not in known for key in keys], bool)
        items = segment.catalog.table_items[segment.live_tables]
        for table in np.array(segment.live_tables, np.int64)[gone[items]].tolist():
            name = segment.catalog.table_names[table]
            yield f"{name} is in the index, though its file is noted to be gone"
