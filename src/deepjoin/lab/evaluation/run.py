"""`deepjoin.evaluate`: search every query with each method through a lake, and compare."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.lab.evaluation.cache import (
    BuiltIndex,
    EvaluationCache,
    ExactAnswers,
    exact_answers,
    trained_by,
)
from deepjoin.lab.evaluation.metrics import (
    SEED,
    Pool,
    Row,
    accuracy,
    by_labels,
    candidates_of,
    merged,
    queries_digest,
    read_labels,
)
from deepjoin.lab.evaluation.task import (
    Answers,
    EncoderChoice,
    EvaluationSettings,
    EvaluationTask,
    ask,
)
from deepjoin.progress import Notify, Progress, no_notice, no_progress
from deepjoin.read.corpus import CorpusSource
from deepjoin.search.methods import JOINS, method_named
from deepjoin.settings import SearchSettings, Vectors, deprecated_keywords


def evaluate(
    corpus: str | os.PathLike[str],
    methods: Sequence[str] = ("hybrid",),
    *,
    join: str = "equi",
    k: Sequence[int] = (10, 20, 30, 40, 50),
    settings: EvaluationSettings | None = None,
    cache: str | os.PathLike[str] | None = None,
    notify: Notify = no_notice,
    progress: Progress = no_progress,
    **deprecated: Any,
) -> Iterator[Row]:
    """Yield one row for each method and k.

    Parameters
    ----------
    corpus
        A folder of columns.parquet, queries.parquet and optionally labels.parquet.
    methods
        Names from `deepjoin methods`.
    join
        "equi" and "semantic" are compared with the exact answers; "any" with labels only.
    k
        The depths to measure at.
    settings
        Number of queries, tau, encoders, and whether candidates are measured.
    cache
        A folder that keeps indexes, exact answers and answers of methods.
    notify, progress
        Called with what is done next, and with (done, total, what).
    **deprecated
        Fields of `EvaluationSettings`, and ``tell`` for ``notify``; accepted for one more
        release.
    """
    if "tell" in deprecated:
        notify = deprecated.pop("tell")
        text = "evaluate() takes tell for one more release; use notify"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    moved = deprecated_keywords("evaluate", deprecated, settings=EvaluationSettings)
    settings = replace(settings or EvaluationSettings(), **moved["settings"])
    # A generator starts with its first row; deprecated keywords must warn at the call.
    return _evaluated(corpus, methods, join, k, settings, cache, notify, progress)


def _evaluated(
    corpus: str | os.PathLike[str],
    methods: Sequence[str],
    join: str,
    k: Sequence[int],
    settings: EvaluationSettings,
    cache: str | os.PathLike[str] | None,
    notify: Notify,
    progress: Progress,
) -> Iterator[Row]:
    _check(methods, join, k, settings)
    encoders = EncoderChoice.of(settings)
    encoders.check(methods)
    source = CorpusSource(corpus)
    queries = source.queries()[: settings.queries]
    if not queries:
        raise DeepJoinError(f"The corpus '{source.folder}' has no queries to evaluate with.")
    labels = read_labels(source, queries)
    task = EvaluationTask(source, queries, join, tuple(k), settings, labels, notify, progress)
    with tempfile.TemporaryDirectory() if cache is None else nullcontext(cache) as folder:
        kept = EvaluationCache(Path(folder), task)
        exact = exact_answers(task, kept, encoders.vectors({"cell vectors"}))
        answered = (_answered(task, kept, one, encoders.of_method(one)) for one in methods)
        pool = None
        if task.labels is not None:
            # Pooled measures need the answers of all methods first.
            every = list(answered)
            pool = Pool(
                tuple(one.method for one in every), tuple(one.answers.found for one in every)
            )
            answered = (one for one in every)
        for one in answered:
            yield from _rows(task, one, exact, pool)


def _check(
    methods: Sequence[str], join: str, k: Sequence[int], settings: EvaluationSettings
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
        raise DeepJoinError(f"k is {','.join(map(str, k))}; give whole numbers >= 1.")
    tau = settings.tau
    if tau is not None and (join == "equi" or not 0 < tau <= 1):
        raise DeepJoinError(
            f"tau is {tau} and join {join}; tau is a cosine above 0 and at most 1, for joins any "
            "and semantic."
        )
    if settings.candidates and join == "any":
        raise DeepJoinError("Join any has no exact top 10; ask for candidates of equi or semantic.")


@dataclass(frozen=True)
class _MethodAnswers:
    """The answers of one method, and the index it searched."""

    method: str
    #: The column encoder as it was given.
    encoder: str
    built: BuiltIndex
    answers: Answers


def _answered(
    task: EvaluationTask, kept: EvaluationCache, method: str, vectors: Vectors
) -> _MethodAnswers:
    """Search every query with a method, unless an earlier run has."""
    task.notify(f"{method}: index")
    built = kept.index(vectors)
    # Methods that compare no cells by meaning are judged by tau, and search without.
    compares = "cell vectors" in method_named(method).needs
    tau, verified = task.settings.tau if compares else None, task.settings.verified
    # The whole order is judged: nothing is set apart.
    how = SearchSettings(tau, least=0)
    if verified is not None:
        how = replace(how, verified=verified)
    search = partial(built.lake.search, join=task.join, method=method, settings=how)

    def make() -> Answers:
        task.notify(f"{method}: {len(task.queries)} queries")
        return ask(search, task.queries, task.depth, task.deeper, task.progress)

    by = method, task.join, tau, verified, task.depth, task.deeper
    return _MethodAnswers(method, vectors.encoder, built, kept.answers(built, by, make))


def _rows(
    task: EvaluationTask, one: _MethodAnswers, exact: ExactAnswers, pool: Pool | None
) -> Iterator[Row]:
    """Yield the rows of a method: what was measured at each k, and what the answers took."""
    built, answers = one.built, one.answers
    truth = exact.including(task, answers.found)
    # The tau that decided the answers: that of the truth, or else that of the index.
    tau = None
    if task.join == "semantic":
        tau = exact.tau
    elif task.join == "any" and built.cells is not None:
        tau = built.cells.tau if task.settings.tau is None else task.settings.tau
    truth_by = None if task.join == "any" else exact.name
    trained = trained_by(one.encoder)
    if None not in (trained, truth_by) and trained != truth_by:
        task.notify(f"{one.method}: trained by {trained}, judged by {truth_by}")
    about = answers.times() | {
        "build_s": built.seconds,
        "index_mb": built.lake.info()["bytes"] / 1e6,
        "memory_mb": answers.memory_mb,
        "tau": tau,
        "encoder": built.encoder,
        "truth": truth_by,
        "trained": trained,
        "queries_digest": queries_digest(task.queries),
        "seed": SEED,
        "version": __version__,
    }
    head = {"corpus": task.source.folder.name, "method": one.method, "join": task.join}
    for k in task.k:
        parts = [head | {"k": k, "queries": len(task.queries)}, accuracy(answers.found, truth, k)]
        if task.settings.candidates:
            parts.append(candidates_of(answers.deeper, truth))
        if task.labels is not None and pool is not None:
            parts.append(by_labels(answers.found, answers.deeper, task.labels, k))
            parts.append(pool.measured(answers.found, task.labels, k))
        yield merged(*parts, about)
