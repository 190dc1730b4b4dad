"""All joinable pairs of columns of a lake above a threshold, kept beside its index.

A saved graph has its own files, manifest and lock in the index folder; the index does not know of
it and is complete without it. A graph is written aside and renamed, then its manifest is
replaced: a reader sees the old one or the new one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from deepjoin._version import __version__
from deepjoin.build.pipeline import disk_errors
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import TemporaryFolder, locked, replace_file
from deepjoin.lazy import cached_property
from deepjoin.model import ColumnPlace, JoinEdge
from deepjoin.progress import Progress, no_progress
from deepjoin.relating.chances import LinkChances
from deepjoin.relating.edges import EdgeList, check_share
from deepjoin.relating.output import SCHEMA, EdgeRows, GraphSize
from deepjoin.relating.self_join import EarlierGraph, JoinWork, join_all
from deepjoin.store.manifest import GRAPH, MANIFEST, Files, is_sealed, sealed_json
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.storage import fingerprints, seal

_PRODUCT = "deepjoin graph"
_FORMAT = 1
_SCRATCH = "writing-"
#: Names of graph folders, finished or being written; nothing else is ever removed.
_OURS = re.compile(rf"[0-9a-f]{{16}}|{_SCRATCH}.+")

#: State of a segment: its name, how many columns it has, a digest of its removed tables.
SegmentState = tuple[str, int, str]


@dataclass(frozen=True)
class JoinGraph:
    """The equi-joins of a lake: pairs of columns, the smaller one first.

    ``a`` of an edge is the column with fewer distinct values, or the first by name; its
    joinability, the share of its values found in ``b``, is at least ``min_joinability``.
    """

    min_joinability: float
    #: Whether the graph is kept in the index folder.
    saved: bool
    #: What it took to bring the graph up to date.
    work: JoinWork
    seconds: float
    _rows: EdgeRows = field(repr=False)
    #: Edges of a lower probability are not in it.
    least: float = 0.0

    @cached_property
    def counted(self) -> GraphSize:
        """How many edges there are, and how many columns and tables have one."""
        return self._rows.count()

    def __len__(self) -> int:
        return self.counted.edges

    def __iter__(self) -> Iterator[JoinEdge]:
        for batch in self.batches():
            for row in batch.to_pylist():
                a, b = (
                    ColumnPlace(*(row[f"{of}_{what}"] for what in ("table", "column", "id")))
                    for of in ("a", "b")
                )
                shares = row["joinability"], row["reverse"]
                yield JoinEdge(
                    *(a, b, *shares, row["matched"], row["cardinality"]),
                    probability=row["probability"],
                )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the edges as Arrow data, about a million at a time."""
        return self._rows.batches()

    def to_arrow(self) -> pa.Table:
        """Return all edges as an Arrow table."""
        return pa.Table.from_batches(list(self.batches()), SCHEMA)

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write all edges to a .csv, .parquet, .json or .graphml file; returns their number."""
        self._rows.write(path)
        return len(self)

    def to_dict(self) -> dict[str, Any]:
        """Summarise the graph, as the JSON of the command line."""
        return {
            "min_joinability": self.min_joinability,
            "least": self.least,
            **self.counted._asdict(),
            "saved": self.saved,
            "work": asdict(self.work),
            "seconds": round(self.seconds, 3),
        }


def make_graph(
    lake: OpenIndex,
    min_joinability: float = 0.7,
    *,
    least: float = 0.0,
    most: int | None = None,
    save: bool = True,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> JoinGraph:
    """Find all joinable pairs of columns; see `Lake.graph`."""
    check_share(min_joinability)
    if not 0 <= least <= 1:
        raise DeepJoinError(f"`least` is {least}; it must be a probability from 0 to 1.")
    if most is not None and most < 1:
        raise DeepJoinError(f"most is {most}; it must be at least 1, or left out.")
    job = _GraphBuild(lake, min_joinability, least, most, progress or no_progress)
    with lake.reporting_damage():
        if save and most is None:
            return job.saved(rebuild)
        return job.apart(rebuild)


class _GraphBuild:
    """Builds the graph of one lake, or brings a saved one up to date."""

    def __init__(
        self, lake: OpenIndex, share: float, least: float, most: int | None, progress: Progress
    ) -> None:
        self._least = least
        self._lake, self._share, self._most, self._progress = lake, share, most, progress
        self._numbering, self._described = lake.numbering, described(lake)
        self._began = time.perf_counter()

    def saved(self, rebuild: bool) -> JoinGraph:
        """Bring the graph in the index folder up to date."""
        folder = self._lake.path
        manifest = None if rebuild else self._usable()
        if manifest is not None and manifest.segments == self._described:
            return self._unchanged(manifest)
        with writing_graph(folder) as scratch:
            # Another process may have written one before the lock was ours.
            manifest = None if rebuild else self._usable()
            # A saved graph of a lower threshold keeps it: it has all edges of this one.
            share = self._share if manifest is None else manifest.min_joinability
            work = self._join(scratch / GRAPH, share, manifest)
            edges = len(EdgeList(scratch / GRAPH))
            manifest = commit_graph(folder, scratch / GRAPH, share, edges, self._described)
        return self._graph(folder / GRAPH / manifest.folder, work, saved=True)

    def apart(self, rebuild: bool) -> JoinGraph:
        """Find the graph without writing to the index folder."""
        manifest = None if rebuild or self._most is not None else self._usable()
        if manifest is not None and manifest.segments == self._described:
            return self._unchanged(manifest)
        with TemporaryFolder("deepjoin-graph-") as folder:
            with disk_errors(folder):
                work = self._join(folder, self._share, manifest)
            # Its files are mapped, and so live as long as the graph does.
            return self._graph(folder, work)

    def _usable(self) -> GraphManifest | None:
        """Read the saved graph, unless it is damaged or lacks edges of this share."""
        manifest = read_graph(self._lake.path)
        if manifest is None or manifest.min_joinability > self._share:
            return None
        return None if graph_problems(self._lake.path) else manifest

    def _unchanged(self, manifest: GraphManifest) -> JoinGraph:
        columns = int(self._numbering.joins.sum())
        folder = self._lake.path / GRAPH / manifest.folder
        return self._graph(folder, JoinWork(columns, 0, 0, 0, 0), saved=True)

    def _join(self, out: Path, share: float, manifest: GraphManifest | None) -> JoinWork:
        earlier: EarlierGraph | None = None
        if manifest is not None:
            segments = [(name, columns) for name, columns, _ in manifest.segments]
            earlier = EarlierGraph.open(self._lake.path / GRAPH / manifest.folder, segments)
        return join_all(self._numbering, share, out, earlier, self._most, self._progress)

    def _graph(self, folder: Path, work: JoinWork, saved: bool = False) -> JoinGraph:
        seconds = time.perf_counter() - self._began
        chances = LinkChances(self._numbering, self._lake.feedback)
        rows = EdgeRows(self._numbering, EdgeList(folder), chances, self._share, self._least)
        return JoinGraph(self._share, saved, work, seconds, rows, self._least)


@dataclass(frozen=True)
class GraphManifest:
    """Describes a saved graph: its threshold, its lake and its files."""

    min_joinability: float
    edges: int
    #: The lake it is the graph of.
    segments: tuple[SegmentState, ...]
    #: The folder of its files, and the size and checksum of each.
    folder: str
    files: Files
    version: str = __version__
    format: int = _FORMAT

    def to_json(self) -> str:
        """Return the manifest as text."""
        return sealed_json({"product": _PRODUCT} | asdict(self))


def described(lake: OpenIndex) -> tuple[SegmentState, ...]:
    """Describe the state of the lake that a graph is of."""
    pairs = zip(lake.records, lake.segments, strict=True)
    return tuple(
        (one.name, segment.values.columns, xxh3_64_hexdigest(repr(one.removed).encode()))
        for one, segment in pairs
    )


def read_graph(folder: Path) -> GraphManifest | None:
    """Read the manifest of an index's graph; None if there is none, or it cannot be used."""
    try:
        content = (folder / GRAPH / MANIFEST).read_bytes()
        fields = json.loads(content)
        # An earlier version wrote no checksum.
        if fields.pop("checksum", None) is not None and not is_sealed(content):
            return None
        if fields.pop("product") != _PRODUCT or fields["format"] != _FORMAT:
            return None
        files = {str(name): (int(size), str(of)) for name, (size, of) in fields["files"].items()}
        segments = tuple((str(n), int(c), str(r)) for n, c, r in fields["segments"])
        if not all(re.fullmatch(r"[\w.-]+", name) for name in (fields["folder"], *files)):
            return None  # a file elsewhere
        manifest = GraphManifest(**fields | {"files": files, "segments": segments})
        for name, (size, _) in manifest.files.items():
            if (folder / GRAPH / manifest.folder / name).stat().st_size != size:
                return None
        return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def graph_problems(folder: Path) -> list[str]:
    """List the damaged files of a saved graph; such a graph is never read."""
    if not (folder / GRAPH / MANIFEST).exists():
        return []
    manifest = read_graph(folder)
    if manifest is None:
        return [f"{GRAPH}/{MANIFEST} or a file it names"]
    found = fingerprints(folder / GRAPH / manifest.folder)
    return [f"{GRAPH}/{name}" for name, of in manifest.files.items() if found.get(name) != of]


def current_edges(lake: OpenIndex, share: float) -> EdgeList | None:
    """Map the saved graph of a lake if it is up to date and has all edges of this share."""
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
    """Lock the graph of an index for writing; yields a folder to write it in."""
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
                "with `save=False`."
            ) from None
        stack.enter_context(disk_errors(folder))
        _clean(graph, read_graph(folder))
        scratch = Path(mkdtemp(prefix=_SCRATCH, dir=graph))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield scratch


def commit_graph(
    folder: Path, built: Path, share: float, edges: int, segments: Sequence[SegmentState]
) -> GraphManifest:
    """Make a folder that was written aside the graph of the lake."""
    files = seal(built)
    name = xxh3_64_hexdigest(json.dumps(files).encode())
    place = folder / GRAPH / name
    # The name is a digest of the content: the same graph is already in place.
    if not place.exists() or fingerprints(place) != files:
        shutil.rmtree(place, ignore_errors=True)
        built.rename(place)
    manifest = GraphManifest(share, edges, tuple(segments), name, files)
    replace_file(folder / GRAPH / MANIFEST, manifest.to_json())
    _clean(folder / GRAPH, manifest)
    return manifest


def _clean(graph: Path, manifest: GraphManifest | None) -> None:
    """Remove what an interrupted run left, and graphs that were replaced."""
    for path in graph.iterdir():
        if _OURS.fullmatch(path.name) and (manifest is None or path.name != manifest.folder):
            shutil.rmtree(path, ignore_errors=True)
