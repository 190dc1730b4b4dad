"""`deepjoin info`."""

from __future__ import annotations

import argparse
import sys

from deepjoin.cli.arguments import FORMAT, INDEX, Argument
from deepjoin.cli.output import described_vectors, human_size, left_out_lines, print_json
from deepjoin.show.text import Screen, printable, render_entry, some

SUMMARY = "describe an index: what it holds, what was left out, and why"
EPILOG = ""

#: How many removed tables are named.
_NAMED = 10


ARGUMENTS = (
    INDEX,
    Argument("table [TABLE]", "one table, column by column"),
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Describe the whole index, or one of its tables."""
    from deepjoin.cli.opening import open_or_index

    lake = open_or_index(options.index)
    if options.table:
        entry = lake.table(lake.index.full_name(options.table))
        if options.format == "json":
            print_json(vars(entry) | {"columns": [vars(column) for column in entry.columns]})
        else:
            print(render_entry(entry, Screen.of(sys.stdout)))
    elif options.format == "json":
        print_json(lake.info())
    else:
        info = lake.info()
        lines = [
            f"{lake.location}: {info['tables']:,} tables, {info['columns']:,} indexed columns",
            f"{info['values']:,} distinct values in {info['cells']:,} cells",
            f"{human_size(info['bytes'])} on disk, format {info['format']}, "
            f"deepjoin {info['version']}",
        ]
        if info["segments"] > 1:
            lines.append(f"{info['segments']} segments (deepjoin compact merges them)")
        if info["settings"]["hash_only"]:
            lines.append("hashes only: no values are stored")
        lines.append(f"encoded: {described_vectors(lake)}")
        for source in info["sources"]:
            lines.append(f"source: {source['kind']} {source.get('url') or source.get('root', '')}")
        if info["excluded"]:
            lines.append(f"removed: {some(info['excluded'], _NAMED)}")
        lines += left_out_lines(lake, named=1000)
        lines += [f"repaired: {note['table']}: {note['note']}" for note in info["notes"]]
        print("\n".join(map(printable, lines)))
