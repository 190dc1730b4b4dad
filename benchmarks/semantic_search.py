"""Semantic search: time and memory of exact search, recall of the lists of values.

CORPUS is a folder with columns.parquet and queries.parquet. Index and vectors, made with the
default cell encoder, are kept in the work folder. The query's own table is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import deepjoin
from common import (
    Row,
    command_line,
    emit,
    folder_bytes,
    in_child,
    indexed,
    machine,
    memory,
    percentiles,
    say,
)
from deepjoin.arrays import Float, Int, Marks
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.embed.list_build import write_value_lists
from deepjoin.embed.scan import CandidatePairs
from deepjoin.embed.value_vectors import FILES, ORDER_FILES, ValueLists, ValueVectors, write_vectors
from deepjoin.lab.evaluation.cache import SETTINGS
from deepjoin.matching.engine import (
    ExactRequest,
    Measure,
    SemanticEngine,
    SemanticQuery,
    SemanticSegment,
)
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.segment import Segment

Asked = Sequence[tuple[SemanticQuery, Marks | None]]
_BLOCK = 50_000
#: Join, the least cosine.
_MEASURES = (("any", 0.55), ("semantic", 0.65), ("semantic", 0.9))


def opened(index: Path, folder: Path, encoder: CellEncoder) -> tuple[Segment, SemanticSegment]:
    """Open an index of one segment; vectors and lists of its values are made on the first call."""
    (segment,) = deepjoin.open(index).index.segments
    values = segment.values.values
    if not (folder / ORDER_FILES[-1]).exists():
        folder.mkdir(exist_ok=True)
        _write(folder, values, encoder)

    def exact(numbers: Int) -> Float:
        return encoder.encode([values[number] for number in numbers.tolist()])

    order = np.asarray(segment.catalog.column_order, np.int64)
    return segment, SemanticSegment(segment.values, ValueVectors.open(folder), exact, order)


def _write(folder: Path, values: Sequence[str], encoder: CellEncoder) -> None:
    started = perf_counter()
    steps = range(0, len(values), _BLOCK)
    blocks = (encoder.encode(values[start : start + _BLOCK]) for start in steps)
    count = write_vectors(folder, blocks, encoder.dimension)
    took, size = perf_counter() - started, sum((folder / name).stat().st_size for name in FILES)
    _tell({"what": "vectors", "build_s": took, "values": count, "bytes_each": size / count})
    started, used = perf_counter(), process_time()
    lists = write_value_lists(folder, ValueVectors.open(folder))
    took, used = perf_counter() - started, process_time() - used
    more = (folder_bytes(folder) - size) / count
    _tell({"what": "lists", "build_s": took, "cpu_s": used, "lists": lists, "bytes_each": more})


def _tell(row: Row) -> None:
    say(json.dumps(row | {"load": os.getloadavg()[0]}))


def read_queries(
    corpus: Path, segment: Segment, encoder: CellEncoder, limit: int
) -> list[tuple[SemanticQuery, Marks | None]]:
    """Read the queries, each with marks of the columns of its own table."""
    read = []
    for column in list(CorpusSource(corpus).columns("queries.parquet"))[: limit or None]:
        values = distinct_cells(column.cells, SETTINGS.profile).values
        own = None if column.table is None else segment.catalog.find_table(column.table)
        marks = None if own is None else segment.catalog.column_tables == own
        read.append((SemanticQuery(values, encoder.encode(values)), marks))
    return read


def search(corpus: str, workdir: str, limit: str) -> None:
    """Time the searches in a separate process and print one JSON object."""
    encoder, name = load_cell_encoder(), Path(corpus).name
    folder = Path(workdir) / f"{name}.{encoder.digest}.vectors"
    segment, part = opened(Path(workdir) / f"{name}.index", folder, encoder)
    engine = SemanticEngine([part])
    asked = read_queries(Path(corpus), segment, encoder, int(limit))
    rows: list[Row] = []
    for join, floor in _MEASURES:
        wanted = ExactRequest(Measure(join, floor), 10)
        about = {"what": "search", "join": join, "floor": floor, "queries": len(asked)}
        rows.append(about | _timed(engine, asked, wanted))
    rows.append({"what": "near"} | probed(ValueLists(folder, part.vectors), engine, asked))
    rows.append({"what": "memory"} | memory())
    print(json.dumps({"rows": rows}))


def probed(lists: ValueLists, engine: SemanticEngine, asked: Asked) -> Row:
    """Time the lists, and count the pairs they find: the near ones, and those that decide."""
    lists.near(asked[0][0].vectors, 0.55)
    seconds, near, best = [], [], []
    for query, marks in asked:
        started = perf_counter()
        found = lists.near(query.vectors, 0.55)
        seconds.append(perf_counter() - started)
        have = set(zip(found.cells.tolist(), found.values.tolist(), strict=True))
        close = lists.vectors.near(query.vectors, 0.65)
        near += _held(have, close.where(close.similarities >= 0.65))
        for one in engine.search(query, ExactRequest(Measure("any", 0.55), 10), [marks]).evidence:
            # Equal cells are looked up, not searched for.
            pairs = CandidatePairs(
                one.cells, one.values, *(one.similarities.astype(np.float32),) * 2
            )
            best += _held(have, pairs.where(one.similarities < 1))
    recall = {"near_found": np.mean(near), "best_found": np.mean(best)}
    return {"queries": len(asked), **recall} | percentiles(seconds)


def _held(have: set[tuple[int, int]], pairs: CandidatePairs) -> list[bool]:
    return [pair in have for pair in zip(pairs.cells.tolist(), pairs.values.tolist(), strict=True)]


def _timed(engine: SemanticEngine, asked: Asked, wanted: ExactRequest) -> Row:
    engine.search(asked[0][0], wanted, [asked[0][1]])
    seconds, used = [], []
    for query, marks in asked:
        started, before = perf_counter(), process_time()
        engine.search(query, wanted, [marks])
        seconds.append(perf_counter() - started)
        used.append(process_time() - before)
    return percentiles(seconds) | {
        "cpu_p50_ms": 1e3 * float(np.median(used)),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Run the benchmark."""
    parser = command_line(__doc__)
    add = parser.add_argument
    add("corpus", type=Path, metavar="CORPUS")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for indexes (default: here)")
    add("--queries", type=int, default=0, metavar="N", help="only the first N queries")
    given = parser.parse_args()
    emit("semantic_search", machine=machine())
    indexed(given.corpus, given.workdir / f"{given.corpus.name}.index")
    say(f"searching {given.corpus}")
    done = in_child("semantic_search.search", given.corpus, given.workdir, given.queries)
    for row in done["rows"]:
        emit("semantic_search", corpus=given.corpus.name, **row)


if __name__ == "__main__":
    main()
