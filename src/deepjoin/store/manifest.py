"""The manifest: the file that lists what an index folder holds, and makes it an index."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.read.walk import INDEX_MARKS, INDEX_PRODUCT, is_index_manifest
from deepjoin.settings import NO_VECTORS, Settings, Vectors

#: Since 2, the manifest and every segment have checksums; since 3, some arrays are narrower,
#: spellings are places of letters, and lists gaps; since 4, vectors have six bits and some numbers
#: are packed. Earlier formats are read as well.
FORMAT = 4
MANIFEST, SEGMENTS, _ = INDEX_MARKS
#: Folder of the index inside the folder of its tables, where no other place is chosen.
DEFAULT = ".deepjoin"
#: The folder of a saved join graph; not part of the index.
GRAPH = "graph"
#: What people said of joins, and the lock of whoever changes it; not part of the index either.
FEEDBACK, FEEDBACK_LOCK = "feedback.json", "feedback.lock"
#: Inclusions found for relations, so that the next run compares what has changed.
RELATIONS, RELATION_PAIRS = "relations.json", "relations.npy"
#: Raised when a later version would store something else for the same tables.
READS = 2
PRODUCT = INDEX_PRODUCT
#: The end of JSON with a checksum.
_TAIL, _NO_DIGEST = ',\n "checksum": "%s"\n}', "0" * 16

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

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
        """Return the manifest as text, with its own checksum."""
        return sealed_json({"product": PRODUCT} | asdict(self))


def sealed_json(fields: dict[str, Any]) -> str:
    """Write fields as JSON that ends in a checksum of all that comes before it."""
    text = json.dumps(fields, indent=1, ensure_ascii=False).removesuffix("\n}")
    return text + _TAIL % xxh3_64_hexdigest(text.encode())


def is_sealed(content: bytes) -> bool:
    """Check whether JSON is as `sealed_json` wrote it."""
    text = content[: -len(_TAIL % _NO_DIGEST)]
    return content[len(text) :] == (_TAIL % xxh3_64_hexdigest(text)).encode()


def manifest_bytes(folder: Path) -> bytes:
    """Return the manifest of a folder as it is; nothing if it cannot be read."""
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        return b""


#: What an index folder may hold besides the index.
_BESIDE = (
    *(GRAPH, FEEDBACK, "feedback.new", FEEDBACK_LOCK),
    *(RELATIONS, RELATION_PAIRS, "relations.new"),
)
#: What it holds, apart from that.
_OWN = (SEGMENTS, "lock", MANIFEST, "manifest.new", "pending.json", "pending.new")


def is_remote(path: object) -> bool:
    """Check whether an index is given by URL.

    >>> is_remote("s3://bucket/index"), is_remote("data/index")
    (True, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


def is_index(folder: Path) -> bool:
    """Check whether a folder claims to be an index, whole or not.

    Other programs write manifests too, and tables may lie in a folder called segments.
    """
    if (folder / "lock").is_file() and (folder / SEGMENTS).is_dir():
        return True
    content = manifest_bytes(folder)
    if not (folder / MANIFEST).is_file() or is_index_manifest(content):
        return is_index_manifest(content)
    # A manifest cut short, alone in its folder, is not a table but what is left of an index.
    try:
        json.loads(content)
    except ValueError:
        return not {path.name for path in folder.iterdir()} - {*_OWN, *_BESIDE}
    return False


def may_write(folder: Path) -> bool:
    """Check whether an index may be written into a folder: new, empty, or an index already."""
    try:
        ours = json.loads((folder / MANIFEST).read_text("utf-8")).get("product") == PRODUCT
    except FileNotFoundError:
        ours = True
    except (ValueError, AttributeError):  # a manifest cut short may be ours
        ours = (folder / SEGMENTS).is_dir() or is_index(folder)
    # A commit removes every segment it does not name, so nothing else may lie there.
    known = set(_OWN)
    there = {path.name for path in folder.iterdir()}
    if MANIFEST in there:
        known |= {*_BESIDE}
    return ours and not there - known


def read_manifest(folder: Path) -> Manifest:
    """Read a manifest, and refuse an index whose files are not complete."""
    manifest = parse_manifest(folder)
    for record in manifest.segments:
        check_sizes(folder, record)
    return manifest


class NewerFormat(IndexUnusable):
    """An index that a later version wrote."""


class OtherProgram(IndexUnusable):
    """A manifest that is not of an index; it is never replaced."""


def parse_manifest(folder: Path) -> Manifest:
    """Read a manifest, whether or not the files it names are whole."""
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise no_index(folder) from None
    except OSError as error:
        raise IndexUnusable(f"{folder / MANIFEST} cannot be read: {error.strerror}.") from None
    return manifest_of(content, folder)


def manifest_of(content: bytes, where: str | Path) -> Manifest:
    """Parse a manifest and check every field; errors name the index as ``where``."""
    try:
        fields = json.loads(content)
    except ValueError:
        raise damaged(where, f"{MANIFEST} is not valid JSON") from None
    # Before anything is believed. Format 1 had no checksum.
    sealed = is_sealed(content)
    if not isinstance(fields, dict) or ("checksum" in fields and not sealed):
        raise damaged(where, f"{MANIFEST} is not what was written")
    if fields.pop("product", None) != PRODUCT:
        raise OtherProgram(
            f"{where}/{MANIFEST} belongs to another program. Make an index elsewhere: deepjoin "
            "index SOURCE -o INDEX"
        )
    # Before anything else is parsed: a later format may have other fields.
    if isinstance(fields.get("format"), int) and fields["format"] > FORMAT:
        raise NewerFormat(
            f"{where} was written by deepjoin {fields.get('version')} in format "
            f"{fields['format']}; this version reads up to format {FORMAT}. "
            f"Upgrade with: pip install 'deepjoin>={fields.get('version')}'"
        )
    try:
        if fields.pop("checksum", None) is None and fields["format"] != 1:
            raise ValueError("no checksum")
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields["settings"].items()
        }
        checked: dict[str, Any] = fields | {
            "settings": Settings(**settings),
            "sources": tuple(map(_source, fields["sources"])),
            "segments": tuple(map(segment_record, fields["segments"])),
            "excluded": tuple(map(str, fields["excluded"])),
            "vectors": Vectors(**fields["vectors"]) if "vectors" in fields else NO_VECTORS,
        }
        manifest = Manifest(**checked)
        whole = isinstance(manifest.format, int) and isinstance(manifest.reads, int)
        if not (whole and manifest.segments and manifest.sources):
            raise ValueError("a field is missing or empty")
    except (TypeError, KeyError, AttributeError, ValueError, DeepJoinError):
        raise damaged(where, f"{MANIFEST} is not what was written") from None
    return manifest


def segment_record(fields: dict[str, Any]) -> SegmentRecord:
    """Make a record of its fields; names that lead out of the folder are refused."""
    files = {
        str(name): (int(size), str(digest)) for name, (size, digest) in fields["files"].items()
    }
    if not files or not re.fullmatch(r"[\w-]+", fields["name"]):
        raise ValueError("no segment")
    # Backslashes separate folders on Windows, where another user may open the index.
    parts = [part for name in files for part in name.split("/")]
    if any(part in ("", ".", "..") or {*"\\\0"} & {*part} for part in parts):
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
    """Check whether a folder has every file of a segment in its full length."""
    try:
        check_sizes(folder, record)
    except IndexUnusable:
        return False
    return True


def damaged(where: str | Path, what: str) -> IndexUnusable:
    """Build the error for an index that is no longer whole."""
    return IndexUnusable(
        f"{where} is damaged: {what}. "
        f"Build it again with: deepjoin index SOURCE -o {where} --rebuild"
    )


def no_index(where: object) -> IndexUnusable:
    """Build the error for a place without an index."""
    return IndexUnusable(
        f"{where} is not a deepjoin index (no {MANIFEST}). "
        f"Make one with: deepjoin index SOURCE -o {where}"
    )
