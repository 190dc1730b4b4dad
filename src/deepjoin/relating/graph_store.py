"""The graph of a lake on disk, in its index folder: its own files, manifest and lock.

The index does not know of it and is whole without it. A graph is written aside and renamed, then
its manifest is replaced: a reader sees the old one or the new one.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from deepjoin._version import __version__
from deepjoin.build.pipeline import disk_errors
from deepjoin.errors import IndexUnusable
from deepjoin.files import locked, replace_file
from deepjoin.relating.edge_list import EdgeList
from deepjoin.relating.join_all import Earlier
from deepjoin.store.manifest import GRAPH, MANIFEST, Files, SegmentRecord
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.storage import fingerprints

_PRODUCT = "deepjoin graph"
_FORMAT = 1
_SCRATCH = "writing-"
#: What a graph's folder is called, and one that is being written; nothing else is ever removed.
_OURS = re.compile(rf"[0-9a-f]{{16}}|{_SCRATCH}.+")

#: A segment as a graph knows it: its name, how many columns it has, which tables have left it.
Described = tuple[str, int, str]


@dataclass(frozen=True)
class GraphManifest:
    """What a saved graph is of."""

    min_joinability: float
    edges: int
    #: The lake it is the graph of.
    segments: tuple[Described, ...]
    #: The folder of its files, and the size and checksum of each.
    folder: str
    files: Files
    version: str = __version__
    format: int = _FORMAT

    def to_json(self) -> str:
        """Give the manifest as text."""
        return json.dumps({"product": _PRODUCT} | asdict(self), indent=1)


def described(lake: OpenIndex) -> tuple[Described, ...]:
    """Say which lake a graph is of."""
    pairs = zip(lake.records, lake.segments, strict=True)
    return tuple((one.name, segment.values.columns, _removed(one)) for one, segment in pairs)


def _removed(record: SegmentRecord) -> str:
    return xxh3_64_hexdigest(repr(record.removed).encode())


def read_graph(folder: Path) -> GraphManifest | None:
    """Read what graph an index has; None if it has none, or one that is of no use."""
    try:
        fields = json.loads((folder / GRAPH / MANIFEST).read_text("utf-8"))
        manifest = _parsed(fields)
        for name, (size, _) in manifest.files.items():
            if (folder / GRAPH / manifest.folder / name).stat().st_size != size:
                return None
        return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _parsed(fields: dict[str, Any]) -> GraphManifest:
    if fields.pop("product") != _PRODUCT or fields["format"] != _FORMAT:
        raise ValueError("no graph of ours")
    fields["files"] = {str(name): (int(size), str(of)) for name, (size, of) in
                       fields["files"].items()}  # fmt: skip
    fields["segments"] = tuple((str(n), int(c), str(r)) for n, c, r in fields["segments"])
    if not all(re.fullmatch(r"[\w.-]+", name) for name in (fields["folder"], *fields["files"])):
        raise ValueError("a file elsewhere")
    return GraphManifest(**fields)


def graph_problems(folder: Path) -> list[str]:
    """Name the files of a saved graph that are not what was written; nothing reads those."""
    if not (folder / GRAPH / MANIFEST).exists():
        return []
    manifest = read_graph(folder)
    if manifest is None:
        return [f"{GRAPH}/{MANIFEST} or a file it names"]
    found = fingerprints(folder / GRAPH / manifest.folder)
    return [f"{GRAPH}/{name}" for name, of in manifest.files.items() if found.get(name) != of]


def earlier_graph(folder: Path, manifest: GraphManifest) -> Earlier:
    """Map a saved graph."""
    segments = [(name, columns) for name, columns, _ in manifest.segments]
    return Earlier.open(folder / GRAPH / manifest.folder, segments)


def current_edges(lake: OpenIndex, share: float) -> EdgeList | None:
    """Map the saved graph of a lake if it is that of the lake as it is, and has all edges asked."""
    manifest = read_graph(lake.path)
    if manifest is None or manifest.min_joinability > share:
        return None
    if manifest.segments != described(lake):
        return None
    try:
        return EdgeList(lake.path / GRAPH / manifest.folder)
    except FileNotFoundError:  # another one has just taken its place
        return None


@contextmanager
def writing_graph(folder: Path) -> Iterator[Path]:
    """Be the only writer of an index's graph, and have a folder to write it in."""
    graph = folder / GRAPH
    busy = IndexUnusable(
        f"The graph of {folder} is being written by another process. Wait for it to end, "
        "or stop it."
    )
    with ExitStack() as stack:
        try:
            graph.mkdir(exist_ok=True)
            stack.enter_context(locked(graph / "lock", busy))
        except OSError as error:
            raise IndexUnusable(
                f"Cannot keep the graph in {graph}: {error.strerror}. Leave it out of the index "
                "with --no-save."
            ) from None
        stack.enter_context(disk_errors(folder))
        _clean(graph, read_graph(folder))
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=graph))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield scratch


def commit_graph(
    folder: Path, built: Path, share: float, edges: int, segments: Sequence[Described]
) -> GraphManifest:
    """Make what was written aside the graph of the lake."""
    files = fingerprints(built)
    name = xxh3_64_hexdigest(json.dumps(files).encode())
    place = folder / GRAPH / name
    if not place.exists() or fingerprints(place) != files:
        shutil.rmtree(place, ignore_errors=True)
        built.rename(place)
    manifest = GraphManifest(share, edges, tuple(segments), name, files)
    replace_file(folder / GRAPH / MANIFEST, manifest.to_json())
    _clean(folder / GRAPH, manifest)
    return manifest


def _clean(graph: Path, manifest: GraphManifest | None) -> None:
    """Remove what an interrupted run left, and what a new graph has replaced."""
    for path in graph.iterdir():
        if _OURS.fullmatch(path.name) and (manifest is None or path.name != manifest.folder):
            shutil.rmtree(path, ignore_errors=True)
