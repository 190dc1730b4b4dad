"""Sums of rows, in an order that does not depend on what else is summed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells.tokens import Bags

Floats = npt.NDArray[np.float32]

#: So few that their sums stay in the processor's cache.
_AT_ONCE = 512


def sum_bags(table: Floats, bags: Bags, out: Floats, weights: Floats | None = None) -> None:
    """Add to each row of ``out`` the sum of its bag's rows, weighed, in the order of the bag."""
    rows = np.empty((_AT_ONCE, table.shape[1]), np.float32)
    for start in range(0, len(out), _AT_ONCE):
        end = start + _AT_ONCE
        some = Bags(bags.starts[start : end + 1], bags.ids)
        _sum_some(table, some, out[start:end], weights, rows)


def _sum_some(
    table: Floats, bags: Bags, out: Floats, weights: Floats | None, rows: Floats
) -> None:  # fmt: skip
    lengths = np.diff(bags.starts)
    # Longest first: those with an n-th feature are then a prefix, and no row is gathered twice.
    order = np.argsort(-lengths, kind="stable")
    having = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), side="left")
    sums, firsts = np.zeros_like(out), bags.starts[order]
    for place, count in enumerate(having.tolist()):
        at, gathered = firsts[:count] + place, rows[:count]
        # Unlike the default, this mode writes where it is told without a copy in between.
        np.take(table, bags.ids[at], axis=0, out=gathered, mode="clip")
        if weights is not None:
            gathered *= weights[at, None]
        sums[:count] += gathered
    out[order] += sums


def normalise(rows: Floats) -> None:
    """Scale rows to length 1, but for those that are 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
