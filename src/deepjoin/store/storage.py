"""The index folder: immutable segments, one manifest, one writer at a time.

A commit writes segments aside, renames them, and replaces the manifest: a reader sees the
old lake or the new one, never a mixture. What no manifest names is removed by the next writer.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import locked, replace_file, sync_folder
from deepjoin.store.manifest import (
    MANIFEST,
    SEGMENTS,
    Files,
    Manifest,
    SegmentRecord,
    check_sizes,
    read_manifest,
    segment_record,
)

#: Segments of a build that has not come to its end; the next run goes on from them.
PENDING = "pending.json"
#: Syncing files together lets the disk put their writes into one.
_SYNCS = 8
#: Size and checksum of files by their inodes.
Known = Mapping[int, tuple[int, str]]
_SCRATCH = "writing-"


class IndexWriter:
    """The one process that may change an index folder, while it may."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch

    def place(self, built: Path, known: Known | None = None) -> SegmentRecord:
        """Put a finished segment, synced, among the others; no manifest names it yet.

        ``known`` are fingerprints, by inode, of files that it shares with other segments.
        """
        files = fingerprints(built, known)
        segments = self.folder / SEGMENTS
        name = _free_name(segments, files)
        if not (segments / name).exists():
            for folder in (*(path for path in built.rglob("*") if path.is_dir()), built):
                sync_folder(folder)
            built.rename(segments / name)
        # Also for one that was there: who put it there may have been killed before this.
        sync_folder(segments)
        return SegmentRecord(name, files)

    def pending(self, key: str) -> list[SegmentRecord]:
        """Fetch the whole segments that an interrupted build with this key left."""
        found, records = _pending(self.folder)
        return records if found == key else []

    def set_pending(self, key: str, salt: str, records: Sequence[SegmentRecord]) -> None:
        """Remember segments that are whole but not yet part of the lake."""
        said = {"key": key, "salt": salt, "of": _manifest_digest(self.folder)}
        fields = said | {"segments": [asdict(record) for record in records]}
        replace_file(self.folder / PENDING, json.dumps(fields), durable=True)

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the lake's state, and remove what it does not name."""
        replace_file(self.folder / MANIFEST, manifest.to_json(), durable=True)
        (self.folder / PENDING).unlink(missing_ok=True)
        self.clean({record.name for record in manifest.segments})

    def clean(self, named: set[str]) -> None:
        """Remove every segment but these and the writer's own scratch."""
        for old in (self.folder / SEGMENTS).iterdir():
            if old.name not in named and old != self.scratch:
                _discard(old)


def pending_salt(folder: Path) -> str:
    """Return the salt of an interrupted first build, without which it cannot go on."""
    try:
        return str(json.loads((folder / PENDING).read_text("utf-8"))["salt"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _pending(folder: Path) -> tuple[str, list[SegmentRecord]]:
    """Read the key and the segments of an interrupted build that can go on; none: '', []."""
    try:
        fields = json.loads((folder / PENDING).read_text("utf-8"))
        if fields["of"] != _manifest_digest(folder):  # something was committed since
            return "", []
        records = [segment_record(one) for one in fields["segments"]]
        for record in records:
            check_sizes(folder, record)
        return str(fields["key"]), records
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DeepJoinError):
        return "", []


def _manifest_digest(folder: Path) -> str:
    try:
        return xxhash.xxh3_64_hexdigest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return ""


@contextmanager
def writing(folder: Path) -> Iterator[IndexWriter]:
    """Be the only writer of an index.

    The lock is the operating system's, so it vanishes with the process that holds it, and
    so does, at the next write, whatever a killed writer left.
    """
    segments = folder / SEGMENTS
    busy = f"{folder} is being written by another process. Wait for it to end, or stop it."
    with ExitStack() as stack:
        try:
            _make(segments)
            stack.enter_context(locked(folder / "lock", IndexUnusable(busy)))
        except OSError as error:
            raise IndexUnusable(
                f"Cannot write an index in {folder}: {error.strerror}. Choose another place with "
                "-o."
            ) from None
        for left in _left_over(folder):
            _discard(left)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=segments))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield IndexWriter(folder, scratch)


def clear_up(folder: Path) -> None:
    """Remove what a killed writer left, where nothing else is to be written, if that can be."""
    if _left_over(folder):
        with suppress(IndexUnusable, OSError), writing(folder):
            pass


def _left_over(folder: Path) -> list[Path]:
    """List what is no part of the index, nor of an interrupted build that can go on."""
    _, records = _pending(folder)
    named = {record.name for record in records}
    aside = [f"{Path(name).stem}.new" for name in (MANIFEST, PENDING)]
    left = [folder / name for name in (aside if records else [*aside, PENDING])]
    segments = list((folder / SEGMENTS).iterdir())
    try:
        if (folder / MANIFEST).exists():
            named |= {record.name for record in read_manifest(folder).segments}
    except IndexUnusable:  # a damaged index is only replaced as a whole
        segments = [path for path in segments if path.name.startswith(_SCRATCH)]
    return [path for path in left if path.exists()] + [
        path for path in segments if path.name not in named
    ]


def _free_name(segments: Path, files: Files) -> str:
    """Name a segment after its content; one that is there already, and whole, is kept.

    A segment of the lake is never touched before the manifest has been replaced.
    """
    digest = xxhash.xxh3_64_hexdigest(json.dumps(files).encode())
    for number in range(1000):
        name = digest if number == 0 else f"{digest}-{number}"
        there = segments / name
        if not there.exists() or (there.is_dir() and fingerprints(there) == files):
            return name
    raise IndexUnusable(f"{segments} is full of damaged segments; remove it and index again.")


def fingerprints(segment: Path, known: Known | None = None) -> Files:
    """Return size and checksum of every file of a segment, synced to disk."""
    paths = sorted(path for path in segment.rglob("*") if path.is_file())
    shared = {path: known[ino] for path in paths if known and (ino := path.stat().st_ino) in known}
    own = [path for path in paths if path not in shared]
    with ThreadPoolExecutor(_SYNCS) as pool:
        shared |= zip(own, pool.map(_fingerprint, own), strict=True)
    found = [shared[path] for path in paths]
    names = [path.relative_to(segment).as_posix() for path in paths]
    return dict(zip(names, found, strict=True))


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _fingerprint(path: Path) -> tuple[int, str]:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
        os.fsync(file.fileno())
    return path.stat().st_size, digest.hexdigest()


def _make(folder: Path) -> None:
    """Make a folder that survives a power cut."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)
