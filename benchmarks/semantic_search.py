"""Exact semantic search: time, memory and correctness of the top 10, one query and many at once.

CORPUS is a folder with columns.parquet and queries.parquet; MODEL a folder with model.safetensors
and tokenizer.json, whose input embeddings make a plain static cell encoder: what is measured is
the search. Index and vectors are kept in the work folder. The query's own table is left out.
With --column-vectors N, the kinds of vector index are compared on N made-up vectors instead.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt

import deepjoin
from common import Row, emit, folder_bytes, in_child, machine, memory, percentiles, say
from deepjoin.distinct import distinct_cells
from deepjoin.evaluation.run import SETTINGS
from deepjoin.joinability import ONE, similarities
from deepjoin.segment import Segment
from deepjoin.semantic.bounds import Measure
from deepjoin.semantic.engine import Found, SemanticEngine, Wanted
from deepjoin.semantic.pairs import Marks
from deepjoin.semantic.quantised import FILES, ValueVectors, write_vectors
from deepjoin.semantic.side import Part, Query
from deepjoin.sources.corpus import CorpusSource
from deepjoin.vectors import KINDS, VectorIndex, build_vectors
from equi_search import built

Float = npt.NDArray[np.float32]
_BLOCK = 50_000


class StaticEncoder:
    """A cell is the mean of its word pieces' input embeddings, centred and cut by PCA."""

    def __init__(self, model: Path, dimension: int) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        weights = load_file(model / "model.safetensors")
        (name,) = [name for name in weights if name.endswith("word_embeddings.weight")]
        table = weights[name].astype(np.float64)
        table -= table.mean(axis=0)
        axes = np.linalg.eigh(table.T @ table)[1][:, ::-1][:, :dimension]
        self._table = (table @ axes).astype(np.float32)

    def encode(self, values: Sequence[str]) -> Float:
        """Give unit vectors, zero for a value without word pieces."""
        encoded = self._tokenizer.encode_batch_fast(list(values), add_special_tokens=False)
        counts = np.array([len(one.ids) for one in encoded], np.int64)
        pieces = np.array([piece for one in encoded for piece in one.ids], np.int64)
        rows = np.zeros((len(counts), self._table.shape[1]), np.float32)
        if len(pieces):
            starts = (np.cumsum(counts) - counts)[counts > 0]
            rows[counts > 0] = np.add.reduceat(self._table[pieces], starts, axis=0)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths > 1e-9, lengths, 1)


def opened(index: Path, folder: Path, encoder: StaticEncoder) -> tuple[Segment, Part]:
    """Open an index of one segment; its values' vectors are made on the first call."""
    (segment,) = deepjoin.open(index).segments
    values = segment.values.values
    if not (folder / FILES[-1]).exists():
        folder.mkdir(exist_ok=True)
        started = perf_counter()
        blocks = (
            encoder.encode(values[start : start + _BLOCK])
            for start in range(0, len(values), _BLOCK)
        )
        count = write_vectors(folder, blocks, encoder.encode(["a"]).shape[1])
        took = {"build_s": perf_counter() - started, "values": count}
        emit("semantic_search", what="vectors", **took, mb=folder_bytes(folder) / 1e6)

    def exact(numbers: npt.NDArray[np.int64]) -> Float:
        return encoder.encode([values[number] for number in numbers.tolist()])

    order = np.asarray(segment.catalog.column_order, np.int64)
    return segment, Part(segment.values, ValueVectors(folder), exact, order)


def read_queries(
    corpus: Path, segment: Segment, encoder: StaticEncoder, limit: int
) -> list[tuple[Query, Marks | None]]:
    """Read the queries, each with marks of the columns of its own table."""
    read = []
    for column in list(CorpusSource(corpus).columns("queries.parquet"))[: limit or None]:
        values = distinct_cells(column.cells, SETTINGS.profile).values
        own = None if column.table is None else segment.catalog.find_table(column.table)
        marks = None if own is None else segment.catalog.column_tables == own
        read.append((Query(values, encoder.encode(values)), marks))
    return read


def search(corpus: str, workdir: str, model: str, *numbers: str) -> None:
    """Time the searches in a process of its own and print one JSON object."""
    dimension, limit, checks = map(int, numbers)
    encoder = StaticEncoder(Path(model), dimension)
    name = Path(corpus).name
    index, folder = Path(workdir) / f"{name}.index", Path(workdir) / f"{name}.{dimension}.vectors"
    segment, part = opened(index, folder, encoder)
    engine = SemanticEngine([part])
    asked = read_queries(Path(corpus), segment, encoder, limit)
    rows: list[Row] = []
    best = compared(part, [query for query, _ in asked[:checks]], 700_000) if checks else []
    for join, floor in (("any", 0.7), ("semantic", 0.9)):
        wanted = Wanted(Measure(join, floor), 10)
        about = {"what": "search", "join": join, "floor": floor, "queries": len(asked)}
        rows.append(about | _timed(engine, asked, wanted))
        rows.append(about | {"what": "many"} | _together(engine, asked, wanted))
        right = [
            is_right(engine.search(query, wanted, [marks]), mine, marks, part, wanted)
            for (query, marks), mine in zip(asked, best, strict=False)
        ]
        rows.append(about | {"what": "check", "checked": len(right), "right": sum(right)})
    rows.append({"what": "memory"} | memory())
    print(json.dumps({"rows": rows}))


def _timed(engine: SemanticEngine, asked: Sequence[tuple[Query, Any]], wanted: Wanted) -> Row:
    engine.search(asked[0][0], wanted, [asked[0][1]])
    seconds, used = [], []
    for query, marks in asked:
        started, before = perf_counter(), process_time()
        engine.search(query, wanted, [marks])
        seconds.append(perf_counter() - started)
        used.append(process_time() - before)
    return percentiles(seconds) | {"cpu_p50_ms": 1e3 * float(np.median(used))}


def _together(engine: SemanticEngine, asked: Sequence[tuple[Query, Any]], wanted: Wanted) -> Row:
    started = perf_counter()
    found = list(engine.search_many([q for q, _ in asked], wanted, [[m] for _, m in asked]))
    return {"each_ms": 1e3 * (perf_counter() - started) / len(found)}


def compared(part: Part, queries: Sequence[Query], least: int) -> list[Any]:
    """Compare every cell with every value in single precision: the best in each column."""
    best = [np.zeros((len(query.values), part.index.columns), np.int32) for query in queries]
    for start in range(0, len(part.vectors), _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, len(part.vectors)))
        vectors = part.exact(numbers)
        for query, mine in zip(queries, best, strict=True):
            cells, rows = np.nonzero(query.vectors @ vectors.T * ONE >= least - 10)
            exact = similarities(query.vectors[cells], vectors[rows]).tolist()
            for cell, number, value in zip(cells, numbers[rows], exact, strict=True):
                columns = part.index.postings(int(number))
                mine[cell, columns] = np.maximum(mine[cell, columns], value)
    for query, mine in zip(queries, best, strict=True):
        equal = part.index.look_up(query.values)
        for cell in np.flatnonzero(equal >= 0).tolist():
            mine[cell, part.index.postings(int(equal[cell]))] = ONE
    return best


def is_right(found: Found, best: Any, marks: Marks | None, part: Part, wanted: Wanted) -> bool:
    """Say whether a search found the best columns, in their order, with their scores."""
    totals = wanted.measure.counted(best).sum(axis=0)
    totals = totals if marks is None else np.where(marks, 0, totals)
    order = np.lexsort((part.order, -totals))[: wanted.k]
    order = order[totals[order] > 0]
    scores = totals[order] / (ONE * len(best))
    return found.columns.tolist() == order.tolist() and bool(
        np.allclose(found.scores, scores, rtol=0, atol=1e-9)
    )


def compare_kinds(count: int, dimension: int = 384, clusters: int = 2000) -> None:
    """Measure every kind of vector index against the flat one."""
    centres = np.random.default_rng(0).standard_normal((clusters, dimension))

    def made(number: int, seed: int) -> Float:
        random = np.random.default_rng(seed)
        noise = 0.8 * random.standard_normal((number, dimension))
        return np.asarray(centres[random.integers(0, clusters, number)] + noise, np.float32)

    rows, queries = made(count, 1), made(200, 2)
    truth: list[set[int]] = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            started = perf_counter()
            build_vectors(rows, Path(folder), kind)
            took = perf_counter() - started
            index = VectorIndex(Path(folder))
            index.search(queries[0], 10)
            found, seconds = [], []
            for query in queries:
                started = perf_counter()
                found.append(set(index.search(query, 10).ids.tolist()))
                seconds.append(perf_counter() - started)
            truth = truth or found
            recall = np.mean([len(a & b) / 10 for a, b in zip(found, truth, strict=True)])
            about = {"kind": kind, "build_s": took, "recall": recall} | percentiles(seconds)
            emit("vector_index", **about, bytes_each=folder_bytes(Path(folder)) / count)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("corpus", type=Path, nargs="?", metavar="CORPUS")
    add("model", type=Path, nargs="?", metavar="MODEL")
    add("--workdir", type=Path, default=Path(), metavar="DIR", help="for indexes (default: here)")
    add("--dimension", type=int, default=192, metavar="N", help="of the vectors (default 192)")
    add("--queries", type=int, default=0, metavar="N", help="only the first N queries")
    add("--check", type=int, default=10, metavar="N", help="queries compared with everything (10)")
    add("--column-vectors", type=int, metavar="N", help="compare the kinds of vector index")
    given = parser.parse_args()
    if given.column_vectors is None and given.model is None:
        parser.error("CORPUS and MODEL, or --column-vectors N")
    return given


def main() -> None:
    """Run the benchmark."""
    given = options()
    emit("semantic_search", machine=machine())
    if given.column_vectors is not None:
        compare_kinds(given.column_vectors)
        return
    built(given.corpus, given.workdir / f"{given.corpus.name}.index")
    say(f"searching {given.corpus}")
    numbers = (given.dimension, given.queries, given.check)
    done = in_child("semantic_search.search", given.corpus, given.workdir, given.model, *numbers)
    for row in done["rows"]:
        emit("semantic_search", corpus=given.corpus.name, dimension=given.dimension, **row)


if __name__ == "__main__":
    main()
