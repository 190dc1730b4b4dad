"""`deepjoin remove`."""

from __future__ import annotations

import argparse

from deepjoin.cli.arguments import format_argument, index_argument
from deepjoin.cli.output import print_tables

SUMMARY = "remove tables from a lake; their files stay"
EPILOG = """\
examples:
  deepjoin remove my.index geo/old.csv
  deepjoin remove my.index 'tmp/*'

`deepjoin index` does not bring them back; `deepjoin add` does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options."""
    index_argument(parser)
    parser.add_argument("tables", metavar="TABLE", nargs="+", help="a name or a 'pattern'")
    format_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Remove tables from a lake."""
    from deepjoin.cli.opening import open_index

    lake = open_index(options.index)
    print_tables("Removed", lake.remove(*options.tables), lake, options.format)
