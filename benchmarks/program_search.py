"""Columns that join only by a program: whether search finds them, and what their index costs.

``python benchmarks/program_search.py CORPUS [--columns N] [--queries N]`` takes a folder with
columns.parquet. Queries are columns of the corpus rewritten: names as `F. Last` or `Last, First`,
ISO dates as month/day/year, numbers with zeros in front. A query counts as found if its own column
is among the ten best hits of join any; the same without signatures stands beside it.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.parquet as pq

import deepjoin
from common import emit, machine, show, versions
from deepjoin import SearchSettings
from deepjoin.model import Column
from deepjoin.store.values.signatures import SIGNATURE_FILES, write_signatures

_NAME = re.compile(r"[A-Z][a-z]+ [A-Z][a-z]+")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_NUMBER = re.compile(r"[1-9]\d{2,5}")
Rewrite = Callable[[str], str]
REWRITES: dict[str, tuple[re.Pattern[str], Rewrite]] = {
    "F. Last": (_NAME, lambda cell: f"{cell[0]}. {cell.split()[1]}"),
    "Last, First": (_NAME, lambda cell: ", ".join(reversed(cell.split()))),
    "month/day/year": (_DATE, lambda cell: _DATE.sub(r"\2/\3/\1", cell)),
    "zeros in front": (_NUMBER, lambda cell: cell.rjust(8, "0")),
}


def queries(rows: list[dict[str, object]], most: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield rewritten columns: the rule, the column's id, the cells."""
    for rule, (pattern, rewrite) in REWRITES.items():
        count = 0
        for row in rows:
            cells = [str(cell) for cell in row["cells"]]  # type: ignore[attr-defined]
            good = list(dict.fromkeys(cell for cell in cells if pattern.fullmatch(cell)))
            if len(good) >= 10 and len(good) >= 0.8 * len(set(cells)) and count < most:
                count += 1
                yield rule, str(row["column_id"]), [rewrite(cell) for cell in good]


def main() -> None:
    """Index, search, and print a line a rule."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=40)
    options = parser.parse_args()
    emit("machine", **machine(), **versions())
    table = pq.read_table(options.corpus / "columns.parquet")
    chosen = random.Random(1).sample(range(len(table)), min(options.columns, len(table)))
    part = table.take(sorted(chosen))
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        pq.write_table(part, corpus / "columns.parquet")
        began = perf_counter()
        lake = deepjoin.index(corpus, Path(folder) / "index")
        built = perf_counter() - began
        (segment,) = lake.index.segments
        again = Path(folder) / "again"
        again.mkdir()
        for name in ("values.offsets.npy", "values.bytes.npy"):
            (again / name).write_bytes((segment.folder / name).read_bytes())
        began = perf_counter()
        write_signatures(again)
        signing = perf_counter() - began
        size = sum((again / f"{name}.npy").stat().st_size for name in SIGNATURE_FILES)
        whole = sum(file.stat().st_size for file in (lake.path).rglob("*") if file.is_file())
        values = len(segment.values.hashes)
        emit("signatures", columns=len(part), values=values, bytes=size, index_bytes=whole,
             bytes_per_value=size / values, seconds=signing, build_seconds=built)  # fmt: skip
        rows: list[list[object]] = [["rule", "queries", "found", "without", "ms", "ms without"]]
        asked = list(queries(part.to_pylist(), options.queries))
        for rule in REWRITES:
            mine = [(target, cells) for name, target, cells in asked if name == rule]
            found: dict[bool, list[bool]] = {True: [], False: []}
            times: dict[bool, list[float]] = {True: [], False: []}
            for target, cells in mine:
                for programs in (False, True):
                    began = perf_counter()
                    settings = SearchSettings(programs=programs, matches=0)
                    hits = lake.search(Column(cells), 10, join="any", settings=settings)
                    times[programs].append(perf_counter() - began)
                    found[programs].append(target in [hit.column_id for hit in hits])
            if mine:
                shares = [float(np.mean(found[way])) for way in (True, False)]
                medians = [float(np.median(times[way])) * 1000 for way in (True, False)]
                emit("program_search", rule=rule, queries=len(mine), found=shares[0],
                     without=shares[1], ms=medians[0], ms_without=medians[1])  # fmt: skip
                rows.append([rule, len(mine), *shares, *(f"{one:.0f}" for one in medians)])
        show(rows)


if __name__ == "__main__":
    main()
