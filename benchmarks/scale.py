"""Lakes of millions of columns: resources to build and to serve them, and how query time grows.

Each CORPUS is one that generate.py made; its index, built if it is not there, lies beside it as
CORPUS.index. Encoding millions of columns takes hours, so columns get vectors made from the real
ones of --vectors-of, an index with the default encoder: each a real vector moved by a part of the
difference of two others. Queries are encoded as usual. Each step of a build, and a service of one
lake, runs in a separate process, whose memory is measured. To time searches, the lakes alternate
query by query. Prints JSON objects, one a corpus and step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

import deepjoin
from column_vectors import tenth_nearest
from common import (
    RUNS,
    K,
    Row,
    command_line,
    emit,
    folder_bytes,
    in_child,
    indexed,
    machine,
    memory,
    most_anonymous,
    percentiles,
    say,
)
from deepjoin import Column, Lake
from deepjoin.arrays import Half
from deepjoin.embed.columns import load_encoder
from deepjoin.read.corpus import CorpusSource
from deepjoin.store.column_vectors import About, ColumnVectors, write_rows
from deepjoin.store.sketch import FrequencySnapshot

METHODS = ("exact-equi", "hybrid", "deepjoin")
STEPS = ("encode", "candidates", "verify", "total")
_BLOCK = 50_000


def made_up(real: Half, count: int, seed: int) -> Iterator[Half]:
    """Synthesise vectors between real ones, in blocks; the first is unknown."""
    random = np.random.default_rng(seed)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        one, two, three = (
            real[random.integers(0, len(real), size)].astype(np.float32) for _ in range(3)
        )
        rows = (one + random.uniform(0.1, 0.6, (size, 1)) * (two - three)).astype(np.float16)
        if start == 0:
            rows[0] = np.nan  # to be encoded, as all would be that are not known
        yield rows


def dress(folder: str, vectors_of: str) -> None:
    """Write vectors for the columns of a lake, all but one of each segment synthetic."""
    encoder = load_encoder("default", profile=deepjoin.open(folder).settings.profile)
    real = ColumnVectors.open(deepjoin.open(vectors_of).index.segments[0].folder, "columns")
    assert encoder is not None and real is not None, f"{vectors_of} has no column vectors"
    about = About(encoder.name, encoder.digest, encoder.dimension)
    started = perf_counter()
    for segment in deepjoin.open(folder).index.segments:
        count = segment.values.columns
        write_rows(segment.folder, "columns", about, count, made_up(real.rows, count, seed=count))
    made = perf_counter()
    with most_anonymous() as held:
        deepjoin.index(folder, encoder="default")
    row = {"making_up_s": made - started, "seconds": perf_counter() - made}
    print(json.dumps(row | held | memory()))


def serve(corpus: str, folder: str, count: str) -> None:
    """Search one lake with every method, and print the memory of the process."""
    lake, queries = deepjoin.open(folder), CorpusSource(Path(corpus)).queries()[: int(count)]
    for method in METHODS:
        for query in queries:
            lake.search(query, K, method=method, join="equi")
    print(json.dumps(memory()))


def made(corpus: Path, vectors_of: Path) -> Row:
    """Build what is missing, step by step, and report each step."""
    folder = index_of(corpus)
    indexed(corpus, folder)
    segments = deepjoin.open(folder).index.segments
    if any(ColumnVectors.open(one.folder, "columns") is None for one in segments):
        say(f"vectors of {sum(one.values.columns for one in segments):,} columns")
        emit(
            "scale", what="dress", corpus=corpus.name, **in_child("scale.dress", folder, vectors_of)
        )
    opened = [in_child("common.opening", folder) for _ in range(RUNS)]
    columns = sum(segment.values.columns for segment in segments)
    row = {"columns": columns, "open_ms": median(one["open_ms"] for one in opened)}
    size = folder_bytes(folder)
    return row | {"disk_mb": size / 1e6, "bytes_a_column": size / columns}


def index_of(corpus: Path) -> Path:
    """Return the path of the index of a corpus."""
    return corpus.with_name(f"{corpus.name}.index")


def asked(lakes: Sequence[tuple[Lake, list[Column]]], method: str, passes: int) -> list[Row]:
    """Search with every query, alternating between lakes, so that other load affects all."""
    seconds: list[dict[str, list[float]]] = [{step: [] for step in STEPS} for _ in lakes]
    for turn in range(passes + 1):
        for number in range(max(len(queries) for _, queries in lakes)):
            for times, (lake, queries) in zip(seconds, lakes, strict=True):
                found = lake.search(queries[number % len(queries)], K, method=method, join="equi")
                for step in STEPS if turn else ():  # the first pass warms up
                    times[step].append(found.seconds.get(step, 0.0))
    return [
        {f"{step}_mean_ms": 1e3 * float(np.mean(one)) for step, one in times.items()}
        | {f"{step}_{name}": ms for step in STEPS for name, ms in percentiles(times[step]).items()}
        for times in seconds
    ]


def recall(lake: Lake, queries: list[Column]) -> Row:
    """Compare the nearest ten of the first segment with an exact scan."""
    encoder = load_encoder("default", profile=lake.settings.profile)
    vectors = ColumnVectors.open(lake.index.segments[0].folder, "columns")
    assert encoder is not None and vectors is not None
    frequency = FrequencySnapshot(lake.index.segments[0].folder)
    rows = np.stack([encoder.encode_query(query, frequency) for query in queries])
    least = tenth_nearest(vectors.rows, rows)
    found = [vectors.index.search(row, K).distances for row in rows]
    right = [np.mean(1 - one >= bound - 1e-4) for one, bound in zip(found, least, strict=True)]
    codes = vectors.folder / "index.faiss"
    size = codes.stat().st_size if codes.exists() else 0
    return {"recall": float(np.mean(right)), "kind": vectors.index.kind, "codes_mb": size / 1e6}


def main() -> None:
    """Measure each corpus."""
    parser = command_line(__doc__)
    parser.add_argument("corpora", type=Path, nargs="+", metavar="CORPUS")
    parser.add_argument("--vectors-of", type=Path, required=True, metavar="INDEX")
    parser.add_argument("--queries", type=int, default=100, metavar="N")
    parser.add_argument("--passes", type=int, default=3, metavar="N", help="timed passes")
    given = parser.parse_args()
    emit("scale", machine=machine())
    rows = [made(corpus, given.vectors_of) for corpus in given.corpora]
    for corpus, row in zip(given.corpora, rows, strict=True):
        held = in_child("scale.serve", corpus, index_of(corpus), given.queries)
        emit("scale", what="serve", corpus=corpus.name, **row, **held)
    lakes = [deepjoin.open(index_of(corpus)) for corpus in given.corpora]
    queries = [CorpusSource(corpus).queries()[: given.queries] for corpus in given.corpora]
    pairs = list(zip(lakes, queries, strict=True))
    for method in METHODS:
        times = asked(pairs, method, given.passes)
        for (lake, some), row, found in zip(pairs, rows, times, strict=True):
            about = {"method": method, "columns": row["columns"], "queries": len(some)}
            extra = recall(lake, some) if method == "deepjoin" else {}
            emit("scale", what="search", **about, **found, **extra)


if __name__ == "__main__":
    main()
