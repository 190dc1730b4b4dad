"""Hits that another machine found, measured as those of a run: for models that need a GPU.

A folder has ``machine.json``, which describes that machine as `results.hardware` does, and an
archive for each model, ``NAME.npz`` for an encoder of that name. In it ``CORPUS-INDEX-METRIC`` has
a row for each query of CORPUS, in the order of `lakes.queries_of`: the rows of the repository
that were found, best first, -1 behind the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.paper.corpora import corpus_folder
from benchmarks.paper.experiments import Experiment, Options
from benchmarks.paper.measures import exact_of, head_of, task_of
from benchmarks.paper.places import Places
from benchmarks.paper.results import Results
from benchmarks.paper.running import brief

from deepjoin.arrays import Int
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.metrics import BEST, CANDIDATES, accuracy, candidates_of, merged
from deepjoin.lab.evaluation.truth import Truth
from deepjoin.read.corpus import CorpusSource


def take(experiment: Experiment, size: str, places: Places, results: Results, folder: Path) -> None:
    """Measure the hits of every setting that the folder has some of."""
    machine = json.loads((folder / "machine.json").read_text("utf-8"))
    command = f"python -m benchmarks.paper hits {experiment.name} FOLDER --data DIR --size {size}"
    for setting, _ in experiment.settings(size):
        archive = folder / f"{Path(setting.get('encoder', '')).name}.npz"
        if not archive.is_file():
            continue
        asked = setting.get("queries_of", setting["corpus"])
        name = f"{asked}-{setting['vector_index']}-{setting['metric']}"
        with np.load(archive) as arrays:
            found = arrays.get(name)
        if found is not None:
            places.tell(f"{brief(setting)}, {name}")
            results.add(setting, _rows(setting, found, places), size, command, machine)


def _rows(setting: Options, found: Int, places: Places) -> Iterator[Options]:
    options = places.options(setting)
    task = task_of(options, places)
    if len(found) != len(task.queries):
        raise DeepJoinError(
            f"There are hits of {len(found):,} queries; the setting has {len(task.queries):,}. "
            "Take hits of the same queries, in their order."
        )
    blocks = CorpusSource(corpus_folder(options, places)).blocks(names=("column_id",))
    ids = [name for block in blocks for name in block["column_id"].to_pylist()]
    hits = [[ids[row] for row in rows if row >= 0] for rows in found.tolist()]
    exact = exact_of(task, options, places)
    is_verified = options["method"] == "deepjoin-exact"
    if is_verified:
        hits = [_verified(*pair) for pair in zip(hits, exact.truth, strict=True)]
    for k in task.k:
        row = head_of(task, options, exact, k) | accuracy(hits, exact.truth, k)
        if k == BEST and found.shape[1] >= CANDIDATES and not is_verified:
            row = merged(row, candidates_of(hits, exact.truth))
        yield row


def _verified(hits: list[str], truth: Truth) -> list[str]:
    """Rank hits by the definition, as `deepjoin-exact` does."""
    place = {name: at for at, name in enumerate(truth.joinability)}
    return sorted((name for name in hits if name in place), key=place.__getitem__)
