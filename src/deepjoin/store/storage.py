"""The index folder: immutable segments, one manifest, one writer at a time, checked files.

A commit writes segments under temporary names, renames them, and replaces the manifest last: a
reader sees the old index or the new one, never a mixture. Before each rename the files and their
folder are synced, so this also holds after a power cut. The next writer removes what no manifest
names.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import xxhash

from deepjoin.checksums import (
    NAME,
    DamagedFile,
    Sums,
    block_sums,
    open_again,
    sealed_file,
    write_checksums,
)
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import locked, replace_file, sync_folder
from deepjoin.progress import Progress, no_progress
from deepjoin.store.manifest import (
    MANIFEST,
    SEGMENTS,
    Files,
    Manifest,
    SegmentRecord,
    check_sizes,
    is_sealed,
    is_whole,
    manifest_bytes,
    read_manifest,
    sealed_json,
    segment_record,
)

#: Finished segments of an interrupted build; the next run resumes from them.
PENDING = "pending.json"
#: Files read or synced at a time; the disk can combine the writes of several.
_THREADS = 8
_BLOCK = 1 << 22
#: By their inodes, files of other segments, with size and checksum.
Known = Mapping[int, tuple[Path, tuple[int, str]]]
_SCRATCH = "writing-"


class IndexWriter:
    """The one process that may change an index folder, while it holds the lock."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch

    def place(self, built: Path, known: Known | None = None) -> SegmentRecord:
        """Move a finished segment, synced, among the others; no manifest names it yet.

        ``known`` are the files that it shares with other segments.
        """
        files = seal(built, known)
        segments = self.folder / SEGMENTS
        # Named after its content, so that the same content is stored once. A damaged segment of
        # that name may be part of the current manifest and must stay until that is replaced.
        digest = xxhash.xxh3_64_hexdigest(json.dumps(files).encode())
        for number in range(1000):
            name = digest if number == 0 else f"{digest}-{number}"
            there = segments / name
            if not there.exists() or (there.is_dir() and fingerprints(there) == files):
                break
        else:
            raise IndexUnusable(
                f"{segments} is full of damaged segments; remove it and index again."
            )
        if not there.exists():
            for folder in (*(path for path in built.rglob("*") if path.is_dir()), built):
                sync_folder(folder)
            built.rename(there)
        # Also for one that was there: the process that moved it may have been killed before this.
        sync_folder(segments)
        return SegmentRecord(name, files)

    def pending(self, key: str) -> list[SegmentRecord]:
        """Return the complete segments of an interrupted build with this key."""
        found, records = _pending(self.folder)
        return records if found == key else []

    def set_pending(self, key: str, salt: str, records: Sequence[SegmentRecord]) -> None:
        """Note segments that are complete but not yet part of the index."""
        build = {"key": key, "salt": salt, "of": _manifest_digest(self.folder)}
        fields = build | {"segments": [asdict(record) for record in records]}
        text = sealed_json(fields)
        replace_file(self.folder / PENDING, text, durable=True, private=bool(salt))

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the state of the index, and remove what it does not name."""
        # Private to the user: with the salt that it holds, values can be guessed.
        replace_file(
            self.folder / MANIFEST,
            manifest.to_json(),
            durable=True,
            private=bool(manifest.settings.salt),
        )
        (self.folder / PENDING).unlink(missing_ok=True)
        self.clean({record.name for record in manifest.segments})

    def clean(self, named: set[str]) -> None:
        """Remove every segment but these and this writer's scratch folder."""
        for old in (self.folder / SEGMENTS).iterdir():
            if old.name not in named and old != self.scratch:
                _discard(old)


def pending_salt(folder: Path) -> str:
    """Return the salt of an interrupted first build, which the next run must use again."""
    try:
        return str(_read_pending(folder)["salt"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _pending(folder: Path) -> tuple[str, list[SegmentRecord]]:
    """Read the key and the segments of an interrupted build that can resume; else '' and []."""
    try:
        fields = _read_pending(folder)
        if fields["of"] != _manifest_digest(folder):  # something was committed since
            return "", []
        records = [segment_record(one) for one in fields["segments"]]
        for record in records:
            check_sizes(folder, record)
        return str(fields["key"]), records
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DeepJoinError):
        return "", []


def _read_pending(folder: Path) -> dict[str, Any]:
    content = (folder / PENDING).read_bytes()
    fields: dict[str, Any] = json.loads(content)
    # An earlier version wrote none.
    if not is_sealed(content) and (b"\n" in content or "checksum" in fields):
        raise ValueError(f"{PENDING} is not what was written")
    return fields


def _manifest_digest(folder: Path) -> str:
    content = manifest_bytes(folder)
    return xxhash.xxh3_64_hexdigest(content) if content else ""


@contextmanager
def writing(folder: Path) -> Iterator[IndexWriter]:
    """Be the only writer of an index, and remove what a killed writer left."""
    segments = folder / SEGMENTS
    busy = f"{folder} is being written by another process. Wait for it to end, or stop it."
    with ExitStack() as stack:
        try:
            missing = [path for path in (segments, *segments.parents) if not path.exists()]
            segments.mkdir(parents=True, exist_ok=True)
            for path in missing:
                sync_folder(path.parent)
            stack.enter_context(locked(folder / "lock", IndexUnusable(busy)))
        except OSError as error:
            raise IndexUnusable(
                f"Cannot write an index in {folder}: {error.strerror}. Choose another place with "
                "-o."
            ) from None
        # With the lock held, nobody else can be writing what is removed here.
        for left in _left_over(folder):
            _discard(left)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=segments))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield IndexWriter(folder, scratch)


def clear_up(folder: Path) -> None:
    """Remove what a killed writer left, if the folder can be written and nobody else writes."""
    if _left_over(folder):
        with suppress(IndexUnusable, OSError), writing(folder):
            pass


def _left_over(folder: Path) -> list[Path]:
    """List what is neither part of the index nor of an interrupted build that can resume."""
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


def seal(folder: Path, known: Known | None = None) -> Files:
    """Write the checksums of a folder's blocks beside its files, and sync all of them to disk.

    Returns size and checksum of every file. Nothing may change in the folder afterwards.
    """
    names = _file_names(folder)
    (folder / NAME).unlink(missing_ok=True)

    def summed(name: str) -> tuple[tuple[int, str], Sums]:
        path = folder / name
        shared = known.get(path.stat().st_ino) if known else None
        # Links to files of other segments need not be read again.
        sealed = sealed_file(shared[0]) if shared else None
        if shared and sealed and (of := sealed.checksums.of(sealed.name, shared[1][0])):
            return shared[1], of[1]
        sums: list[int] = []
        written = fingerprint(path, sync=True, sums=sums)
        if shared and written != shared[1]:
            raise DamagedFile(shared[0].parents[name.count("/")], name)
        return written, np.array(sums, np.uint32)

    with ThreadPoolExecutor(_THREADS) as pool:
        found = dict(zip(names, pool.map(summed, names), strict=True))
    files = {name: written for name, (written, _) in found.items()}
    files[NAME] = fingerprint(write_checksums(folder, found), sync=True)
    open_again(folder)
    return dict(sorted(files.items()))


def fingerprints(folder: Path) -> Files:
    """Return size and checksum of every file of a folder."""
    names = sorted([*_file_names(folder), *([NAME] if (folder / NAME).exists() else [])])
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda name: fingerprint(folder / name), names)
        return dict(zip(names, found, strict=True))


def _file_names(folder: Path) -> list[str]:
    """Name the files of a folder, in order, apart from their checksums."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    return [name for name in names if name != NAME]


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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

    def found_now(name: str) -> tuple[int, str] | str:
        try:
            return fingerprint(folder / SEGMENTS / name, stop=stop)
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            prints = pool.map(found_now, (name for name, _, _ in named))
            done, total = 0, sum(size for _, size, _ in named)
            for (name, size, digest), found in zip(named, prints, strict=True):
                done += size
                progress(done, total, "bytes")
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
        if all(is_whole(folder, record) for record in records):
            raise
        return records


def fingerprint(
    path: Path, *, sync: bool = False, stop: Event | None = None, sums: list[int] | None = None
) -> tuple[int, str]:
    """Return size and checksum of a file, read until ``stop`` is set; ``sync`` it to disk.

    ``sums`` gets the checksums of its blocks.
    """
    digest, size = xxhash.xxh3_64(), 0
    with path.open("rb") as file:
        while not (stop and stop.is_set()) and (block := file.read(_BLOCK)):
            digest.update(block)
            if sums is not None:
                sums += block_sums(block)
            size += len(block)
        if sync:
            os.fsync(file.fileno())
    return size, digest.hexdigest()
