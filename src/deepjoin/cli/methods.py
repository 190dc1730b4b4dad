"""`deepjoin methods`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from deepjoin.cli.arguments import FORMAT
from deepjoin.cli.output import print_json
from deepjoin.show.text import Screen, aligned

SUMMARY = "list the search methods"
EPILOG = ""

#: Characters of a line in a pipe; longer descriptions are wrapped.
_WIDTH = 100
_HEAD = ("method", "joins", "needs", "description")


ARGUMENTS = (FORMAT,)


def run(options: argparse.Namespace) -> None:
    """Print the table of methods."""
    from deepjoin.embed.columns.loading import example_of
    from deepjoin.search.methods import all_methods

    rows: list[tuple[str, str, str, str]] = []
    for name, method in all_methods().items():
        # What an index does not have by default is named by the option that makes it.
        made_by = {
            "column vectors": f"--encoder {example_of(method.kind)}",
            "sketches": "--sketch 768",
        }
        option = " ".join(made_by[part] for part in method.needs if part in made_by) or None
        rows.append(
            (name, ", ".join(method.joins), option or ", ".join(method.needs), method.summary)
        )
        if options.format == "json":
            fields = {"joins": method.joins, "needs": method.needs, "also": method.also}
            described = {"method": name, **fields, "option": option, "summary": method.summary}
            print_json(described)
    if options.format == "json":
        return
    screen = Screen.of(sys.stdout)
    print(aligned([_HEAD, *rows], replace(screen, width=screen.width or _WIDTH), last="wrapped"))
