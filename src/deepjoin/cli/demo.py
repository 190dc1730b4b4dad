"""`deepjoin demo`: the whole story on a small lake, each step with the command that does it."""

from __future__ import annotations

import argparse
from pathlib import Path

from deepjoin.cli.opening import index_with_progress
from deepjoin.demo import DemoLake, write_demo_lake
from deepjoin.joining import JoinPlan
from deepjoin.lake import Lake
from deepjoin.model import Hit
from deepjoin.read.frames import file_table, read_columns
from deepjoin.show.render import aligned, render_table

_SHOWN = 5


def run(options: argparse.Namespace) -> None:
    """Write the lake, index it, search it, say why, and join: by equality, then by meaning."""
    folder = Path(options.folder)
    demo = write_demo_lake(folder)
    print(f"A lake of {len(demo.tables)} tables is in {demo.folder}, your orders in {demo.query}.")

    _step(f"deepjoin index {demo.folder}")
    lake = index_with_progress(demo.folder)
    best = _search(lake, demo, demo.query_column, "equi")
    print(f"\n{best.table} lacks: {', '.join(best.unmatched)}")
    print(f"It would bring: {', '.join(best.brings.columns)}")
    _join(lake, demo, demo.query_column, best, folder / "orders-with-countries.csv")

    print("\nThe export of the sales people has your customers in capitals, without Ltd or GmbH.")
    found = _search(lake, demo, demo.meaning_column, "semantic")
    _join(lake, demo, demo.meaning_column, found, folder / "orders-with-clients.csv")
    print(f"\nIn the browser, with the extra 'server': deepjoin serve {demo.folder} --open")


def _search(lake: Lake, demo: DemoLake, column: str, join: str) -> Hit:
    _step(f"deepjoin search {demo.folder} {demo.query} -c {column} --join {join} -k 8")
    (query,) = read_columns(file_table(demo.query), column)
    results = lake.search(query, 8, join=join)
    print(render_table(results))
    return results[0]


def _join(lake: Lake, demo: DemoLake, column: str, hit: Hit, out: Path) -> None:
    target = f"{hit.table}:{hit.column}"
    command = f"deepjoin join {demo.folder} {demo.query} -c {column} --with {target}"
    _step(f"{command} --join {hit.join} -o {out}")
    with lake.plan_join(demo.query, column, hit, join=hit.join) as plan:
        _show(plan)
        print(f"\n{plan.write(out):,} rows in {out}")


def _show(plan: JoinPlan) -> None:
    preview = plan.preview(_SHOWN)
    cells = [["" if v is None else str(v) for v in row.values()] for row in preview.to_pylist()]
    print(aligned([preview.column_names, *cells], widest=18))


def _step(command: str) -> None:
    print(f"\n$ {command}")
