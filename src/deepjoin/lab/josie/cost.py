"""What reading costs on this machine: straight lines through times measured at build time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.lab.josie.counter import Counter
from deepjoin.lab.josie.index import Asked, SetIndex

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

_POINTS, _REPEATS = 8, 3
_LISTS, _SETS, _TOKENS = 20, 10, 100


@dataclass(frozen=True)
class CostModel:
    """Seconds a list and a posting, a set and a token of it: the paper's two lines."""

    per_list: float
    per_posting: float
    per_set: float
    per_token: float

    def lists(self, lengths: Int) -> Float:
        """Estimate the reading of lists."""
        return self.per_list + self.per_posting * lengths.astype(np.float64)

    def sets(self, lengths: npt.NDArray[np.integer[Any]]) -> Float:
        """Estimate the reading of what is left of sets; of an empty rest, nothing is read."""
        return np.where(lengths > 0, self.per_set + self.per_token * lengths, 0.0)


def fit(index: SetIndex) -> CostModel:
    """Measure lists and sets of many lengths, and fit the lines by least squares."""
    lists = [_timed_lists(index, groups) for groups in _spread(np.diff(index.list_offsets), _LISTS)]
    # Every token a set has is as likely in a query; where they come from is of no matter.
    tokens = np.sort(index.set_tokens[:: max(1, len(index.set_tokens) // _TOKENS)])
    sets = [_timed_sets(index, numbers, tokens) for numbers in _spread(index.sizes, _SETS)]
    return CostModel(*_line(lists), *_line(sets))


def _spread(lengths: npt.NDArray[np.integer[Any]], count: int) -> list[Int]:
    """Choose some of about each length, from the shortest to the longest, in equal ratios."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    if len(order) == 0:
        return []
    wanted = np.geomspace(1, lengths[order[-1]], _POINTS)
    starts = np.searchsorted(lengths[order], wanted)
    starts = np.unique(np.minimum(starts, max(0, len(order) - count)))
    return [np.sort(order[start : start + count]) for start in starts.tolist()]


def _timed_lists(index: SetIndex, groups: Int) -> tuple[int, int, float]:
    """Time the reading and counting of a batch of lists."""
    lengths = index.list_offsets[groups + 1] - index.list_offsets[groups]
    starts = np.arange(len(groups))
    tokens = index.firsts[groups]
    left = len(groups) - np.arange(len(groups) + 1)
    asked = Asked(tokens, groups, tokens, np.ones_like(starts), starts, lengths, left)
    slots = np.zeros(len(index.sizes), np.int32)

    def read() -> None:
        counter = Counter(slots, index.sizes, int(lengths.sum()), np.zeros(0, np.int64))
        counter.add(index.read(asked, 0, len(asked)), asked, 0, new=True)
        counter.clear()

    return len(groups), int(lengths.sum()), _fastest(read)


def _timed_sets(
    index: SetIndex, numbers: Int, tokens: npt.NDArray[np.int32]
) -> tuple[int, int, float]:
    """Time the reading of some sets, one after the other."""

    def read() -> None:
        for number in numbers.tolist():
            index.shared(number, 0, tokens)

    return len(numbers), int(index.sizes[numbers].sum()), _fastest(read)


def _fastest(read: Callable[[], None]) -> float:
    """Time something a few times; what else the machine did only adds to it."""
    times = []
    for _ in range(_REPEATS):
        started = perf_counter()
        read()
        times.append(perf_counter() - started)
    return max(min(times), 1e-9)


def _line(measured: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """Fit seconds as so much each and so much an entry, errors taken as shares of the time."""
    if not measured:
        return 0.0, 0.0
    count, entries, seconds = np.array(measured, np.float64).T
    sides = np.stack([count, entries], axis=1) / seconds[:, None]
    found, *_ = np.linalg.lstsq(sides, np.ones(len(sides)))
    each, entry = np.maximum(found, 0.0).tolist()
    return each, entry
