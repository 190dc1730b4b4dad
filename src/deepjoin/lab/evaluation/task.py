"""What is asked of every method: which queries, by which join, how deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from deepjoin.build.build import Progress
from deepjoin.lab.evaluation.labels import Labels
from deepjoin.lab.evaluation.metrics import BEST, CANDIDATES
from deepjoin.model import Column
from deepjoin.read.corpus import CorpusSource

Tell = Callable[[str], None]
One = TypeVar("One")


@dataclass(frozen=True)
class Task:
    """The same for every method of an evaluation."""

    source: CorpusSource
    queries: list[Column]
    join: str
    tau: float | None
    k: tuple[int, ...]
    #: Whether the candidates among the first 500 are measured as well.
    candidates: bool
    labels: list[Labels] | None
    tell: Tell
    progress: Progress

    @property
    def depth(self) -> int:
        """How many hits of each query are measured."""
        return max(self.k)

    @property
    def exact_depth(self) -> int:
        """How many of the exact answers have to be known."""
        return max(self.depth, BEST) if self.candidates else self.depth

    @property
    def deeper(self) -> list[int]:
        """How deep to search each query for what is measured below that."""
        least = CANDIDATES if self.candidates else 0
        if self.labels is None:
            return [least] * len(self.queries)
        return [
            max(least, self.depth + len(labels.easy)) if labels.hard else least
            for labels in self.labels
        ]

    def told(self, each: Iterable[One], total: int, name: str) -> Iterator[One]:
        """Yield what comes, and say how far it is."""
        for done, one in enumerate(each, 1):
            yield one
            self.progress(done, total, name)
