"""The evaluation loop: for each method, search every query through the lake and compare."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.evaluation.asking import Answers, ask
from deepjoin.evaluation.cache import Built, Cache
from deepjoin.evaluation.exact import Exact, exact_answers
from deepjoin.evaluation.labels import read_labels
from deepjoin.evaluation.row import SEED, Row, accuracy, by_labels, candidates_of
from deepjoin.evaluation.task import Task, Tell
from deepjoin.evaluation.truth import Truth
from deepjoin.lake.build import Progress, no_progress
from deepjoin.lake.lake import JOINS
from deepjoin.search import method_named
from deepjoin.settings import Vectors
from deepjoin.sources.corpus import CorpusSource

#: Numbers in a sketch, for methods that need one, unless told otherwise.
SKETCH = 768


def evaluate(
    corpus: str | os.PathLike[str],
    methods: Sequence[str] = ("hybrid",),
    *,
    join: str = "equi",
    k: Sequence[int] = (10, 20, 30, 40, 50),
    queries: int | None = None,
    tau: float | None = None,
    encoder: str | None = None,
    cells: str | None = None,
    sketch: int | None = None,
    candidates: bool = False,
    cache: str | os.PathLike[str] | None = None,
    tell: Tell = lambda text: None,
    progress: Progress = no_progress,
) -> Iterator[Row]:
    """Yield one row for each method and k.

    Parameters
    ----------
    corpus
        A folder of columns.parquet, queries.parquet and perhaps labels.parquet.
    methods
        Names from `deepjoin methods`.
    join
        "equi" and "semantic" are compared with the exact answer; "any" has none, only labels.
    k
        The depths to measure at.
    queries
        Only the first so many queries.
    tau
        The cosine from which on two values match; unless given, the cell encoder's own.
    encoder, cells, sketch
        As for `deepjoin.index`, for the methods that need them.
    candidates
        Also measure how many of the exact top 10 are among the first 500.
    cache
        A folder to keep built indexes and truth in.
    tell, progress
        Told what is done next, and how much of it is done, of how much.
    """
    _check(methods, join, k, tau, candidates)
    source = CorpusSource(corpus)
    asked = source.queries()[:queries]
    if not asked:
        raise DeepJoinError(f"The corpus '{source.folder}' has no queries to evaluate with.")
    labels = read_labels(source, asked)
    task = Task(source, asked, join, tau, tuple(k), candidates, labels, tell, progress)
    numbers = SKETCH if sketch is None else sketch
    wanted = partial(_vectors, Vectors(encoder or "default", cells or "default", numbers))
    with _folder(cache) as folder:
        kept = Cache(folder, task)
        exact = exact_answers(task, kept, wanted({"cell vectors"}))
        for method in methods:
            tell(f"{method}: index")
            built = kept.index(wanted(set(method_named(method).needs)))
            yield from _rows(task, method, built, exact)


def _check(
    methods: Sequence[str], join: str, k: Sequence[int], tau: float | None, candidates: bool
) -> None:
    """Refuse what cannot be evaluated before any work is done."""
    if join not in JOINS:
        raise unknown_name("join kind", join, "deepjoin", JOINS)
    for method in methods:
        joins = method_named(method).joins
        if join not in ("any", *joins):
            raise DeepJoinError(
                f"Method '{method}' answers join {' or '.join(joins)}, not {join}. "
                f"Methods: deepjoin methods."
            )
    if not k or min(k) < 1:
        raise DeepJoinError(f"k is {','.join(map(str, k))}; give numbers from 1 on.")
    if tau is not None and (join == "equi" or not 0 < tau <= 1):
        raise DeepJoinError(
            f"tau is {tau} and join {join}; tau is a cosine above 0 and at most 1, for joins any "
            "and semantic."
        )
    if candidates and join == "any":
        raise DeepJoinError("Join any has no exact top 10; ask for candidates of equi or semantic.")


def _vectors(chosen: Vectors, needs: set[str]) -> Vectors:
    """Choose what an index is to have for what a method needs, and nothing else."""
    return Vectors(
        encoder=chosen.encoder if "column vectors" in needs else "none",
        cells=chosen.cells if "cell vectors" in needs else "none",
        sketch=chosen.sketch if "sketches" in needs else 0,
    )


@contextmanager
def _folder(cache: str | os.PathLike[str] | None) -> Iterator[Path]:
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _rows(task: Task, method: str, built: Built, exact: Exact) -> Iterator[Row]:
    """Put every query to a method, and measure its answers at each depth."""
    task.tell(f"{method}: {len(task.queries)} queries")
    search = partial(built.lake.search, join=task.join, method=method, tau=task.tau)
    answers = ask(search, task.queries, task.depth, task.deeper, task.progress)
    truth = exact.knowing(task, answers.found)
    about = _about(task, built, exact, answers)
    for k in task.k:
        head = {"corpus": task.source.folder.name, "method": method, "join": task.join, "k": k}
        measured = {"queries": len(task.queries)} | _measured(task, answers, truth, k)
        yield head | measured | about


def _measured(task: Task, answers: Answers, truth: list[Truth], k: int) -> Row:
    row = accuracy(answers.found, truth, k)
    if task.candidates:
        row |= candidates_of(answers.deeper, truth)
    if task.labels is not None:
        row |= by_labels(answers.found, answers.deeper, task.labels, k)
    return row


def _about(task: Task, built: Built, exact: Exact, answers: Answers) -> Row:
    """Say what the answers took, and by what they were found."""
    return answers.times() | {
        "build_s": built.seconds,
        "index_mb": built.lake.info()["bytes"] / 1e6,
        "memory_mb": answers.memory_mb,
        "tau": exact.tau if task.join == "semantic" else _tau(task, built),
        "encoder": built.encoder,
        "seed": SEED,
        "version": __version__,
    }


def _tau(task: Task, built: Built) -> float | None:
    """Return the cosine that makes a match, where cells are compared by their vectors."""
    if task.join == "equi" or built.cells is None:
        return None
    return built.cells.tau if task.tau is None else task.tau
