"""Query times as a caller sees them, without the exact answers that accuracy needs."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from benchmarks.paper.experiments import Options
from benchmarks.paper.lakes import Search, lake_for, prepared, queries_of, search_of
from benchmarks.paper.places import Places

from deepjoin import Column

#: Warm-up searches before timing.
_WARM = 5


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
    took = np.array([_took(search, query, hits) for query in queries])
    encode, total = 1e3 * took.T
    yield {
        "queries": len(queries),
        "encode_ms": float(encode.mean()),
        "total_ms": float(total.mean()),
        "total_ms_p50": float(np.median(total)),
        "total_ms_p99": float(np.percentile(total, 99)),
    }


def _took(search: Search, query: Column, hits: int) -> tuple[float, float]:
    started = perf_counter()
    results = search(query, hits)
    total = perf_counter() - started
    return results.seconds.get("encode", 0.0), total
