"""Compare the files of an index with the sizes and checksums that its manifest names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import xxhash

from deepjoin.errors import IndexUnusable
from deepjoin.progress import Progress, no_progress
from deepjoin.store.manifest import (
    MANIFEST,
    SEGMENTS,
    SegmentRecord,
    read_manifest,
    segment_record,
)

_THREADS = 8
_BLOCK = 1 << 22


@dataclass
class FilesRead:
    """How many files were found readable, and their size."""

    files: int = 0
    bytes: int = 0


def file_problems(folder: Path) -> list[str]:
    """Name the files of an index that are missing or not what was written."""
    return list(compare_files(folder, named_segments(folder), FilesRead()))


def compare_files(
    folder: Path,
    records: Sequence[SegmentRecord],
    read: FilesRead,
    progress: Progress = no_progress,
) -> Iterator[str]:
    """Read every file of these segments, count it in ``read`` and report those that differ."""
    named = [
        (f"{record.name}/{name}", *written)
        for record in records
        for name, written in record.files.items()
    ]
    # A caller that needs only the first problem closes the generator; reading must end then.
    stop = Event()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            prints = pool.map(lambda one: _fingerprint(folder / SEGMENTS / one[0], stop), named)
            for (name, size, digest), found in zip(named, prints, strict=True):
                progress(0, 1, name)
                if isinstance(found, str):
                    yield f"{name} {found}"
                    continue
                read.files += 1
                read.bytes += found[0]
                if found[0] != size:
                    yield f"{name} has {found[0]} bytes where {size} were written"
                elif found[1] != digest:
                    yield f"{name} is not what was written: its checksum differs"
        finally:
            stop.set()


def named_segments(folder: Path) -> Sequence[SegmentRecord]:
    """Read which files an index should have, also from a manifest whose files are damaged."""
    try:
        return read_manifest(folder).segments
    except IndexUnusable:
        try:
            fields = json.loads((folder / MANIFEST).read_text("utf-8"))
            records = [segment_record(one) for one in fields["segments"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            records = []
        # With all files in their full length, the damage is in the manifest itself.
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
    """Return size and checksum of a file, or why it cannot be read."""
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
