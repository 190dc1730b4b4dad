"""Claims of the paper, counted in our tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from benchmarks.paper.experiments import Options
from benchmarks.paper.shown import Measured

Series = dict[str, list[float | None]]


def sentences(measured: Measured) -> list[str]:
    """Write each claim with the share of the comparisons in which it holds here."""
    return [_sentence(measured, claim) for claim in measured.experiment.claims]


def _sentence(measured: Measured, claim: Options) -> str:
    (kind,) = set(claim) & set(_CHECKS)
    verdicts = [
        verdict
        for metric in measured.metrics
        for block in measured.experiment.blocks
        for verdict in _CHECKS[kind](_series(measured, metric, block["label"]), claim[kind])
    ]
    if not verdicts:
        return f"{claim['says']}: not run here."
    return f"{claim['says']}: holds here in {sum(verdicts)} of {len(verdicts)} comparisons."


def _series(measured: Measured, metric: str, block: str) -> Series:
    """Return the figures of the paper's rows, only those on the axis if there is one."""
    placed = any("at" in column for column in measured.columns())
    return {
        label: [one.ours for one in figures if not placed or "at" in one.cell.column]
        for label, figures in measured.by_row(metric, block).items()
        if not figures[0].cell.row.get("ours")
    }


def _best(series: Series, row: str) -> Iterator[bool]:
    for at, value in enumerate(series.get(row, [])):
        others = [values[at] for label, values in series.items() if label != row]
        present = [other for other in others if other is not None]
        if value is not None and present:
            yield value >= max(present)


def _above(series: Series, rows: list[str]) -> Iterator[bool]:
    if all(row in series for row in rows):
        for one, other in zip(*(series[row] for row in rows), strict=True):
            if one is not None and other is not None:
                yield one >= other


def _steps(series: Series, rows: list[str], sign: int) -> Iterator[bool]:
    for row in rows or list(series):
        for one, other in pairwise(series.get(row, [])):
            if one is not None and other is not None:
                yield sign * (other - one) >= 0


_CHECKS: dict[str, Callable[..., Iterator[bool]]] = {
    "best": _best,
    "above": _above,
    "rises": lambda series, rows: _steps(series, rows, 1),
    "falls": lambda series, rows: _steps(series, rows, -1),
}


def slopes(measured: Measured) -> list[str]:
    """Fit log time against log size for each row, and write it beside what the paper claims."""
    wanted = measured.experiment.slope
    if not wanted:
        return []
    lines = [f"| | | growth with {wanted['of']} | the paper's analysis |", "|---|---|---|---|"]
    for block in measured.experiment.blocks:
        for label, figures in measured.by_row(measured.metrics[0], block["label"]).items():
            points = [(f.cell.column["at"], f.ours) for f in figures if "at" in f.cell.column]
            claim = wanted["claimed"].get(label, "")
            lines.append(f"| {block['label']} | {label} | {_slope(points)} | {claim} |")
    return lines


def _slope(points: list[tuple[float, float | None]]) -> str:
    there = [(at, value) for at, value in points if value]
    if len(there) < 2:
        return "not run"
    sizes, values = np.log(np.array(there, float)).T
    return f"{np.polyfit(sizes, values, 1)[0]:.2f}".replace("0.", ".")
