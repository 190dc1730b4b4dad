"""`deepjoin evaluate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from deepjoin.cli.opening import say
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation import EvaluationSettings, evaluate
from deepjoin.lab.evaluation.metrics import Row
from deepjoin.show.render import aligned

_EXACT = ("precision", "precision_ties", "ndcg", "candidates_500")
_LABELS = ("precision_labels", "ndcg_labels", "hard_recall_labels", "pooled_f1")
_SHOWN = ("method", "k", *_EXACT, *_LABELS, "total_ms_p50", "total_ms_p99")
#: Seconds between two lines that say how far a long step is.
_PAUSE = 10.0


def run(options: argparse.Namespace) -> None:
    """Evaluate and print one JSON object a line, or a table."""
    folder = _folder(options.out) if options.out else None
    rows: list[Row] = []
    for row in _evaluated(options):
        line = json.dumps(row, ensure_ascii=False)
        if folder is not None:
            _keep(folder / "rows.jsonl", line, "a" if rows else "w")
        rows.append(row)
        if options.format == "json":
            print(line, flush=True)
    if options.format == "table":
        print(_table(rows))


def _evaluated(options: argparse.Namespace) -> Iterator[Row]:
    return evaluate(
        *(options.corpus, options.methods.split(",")),
        join=options.join,
        k=options.k,
        settings=EvaluationSettings(
            queries=options.queries,
            tau=options.tau,
            encoder=options.encoder,
            cells=options.cells,
            sketch=options.sketch,
            candidates=options.candidates,
        ),
        cache=options.cache,
        notify=say,
        progress=_Lines(),
    )


class _Lines:
    """Says on stderr how far the work is, every few seconds."""

    def __init__(self) -> None:
        self._said = monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        if monotonic() - self._said >= _PAUSE:
            say(f"  {done:,} of {total:,} {name}")
            self._said = monotonic()


def _folder(out: str) -> Path:
    """Make the folder of the rows before any work is done."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeepJoinError(f"Cannot write the rows to {out}: {error.strerror}.") from None
    return Path(out)


def _keep(path: Path, line: str, mode: str) -> None:
    """Write a row when it comes: what was measured before an interruption stays."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise DeepJoinError(f"Cannot write the rows to {path}: {error.strerror}.") from None


def _table(rows: list[Row]) -> str:
    """Show what was measured."""
    shown = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    return aligned([shown, *([_cell(row[name]) for name in shown] for row in rows)])


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
