"""One column against a lake with libraries that can do it: precision, time and build in one table.

The lake is a sample of a corpus: the 20 best columns of each query, and the first others. Values
are compared lower-cased and stripped, and P@10 counts ties, over queries that have a tenth match.
SetSimilaritySearch finds all above a containment; valentine compares two tables at a time, and is
measured on lakes of up to 1,000 columns only. A library that is not installed is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import deepjoin
from common import K, Row, emit, machine, percentiles, say, show, versions
from deepjoin import Column
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.lab.evaluation.metrics import precision_ties
from deepjoin.lab.evaluation.truth import Truth, brute_force
from deepjoin.lab.lsh_ensemble import lsh_ensemble
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource, write_corpus
from deepjoin.search.query import SearchOptions

#: From a query to the ids of the best columns.
Search = Callable[[Column], list[str]]
#: From columns to a search.
Peer = Callable[[list[Column], Path], Search]

_BEST, _WARM, _PAIRWISE = 20, 3, 1000
#: The containments that SetSimilaritySearch and LSH Ensemble are built for.
_LEAST, _THRESHOLD = 0.01, 0.2


def exact_equi(columns: list[Column], folder: Path) -> Search:
    """Build an index of ours and search it exactly."""
    lake = _lake(columns, folder)
    return lambda query: _ids(lake.search(query, K, method="exact-equi", join="equi"))


def ensemble(columns: list[Column], folder: Path) -> Search:
    """Build an index of ours and datasketch's LSH Ensemble on it, ranked by estimates."""
    searcher = lsh_ensemble(_lake(columns, folder).context(), "equi", None)
    return lambda query: _ids(searcher.search(query, SearchOptions(K, exclude=query.table)))


def own_ensemble(columns: list[Column], folder: Path) -> Search:
    """Build datasketch's own LSH Ensemble for one threshold; candidates are scored exactly."""
    from datasketch import MinHash, MinHashLSHEnsemble

    values = [frozenset(_values(column)) for column in columns]

    def sketched(some: Sequence[frozenset[str]]) -> list[Any]:
        found: list[Any] = MinHash.bulk([[v.encode() for v in sorted(one)] for one in some])
        return found

    index = MinHashLSHEnsemble(_THRESHOLD)
    index.index([(n, one, len(values[n])) for n, one in enumerate(sketched(values))])

    def search(query: Column) -> list[str]:
        mine = frozenset(_values(query))
        found = index.query(*sketched([mine]), len(mine))
        shares = [(len(mine & values[n]) / len(mine), columns[n]) for n in set(found)]
        return _sorted(shares, query)

    return search


def set_similarity_search(columns: list[Column], folder: Path) -> Search:
    """Index sets of values by prefixes for one containment, and sort what is above it."""
    from SetSimilaritySearch import SearchIndex

    index = SearchIndex([_values(column) for column in columns], "containment", _LEAST)

    def search(query: Column) -> list[str]:
        found = index.query(_values(query))
        return _sorted([(share, columns[number]) for number, share in found], query)

    return search


def valentine(columns: list[Column], folder: Path) -> Search:
    """Match the query's table with each table; the score is the larger of both containments.

    Its asymmetric similarity is taken in both directions, so one-way containment is not to be had.
    """
    from pandas import DataFrame
    from valentine import valentine_match
    from valentine.algorithms import JaccardDistanceMatcher
    from valentine.algorithms.jaccard_distance import StringDistanceFunction

    exact: Any = StringDistanceFunction.Exact
    matcher = JaccardDistanceMatcher(distance_fun=exact, tversky_alpha=1.0, tversky_beta=0.0)
    frames = [DataFrame({"theirs": _values(column)}) for column in columns]

    def search(query: Column) -> list[str]:
        mine = DataFrame({"mine": _values(query)})
        shares = []
        for column, frame in zip(columns, frames, strict=True):
            found = valentine_match([mine, frame], matcher, instance_sample_size=None)
            shares += [(share, column) for share in found.values()]
        return _sorted(shares, query)

    return search


PEERS: dict[str, Peer] = {
    "deepjoin": exact_equi,
    "lsh-ensemble": ensemble,
    f"datasketch, threshold {_THRESHOLD}": own_ensemble,
    "SetSimilaritySearch": set_similarity_search,
    "valentine": valentine,
}


def _lake(columns: list[Column], folder: Path) -> deepjoin.Lake:
    # A corpus keeps its column ids.
    write_corpus(folder / "corpus", columns, [])
    options: dict[str, Any] = {
        "settings": SETTINGS,
        "encoder": "none",
        "vectors": {"cells": "none"},
    }
    return deepjoin.index(folder / "corpus", folder / "index", **options)


def _ids(results: deepjoin.Results) -> list[str]:
    return [hit.column_id for hit in results]


def _values(column: Column) -> list[str]:
    return distinct_cells(column.cells, SETTINGS.profile).values


def _sorted(found: list[tuple[float, Column]], query: Column) -> list[str]:
    others = [pair for pair in found if pair[1].table != query.table]
    best = sorted(others, key=lambda pair: (-pair[0], pair[1].column_id or ""))[:K]
    return [column.column_id or "" for _, column in best]


def sample(corpus: CorpusSource, queries: list[Column], count: int) -> list[Column]:
    """Take the best columns of each query, and others up to a number."""
    best = brute_force(corpus.columns(), queries, SETTINGS.profile)
    wanted = {column for right in best for column in right.ranked[:_BEST]}
    kept = [column for column in corpus.columns() if column.column_id in wanted]
    others = (column for column in corpus.columns() if column.column_id not in wanted)
    filled = (column for column in others if _values(column))
    return [*kept, *islice(filled, max(0, count - len(kept)))]


def rows(columns: list[Column], queries: list[Column]) -> Iterator[Row]:
    """Measure each installed library."""
    truth = brute_force(columns, queries, SETTINGS.profile)
    for name, make in PEERS.items():
        if make is valentine and len(columns) > _PAIRWISE:
            say(f"{name}: compares pairs, not measured beyond {_PAIRWISE:,} columns")
            continue
        say(name)
        with TemporaryDirectory() as folder:
            try:
                yield {"peer": name} | _measured(make, columns, queries, truth, Path(folder))
            except ImportError:
                say(f"{name}: not installed")


def _measured(
    make: Peer, columns: list[Column], queries: list[Column], truth: list[Truth], folder: Path
) -> Row:
    started = perf_counter()
    search = make(columns, folder)
    took = perf_counter() - started
    for query in queries[:_WARM]:
        search(query)
    seconds, shares = [], []
    for query, right in zip(queries, truth, strict=True):
        started = perf_counter()
        found = search(query)
        seconds.append(perf_counter() - started)
        shares.append(precision_ties(found, right, K))
    known = [share for share in shares if share is not None]
    about = {"columns": len(columns), "queries": len(queries), "queries_ties": len(known)}
    measured = {"precision_ties": float(np.mean(known)), "build_s": took}
    return about | measured | percentiles(seconds)


def main() -> None:
    """Measure all libraries on one sample, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=50)
    given = parser.parse_args()
    corpus = CorpusSource(given.corpus)
    queries = corpus.queries()[: given.queries]
    emit(
        "library_peers",
        what="machine",
        **machine() | versions("datasketch", "SetSimilaritySearch", "valentine"),
    )
    columns = sample(corpus, queries, given.columns)
    found = [emit("library_peers", what="peer", **row) for row in rows(columns, queries)]
    keys = ("peer", "precision_ties", "p50_ms", "p99_ms", "build_s", "columns", "queries_ties")
    show([keys, *([row[key] for key in keys] for row in found)])


if __name__ == "__main__":
    main()
