"""Every query put to one method, through the lake as a user does: what it found, how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from deepjoin.build.build import Progress
from deepjoin.model import Column, Results

#: Searches a query to a depth.
Search = Callable[[Column, int], Results]

#: What is timed: how many hits a user asks for, once some searches have loaded all there is.
TIMED, _WARM = 10, 10


@dataclass(frozen=True)
class Answers:
    """What a method found for each query, and what it took."""

    #: Column ids to the depth that is measured, and those of a search that went deeper.
    found: list[list[str]]
    deeper: list[list[str]]
    #: For each query, seconds: "encode", and "total" as a caller sees it.
    seconds: list[dict[str, float]]
    memory_mb: float

    def times(self) -> dict[str, Any]:
        """Give the milliseconds of a query."""
        encode, total = (
            np.array([1e3 * one[key] for one in self.seconds]) for key in ("encode", "total")
        )
        return {
            "encode_ms": float(np.median(encode)),
            "search_ms_p50": float(np.median(total - encode)),
            "total_ms_p50": float(np.median(total)),
            "total_ms_p99": float(np.percentile(total, 99)),
        }


def ask(
    search: Search, queries: Sequence[Column], depth: int, deeper: Sequence[int], told: Progress
) -> Answers:
    """Search each query three times at most: as timed, to the depth, and deeper where wanted."""
    for query in queries[:_WARM]:
        search(query, TIMED)
    _forget_peak()
    answers = Answers([], [], [], 0.0)
    for number, query in enumerate(queries):
        results, seconds = _timed(search, query)
        answers.seconds.append(seconds)
        ids = _ids(results if depth == TIMED else search(query, depth))
        answers.found.append(ids)
        more = deeper[number] > depth and len(ids) == depth
        answers.deeper.append(_ids(search(query, deeper[number])) if more else ids)
        told(number + 1, len(queries), "queries")
    return Answers(answers.found, answers.deeper, answers.seconds, _peak_mb())


def _timed(search: Search, query: Column) -> tuple[Results, dict[str, float]]:
    started = perf_counter()
    results = search(query, TIMED)
    total = perf_counter() - started
    return results, {"encode": results.seconds.get("encode", 0.0), "total": total}


def _ids(results: Results) -> list[str]:
    return [hit.column_id for hit in results]


def _forget_peak() -> None:
    """Start the peak of this process's memory anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mb() -> float:
    """Return the most memory the process has had, since it was forgotten where it can be."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:  # macOS and Windows; the latter has no such count
        try:
            import resource
        except ImportError:
            return 0.0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return float(status.partition("VmHWM:")[2].split()[0]) / 1e3
