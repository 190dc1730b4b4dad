"""`deepjoin evaluate`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from deepjoin.cli.opening import say
from deepjoin.errors import DeepJoinError
from deepjoin.evaluation import evaluate
from deepjoin.evaluation.run import Row
from deepjoin.search.render import aligned

_SHOWN = ("method", "k", "precision", "precision_ties", "ndcg", "total_ms_p50", "total_ms_p99")


def run(options: argparse.Namespace) -> None:
    """Evaluate and print one JSON object a line, or a table."""
    rows = []
    methods = options.methods.split(",")
    for row in evaluate(
        options.corpus, methods, k=options.k, queries=options.queries, cache=options.cache, tell=say
    ):
        rows.append(row)
        if options.format == "json":
            print(json.dumps(row, ensure_ascii=False), flush=True)
    if options.format == "table":
        shown = [[_cell(row[name]) for name in _SHOWN] for row in rows]
        print(aligned([_SHOWN, *shown]))
    if options.out:
        _write(Path(options.out), rows)


def _write(folder: Path, rows: list[Row]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    except OSError as error:
        raise DeepJoinError(f"Cannot write the rows to {folder}: {error.strerror}.") from None


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
