"""Accuracy by the product's own evaluation, with any vector index, metric and method.

A method for equi-joins may be measured by the truth of semantic joins, as the paper does: what it
is asked for is then ``search_join``.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.corpora import corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.lakes import lake_for, prepared, queries_of, search_of
from benchmarks.paper.places import Places

from deepjoin.build.build import no_progress
from deepjoin.lab.evaluation.asking import ask
from deepjoin.lab.evaluation.cache import Cache
from deepjoin.lab.evaluation.exact import Exact, exact_answers
from deepjoin.lab.evaluation.row import accuracy as measured
from deepjoin.lab.evaluation.task import Task
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import Vectors


def accuracy(setting: Options, places: Places) -> Iterator[Options]:
    """Yield a row for each depth."""
    options = prepared(setting, places)
    task = _task(options, places)
    exact = _exact(task, options, places)
    lake = lake_for(options, places)
    places.tell(f"{options['method']}: {len(task.queries)} queries")
    answers = ask(search_of(lake, options), task.queries, task.depth, task.deeper, task.progress)
    truth = exact.knowing(task, answers.found)
    about = answers.times() | {"index_mb": lake.info()["bytes"] / 1e6, "tau": options.get("tau")}
    for k in task.k:
        head = {"method": options["method"], "join": task.join, "k": k}
        yield head | {"queries": len(task.queries)} | measured(answers.found, truth, k) | about


def _task(options: Options, places: Places) -> Task:
    source = CorpusSource(corpus_folder(options, places))
    asked = queries_of(options, places)
    tau = options.get("tau") if options["join"] == "semantic" else None
    how = (options["join"], tau, tuple(options["k"]), False, None)
    return Task(source, asked, *how, tell=places.tell, progress=no_progress)


def _exact(task: Task, options: Options, places: Places) -> Exact:
    """Read or make the exact answers; cells have vectors where they are needed."""
    cells = options.get("cells", "default") if task.join == "semantic" else "none"
    kept = Cache(places.cache / "evaluation", task)
    return exact_answers(task, kept, Vectors(encoder="none", cells=cells))
