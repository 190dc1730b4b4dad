"""`deepjoin remove`."""

from __future__ import annotations

import argparse

from deepjoin.cli.arguments import FORMAT, INDEX, Argument
from deepjoin.cli.output import print_tables

SUMMARY = "remove tables from a lake; their files stay"
EPILOG = """\
examples:
  deepjoin remove my.index geo/old.csv
  deepjoin remove my.index 'tmp/*'

`deepjoin index` does not bring them back; `deepjoin add` does."""


ARGUMENTS = (
    INDEX,
    Argument("tables TABLE...", "a name or a 'pattern'"),
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Remove tables from a lake."""
    from deepjoin.cli.opening import open_index

    lake = open_index(options.index)
    print_tables("Removed", lake.remove(*options.tables), lake, options.format)
