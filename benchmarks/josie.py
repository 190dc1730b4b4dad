"""JOSIE beside exact-equi: the same answers, and what each method reads and how long it takes.

LAKE is a corpus folder, whose index is built in the work folder, or an index, which is searched
with --queries-of. With --generated, generate.py makes a lake of that many columns from the corpus
LAKE. Each query searches for the best --best columns outside
its own table; evidence is measured for every hit. Prints one JSON object. `all_postings` counts
the postings of all values of the query; exact-equi reads them all except long lists that cannot
matter.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

import deepjoin
from common import (
    K,
    QuerySets,
    Row,
    command_line,
    emit,
    indexed,
    machine,
    memory,
    percentiles,
    query_sets,
    say,
)
from deepjoin import Column, Lake
from deepjoin.lab.josie import JosieSearch, josie
from deepjoin.model import Hit, Results
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.exact import exact_equi
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.searcher import Searcher


def generated(like: Path, folder: Path, columns: int) -> Path:
    """Generate a corpus similar to another, unless it exists."""
    if not (folder / "queries-1000.parquet").exists():
        script = str(Path(__file__).with_name("generate.py"))
        command = [sys.executable, script, folder, "--like", like, "--columns", columns]
        subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)
    return folder


def answers(
    searcher: Searcher, queries: Sequence[Column], best: int, passes: int
) -> tuple[list[Results], Row]:
    """Search with every query, once to warm up, then several timed passes."""
    seconds: list[float] = []
    candidates: list[float] = []
    for turn in range(passes + 1):
        results = []
        for query in queries:
            started = perf_counter()
            results.append(searcher.search(query, SearchOptions(best, exclude=query.table)))
            if turn:
                seconds.append(perf_counter() - started)
                candidates.append(results[-1].seconds["candidates"])
    return results, _times(seconds) | _times(candidates, "candidates_")


def _times(seconds: Sequence[float], prefix: str = "") -> Row:
    """Summarise times without the largest, which includes other load on the machine."""
    rounded = {name: round(ms, 3) for name, ms in percentiles(seconds).items()}
    return {f"{prefix}{name}": rounded[name] for name in ("p50_ms", "p90_ms", "p99_ms")}


def plain(results: Results) -> list[Hit]:
    """Return the hits without the name of the method."""
    return [replace(hit, found_by=()) for hit in results]


def read_by_josie(searcher: JosieSearch, queries: Sequence[Column], best: int) -> Row:
    """Sum what the queries read."""
    rows = []
    for query in queries:
        searcher.search(query, SearchOptions(best, exclude=query.table))
        rows.append(vars(searcher.reading))
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def postings_of(lake: Lake, queries: Sequence[Column]) -> Row:
    """Count the lists of all values of the queries, and their postings."""
    lists = postings = 0
    for query in queries:
        cells = SearchQuery(query, lake.settings.profile, lake.context().key)
        for segment in lake.index.segments:
            values = cells.values_in(segment)
            lists += len(values.known)
            postings += int(segment.values.frequency(values.numbers[values.known]).sum())
    return {"all_lists": lists, "all_postings": postings}


def measured(lake: Lake, sets: QuerySets, best: int, passes: int) -> Row:
    """Build JOSIE's index, ask every set of queries with both methods, compare."""
    before = memory()
    started = perf_counter()
    searcher = josie(lake.context(), "equi", None)
    row: Row = {"build_s": perf_counter() - started} | memory()
    row["grown_mb"] = row["resident_mb"] - before["resident_mb"]
    row["index_mb"] = sum(one.index.nbytes for one in searcher.lakes) / 1e6
    row["costs"] = [vars(one.costs) for one in searcher.lakes]
    for name, queries in sets.items():
        say(f"{name}: {len(queries)} queries")
        ours, our_times = answers(searcher, queries, best, passes)
        others, other_times = answers(
            exact_equi(lake.context(), "equi", None), queries, best, passes
        )
        same = sum(plain(a) == plain(b) for a, b in zip(ours, others, strict=True))
        row[name] = {
            "queries": len(queries),
            "identical": same,
            "cells": float(np.mean([len(query.cells) for query in queries])),
            "josie": our_times | read_by_josie(searcher, queries, best),
            "exact-equi": other_times | postings_of(lake, queries),
        }
    return row


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("lake", type=Path, metavar="LAKE", help="an index, or a corpus folder")
    add("--queries", type=int, default=100, metavar="N", help="of each set (default 100)")
    add("--queries-of", type=Path, metavar="CORPUS", help="whose queries to ask an index with")
    add("--generated", type=int, metavar="N", help="make a lake of N columns like LAKE")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for corpora and indexes")
    add("--best", type=int, default=K, metavar="K", help="hits asked for (default 10)")
    add("--passes", type=int, default=3, metavar="N", help="timed passes (default 3)")
    given = parser.parse_args()
    corpus, index = given.queries_of or given.lake, given.lake
    if given.generated:
        name = f"{given.lake.name}-like-{given.generated}"
        corpus = generated(given.lake, given.workdir / name, given.generated)
    if given.queries_of is None:
        index = indexed(corpus, given.workdir / f"{corpus.name}.index")
    lake = deepjoin.open(index)
    sets = query_sets(CorpusSource(corpus), given.queries)
    about = {"lake": index.name, "columns": lake.report.columns, "best": given.best}
    emit("josie", **about, **measured(lake, sets, given.best, given.passes), machine=machine())


if __name__ == "__main__":
    main()
