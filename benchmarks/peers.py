"""The same queries with what a user would reach for otherwise: a DuckDB group-by, LSH Ensemble."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import Row, emit, folder_bytes, in_child, percentiles, say, show, versions
from deepjoin import Column
from deepjoin.distinct import distinct_cells
from deepjoin.sources.corpus import CorpusSource
from frequencies import distinct_in_columns

Sets = dict[str, list[Column]]
K = 10

_JOIN = """
SELECT column_id, count(*) AS overlap FROM cells JOIN (SELECT unnest($values) AS value) USING (value)
GROUP BY column_id ORDER BY overlap DESC, column_id LIMIT 10"""
_IN = """
SELECT column_id, count(*) AS overlap FROM cells WHERE value IN ({})
GROUP BY column_id ORDER BY overlap DESC, column_id LIMIT 10"""
_ENSEMBLE = "import ensemble, sys; ensemble.main(*sys.argv[1:])"


def run(
    corpus: CorpusSource, index: Path, sets: Sets, ours: list[Row], given: argparse.Namespace
) -> None:
    """Measure the peers and print how many times longer they take."""
    from equi_search import built, measure_search

    rows = [row for row in ours if row["method"] == "exact-equi"]
    times = {row["set"]: row["p50_ms"] for row in rows}
    database = given.workdir / f"{corpus.folder.name}.duckdb"
    peers = list(duckdb_rows(corpus, database, sets, times))
    subset = first_columns(corpus, given.workdir, given.peer_columns)
    small = built(subset, given.workdir / f"{subset.name}.index")
    say(f"ours on {given.peer_columns:,} columns")
    rows = measure_search(small, sets, given.passes)
    times = {row["set"]: row["p50_ms"] for row in rows if row["method"] == "exact-equi"}
    say("datasketch's LSH Ensemble")
    for row in in_child(_ENSEMBLE, subset, corpus.folder, given.threshold, len(sets["queries"]))["rows"]:
        row = {"peer": "datasketch LSH Ensemble"} | row | versions("datasketch")
        if "p50_ms" in row:
            row["times_ours"] = row["p50_ms"] / times[row["set"]]
        peers.append(emit("equi_search", what="peer", **row))
    keys = ("peer", "set", "p50_ms", "p99_ms", "times_ours")
    show([keys, *([row[key] for key in keys] for row in peers if "p50_ms" in row)])
