"""Column vectors and sketches: time to compute, size, accuracy and speed of search.

CORPUS is a folder with columns.parquet and queries.parquet. The index is built once and kept in
the work folder. Sketches are made of every column, in each of the dimensions asked for: P@10
counts any column as joinable as the tenth best, and candidates@500 is the share of ten such
columns among the nearest 500. Of the language model's vectors only --encode N are made, because
that takes long; to measure the search at full size the others are synthetic: each is an encoded
row moved by a random part of the difference of two others. Every nearest ten is compared with
an exact scan. Times are of one thread, by the processor's clock, so that others do not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import deepjoin
from common import Row, command_line, emit, folder_bytes, indexed, machine, percentiles, say
from deepjoin import Column
from deepjoin.arrays import Float, Half, Int
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.vector_build import index_rows, new_rows
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.column_vectors import segment_columns
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    FrequencySnapshot,
    Sketcher,
    sketch_rows,
    write_frequency,
)

_BLOCK = 50_000


def overlaps(segment: Segment, query: Column) -> Int:
    """Count what a query shares with every column; -1 for those of its own table."""
    values = segment.values
    numbers = values.look_up(distinct_cells(query.cells, SETTINGS.profile).values)
    lists = [values.postings(number) for number in numbers[numbers >= 0].tolist()]
    found = np.bincount(np.concatenate([np.zeros(0, int), *lists]), minlength=values.columns)
    own = None if query.table is None else segment.catalog.find_table(query.table)
    if own is not None:
        found[segment.catalog.columns_of(own)] = -1
    return found


def quality(segment: Segment, index: VectorIndex, queries: Sequence[Column], asked: Float) -> Row:
    """Measure precision over queries whose tenth best column shares a value."""
    precision, candidates = [], []
    for query, vector in zip(queries, asked, strict=True):
        shared = overlaps(segment, query)
        tenth = np.partition(shared, -10)[-10]
        if tenth < 1:
            continue
        near = shared[index.search(vector, 500, shared < 0).ids] >= tenth
        precision.append(near[:10].mean())
        candidates.append(min(1.0, near.sum() / 10))
    means = {"precision_ties": np.mean(precision), "candidates_500": np.mean(candidates)}
    return {"queries": len(precision)} | means


def tenth_nearest(rows: Half, asked: Float) -> Float:
    """Compare queries with every row: the tenth highest cosine of each."""
    best = np.zeros((len(asked), 0), np.float32)
    queries = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK].astype(np.float32)
        lengths = np.linalg.norm(block, axis=1)
        cosines = queries @ block.T / np.where(lengths > 0, lengths, 1)
        best = np.sort(np.hstack([best, cosines]), axis=1)[:, -10:]
    return best[:, 0]


def speed(index: VectorIndex, rows: Half, asked: Float) -> Row:
    """Time the search for the nearest ten and count how many are right."""
    tenth = tenth_nearest(rows, asked)
    index.search(asked[0], 10)
    right, seconds = [], []
    for vector, least in zip(asked, tenth.tolist(), strict=True):
        started = process_time()
        found = index.search(vector, 10)
        seconds.append(process_time() - started)
        right.append(np.mean(1 - found.distances >= least - 1e-4))
    return {"recall": np.mean(right)} | percentiles(seconds)


def measured(rows: Half, kind: str, use: Callable[[VectorIndex], Row]) -> Row:
    """Index rows in a separate folder and search them."""
    with tempfile.TemporaryDirectory() as folder:
        started = process_time()
        new_rows(Path(folder), *rows.shape)[:] = rows
        built_as = index_rows(Path(folder), kind)
        took = process_time() - started
        size = folder_bytes(Path(folder)) / len(rows) - 2 * rows.shape[1]
        about = {"kind": built_as, "index_s": took, "index_bytes_each": size}
        return about | use(VectorIndex(Path(folder)))


def sketches(
    segment: Segment, frequency: FrequencySnapshot, queries: Sequence[Column], dimension: int,
    kind: str,
) -> None:  # fmt: skip
    """Measure sketches of one dimension."""
    started = process_time()
    rows = np.concatenate(list(sketch_rows(segment, frequency, dimension)))
    took = process_time() - started
    sketcher = Sketcher([segment], frequency, dimension, SETTINGS.profile)
    asked = np.stack([sketcher(query) for query in queries])
    known = asked[asked.any(axis=1)]

    def use(index: VectorIndex) -> Row:
        return quality(segment, index, queries, asked) | speed(index, rows, known)

    about = {"what": "sketch", "dimension": dimension, "make_s": took}
    emit("column_vectors", **about, **measured(rows, kind, use))


def encoded(
    segment: Segment, frequency: FrequencySnapshot, queries: Sequence[Column], count: int,
    kind: str,
) -> None:  # fmt: skip
    """Encode some columns, synthesise the others, and measure the search."""
    encoder = load_encoder("default", profile=SETTINGS.profile)
    assert encoder is not None
    random = np.random.default_rng(1)
    columns = segment.values.columns
    some = np.sort(random.choice(columns, min(count, columns), replace=False))
    started = perf_counter()
    real = encoder.encode(list(segment_columns(segment, some)), frequency)
    emit("column_vectors", what="encode", columns_a_s=len(some) / (perf_counter() - started))
    rows = np.empty((columns, real.shape[1]), np.float16)
    rows[: len(real)] = real
    for start in range(len(real), columns, _BLOCK):
        one, two, three = random.integers(0, len(real), (3, min(_BLOCK, columns - start)))
        parts = random.uniform(0.1, 0.6, (len(one), 1))
        rows[start : start + len(one)] = real[one] + parts * (real[two] - real[three])
    asked = encoder.encode(queries, frequency)
    row = measured(rows, kind, lambda index: speed(index, rows, asked))
    emit("column_vectors", what="columns", encoded=len(real), columns=columns, **row)


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("corpus", type=Path, metavar="CORPUS")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for the index (here)")
    add("--dimensions", type=int, nargs="*", default=[384, 768, 1536], metavar="N")
    add("--encode", type=int, default=10_000, metavar="N", help="columns to encode (10,000)")
    add("--queries", type=int, default=0, metavar="N", help="only the first N queries")
    add("--kind", default="auto", help="of the vector index (auto)")
    given = parser.parse_args()
    emit("column_vectors", machine=machine())
    folder = indexed(given.corpus, given.workdir / f"{given.corpus.name}.index")
    (segment,) = deepjoin.open(folder).index.segments
    queries = list(CorpusSource(given.corpus).columns("queries.parquet"))[: given.queries or None]
    with tempfile.TemporaryDirectory() as scratch:
        started = process_time()
        write_frequency([segment], Path(scratch))
        frequency = FrequencySnapshot(Path(scratch))
        took = {"frequency_s": process_time() - started}
    started = process_time()
    count = sum(1 for _ in segment_columns(segment, np.arange(segment.values.columns)))
    took["columns_s"] = process_time() - started
    emit("column_vectors", what="derive", columns=count, **took)
    for dimension in given.dimensions:
        say(f"sketches of {dimension} dimensions")
        sketches(segment, frequency, queries, dimension, given.kind)
    if given.encode:
        say(f"encoding {given.encode} columns")
        encoded(segment, frequency, queries, given.encode, given.kind)


if __name__ == "__main__":
    main()
