"""The evaluation loop: for each method, search every query through the lake and compare."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deepjoin._version import __version__
from deepjoin.build.build import Progress, no_progress
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lab.evaluation.asking import Answers, ask
from deepjoin.lab.evaluation.cache import Built, Cache
from deepjoin.lab.evaluation.chosen import Chosen
from deepjoin.lab.evaluation.exact import Exact, exact_answers
from deepjoin.lab.evaluation.labels import read_labels
from deepjoin.lab.evaluation.row import SEED, Pool, Row, accuracy, by_labels, candidates_of
from deepjoin.lab.evaluation.task import Task, Tell
from deepjoin.lab.evaluation.truth import Truth
from deepjoin.lake import JOINS
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.methods import method_named
from deepjoin.settings import SearchSettings, Vectors


def evaluate(
    corpus: str | os.PathLike[str],
    methods: Sequence[str] = ("hybrid",),
    *,
    join: str = "equi",
    k: Sequence[int] = (10, 20, 30, 40, 50),
    queries: int | None = None,
    tau: float | None = None,
    encoder: str | Sequence[str] | None = None,
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
        As for `deepjoin.index`, for the methods that need them; several encoders if they are of
        different kinds.
    candidates
        Also measure how many of the exact top 10 are among the first 500.
    cache
        A folder to keep built indexes, truth and answers in.
    tell, progress
        Told what is done next, and how much of it is done, of how much.
    """
    _check(methods, join, k, tau, candidates)
    chosen = Chosen.of(encoder, cells, sketch)
    chosen.check(methods)
    source = CorpusSource(corpus)
    asked = source.queries()[:queries]
    if not asked:
        raise DeepJoinError(f"The corpus '{source.folder}' has no queries to evaluate with.")
    labels = read_labels(source, asked)
    task = Task(source, asked, join, tau, tuple(k), candidates, labels, tell, progress)
    with _folder(cache) as folder:
        kept = Cache(folder, task)
        exact = exact_answers(task, kept, chosen.vectors({"cell vectors"}))
        answered = (_answered(task, kept, one, chosen.of_method(one)) for one in methods)
        yield from _rows(task, answered, exact)


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


@contextmanager
def _folder(cache: str | os.PathLike[str] | None) -> Iterator[Path]:
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@dataclass(frozen=True)
class _Answered:
    """What one method answered, with the index it was asked on."""

    method: str
    built: Built
    answers: Answers


def _answered(task: Task, kept: Cache, method: str, vectors: Vectors) -> _Answered:
    """Put every query to a method, unless an earlier run has."""
    task.tell(f"{method}: index")
    built = kept.index(vectors)
    search = partial(
        built.lake.search, join=task.join, method=method, settings=SearchSettings(task.tau)
    )

    def make() -> Answers:
        task.tell(f"{method}: {len(task.queries)} queries")
        return ask(search, task.queries, task.depth, task.deeper, task.progress)

    by = method, task.join, task.tau, task.depth, task.deeper
    return _Answered(method, built, kept.answers(built, by, make))


def _rows(task: Task, answered: Iterable[_Answered], exact: Exact) -> Iterator[Row]:
    """Measure the answers of each method; labels need those of all methods first."""
    pool = None
    if task.labels is not None:
        answered = list(answered)
        methods, found = [one.method for one in answered], [one.answers.found for one in answered]
        pool = Pool(tuple(methods), tuple(found))
    for one in answered:
        truth = exact.knowing(task, one.answers.found)
        about = _about(task, one.built, exact, one.answers)
        for k in task.k:
            head = {"corpus": task.source.folder.name, "method": one.method, "join": task.join}
            measured = {"queries": len(task.queries)} | _measured(task, one.answers, truth, pool, k)
            yield head | {"k": k} | measured | about


def _measured(task: Task, answers: Answers, truth: list[Truth], pool: Pool | None, k: int) -> Row:
    row = accuracy(answers.found, truth, k)
    if task.candidates:
        row |= candidates_of(answers.deeper, truth)
    if task.labels is not None and pool is not None:
        row |= by_labels(answers.found, answers.deeper, task.labels, k)
        row |= pool.measured(answers.found, task.labels, k)
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
