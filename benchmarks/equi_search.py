"""Exact equi-join search: time and memory of the top 10, and DuckDB in the same run.

CORPUS is a folder with columns.parquet and queries.parquet; queries-1000.parquet, if it has
one, is reported separately. The index is built by `deepjoin.index` and kept in the work folder.
Every query is searched through `Lake.search`, its own table left out, and all evidence of every
hit is read. `deepjoin evaluate` compares the answers with brute force over all columns.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

import deepjoin
from common import (
    RUNS,
    K,
    Row,
    command_line,
    emit,
    folder_bytes,
    in_child,
    indexed,
    machine,
    memory,
    percentiles,
    process_seconds,
    query_sets,
    say,
    show,
    versions,
)
from deepjoin.read.corpus import CorpusSource


def timed_passes(
    lake: deepjoin.Lake, queries: Sequence[deepjoin.Column], method: str, passes: int
) -> list[float]:
    """Search with every query, once to warm up, then several timed passes."""
    for query in queries:
        _touch(lake.search(query, K, method=method, join="equi"))
    seconds = []
    for _ in range(passes):
        for query in queries:
            started = perf_counter()
            _touch(lake.search(query, K, method=method, join="equi"))
            seconds.append(perf_counter() - started)
    return seconds


def _touch(results: deepjoin.Results) -> int:
    """Read all evidence of every hit, as a user would."""
    return sum(
        len(hit.matches) + len(hit.unmatched) + len(hit.cardinality) + len(hit.brings.columns)
        for hit in results
    )


def cold_search(index: Path, query: deepjoin.Column) -> float:
    """Time `deepjoin search` as a process, with the cells of a query on its command line."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cell for cell in query.cells if cell)
    command = [
        sys.executable,
        "-m",
        "deepjoin",
        "search",
        str(index),
        f"--values={line.getvalue()}",
    ]
    return process_seconds(command)


def _quiet(seconds: Sequence[float], queries: int) -> Row:
    """Take the fastest pass of each query, to exclude other load on the machine."""
    best = np.min(np.reshape(seconds, (-1, queries)), axis=0)
    return {f"quiet_{name}": value for name, value in percentiles(best.tolist()).items()}


def search_in_child(index: Path, corpus: Path, limit: int | None, passes: int) -> list[Row]:
    """Open and search in a separate process, to measure its memory alone."""
    found = in_child("equi_search.search", index, corpus, limit or 0, passes)
    for row in found["rows"]:
        emit("equi_search", index=index.name, **row)
    return [row for row in found["rows"] if row["what"] == "search"]


def search(index: str, corpus: str, limit: str, passes: str) -> None:
    """Open the index, time every set of queries with both methods, print one JSON object."""
    opener = deepjoin.open
    started = perf_counter()
    lake = opener(index)
    open_ms = 1e3 * (perf_counter() - started)
    rows: list[Row] = [
        {"what": "open", "open_ms": open_ms, "index_mb": folder_bytes(Path(index)) / 1e6}
    ]
    for name, queries in query_sets(CorpusSource(corpus), int(limit) or None).items():
        for method in ("hybrid", "exact-equi"):
            seconds = timed_passes(lake, queries, method, int(passes))
            size = float(np.mean([len(query.cells) for query in queries]))
            about = {"what": "search", "set": name, "method": method, "queries": len(queries)}
            rows.append(
                about | {"cells": size} | percentiles(seconds) | _quiet(seconds, len(queries))
            )
    rows.append({"what": "memory", "columns": lake.info()["columns"]} | memory())
    print(json.dumps({"rows": rows}))


def beside_duckdb(corpus: CorpusSource, index: Path, given: argparse.Namespace) -> None:
    """Ask DuckDB the same queries, in a process of its own, and compare the overlaps."""
    say("ours on the queries of DuckDB")
    ours = search_in_child(index, corpus.folder, given.duckdb, given.passes)
    times = {one["set"]: one["p50_ms"] for one in ours if one["method"] == "exact-equi"}
    database = given.workdir / f"{corpus.folder.name}.duckdb"
    found = in_child("duckdb_peer.measure", corpus.folder, database, given.duckdb)
    lake, sets = deepjoin.open(index), query_sets(corpus, given.duckdb)
    right = {
        name: [
            [hit.equi.matched for hit in lake.search(query, K, method="exact-equi", join="equi")]
            for query in queries
        ]
        for name, queries in sets.items()
    }
    rows = []
    for row in found["rows"]:
        pairs = zip(row.pop("overlaps"), right[row["set"]], strict=True)
        row |= {"same_overlaps": sum(theirs == mine for theirs, mine in pairs)}
        rows.append(row | {"times_ours": row["p50_ms"] / times[row["set"]]})
        emit("equi_search", what="peer", **rows[-1], **versions("duckdb"))
    keys = ("peer", "set", "p50_ms", "p99_ms", "times_ours")
    show([keys, *([row[key] for key in keys] for row in rows)])


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("corpus", type=Path, metavar="CORPUS")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for indexes (default: here)")
    add("--rebuild", action="store_true", help="build the index even if there is one")
    add("--queries", type=int, metavar="N", help="only the first N queries of each set")
    add("--passes", type=int, default=5, metavar="N", help="timed passes (default 5)")
    add("--duckdb", type=int, metavar="N", help="ask DuckDB the first N queries of each set, too")
    given = parser.parse_args()
    emit("equi_search", corpus=given.corpus.name, machine=machine())
    corpus = CorpusSource(given.corpus)
    index = indexed(corpus.folder, given.workdir / f"{corpus.folder.name}.index", given.rebuild)
    sets = query_sets(corpus, given.queries)
    rows = search_in_child(index, corpus.folder, given.queries, given.passes)
    keys = ("set", "method", "p50_ms", "p90_ms", "p99_ms", "max_ms")
    show([keys, *([row[key] for key in keys] for row in rows)])
    cold = cold_search(index, sets["queries"][0])
    emit("equi_search", what="cold deepjoin search", runs=RUNS, median_ms=1e3 * cold)
    if given.duckdb:
        beside_duckdb(corpus, index, given)


if __name__ == "__main__":
    main()
