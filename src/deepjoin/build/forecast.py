"""Forecast time and disk space of a build from a sample of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from deepjoin.arrays import load_array
from deepjoin.build.engine import BuildResources
from deepjoin.build.segment_builder import SegmentBuilder
from deepjoin.files import TemporaryFolder
from deepjoin.model import Reading, Table
from deepjoin.normalise.private import salted
from deepjoin.read import Skipped, Source, open_sources
from deepjoin.read.frames import MemorySource
from deepjoin.settings import NO_VECTORS, Settings, Vectors
from deepjoin.store.ledger import Key
from deepjoin.store.models import encoding_seconds
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.report import BuildReport

_SAMPLE = 100
_SAMPLE_BYTES = 32 << 20
#: Cost of vectors on two cores: values a second, and columns of encoders that were not measured.
_VALUES_A_SECOND, _COLUMNS_A_SECOND = 60_000, 150
_BYTES_A_VALUE, _BYTES_A_COLUMN = 157, 830
#: Columns of a corpus indexed a second, without and with cell vectors (benchmarks/README.md).
_CORPUS_A_SECOND = 20_000, 1_900


@dataclass(frozen=True)
class Forecast:
    """Expected numbers, from ``tried`` tables that were indexed for real."""

    tables: int
    bytes: int
    columns: int
    seconds: float
    disk: int
    tried: int
    skipped: tuple[Skipped, ...]


def forecast(source: object, settings: Settings, vectors: Vectors = NO_VECTORS) -> Forecast:
    """List everything, index an even sample, and scale by size; vectors by their usual cost."""
    settings = salted(settings)
    opened = open_sources(source, settings)
    corpus = opened[0].as_corpus
    if corpus:
        # A corpus is uniform and large: scale from usual rates.
        size = (corpus.folder / "columns.parquet").stat().st_size
        seconds, disk = _of_columns(vectors, corpus.count)
        seconds += corpus.count / _CORPUS_A_SECOND[vectors.cells != "none"]
        return Forecast(corpus.count, size, corpus.count, seconds, 6 * size + disk, 0, ())
    tables = [table for one in opened for table in one.tables()]
    sizes = _sizes(opened, tables)
    chosen = _chosen(sizes)
    with TemporaryFolder("deepjoin-forecast-") as scratch:
        started = perf_counter()
        out = scratch / "segment"
        report, skipped = _tried([tables[i] for i in chosen], settings, out)
        seconds = perf_counter() - started
        disk = sum(path.stat().st_size for path in out.iterdir())
        values = len(load_array(out / "value_hashes.npy")) if vectors.cells != "none" else 0
    by_size = sum(sizes) / max(1, sum(min(sizes[i], _SAMPLE_BYTES) for i in chosen))
    by_number = len(tables) / max(1, len(chosen))
    columns = round(report.columns * by_number)
    encoding, stored = _of_columns(vectors, columns)
    seconds += values / _VALUES_A_SECOND
    disk += values * _BYTES_A_VALUE
    return Forecast(
        *(len(tables), sum(sizes), columns),
        seconds * by_size + encoding,
        round(disk * by_size) + stored,
        len(chosen),
        (*(skip for one in opened for skip in one.skipped), *skipped),
    )


def forecast_encoding(lake: OpenIndex, vectors: Vectors) -> Forecast:
    """Estimate what it takes to give an index column vectors; no table is read for that."""
    columns = sum(segment.live_columns for segment in lake.segments)
    seconds, disk = _of_columns(vectors, columns)
    return Forecast(lake.report.tables, 0, columns, seconds, disk, 0, ())


def _of_columns(vectors: Vectors, columns: int) -> tuple[float, int]:
    """Estimate seconds and bytes of column vectors."""
    if vectors.encoder == "none":
        return 0.0, 0
    seconds = encoding_seconds(vectors.encoder, columns) or columns / _COLUMNS_A_SECOND
    return seconds, columns * _BYTES_A_COLUMN


def _tried(tables: list[Table], settings: Settings, out: Path) -> tuple[BuildReport, list[Skipped]]:
    """Index the first 32 MB or so of some tables for real."""
    with SegmentBuilder(out, out.parent / "spill", settings, BuildResources(threads=2)) as build:
        for number, item in enumerate(MemorySource(list(map(_beginning, tables))).items()):
            build.read(Key(0, str(number)), item)
        report = build.finish()
    return report, [skip for entry in build.entries for skip in entry.skipped]


def _beginning(table: Table) -> Table:
    """Limit a table to its first batches, up to about 32 MB."""

    def first(reading: Reading) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in reading:
            yield batch
            seen += batch.nbytes
            if seen > _SAMPLE_BYTES:
                return

    def opened() -> Reading:
        reading = table.open()
        return replace(reading, batches=first(reading))

    return replace(table, open=opened)


def _sizes(sources: Sequence[Source], tables: list[Table]) -> list[int]:
    """Return bytes of file for each table; a workbook's first sheet stands for all of it."""
    paths = [sources[0].path(table.name) for table in tables] if len(sources) == 1 else []
    if not any(paths):  # nothing has a known size, so all count the same
        return [1] * len(tables)
    counted: set[Path | None] = {None}
    sizes = []
    for path in paths:
        sizes.append(path.stat().st_size if path and path not in counted else 0)
        counted.add(path)
    return sizes


def _chosen(sizes: list[int]) -> list[int]:
    """Pick tables evenly, as long as they stay small enough to try."""
    step = max(1, len(sizes) // _SAMPLE)
    chosen: list[int] = []
    total = 0
    for i in range(0, len(sizes), step):
        if total + sizes[i] <= _SAMPLE_BYTES or not chosen:
            chosen.append(i)
            total += sizes[i]
    return chosen
