"""`deepjoin path`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import FORMAT_OR_CSV, ROWS, SOURCE, TABLE_OUT, Argument, share, whole
from deepjoin.cli.output import print_json, print_records, say
from deepjoin.errors import DeepJoinError
from deepjoin.show.text import printable

if TYPE_CHECKING:
    from deepjoin.model import JoinPaths

SUMMARY = "find how two tables join through others, and run it as one join"
EPILOG = """\
examples:
  deepjoin path shop.sqlite customers products
  deepjoin path shop.sqlite customers products --run          the first rows of the first path
  deepjoin path shop.sqlite customers products --run 2 -o out.parquet
  deepjoin path shop.sqlite customers products --sql          one statement for the first path

Paths are ordered by the product of the probabilities of their joins and, where that is about the
same, by how many rows one row becomes on the way."""

_PREVIEW = 10


ARGUMENTS = (
    SOURCE,
    Argument("start FROM", "the table to start from"),
    Argument("end TO", "the table to get to"),
    Argument(
        "--min-joinability T",
        "least share of one column's distinct values found in the other",
        share,
        0.5,
    ),
    Argument("--longest N", "most joins of a path", whole(1), 4),
    Argument("--run [N]", "join along path N (default 1)", whole(1), dest="joined", const=1),
    Argument("--sql [N]", "print the SQL of path N", whole(1), const=1),
    *ROWS,
    TABLE_OUT,
    FORMAT_OR_CSV,
)


def run(options: argparse.Namespace) -> None:
    """List the paths between two tables, or run one of them."""
    from deepjoin.cli.opening import open_or_index_source
    from deepjoin.joining.output import writing_options

    # Refuse a wrong extension before any work is done.
    if options.out:
        writing_options(Path(options.out))
        options.joined = options.joined or 1
    lake = open_or_index_source(options.index)
    ends = lake.index.full_name(options.start), lake.index.full_name(options.end)
    found = lake.paths(*ends, min_joinability=options.min_joinability, longest=options.longest)
    chosen = options.joined or options.sql
    if chosen is None:
        _list(found, options)
        return
    if chosen > len(found.paths):
        raise DeepJoinError(
            f"There are {len(found.paths)} paths from {ends[0]} to {ends[1]}, and path {chosen} is "
            "not one of them. List them without --run and --sql."
        )
    with lake.join_path(found.paths[chosen - 1], how=options.how, many=options.many) as chain:
        for warning in chain.warnings:
            say(f"warning: {warning}")
        if options.joined is None:
            print(chain.sql)
        elif options.out:
            say(f"{chain.write(Path(options.out)):,} rows in {options.out}")
        else:
            first = chain.preview(_PREVIEW)
            print_records(first.to_pylist(), first.column_names, options.format)
            say(f"{chain.rows:,} rows result")


def _list(found: JoinPaths, options: argparse.Namespace) -> None:
    if options.format == "json":
        print_json(found.to_dict())
        return
    if not found.paths:
        sure = "" if found.complete else " The search was cut short, so there may be one."
        print(f"No path of at most {options.longest} joins.{sure}")
    of_each = zip(found.paths, found.probabilities, found.fan_outs, strict=True)
    for number, (path, chance, fan_out) in enumerate(of_each, 1):
        rows = f", about {fan_out:,.1f} rows for one" if fan_out > 1 else ""
        print(f"{number}. probability {chance:.2f}{rows}")
        for edge in path:
            ends = f"{edge.a.table}.{edge.a.column} = {edge.b.table}.{edge.b.column}"
            said = f", {edge.decided} by a person" if edge.decided else ""
            print(f"   {printable(ends)}  {edge.cardinality}  {edge.probability:.2f}{said}")
