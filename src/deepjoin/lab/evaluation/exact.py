"""The exact answers to a task, whatever its join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepjoin.embed.cells import CellEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.cache import SETTINGS, Cache
from deepjoin.lab.evaluation.semantic_truth import semantic_truth, with_found
from deepjoin.lab.evaluation.task import Task
from deepjoin.lab.evaluation.truth import Truth, brute_force
from deepjoin.settings import Vectors


@dataclass(frozen=True)
class Exact:
    """The truth of every query; empty where a join has no exact answer."""

    truth: list[Truth]
    #: What the truth of a semantic join is made with.
    cells: CellEncoder | None = None
    tau: float = 0.0

    def knowing(self, task: Task, found: Sequence[Sequence[str]]) -> list[Truth]:
        """Return the truth, with the joinability of everything a method found."""
        if self.cells is None:
            return self.truth
        return with_found(
            *(self.truth, found, task.source, task.queries, self.cells, self.tau),
            profile=SETTINGS.profile,
        )


def exact_answers(task: Task, cache: Cache, vectors: Vectors) -> Exact:
    """Read or make the exact answers; ``vectors`` is what a semantic index has."""
    if task.join == "any":
        return Exact([Truth({}) for _ in task.queries])
    if task.join == "semantic":
        return _semantic(task, cache, vectors)
    task.tell("truth by brute force")
    columns = task.told(task.source.columns(), task.source.count, "columns compared")
    return Exact(
        cache.truth(
            task.queries, "equi", lambda: brute_force(columns, task.queries, SETTINGS.profile)
        )
    )


def _semantic(task: Task, cache: Cache, vectors: Vectors) -> Exact:
    if vectors.cells == "none":
        raise DeepJoinError(
            "cells is 'none', and join semantic compares cells by their vectors. Give default, a "
            "folder or fastText vectors."
        )
    task.tell("index with cell vectors")
    built = cache.index(vectors)
    assert built.cells is not None
    tau = built.cells.tau if task.tau is None else task.tau
    task.tell(f"truth by the exact engine, tau {tau:g}")
    best = semantic_truth(built.lake, task.queries, tau, task.exact_depth)
    told = task.told(best, len(task.queries), "queries answered exactly")
    by = ("semantic", built.cells.digest, tau, task.exact_depth)
    return Exact(cache.truth(task.queries, by, lambda: list(told)), built.cells, tau)
