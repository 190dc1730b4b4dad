"""All joinable pairs of columns of a lake above a threshold, kept beside its index."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa

from deepjoin.build.pipeline import disk_errors
from deepjoin.errors import DeepJoinError
from deepjoin.model import ColumnPlace, JoinEdge
from deepjoin.progress import Progress, no_progress
from deepjoin.relating.edge_list import EdgeList
from deepjoin.relating.edges import check_share
from deepjoin.relating.graph_store import (
    GraphManifest,
    commit_graph,
    described,
    earlier_graph,
    graph_problems,
    read_graph,
    writing_graph,
)
from deepjoin.relating.join_all import Earlier, Work, join_all
from deepjoin.relating.output import SCHEMA, Counted, EdgeRows
from deepjoin.store.manifest import GRAPH
from deepjoin.store.open_index import OpenIndex


@dataclass(frozen=True)
class Graph:
    """The equi-joins of a lake: pairs of columns, the smaller one first.

    ``a`` of an edge is the column with fewer distinct values, or the first by name; its
    joinability, the share of its values found in ``b``, is at least ``min_joinability``.
    """

    min_joinability: float
    #: Whether the graph is kept in the index folder.
    saved: bool
    #: What it took to bring it up to the lake of now.
    work: Work
    seconds: float
    _rows: EdgeRows = field(repr=False)

    @cached_property
    def counted(self) -> Counted:
        """How many edges there are, and how many columns and tables have one."""
        return self._rows.count()

    def __len__(self) -> int:
        return self.counted.edges

    def __iter__(self) -> Iterator[JoinEdge]:
        for batch in self.batches():
            for row in batch.to_pylist():
                a, b = (ColumnPlace(row[f"{of}_table"], row[f"{of}_column"]) for of in ("a", "b"))
                shares = row["joinability"], row["reverse"]
                yield JoinEdge(a, b, *shares, row["matched"], row["cardinality"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the edges as Arrow data, about a million at a time."""
        return self._rows.batches()

    def to_arrow(self) -> pa.Table:
        """Give all edges as an Arrow table."""
        return pa.Table.from_batches(list(self.batches()), SCHEMA)

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write all edges to a .csv, .parquet, .json or .graphml file; returns their number."""
        self._rows.write(path)
        return len(self)

    def to_dict(self) -> dict[str, Any]:
        """Sum the graph up, as the JSON of the command line."""
        return {
            "min_joinability": self.min_joinability,
            **self.counted._asdict(),
            "saved": self.saved,
            "work": asdict(self.work),
            "seconds": round(self.seconds, 3),
        }


def make_graph(
    lake: OpenIndex,
    min_joinability: float = 0.7,
    *,
    most: int | None = None,
    save: bool = True,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> Graph:
    """Find all joinable pairs of columns; see `Lake.graph`."""
    check_share(min_joinability)
    if most is not None and most < 1:
        raise DeepJoinError(f"most is {most}; keep at least 1 edge a column, or leave it out.")
    job = _Job(lake, min_joinability, most, progress or no_progress)
    with lake.reporting_damage():
        if save and most is None:
            return job.saved(rebuild)
        return job.apart(rebuild)


class _Job:
    """The graph of one lake, to be found or brought up to date."""

    def __init__(self, lake: OpenIndex, share: float, most: int | None, progress: Progress) -> None:
        self._lake, self._share, self._most, self._progress = lake, share, most, progress
        self._numbering, self._described = lake.numbering, described(lake)
        self._began = time.perf_counter()

    def saved(self, rebuild: bool) -> Graph:
        """Bring the graph in the index folder up to date."""
        folder = self._lake.path
        manifest = None if rebuild else self._usable()
        if manifest is not None and manifest.segments == self._described:
            return self._unchanged(manifest)
        with writing_graph(folder) as scratch:
            # Another process may have written one before the lock was ours.
            manifest = None if rebuild else self._usable()
            # A saved graph of lower threshold stays one: it has all that is asked for.
            share = self._share if manifest is None else manifest.min_joinability
            work = self._join(scratch / GRAPH, share, manifest)
            edges = len(EdgeList(scratch / GRAPH))
            manifest = commit_graph(folder, scratch / GRAPH, share, edges, self._described)
        return self._graph(folder / GRAPH / manifest.folder, work, saved=True)

    def apart(self, rebuild: bool) -> Graph:
        """Find the graph and leave nothing in the index folder."""
        manifest = None if rebuild or self._most is not None else self._usable()
        if manifest is not None and manifest.segments == self._described:
            return self._unchanged(manifest)
        folder = Path(mkdtemp(prefix="deepjoin-graph-"))
        try:
            with disk_errors(folder):
                work = self._join(folder, self._share, manifest)
            # Its files are mapped, and so live as long as the graph does.
            return self._graph(folder, work)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _usable(self) -> GraphManifest | None:
        """Read the saved graph, unless it is damaged or lacks edges that are asked for."""
        manifest = read_graph(self._lake.path)
        if manifest is None or manifest.min_joinability > self._share:
            return None
        return None if graph_problems(self._lake.path) else manifest

    def _unchanged(self, manifest: GraphManifest) -> Graph:
        columns = int(self._numbering.joins.sum())
        folder = self._lake.path / GRAPH / manifest.folder
        return self._graph(folder, Work(columns, 0, 0, 0, 0), saved=True)

    def _join(self, out: Path, share: float, manifest: GraphManifest | None) -> Work:
        earlier: Earlier | None = None
        if manifest is not None:
            earlier = earlier_graph(self._lake.path, manifest)
        return join_all(self._numbering, share, out, earlier, self._most, self._progress)

    def _graph(self, folder: Path, work: Work, saved: bool = False) -> Graph:
        seconds = time.perf_counter() - self._began
        rows = EdgeRows(self._numbering, EdgeList(folder), self._share)
        return Graph(self._share, saved, work, seconds, rows)
