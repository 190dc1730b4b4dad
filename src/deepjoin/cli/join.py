"""`deepjoin join`."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import pyarrow as pa

from deepjoin.cli.opening import open_or_index, say
from deepjoin.errors import DeepJoinError
from deepjoin.join import JoinFacts, JoinPlan
from deepjoin.join.output import writing_options
from deepjoin.search.render import aligned

_PREVIEW = 10


def run(options: argparse.Namespace) -> None:
    """Join, preview, or print the SQL."""
    if options.join == "semantic":
        raise DeepJoinError(
            "This index has no cell vectors, which semantic joins need. Use --join equi."
        )
    if options.out:
        writing_options(Path(options.out))
    lake = open_or_index(options.index)
    with lake.plan_join(
        options.file, options.column, options.target, how=options.how, many=options.many
    ) as plan:
        for warning in plan.warnings:
            say(f"warning: {warning}")
        if options.sql:
            print(lake.join_sql(plan, options.target[0], options.file))
        elif options.pandas:
            print(plan.pandas_code)
        else:
            _run(plan, options)


def _run(plan: JoinPlan, options: argparse.Namespace) -> None:
    rows = plan.unmatched() if options.unmatched else plan
    if options.out:
        count = rows.write(Path(options.out))
        _say_facts(plan.facts, options)
        say(f"{count:,} rows in {options.out}")
    else:
        _show(
            rows.preview(_PREVIEW if options.preview is None else options.preview), options.format
        )
        _say_facts(plan.facts, options)


def _say_facts(facts: JoinFacts, options: argparse.Namespace) -> None:
    table = options.target[0]
    matched = f"{facts.matched_left_rows:,} of {facts.left_rows:,} rows match"
    if facts.matched_left_rows:
        matched += f" ({facts.cardinality})"
    if options.unmatched:
        say(matched)
        return
    say(f"{matched}; {facts.result_rows:,} rows result")
    for old, new in facts.renamed.items():
        say(f"renamed: {old} of {table} is {new}, because your table has {old} too")


def _show(rows: pa.Table, form: str) -> None:
    records = rows.to_pylist()
    if form == "json":
        print(json.dumps(records, ensure_ascii=False, default=str))
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(rows.column_names)
        writer.writerows(record.values() for record in records)
    else:
        shown = [["" if v is None else str(v) for v in record.values()] for record in records]
        print(aligned([rows.column_names, *shown], widest=24))
