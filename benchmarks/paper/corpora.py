"""Corpora of the experiments: a part of a corpus, columns of one size, or synthetic columns.

Each is a corpus folder in the cache, named by everything it depends on, so it is made once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from benchmarks.frequencies import distinct_in_columns
from benchmarks.paper.experiments import Options
from benchmarks.paper.places import Places
from benchmarks.paper.results import SEED
from benchmarks.paper.tall import write_tall

from deepjoin.arrays import Int
from deepjoin.errors import DeepJoinError
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.normalise.canonical import canonical_array
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import SCHEMA, CorpusSource, write_corpus

_NONE: Int = np.zeros(0, np.int64)
#: The seed of queries drawn from another corpus.
_ASKED_SEED = 20
_GENERATE = Path(__file__).parents[1] / "generate.py"
#: The options a corpus depends on.
_SHAPE = (
    "corpus",
    "columns",
    "queries",
    "cells_between",
    "cells_each",
    "local",
    "labels",
    "answers",
)


def corpus_folder(options: Options, places: Places) -> Path:
    """Return the folder of the corpus of a setting; create it if missing."""
    shape = {name: options[name] for name in _SHAPE if name in options}
    if set(shape) <= {"corpus", "queries"} and options["corpus"] not in _MADE:
        return _given(options, places)
    if _maker(options) is _part:
        shape.pop("queries", None)  # it has all of them
    digest = xxhash.xxh3_64_hexdigest(json.dumps(shape, sort_keys=True).encode())
    folder = places.cache / "corpora" / f"{options['corpus']}-{digest}"
    if not folder.exists():
        places.tell(f"making the corpus {folder.name}: {shape}")
        _make(folder, lambda aside: _maker(options)(options, places, aside))
    return folder


def asked_folder(options: Options, places: Places) -> Path:
    """Return a folder whose columns are the queries of ``queries_of``; create it if missing."""
    name = f"{options['queries']}-of-{options['queries_of']}-for-{options['corpus']}"
    folder = places.cache / "corpora" / name
    if not folder.exists():
        places.tell(f"choosing queries: {name}")
        _make(folder, lambda aside: _asked(options, places, aside))
    return folder


def _asked(options: Options, places: Places, out: Path) -> None:
    """Choose queries at random, one a table, no shorter than the corpus's own, with a match."""
    repository = CorpusSource(_given({"corpus": options["corpus"]}, places))
    source = CorpusSource(_given({"corpus": options["queries_of"]}, places))
    least = column_sizes(repository, "queries.parquet").min()
    long = np.flatnonzero(column_sizes(source) >= least)
    tables = _field(source, "table_id").to_pylist()
    once: dict[str, int] = {}
    for row in np.random.default_rng(_ASKED_SEED).permutation(long).tolist():
        once.setdefault(tables[row], row)
    columns = list(source.columns())
    tried = list(once.values())[: options["queries"] * 3 // 2]
    values = {row: distinct_cells(columns[row].cells, "basic").values for row in tried}
    wanted = pa.array(sorted({value for each in values.values() for value in each}), pa.string())
    there: set[str] = set()
    for block in repository.blocks(names=("cells",)):
        found = canonical_array(block["cells"].flatten().cast(pa.string()), "basic")
        there.update(pc.unique(found.filter(pc.is_in(found, wanted))).to_pylist())
    matched = [columns[row] for row in tried if not there.isdisjoint(values[row])]
    write_corpus(out, matched[: options["queries"]])


def _given(options: Options, places: Places) -> Path:
    folder = places.data / str(options["corpus"])
    if not (folder / "columns.parquet").is_file():
        raise DeepJoinError(
            f"There is no corpus '{folder}' with a columns.parquet. Give --data the folder of the "
            "corpora."
        )
    return folder


def _make(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder atomically."""
    aside = folder.with_name(folder.name + ".new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    write(aside)
    aside.rename(folder)


def _maker(options: Options) -> Callable[[Options, Places, Path], None]:
    if options["corpus"] in _MADE:
        return _MADE[options["corpus"]]
    if "cells_between" in options:
        return _one_size
    return _labelled if options.get("labels") else _part


def _part(options: Options, places: Places, out: Path) -> None:
    """Take some columns at random; a smaller part lies inside a larger one.

    With ``answers``, the best columns of the first queries are among them, or few would have any.
    """
    source = CorpusSource(_given(options, places))
    if options["columns"] > source.count:
        raise DeepJoinError(
            f"{source.folder} has {source.count:,} columns, not {options['columns']:,}. Ask for "
            "fewer, or for generated ones."
        )
    needed = _answers(source, *options["answers"]) if "answers" in options else _NONE
    others = np.setdiff1d(np.arange(source.count), needed)
    drawn = others[_drawn(len(others), max(0, options["columns"] - len(needed)))]
    _write(out / "columns.parquet", source, np.union1d(needed, drawn))
    if (source.folder / "queries.parquet").exists():
        shutil.copy(source.folder / "queries.parquet", out)


def _answers(source: CorpusSource, queries: int, depth: int) -> Int:
    """Find the rows of the exact answers to some queries."""
    truth = brute_force(source.columns(), source.queries()[:queries], "basic")
    wanted = pa.array([column for one in truth for column in one.ranked[:depth]])
    ids = _field(source, "column_id")
    return np.flatnonzero(np.asarray(pc.is_in(ids, wanted.cast(ids.type))))


def _labelled(options: Options, places: Places, out: Path) -> None:
    """Take the first queries, every column with a label of theirs, and others at random."""
    source = CorpusSource(_given(options, places))
    queries = pq.read_table(source.folder / "queries.parquet").slice(0, options["queries"])
    labels = pq.read_table(source.folder / "labels.parquet")
    labels = labels.filter(pc.is_in(labels["query_id"], queries["column_id"].combine_chunks()))
    ids = _field(source, "column_id")
    needed = pc.is_in(ids, pa.concat_arrays(labels["column_id"].chunks).cast(ids.type))
    needed = np.asarray(needed)
    others = np.flatnonzero(~needed)
    more = others[_drawn(len(others), min(len(others), max(0, options["columns"] - needed.sum())))]
    _write(out / "columns.parquet", source, np.union1d(np.flatnonzero(needed), more))
    pq.write_table(queries, out / "queries.parquet")
    pq.write_table(labels, out / "labels.parquet")


def _one_size(options: Options, places: Places, out: Path) -> None:
    """Take columns whose number of distinct cells is in a range, and queries from among them."""
    source = CorpusSource(_given(options, places))
    least, most = options["cells_between"]
    sizes = column_sizes(source)
    chosen = np.flatnonzero((sizes >= least) & (sizes <= (most or sizes.max())))
    wanted = options["columns"] + options["queries"]
    if wanted > len(chosen):
        raise DeepJoinError(
            f"{source.folder} has {len(chosen):,} columns of {least} to {most or 'more'} cells, "
            f"not {wanted:,}. Ask for fewer."
        )
    drawn = np.random.default_rng(SEED).permutation(chosen)[:wanted]
    _write(out / "queries.parquet", source, np.sort(drawn[: options["queries"]]))
    _write(out / "columns.parquet", source, np.sort(drawn[options["queries"] :]))


def _generated(options: Options, places: Places, out: Path) -> None:
    """Generate columns with the document frequencies of wiki-equi."""
    like = _given({"corpus": "wiki-equi"}, places)
    wanted = ["--columns", str(options["columns"]), "--queries", str(options["queries"])]
    command = [sys.executable, str(_GENERATE), str(out), "--like", str(like), *wanted]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise DeepJoinError(
            f"No columns were generated: {' '.join(command)} failed, as said above."
        )


def _tall(options: Options, places: Places, out: Path) -> None:
    """Generate tall columns."""
    shape = {name: options[name] for name in ("columns", "queries", "cells_each", "local")}
    write_tall(out, **shape, seed=SEED, pools=places.cache / "faker")


#: Synthetic corpora by name.
_MADE: dict[str, Callable[[Options, Places, Path], None]] = {
    "generated": _generated,
    "faker": _tall,
}


def column_sizes(source: CorpusSource, file: str = "columns.parquet") -> Int:
    """Count the distinct cells of each column, as evaluation compares them."""
    found = [
        np.bincount(distinct_in_columns(block["cells"])[1], minlength=block.num_rows)
        for block in source.blocks(file, ("cells",))
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _drawn(count: int, wanted: int) -> Int:
    return np.sort(np.random.default_rng(SEED).permutation(count)[:wanted])


def _field(source: CorpusSource, name: str) -> pa.Array:
    return pa.concat_arrays([block[name] for block in source.blocks(names=(name,))])


def _write(path: Path, source: CorpusSource, rows: Sequence[int] | Int) -> None:
    """Write some rows of a corpus, in their order."""
    start = 0
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for block in source.blocks():
            here = np.asarray(rows)[np.searchsorted(rows, start) :]
            here = here[: np.searchsorted(here, start + block.num_rows)] - start
            if len(here):
                writer.write_batch(block.take(pa.array(here)))
            start += block.num_rows
