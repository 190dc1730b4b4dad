"""`deepjoin demo`: every step on a small lake, each with the command that does it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import Argument
from deepjoin.cli.output import print_records

if TYPE_CHECKING:
    from deepjoin.demo import DemoLake
    from deepjoin.lake import Lake
    from deepjoin.model import Hit

SUMMARY = "write a small lake, index it, search it, join it"
EPILOG = ""

_PREVIEW = 5


ARGUMENTS = (Argument("folder [DIR]", "default: deepjoin-demo", default="deepjoin-demo"),)


def run(options: argparse.Namespace) -> None:
    """Write the lake, index it, search it, explain, and join: by equality, then by meaning."""
    from deepjoin.cli.opening import index_with_progress
    from deepjoin.demo import write_demo_lake

    folder = Path(options.folder)
    demo = write_demo_lake(folder)
    print(f"A lake of {len(demo.tables)} tables is in {demo.folder}, your orders in {demo.query}.")

    # Column vectors are for the paper's method, which someone who tries this may want to try too.
    print(f"\n$ deepjoin index {demo.folder} --encoder default")
    lake = index_with_progress(demo.folder, vectors={"encoder": "default"})
    best = _search(lake, demo, demo.query_column, "equi", 8)
    print(f"\nnot in {best.table}: {', '.join(best.unmatched)}")
    print(f"{best.table} would bring: {', '.join(best.brings.columns)}")
    _join(lake, demo, demo.query_column, best, folder / "orders-with-countries.csv")

    print("\nThe CRM export has your customers in capitals, without Ltd or GmbH.")
    found = _search(lake, demo, demo.meaning_column, "semantic", 3)
    _join(lake, demo, demo.meaning_column, found, folder / "orders-with-clients.csv")
    print(f"\nIn the browser, with the extra 'server': deepjoin serve {demo.folder} --open")


def _search(lake: Lake, demo: DemoLake, column: str, join: str, k: int) -> Hit:
    from deepjoin.read.frames import file_table, read_columns
    from deepjoin.show.text import Screen, render_table

    print(f"\n$ deepjoin search {demo.folder} {demo.query} -c {column} --join {join} -k {k}")
    (query,) = read_columns(file_table(demo.query), column)
    results = lake.search(query, k, join=join)
    print(render_table(results, Screen.of(sys.stdout)))
    return results[0]


def _join(lake: Lake, demo: DemoLake, column: str, hit: Hit, out: Path) -> None:
    target = f"{hit.table}:{hit.column}"
    command = f"deepjoin join {demo.folder} {demo.query} -c {column} --with {target}"
    print(f"\n$ {command} --join {hit.join} -o {out}")
    with lake.plan_join(demo.query, column, hit, join=hit.join) as plan:
        first = plan.preview(_PREVIEW)
        print_records(first.to_pylist(), first.column_names, "table")
        print(f"\n{plan.write(out):,} rows in {out}")
