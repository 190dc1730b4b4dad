"""`deepjoin demo`: the whole story on a small lake, each step with the command that does it."""

from __future__ import annotations

import argparse
from pathlib import Path

from deepjoin.cli.opening import index_with_progress
from deepjoin.demo import write_demo_lake
from deepjoin.search.render import aligned, render_table
from deepjoin.sources.reading import file_table, read_columns


def run(options: argparse.Namespace) -> None:
    """Write the lake, index it, search it, say why, and join."""
    folder = Path(options.folder)
    demo = write_demo_lake(folder)
    print(f"A lake of {len(demo.tables)} tables is in {demo.folder}, your orders in {demo.query}.")

    _step(f"deepjoin index {demo.folder}")
    lake = index_with_progress(demo.folder)

    _step(f"deepjoin search {demo.folder} {demo.query} -c {demo.query_column}")
    (column,) = read_columns(file_table(demo.query), demo.query_column)
    results = lake.search(column, 8)
    print(render_table(results))
    best = results[0]
    print(f"\n{best.table} lacks: {', '.join(best.unmatched)}")
    print(f"It would bring: {', '.join(best.brings.columns)}")

    target = f"{best.table}:{best.column}"
    out = folder / "orders-with-countries.csv"
    command = f"deepjoin join {demo.folder} {demo.query} -c {demo.query_column} --with {target}"
    _step(f"{command} -o {out}")
    with lake.plan_join(demo.query, demo.query_column, best) as plan:
        preview = plan.preview(5)
        written = plan.write(out)
    cells = [["" if v is None else str(v) for v in row.values()] for row in preview.to_pylist()]
    print(aligned([preview.column_names, *cells], widest=18))
    print(f"\n{written:,} rows in {out}")


def _step(command: str) -> None:
    print(f"\n$ {command}")
