"""`deepjoin info`."""

from __future__ import annotations

import argparse
import json

from deepjoin.cli.opening import described_vectors, human_size, left_out_lines, open_or_index
from deepjoin.lake import Lake
from deepjoin.show.render import aligned
from deepjoin.show.terminal import printable


def run(options: argparse.Namespace) -> None:
    """Describe the whole index, or one of its tables."""
    lake = open_or_index(options.index)
    if options.table:
        _print_table(lake, options.table, options.format)
    elif options.format == "json":
        print(json.dumps(lake.info(), ensure_ascii=False))
    else:
        _print_lake(lake)


def _print_lake(lake: Lake) -> None:
    info = lake.info()
    print(f"{lake.location}: {info['tables']:,} tables, {info['columns']:,} indexed columns")
    print(f"{info['values']:,} distinct values in {info['cells']:,} cells")
    print(
        f"{human_size(info['bytes'])} on disk, format {info['format']}, deepjoin {info['version']}"
    )
    if info["segments"] > 1:
        print(f"{info['segments']} segments (deepjoin compact makes them one)")
    if info["settings"]["hash_only"]:
        print("hashes only: no values are stored")
    print(printable(f"encoded: {described_vectors(lake)}"))
    for source in info["sources"]:
        print(printable(f"source: {source['kind']} {source.get('url') or source.get('root', '')}"))
    if info["excluded"]:
        print(printable(f"taken out: {_shortened(info['excluded'])}"))
    for line in left_out_lines(lake, shown=1000):
        print(printable(line))
    for note in info["notes"]:
        print(printable(f"mended: {note['table']}: {note['note']}"))


def _shortened(names: list[str], shown: int = 10) -> str:
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _print_table(lake: Lake, name: str, form: str) -> None:
    entry = lake.table(name)
    if form == "json":
        columns = [vars(column) for column in entry.columns]
        print(json.dumps(vars(entry) | {"columns": columns}, ensure_ascii=False))
        return
    print(printable(f"{entry.name}: {entry.title}, {entry.rows:,} rows"))
    rows = [
        (c.name, c.type, f"{c.distinct:,}", f"left out: {c.left_out}" if c.left_out else "indexed")
        for c in entry.columns
    ]
    print(aligned([("column", "type", "distinct", ""), *rows]))
    for note in entry.notes:
        print(printable(f"mended: {note}"))
