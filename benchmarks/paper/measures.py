"""What is measured of one setting: accuracy, statistics of its corpus, or query times."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from benchmarks.paper.corpora import column_sizes, corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.lakes import lake_for, prepared, queries_of, search_of
from benchmarks.paper.places import Places
from benchmarks.paper.results import SEED

from deepjoin.lab.evaluation.cache import (
    EvaluationCache,
    ExactAnswers,
    exact_answers,
    trained_by,
)
from deepjoin.lab.evaluation.metrics import accuracy as measured
from deepjoin.lab.evaluation.metrics import queries_digest
from deepjoin.lab.evaluation.task import EvaluationSettings, EvaluationTask, ask
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.self_join import equi_pairs
from deepjoin.progress import no_progress
from deepjoin.read.corpus import CorpusSource
from deepjoin.settings import Vectors

#: Columns and joinability from which the paper mines its positive examples.
_SAMPLE, _THRESHOLD = 30_000, 0.7
#: Warm-up searches before timing.
_WARM = 5


def accuracy(setting: Options, places: Places) -> Iterator[Options]:
    """Yield a row for each depth, by the product's own evaluation.

    A method for equi-joins may be measured by the truth of semantic joins, as the paper does:
    ``search_join`` is then the join that it searches.
    """
    options = prepared(setting, places)
    task = task_of(options, places)
    exact = exact_of(task, options, places)
    lake = lake_for(options, places)
    places.tell(f"{options['method']}: {len(task.queries)} queries")
    answers = ask(search_of(lake, options), task.queries, task.depth, task.deeper, task.progress)
    truth = exact.including(task, answers.found)
    about = answers.times() | {"index_mb": lake.info()["bytes"] / 1e6}
    for k in task.k:
        yield head_of(task, options, exact, k) | measured(answers.found, truth, k) | about


def task_of(options: Options, places: Places) -> EvaluationTask:
    """Return what is asked, and of which columns."""
    join, queries = options["join"], queries_of(options, places)
    tau = options.get("tau") if join == "semantic" else None
    how = (join, tuple(options["k"]), EvaluationSettings(tau=tau), None)
    source = CorpusSource(corpus_folder(options, places))
    return EvaluationTask(source, queries, *how, notify=places.tell, progress=no_progress)


def exact_of(task: EvaluationTask, options: Options, places: Places) -> ExactAnswers:
    """Read or compute the exact answers; cells have vectors only if needed."""
    cells = options.get("cells", "default") if task.join == "semantic" else "none"
    kept = EvaluationCache(places.cache / "evaluation", task)
    return exact_answers(task, kept, Vectors(encoder="none", cells=cells))


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


def statistics(setting: Options, places: Places) -> Iterator[Options]:
    """Yield one row: number and sizes of columns, and number of joinable pairs."""
    source = CorpusSource(corpus_folder(setting, places))
    sizes = column_sizes(source)
    row: Options = {
        "columns": len(sizes),
        "most": int(sizes.max()),
        "least": int(sizes.min()),
        "mean": float(sizes.mean()),
    }
    if (source.folder / "queries.parquet").is_file():
        row["queries"] = len(source.queries())
    if setting.get("positives"):
        row["positives"] = _positives(source)
    yield row


def _positives(source: CorpusSource) -> int:
    """Count the ordered pairs of columns of two tables in a sample as large as the paper's."""
    taken = set(np.random.default_rng(SEED).permutation(source.count)[:_SAMPLE].tolist())
    columns = [column for number, column in enumerate(source.columns()) if number in taken]
    numbers = {name: number for number, name in enumerate({one.table for one in columns})}
    tables = [numbers[one.table] for one in columns]
    return len(equi_pairs(TrainingColumns.of(columns, tables, "basic"), _THRESHOLD, None))


def times(setting: Options, places: Places) -> Iterator[Options]:
    """Yield one row: mean and median milliseconds of a query, and of its encoding."""
    options = prepared(setting, places)
    queries = queries_of(options, places)
    search = search_of(lake_for(options, places), options)
    hits = options.get("hits", 10)
    places.tell(f"{options['method']}: {len(queries)} queries, {hits} hits each")
    few = len(queries) <= _WARM  # where each takes long
    for query in queries[: 1 if few else _WARM]:
        search(query, 0 if few else hits)
    took = []
    for query in queries:
        started = perf_counter()
        encoded = search(query, hits).seconds.get("encode", 0.0)
        took.append((encoded, perf_counter() - started))
    encode, total = 1e3 * np.array(took).T
    yield {
        "queries": len(queries),
        "encode_ms": float(encode.mean()),
        "total_ms": float(total.mean()),
        "total_ms_p50": float(np.median(total)),
        "total_ms_p99": float(np.percentile(total, 99)),
    }
