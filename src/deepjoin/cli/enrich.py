"""`deepjoin enrich`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deepjoin.cli.arguments import format_argument, index_argument, share, whole
from deepjoin.cli.output import progress_bar, say
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options."""
    index_argument(parser)
    parser.add_argument("file", metavar="FILE", help="your table, or one of the lake")
    parser.add_argument("--target", metavar="COLUMN", help="the column to predict")
    parser.add_argument(
        "--depth", metavar="N", type=whole(1), default=2, help="joins in a row, 1 to 3 (default 2)"
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=whole(0),
        default=60,
        help="time for joining and measuring (default 60)",
    )
    parser.add_argument(
        "--tables", metavar="N", type=whole(1), default=40, help="most tables to join (default 40)"
    )
    parser.add_argument(
        "--least",
        metavar="P",
        type=share,
        default=0.3,
        help="least chance that a join makes sense (default 0.3)",
    )
    parser.add_argument(
        *("--keys", "-c"),
        metavar="KEY",
        action="append",
        default=[],
        help="join only on this column, or COLUMN=COLUMN; repeatable",
    )
    ordered = parser.add_mutually_exclusive_group()
    ordered.add_argument(
        *("--as-of",),
        metavar="COLUMN",
        default="",
        help="of several rows take the latest that is not later than this date or number of yours",
    )
    ordered.add_argument(
        "--ranges",
        metavar="COLUMN",
        default="",
        help="of several rows take the one whose two bounds hold this date or number of yours",
    )
    parser.add_argument("--leaks", action="store_true", help="use columns that give it away")
    parser.add_argument(
        "--about", metavar="WORDS", help="without a target: what could be added on a subject"
    )
    parser.add_argument("--sql", action="store_true", help="print the joins as SQL")
    parser.add_argument("--rejected", action="store_true", help="also list what was not used")
    parser.add_argument("-o", "--out", metavar="OUT", help=".parquet or .csv")
    format_argument(parser)


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
    from deepjoin.enriching.output import check_output, write_table
    from deepjoin.settings import EnrichSettings
    from deepjoin.show.text import Screen, aligned, render_enrichment

    if options.about is not None and options.target is not None:
        raise DeepJoinError("`about` looks through what could be added. Leave out `target`.")
    if options.out:
        check_output(Path(options.out))  # before any work is done
    lake = open_or_index(options.index)
    settings = EnrichSettings(
        tables=options.tables,
        seconds=options.seconds,
        least=options.least,
        keys=tuple(options.keys),
        leaks=options.leaks,
        as_of=options.as_of,
        ranges=options.ranges,
    )
    with _ctrl_c_to_stop(), progress_bar("tables") as progress:
        found = lake.enrich(
            options.file, options.target, depth=options.depth, settings=settings, progress=progress
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
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    elif options.sql:
        print(found.sql)
    else:
        screen = Screen.of(sys.stdout)
        print(render_enrichment(found.to_dict(), screen))
        if options.rejected and found.rejected:
            rows = [("not used", "column", "via", "because it")]
            rows += [(one.table, one.column, one.via, one.reason) for one in found.rejected]
            print(aligned(rows, screen))
