"""`deepjoin join`."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepjoin.cli.opening import open_or_index, say
from deepjoin.joining import JoinFacts, JoinPlan
from deepjoin.joining.output import writing_options
from deepjoin.lake import Lake
from deepjoin.settings import JoinSettings
from deepjoin.show.render import aligned

_PREVIEW = 10


def run(options: argparse.Namespace) -> None:
    """Join, preview, or print the SQL."""
    for path in (options.out, options.matches_out):
        if path:
            writing_options(Path(path))
    lake = open_or_index(options.index)
    with _planned(lake, options) as plan:
        for warning in plan.warnings:
            say(f"warning: {warning}")
        if options.sql or options.pandas:
            print(_code(lake, plan, options))
        elif options.near_misses is not None:
            _show_near_misses(plan, options)
        else:
            _run(plan, options)


def _planned(lake: Lake, options: argparse.Namespace) -> JoinPlan:
    return lake.plan_join(
        options.file,
        options.column,
        options.target,
        how=options.how,
        many=options.many,
        join=options.join,
        settings=JoinSettings(tau=options.tau, matching=options.matching),
        progress=_matching_bar(),
    )


def _matching_bar() -> Callable[[int, int, str], None]:
    """Show values matched, on stderr, while a person is watching; each pass has its own bar."""
    bar: Any = None

    def show(done: int, total: int, name: str) -> None:
        nonlocal bar
        if bar is None:
            from tqdm import tqdm

            watched = sys.stderr.isatty()
            bar = tqdm(total=total, desc=name, unit=" values", leave=False, disable=not watched)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()
            bar = None

    return show


def _code(lake: Lake, plan: JoinPlan, options: argparse.Namespace) -> str:
    file = options.matches_out
    if options.sql:
        return lake.join_sql(plan, options.target[0], options.file, file)
    return plan.reading(file)[1] if file else plan.pandas_code


def _run(plan: JoinPlan, options: argparse.Namespace) -> None:
    rows = plan.unmatched() if options.unmatched else plan
    if options.matches_out:
        count = plan.matches().write(Path(options.matches_out))
        say(f"{count:,} pairs of values in {options.matches_out}")
    if options.out:
        count = rows.write(Path(options.out))
        _say_facts(plan.facts, options)
        say(f"{count:,} rows in {options.out}")
    else:
        _show(
            rows.preview(_PREVIEW if options.preview is None else options.preview), options.format
        )
        _say_facts(plan.facts, options)


def _show_near_misses(plan: JoinPlan, options: argparse.Namespace) -> None:
    misses = [miss._asdict() for miss in plan.near_misses(options.near_misses)]
    _show_records(misses, ["yours", "theirs", "similarity"], options.format)
    facts = plan.facts
    say(f"{facts.left_keys - facts.matched_keys:,} of {facts.left_keys:,} values match nothing")


def _say_facts(facts: JoinFacts, options: argparse.Namespace) -> None:
    table = options.target[0]
    matched = f"{facts.matched_left_rows:,} of {facts.left_rows:,} rows match"
    if facts.matched_left_rows:
        matched += f" ({facts.cardinality})"
    if facts.join == "semantic":
        similar = facts.matched_keys - facts.equal_keys
        matched += f", {facts.equal_keys:,} values by equality and {similar:,} by meaning"
        matched += f" (similarity from {facts.tau:g}, {facts.matching})"
    if options.unmatched:
        say(matched)
        return
    say(f"{matched}; {facts.result_rows:,} rows result")
    for old, new in facts.renamed.items():
        say(f"renamed: {old} of {table} is {new}, because your table has {old} too")


def _show(rows: pa.Table, form: str) -> None:
    _show_records(rows.to_pylist(), rows.column_names, form)


def _show_records(records: list[dict[str, Any]], names: Sequence[str], form: str) -> None:
    if form == "json":
        print(json.dumps(records, ensure_ascii=False, default=str))
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows(record.values() for record in records)
    else:
        shown = [["" if v is None else str(v) for v in record.values()] for record in records]
        print(aligned([list(names), *shown], widest=24))
