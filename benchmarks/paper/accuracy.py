"""Accuracy by the product's own evaluation, with any vector index, metric and method.

A method for equi-joins may be measured by the truth of semantic joins, as the paper does:
``search_join`` is then the join that it searches.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.corpora import corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.lakes import lake_for, prepared, queries_of, search_of
from benchmarks.paper.places import Places

from deepjoin.lab.evaluation.cache import EvaluationCache, ExactAnswers, exact_answers, trained_by
from deepjoin.lab.evaluation.metrics import accuracy as measured
from deepjoin.lab.evaluation.metrics import queries_digest
from deepjoin.lab.evaluation.task import EvaluationSettings, EvaluationTask, ask
from deepjoin.progress import no_progress
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import Vectors


def accuracy(setting: Options, places: Places) -> Iterator[Options]:
    """Yield a row for each depth."""
    options = prepared(setting, places)
    task = task_of(options, places)
    exact = exact_of(task, options, places)
    lake = lake_for(options, places)
    places.tell(f"{options['method']}: {len(task.queries)} queries")
    answers = ask(search_of(lake, options), task.queries, task.depth, task.deeper, task.progress)
    about = answers.times() | {"index_mb": lake.info()["bytes"] / 1e6}
    truth = exact.including(task, answers.found)
    for k in task.k:
        yield head_of(task, options, exact, k) | measured(answers.found, truth, k) | about


def head_of(task: EvaluationTask, options: Options, exact: ExactAnswers, k: int) -> Options:
    """Say what a row is about: method, queries and truth."""
    return {
        "method": options["method"],
        "join": task.join,
        "k": k,
        "queries": len(task.queries),
        "tau": options.get("tau"),
        "queries_digest": queries_digest(task.queries),
        "truth": exact.name,
        "trained": trained_by(str(options.get("encoder", "default"))),
    }


def task_of(options: Options, places: Places) -> EvaluationTask:
    """Return what is asked, and of which columns."""
    source = CorpusSource(corpus_folder(options, places))
    asked = queries_of(options, places)
    tau = options.get("tau") if options["join"] == "semantic" else None
    how = (options["join"], tuple(options["k"]), EvaluationSettings(tau=tau), None)
    return EvaluationTask(source, asked, *how, notify=places.tell, progress=no_progress)


def exact_of(task: EvaluationTask, options: Options, places: Places) -> ExactAnswers:
    """Read or compute the exact answers; cells have vectors only if needed."""
    cells = options.get("cells", "default") if task.join == "semantic" else "none"
    kept = EvaluationCache(places.cache / "evaluation", task)
    return exact_answers(task, kept, Vectors(encoder="none", cells=cells))
