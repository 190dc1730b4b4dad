"""PEXESO beside one blocked matrix product: the same answers, distances computed, and time.

Columns of CORPUS are drawn at random as the lake, others as queries; cells get the vectors of
--cells. Each query asks for the best 10 columns (`search`) and for those in which .6 of its
vectors match (`joinable`, the published question), at thresholds given as cosines (--tau) and as
shares of the largest distance (--share, the paper's .02 to .08). The product compares all vectors
in blocks and counts matches with the same inverted index. Both run in this process, one after the
other for each query; ratios are of processor time (set OPENBLAS_NUM_THREADS=1, so that it is that
of one thread), milliseconds of the clock. One JSON object a threshold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from common import emit, machine, say
from deepjoin.arrays import Float, Int
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.lab.pexeso import ColumnValues, Pexeso, cosine_of_share
from deepjoin.matching.joinability import least, similarities
from deepjoin.model import Column
from deepjoin.normalise.cells import distinct_cells
from deepjoin.read.corpus import CorpusSource

K, JOINABLE = 10, 0.6
#: Vectors compared at a time, and what single precision may change in a product.
_BLOCK, _ERROR = 1 << 13, 4e-5


class BlockedProduct:
    """Compares a query with all vectors, block by block."""

    def __init__(self, vectors: Float, columns: ColumnValues) -> None:
        self._vectors, self._columns = vectors, len(columns)
        owners = np.repeat(np.arange(len(columns)), np.diff(columns.offsets))
        order = np.argsort(columns.values, kind="stable")
        self._owners = owners[order]
        self._offsets = np.searchsorted(columns.values[order], np.arange(len(vectors) + 1))

    def counts(self, query: Float, tau: float) -> Int:
        """Count the query's vectors with a match in each column."""
        keys = []
        for start in range(0, len(self._vectors), _BLOCK):
            block = self._vectors[start : start + _BLOCK]
            products = query @ block.T
            rows, places = np.nonzero(products >= np.float32(tau - _ERROR))
            close = np.flatnonzero(products[rows, places] < tau + _ERROR)
            kept = np.ones(len(rows), bool)
            kept[close] = similarities(query[rows[close]], block[places[close]]) >= least(tau)
            rows, places = rows[kept], places[kept] + start
            sizes = self._offsets[places + 1] - self._offsets[places]
            at = np.repeat(self._offsets[places] - np.cumsum(sizes) + sizes, sizes)
            found = self._owners[at + np.arange(len(at))]
            keys.append(np.repeat(rows, sizes) * self._columns + found)
        unique = np.unique(np.concatenate(keys))
        return np.bincount(unique % self._columns, minlength=self._columns)


def drawn(corpus: Path, columns: int, queries: int, seed: int) -> tuple[list[Column], list[Column]]:
    """Draw columns for the lake, and others as queries."""
    every = [one for one in CorpusSource(corpus).columns() if len(set(one.cells)) >= 5]
    order = np.random.default_rng(seed).permutation(len(every))[: columns + queries]
    chosen = [every[i] for i in order.tolist()]
    return chosen[queries:], chosen[:queries]


def numbered(columns: Sequence[Column]) -> tuple[list[str], ColumnValues]:
    """Give the distinct values of columns their numbers."""
    numbers: dict[str, int] = {}
    lists = [
        [numbers.setdefault(value, len(numbers)) for value in distinct_cells(one.cells).values]
        for one in columns
    ]
    offsets = np.cumsum([0, *map(len, lists)])
    return list(numbers), ColumnValues(offsets, np.array([v for one in lists for v in one]))


def timed(function: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """Return an answer, and its milliseconds by the clock and of the processor."""
    started = perf_counter(), process_time()
    answer = function()
    return answer, (1e3 * (perf_counter() - started[0]), 1e3 * (process_time() - started[1]))


def compared(
    lake: Pexeso, product: BlockedProduct, queries: Sequence[Float], tau: float
) -> dict[str, Any]:
    """Answer every query by all three, check that they agree, and average."""
    best, joinable, plain, work = [], [], [], []
    for query in queries:
        wanted = int(np.ceil(JOINABLE * len(query)))
        counts, took = timed(lambda q=query: product.counts(q, tau))
        plain.append(took)
        (columns, _), took = timed(lambda q=query: lake.search(q, tau, K))
        best.append(took)
        work.append([lake.work.distances, lake.work.cells, lake.work.pairs])
        order = np.argsort(-counts, kind="stable")[:K]
        assert columns.tolist() == order[counts[order] > 0].tolist(), "the best are the same"
        passed, took = timed(lambda q=query, w=wanted: lake.joinable(q, tau, w))
        joinable.append(took)
        work[-1] += [lake.work.distances]
        assert passed.tolist() == np.flatnonzero(counts >= wanted).tolist(), "all are found"
    sums = np.array(work, float).sum(axis=0)
    (clock, asked, passing), (plain_cpu, best_cpu, joinable_cpu) = np.array(
        [plain, best, joinable]
    ).transpose(2, 0, 1)
    return {
        "levels": lake.levels,
        "product_ms": np.median(clock),
        "search_ms": np.median(asked),
        "search_ms_p99": np.percentile(asked, 99),
        "joinable_ms": np.median(passing),
        "product_cpu_ms": plain_cpu.mean(),
        "search_ratio": best_cpu.sum() / plain_cpu.sum(),
        "joinable_ratio": joinable_cpu.sum() / plain_cpu.sum(),
        "search_distances": sums[0] / sums[2],
        "joinable_distances": sums[3] / sums[2],
        "cells": sums[1] / len(queries),
        "pairs": sums[2] / len(queries),
    }


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("--cells", default="default", metavar="NAME|PATH")
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--tau", type=float, nargs="*", default=[0.9, 0.8, 0.7])
    parser.add_argument("--share", type=float, nargs="*", default=[0.02, 0.04, 0.06, 0.08])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    columns, asked = drawn(options.corpus, options.columns, options.queries, options.seed)
    encoder = load_cell_encoder(options.cells)
    values, lists = numbered(columns)
    say(f"{len(columns):,} columns, {len(values):,} values; encoding")
    vectors = encoder.encode(values)
    queries = [encoder.encode(distinct_cells(one.cells).values) for one in asked]
    product = BlockedProduct(vectors, lists)
    for name, given in (("tau", options.tau), ("share", options.share)):
        for one in given:
            tau = one if name == "tau" else cosine_of_share(one)
            lake, took = timed(lambda tau=tau: Pexeso(vectors, lists, tau=tau))
            row = {"corpus": options.corpus.name, "columns": len(columns), "values": len(values)}
            row |= {"dimension": vectors.shape[1], "queries": len(queries), "tau": round(tau, 5)}
            row |= {"share": ((1 - tau) / 2) ** 0.5, "build_ms": took[0], "cells_by": encoder.name}
            emit("pexeso", **row, **compared(lake, product, queries, tau), **machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
