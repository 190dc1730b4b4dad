"""Reading raw files: the whole index of a folder, our reader alone, and DuckDB alone.

Reads every delimited file of FOLDER (CSV, TSV, DAT and the like) with our reader and with
DuckDB's `read_csv` (default sniffing, all columns as text, fetched as Arrow). Where DuckDB fails
it is run again with its lenient settings, which is counted as an error.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import duckdb
import pyarrow as pa

import deepjoin
from common import Row, command_line, emit, machine, say, show
from deepjoin.errors import UnreadableTable
from deepjoin.read.files import FileSource
from deepjoin.read.formats import format_of

_STRICT = "SELECT * FROM read_csv($path, all_varchar=true)"
_LENIENT = (
    "SELECT * FROM read_csv($path, all_varchar=true, ignore_errors=true, null_padding=true, "
    "strict_mode=false, parallel=false)"
)

_REASON = re.compile(r"\s*\n+(?:Possible|\s+file = )")


@dataclass
class Read:
    """The results of one reader."""

    seconds: float = 0.0
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    #: Files that were read only after the first attempt failed.
    errors: dict[str, str] = field(default_factory=dict)

    def row(self) -> Row:
        """Summarise for the report."""
        cells = sum(rows * columns for rows, columns in self.shapes.values())
        counts = {
            "read": len(self.shapes),
            "refused": len(self.refused),
            "errors": len(self.errors),
        }
        return counts | {"cells": cells}


def read_ours(source: FileSource, names: list[str]) -> Read:
    """Read every file with our reader, cells as Arrow arrays."""
    done = Read()
    started = perf_counter()
    for name in names:
        try:
            rows, columns = 0, set[str]()
            for batch in source.table(name).open():
                rows += batch.num_rows
                columns |= set(batch.schema.names)
            done.shapes[name] = (rows, len(columns))
        except UnreadableTable as error:
            done.refused[name] = str(error)
    done.seconds = perf_counter() - started
    return done


def read_duckdb(source: FileSource, names: list[str]) -> Read:
    """Read every file with DuckDB, as a user would."""
    done = Read()
    started = perf_counter()
    with duckdb.connect() as connection:
        for name in names:
            path = {"path": str(source.root / name)}
            try:
                done.shapes[name] = _shape(connection, _STRICT, path)
            except duckdb.Error as error:
                _read_leniently(connection, path, name, done, str(error))
    done.seconds = perf_counter() - started
    return done


def _shape(
    connection: duckdb.DuckDBPyConnection, query: str, path: dict[str, str]
) -> tuple[int, int]:
    """Fetch everything; a relation would spare DuckDB a copy, but it sniffs every file twice."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        table: pa.Table = connection.execute(query, path).to_arrow_table()
    return table.num_rows, table.num_columns


def _read_leniently(
    connection: duckdb.DuckDBPyConnection, path: dict[str, str], name: str, done: Read, why: str
) -> None:
    try:
        done.shapes[name] = _shape(connection, _LENIENT, path)
        done.errors[name] = why
    except duckdb.Error as error:
        done.refused[name] = str(error)


def index_seconds(folder: Path) -> tuple[float, Row]:
    """Index the whole folder, and report the result."""
    with tempfile.TemporaryDirectory() as out:
        started = perf_counter()
        lake = deepjoin.index(folder, out)
        seconds = perf_counter() - started
        report = lake.report
    counts = {"tables": report.tables, "columns": report.columns, "cells": report.cells}
    return seconds, counts | {
        "skipped": {one.name: one.reason for one in report.skipped},
        "notes": len(report.notes),
    }


def compare(ours: Read, theirs: Read) -> Row:
    """Report files that the two readers read with different shapes."""
    both = ours.shapes.keys() & theirs.shapes.keys()
    differ = {name: [ours.shapes[name], theirs.shapes[name]] for name in sorted(both)}
    differ = {name: shapes for name, shapes in differ.items() if shapes[0] != shapes[1]}
    return {"both_read": len(both), "same_shape": len(both) - len(differ), "differ": differ}


def _reasons(errors: dict[str, str]) -> dict[str, str]:
    """Cut errors to their reasons; DuckDB gives it last, before its proposals and settings."""
    return {
        name: _REASON.split(error.strip())[0].splitlines()[-1] for name, error in errors.items()
    }


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    given = parser.parse_args()
    emit("read_files", folder=given.folder.name, machine=machine())
    source = FileSource([given.folder])
    listed = [table.name for table in source.tables()]
    names = [name for name in listed if format_of(name) == "delimited"]
    size = sum((source.root / name).stat().st_size for name in names)
    emit("read_files", tables=len(listed), delimited=len(names), mb=size / 1e6)
    times: dict[str, list[float]] = {"index": [], "ours": [], "duckdb": []}
    for number in range(given.repeats):
        say(f"repeat {number + 1} of {given.repeats}")
        seconds, built = index_seconds(given.folder)
        ours, theirs = read_ours(source, names), read_duckdb(source, names)
        for name, took in zip(times, (seconds, ours.seconds, theirs.seconds), strict=True):
            times[name].append(took)
    report(times, built, ours, theirs, size)


def report(times: dict[str, list[float]], built: Row, ours: Read, theirs: Read, size: int) -> None:
    """Print the medians, their ratios, and what each reader refused."""
    seconds = {name: median(values) for name, values in times.items()}
    emit("read_files", what="index", seconds=seconds["index"], **built)
    for name, read in (("ours", ours), ("duckdb", theirs)):
        speed = {"seconds": seconds[name], "mb_a_second": size / 1e6 / seconds[name]}
        reasons = {"refusals": _reasons(read.refused), "failures": _reasons(read.errors)}
        emit("read_files", what="read", reader=name, **speed, **read.row(), **reasons)
    ratios = {
        "index_to_duckdb": seconds["index"] / seconds["duckdb"],
        "ours_to_duckdb": seconds["ours"] / seconds["duckdb"],
    }
    emit("read_files", what="compare", **ratios, **compare(ours, theirs))
    rows = [(n, seconds[n], *r.row().values()) for n, r in (("ours", ours), ("duckdb", theirs))]
    whole = (built["tables"], len(built["skipped"]), 0, built["cells"])
    rows.append(("index", seconds["index"], *whole))
    show([("", "seconds", "read", "refused", "errors", "cells"), *rows])
    say(f"most frequent failures of DuckDB: {_common(theirs.errors)}")


def _common(reasons: dict[str, str]) -> str:
    counts = Counter(_reasons(reasons).values())
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common(3)) or "none"


if __name__ == "__main__":
    main()
