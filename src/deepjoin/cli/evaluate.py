"""`deepjoin evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import (
    column_vector_arguments,
    cosine,
    depths,
    vector_arguments,
    whole,
)
from deepjoin.cli.output import say
from deepjoin.errors import DeepJoinError
from deepjoin.show.text import Screen, aligned

if TYPE_CHECKING:
    from deepjoin.lab.evaluation.metrics import Row

SUMMARY = "measure methods on a column corpus, against the exact answer and labels"
EPILOG = """\
examples:
  deepjoin evaluate corpus/ --methods exact-equi,hybrid --join equi -k 10,20
  deepjoin evaluate corpus/ --methods hybrid --join any -k 10 --cache kept/"""

#: Columns of the table, where any method has them.
_COLUMNS = (
    *("method", "k", "precision", "precision_ties", "ndcg", "candidates_500"),
    *("precision_labels", "ndcg_labels", "hard_recall_labels", "pooled_f1"),
    *("total_ms_p50", "total_ms_p99"),
)
#: Seconds between two lines of progress.
_PAUSE = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options."""
    parser.add_argument(
        "corpus", metavar="CORPUS", help="folder of columns.parquet, queries.parquet"
    )
    parser.add_argument("--methods", metavar="a,b", default="hybrid", help="see: deepjoin methods")
    parser.add_argument(
        "--join",
        choices=("equi", "semantic", "any"),
        default="equi",
        help="equi (default) and semantic are compared with the exact answer, any with labels only",
    )
    parser.add_argument(
        "-k", metavar="K,K", type=depths, default="10,20,30,40,50", help="depths to measure at"
    )
    parser.add_argument("--queries", metavar="N", type=whole(1), help="only the first N queries")
    parser.add_argument(
        "--tau", metavar="T", type=cosine, help="semantic, any: as for deepjoin search"
    )
    vector_arguments(parser, several=True)
    column_vector_arguments(parser)
    parser.add_argument(
        "--verified",
        metavar="N",
        type=whole(1),
        help="nearest columns that method deepjoin-exact verifies (default 500)",
    )
    parser.add_argument(
        "--candidates",
        action="store_true",
        help="also measure how much of the exact top 10 is among the first 500",
    )
    parser.add_argument("--cache", metavar="DIR", help="keep built indexes and truth here")
    parser.add_argument("--format", choices=("table", "json"), default="json", help="output format")
    parser.add_argument("-o", "--out", metavar="DIR", help="also write the rows to DIR/rows.jsonl")


def run(options: argparse.Namespace) -> None:
    """Evaluate and print one JSON object a line, or a table."""
    from deepjoin.lab.evaluation import EvaluationSettings, evaluate

    path = Path(options.out) / "rows.jsonl" if options.out else None
    if path is not None:
        # Fail before hours of work, not after.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeepJoinError(
                f"Cannot write the rows to {options.out}: {error.strerror}."
            ) from None
    rows: list[Row] = []
    for row in evaluate(
        *(options.corpus, options.methods.split(",")),
        join=options.join,
        k=options.k,
        settings=EvaluationSettings(
            queries=options.queries,
            tau=options.tau,
            encoder=options.encoder,
            cells=options.cells,
            sketch=options.sketch,
            vector_index=options.vector_index,
            metric=options.metric,
            pattern=options.pattern,
            tokens=options.tokens,
            sampling=options.sampling,
            unit=options.unit,
            verified=options.verified,
            candidates=options.candidates,
        ),
        cache=options.cache,
        notify=say,
        progress=SlowProgress(),
    ):
        line = json.dumps(row, ensure_ascii=False)
        if path is not None:
            # Row by row, so that an interruption loses nothing already measured.
            try:
                with path.open("a" if rows else "w", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise DeepJoinError(f"Cannot write the rows to {path}: {error.strerror}.") from None
        rows.append(row)
        if options.format == "json":
            print(line, flush=True)
    if options.format == "table":
        names = [name for name in _COLUMNS if any(row.get(name) is not None for row in rows)]
        cells = [[row[name] for name in names] for row in rows]
        written = [[f"{c:.3f}" if isinstance(c, float) else str(c) for c in row] for row in cells]
        print(aligned([names, *written], Screen.of(sys.stdout)))


class SlowProgress:
    """Writes a line of progress to stderr every few seconds; nothing for quick steps."""

    def __init__(self) -> None:
        self._last = monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        """Write a line if the last one is old enough."""
        if monotonic() - self._last >= _PAUSE:
            say(f"  {done:,} of {total:,} {name}")
            self._last = monotonic()
