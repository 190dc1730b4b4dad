"""`deepjoin add`."""

from __future__ import annotations

import argparse

from deepjoin.cli.arguments import FORMAT, INDEX, MEMORY, Argument
from deepjoin.cli.output import print_tables, progress_bar

SUMMARY = "index more tables into a lake"
EPILOG = """\
examples:
  deepjoin add my.index new/orders.csv
  deepjoin add my.index postgresql://me@db/shop

Tables that came from the same files are replaced. `deepjoin index` refreshes added tables too."""


ARGUMENTS = (
    INDEX,
    Argument("source SOURCE...", "as for deepjoin index; inside or outside the indexed folder"),
    MEMORY,
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Index more tables into a lake."""
    from deepjoin.build.pipeline import add_tables
    from deepjoin.cli.opening import build_resources, open_index

    lake = open_index(options.index)
    source = options.source if len(options.source) > 1 else options.source[0]
    with progress_bar() as progress:
        resources = build_resources(options.memory, progress, lake.device)
        names = add_tables(lake.location, source, resources)
    lake.reopen()
    print_tables("Added", names, lake, options.format)
