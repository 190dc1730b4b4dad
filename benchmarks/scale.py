"""`deepjoin` in lakes of millions: how a query grows with the number of columns.

Each CORPUS is one that generate.py made; its index, built if it is not there, lies beside it as
CORPUS.index. Encoding millions of columns takes hours, so columns get vectors made from the real
ones of --vectors-of, an index with the default encoder: each a real vector moved by a part of the
difference of two others. Queries are encoded as ever. Lakes are asked in turn, query by query.
Prints one JSON object a corpus: the steps of a query, the share of the nearest ten that are found,
and what the vectors take.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

import deepjoin
from column_vectors import SETTINGS, tenth_nearest
from common import K, Row, emit, machine, memory, percentiles, say
from deepjoin import Column, Lake
from deepjoin.column_vectors import ColumnVectors, FrequencySnapshot
from deepjoin.column_vectors.store import About, write_rows
from deepjoin.encoders import load_encoder
from deepjoin.segment import Segment
from deepjoin.sources.corpus import CorpusSource

Rows = npt.NDArray[np.float16]
STEPS = ("encode", "candidates", "verify", "total")
_BLOCK = 50_000


def made_up(real: Rows, count: int, seed: int) -> Rows:
    """Make vectors that lie among the real ones."""
    random = np.random.default_rng(seed)
    rows = np.empty((count, real.shape[1]), np.float16)
    for start in range(0, count, _BLOCK):
        here = rows[start : start + _BLOCK]
        one, two, three = (
            real[random.integers(0, len(real), len(here))].astype(np.float32) for _ in range(3)
        )
        here[:] = one + random.uniform(0.1, 0.6, (len(here), 1)) * (two - three)
    return rows


def opened(corpus: Path, folder: Path) -> tuple[Lake, Row]:
    """Open the index of a corpus, after building it if it is not there."""
    row = Row()
    if not (folder / "manifest.json").exists():
        say(f"indexing {corpus}")
        started = perf_counter()
        deepjoin.index(corpus, folder, settings=SETTINGS, encoder="none", cells="none")
        row = {"index_s": perf_counter() - started}
    return deepjoin.open(folder), row


def dressed(lake: Lake, folder: Path, real: Rows) -> tuple[Lake, Row]:
    """Give the columns of a lake vectors, all but one of each segment made up."""
    encoder = load_encoder("default", profile=lake.settings.profile)
    assert encoder is not None
    about = About(encoder.name, encoder.digest, encoder.dimension)
    row = Row()
    for segment in lake.segments:
        found = ColumnVectors.open(segment.folder, "columns")
        if found is None or found.about != about:
            say(f"vectors of {segment.values.columns:,} columns")
            rows = made_up(real, segment.values.columns, seed=segment.values.columns)
            rows[0] = np.nan  # to be encoded, as all would be that are not known
            write_rows(segment.folder, "columns", about, rows)
            row = {"vectors_s": perf_counter()}
    lake = deepjoin.index(folder, encoder="default")
    return lake, {name: perf_counter() - started for name, started in row.items()}


def asked(lakes: Sequence[tuple[Lake, list[Column]]], passes: int) -> list[Row]:
    """Search with every query, lake by lake in turn, so that all have the same weather."""
    seconds: list[dict[str, list[float]]] = [{step: [] for step in STEPS} for _ in lakes]
    for turn in range(passes + 1):
        for number in range(max(len(queries) for _, queries in lakes)):
            for times, (lake, queries) in zip(seconds, lakes, strict=True):
                query = queries[number % len(queries)]
                found = lake.search(query, K, method="deepjoin", join="equi")
                for step in STEPS if turn else ():  # the first pass warms up
                    times[step].append(found.seconds[step])
    return [
        {f"{step}_mean_ms": 1e3 * float(np.mean(one)) for step, one in times.items()}
        | {f"{step}_{name}": ms for step in STEPS for name, ms in percentiles(times[step]).items()}
        for times in seconds
    ]


def recall(segment: Segment, lake: Lake, queries: list[Column]) -> Row:
    """Compare the nearest ten with an exact scan."""
    encoder = load_encoder("default", profile=lake.settings.profile)
    vectors = ColumnVectors.open(segment.folder, "columns")
    assert encoder is not None and vectors is not None
    frequency = FrequencySnapshot(lake.segments[0].folder)
    rows = np.stack([encoder.encode_query(query, frequency) for query in queries])
    least = tenth_nearest(vectors.rows, rows)
    found = [vectors.index.search(row, K).distances for row in rows]
    right = [np.mean(1 - one >= bound - 1e-4) for one, bound in zip(found, least, strict=True)]
    codes = vectors.folder / "index.faiss"
    size = codes.stat().st_size if codes.exists() else 0
    return {"recall": float(np.mean(right)), "kind": vectors.index.kind, "codes_mb": size / 1e6}


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", type=Path, nargs="+", metavar="CORPUS")
    parser.add_argument("--vectors-of", type=Path, required=True, metavar="INDEX")
    parser.add_argument("--queries", type=int, default=100, metavar="N")
    parser.add_argument("--passes", type=int, default=3, metavar="N", help="timed passes")
    return parser.parse_args()


def main() -> None:
    """Measure each corpus."""
    given = options()
    vectors = ColumnVectors.open(deepjoin.open(given.vectors_of).segments[0].folder, "columns")
    assert vectors is not None, f"{given.vectors_of} has no column vectors"
    lakes = []
    for corpus in given.corpora:
        folder = corpus.with_name(f"{corpus.name}.index")
        lake, built = opened(corpus, folder)
        lake, made = dressed(lake, folder, vectors.rows)
        lakes.append((corpus, lake, built | made))
    queries = [CorpusSource(corpus).queries()[: given.queries] for corpus in given.corpora]
    pairs = [(lake, some) for (_, lake, _), some in zip(lakes, queries, strict=True)]
    times = asked(pairs, given.passes)
    for (_, lake, row), some, found in zip(lakes, queries, times, strict=True):
        row |= found | recall(lake.segments[0], lake, some)
        columns = sum(segment.values.columns for segment in lake.segments)
        emit("scale", columns=columns, queries=len(some), **row, **memory(), machine=machine())


if __name__ == "__main__":
    main()
