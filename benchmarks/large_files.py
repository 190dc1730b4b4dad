"""Large CSV files: index one in a separate process, and join two against DuckDB's own join.

Writes its files to FOLDER, which may then be removed: `large.csv` (a key, three codes that
repeat, two numbers, a text) and, for the join, `left.csv` and `right.csv`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

import deepjoin
from common import emit, in_child, machine, memory, say

_BLOCK = 500_000
_SEED = 0


def blocks(rows: int, keys: int) -> Iterator[pa.Table]:
    """Generate a table of codes, numbers and text in blocks."""
    rng = np.random.default_rng(_SEED)
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        number = np.arange(start, start + count)
        yield pa.table(
            {
                "id": [f"ID-{n:09}" for n in (number if keys >= rows else number % keys).tolist()],
                "city": [f"City {n}" for n in rng.integers(50_000, size=count).tolist()],
                "product": [f"P{n:06}" for n in rng.integers(200_000, size=count).tolist()],
                "day": [f"2024-{m:02}-{d:02}" for m, d in rng.integers(1, 13, (count, 2)).tolist()],
                "amount": rng.integers(100_000, size=count),
                "weight": rng.random(count).round(6),
            }
        )


def write(path: Path, rows: int, keys: int) -> None:
    """Write such a table as CSV, once."""
    if path.exists():
        return
    made = blocks(rows, keys)
    first = next(made)
    with arrow_csv.CSVWriter(path, first.schema) as writer:
        writer.write_table(first)
        for block in made:
            writer.write_table(block)


def index(path: str, out: str) -> None:
    """Index one file and print time and memory."""
    started = perf_counter()
    lake = deepjoin.index(path, out, build=deepjoin.BuildSettings(rebuild=True))
    seconds = perf_counter() - started
    found = {"seconds": seconds, "columns": lake.report.columns, "values": lake.report.values}
    print(json.dumps(found | {"index_mb": lake.info()["bytes"] / 1e6} | memory()))


def join(folder: str, ours: str) -> None:
    """Join left.csv with right.csv to Parquet, by us or by DuckDB alone, and print the same."""
    left, right = Path(folder, "left.csv"), Path(folder, "right.csv")
    out = Path(folder, "joined.parquet")
    started = perf_counter()
    if ours == "deepjoin":
        lake = deepjoin.open(Path(folder, "right.index"))
        with lake.plan_join(left, "id", ("right.csv", "id")) as plan:
            rows = plan.write(out)
    else:
        order = "ORDER BY n" if ours == "duckdb ordered" else ""
        query = f"""SELECT l.* EXCLUDE n, r.* FROM
            (SELECT *, row_number() OVER () AS n FROM read_csv('{left}')) l
            LEFT JOIN read_csv('{right}') r ON lower(trim(l.id)) = lower(trim(r.id)) {order}"""
        copied = duckdb.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
        rows = copied.fetchall()[0][0]
    print(json.dumps({"seconds": perf_counter() - started, "rows": rows} | memory()))


def main() -> None:
    """Write the files and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, default=16_000_000, help="of the file to index")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    emit("large_files", machine=machine())
    write(folder / "left.csv", 2_000_000, 100_000)
    write(folder / "right.csv", 100_000, 100_000)
    deepjoin.index(
        folder / "right.csv", folder / "right.index", build=deepjoin.BuildSettings(rebuild=True)
    )
    for who in ("deepjoin", "duckdb", "duckdb ordered"):
        say(f"join: {who}")
        found = in_child("large_files.join", folder, who)
        emit("large_files", what="join", by=who, **found)
    say("one large file")
    write(folder / "large.csv", options.rows, options.rows)
    size = (folder / "large.csv").stat().st_size / 1e6
    found = in_child("large_files.index", folder / "large.csv", folder / "large.index")
    emit("large_files", what="index", mb=size, rows=options.rows, **found)


if __name__ == "__main__":
    main()
