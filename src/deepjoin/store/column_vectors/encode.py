"""Give a segment its column vectors: only those that are not known are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache
from deepjoin.embed.columns.text import Frequency
from deepjoin.embed.columns.text_encoder import TextEncoder
from deepjoin.embed.vector_index.build import narrowed
from deepjoin.errors import DeepJoinError
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.column_vectors.columns import (
    About,
    ColumnVectors,
    rows_to_fill,
    unknown,
    write_rows,
)
from deepjoin.store.column_vectors.frequency import FrequencySnapshot
from deepjoin.store.column_vectors.meaning import meaning_digest, meaning_rows
from deepjoin.store.column_vectors.sketch import sketch_digest, sketch_rows
from deepjoin.store.column_vectors.stored_columns import segment_columns
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Half = npt.NDArray[np.float16]
Float = npt.NDArray[np.float32]
Rows = npt.NDArray[Any]
#: Whose meanings they are, and one a column, some at a time.
Meant = tuple[About, Iterator[Half]]
#: Numbers of columns with their vectors, some at a time, in any order.
Encoded = Iterator[tuple[Int, Float]]
#: From columns of a segment, by their numbers, to their vectors.
Encode = Callable[[Segment, Int, ColumnEncoder, Frequency], Encoded]
#: Told how many columns are done, of how many, and what they are.
Told = Callable[[int, int, str], None]

#: Columns encoded between two words of progress, and lost at most by an interruption.
_BLOCK = 1024
#: Cells of one block, from which on it ends.
_CELLS = 1 << 22
#: How much the likeness of sketches counts beside that of the model's vectors, as stored.
_SKETCH_COUNTS = 2
#: Version of the rows that are all in one.
_BOTH = 2
#: How much more the sketch and the meaning of a query count, by the kind of join.
_ASKED = {"equi": (4, 1), "semantic": (0.5, 4)}
#: Rows put together at a time.
_ROWS = 1 << 14


def _tell_nobody(done: int, total: int, text: str) -> None:
    pass


def encode_here(
    segment: Segment, columns: Int, encoder: ColumnEncoder, frequency: Frequency
) -> Encoded:
    """Encode columns of a segment, block by block."""
    for block in blocks(segment.values.sizes(columns), columns, encoder):
        some = list(segment_columns(segment, block, encoder.counted))
        yield block, encoder.encode(some, frequency)


def finish_columns(
    segment: Segment,
    out: Path,
    encoder: ColumnEncoder,
    frequency: Frequency,
    known: Half | None = None,
    progress: Told = _tell_nobody,
    cache: VectorCache | None = None,
    kind: str = "auto",
    metric: str = "cosine",
    encode: Encode = encode_here,
) -> int:
    """Encode the live columns without a known row, and write the rows and their index to ``out``.

    Returns how many were encoded. Columns that have left the lake get a row of zeros.
    """
    about = About(encoder.name, encoder.digest, encoder.dimension)
    if cache is not None and isinstance(encoder, TextEncoder):
        encoder = CachedEncoder(encoder, cache)
    with rows_to_fill(out, "columns", about, segment.values.columns, kind, metric) as rows:
        missing = _start(rows, segment, known)
        done = 0
        for block, vectors in encode(segment, missing, encoder, frequency):
            rows[block] = narrowed(vectors)
            done += len(block)
            progress(done, len(missing), "columns")
    return len(missing)


def _start(rows: Half, segment: Segment, known: Half | None) -> Int:
    """Fill in the rows that are known, and return the numbers of the live ones that are not."""
    if known is not None and known.shape != rows.shape:
        raise DeepJoinError(
            f"Known vectors of shape {known.shape} came for {len(rows)} columns of "
            f"{rows.shape[1]} numbers. Encode without them."
        )
    missing = np.ones(len(rows), bool)
    if known is not None:
        for start in range(0, len(rows), _ROWS):
            some = slice(start, start + _ROWS)
            rows[some] = known[some]
            missing[some] = unknown(rows[some])
    if segment.dead is not None:
        rows[segment.dead & missing] = 0
        missing &= ~segment.dead
    return np.flatnonzero(missing)


def blocks(sizes: Int, columns: Int, encoder: ColumnEncoder) -> Iterator[Int]:
    """Cut columns of these sizes into blocks; an encoder that likes larger ones is given them."""
    most = _BLOCK * encoder.block // ColumnEncoder.block
    ends, start = np.cumsum(sizes), 0
    while start < len(columns):
        reached = int(np.searchsorted(ends, ends[start] - sizes[start] + _CELLS)) + 1
        stop = min(start + most, reached)
        yield columns[start:stop]
        start = stop


def finish_sketch(
    segment: Segment,
    out: Path,
    frequency: FrequencySnapshot,
    dimension: int,
    progress: Told = _tell_nobody,
    kind: str = "auto",
) -> None:
    """Sketch all columns of a segment and write the rows and their index to ``out``.

    Sketches are made anew rather than taken over: that takes a minute for half a million.
    """
    rows = sketch_rows(segment, frequency, dimension, progress)
    about = About("sketch", sketch_digest(dimension), dimension)
    write_rows(out, "sketch", about, segment.values.columns, rows, kind)


def meanings(
    segment: Segment, out: Path, frequency: FrequencySnapshot, progress: Told = _tell_nobody
) -> Meant | None:
    """Sum up what the columns of a segment mean, if ``out`` has vectors of its values."""
    cells = CellVectors.open(out)
    if cells is None:
        return None
    about = meaning_about(cells.digest, cells.vectors.dimension)
    return about, meaning_rows(segment, cells, frequency, progress)


def finish_both(out: Path, kind: str = "auto", meant: Meant | None = None) -> None:
    """Write column vectors, sketches and meanings once more, as one vector each."""
    columns, sketch = (ColumnVectors.open(out, space) for space in ("columns", "sketch"))
    if columns is None or sketch is None or not (columns.complete and sketch.complete):
        raise DeepJoinError(
            f"{out} lacks column vectors or sketches, of which deepjoin-sketch is made. "
            "Give both --encoder and --sketch."
        )
    about = both_about(columns.about, sketch.about, None if meant is None else meant[0])
    blocks = _all_in_one(columns.rows, sketch.rows, None if meant is None else meant[1])
    write_rows(out, "both", about, len(columns.rows), blocks, kind)


def _all_in_one(columns: Half, sketch: Half, meanings: Iterator[Half] | None) -> Iterator[Float]:
    """Put the rows together as far as each block of meanings goes."""
    start = 0
    while start < len(columns):
        meaning = None if meanings is None else next(meanings)
        stop = start + (_ROWS if meaning is None else len(meaning))
        yield both_rows(columns[start:stop], sketch[start:stop], meaning)
        start = stop


def both_rows(columns: Rows, sketch: Rows, meaning: Rows | None = None) -> Float:
    """Put vectors, sketches and meanings side by side, the likeness of sketches counting twice.

    A column without a sketch gets one that is like no query's: were its row shorter, the cosine
    would lift it above those that share values with the query.
    """
    sketches = unit(sketch)
    sketches[~sketches.any(axis=1), -1] = 1
    return _side_by_side(unit(columns), sketches, meaning)


def both_query(columns: Rows, sketch: Rows, join: str, meaning: Rows | None = None) -> Float:
    """Put what there is of a query side by side, weighed for the kind of join."""
    sketch_counts, meaning_counts = map(np.float32, _ASKED[join])
    meant = None if meaning is None else unit(meaning) * meaning_counts
    return _side_by_side(unit(columns), unit(sketch) * sketch_counts, meant)


def _side_by_side(columns: Float, sketches: Float, meanings: Rows | None) -> Float:
    parts = [columns, sketches * np.float32(_SKETCH_COUNTS**0.5)]
    return np.hstack(parts if meanings is None else [*parts, meanings.astype(np.float32)])


def both_digest(columns: str, sketch: str, meaning: str = "") -> str:
    """Return what stands for vectors that are all in one."""
    return f"{columns}+{sketch}+{_BOTH}" + (f"+{meaning}" if meaning else "")


def both_about(columns: About, sketch: About, meaning: About | None = None) -> About:
    """Say whose the vectors are that are all in one."""
    meant = About("", "", 0) if meaning is None else meaning
    return About(
        f"{columns.name}+{sketch.name}" + (f"+{meant.name}" if meant.name else ""),
        both_digest(columns.digest, sketch.digest, meant.digest),
        columns.dimension + sketch.dimension + meant.dimension,
    )


def meaning_about(cells: str, dimension: int) -> About:
    """Say whose meanings are that are made of the vectors of some encoder of cells."""
    return About("meaning", meaning_digest(cells), dimension + 1)


def unit(rows: Rows) -> Float:
    """Scale rows to length 1, and leave zeros."""
    wide = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(lengths > 0, lengths, 1)[:, None]
    return wide
