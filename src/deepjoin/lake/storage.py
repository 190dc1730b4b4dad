"""The index folder: immutable segments, one manifest, one writer at a time.

A commit writes the segment aside, renames it, and replaces the manifest: a reader sees the
old lake or the new one, never a mixture.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.settings import Settings

FORMAT = 1
#: What an index can be made of.
KINDS = ("files", "corpus", "memory")
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
    #: Sums up the source as it was; '' when it cannot be summed up.
    state: str

    def to_json(self) -> str:
        """Give the manifest as text."""
        return json.dumps({"product": _PRODUCT} | asdict(self), indent=1, ensure_ascii=False)


def is_index(folder: Path) -> bool:
    """Tell whether a folder claims to be an index, whole or not.

    Other programs write manifests too, and tables may lie in a folder called segments.
    """
    if (folder / "lock").is_file() and (folder / SEGMENTS).is_dir():
        return True
    try:
        fields = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and fields.get("product") == _PRODUCT


def may_write(folder: Path) -> bool:
    """Tell whether an index may go into a folder: new, empty, or an index of ours."""
    try:
        ours = json.loads((folder / MANIFEST).read_text("utf-8")).get("product") == _PRODUCT
    except FileNotFoundError:
        ours = True
    except (ValueError, AttributeError):  # a manifest cut short may be ours
        ours = (folder / SEGMENTS).is_dir()
    known = {SEGMENTS, "lock", MANIFEST, "manifest.new"}
    return ours and not {path.name for path in folder.iterdir()} - known


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; anything but a whole index of ours is refused by name."""
    fields = _fields(folder)
    if isinstance(fields.get("format"), int) and fields["format"] > FORMAT:
        raise IndexUnusable(
            f"{folder} was written by deepjoin {fields.get('version')} in format "
            f"{fields['format']}; this version reads up to format {FORMAT}. "
            f"Upgrade with: pip install 'deepjoin>={fields.get('version')}'"
        )
    try:
        manifest = _parsed(fields)
    except (TypeError, KeyError, AttributeError, ValueError, DeepJoinError):
        raise damaged(folder, f"{MANIFEST} is not what was written") from None
    _check_sizes(folder, manifest)
    return manifest


def _fields(folder: Path) -> dict[str, Any]:
    """Read a manifest as it is, if it is one of ours."""
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
        raise damaged(folder, f"{MANIFEST} is not valid JSON") from None
    if not isinstance(fields, dict):
        raise damaged(folder, f"{MANIFEST} is not what was written")
    if fields.pop("product", None) != _PRODUCT:
        raise IndexUnusable(
            f"{path} belongs to another program. Make an index elsewhere: deepjoin index SOURCE -o "
            "INDEX"
        )
    return fields


def _parsed(fields: dict[str, Any]) -> Manifest:
    """Make a manifest of its fields, each checked to be what it must be."""
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields["settings"].items()
    }
    files = {
        str(name): (int(size), str(digest)) for name, (size, digest) in fields["files"].items()
    }
    checked: dict[str, Any] = fields | {"settings": Settings(**plain), "files": files}
    manifest = Manifest(**checked)
    if not files or not isinstance(manifest.format, int) or not isinstance(manifest.state, str):
        raise ValueError("no files")
    if not re.fullmatch(r"[\w-]+", manifest.segment):
        raise ValueError("no segment")
    source = manifest.source
    texts = [source["root"]] if source["kind"] == "corpus" else []
    if source["kind"] == "files":
        texts = [source["root"], *source["paths"]]
    if source["kind"] not in KINDS or not all(isinstance(text, str) for text in texts):
        raise ValueError("no source")
    return manifest


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    segment = folder / SEGMENTS / manifest.segment
    for name, (size, _) in manifest.files.items():
        try:
            found = (segment / name).stat().st_size
        except OSError:
            raise damaged(folder, f"{segment.name}/{name} is missing") from None
        if found != size:
            raise damaged(
                folder, f"{segment.name}/{name} has {found} bytes where {size} were written"
            )


def damaged(folder: Path, what: str) -> IndexUnusable:
    """Build the error for an index that was ours and is no longer whole."""
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
    folder: Path,
    built: Path,
    version: str,
    settings: Settings,
    source: dict[str, Any],
    state: str,
) -> None:
    """Make a finished segment the lake's state; the segment it replaces is removed."""
    files = fingerprints(built)
    segments = folder / SEGMENTS
    name = _place(segments, files)
    if not (segments / name).exists():
        _sync(built)
        built.rename(segments / name)
        _sync(segments)
    manifest = Manifest(FORMAT, version, settings, source, name, files, state)
    _replace(folder / MANIFEST, manifest.to_json())
    for old in segments.iterdir():
        if old.name != name and not old.name.startswith("writing-"):
            _discard(old)


def _place(segments: Path, files: dict[str, tuple[int, str]]) -> str:
    """Name a segment after its content; one that is there already, and whole, is kept.

    The live segment is never touched before the manifest has been replaced.
    """
    digest = xxhash.xxh3_64_hexdigest(json.dumps(files).encode())
    for number in range(1000):
        name = digest if number == 0 else f"{digest}-{number}"
        there = segments / name
        if not there.exists() or (there.is_dir() and fingerprints(there) == files):
            return name
    raise IndexUnusable(f"{segments} is full of damaged segments; remove it and index again.")


def fingerprints(segment: Path) -> dict[str, tuple[int, str]]:
    """Return size and checksum of every file of a segment, synced to disk."""
    paths = sorted(path for path in segment.rglob("*") if path.is_file())
    return {path.relative_to(segment).as_posix(): _fingerprint(path) for path in paths}


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
