"""`deepjoin join`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import (
    FORMAT_OR_CSV,
    INDEX,
    JUDGING,
    ROWS,
    TABLE_OUT,
    Argument,
    aggregates,
    names,
    share,
    size,
    target_text,
    targets,
    whole,
)
from deepjoin.cli.output import print_records, progress_bar, say, say_doubtful
from deepjoin.errors import DeepJoinError
from deepjoin.show.text import count, one_line

if TYPE_CHECKING:
    from deepjoin.joining import JoinPlan

SUMMARY = "join your file with a table of the lake"
EPILOG = """\
examples:
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --preview 5
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name -o out.parquet
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --columns city,segment
  deepjoin join data/ orders.csv -c customer --with crm/visits.csv:name --aggregate spent=sum
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --sql
  deepjoin join data/ games.csv -c year -c team --with teams.csv:yearID,teamID

Cells match if they are equal up to case, white space and number format; the rest match cells that
mean the same, UK and United Kingdom, a firm with and without Ltd, and the result has a column with
their similarity. --join equi matches equal cells only. A match is ambiguous if another cell is
nearly as similar: such rows are counted apart, and a column 'alternatives' lists the other cells.
Inspect some matches before you trust all of them: --near-misses 20 shows values that just missed,
--doubtful check.csv writes pairs for you to accept or reject, --decisions check.csv applies that,
and --precision 0.95 takes fewer similar values."""

_PREVIEW = 10


ARGUMENTS = (
    INDEX,
    Argument("file FILE", "your table, or one of the lake"),
    Argument(
        "-c --column COLUMN...",
        "its key column; repeat it for a key of several columns",
        required=True,
    ),
    Argument(
        "--with TABLE:COLUMN[,...]",
        "the table of the lake and its key column, as a search names them; as many columns as -c, "
        "in the same order",
        target_text,
        dest="target",
        required=True,
    ),
    Argument(
        "--join",
        "any (default): equal values and, for the rest, similar ones; equi: only equal ones; "
        "semantic: as any, and numbers may be similar, too",
        ("any", "equi", "semantic"),
        "any",
    ),
    Argument(
        "--tau T",
        "least similarity of cells that match, up to 1; default: set by the cell encoder",
        share,
    ),
    Argument(
        "--matching",
        "match each of your values with its most similar one (default), with the most similar one "
        "that no other value of yours fits better, or with all similar ones",
        ("best", "one-to-one", "all"),
        "best",
    ),
    *JUDGING,
    Argument(
        "--near-misses N",
        "show the N of your values that just missed a match, and the nearest value of each",
        whole(0),
    ),
    Argument(
        "--matches-out FILE",
        "also write the matched values and their similarity; the SQL and the pandas code then read "
        "them from it (.parquet)",
    ),
    *ROWS,
    Argument(
        "--aggregate COLUMN=HOW,...",
        "make one row of several matching ones: first, count, sum, mean, min, max or list, for all "
        "columns or by name, e.g. list,price=mean; default: means of numbers, lists of the rest",
        aggregates,
    ),
    Argument(
        "--columns COLUMN,...",
        "columns of the table to bring; default: all, its key only where spellings differ",
        names,
    ),
    Argument("--preview N", "show the first N rows only", whole(0)),
    Argument("--sql", "print the SQL, in the dialect of the table's database"),
    Argument("--pandas", "print the pandas equivalent"),
    Argument("--unmatched", "your rows without a match"),
    Argument(
        "--memory SIZE",
        "memory for rows before they are written to disk, e.g. 500M (default: a tenth of the "
        "machine's, at least 2G)",
        size,
    ),
    TABLE_OUT,
    FORMAT_OR_CSV,
)


def run(options: argparse.Namespace) -> None:
    """Join, preview, or print the SQL."""
    from deepjoin.cli.opening import open_or_index
    from deepjoin.joining.output import writing_options
    from deepjoin.settings import JoinSettings, fields_of

    # Refuse a wrong extension before any work is done.
    for path in (options.out, options.matches_out):
        if path:
            writing_options(Path(path))
    try:
        options.target = targets(options.target, len(options.column))
    except argparse.ArgumentTypeError as error:
        raise DeepJoinError(f"--with {error}") from None
    lake = open_or_index(options.index)
    options.target = lake.index.full_name(options.target[0]), options.target[1]
    if not Path(options.file).exists():
        options.file = lake.index.find_name(options.file) or options.file
    with (
        progress_bar("values") as progress,
        lake.plan_join(
            options.file,
            options.column if len(options.column) > 1 else options.column[0],
            options.target,
            how=options.how,
            many=options.many,
            join=options.join,
            settings=JoinSettings(
                **fields_of(JoinSettings, options),
                memory_limit=options.memory and f"{max(1, options.memory >> 20)}MiB",
            ),
            progress=progress,
        ) as plan,
    ):
        for warning in plan.warnings:
            say(f"warning: {warning}")
        facts = plan.facts
        unmatched = facts.left_keys - facts.matched_keys - facts.ambiguous_keys
        if facts.tau is not None and unmatched == facts.left_keys > 0:
            say("--near-misses 10 shows values that just missed a match.")
        if options.doubtful:
            plan.write_doubtful(options.doubtful)
            say_doubtful(options.doubtful)
        pairs = options.matches_out
        if options.sql:
            print(lake.join_sql(plan, options.target[0], options.file, pairs))
        elif options.pandas:
            print(plan.reading(pairs)[1] if pairs else plan.pandas_code)
        elif options.near_misses is not None:
            misses = [miss._asdict() for miss in plan.near_misses(options.near_misses)]
            print_records(misses, ["yours", "theirs", "similarity"], options.format)
            say(f"{unmatched:,} of {facts.left_keys:,} values have no match")
        else:
            _write(plan, options)


def _write(plan: JoinPlan, options: argparse.Namespace) -> None:
    """Write the joined rows, or show the first."""
    rows = plan.unmatched() if options.unmatched else plan
    if options.matches_out:
        count = plan.matches().write(Path(options.matches_out))
        say(f"{count:,} pairs of values in {options.matches_out}")
    if options.out:
        count = rows.write(Path(options.out))
        _say_facts(plan, options)
        say(f"{count:,} rows in {options.out}")
    else:
        first = rows.preview(_PREVIEW if options.preview is None else options.preview)
        print_records(first.to_pylist(), first.column_names, options.format)
        _say_facts(plan, options)


def _say_facts(plan: JoinPlan, options: argparse.Namespace) -> None:
    """Report how many rows match, how, with examples, and which columns were renamed."""
    facts = plan.facts
    matched = f"{facts.matched_left_rows:,} of {facts.left_rows:,} rows match"
    if facts.matched_left_rows:
        matched += f" ({facts.cardinality})"
    if facts.ambiguous_left_rows:
        matched += f", {facts.ambiguous_left_rows:,} more are ambiguous"
    if facts.similarity:
        similar = facts.matched_keys + facts.ambiguous_keys - facts.equal_keys
        matched += f"; {facts.equal_keys:,} values by equality and {similar:,} by meaning"
        matched += f" (similarity >= {facts.tau:g}, {facts.matching})"
    if options.unmatched:
        say(matched)
        return
    say(f"{matched}; {facts.result_rows:,} rows result")
    repeated = [one for one in facts.several if not one.ambiguous]
    for one in facts.several:
        if one.ambiguous:
            first, *others = map(one_line, one.targets)
            also = " or ".join(others)
            say(f"ambiguous: {one_line(one.query)} is joined with {first}; it may be {also}")
    if repeated:
        listed = ", ".join(f"{one_line(one.query)} ({one.target_rows:,})" for one in repeated)
        rows = count(facts.several_left_rows, "row")
        say(f"{rows} of yours with several matching rows in {options.target[0]}: {listed}")
    for old, new in facts.renamed.items():
        say(f"renamed: {old} of {options.target[0]} is {new}, because your table has {old} too")
