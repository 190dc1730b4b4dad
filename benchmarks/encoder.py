"""The default column encoder: columns a second, time of a query, load time, and faithfulness.

CORPUS is a folder with columns.parquet and queries.parquet. With --full MODEL, the published
folder of the same model, the top 10 are compared with those of full precision: a hit counts if
it is no worse than the tenth in full precision.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from common import K, emit, machine, percentiles, process_seconds, say, versions
from deepjoin import Column
from deepjoin.arrays import Float
from deepjoin.embed.columns import load_encoder
from deepjoin.embed.columns.encoder import TextEncoder
from deepjoin.embed.columns.text import DocumentFrequencies
from deepjoin.read.corpus import CorpusSource

_TIE = 1e-6
_LOADS = 5


def sampled(corpus: CorpusSource, number: int) -> list[Column]:
    """Draw a reproducible random sample of columns."""
    places = set(random.Random(0).sample(range(corpus.count), min(number, corpus.count)))
    return [column for place, column in enumerate(corpus.columns()) if place in places]


def measure_columns(
    encoder: TextEncoder, columns: list[Column], frequency: DocumentFrequencies
) -> Float:
    """Encode all columns, texts included."""
    encoder.encode(columns[:20], frequency)
    started, worked = perf_counter(), process_time()
    vectors = encoder.encode(columns, frequency)
    took, worked = perf_counter() - started, process_time() - worked
    speed = {"columns_per_s": len(columns) / took, "per_core_s": len(columns) / worked}
    emit("encoder", what="columns", columns=len(columns), **speed, load=os.getloadavg()[0])
    return vectors


def measure_queries(
    encoder: TextEncoder, queries: list[Column], frequency: DocumentFrequencies
) -> Float:
    """Encode the queries one by one."""
    vectors, seconds = [], []
    for query in queries:
        started = perf_counter()
        vectors.append(encoder.encode([query], frequency))
        seconds.append(perf_counter() - started)
    times = percentiles(seconds)
    emit("encoder", what="query", queries=len(queries), **times, load=os.getloadavg()[0])
    return np.concatenate(vectors)


def measure_load() -> None:
    """Time loading in fresh processes: with all imports, and less an empty Python."""
    code = "from deepjoin.embed.columns import load_encoder; load_encoder('default')"
    whole = process_seconds([sys.executable, "-c", code], _LOADS)
    empty = process_seconds([sys.executable, "-c", "import numpy, pyarrow.compute"], _LOADS)
    started = [_load_seconds() for _ in range(_LOADS)]
    figures = {"process_s": whole, "numpy_and_pyarrow_s": empty, "load_s": median(started)}
    emit("encoder", what="load", **figures, load=os.getloadavg()[0])


def _load_seconds() -> float:
    started = perf_counter()
    load_encoder("default")
    return perf_counter() - started


def agreement(ours: tuple[Float, Float], full: tuple[Float, Float]) -> float:
    """Return the share of our top hits that are top hits in full precision; ties count."""
    found, wanted = _similarities(*ours), _similarities(*full)
    top = np.argsort(-found, axis=1, kind="stable")[:, :K]
    tenth = np.partition(wanted, -K, axis=1)[:, -K, None]
    return float((np.take_along_axis(wanted, top, 1) >= tenth - _TIE).mean())


def _similarities(columns: Float, queries: Float) -> Float:
    scaled: Float = _unit(queries) @ _unit(columns).T
    return scaled


def _unit(vectors: Float) -> Float:
    scaled: Float = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--columns", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--full", type=Path, help="the published folder of the default model")
    arguments = parser.parse_args()
    emit("encoder", what="machine", **machine(), **versions("onnxruntime", "tokenizers"))
    measure_load()
    corpus = CorpusSource(arguments.corpus)
    columns, queries = sampled(corpus, arguments.columns), corpus.queries()
    frequency = DocumentFrequencies.of(columns)
    encoder = load_encoder("default", threads=arguments.threads)
    assert encoder is not None
    ours = (
        measure_columns(encoder, columns, frequency),
        measure_queries(encoder, queries, frequency),
    )
    if arguments.full:
        say("Encoding in full precision, which takes longer.")
        exact = load_encoder(str(arguments.full), settings=encoder.settings, device="cpu")
        assert exact is not None
        full = exact.encode(columns, frequency), exact.encode(queries, frequency)
        emit("encoder", what="agreement", top=K, agreement=agreement(ours, full))


if __name__ == "__main__":
    main()
