"""`deepjoin graph`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from deepjoin.cli.opening import open_or_index, say
from deepjoin.cli.progress import progress_bar
from deepjoin.relating.graph import Graph
from deepjoin.relating.output import writer_of


def run(options: argparse.Namespace) -> None:
    """Find the joins of a lake, keep them beside it, and write them out."""
    if options.out:
        writer_of(Path(options.out))
    lake = open_or_index(options.index)
    with progress_bar() as progress:
        graph = lake.graph(
            options.min_joinability,
            most=options.most,
            save=not options.no_save,
            rebuild=options.rebuild,
            progress=progress,
        )
    if options.out:
        graph.write(options.out)
        say(f"{len(graph):,} edges in {options.out}")
    if options.format == "json":
        print(json.dumps({"index": str(lake.location)} | graph.to_dict(), ensure_ascii=False))
    else:
        _print(graph)
    if graph.work.left_out:
        say(f"{graph.work.left_out:,} edges were left out: --most {options.most}.")


def _print(graph: Graph) -> None:
    found, work = graph.counted, graph.work
    print(
        f"{found.edges:,} joins from {graph.min_joinability:g} on, "
        f"between {found.columns:,} columns of {found.tables:,} tables"
    )
    kept = "; kept in the index" if graph.saved else ""
    say(f"{work.joined:,} of {work.columns:,} columns joined in {graph.seconds:.1f} s{kept}")
