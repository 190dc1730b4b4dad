"""Workers of a Ray cluster against the plain build: the same tables, hits and times.

    python benchmarks/ray_index.py CORPUS [--columns 50000] [--workers 2 4 8] [--place FOLDER]

Writes columns of a corpus as Parquet tables, four a file, indexes them by both engines, each with
an empty encoding cache, and compares every file of the two indexes and the hits of some queries.
Nodes of one processor each are started on this machine before timing starts. `driver_cpu_s` is the
processor time of the process that runs the build, `texts_ms` that of writing the text of a column,
which is also done where the build runs: together they limit how many workers can be kept busy.
With --here FILES ..., no cluster is started: this process does the work of the workers itself, in
groups of at least so many files, and `driver_cpu_s` is the processor time of all else. Prints one
JSON object per line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count, islice, zip_longest
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import deepjoin
from common import emit, machine, say, versions
from deepjoin import Column, Lake, indexing
from deepjoin.build import workers
from deepjoin.build.engine import Step
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.column_vectors import column_blocks, segment_columns
from deepjoin.store.sketch import FrequencySnapshot

#: Columns of one table, and tables of one folder.
_WIDE = 4
_FOLDER = 500
_METHODS = ("hybrid", "deepjoin")
_OBJECT_STORE = 512 << 20


def write_tables(corpus: CorpusSource, folder: Path, columns: int) -> None:
    """Write columns of a corpus as tables, padding short ones."""
    left = islice(corpus.columns(), columns)
    for number in count():
        some = list(islice(left, _WIDE))
        if not some:
            return
        place = folder / f"{number // _FOLDER:04}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(some), place / f"{number:06}.parquet")
        os.utime(place / f"{number:06}.parquet", (1e9, 1e9))


def _table(columns: Sequence[Column]) -> pa.Table:
    names = [f"{column.name or 'column'} {place}" for place, column in enumerate(columns)]
    rows = list(zip_longest(*(column.cells for column in columns)))
    return pa.table([pa.array(cells, pa.string()) for cells in zip(*rows, strict=True)], names)


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """Start nodes of one processor each; sockets need a short path."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    place = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="r", dir="/tmp")
    node = {"num_cpus": 1, "object_store_memory": _OBJECT_STORE}
    started = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            started.add_node(**node)
        yield started.address
    finally:
        started.shutdown()
        shutil.rmtree(place, ignore_errors=True)


class Clock:
    """Records when the first and last tables and columns were done."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, done: int, total: int, name: str) -> None:
        """Record the progress of a build."""
        what = "columns" if name == "columns" else "tables"
        if done and name != "values":
            self.seconds.setdefault(f"first_{what}", self.now())
            self.seconds[f"last_{what}"] = self.now()

    def now(self) -> float:
        """Return the seconds since the start."""
        return perf_counter() - self._started


def timed(folder: Path, out: Path, **options: Any) -> tuple[Lake, dict[str, float]]:
    """Index with an empty cache, and return the time."""
    os.environ["DEEPJOIN_CACHE"] = str(out.with_suffix(".cache"))
    clock, worked = Clock(), process_time()
    build = deepjoin.BuildSettings(**options)
    lake = deepjoin.index(folder, out, progress=clock, encoder="default", build=build)
    worked = process_time() - worked
    return lake, clock.seconds | {"seconds": clock.now(), "driver_cpu_s": worked}


def text_ms(lake: Lake) -> float:
    """Return the processor time of writing the text of a column, in milliseconds."""
    (segment, *_), encoder = lake.index.segments, load_encoder("default")
    assert isinstance(encoder, TextEncoder)
    numbers, frequency = np.arange(segment.values.columns), FrequencySnapshot(segment.folder)
    worked = process_time()
    for block in column_blocks(segment.values.sizes(numbers), numbers, encoder):
        encoder.texts(list(segment_columns(segment, block)), frequency)
    return 1e3 * (process_time() - worked) / len(numbers)


def files_of(lake: Lake) -> list[dict[str, Any]]:
    """Return the checksums of an index."""
    manifest = json.loads((lake.path / "manifest.json").read_text())
    return [segment["files"] for segment in manifest["segments"]]


def hits_of(lake: Lake, queries: Sequence[Column]) -> list[Any]:
    """Answer queries by a method that is exact and one that is not."""
    return [
        [(hit.table, hit.column, hit.joinability, hit.score) for hit in found]
        for query in queries
        for found in (lake.search(query, 10, method=method) for method in _METHODS)
    ]


def fixed_cost(place: Path, **options: Any) -> dict[str, float]:
    """Index one small table."""
    folder = place / "one table"
    folder.mkdir(exist_ok=True)
    cells = [f"cell {number}" for number in range(9)]
    pq.write_table(_table([Column(cells, "key")]), folder / "one.parquet")
    return timed(folder, place / f"one-{len(options)}", **options)[1]


class Here:
    """An engine that does the work of all steps in this process, and counts its time."""

    gpus = 0

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def flow(self, tasks: Sequence[object], *steps: Step) -> Iterator[pa.Table]:
        """Run tasks through all steps."""
        tables: Any = iter(tasks)
        for step in steps:
            tables = self._run(step, tables)
        yield from tables

    def _run(self, step: Step, given: Iterator[Any]) -> Iterator[pa.Table]:
        name = getattr(step.work, "func", step.work).__name__
        for one in given:
            tables = step.work(one)
            while True:
                started = process_time()
                table = next(tables, None)
                self.seconds[name] = self.seconds.get(name, 0) + process_time() - started
                if table is None:
                    break
                yield table


def here(folder: Path, out: Path, files: int) -> None:
    """Build with groups of at least some files, and count what is no worker's time."""
    engine = Here()
    large = patch.object(workers, "_ITEMS", (files, max(files, workers._ITEMS[1])))
    with large, patch.object(indexing, "engine_named", lambda *_: nullcontext(engine)):
        lake, found = timed(folder, out, engine="ray", threads=1)
    driver = found["driver_cpu_s"] - sum(engine.seconds.values())
    parts = -(-len(list(folder.rglob("*.parquet"))) // files)
    row = {"columns": lake.report.columns, "parts": parts, "driver_cpu_s": driver}
    emit("here", **row, **{f"{name}_s": value for name, value in engine.seconds.items()})


def run(options: argparse.Namespace, place: Path) -> bool:
    """Build twice and compare; returns whether all hits are the same."""
    corpus, folder = CorpusSource(options.corpus), place / "tables"
    if not folder.exists():
        say(f"Writing {options.columns:,} columns to {folder}.")
        write_tables(corpus, folder, options.columns)
    for files in options.here:
        here(folder, place / f"here-{files}", files)
    if options.here:
        return True
    queries = list(islice(corpus.columns("queries.parquet"), options.queries))
    emit("machine", **machine(), **versions("ray", "onnxruntime"))
    small = fixed_cost(place)
    local, plain = timed(folder, place / "local")
    texts = text_ms(local)
    emit("local", columns=local.report.columns, tables=local.report.tables, texts_ms=texts, **plain)
    measured = (local, plain, small)
    same = [against(*measured, nodes, folder, queries) for nodes in options.workers]
    return all(same)


def against(
    local: Lake, plain: dict[str, float], small: dict[str, float], nodes: int, folder: Path,
    queries: Sequence[Column],
) -> bool:  # fmt: skip
    """Build with some workers and compare; returns whether all hits are the same."""
    place = folder.with_name(f"ray-{nodes}")
    place.mkdir()
    started = perf_counter()
    with cluster(nodes) as address:
        start = perf_counter() - started
        ray = {"engine": "ray", "ray_address": address}
        first = fixed_cost(place, **ray)
        lake, found = timed(folder, place / "ray", **ray)
    emit("ray", workers=nodes, cluster_start=start, **found)
    same_files = files_of(local) == files_of(lake)
    same_hits = hits_of(local, queries) == hits_of(lake, queries)
    emit(
        "ray against local",
        workers=nodes,
        ratio=found["seconds"] / plain["seconds"],
        one_table_local=small["seconds"],
        one_table_ray=first["seconds"],
        one_table_driver_cpu_s=first["driver_cpu_s"],
        same_hits=same_hits,
        same_files=same_files,
        queries=len(queries),
    )
    return same_hits


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--columns", type=int, default=50_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--here", type=int, nargs="+", default=[], metavar="FILES")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--place", type=Path, help="keep tables and indexes here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = options.place or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if run(options, place) else 1)


if __name__ == "__main__":
    main()
