"""Exact equi-join search: time, memory and correctness of the top 10, and peers in the same run.

CORPUS is a folder with columns.parquet and queries.parquet; queries-1000.parquet, if it has
one, is reported apart. The index is built through `deepjoin.index` and kept in the work folder.
Every query is searched through `Lake.search`, its own table left out, and all evidence of every
hit is read. Every answer is compared with brute force over all columns.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from time import perf_counter

import numpy as np

import deepjoin
from common import (
    RUNS,
    Row,
    emit,
    folder_bytes,
    in_child,
    machine,
    memory,
    percentiles,
    process_seconds,
    say,
    show,
)
from deepjoin.evaluation.run import SETTINGS
from deepjoin.evaluation.truth import Truth, brute_force
from deepjoin.lake.storage import is_index
from deepjoin.sources.corpus import CorpusSource

K = 10
SETS = ("queries", "queries-1000")
#: Cells of queries that a pass of brute force takes on.
_CELLS_AT_ONCE = 20_000
_BUILD = """
import json, sys, time
from common import memory
import deepjoin
from deepjoin.evaluation.run import SETTINGS
started = time.perf_counter()
lake = deepjoin.index(sys.argv[1], sys.argv[2], settings=SETTINGS)
took = {"build_s": time.perf_counter() - started, "columns": lake.values.columns}
print(json.dumps(took | memory()))
"""

Answer = list[tuple[str, float]]
QuerySets = dict[str, list[deepjoin.Column]]


@dataclass(frozen=True)
class Expected:
    """The right top 10 of one query: by joinability alone, and with generic keys moved last."""

    exact: Answer
    hybrid: Answer


def built(corpus: Path, folder: Path, rebuild: bool = False) -> Path:
    """Build the index of a corpus in a process of its own, unless it is there and newer."""
    manifest, columns = folder / "manifest.json", corpus / "columns.parquet"
    fresh = is_index(folder) and manifest.stat().st_mtime > columns.stat().st_mtime
    if fresh and not rebuild and deepjoin.open(folder).settings == SETTINGS:
        return folder
    say(f"indexing {corpus}")
    row = in_child(_BUILD, corpus, folder)
    emit("equi_search", corpus=corpus.name, what="build", **row)
    return folder


def timed_passes(
    lake: deepjoin.Lake, queries: Sequence[deepjoin.Column], method: str, passes: int
) -> list[float]:
    """Search with every query, once to warm up, then some times by the clock."""
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
    """Read all evidence of every hit, as a user who looks at it would."""
    return sum(
        len(hit.matches) + len(hit.unmatched) + len(hit.cardinality) + len(hit.brings.columns)
        for hit in results
    )


def expected(
    corpus: CorpusSource, lake: deepjoin.Lake, queries: Sequence[deepjoin.Column]
) -> Iterator[Expected]:
    """Find the right answers by comparing every column with every query."""
    generic = np.flatnonzero(np.asarray(lake.catalog.column_generic)).tolist()
    said_little = {lake.catalog.column_ids[number] for number in generic}
    for some in _portions(queries):
        say(f"brute force: {len(some)} queries")
        for truth in brute_force(corpus.columns(), some, SETTINGS.profile):
            yield _expected(truth, said_little)


def _portions(queries: Sequence[deepjoin.Column]) -> Iterator[Sequence[deepjoin.Column]]:
    """Take so many queries at a time that what they share with the lake fits in memory."""
    portion = np.cumsum([len(query.cells) for query in queries]) // _CELLS_AT_ONCE
    for _, numbers in groupby(range(len(queries)), key=portion.__getitem__):
        yield [queries[number] for number in numbers]


def _expected(truth: Truth, said_little: set[str]) -> Expected:
    pairs = list(truth.joinability.items())
    moved = sorted(pairs, key=lambda pair: pair[0] in said_little)
    return Expected(pairs[:K], moved[:K])


def compare(lake: deepjoin.Lake, queries: Sequence[deepjoin.Column], right: list[Expected]) -> Row:
    """Count the queries whose answers are those of brute force."""
    counts = dict.fromkeys(("exact_equal", "hybrid_equal", "hybrid_equal_generic_last"), 0)
    wrong: list[str] = []
    for query, one in zip(queries, right, strict=True):
        exact, hybrid = (_answer(lake, query, method) for method in ("exact-equi", "hybrid"))
        same = exact == one.exact
        counts["exact_equal"] += same
        counts["hybrid_equal"] += _scores(hybrid) == _scores(one.exact)
        # A query that is a run of numbers itself moves nothing.
        in_order = hybrid in (one.hybrid, one.exact)
        counts["hybrid_equal_generic_last"] += in_order
        if not (same and in_order):
            wrong.append(query.column_id or query.name)
    tenth = [_scores(one.exact)[K - 1] if len(one.exact) == K else 0.0 for one in right]
    return {
        "queries": len(queries),
        **counts,
        "wrong": wrong,
        "best_joinability": float(np.mean([one.exact[0][1] if one.exact else 0 for one in right])),
        "tenth_joinability": float(np.mean(tenth)),
        "tenth_above_0": float(np.mean(np.array(tenth) > 0)),
    }


def _answer(lake: deepjoin.Lake, query: deepjoin.Column, method: str) -> Answer:
    hits = lake.search(query, K, method=method, join="equi")
    return [(hit.column_id, hit.joinability) for hit in hits]


def _scores(answer: Answer) -> list[float]:
    return sorted((score for _, score in answer), reverse=True)


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


def query_sets(corpus: CorpusSource, limit: int | None = None) -> QuerySets:
    """Read the queries of a corpus, by the file they are in."""
    there = [name for name in SETS if (corpus.folder / f"{name}.parquet").exists()]
    return {name: list(corpus.columns(f"{name}.parquet"))[:limit] for name in there}


def measure_search(index: Path, sets: QuerySets, passes: int) -> list[Row]:
    """Open the index and time every set of queries with both methods."""
    started = perf_counter()
    lake = deepjoin.open(index)
    open_ms = 1e3 * (perf_counter() - started)
    emit("equi_search", what="open", open_ms=open_ms, index_mb=folder_bytes(index) / 1e6)
    rows = []
    for name, queries in sets.items():
        for method in ("hybrid", "exact-equi"):
            seconds = timed_passes(lake, queries, method, passes)
            size = float(np.mean([len(query.cells) for query in queries]))
            about = {"set": name, "method": method, "queries": len(queries), "cells": size}
            rows.append(emit("equi_search", what="search", **about, **percentiles(seconds)))
    emit("equi_search", what="memory", columns=lake.values.columns, **memory())
    return rows


def check(corpus: CorpusSource, index: Path, sets: QuerySets) -> None:
    """Compare every answer with brute force."""
    lake = deepjoin.open(index)
    for name, queries in sets.items():
        right = list(expected(corpus, lake, queries))
        row = emit("equi_search", what="check", set=name, **compare(lake, queries, right))
        show([list(row)[2:6], list(row.values())[2:6]])


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("corpus", type=Path, metavar="CORPUS")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for indexes (default: here)")
    add("--rebuild", action="store_true", help="build the index even if there is one")
    add("--queries", type=int, metavar="N", help="only the first N queries of each set")
    add("--passes", type=int, default=5, metavar="N", help="timed passes (default 5)")
    add("--no-check", action="store_true", help="leave brute force out")
    add("--peers", action="store_true", help="measure DuckDB and datasketch as well")
    add("--peer-columns", type=int, default=100_000, metavar="N", help="datasketch's (100000)")
    add("--peer-queries", type=int, metavar="N", help="only the first N of each set, for peers")
    add("--threshold", type=float, default=0.2, metavar="T", help="datasketch's (default 0.2)")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark."""
    given = options()
    emit("equi_search", corpus=given.corpus.name, machine=machine())
    corpus = CorpusSource(given.corpus)
    index = built(corpus.folder, given.workdir / f"{corpus.folder.name}.index", given.rebuild)
    sets = query_sets(corpus, given.queries)
    rows = measure_search(index, sets, given.passes)
    keys = ("set", "method", "p50_ms", "p90_ms", "p99_ms", "max_ms")
    show([keys, *([row[key] for key in keys] for row in rows)])
    cold = cold_search(index, sets["queries"][0])
    emit("equi_search", what="cold deepjoin search", runs=RUNS, median_ms=1e3 * cold)
    if not given.no_check:
        check(corpus, index, sets)
    if given.peers:
        import peers

        peers.run(corpus, index, sets, rows, given)


if __name__ == "__main__":
    main()
