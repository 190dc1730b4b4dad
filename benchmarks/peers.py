"""The same queries with alternatives: a DuckDB group-by, LSH Ensemble."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq

import deepjoin
from common import K, QuerySets, Row, emit, in_child, say, show, versions
from deepjoin.read.corpus import SCHEMA, CorpusSource
from equi_search import built, search_in_child


def run(
    corpus: CorpusSource, index: Path, sets: QuerySets, ours: list[Row], given: argparse.Namespace
) -> None:
    """Measure the peers, each in a separate process, and how many times longer they take."""
    limit = given.peer_queries
    few = {name: queries[:limit] for name, queries in sets.items()}
    if limit is not None:
        say("ours on the queries of the peers")
        ours = search_in_child(index, corpus.folder, limit, given.passes)
    rows = [*_duckdb(corpus, index, few, ours, given), *_ensemble(corpus, given)]
    keys = ("peer", "set", "p50_ms", "p99_ms", "times_ours")
    show([keys, *([row[key] for key in keys] for row in rows)])


def _duckdb(
    corpus: CorpusSource, index: Path, sets: QuerySets, ours: list[Row], given: argparse.Namespace
) -> list[Row]:
    database = given.workdir / f"{corpus.folder.name}.duckdb"
    found = in_child("duckdb_peer.main", corpus.folder, database, given.peer_queries or 0)
    lake = deepjoin.open(index)
    right = {name: [_overlaps(lake, query) for query in sets[name]] for name in sets}
    rows = []
    for row in found["rows"]:
        pairs = zip(row.pop("overlaps"), right[row["set"]], strict=True)
        same = {"same_overlaps": sum(theirs == mine for theirs, mine in pairs)}
        rows.append(_peer(row | same | versions("duckdb"), ours))
    return rows


def _overlaps(lake: deepjoin.Lake, query: deepjoin.Column) -> list[int]:
    return [hit.equi.matched for hit in lake.search(query, K, method="exact-equi", join="equi")]


def _ensemble(corpus: CorpusSource, given: argparse.Namespace) -> list[Row]:
    subset = _first_columns(corpus, given.workdir, given.peer_columns)
    index = built(subset, given.workdir / f"{subset.name}.index")
    say(f"ours on {given.peer_columns:,} columns")
    ours = search_in_child(index, corpus.folder, given.peer_queries, given.passes)
    say("datasketch's LSH Ensemble: indexing")
    arguments = (subset, corpus.folder, given.threshold, given.peer_queries or 0)
    found = in_child("ensemble_peer.main", *arguments)
    named = {"peer": "datasketch LSH Ensemble"} | versions("datasketch", "scipy")
    return [_peer(named | row, ours) for row in found["rows"]]


def _first_columns(corpus: CorpusSource, workdir: Path, count: int) -> Path:
    """Write the first columns of a corpus as a new corpus."""
    folder = workdir / f"{corpus.folder.name}-{count}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "columns.parquet"
    if path.exists() and path.stat().st_mtime > (corpus.folder / path.name).stat().st_mtime:
        return folder
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for block in corpus.blocks():
            writer.write_batch(block[:count])
            count -= block.num_rows
            if count <= 0:
                break
    return folder


def _peer(row: Row, ours: list[Row]) -> Row:
    times = {one["set"]: one["p50_ms"] for one in ours if one["method"] == "exact-equi"}
    return emit("equi_search", what="peer", **row, times_ours=row["p50_ms"] / times[row["set"]])
