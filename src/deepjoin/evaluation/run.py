"""The evaluation loop: for each method, search every query through the lake and compare."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import xxhash

from deepjoin._version import __version__
from deepjoin.columns import Column
from deepjoin.errors import DeepJoinError
from deepjoin.evaluation.metrics import interval, mean, ndcg, precision, precision_ties
from deepjoin.evaluation.truth import Truth, brute_force
from deepjoin.lake import Lake, index
from deepjoin.lake.manifest import is_index
from deepjoin.search import method_named
from deepjoin.settings import Settings
from deepjoin.sources.corpus import CorpusSource

Row = dict[str, Any]
#: The paper's corpora compare lower-cased, stripped cells, and drop no column here.
SETTINGS = Settings(profile="basic", min_distinct=1, max_cell=1 << 30)
SEED = 0


def evaluate(
    corpus: str | os.PathLike[str],
    methods: Sequence[str] = ("exact-equi",),
    *,
    k: Sequence[int] = (10, 20, 30, 40, 50),
    queries: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Row]:
    """Yield one row for each method and k; indexes and truth are kept in ``cache``."""
    for method in methods:
        method_named(method)
    if not k or min(k) < 1:
        raise DeepJoinError(f"k is {','.join(map(str, k))}; give numbers from 1 on.")
    source = CorpusSource(corpus)
    asked = source.queries()[:queries]
    if not asked:
        raise DeepJoinError(f"The corpus '{source.folder}' has no queries to evaluate with.")
    with _folder(cache) as folder:
        tell("truth by brute force")
        truth = _truth(source, asked, folder)
        tell("index")
        lake, build_s = _lake(source, folder)
        for method in methods:
            tell(f"{method}: {len(asked)} queries")
            yield from _rows(source.folder.name, method, lake, build_s, asked, truth, k)


@contextmanager
def _folder(cache: str | os.PathLike[str] | None) -> Iterator[Path]:
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _truth(source: CorpusSource, queries: list[Column], folder: Path) -> list[Truth]:
    path = folder / f"truth-{_content(source, queries)}.json"
    try:
        return [Truth(one) for one in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError):
        pass  # not there yet, or cut short: made anew
    truth = brute_force(source.columns(), queries, SETTINGS.profile)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps([one.joinability for one in truth]), "utf-8")
        aside.replace(path)
    except OSError as error:
        raise DeepJoinError(f"Cannot keep the truth in {folder}: {error.strerror}.") from None
    return truth


def _lake(source: CorpusSource, folder: Path) -> tuple[Lake, float]:
    path = folder / f"index-{_content(source, [])}"
    timing = folder / f"{path.name}.seconds"
    if is_index(path) and timing.exists():
        return Lake(path), float(timing.read_text())
    started = perf_counter()
    lake = index(source.folder, path, settings=SETTINGS)
    seconds = perf_counter() - started
    timing.write_text(str(seconds))
    return lake, seconds


def _content(source: CorpusSource, queries: list[Column]) -> str:
    """Hash everything an answer depends on."""
    digest = xxhash.xxh3_64(repr((SETTINGS, __version__)).encode())
    with (source.folder / "columns.parquet").open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    for query in queries:
        digest.update(repr((query.table, query.name, query.cells)).encode())
    return digest.hexdigest()


def _rows(
    corpus: str,
    method: str,
    lake: Lake,
    build_s: float,
    queries: list[Column],
    truth: list[Truth],
    k: Sequence[int],
) -> Iterator[Row]:
    found: list[list[str]] = []
    seconds: list[dict[str, float]] = []
    for query in queries:
        started = perf_counter()
        results = lake.search(query, max(k), join="equi", method=method)
        seconds.append(results.seconds | {"total": perf_counter() - started})
        found.append([hit.column_id for hit in results])
    times = _times(seconds) | {
        "build_s": build_s,
        "index_mb": lake.info()["bytes"] / 1e6,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    about = {"tau": None, "encoder": None, "seed": SEED, "version": __version__}
    for depth in k:
        head = {"corpus": corpus, "method": method, "join": "equi", "k": depth}
        yield head | {"queries": len(queries)} | _accuracy(found, truth, depth) | times | about


def _accuracy(found: list[list[str]], truth: list[Truth], k: int) -> Row:
    pairs = list(zip(found, truth, strict=True))
    by_id = [precision(ids, right, k) for ids, right in pairs]
    low, high = interval(by_id, SEED)
    tied, queries_ties = mean([precision_ties(ids, right, k) for ids, right in pairs])
    gain, queries_ndcg = mean([ndcg(ids, right, k) for ids, right in pairs])
    return {
        "precision": mean(by_id)[0],
        "precision_ties": tied,
        "queries_ties": queries_ties,
        "precision_low": low,
        "precision_high": high,
        "ndcg": gain,
        "queries_ndcg": queries_ndcg,
    }


def _times(seconds: list[dict[str, float]]) -> Row:
    def percentile(key: str, share: int) -> float:
        return float(np.percentile([1e3 * one[key] for one in seconds], share))

    search = [one | {"search": one["candidates"] + one["verify"]} for one in seconds]
    return {
        "encode_ms": percentile("encode", 50),
        "search_ms_p50": float(np.percentile([1e3 * one["search"] for one in search], 50)),
        "total_ms_p50": percentile("total", 50),
        "total_ms_p99": percentile("total", 99),
    }
