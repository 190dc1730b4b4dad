"""Claims of the paper, judged by paired differences of our results.

Two rows are compared query by query: a claim holds where the 95% interval of the mean difference
is above 0, fails where it is below, and is open where it contains 0. Lines without the values of
each query are compared by their means, and the sentence says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from benchmarks.paper.experiments import Options
from benchmarks.paper.shown import NAMES, Figure, Measured

from deepjoin.lab.evaluation.metrics import PairedDifference

Series = dict[str, list[Figure]]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one comparison: 1 if the claim holds, -1 if it fails, 0 if it is open."""

    sign: int
    #: Whether it rests on a paired interval, or on two means alone.
    is_paired: bool


def sentences(measured: Measured) -> list[str]:
    """Write each claim with the number of comparisons in which it holds here, by metric."""
    return [_sentence(measured, claim) for claim in measured.experiment.claims]


def _sentence(measured: Measured, claim: Options) -> str:
    (kind,) = set(claim) & set(_CHECKS)
    parts = []
    for metric in measured.metrics:
        verdicts = [
            verdict
            for block in measured.experiment.blocks
            for verdict in _CHECKS[kind](
                _series(measured, metric, block["label"], claim.get("of", [])), claim[kind]
            )
        ]
        if verdicts:
            parts.append(f"{NAMES.get(metric, metric)} {_counted(verdicts)}")
    return f"{claim['says']}: {'; '.join(parts) or 'not run here'}."


def _counted(verdicts: list[Verdict]) -> str:
    """Count the outcomes; comparisons of means are no evidence of their own and named as such."""
    count = Counter(one.sign for one in verdicts if one.is_paired)
    means = [one.sign > 0 for one in verdicts if not one.is_paired]
    parts = []
    if count:
        found = f"holds in {count[1]}, fails in {count[-1]}, open in {count[0]}"
        parts.append(f"{found} paired comparisons")
    if means:
        parts.append(
            f"holds in {sum(means)} of {len(means)} comparisons of means (no paired values)"
        )
    return " and ".join(parts)


def _series(measured: Measured, metric: str, block: str, of: list[str]) -> Series:
    """Return the figures of the paper's rows, or of some; only those on the axis if any."""
    placed = any("at" in column for column in measured.columns())
    return {
        label: [one for one in figures if not placed or "at" in one.cell.column]
        for label, figures in measured.by_row(metric, block).items()
        if (label in of if of else not figures[0].cell.row.get("ours"))
    }


def compared(one: Figure, other: Figure) -> Verdict | None:
    """Compare two figures query by query if they have the same queries, else by their means."""
    if one.ours is None or other.ours is None:
        return None
    if one.values and other.values and one.digest == other.digest:
        difference = PairedDifference.of(one.values, other.values)
        return None if difference is None else Verdict(difference.sign, True)
    return Verdict(1 if one.ours >= other.ours else -1, False)


def _best(series: Series, row: str) -> Iterator[Verdict]:
    """Compare a row with every other one: it is the best where it beats each of them."""
    for at, figure in enumerate(series.get(row, [])):
        against = [compared(figure, other[at]) for label, other in series.items() if label != row]
        found = [one for one in against if one is not None]
        if found:
            yield Verdict(min(one.sign for one in found), all(one.is_paired for one in found))


def _above(series: Series, rows: list[str]) -> Iterator[Verdict]:
    if all(row in series for row in rows):
        for one, other in zip(*(series[row] for row in rows), strict=True):
            if (verdict := compared(one, other)) is not None:
                yield verdict


def _steps(series: Series, rows: list[str], sign: int) -> Iterator[Verdict]:
    for row in rows or list(series):
        for pair in pairwise(series.get(row, [])):
            if (verdict := compared(*pair[::-sign])) is not None:
                yield verdict


_CHECKS: dict[str, Callable[..., Iterator[Verdict]]] = {
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
