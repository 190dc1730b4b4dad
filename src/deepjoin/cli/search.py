"""`deepjoin search`."""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import (
    FORMAT_OR_CSV,
    INDEX,
    VECTOR_STORE,
    Argument,
    cells,
    cosine,
    seconds,
    share,
    whole,
)
from deepjoin.errors import DeepJoinError
from deepjoin.model import FLAT, BetterKey, Column, Hit, Results, flat_row
from deepjoin.progress import Progress, no_progress
from deepjoin.show.text import (
    Screen,
    aligned,
    one_line,
    printable,
    render_table,
    set_apart,
    some,
)

if TYPE_CHECKING:
    from deepjoin.lake import Lake

SUMMARY = "find the columns that join with a column of yours"
EPILOG = """\
examples:
  deepjoin search data/ orders.csv -c customer
  deepjoin search data/ orders.csv              every column; the best key first
  deepjoin search data/ games.csv -c year -c team   a key of several columns
  deepjoin search data/ geo/cities.csv -c city  a table of the lake itself
  deepjoin search data/ --values 'Oslo,Lima,Rome'
  cut -f1 names.tsv | deepjoin search data/ -    values from stdin, one a line"""

#: Longer keys that are listed for a table whose columns were all searched.
_LONGER = 3
#: Bytes of a file whose other columns are read for a longer key.
_SMALL = 8 << 20
#: Columns of more values show their hits by equal values while similar ones are looked up.
_LARGE = 1_000
#: How to list hits that were set apart.
_LISTED = "--least 0 lists them"
#: How to make those parts of an index that a build leaves out by default.
_MADE = {"column vectors": ("encoder", "default"), "sketches": ("sketch", 768)}


ARGUMENTS = (
    INDEX,
    Argument("query [FILE|-|TABLE]", "table with your column"),
    Argument(
        "-c --column COLUMN...", "repeat it for a key of several columns; default: try every column"
    ),
    Argument("--values a,b,c", "search for these values instead", cells),
    Argument("-k K", "number of hits (default 10)", whole(1)),
    Argument(
        "--join",
        "equi: equal values; semantic: values that mean the same; any (default): both",
        ("any", "equi", "semantic"),
        "any",
    ),
    Argument(
        "--tau T",
        "least cosine at which two values match, or a share of the largest distance, e.g. 6%%; "
        "default: set by the cell encoder",
        cosine,
    ),
    Argument("--method NAME", "see: deepjoin methods", default="hybrid"),
    Argument("--verified N", "nearest columns that method deepjoin-exact verifies", whole(1), 500),
    Argument(
        "--device NAME", "cuda or cuda:1: compare with every column vector on a GPU (needs torch)"
    ),
    Argument(
        "--no-programs",
        "--join any without columns that match by a program, e.g. 1001 and 01001",
        action="store_false",
        dest="programs",
    ),
    VECTOR_STORE,
    Argument("--min-joinability T", "only hits with at least this joinability (0 to 1)", share),
    Argument(
        "--least P",
        "set hits with a lower chance apart (0 to 1); default: for --join any, those below .05 "
        "(.15 for numbers; twice that if they cover little of both columns) that would fill the "
        "list; 0 lists all",
        share,
    ),
    Argument("--group", "one hit a table", ("tables",)),
    Argument(
        "--time-limit SECONDS",
        "return what is found by then, and say what is missing (default: no limit)",
        seconds,
    ),
    Argument("--matches N", "cells listed per hit", whole(0), 20),
    FORMAT_OR_CSV,
)


def is_incomplete(options: argparse.Namespace) -> bool:
    """Tell that the one argument of a line, with INDEX in deepjoin.toml, must be the query."""
    return options.query is None and options.values is None


def run(options: argparse.Namespace) -> None:
    """Search with one column, or with every column of a table and the best key first."""
    from deepjoin.cli.opening import open_or_index, vector_store
    from deepjoin.cli.output import print_json, progress_bar, say
    from deepjoin.search.methods import method_named
    from deepjoin.settings import SearchSettings, fields_of

    method = method_named(options.method)
    # A folder that is indexed for this search gets what its method compares.
    vectors = {} if method.kind else {key: _MADE[key] for key in method.needs if key in _MADE}
    lake = open_or_index(
        *(options.index, options.device, vector_store(options)),
        vectors=dict(vectors.values()),
    )
    columns = _query_columns(lake, options)
    together = len(options.column or ()) > 1
    with progress_bar("columns" if len(columns) > 1 and not together else "values") as progress:
        watched = progress is not no_progress
        results = lake.search(
            columns,
            options.k,
            join=options.join,
            method=options.method,
            min_joinability=options.min_joinability,
            settings=SearchSettings(
                **fields_of(SearchSettings, options),
                keys="together" if together else "each",
                beside=_beside(options) if len(columns) == 1 else (),
                on_partial=_shown_early(progress, options) if watched else None,
            ),
        )
    if results.partial is not None and options.format != "table":
        say(f"Not complete after {options.time_limit:g} seconds: {results.partial.text}.")
    every = [replace(results, others=()), *results.others]
    if options.format == "json":
        print_json(results.to_dict())
    elif options.format == "csv":
        writer = csv.DictWriter(sys.stdout, ["query_column", *FLAT], lineterminator="\n")
        writer.writeheader()
        for one in every:
            name = {"query_column": _named(one)}
            writer.writerows(name | flat_row(hit) for hit in one.hits)
            if one.unlikely:
                say(f"{_named(one)}: {set_apart(one, _LISTED)}.")
    else:
        _print_tables(every, options)


def _shown_early(progress: Progress, options: argparse.Namespace) -> Callable[[Results], None]:
    """Show the hits by equal values while similar ones are looked up, and how far that is."""
    is_first = options.format == "table"

    def show(results: Results) -> None:
        nonlocal is_first
        # Small columns are answered before a preview is read; the best key of a table may change.
        if is_first and results.query["size"] > _LARGE and results.hits and not results.others:
            table = render_table(results, Screen.of(sys.stderr), _LISTED)
            print(f"by equal values\n{table}\n", file=sys.stderr)
        is_first = False
        if results.partial is not None:
            progress(results.partial.done, results.partial.total, "similar values")

    return show


def _query_columns(lake: Lake, options: argparse.Namespace) -> list[Column]:
    """Find the columns to search with; at least one, or an error that says how to give one."""
    from deepjoin.search.query import key_columns, named_columns

    query, names = options.query, options.column or []
    if options.values is not None and len(names) < 2:
        return [Column(options.values)]
    if query is None:
        raise DeepJoinError(
            "Nothing to search with: name a file, a table of the lake, - for stdin, "
            "or give --values 'a,b,c'."
        )
    if query == "-":
        return _from_stdin(names)
    if len(names) > 1:
        return key_columns(lake.index, query, names)
    return named_columns(lake.index, query, names[0] if names else None)


def _beside(options: argparse.Namespace) -> Sequence[Column]:
    """Read all columns of a small file, from which a longer key may be suggested."""
    from deepjoin.read.frames import file_table, read_columns

    path = Path(options.query or "")
    if options.values is not None or not path.is_file() or path.stat().st_size > _SMALL:
        return ()
    try:
        return read_columns(file_table(path))
    except DeepJoinError:  # a workbook of several sheets; the search itself says what is wrong
        return ()


def _named(results: Results) -> str:
    """Return the name of the query's column, or the names of its key."""
    names = results.query.get("columns") or [results.query["column"]]
    return ", ".join(names)


def _from_stdin(names: Sequence[str]) -> list[Column]:
    """Read one value a line; with names, a table and these columns of it."""
    from deepjoin.files import TemporaryFolder
    from deepjoin.read.encoding import encoding_of
    from deepjoin.read.frames import columns_by_name, file_table, read_columns

    content = sys.stdin.buffer.read()
    if not names:
        lines = content.decode(encoding_of(content), "replace").splitlines()
        if not any(line.strip() for line in lines):
            raise DeepJoinError("No values on stdin: pipe one value a line, or a table with -c.")
        return [Column(lines)]
    # The readers detect dialect and encoding of files, so the table becomes one.
    with TemporaryFolder("deepjoin-search-") as folder:
        path = folder / "stdin.csv"
        path.write_bytes(content)
        if len(names) > 1:
            return columns_by_name(read_columns(file_table(path)), names, None)
        (found,) = read_columns(file_table(path), names[0])
        return [replace(found, table=None)]


def _print_tables(results: Sequence[Results], options: argparse.Namespace) -> None:
    """Print the hits of the best column, why the first is one, and a line for other columns."""
    best, screen = results[0], Screen.of(sys.stdout)
    name, what = one_line(_named(best) or "values"), "values"
    if "columns" in best.query:
        what = "tuples"
    print(f"{screen.paint(name, 'bold')}: {best.query['size']:,} distinct {what}")
    if best.hits:
        print(render_table(best, screen, _LISTED))
        hit: Hit = best.hits[0]
        if hit.unmatched:
            lacking = some(list(map(one_line, hit.unmatched)), 5, hit.query_size - hit.matched)
            print("\n" + screen.wrap(printable(f"not in {hit.table}: {lacking}")))
        if hit.brings.columns:
            brought = some(list(map(one_line, hit.brings.columns)), 12)
            print(screen.wrap(printable(f"{hit.table} would bring: {brought}")))
        for hit in best.hits:
            for program in hit.programs:
                rule = f"{hit.table} by program: {program.text} ({program.covering})"
                print(screen.wrap(printable(rule)))
            if hit.better is not None:
                print(screen.wrap(_better_key(hit, hit.better)))
    elif not best.query["size"]:
        every = "every tuple has a missing part" if what == "tuples" else "every cell is missing"
        print(f"nothing to search with: {every} or blank")
    elif best.unlikely:
        print(render_table(best, screen, _LISTED))
    elif options.min_joinability:
        print(f"no column has a joinability of {options.min_joinability:.0%}")
    else:
        print("no joinable column found")
    if len(results) > 1:
        print("\nother columns of yours")
        rows = [("column", "best hit", "coverage")]
        for one in results[1:]:
            row = ("-", "unlikely hits alone" if one.unlikely else "nothing matches")
            if one.hits:
                hit = one.hits[0]
                generic = f" [{hit.generic}]" if hit.generic else ""
                row = (f"{hit.table}:{hit.column}", f"{hit.coverage:.0%}{generic}")
            rows.append((one.query["column"], *row))
        print(aligned(rows, screen))
        longer = [(hit, hit.better) for one in results[1:] for hit in one.hits if hit.better]
        # Of each table the likeliest, which several columns may lead to.
        tables: dict[str, str] = {}
        for hit, better in sorted(longer, key=lambda one: -one[0].probability):
            tables.setdefault(hit.table, _better_key(hit, better))
        if tables:
            print("\nlonger keys")
            print("\n".join(map(screen.wrap, list(tables.values())[:_LONGER])))


def _better_key(hit: Hit, better: BetterKey) -> str:
    key = " ".join(f"-c {shlex.quote(name)}" for name in better.on)
    fewer = f"{better.rows:,} rows instead of {better.instead_of:,}"
    return printable(f"{hit.table} with {key}: {fewer}")
