"""The index folder: immutable segments, one manifest, one writer at a time.

A commit writes the segment aside, renames it, and replaces the manifest: a reader sees the
old lake or the new one, never a mixture.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from deepjoin.errors import IndexUnusable
from deepjoin.settings import Settings

FORMAT = 1
MANIFEST = "manifest.json"
SEGMENTS = "segments"
_PRODUCT = "deepjoin index"


@dataclass(frozen=True)
class Manifest:
    """What an index folder holds: the one file that makes it an index."""

    format: int
    version: str
    settings: Settings
    #: Where the tables are, relative to the index folder, so that both can move together.
    source: dict[str, Any]
    segment: str
    #: Size and checksum of each file of the segment.
    files: dict[str, tuple[int, str]]

    def to_json(self) -> str:
        """Give the manifest as text."""
        return json.dumps({"product": _PRODUCT} | asdict(self), indent=1, ensure_ascii=False)


def is_index(folder: Path) -> bool:
    """Tell whether a folder claims to be an index."""
    return (folder / MANIFEST).is_file() and (folder / SEGMENTS).is_dir()


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; anything but a whole index of ours is refused by name."""
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise IndexUnusable(
            f"{folder} is not a deepjoin index (no {MANIFEST}). "
            f"Make one with: deepjoin index SOURCE -o {folder}"
        ) from None
    except OSError as error:
        raise IndexUnusable(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise _damaged(folder, f"{MANIFEST} is not valid JSON") from None
    if not isinstance(fields, dict) or fields.pop("product", None) != _PRODUCT:
        raise IndexUnusable(f"{path} belongs to another program; it is not a deepjoin index.")
    if fields.get("format", 0) > FORMAT:
        raise IndexUnusable(
            f"{folder} was written by deepjoin {fields.get('version')} in format "
            f"{fields['format']}; this version reads up to format {FORMAT}. "
            f"Upgrade with: pip install 'deepjoin>={fields.get('version')}'"
        )
    try:
        fields["settings"] = _settings(fields["settings"])
        manifest = Manifest(**fields)
    except (TypeError, KeyError, AttributeError):
        raise _damaged(folder, f"{MANIFEST} lacks what format {FORMAT} has") from None
    _check_sizes(folder, manifest)
    return manifest


def _settings(fields: dict[str, Any]) -> Settings:
    plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    return Settings(**plain)


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    segment = folder / SEGMENTS / manifest.segment
    for name, (size, _) in manifest.files.items():
        try:
            found = (segment / name).stat().st_size
        except OSError:
            raise _damaged(folder, f"{segment.name}/{name} is missing") from None
        if found != size:
            raise _damaged(
                folder, f"{segment.name}/{name} has {found} bytes where {size} were written"
            )


def _damaged(folder: Path, what: str) -> IndexUnusable:
    return IndexUnusable(
        f"{folder} is damaged: {what}. Build it again with: deepjoin index SOURCE -o {folder}"
    )


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Be the only writer of an index; yields a scratch folder beside its segments.

    The lock is the operating system's, so it vanishes with the process that holds it, and
    so does, at the next write, whatever a killed writer left in its scratch folder.
    """
    segments = folder / SEGMENTS
    try:
        segments.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise IndexUnusable(
            f"Cannot write an index in {folder}: {error.strerror}. Choose another place with -o."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise IndexUnusable(
                f"{folder} is being written by another process. Wait for it to end, or stop it."
            ) from None
        for left in segments.glob("writing-*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix="writing-", dir=segments))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def commit(
    folder: Path, built: Path, version: str, settings: Settings, source: dict[str, Any]
) -> None:
    """Make a finished segment the lake's state; the segment it replaces is removed."""
    files = {path.name: _fingerprint(path) for path in sorted(built.iterdir()) if path.is_file()}
    name = xxhash.xxh3_64_hexdigest(json.dumps(files).encode())
    segments = folder / SEGMENTS
    if (segments / name).exists():
        shutil.rmtree(segments / name)
    _sync(built)
    built.rename(segments / name)
    manifest = Manifest(FORMAT, version, settings, source, name, files)
    _replace(folder / MANIFEST, manifest.to_json())
    for old in segments.iterdir():
        if old.name != name and not old.name.startswith("writing-"):
            shutil.rmtree(old, ignore_errors=True)


def _fingerprint(path: Path) -> tuple[int, str]:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
        os.fsync(file.fileno())
    return path.stat().st_size, digest.hexdigest()


def _replace(path: Path, text: str) -> None:
    aside = path.with_suffix(".new")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
