"""Check an index: its files are as written, agree with one another and with the tables.

Stages run in order and may assume that earlier ones passed, so damage is reported instead of
raising. The first stage that finds something is the last that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import load_strings
from deepjoin.checking.comparing import Comparison, spread
from deepjoin.checking.segments import array_problems, content_problems, first_found
from deepjoin.checking.vector_contents import VectorContents
from deepjoin.checking.vectors import vector_problems
from deepjoin.errors import IndexUnusable, resource_limit
from deepjoin.progress import Progress, no_progress
from deepjoin.read.source import Skipped
from deepjoin.relating.graph import graph_problems
from deepjoin.store.feedback import Feedback
from deepjoin.store.ledger import entries_of, known_items
from deepjoin.store.manifest import READS, SEGMENTS, SegmentRecord, manifest_bytes, read_manifest
from deepjoin.store.models import shown
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Segment
from deepjoin.store.storage import PENDING, FilesRead, compare_files, named_segments

#: How often to start again when other processes commit meanwhile.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Check:
    """What was checked and what was found; true if the index is sound."""

    segments: int = 0
    files: int = 0
    bytes: int = 0
    tables_compared: int = 0
    #: Tables that have changed since they were indexed: the next `deepjoin index` reads them.
    changed: list[str] = field(default_factory=list)
    #: Tables that cannot be opened any more, and why.
    unreachable: list[Skipped] = field(default_factory=list)
    #: What is wrong and what to do, one line each.
    problems: list[str] = field(default_factory=list)
    #: What is not part of the index; the next `deepjoin index` removes it.
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


class CheckRun:
    """An index folder while it is checked: what the stages have read and noted so far."""

    def __init__(self, folder: Path, tables: int | None, progress: Progress) -> None:
        self.folder, self.tables, self.progress = folder, tables, progress
        self.records: Sequence[SegmentRecord] = ()
        self.read = FilesRead()
        self.notes: list[str] = []
        #: Set by the last stage.
        self.comparison: Comparison | None = None


Stage = Callable[[CheckRun], Iterator[str]]


def check_files(run: CheckRun) -> Iterator[str]:
    """Compare the size and checksum of every file with the manifest."""
    run.records, run.read = named_segments(run.folder), FilesRead()
    return compare_files(run.folder, run.records, run.read, run.progress)


def check_segments(run: CheckRun) -> Iterator[str]:
    """Check that the files of each segment agree, and that its vectors are those of its values."""
    manifest = read_manifest(run.folder)
    folders = [run.folder / SEGMENTS / record.name for record in run.records]
    kinds = [source["kind"] for source in manifest.sources]
    encoded = VectorContents(manifest, run.folder, folders[0])
    sound = True
    for number, (record, folder) in enumerate(zip(run.records, folders, strict=True)):
        run.progress(number, len(folders), "segments")
        arrays, found = array_problems(folder, manifest.settings)
        if not found:
            sizes = len(arrays["value_hashes"]), len(arrays["column_tables"])
            found = list(content_problems(folder, arrays, record.removed, kinds))
            found += vector_problems(folder, record.files, *sizes)
        sound = sound and not found
        # Columns are encoded with the frequencies that the oldest segment stores.
        if sound:
            found = list(encoded.problems(Segment(folder, record.removed)))
        yield from (f"{record.name}/{text}" for text in found)
    run.notes = encoded.notes


def check_tables(run: CheckRun) -> Iterator[str]:
    """Check that tables have different names, and that none is of an item that is gone."""
    segments = OpenIndex(run.folder).segments
    names = pa.chunked_array(
        [
            load_strings(one.folder, "table_names").take(pa.array(one.live_tables, pa.int64()))
            for one in segments
        ]
    )
    for one in pc.value_counts(names).to_pylist():
        if one["counts"] > 1:
            yield f"{one['counts']} tables are named '{one['values']}'"
    known = known_items([segment.ledger for segment in segments])
    for segment in segments:
        keys = [entry.key for entry in entries_of(segment.ledger)]
        gone = np.array([key not in known for key in keys], bool)
        items = segment.catalog.table_items[segment.live_tables]
        for table in np.array(segment.live_tables, np.int64)[gone[items]].tolist():
            name = segment.catalog.table_names[table]
            yield f"{name} is in the index, though its file is noted to be gone"


def compare_tables(run: CheckRun) -> Iterator[str]:
    """Read some tables again, compare them with the index, and search for their columns."""
    index = OpenIndex(run.folder)
    if run.tables == 0:
        return
    if index.reads != READS:
        run.notes.append("An earlier version read tables differently, so none were compared.")
        return
    run.comparison = Comparison(index)
    run.comparison.run(spread(index.segments, run.tables), run.progress)
    yield from run.comparison.problems


#: What the folder holds, then the lake as a whole; only the former can be disturbed by a commit.
FILE_STAGES: tuple[Stage, ...] = (check_files, check_segments)
LAKE_STAGES: tuple[Stage, ...] = (check_tables, compare_tables)


def check_index(
    folder: Path,
    tables: int | None = 100,
    progress: Progress | None = None,
    place: str | Path | None = None,
) -> Check:
    """Look for damage in an index folder; nothing is written.

    Every file is read; ``tables`` of the lake, spread over it, are read again and compared
    (None: all). ``place`` is how the user names the folder.
    """
    run = CheckRun(folder, tables, progress or no_progress)
    for _ in range(_ATTEMPTS):
        before = manifest_bytes(folder)
        try:
            problems = first_found(FILE_STAGES, run)
        except OSError as error:
            if limit := resource_limit(error):  # says nothing about the index
                raise limit from None
            problems = [f"{error.filename} cannot be read: {error.strerror}"]
        # A commit in between removes the segments of the older manifest.
        if not problems or manifest_bytes(folder) == before:
            break
    run.notes = _notes(run)
    problems = problems or first_found(LAKE_STAGES, run)
    compared = run.comparison
    return Check(
        *(len(run.records), run.read.files, run.read.bytes),
        tables_compared=compared.compared if compared else 0,
        changed=compared.changed if compared else [],
        unreachable=compared.unreachable if compared else [],
        problems=[*_advised(problems, folder, place or folder), *_feedback_problems(folder)],
        notes=run.notes,
    )


def _advised(problems: Sequence[str], folder: Path, place: str | Path) -> Iterator[str]:
    """Add to each problem what to do; vectors can be made again without reading a table."""
    usual = f"Build it again: deepjoin index SOURCE -o {place} --rebuild"
    again = _encoding_again(folder, place) if any("/vectors/" in text for text in problems) else {}
    for text in problems:
        parts = text.split(" ")[0].split("/")
        command = again.get(parts[2]) if parts[1:2] == ["vectors"] and len(parts) > 2 else None
        hint = f"Encode again with: {command}" if command else usual
        yield f"{text}. {hint}"


def _feedback_problems(folder: Path) -> list[str]:
    """Say that what people said of joins cannot be read, and what to do."""
    try:
        len(Feedback(folder))
    except IndexUnusable as error:
        return [str(error)]
    return []


def _encoding_again(folder: Path, place: str | Path) -> dict[str, str]:
    """Return the commands that make each kind of vectors again, if the index can be opened."""
    try:
        vectors = OpenIndex(folder).vectors
    except IndexUnusable:
        return {}
    cells, encoder = shown(vectors.cells, folder), shown(vectors.encoder, folder)
    sketch = f"deepjoin index {place} --sketch 0, then --sketch {vectors.sketch}"
    columns = f"deepjoin index {place} --encoder none, then --encoder {encoder}"
    made = {"columns": columns, "sketch": sketch, "both": sketch}
    return made | {"cells": f"deepjoin index {place} --cells none, then --cells {cells}"}


def _notes(run: CheckRun) -> list[str]:
    """Name what is in the folder but not part of the index."""
    named = {record.name: record.files.keys() for record in run.records}
    notes = list(run.notes)
    # Interrupted writers leave such files; they take space and do no harm.
    for path in sorted((run.folder / SEGMENTS).glob("*")):
        if path.name not in named:
            notes.append(f"{path} is not used; the next deepjoin index removes it.")
            continue
        there = {one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()}
        notes += [
            f"{path / name} is not part of the index; nothing reads it."
            for name in sorted(there - named[path.name])
        ]
    notes += [
        f"The saved graph is damaged ({name} is not what was written); the next deepjoin "
        "graph makes it again."
        for name in graph_problems(run.folder)[:1]
    ]
    if (run.folder / PENDING).exists():
        notes.append("A build was interrupted; the next deepjoin index resumes it.")
    return notes
