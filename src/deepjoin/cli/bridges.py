"""`deepjoin bridges`."""

from __future__ import annotations

import argparse
import sys

from deepjoin.cli.arguments import FORMAT_OR_CSV, INDEX, Argument, share
from deepjoin.cli.output import print_json, print_records
from deepjoin.show.text import Screen, render_bridges

SUMMARY = "find tables in which two keys meet that have nothing in common"
EPILOG = """\
examples:
  deepjoin bridges data/ flights.csv hotels.csv --left-column airport --right-column city
  deepjoin bridges data/ sales.csv regions.csv --left-column country --right-column continent

A table of the lake is a bridge if rows of it have a value of the left key in one column and a value
of the right key in another, as airport codes and cities. Values are compared as in equi-joins.
--format csv lists the pairs of the best bridge, --format json all bridges with their pairs and the
SQL of both joins."""


ARGUMENTS = (
    INDEX,
    Argument("left LEFT", "a file or a table of the lake"),
    Argument("right RIGHT", "a file or a table of the lake"),
    Argument("-c --column COLUMN", "the column, in both tables"),
    Argument("--left-column COLUMN", "the column of LEFT"),
    Argument("--right-column COLUMN", "the column of RIGHT"),
    Argument("--least P", "least share of the values of LEFT that reach one of RIGHT", share, 0.3),
    FORMAT_OR_CSV,
)


def run(options: argparse.Namespace) -> None:
    """Find bridges and show them."""
    from deepjoin.cli.opening import open_or_index

    lake = open_or_index(options.index)
    found = lake.bridges(
        options.left,
        options.right,
        left_on=options.left_column or options.column,
        right_on=options.right_column or options.column,
        least=options.least,
    )
    if options.format == "json":
        print_json(found.to_dict())
    elif options.format == "csv":
        records = [one._asdict() for bridge in found[:1] for one in bridge.matches]
        print_records(records, ["query", "target", "similarity", "how"], "csv")
    else:
        print(render_bridges(found, Screen.of(sys.stdout)))
