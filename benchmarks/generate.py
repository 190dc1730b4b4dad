"""Generate a corpus of any size with the document frequencies of a given corpus.

OUT gets columns.parquet; queries.parquet, columns of the same lake that were held out, with the
sizes of CORPUS's queries; and queries-1000.parquet, queries of 1,000 cells, a part of several
columns of the lake each, the rest in no column. The histogram of document frequencies is
reported for both corpora: rare values keep the number of columns they are in, frequent
ones the share of the columns. Cells are made-up words with the lengths of CORPUS's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import command_line, emit, machine, say, show
from deepjoin.arrays import Int
from deepjoin.read.corpus import SCHEMA, CorpusSource
from frequencies import Measured, histogram, measure
from layout import FAMILY, Layout, make_layout
from texts import Texts

Generator = np.random.Generator

_BLOCK = 20_000
_LARGE = 1000
_HEADS = 3000


def batches(
    layout: Layout, texts: Texts, first: int, stop: int, kind: str
) -> Iterator[pa.RecordBatch]:
    """Write some columns out, a block at a time; each is the key column of its own table."""
    families = np.argsort(layout.line) // FAMILY
    for start in range(first, stop, _BLOCK):
        end = min(start + _BLOCK, stop)
        offsets = layout.offsets[start : end + 1]
        cells = texts.of(layout.values[offsets[0] : offsets[-1]].astype(np.int64))
        numbers = range(start - first, end - first)
        yield _batch(kind, numbers, families[start:end], texts, offsets - offsets[0], cells)


def _batch(
    kind: str, numbers: Iterable[int], families: Int, texts: Texts, offsets: Int, cells: pa.Array
) -> pa.RecordBatch:
    """Assemble columns in the format of a corpus."""
    tables = [f"{kind}-{number:07}" for number in numbers]
    fields = {
        "column_id": pa.array([f"{table}#0" for table in tables]),
        "table_id": pa.array(tables),
        "title": texts.of(families + 1_000_000),
        "column_name": texts.of(families * 31 % _HEADS),
        "context": pa.array([""] * len(tables)),
    }
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), cells.cast("large_string"))
    arrays = [field.cast("large_string") for field in fields.values()]
    return pa.RecordBatch.from_arrays([*arrays, lists], schema=SCHEMA)


def large_queries(
    layout: Layout, texts: Texts, count: int, columns: int, random: Generator
) -> pa.RecordBatch:
    """Make queries of 1,000 cells, 300 to 900 of them from neighbouring columns of the lake."""
    new = layout.count
    parts: list[Int] = []
    for known in random.integers(300, 900, count).tolist():
        values = _neighbouring(layout, known, columns, random)
        parts.append(random.permutation(np.append(values, np.arange(new, new + _LARGE - known))))
        new += _LARGE - known
    offsets = np.arange(count + 1) * _LARGE
    cells = texts.of(np.concatenate(parts))
    return _batch("large-query", range(count), np.arange(count), texts, offsets, cells)


def _neighbouring(layout: Layout, wanted: int, columns: int, random: Generator) -> Int:
    """Take all cells of one column of the lake, and half of those of the next ones."""
    place = int(random.integers(len(layout.line)))
    found = np.zeros(0, np.int32)
    while len(found) < wanted:
        number = layout.line[place % len(layout.line)]
        if number < columns:
            cells = layout.column(number)
            half = random.choice(cells, (len(cells) + 1) // 2, replace=False)
            found = np.append(found, np.setdiff1d(half if len(found) else cells, found))
        place += 1
    return found[:wanted].astype(np.int64)


def write(path: Path, parts: Iterable[pa.RecordBatch]) -> None:
    """Write batches as a Parquet file, one row group each."""
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for part in parts:
            writer.write_batch(part)


def compare(like: Measured, made: Measured) -> None:
    """Report the histograms of both corpora side by side."""
    rows = [
        one | {"made_values": other["values"], "made_cells": other["cells"]}
        for one, other in zip(histogram(like), histogram(made), strict=True)
    ]
    keys = ("by", "from", "values", "made_values", "cells", "made_cells")
    show([keys, *([row[key] for key in keys] for row in rows)])
    for row in rows:
        emit("generate", **row)
    for name, measured in (("like", like), ("made", made)):
        emit("generate", corpus=name, **_summary(measured))


def _summary(measured: Measured) -> dict[str, object]:
    quantiles = [5, 25, 50, 75, 95, 99]
    return {
        "columns": len(measured.sizes),
        "cells": int(measured.sizes.sum()),
        "values": len(measured.frequencies),
        "cells_a_column": float(measured.sizes.mean()),
        "sizes_p5_25_50_75_95_99": np.percentile(measured.sizes, quantiles).tolist(),
        "lengths_p5_25_50_75_95_99": np.percentile(measured.lengths, quantiles).tolist(),
        "most_frequent_share": float(measured.frequencies.max() / len(measured.sizes)),
    }


def query_sizes(corpus: CorpusSource, measured: Measured, count: int, random: Generator) -> Int:
    """Draw query sizes: those of the corpus's queries, or of its columns if it has none."""
    has_queries = (corpus.folder / "queries.parquet").exists()
    sizes = measure(corpus, "queries.parquet").sizes if has_queries else measured.sizes
    return random.choice(sizes[sizes > 0], count)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write")
    parser.add_argument("--like", type=Path, required=True, metavar="CORPUS", help="imitate this")
    parser.add_argument("--columns", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--queries", type=int, default=250, metavar="N")
    parser.add_argument("--large-queries", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Generate the corpus and report how similar it is."""
    given = options()
    random = np.random.default_rng(given.seed)
    emit("generate", machine=machine(), seed=given.seed)
    corpus = CorpusSource(given.like)
    like = measure(corpus)
    say(f"{len(like.sizes):,} columns measured")
    sizes = query_sizes(corpus, like, given.queries, random)
    total = given.columns + given.queries
    layout = make_layout(like, total, sizes, random)
    texts = Texts(like.lengths, given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "columns.parquet", batches(layout, texts, 0, given.columns, "table"))
    held_out = batches(layout, texts, given.columns, total, "query")
    write(given.out / "queries.parquet", held_out)
    large = large_queries(layout, texts, given.large_queries, given.columns, random)
    write(given.out / f"queries-{_LARGE}.parquet", [large])
    say(f"{given.columns:,} columns written")
    compare(like, measure(CorpusSource(given.out)))


if __name__ == "__main__":
    main()
