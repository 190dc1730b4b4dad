"""`deepjoin match`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deepjoin.cli.arguments import FORMAT_OR_CSV, JUDGING, TABLE_OUT, Argument
from deepjoin.cli.output import print_json, print_records, say, say_doubtful
from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.show.text import Screen, count, one_line, render_matches

SUMMARY = "match the values of two columns of two files"
EPILOG = """\
examples:
  deepjoin match orders.csv clients.csv --left-column customer --right-column name
  deepjoin match a.csv b.csv -c name --format csv -o pairs.csv
  deepjoin match staff.csv payroll.csv -c name --join equi
  deepjoin match a.csv b.csv -c name --precision 0.95
  deepjoin match a.csv b.csv -c name --doubtful check.csv     then mark the pairs in check.csv
  deepjoin match a.csv b.csv -c name --decisions check.csv

Values match if they are equal up to case, white space and number format; if a program that explains
many of them rewrites one to the other, as 'Last, First' to 'First Last' or 03/01/2020 to
2020-03-01; or if they are similar and very probably the same thing. The program is shown in words
and in SQL (pandas code in --format json), with the estimated precision of all pairs. A column can
be left out where a file has one column."""


ARGUMENTS = (
    Argument("left LEFT", "a file with the values to find"),
    Argument("right RIGHT", "a file with the values to find them among"),
    Argument("-c --column COLUMN", "the column, in both files"),
    Argument("--left-column COLUMN", "the column of LEFT"),
    Argument("--right-column COLUMN", "the column of RIGHT"),
    Argument(
        "--join",
        "any (default): equal values, then by program, then similar ones; equi: only equal ones; "
        "semantic: equal and similar ones",
        ("any", "equi", "semantic"),
        "any",
    ),
    *JUDGING,
    TABLE_OUT,
    FORMAT_OR_CSV,
)


def run(options: argparse.Namespace) -> None:
    """Match and show, or write the pairs."""
    import duckdb

    from deepjoin.joining.output import writing_options
    from deepjoin.matching.entry import match
    from deepjoin.read.frames import file_table, read_columns

    if options.out:
        how = writing_options(Path(options.out))  # refuse a wrong ending before any work is done
    sides = []
    for side in ("left", "right"):
        path = Path(getattr(options, side)).expanduser()
        table = file_table(path)
        name = getattr(options, f"{side}_column") or options.column
        columns = read_columns(table, name)
        if len(columns) != 1:
            names = ", ".join(one.name for one in columns[:12])
            raise DeepJoinError(
                f"{path} has {len(columns)} columns; name one with --{side}-column: {names}."
            )
        sides.append(columns[0])
    found = match(
        *sides,
        join=options.join,
        precision=options.precision,
        decisions=options.decisions,
        doubtful=options.doubtful,
    )
    if options.doubtful:
        say_doubtful(options.doubtful)
    if options.out:
        with written_aside(Path(options.out)) as aside:
            pairs = duckdb.from_arrow(found.to_arrow())
            # Reading tables takes a third of a second to import; other commands come by here.
            from deepjoin.read.sql import literal

            pairs.query("pairs", f"COPY pairs TO {literal(str(aside))} ({how})")
        say(f"{count(len(found), 'pair')} in {options.out}")
    elif options.format == "json":
        print_json(found.to_dict())
    elif options.format == "csv":
        records = [one._asdict() for one in found]
        print_records(records, ["query", "target", "similarity", "how"], "csv")
    else:
        print(render_matches(found, Screen.of(sys.stdout)))
        return
    say(f"{len({one.query for one in found}):,} of {found.sizes[0]:,} values match")
    for program in found.programs:
        say(f"program: {one_line(program.text, 200)} ({program.covering})")
