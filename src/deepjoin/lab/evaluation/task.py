"""What every method is asked: queries, join, depth and encoders, and how its answers are timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from deepjoin.embed.columns.loading import example_of, split_kind
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.metrics import BEST, CANDIDATES, Labels
from deepjoin.model import Column, Results
from deepjoin.progress import Notify, Progress
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.methods import method_named
from deepjoin.settings import TEXT_FIELDS, Vectors

#: Searches a query to a depth.
Search = Callable[[Column, int], Results]
T = TypeVar("T")

#: Default size of the sketches of methods that need them.
SKETCH = 768
#: Timed searches ask for 10 hits, after 10 searches that load and warm everything.
TIMED, _WARM = 10, 10


@dataclass(frozen=True)
class EvaluationSettings:
    """Options of an evaluation."""

    #: Use only the first queries.
    queries: int | None = None
    #: The least cosine of matching values; None for that of the cell encoder.
    tau: float | None = None
    #: As for `deepjoin.index`, for the methods that need them; several encoders if they are of
    #: different kinds.
    encoder: str | Sequence[str] | None = None
    cells: str | None = None
    sketch: int | None = None
    vector_index: str | None = None
    metric: str | None = None
    pattern: str | None = None
    tokens: int | None = None
    sampling: str | None = None
    unit: str | None = None
    #: Nearest columns that deepjoin-exact verifies; None for 500.
    verified: int | None = None
    #: Also measure how many of the exact top 10 are among the first 500.
    candidates: bool = False


@dataclass(frozen=True)
class EncoderChoice:
    """The encoders of an evaluation, from which each method gets those it needs."""

    #: Column encoders by the kind of method they are for.
    encoders: Mapping[str, str]
    cells: str
    sketch: int
    #: How column vectors are searched, and how columns become texts: fields of `Vectors`.
    columns: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: EvaluationSettings) -> EncoderChoice:
        """Sort encoders by kind; the default is used for methods without a kind."""
        specs = settings.encoder
        encoders: dict[str, str] = {}
        for spec in [specs] if isinstance(specs, str) else specs or []:
            known = encoders.setdefault(split_kind(spec)[0], spec)
            if known != spec:
                raise DeepJoinError(
                    f"Encoders '{known}' and '{spec}' are for the same method. Give one of them, "
                    "and evaluate with the other in a separate run."
                )
        encoders.setdefault("", "default")
        sketch = SKETCH if settings.sketch is None else settings.sketch
        given: dict[str, Any] = {"index": settings.vector_index, "metric": settings.metric}
        given |= {name: getattr(settings, name) for name in TEXT_FIELDS}
        columns = {name: value for name, value in given.items() if value is not None}
        return cls(encoders, settings.cells or "default", sketch, columns)

    def check(self, methods: Iterable[str]) -> None:
        """Refuse methods whose encoder is missing."""
        for method in methods:
            kind = method_named(method).kind
            if kind not in self.encoders:
                raise DeepJoinError(
                    f"Method '{method}' needs its own encoder. Add `encoder=\"{example_of(kind)}\"`"
                )

    def vectors(self, needs: Collection[str], kind: str = "") -> Vectors:
        """Choose the vectors of an index that meets some needs."""
        of_columns = self.columns if "column vectors" in needs else {}
        if kind:  # encoders of other kinds read cells, not texts
            of_columns = {k: v for k, v in of_columns.items() if k not in TEXT_FIELDS}
        return Vectors(
            **of_columns,
            encoder=self.encoders[kind] if "column vectors" in needs else "none",
            cells=self.cells if "cell vectors" in needs else "none",
            sketch=self.sketch if "sketches" in needs else 0,
        )

    def of_method(self, method: str) -> Vectors:
        """Choose the vectors of an index for a method."""
        row = method_named(method)
        return self.vectors(row.needs + row.also, row.kind)


@dataclass(frozen=True)
class EvaluationTask:
    """The task that every method of an evaluation gets."""

    source: CorpusSource
    queries: list[Column]
    join: str
    k: tuple[int, ...]
    settings: EvaluationSettings
    labels: list[Labels] | None
    notify: Notify
    progress: Progress

    @property
    def depth(self) -> int:
        """How many hits of each query are measured."""
        return max(self.k)

    @property
    def exact_depth(self) -> int:
        """How many of the exact answers are needed."""
        return max(self.depth, BEST) if self.settings.candidates else self.depth

    @property
    def deeper(self) -> list[int]:
        """How deep to search each query for measures beyond the depth."""
        least = CANDIDATES if self.settings.candidates else 0
        if self.labels is None:
            return [least] * len(self.queries)
        return [
            max(least, self.depth + len(labels.easy)) if labels.hard else least
            for labels in self.labels
        ]

    def tracked(self, each: Iterable[T], total: int, name: str) -> Iterator[T]:
        """Yield items, and report progress after each."""
        for done, one in enumerate(each, 1):
            yield one
            self.progress(done, total, name)


@dataclass(frozen=True)
class Answers:
    """What a method found for each query, and what it took."""

    #: Column ids to the measured depth, and those of a deeper search.
    found: list[list[str]]
    deeper: list[list[str]]
    #: Seconds for each query: "encode", and "total" as a caller sees it.
    seconds: list[dict[str, float]]
    memory_mb: float

    def times(self) -> dict[str, Any]:
        """Return the milliseconds of a query."""
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
    search: Search, queries: Sequence[Column], depth: int, deeper: Sequence[int], progress: Progress
) -> Answers:
    """Search each query up to three times: timed, to the depth, and deeper where needed."""

    def ids(results: Results) -> list[str]:
        return [hit.column_id for hit in results]

    for query in queries[:_WARM]:
        search(query, TIMED)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of memory, on Linux
    answers = Answers([], [], [], 0.0)
    for number, query in enumerate(queries):
        started = perf_counter()
        results = search(query, TIMED)
        total = perf_counter() - started
        encode = results.seconds.get("encode", 0.0)
        answers.seconds.append({"encode": encode, "total": total})
        found = ids(results if depth == TIMED else search(query, depth))
        answers.found.append(found)
        more = deeper[number] > depth and len(found) == depth
        answers.deeper.append(ids(search(query, deeper[number])) if more else found)
        progress(number + 1, len(queries), "queries")
    return Answers(answers.found, answers.deeper, answers.seconds, _peak_mb())


def _peak_mb() -> float:
    """Return the peak of memory, since its reset where the system allows that."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:  # macOS and Windows; the latter has no such count
        try:
            import resource
        except ImportError:
            return 0.0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return float(status.partition("VmHWM:")[2].split()[0]) / 1e3
