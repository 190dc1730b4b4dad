"""`deepjoin methods`."""

from __future__ import annotations

import argparse
import json
import textwrap

from deepjoin.cli.arguments import format_argument
from deepjoin.show.text import aligned

SUMMARY = "list the search methods"
EPILOG = ""

#: Characters of a line; longer summaries are wrapped.
_WIDTH = 100
_HEAD = ("method", "joins", "needs", "description")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    format_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Print the table of methods."""
    from deepjoin.embed.columns.loading import example_of
    from deepjoin.search.methods import all_methods

    rows: list[tuple[str, str, str, str]] = []
    for name, method in all_methods().items():
        # Column vectors of another kind are named by the option that makes them.
        option = f"--encoder {example_of(method.kind)}" if method.kind else None
        rows.append(
            (name, ", ".join(method.joins), option or ", ".join(method.needs), method.summary)
        )
        if options.format == "json":
            fields = {"joins": method.joins, "needs": method.needs, "also": method.also}
            described = {"method": name, **fields, "option": option, "summary": method.summary}
            print(json.dumps(described, ensure_ascii=False))
    if options.format == "json":
        return
    room = _WIDTH - sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:-1])
    lines: list[tuple[str, ...]] = [_HEAD]
    for *cells, summary in rows:
        first, *rest = textwrap.wrap(summary, room)
        lines += [(*cells, first), *(("", "", "", part) for part in rest)]
    print(aligned(lines))
