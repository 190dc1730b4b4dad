"""Columns encoded by other processes: written as texts on this machine, encoded anywhere.

The index, the frequencies and the vectors encoded before are here, so only texts travel, and of
those only such as have no vector yet. A text takes a fraction of the time of its vector, and is
short, however tall its column.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.build.build_elsewhere import check_same, loading
from deepjoin.build.engine import Engine, Step
from deepjoin.embed.columns.base import ColumnEncoder, FloatMatrix
from deepjoin.embed.columns.cache import VectorCache, text_key
from deepjoin.embed.columns.text import Frequency
from deepjoin.embed.columns.text_encoder import TextEncoder
from deepjoin.store.column_vectors import Encoded, FrequencySnapshot, column_blocks, segment_columns
from deepjoin.store.models import column_encoder
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]

#: Texts that a GPU is given at a time.
_GPU_TEXTS = 1 << 14


@dataclass(frozen=True)
class Model:
    """An encoder by its name, which must be the same everywhere."""

    spec: str
    profile: str
    digest: str

    def load(self, device: str) -> TextEncoder:
        """Load it for one thread, once a process; only what runs on torch heeds the device."""
        with loading(self.spec):
            encoder = column_encoder(self.spec, Path(), self.profile, threads=1, device=device)
        assert isinstance(encoder, TextEncoder)
        check_same("columns", self.spec, encoder.digest, self.digest)
        return encoder


@dataclass(frozen=True)
class TextJob:
    """Where the columns are, how often values occur, and the vectors encoded before.

    These are whole paths: a worker is at home in another folder, be it on this machine.
    """

    model: Model
    segment: Path
    frequency: Path
    cache: Path | None


@dataclass(frozen=True)
class EncodeElsewhere:
    """Encodes the columns of a segment by an engine, and keeps the vectors as they come."""

    engine: Engine
    model: Model
    frequency: Path
    cache: VectorCache | None
    #: Whether it works on a GPU, where there is one.
    on_gpu: bool = False

    def __call__(
        self, segment: Segment, columns: Int, encoder: ColumnEncoder, frequency: Frequency
    ) -> Encoded:
        """Yield numbers of columns with their vectors."""
        tasks = list(column_blocks(segment.values.sizes(columns), columns, encoder))
        if not tasks:
            return
        with closing(self.engine.flow(tasks, *self.steps(segment.folder))) as tables:
            for table in tables:
                vectors = _rows(table["vector"], encoder.dimension)
                self._keep(table["key"], vectors)
                yield np.asarray(table["column"]), vectors

    def steps(self, segment: Path) -> tuple[Step, Step]:
        """Say how columns of a segment become vectors."""
        cache = None if self.cache is None else self.cache.path.absolute()
        job = TextJob(self.model, segment.absolute(), self.frequency.absolute(), cache)
        gpu = self.on_gpu and self.engine.gpus > 0
        encode = partial(encode_texts, self.model, "cuda" if gpu else "cpu")
        return (
            Step(partial(write_texts, job), here=True, named=_columns_named),
            Step(encode, gpu_rows=_GPU_TEXTS if gpu else 0, named=_columns_named),
        )

    def _keep(self, keys: pa.ChunkedArray, vectors: FloatMatrix) -> None:
        new = np.flatnonzero(np.asarray(keys.is_valid()))
        if self.cache is not None and len(new):
            self.cache.put(keys.take(pa.array(new)).to_pylist(), vectors[new])


def write_texts(job: TextJob, columns: Int) -> Iterator[pa.Table]:
    """Write columns as texts, beside the vectors that are known of some."""
    encoder = job.model.load("cpu")
    found = list(segment_columns(_opened(job.segment), columns, encoder.counted))
    texts = encoder.texts(found, FrequencySnapshot(job.frequency))
    known = np.zeros(len(texts), bool)
    vectors: FloatMatrix = np.zeros((len(texts), encoder.dimension), np.float32)
    if job.cache is not None:
        keys = [text_key(encoder.digest, text) for text in texts]
        with VectorCache(job.cache) as cache:
            known, vectors = cache.get(keys, encoder.dimension)
    written = [text.encode("utf-8", "surrogatepass") for text in texts]
    yield pa.table(
        {
            "column": pa.array(columns, pa.int64()),
            "text": pa.array(written, pa.binary()),
            "known": known,
            "vector": _lists(vectors),
        }
    )


def encode_texts(model: Model, device: str, table: pa.Table) -> Iterator[pa.Table]:
    """Encode the texts that have no vector; equal ones once."""
    encoder = model.load(device)
    known = np.asarray(table["known"])
    vectors = _rows(table["vector"], encoder.dimension).copy()
    texts = [text.decode("utf-8", "surrogatepass") for text in table["text"].to_pylist()]
    # As many together as in a build without an engine: rounding may depend on a text's company.
    for start in range(0, len(texts), encoder.block):
        rows = start + np.flatnonzero(~known[start : start + encoder.block])
        distinct = list(dict.fromkeys(texts[row] for row in rows))
        if distinct:
            place = {text: number for number, text in enumerate(distinct)}
            encoded = encoder.encode_texts(distinct)
            vectors[rows] = encoded[[place[texts[row]] for row in rows]]
    keys = [None if known[row] else text_key(model.digest, text) for row, text in enumerate(texts)]
    yield pa.table(
        {
            "column": table["column"],
            "key": pa.array(keys, pa.binary()),
            "vector": _lists(vectors),
        }
    )


def _columns_named(some: Int | pa.Table) -> str:
    return f"the texts of {len(some):,} columns"


def _lists(vectors: npt.NDArray[np.floating]) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])


def _rows(vectors: pa.ChunkedArray, dimension: int) -> FloatMatrix:
    flat = vectors.combine_chunks().flatten()
    rows: FloatMatrix = np.asarray(flat, np.float32).reshape(len(vectors), dimension)
    return rows


@lru_cache(maxsize=2)
def _opened(folder: Path) -> Segment:
    return Segment(folder)
