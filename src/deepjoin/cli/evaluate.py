"""`deepjoin evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from deepjoin.cli.arguments import COLUMN_VECTORS, Argument, cosine, depths, vectors, whole
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


ARGUMENTS = (
    Argument("corpus CORPUS", "folder of columns.parquet, queries.parquet"),
    Argument("--methods a,b", "see: deepjoin methods", default="hybrid"),
    Argument(
        "--join",
        "equi (default) and semantic are compared with the exact answer, any with labels only",
        ("equi", "semantic", "any"),
        "equi",
    ),
    Argument("-k K,K", "depths to measure at", depths, "10,20,30,40,50"),
    Argument("--queries N", "only the first N queries", whole(1)),
    Argument("--tau T", "semantic, any: as for deepjoin search", cosine),
    *vectors(several=True),
    *COLUMN_VECTORS,
    Argument(
        "--verified N",
        "nearest columns that method deepjoin-exact verifies (default 500)",
        whole(1),
    ),
    Argument("--candidates", "also measure how much of the exact top 10 is among the first 500"),
    Argument("--cache DIR", "keep built indexes and truth here"),
    Argument("--format", "output format", ("table", "json"), "json"),
    Argument("-o --out DIR", "also write the rows to DIR/rows.jsonl"),
)


def run(options: argparse.Namespace) -> None:
    """Evaluate and print one JSON object a line, or a table."""
    from deepjoin.lab.evaluation import EvaluationSettings, evaluate
    from deepjoin.settings import fields_of

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
        settings=EvaluationSettings(**fields_of(EvaluationSettings, options)),
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
