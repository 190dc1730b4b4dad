"""`deepjoin search`."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable
from typing import Any

from deepjoin.cli.opening import open_or_index, vector_store
from deepjoin.cli.query import query_columns
from deepjoin.lake import Lake
from deepjoin.model import FLAT, Column, Hit, Results, flat_row
from deepjoin.settings import SearchSettings
from deepjoin.show.render import aligned, one_line, render_table
from deepjoin.show.terminal import printable

_COINCIDENCE = 0.1


def run(options: argparse.Namespace) -> None:
    """Search with one column, or with every column of a table and the best key first."""
    lake = open_or_index(options.index, options.device, vector_store(options))
    columns = query_columns(lake, options)
    results = [_search(lake, column, options) for column in columns]
    if len(results) > 1:
        results.sort(key=_key_quality, reverse=True)
    if options.format == "json":
        _print_json(results)
    elif options.format == "csv":
        _print_csv(results)
    else:
        _print_tables(results, _nothing(options))


def _nothing(options: argparse.Namespace) -> str:
    """Say why there may be no hit."""
    if options.k == 0:
        return "0 hits were asked for"
    if options.min_joinability:
        return f"no column covers {options.min_joinability:.0%} of it"
    return "no joinable column found"


def _search(lake: Lake, column: Column, options: argparse.Namespace) -> Results:
    return lake.search(
        column,
        options.k,
        join=options.join,
        method=options.method,
        settings=SearchSettings(tau=options.tau, group=options.group, matches=options.matches),
        min_joinability=options.min_joinability,
    )


def _key_quality(results: Results) -> tuple[bool, float, int]:
    """Order query columns: a key that says something, covers most, and has most values.

    Numbers found here and there in a much longer column of numbers are a coincidence.
    """
    if not results.hits:
        return (False, 0.0, 0)
    best: Hit = results.hits[0]
    coincidence = best.type in ("integer", "decimal") and best.reverse < _COINCIDENCE
    return (not (best.generic or coincidence), best.joinability, best.matched)


def _print_json(results: list[Results]) -> None:
    first: dict[str, Any] = results[0].to_dict()
    if len(results) > 1:
        first["others"] = [other.to_dict() for other in results[1:]]
    print(json.dumps(first, ensure_ascii=False))


def _print_csv(results: Iterable[Results]) -> None:
    writer = csv.DictWriter(sys.stdout, ["query_column", *FLAT], lineterminator="\n")
    writer.writeheader()
    for one in results:
        writer.writerows({"query_column": one.query["column"]} | flat_row(hit) for hit in one.hits)


def _print_tables(results: list[Results], nothing: str) -> None:
    best = results[0]
    name = one_line(best.query["column"] or "values")
    print(f"{name}: {best.query['size']:,} distinct values")
    print(render_table(best) if best.hits else nothing)
    if best.hits:
        _print_reasons(best.hits[0])
    if len(results) > 1:
        print("\nother columns of yours")
        print(aligned([("column", "best hit", "covers"), *(_summary(one) for one in results[1:])]))


def _print_reasons(hit: Hit) -> None:
    """Say of the best hit what it lacks and what it would bring."""
    if hit.unmatched:
        more = hit.query_size - hit.matched - len(hit.unmatched[:5])
        shown = ", ".join(one_line(cell) for cell in hit.unmatched[:5])
        more_text = f" and {more:,} more" if more else ""
        print("\n" + printable(f"not in {hit.table}: {shown}{more_text}"))
    brings = hit.brings
    if brings.columns:
        more = len(brings.columns) - 12
        shown = ", ".join(one_line(column) for column in brings.columns[:12])
        more_text = f" and {more:,} more" if more > 0 else ""
        print(printable(f"{hit.table} would bring: {shown}{more_text}"))


def _summary(results: Results) -> tuple[str, str, str]:
    name = results.query["column"]
    if not results.hits:
        return (name, "-", "nothing matches")
    best: Hit = results.hits[0]
    generic = f" [{best.generic}]" if best.generic else ""
    return (name, f"{best.table}:{best.column}", f"{best.joinability:.0%}{generic}")
