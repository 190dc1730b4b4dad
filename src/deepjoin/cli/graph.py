"""`deepjoin graph`."""

from __future__ import annotations

import argparse
from pathlib import Path

from deepjoin.cli.arguments import FORMAT, INDEX, Argument, share, whole
from deepjoin.cli.output import print_json, progress_bar, say

SUMMARY = "find all joinable pairs of columns of a lake, exactly"
EPILOG = """\
examples:
  deepjoin graph data/                           keep the graph in the index
  deepjoin graph data/ --min-joinability 0.5 -o edges.parquet
  deepjoin graph data/ --least 0.5 -o likely.csv   joins that probably mean something
  deepjoin graph data/ -o edges.graphml          for Gephi, yEd or NetworkX

Two columns join if one of them holds at least the share T of the other's distinct values.
The next run only joins columns that changed."""


ARGUMENTS = (
    INDEX,
    Argument(
        "--min-joinability T",
        "share of the smaller column's distinct values found in the other",
        share,
        0.7,
    ),
    Argument(
        "--least P",
        "only edges with at least this chance that a person would make the join (default 0)",
        share,
        0.0,
    ),
    Argument(
        "--most N",
        "only the best N edges of each column with larger ones; the rest is counted",
        whole(1),
    ),
    Argument("--no-save", "save nothing in the index folder"),
    Argument("--rebuild", "join everything again"),
    Argument("-o --out EDGES", "write the edges: .csv, .parquet, .json or .graphml"),
    FORMAT,
)


def run(options: argparse.Namespace) -> None:
    """Find the joins of a lake, keep them beside it, and write them out."""
    from deepjoin.cli.opening import open_or_index
    from deepjoin.relating.output import writer_of

    # Refuse a wrong extension before any work is done.
    if options.out:
        writer_of(Path(options.out))
    lake = open_or_index(options.index)
    with progress_bar() as progress:
        graph = lake.graph(
            options.min_joinability,
            least=options.least,
            most=options.most,
            save=not options.no_save,
            rebuild=options.rebuild,
            progress=progress,
        )
    if options.out:
        graph.write(options.out)
        say(f"{len(graph):,} edges in {options.out}")
    found, work = graph.counted, graph.work
    if options.format == "json":
        print_json({"index": str(lake.location)} | graph.to_dict())
    else:
        likely = f" and probability >= {graph.least:g}" if graph.least else ""
        print(
            f"{found.edges:,} joins with joinability >= {graph.min_joinability:g}{likely} "
            f"between {found.columns:,} columns of {found.tables:,} tables"
        )
        kept = "; saved in the index" if graph.saved else ""
        say(f"{work.joined:,} of {work.columns:,} columns joined in {graph.seconds:.1f} s{kept}")
    if work.left_out:
        say(f"{work.left_out:,} edges were left out: --most {options.most}.")
