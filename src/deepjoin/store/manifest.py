"""The manifest: the file that lists what an index folder holds, and makes it an index."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.read.walk import INDEX_MARKS, INDEX_PRODUCT, is_index_manifest
from deepjoin.settings import NO_VECTORS, Settings, Vectors

FORMAT = 1
MANIFEST, SEGMENTS, _ = INDEX_MARKS
#: Folder of the index inside the folder of its tables, where no other place is chosen.
DEFAULT = ".deepjoin"
#: The folder of a saved join graph; not part of the index.
GRAPH = "graph"
#: Raised when a later version would store something else for the same tables.
READS = 1
PRODUCT = INDEX_PRODUCT

#: Size and checksum of each file of a segment.
Files = dict[str, tuple[int, str]]
#: Where tables are, without secrets: a kind, and what the source of that kind needs to be reopened.
Described = dict[str, Any]


@dataclass(frozen=True)
class SegmentRecord:
    """A segment as the manifest knows it."""

    name: str
    files: Files
    #: The numbers of those of its tables that have left the lake.
    removed: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """What the segment takes on disk."""
        return sum(size for size, _ in self.files.values())

    def without(self, tables: set[int]) -> SegmentRecord:
        """Return the record once more tables have left."""
        return replace(self, removed=tuple(sorted({*self.removed, *tables})))


@dataclass(frozen=True)
class Manifest:
    """What an index folder holds."""

    format: int
    version: str
    reads: int
    settings: Settings
    #: The first is what the index was made of; the others were added. Paths are relative to
    #: the index folder, so that both can move together.
    sources: tuple[Described, ...]
    #: From the oldest to the newest.
    segments: tuple[SegmentRecord, ...]
    #: Tables the user took out; a refresh does not bring them back.
    excluded: tuple[str, ...] = ()
    vectors: Vectors = NO_VECTORS

    def to_json(self) -> str:
        """Give the manifest as text."""
        return json.dumps({"product": PRODUCT} | asdict(self), indent=1, ensure_ascii=False)


def is_index(folder: Path) -> bool:
    """Tell whether a folder claims to be an index, whole or not.

    Other programs write manifests too, and tables may lie in a folder called segments.
    """
    if (folder / "lock").is_file() and (folder / SEGMENTS).is_dir():
        return True
    try:
        return is_index_manifest((folder / MANIFEST).read_bytes())
    except OSError:
        return False


def may_write(folder: Path) -> bool:
    """Tell whether an index may go into a folder: new, empty, or an index of ours."""
    try:
        ours = json.loads((folder / MANIFEST).read_text("utf-8")).get("product") == PRODUCT
    except FileNotFoundError:
        ours = True
    except (ValueError, AttributeError):  # a manifest cut short may be ours
        ours = (folder / SEGMENTS).is_dir()
    known = {SEGMENTS, "lock", MANIFEST, "manifest.new", "pending.json", "pending.new"}
    there = {path.name for path in folder.iterdir()}
    if MANIFEST in there:
        known |= {GRAPH}
    return ours and not there - known


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; anything but a whole index of ours is refused by name."""
    manifest = parse_manifest(folder)
    for record in manifest.segments:
        check_sizes(folder, record)
    return manifest


class NewerFormat(IndexUnusable):
    """An index that a later version wrote."""


def parse_manifest(folder: Path) -> Manifest:
    """Read a manifest, whether or not the files it names are whole."""
    fields = _fields(folder)
    if isinstance(fields.get("format"), int) and fields["format"] > FORMAT:
        raise NewerFormat(
            f"{folder} was written by deepjoin {fields.get('version')} in format "
            f"{fields['format']}; this version reads up to format {FORMAT}. "
            f"Upgrade with: pip install 'deepjoin>={fields.get('version')}'"
        )
    try:
        return _parsed(fields)
    except (TypeError, KeyError, AttributeError, ValueError, DeepJoinError):
        raise damaged(folder, f"{MANIFEST} is not what was written") from None


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
    if fields.pop("product", None) != PRODUCT:
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
    checked: dict[str, Any] = fields | {
        "settings": Settings(**plain),
        "sources": tuple(map(_source, fields["sources"])),
        "segments": tuple(map(segment_record, fields["segments"])),
        "excluded": tuple(map(str, fields["excluded"])),
        "vectors": Vectors(**fields["vectors"]) if "vectors" in fields else NO_VECTORS,
    }
    manifest = Manifest(**checked)
    if not isinstance(manifest.format, int) or not isinstance(manifest.reads, int):
        raise ValueError("no format")
    if not manifest.segments or not manifest.sources:
        raise ValueError("no segments")
    return manifest


def segment_record(fields: dict[str, Any]) -> SegmentRecord:
    """Make a record of its fields; names that lead out of the folder are refused."""
    files = {
        str(name): (int(size), str(digest)) for name, (size, digest) in fields["files"].items()
    }
    if not files or not re.fullmatch(r"[\w-]+", fields["name"]):
        raise ValueError("no segment")
    if any(part in ("", ".", "..") for name in files for part in name.split("/")):
        raise ValueError("a file elsewhere")
    return SegmentRecord(fields["name"], files, tuple(map(int, fields["removed"])))


def _source(fields: Described) -> Described:
    texts = [fields["kind"], *(fields[of] for of in ("root", "url") if of in fields)]
    if fields["kind"] == "files":
        texts += [fields["root"], *fields["paths"]]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no source")
    return fields


def check_sizes(folder: Path, record: SegmentRecord) -> None:
    """Check that every file of a segment exists in its full length."""
    segment = folder / SEGMENTS / record.name
    for name, (size, _) in record.files.items():
        try:
            found = (segment / name).stat().st_size
        except OSError:
            raise damaged(folder, f"{segment.name}/{name} is missing") from None
        if found != size:
            raise damaged(
                folder, f"{segment.name}/{name} has {found} bytes where {size} were written"
            )


def is_whole(folder: Path, record: SegmentRecord) -> bool:
    """Tell whether a folder has every file of a segment in its full length."""
    try:
        check_sizes(folder, record)
    except IndexUnusable:
        return False
    return True


def damaged(folder: Path, what: str) -> IndexUnusable:
    """Build the error for an index that was ours and is no longer whole."""
    return IndexUnusable(
        f"{folder} is damaged: {what}. Build it again with: deepjoin index SOURCE -o {folder} "
        "--rebuild"
    )
