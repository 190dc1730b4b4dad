"""DuckDB as a peer: one table of cells, and per query the group-by that a user would write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from common import Row, memory, percentiles, query_sets, say
from deepjoin import Column
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource
from frequencies import distinct_in_columns

Connection = duckdb.DuckDBPyConnection

_QUERY = """
SELECT column_id, count(*) AS overlap
FROM cells JOIN (SELECT unnest($values) AS value) USING (value)
{}GROUP BY column_id ORDER BY overlap DESC, column_id LIMIT 10
"""
_NOT_OWN = "WHERE column_id NOT IN (SELECT unnest($own))\n"
_WARM = 3


def measure(corpus_folder: str, database: str, queries: str) -> None:
    """Measure every way to store the cells, and print all rows as one JSON object."""
    corpus, path = CorpusSource(corpus_folder), Path(database)
    seconds = write_cells(corpus, path)
    sets = query_sets(corpus, int(queries) or None)
    own = own_columns(corpus, {query.table or "" for some in sets.values() for query in some})
    rows = []
    written = {"write_s": seconds, "file_mb": path.stat().st_size / 1e6}
    for name, connection, prepare_s in _ways(path):
        say(f"DuckDB: {name}")
        for kind, some in sets.items():
            about = {"peer": f"DuckDB, {name}", "set": kind, "queries": len(some)}
            about |= written | {"prepare_s": prepare_s}
            rows.append(about | _timed(connection, some, own) | memory())
        connection.close()
    print(json.dumps({"rows": rows}))


def write_cells(corpus: CorpusSource, path: Path) -> float:
    """Write (column number, value), distinct within a column, as a database file."""
    path.unlink(missing_ok=True)
    started = perf_counter()
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE cells (column_id INTEGER, value VARCHAR)")
        first = 0
        for block in corpus.blocks(names=("cells",)):
            values, columns = distinct_in_columns(block["cells"])
            part = pa.table({"column_id": (columns + first).astype(np.int32), "value": values})
            connection.register("part", part).execute("INSERT INTO cells SELECT * FROM part")
            first += block.num_rows
    return perf_counter() - started


def own_columns(corpus: CorpusSource, tables: set[str]) -> dict[str, list[int]]:
    """Find the numbers of the columns of the queries' own tables."""
    own: dict[str, list[int]] = {table: [] for table in tables}
    number = 0
    for block in corpus.blocks(names=("table_id",)):
        for table in block["table_id"].to_pylist():
            if table in own:
                own[table].append(number)
            number += 1
    return own


def _ways(path: Path) -> Iterator[tuple[str, Connection, float]]:
    yield "database file", duckdb.connect(path, read_only=True), 0.0
    for name, order, after in (
        ("in memory", "", ""),
        ("in memory, sorted by value", "ORDER BY value", ""),
        ("in memory, ART index on value", "", "CREATE INDEX by_value ON cells (value)"),
    ):
        connection = duckdb.connect()
        started = perf_counter()
        connection.execute(f"ATTACH '{path}' AS stored (READ_ONLY)")
        connection.execute(f"CREATE TABLE cells AS SELECT * FROM stored.cells {order}")
        connection.execute(after or "SELECT 1")
        yield name, connection, perf_counter() - started


def _timed(connection: Connection, queries: list[Column], own: dict[str, list[int]]) -> Row:
    seconds, overlaps = [], []
    for query in [*queries[:_WARM], *queries]:
        started = perf_counter()
        found = _search(connection, query, own[query.table or ""])
        seconds.append(perf_counter() - started)
        overlaps.append([overlap for _, overlap in found])
    return percentiles(seconds[_WARM:]) | {"overlaps": overlaps[_WARM:]}


def _search(connection: Connection, query: Column, own: list[int]) -> list[Any]:
    values = {"values": distinct_cells(query.cells, "basic").values}
    # The clause costs DuckDB its index scan, so only queries from the lake itself carry it.
    if own:
        return connection.execute(_QUERY.format(_NOT_OWN), values | {"own": own}).fetchall()
    return connection.execute(_QUERY.format(""), values).fetchall()
