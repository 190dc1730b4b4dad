"""Keys of several columns: the answers against brute force, and times beside SQL in DuckDB.

    python benchmarks/composite.py mate FOLDER       query tables among themselves, top 10
    python benchmarks/composite.py baseball FOLDER   documented keys of a baseball database
    python benchmarks/composite.py times FOLDER      100 rows and two columns, any folder of tables
    python benchmarks/composite.py alike N --like FOLDER --keep OUT    1,000 rows and three columns
                                                     in N tables made like FOLDER's

The SQL is what a user would write over all cells in one long table: rows that hold the first
value, joined with the same rows holding the second. Indexes have no cell vectors here: these are
equi-joins.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations
from pathlib import Path
from statistics import median
from time import perf_counter

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import deepjoin
from deepjoin import Lake
from deepjoin.normalise.canonical import canonical, canonical_array
from deepjoin.read.frames import file_table, read_columns
from deepjoin.search.ranking import name_similarity
from deepjoin.settings import Settings

K = 10
Cells = dict[str, list[str | None]]
#: Child, its key columns, parent, the parent's columns.
BASEBALL = [
    *(
        (child, "yearID teamID lgID", "Teams", "yearID teamID lgID")
        for child in (
            *("Salaries", "Managers", "AllstarFull", "BattingPost", "PitchingPost"),
            *("FieldingPost", "FieldingOFsplit", "TeamsHalf", "ManagersHalf"),
        )
    ),
    ("HomeGames", "year.key team.key league.key", "Teams", "yearID teamID lgID"),
    ("SeriesPost", "yearID teamIDwinner lgIDwinner", "Teams", "yearID teamID lgID"),
    ("SeriesPost", "yearID teamIDloser lgIDloser", "Teams", "yearID teamID lgID"),
    ("BattingPost", "yearID round", "SeriesPost", "yearID round"),
    ("ManagersHalf", "playerID yearID teamID", "Managers", "playerID yearID teamID"),
]


def read(path: Path) -> Cells:
    """Read a table as the index reads it."""
    return {column.name: list(column.cells) for column in read_columns(file_table(path))}


def tuples_of(cells: Cells, names: Sequence[str], known: dict[str, str]) -> list[tuple[str, ...]]:
    """Return the complete tuples of some columns as canonical strings, row by row."""

    def value(cell: str | None) -> str:
        if cell is None:
            return ""
        if cell not in known:
            known[cell] = canonical(cell)
        return known[cell]

    parts = ([value(cell) for cell in cells[name]] for name in names)
    return [one for one in zip(*parts, strict=True) if all(one)]


def mate(folder: Path) -> None:
    """Compare the answers for all query tables with those of comparing everything.

    The tables have two columns; a third is made of the letters that begin the other two.
    """
    paths = sorted(folder.rglob("*.csv"))
    tables = {str(path.relative_to(folder)): read(path) for path in paths}
    for cells in tables.values():
        one, other = list(cells.values())[:2]
        pairs = zip(one, other, strict=True)
        cells["letters"] = [f"{(a or '')[:1]}{(b or '')[:1]}" or None for a, b in pairs]
    known: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as out:
        frames = {name: pa.table(cells) for name, cells in tables.items()}
        lake = deepjoin.index(
            frames,
            out,
            settings=Settings(min_distinct=1, max_mean_length=4096),
            vectors={"cells": "none"},
        )
        for size in (2, 3):
            holders: dict[tuple[str, ...], set[tuple[str, tuple[str, ...]]]] = defaultdict(set)
            unique: dict[tuple[str, tuple[str, ...]], bool] = {}
            for name, cells in tables.items():
                for columns in permutations(cells, size):
                    found = tuples_of(cells, columns, known)
                    unique[name, columns] = len(set(found)) == len(found)
                    for one in set(found):
                        holders[one].add((name, columns))
            same = queries = found_any = 0
            times = []
            for name, cells in tables.items():
                if len(cells) < size:
                    continue
                mine = tuple(cells)[:size]
                started = perf_counter()
                results = lake.search(
                    frames[name], K, on=list(mine), join="equi", exclude_table=name
                )
                times.append(perf_counter() - started)
                counts: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
                for one in set(tuples_of(cells, mine, known)):
                    for place in holders.get(one, ()):
                        counts[place] += place[0] != name
                expected = ranked(counts, mine, tables, unique)
                answer = [(hit.table, hit.columns, hit.matched) for hit in results]
                queries += 1
                same += answer == expected
                found_any += bool(expected)
                if answer != expected:
                    print(f"differs: {name} {mine}\n  {answer}\n  {expected}", file=sys.stderr)
            print(
                f"mate, {size} columns: {same} of {queries} answers equal brute force (top {K}), "
                f"{found_any} of them with hits; "
                f"p50 {1000 * median(times):.1f} ms"
            )


def ranked(
    counts: dict[tuple[str, tuple[str, ...]], int],
    mine: tuple[str, ...],
    tables: dict[str, Cells],
    unique: dict[tuple[str, tuple[str, ...]], bool],
) -> list[tuple[str, tuple[str, ...], int]]:
    """Rank tables by their best mapping: tuples, uniqueness, equal names, similar names, place."""
    best: dict[str, tuple[object, ...]] = {}
    for (table, columns), count in counts.items():
        if not count:
            continue
        pairs = list(zip(mine, columns, strict=True))
        order = list(tables[table])
        key = (
            -count,
            not unique[table, columns],
            -sum(one.lower() == other.lower() for one, other in pairs),
            -round(sum(name_similarity(one, other) for one, other in pairs), 9),
            table,
            tuple(order.index(column) for column in columns),
            columns,
        )
        best[table] = min(best.get(table, key), key)
    top = sorted(best.values())[:K]
    return [(str(key[4]), key[6], -key[0]) for key in top]  # type: ignore[misc, operator]


def baseball(folder: Path) -> None:
    """Search with each documented key, and compare the joined rows with pandas."""
    with tempfile.TemporaryDirectory() as out:
        lake = deepjoin.index(folder, out, vectors={"cells": "none"})
        first = exact = 0
        for child, keys, parent, parent_keys in BASEBALL:
            mine, theirs = keys.split(), parent_keys.split()
            frame = pd.read_csv(folder / f"{child}.csv", dtype=str, keep_default_na=False)
            results = lake.search(frame, 3, on=mine, join="equi", exclude_table=f"{child}.csv")
            hit = results[0]
            right = hit.table == f"{parent}.csv" and list(hit.columns) == theirs
            first += right
            joined = lake.join(frame, mine, (f"{parent}.csv", theirs), join="equi")
            other = pd.read_csv(folder / f"{parent}.csv", dtype=str, keep_default_na=False)
            # The reference joins lower-cased cells, of rows without a blank part.
            normal = frame[mine].apply(lambda c: c.str.strip().str.lower())
            parents = other[theirs].apply(lambda c: c.str.strip().str.lower())
            parents = parents[(parents != "").all(axis=1)]
            sizes = parents.value_counts().to_dict()
            rows = sum(max(1, sizes.get(tuple(row), 0)) for row in normal.itertuples(index=False))
            exact += len(joined) == rows
            say = "first" if right else f"not first: {hit.table} {hit.columns}"
            print(
                f"{child} ({', '.join(mine)}) -> {parent}: {say}, {hit.joinability:.3f}, "
                f"{len(frame):,} rows join to {len(joined):,} (pandas {rows:,})"
            )
    print(f"baseball: parent and mapping first {first} of {len(BASEBALL)}; rows exact {exact}")


def long_table(
    connection: duckdb.DuckDBPyConnection, tables: Iterable[tuple[str, Cells]]
) -> duckdb.DuckDBPyConnection:
    """Put all cells into one table of DuckDB, as canonical strings."""
    connection.execute("CREATE TABLE cells (tbl VARCHAR, row BIGINT, col VARCHAR, value VARCHAR)")
    for some in batched(tables, 2000):
        parts = [
            pa.table(
                {
                    "tbl": pa.repeat(table, len(values)),
                    "row": np.arange(len(values)),
                    "col": pa.repeat(name, len(values)),
                    "value": canonical_array(pa.array(values, pa.string())),
                }
            )
            for table, cells in some
            for name, values in cells.items()
        ]
        connection.register("batch", pa.concat_tables(parts))
        connection.execute("INSERT INTO cells SELECT * FROM batch WHERE value <> ''")
        connection.unregister("batch")
    return connection


def batched(tables: Iterable[tuple[str, Cells]], size: int) -> Iterator[list[tuple[str, Cells]]]:
    """Cut tables into lists of some."""
    left = iter(tables)
    while some := list(islice(left, size)):
        yield some


def by_sql(
    connection: duckdb.DuckDBPyConnection, query: Cells, own: str
) -> list[tuple[object, ...]]:
    """Rank tables by tuples found, as a user would in SQL."""
    names = list(query)
    tuples = sorted(set(tuples_of(query, names, {})))
    parts = {f"p{i}": [one[i] for one in tuples] for i in range(len(names))}
    connection.register("q", pa.table({"id": range(len(tuples)), **parts}))
    joins = "".join(
        f" JOIN cells c{i} ON c{i}.tbl = c0.tbl AND c{i}.row = c0.row AND c{i}.value = q.p{i} "
        + "".join(f"AND c{i}.col <> c{j}.col " for j in range(i))
        for i in range(1, len(names))
    )
    columns = ", ".join(f"c{i}.col" for i in range(len(names)))
    found = connection.execute(
        f"SELECT c0.tbl, {columns}, count(DISTINCT q.id) AS n FROM q JOIN cells c0 ON "
        f"c0.value = q.p0 {joins} WHERE c0.tbl <> ? GROUP BY ALL ORDER BY n DESC LIMIT {K}",
        [own],
    ).fetchall()
    connection.unregister("q")
    return found


def timed(
    lake: Lake,
    tables: dict[str, Cells],
    rows: int,
    parts: int,
    queries: int,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> None:
    """Time random queries: some rows and columns of a table, which is not a hit itself."""
    chance = random.Random(0)
    suited = [
        name
        for name, cells in tables.items()
        if len(lake.index.indexed_columns(name)) >= parts
        and len(next(iter(cells.values()))) >= rows
    ]
    ours, theirs, hits, agree = [], [], [], 0
    for _ in range(queries):
        name = chance.choice(suited)
        cells = tables[name]
        columns = chance.sample(sorted(set(lake.index.indexed_columns(name))), parts)
        start = chance.randrange(len(cells[columns[0]]) - rows + 1)
        query = {column: cells[column][start : start + rows] for column in columns}
        started = perf_counter()
        results = lake.search(query, K, on=columns, join="equi", exclude_table=name)
        ours.append(1000 * (perf_counter() - started))
        hits.append(len(results))
        if connection is not None:
            started = perf_counter()
            found = by_sql(connection, query, name)
            theirs.append(1000 * (perf_counter() - started))
            mine = results[0].matched if results else 0
            agree += mine == (found[0][-1] if found else 0)
    line = (
        f"{rows} rows, {parts} columns, {len(lake.tables):,} tables, {queries} queries: p50 "
        f"{median(ours):.1f} ms, p95 {sorted(ours)[int(0.95 * len(ours))]:.1f} ms, "
        f"{sum(h > 0 for h in hits)} with hits"
    )
    if theirs:
        line += (
            f"; SQL in DuckDB p50 {median(theirs):.1f} ms, "
            f"ratio {median(theirs) / median(ours):.1f}; "
            f"best count agrees in {agree}"
        )
    print(line)


def times(folder: Path, queries: int) -> None:
    """Time queries of 100 rows and two columns over a folder of tables."""
    with tempfile.TemporaryDirectory() as out:
        lake = deepjoin.index(folder, out, vectors={"cells": "none"})
        tables = {
            name: {
                one.name: list(one.cells) for one in read_columns(lake.index.origin(name).table())
            }
            for name in lake.tables
        }
        timed(lake, tables, 100, 2, queries, long_table(duckdb.connect(), tables.items()))


def alike(count: int, queries: int, like: Path, keep: Path) -> None:
    """Time queries of 1,000 rows and three columns in a lake made like a folder of real tables.

    A generated table has some rows and columns of a real one, so tuples and skew are real. Values
    that several real tables hold stay as they are; others belong to a family of about 20 tables,
    so rare values keep the number of tables they are in, and frequent ones the share.
    """
    parquet, index, database = keep / "tables", keep / "index", keep / "cells.duckdb"
    if not index.exists():
        parquet.mkdir(parents=True, exist_ok=True)
        _write_alike(count, like, parquet)
        started = perf_counter()
        deepjoin.index(parquet, index, vectors={"cells": "none"})
        print(f"indexed {count:,} tables in {perf_counter() - started:.0f} s")
    lake = deepjoin.open(index)
    large = [path for path in sorted(parquet.iterdir()) if pq.read_metadata(path).num_rows >= 1000]
    tables = {path.name: read(path) for path in random.Random(2).sample(large, min(60, len(large)))}
    connection = duckdb.connect(str(database), config={"memory_limit": "4GB"})
    if not connection.execute(
        "SELECT 1 FROM duckdb_tables() WHERE table_name = 'cells'"
    ).fetchall():
        started = perf_counter()
        long_table(connection, ((path.name, read(path)) for path in sorted(parquet.iterdir())))
        print(f"DuckDB loaded the cells in {perf_counter() - started:.0f} s")
    timed(lake, tables, 1000, 3, queries, connection)


def _write_alike(count: int, like: Path, out: Path) -> None:
    """Write tables made like those of a folder, as Parquet files of text."""
    random = np.random.default_rng(0)
    real = []
    for path in sorted(like.rglob("*.csv")):
        cells = read(path)
        if len(cells) >= 3 and len(next(iter(cells.values()))) >= 10:
            real.append(cells)
    frequency: dict[str, int] = defaultdict(int)
    for cells in real:
        for value in {value for column in cells.values() for value in column if value is not None}:
            frequency[value] += 1
    number = 0
    while number < count:
        template = real[int(random.integers(len(real)))]
        names = list(template)
        size = len(template[names[0]])
        arrays = {name: np.array(template[name], object) for name in names[:40]}
        own = {
            name: np.array([v is not None and frequency[v] == 1 for v in of], bool)
            for name, of in arrays.items()
        }
        for _ in range(min(count - number, 1 + int(random.poisson(19)))):
            width = min(len(arrays), int(random.integers(3, 9)))
            rows = min(size, int(random.lognormal(4.3, 1.2)) + 5, 5000)
            # Neighbouring rows, as a table of one year or state has them, or rows of all.
            first = int(random.integers(size - rows + 1))
            which = (
                np.arange(first, first + rows)
                if random.random() < 0.5
                else random.choice(size, rows, replace=False)
            )
            family = f" {number // 20}"
            made = {}
            for name in random.choice(list(arrays), width, replace=False).tolist():
                cells_of, owned = arrays[name][which], own[name][which]
                made[name] = pa.array(
                    [v + family if o else v for v, o in zip(cells_of, owned, strict=True)],
                    pa.string(),
                )
            pq.write_table(pa.table(made), out / f"t{number:06}.parquet")
            number += 1


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("mate", "baseball", "times", "alike"))
    parser.add_argument("where", help="a folder, or the number of tables")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--like", type=Path, help="the folder of real tables, for alike")
    parser.add_argument("--keep", type=Path, help="where alike keeps what it makes")
    options = parser.parse_args()
    if options.what == "mate":
        mate(Path(options.where))
    elif options.what == "baseball":
        baseball(Path(options.where))
    elif options.what == "times":
        times(Path(options.where), options.queries)
    else:
        alike(int(options.where), options.queries, options.like, options.keep)


if __name__ == "__main__":
    main()
