"""Column vectors in PostgreSQL against those of the index itself: recall, time, size.

INDEX has column vectors (and, for deepjoin-sketch, sketches); CORPUS is a folder with
queries.parquet. Without --store a PostgreSQL of the package --server is started in a temporary
folder, which takes about as much disk as the figures say; with --store, a lake 'benchmark' is
published there and taken out again. Every vector space is loaded, then indexed, then searched with
several efforts. Recall is the share of the ten columns found that are as near as the tenth by an
exact scan, to six digits. Times are of the part "candidates" of a search by the wall clock: from
the query's vector to the columns in their order, by exact distances; neither encoding it nor
verifying them counts. Of the three passes, "best" has the quickest of each query, which leaves out
most of what else runs on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import perf_counter

import numpy as np

import deepjoin
from common import K, Row, command_line, emit, folder_bytes, machine, percentiles, say
from deepjoin import Column, Lake
from deepjoin.arrays import Double
from deepjoin.engines.postgres.publishing import Published, withdraw
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.query import excluded_columns
from deepjoin.search.vectors import VectorSearcher
from deepjoin.store.column_vectors import ColumnVectors

#: The vector spaces by the methods that search them.
SPACES = {"deepjoin": "columns", "sketch": "sketch", "deepjoin-sketch": "both"}
NAME = "benchmark"
PASSES = 3
#: The efforts to search with.
EFFORTS = {"hnsw": (40, 100, 200, 400), "codes": (250, 500, 1000, 2000)}
_BLOCK = 20_000
#: Distances are rounded to six digits.
_TIE = 1.5e-6


def searcher(lake: Lake, method: str) -> VectorSearcher:
    """Return the searcher of a method."""
    found = lake._searcher(method, "equi", None)
    assert isinstance(found, VectorSearcher)
    return found


def tenth_nearest(lake: Lake, method: str, queries: Sequence[Column]) -> Double:
    """Compare queries with every live column of another table: the tenth similarity of each."""
    one = searcher(lake, method)
    asked = np.stack([one.vector(query) for query in queries]).astype(np.float64)
    asked /= np.maximum(np.linalg.norm(asked, axis=1, keepdims=True), 1e-30)
    best = np.full((len(queries), K), -np.inf)
    for segment in lake.index.segments:
        found = ColumnVectors.open(segment.folder, SPACES[method])
        assert found is not None and found.index.metric == "cosine"
        for start in range(0, len(found.rows), _BLOCK):
            rows = found.rows[start : start + _BLOCK].astype(np.float64)
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
            cosines = asked @ rows.T
            for number, query in enumerate(queries):
                marks = excluded_columns(segment, query.table)
                if marks is not None:
                    cosines[number][marks[start : start + _BLOCK]] = -np.inf
            best = -np.sort(-np.hstack([best, cosines]), axis=1)[:, :K]
    return best[:, -1]


def searched(lake: Lake, method: str, queries: Sequence[Column], least: Double) -> Row:
    """Search with all queries several times, after a pass that is not measured."""
    right, seconds = [], np.zeros((0, len(queries)))
    for _ in range(1 + PASSES):
        took = []
        for query, bound in zip(queries, least.tolist(), strict=True):
            found = lake.search(query, K, method=method, join="equi", exclude_table=query.table)
            took.append(found.seconds["candidates"])
            right.append(np.sum([hit.score >= bound - _TIE for hit in found]) / K)
        seconds = np.vstack([seconds, took])
    best = {f"best_{name}": value for name, value in percentiles(seconds[1:].min(axis=0)).items()}
    return {"recall": float(np.mean(right))} | percentiles(seconds[1:].ravel()) | best


def embedded(lake: Lake, method: str, queries: Sequence[Column], least: Double) -> Row:
    """Measure the index itself."""
    found = [ColumnVectors.open(segment.folder, SPACES[method]) for segment in lake.index.segments]
    known = [one for one in found if one is not None]
    row = {"columns": sum(len(one.rows) for one in known), "segments": len(known)}
    row |= {"dimension": known[0].about.dimension, "kind": known[0].index.kind}
    row |= {"bytes": sum(folder_bytes(one.folder) for one in known)}
    measured = searched(lake, method, queries, least)
    return emit("vector_store", method=method, where="embedded", **row, **measured)


def published(given: argparse.Namespace, lake: Lake, method: str, ann: str, url: str) -> Row:
    """Load the vectors, then build the graph if any, each timed."""

    def publish(kind: str) -> tuple[Published, float]:
        settings = deepjoin.PublishSettings(index=kind, memory=given.memory << 20)
        started = perf_counter()
        spaces = [SPACES[method]]
        done = deepjoin.publish(
            lake, url, name=NAME, spaces=spaces, replace=True, settings=settings
        )
        return done, perf_counter() - started

    loaded, took = publish("codes" if ann == "codes" else "exact")
    row = {"vectors": loaded.vectors, "load_s": took, "bytes": loaded.bytes}
    if ann == "hnsw":
        indexed, took = publish(ann)
        row |= {"index_s": took, "table_bytes": loaded.bytes, "bytes": indexed.bytes}
    return emit("vector_store", method=method, where="pgvector", ann=ann, **row)


def stored(
    given: argparse.Namespace, lake: Lake, method: str, ann: str, url: str, least: Double
) -> None:
    """Measure PostgreSQL with each effort."""
    queries, space = queries_of(given), SPACES[method]
    published(given, lake, method, ann, url)
    for effort in given.efforts or EFFORTS[ann]:
        how = deepjoin.PublishSettings(index=ann, effort=effort)
        deepjoin.publish(lake, url, name=NAME, spaces=[space], settings=how)
        there = deepjoin.open(given.index, vector_store=url)
        row = searched(there, method, queries, least)
        emit("vector_store", method=method, where="pgvector", ann=ann, effort=effort, **row)
    withdraw(url, NAME)


@contextmanager
def server(given: argparse.Namespace) -> Iterator[str]:
    """Return the URL of the store, or start one."""
    if given.store:
        yield given.store
        return
    with tempfile.TemporaryDirectory(dir=given.workdir) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = import_module(given.server).get_server(folder)
        try:
            yield started.get_uri()
        finally:
            started.cleanup()


def versions(url: str) -> Row:
    """Return the versions of PostgreSQL and pgvector."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        sql = "SELECT version(), extversion FROM pg_extension WHERE extname = 'vector'"
        found = connection.execute(sql).fetchone()
    assert found is not None
    return {"postgresql": found[0].split(" on ")[0], "pgvector": found[1]}


def queries_of(given: argparse.Namespace) -> list[Column]:
    """Read the queries."""
    return list(CorpusSource(given.corpus).columns("queries.parquet"))[: given.queries or None]


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("index", type=Path, metavar="INDEX")
    add("corpus", type=Path, metavar="CORPUS")
    add("--store", default="", metavar="URL", help="a PostgreSQL that runs already")
    add("--server", default="pgserver", help="the package with the one to start (pgserver)")
    add("--workdir", type=Path, metavar="DIR", help="for the one that is started")
    add("--methods", nargs="*", default=["deepjoin", "deepjoin-sketch"], choices=[*SPACES])
    add("--efforts", type=int, nargs="*", metavar="N", help="default: four that fit")
    add("--ann", choices=[*EFFORTS], help="default: hnsw for deepjoin, codes for the others")
    add("--memory", type=int, default=2048, metavar="MB", help="to build the graph (2048)")
    add("--queries", type=int, default=0, metavar="N", help="only the first N queries")
    given = parser.parse_args()
    emit("vector_store", machine=machine())
    lake = deepjoin.open(given.index)
    queries = queries_of(given)
    with server(given) as url:
        emit("vector_store", **versions(url))
        for method in given.methods:
            vectors = [
                ColumnVectors.open(one.folder, SPACES[method]) for one in lake.index.segments
            ]
            if not all(one is not None and one.complete for one in vectors):
                say(f"{given.index} has no vectors for {method}")
                continue
            say(f"{method}: an exact scan")
            least = tenth_nearest(lake, method, queries)
            embedded(lake, method, queries, least)
            say(f"{method}: PostgreSQL")
            ann = given.ann or ("hnsw" if method == "deepjoin" else "codes")
            stored(given, lake, method, ann, url, least)


if __name__ == "__main__":
    main()
