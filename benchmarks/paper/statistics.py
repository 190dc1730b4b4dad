"""Statistics of a corpus: the paper's table of data sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from benchmarks.paper.corpora import column_sizes, corpus_folder
from benchmarks.paper.experiments import Options
from benchmarks.paper.places import Places
from benchmarks.paper.results import SEED

from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.self_join import equi_pairs
from deepjoin.read.corpus import CorpusSource

#: Columns and joinability from which the paper mines its positive examples.
_SAMPLE, _THRESHOLD = 30_000, 0.7


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
