"""`deepjoin feedback`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import FORMAT, SOURCE, Argument, join_end
from deepjoin.cli.output import print_json, say
from deepjoin.show.text import Screen, aligned, printable

if TYPE_CHECKING:
    from deepjoin.lake import JoinEnd, Lake

SUMMARY = "accept or reject joins: what people said ranks before all that is measured"
EPILOG = """\
examples:
  deepjoin feedback shop.sqlite --accept orders:customer customers:id
  deepjoin feedback data/ --reject orders.csv:month births.csv:ibu
  deepjoin feedback data/ --accept :customer crm/clients.csv:name   a column of your own files
  deepjoin feedback data/ -o feedback.json           to keep, or to --import elsewhere

CHILD and PARENT are TABLE:COLUMN, or TABLE:COLUMN,COLUMN,... for a key of several columns. Without
a table, CHILD is a column of that name in tables that are not in the lake. Decisions are kept
beside the index; relations, searches and paths show and use them at once."""


ARGUMENTS = (
    SOURCE,
    *(
        Argument(f"--{option} CHILD PARENT", f"{text}; repeatable", join_end, [], action="append")
        for option, text in (
            ("accept", "this join makes sense"),
            ("reject", "this join makes no sense"),
            ("forget", "remove the decision on this join"),
        )
    ),
    Argument("--import FILE", "add the decisions of a file", dest="import_file"),
    Argument("-o --out FILE", "write all decisions to a JSON file"),
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Change decisions, then list or write them."""
    from deepjoin.cli.opening import open_or_index_source

    lake = open_or_index_source(options.index)
    if options.import_file:
        say(f"{lake.feedback.read(options.import_file):,} decisions of {options.import_file}")
    for what in ("accept", "reject", "forget"):
        for child, parent in getattr(options, what):
            ends = _named(lake, child), _named(lake, parent)
            if getattr(lake, what)(*ends) is False:
                say(f"Nothing was said of {printable(_shown(*child))}.")
    if options.out:
        say(f"{lake.feedback.write(options.out):,} decisions in {options.out}")
        return
    if options.format == "json":
        found = {"index": str(lake.location)} | lake.feedback.to_dict()
        print_json(found)
        return
    if not lake.feedback:
        print("Nobody has accepted or rejected a join of this lake.")
        return
    rows = [["", "child", "parent", "when"]]
    for one in lake.feedback:
        child = _shown(one.child_table, one.child_columns)
        parent = _shown(one.parent_table, one.parent_columns)
        rows.append([one.text, printable(child), printable(parent), one.at])
    print(aligned(rows, Screen.of(sys.stdout)))


def _named(lake: Lake, end: tuple[str, list[str]]) -> JoinEnd:
    """Complete the name of a table; a column of tables outside the lake is its name alone."""
    table, columns = end
    if not table:
        return columns[0] if len(columns) == 1 else {"table": "", "columns": columns}
    return lake.index.full_name(table), columns


def _shown(table: str, columns: list[str] | tuple[str, ...]) -> str:
    return f"{table}:{','.join(columns)}"
