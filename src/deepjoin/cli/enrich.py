"""`deepjoin enrich`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deepjoin.cli.arguments import FORMAT, INDEX, Argument, share, whole
from deepjoin.cli.output import print_json, progress_bar, say
from deepjoin.errors import DeepJoinError

SUMMARY = "add columns of the lake that help to predict a column of yours"
EPILOG = """\
examples:
  deepjoin enrich data/ houses.csv --target price -o enriched.parquet
  deepjoin enrich data/ houses.csv --target price --sql
  deepjoin enrich data/ houses.csv               what could be added at all
  deepjoin enrich data/ houses.csv --about income
  deepjoin enrich data/ sales.csv --target units --as-of date

Every key of your table is searched, and joins that make sense are made, up to --depth in a row; a
row that meets several gets their count, mean, least and largest, or the most frequent value.
Columns that tell the target more than shuffled ones are kept. The gain is measured by
cross-validation, on rows that the choice of columns has not seen, with an interval; nothing is
added unless it lies above 0. Ctrl-C ends the search for joins, then the measuring: you get the best
by then."""


ARGUMENTS = (
    INDEX,
    Argument("file FILE", "your table, or one of the lake"),
    Argument("--target COLUMN", "the column to predict"),
    Argument("--depth N", "joins in a row, 1 to 3", whole(1), 2),
    Argument("--seconds S", "time for joining and measuring", whole(0), 60),
    Argument("--tables N", "most tables to join", whole(1), 40),
    Argument("--least P", "least chance that a join makes sense", share, 0.3),
    Argument(
        "--keys -c KEY...", "join only on this column, or COLUMN=COLUMN; repeatable", default=[]
    ),
    (
        Argument(
            "--as-of COLUMN",
            "of several rows take the latest that is not later than this date or number of yours",
            default="",
        ),
        Argument(
            "--ranges COLUMN",
            "of several rows take the one whose two bounds hold this date or number of yours",
            default="",
        ),
    ),
    Argument("--leaks", "use columns that give it away"),
    Argument("--about WORDS", "without a target: what could be added on a subject"),
    Argument("--sql", "print the joins as SQL"),
    Argument("--rejected", "also list what was not used"),
    Argument("-o --out OUT", ".parquet or .csv"),
    FORMAT,
)


@contextmanager
def _ctrl_c_to_stop() -> Iterator[None]:
    """Let Ctrl-C end the enrichment early, where it would end the command."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def run(options: argparse.Namespace) -> None:
    """Enrich a table and write it."""
    from deepjoin.cli.opening import open_or_index
    from deepjoin.joining.output import check_output, write_table
    from deepjoin.settings import EnrichSettings, fields_of
    from deepjoin.show.text import Screen, aligned, render_enrichment

    if options.about is not None and options.target is not None:
        raise DeepJoinError("`about` looks through what could be added. Leave out `target`.")
    if options.out:
        check_output(Path(options.out))  # before any work is done
    lake = open_or_index(options.index)
    given = fields_of(EnrichSettings, options) | {"keys": tuple(options.keys)}
    with _ctrl_c_to_stop(), progress_bar("tables") as progress:
        found = lake.enrich(
            options.file,
            options.target,
            depth=options.depth,
            settings=EnrichSettings(**given),
            progress=progress,
        )
    if found.stopped:
        why = {"time": "Time was up", "interrupted": "Interrupted"}[found.stopped]
        say(f"{why}: this is the best by then.")
    if options.about is not None:
        found = replace(found, offers=found.about(options.about))
    if options.out:
        write_table(found.table, Path(options.out))
        say(f"{found.table.num_rows:,} rows in {options.out}")
    if options.format == "json":
        print_json(found.to_dict())
    elif options.sql:
        print(found.sql)
    else:
        screen = Screen.of(sys.stdout)
        print(render_enrichment(found.to_dict(), screen))
        if options.rejected and found.rejected:
            rows = [("not used", "column", "via", "because it")]
            rows += [(one.table, one.column, one.via, one.reason) for one in found.rejected]
            print(aligned(rows, screen))
