"""Column vectors of a segment: made from what it stores, without reading a table again.

Columns whose vectors are known from an earlier segment are not encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Array, Float, Half, Int, Marks, Rows, blocks, load_strings, ranges
from deepjoin.checksums import read_verified
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.columns.text import Frequency
from deepjoin.embed.vector_build import index_rows, load_rows, narrowed, new_rows
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.model import Column
from deepjoin.progress import Progress, no_progress
from deepjoin.store.catalog import TableEntry
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    MEANING_VERSION,
    FrequencySnapshot,
    meaning_digest,
    meaning_rows,
    sketch_digest,
    sketch_rows,
    unit,
)
from deepjoin.store.values.index import AS_VALUE
from deepjoin.store.values.spellings import load_spellings, respelled

#: The model's vectors, the sketches, and both as one vector.
SPACES = ("columns", "sketch", "both")
FOLDER = "vectors"
_ABOUT = "about.json"
#: Numbers of columns with their vectors, some at a time, in any order.
Encoded = Generator[tuple[Int, Float]]
#: From columns of a segment, by their numbers, to their vectors.
Encode = Callable[[Segment, Int, ColumnEncoder, Frequency], Encoded]

#: Columns encoded between two reports of progress.
_BLOCK = 1024
#: A block ends once it has this many cells.
_CELLS = 1 << 22
#: Cells spelled out at a time.
_SPELLED = 1 << 18
#: Weight of the similarity of sketches beside that of the model's vectors, as stored.
_SKETCH_WEIGHT = 2
#: Version of combined rows.
_BOTH_VERSION = 2
#: Weights of the sketch and the meaning of a query, on top of the stored ones, by join kind.
_QUERY_WEIGHTS = {"equi": (4, 1), "semantic": (0.5, 4)}
#: Rows combined at a time.
_ROWS = 1 << 14


@dataclass(frozen=True)
class About:
    """The encoder of vectors; those with equal digests can be compared."""

    name: str
    digest: str
    dimension: int


#: Who made the meanings, and one row a column, some at a time.
MeaningRows = tuple[About, Iterator[Half]]


@dataclass(frozen=True)
class ColumnVectors:
    """The vectors that one segment has in one space."""

    folder: Path
    about: About
    #: Whether every live column has one, and they can be searched.
    complete: bool
    #: The requested kind of index and metric.
    requested: tuple[str, str] = ("auto", "cosine")

    @classmethod
    def open(cls, segment: Path, space: str) -> ColumnVectors | None:
        """Open those of a segment's folder; None if it has none."""
        folder = segment / FOLDER / space
        try:
            fields = json.loads(read_verified(folder / _ABOUT))
        except FileNotFoundError:
            return None
        about = About(fields["name"], fields["digest"], fields["dimension"])
        requested = fields["kind"], fields["metric"]
        return cls(folder, about, bool(fields["complete"]), requested)

    @cached_property
    def index(self) -> VectorIndex:
        """The index of complete vectors."""
        return VectorIndex(self.folder)

    @cached_property
    def rows(self) -> Half:
        """One row a column; NaN where it is not known yet."""
        return load_rows(self.folder)


def known_rows(segment: Path, space: str, digest: str) -> Half | None:
    """Return the rows a segment's folder has from this encoder; NaN where one is not known."""
    found = ColumnVectors.open(segment, space)
    return None if found is None or found.about.digest != digest else found.rows


@contextmanager
def rows_to_fill(
    segment: Path, space: str, about: About, count: int, kind: str = "auto", metric: str = "cosine"
) -> Iterator[Half]:
    """Yield the rows of a segment's columns on disk, to be filled.

    Afterwards they are indexed, if no row is NaN.
    """
    folder = segment / FOLDER / space
    folder.mkdir(parents=True, exist_ok=True)
    rows = new_rows(folder, count, about.dimension)
    yield rows
    # Merged rows are NaN where a part had no vectors; the next build encodes those columns.
    complete = not unknown(rows).any()
    if complete:
        index_rows(folder, kind, metric, clustered=space == "columns")
    fields = {"space": space, **asdict(about), "complete": complete, "kind": kind, "metric": metric}
    (folder / _ABOUT).write_text(json.dumps(fields))


def write_rows(
    segment: Path,
    space: str,
    about: About,
    count: int,
    blocks: Iterable[Rows],
    kind: str = "auto",
    metric: str = "cosine",
) -> None:
    """Write the rows of a segment's columns as they come, block after block."""
    with rows_to_fill(segment, space, about, count, kind, metric) as rows:
        start = 0
        for block in blocks:
            rows[start : start + len(block)] = narrowed(block)
            start += len(block)


def unknown(rows: Rows) -> Marks:
    """Mark the rows that are not known yet."""
    return np.isnan(rows[:, 0])


def merge_rows(
    parts: Sequence[tuple[Segment, Marks]],
    out: Path,
    space: str,
    kind: str = "auto",
    metric: str = "cosine",
) -> bool:
    """Write the kept rows of several segments one after the other, NaN where a part has none.

    Nothing is written if no part has any, or if they are of different encoders.
    """
    found = [ColumnVectors.open(segment.folder, space) for segment, _ in parts]
    makers = {one.about for one in found if one is not None}
    if len(makers) != 1:
        return False
    (about,) = makers
    blocks = (
        block
        for one, (_, kept) in zip(found, parts, strict=True)
        for block in _kept_rows(one, kept, about.dimension)
    )
    count = sum(int(kept.sum()) for _, kept in parts)
    write_rows(out, space, about, count, blocks, kind, metric)
    return True


def _kept_rows(one: ColumnVectors | None, kept: Marks, dimension: int) -> Iterator[Half]:
    for start in range(0, len(kept), _ROWS):
        some = kept[start : start + _ROWS]
        if one is None:
            yield np.full((int(some.sum()), dimension), np.nan, np.float16)
        else:
            yield one.rows[start : start + _ROWS][some]


def segment_columns(segment: Segment, numbers: Array, counted: bool = False) -> Iterator[Column]:
    """Give columns by their numbers: distinct cells as first spelled, in row order.

    ``counted`` repeats each cell as often as the table does.
    """
    index, catalog = segment.values, segment.catalog
    values, spellings = load_strings(segment.folder, "values"), load_spellings(segment.folder)
    known, table = -1, TableEntry("")
    numbers = np.asarray(numbers, np.int64)
    for start, stop in blocks(index.sizes(numbers), _SPELLED):
        block = numbers[start:stop]
        sizes = index.sizes(block)
        places = ranges(index.column_offsets[block], sizes)
        # The forward index has each column's values in hash order; columns are read by row.
        owners = np.repeat(np.arange(len(block)), sizes)
        places = places[np.lexsort((index.cell_rows[places], owners))]
        spelled = index.cell_spellings[places]
        other = spelled != AS_VALUE
        cells = values.take(pa.array(index.cell_values[places]))
        if other.any():
            stored = spellings.take(pa.array(np.where(other, spelled, 0), mask=~other))
            cells = respelled(cells, stored)
        if counted:
            counts = index.cell_counts[places].astype(np.int64)
            cells = cells.take(pa.array(np.repeat(np.arange(len(places)), counts)))
            owners = np.repeat(owners, counts)
        bounds = np.searchsorted(owners, np.arange(len(block) + 1)).tolist()
        texts = cells.to_pylist()
        for number, (first, last) in zip(block.tolist(), pairwise(bounds), strict=True):
            if int(catalog.column_tables[number]) != known:  # columns of a table are neighbours
                known = int(catalog.column_tables[number])
                table = catalog.table(known)
            words = catalog.column_names[number], table.name, table.title, table.context
            yield Column(texts[first:last], *words, catalog.column_ids[number])


def encode_here(
    segment: Segment, columns: Int, encoder: ColumnEncoder, frequency: Frequency
) -> Encoded:
    """Encode columns of a segment, block by block."""
    blocks = list(column_blocks(segment.values.sizes(columns), columns, encoder))
    read = (list(segment_columns(segment, block, encoder.counted)) for block in blocks)
    yield from zip(blocks, encoder.encode_blocks(read, frequency), strict=True)


def finish_columns(
    segment: Segment,
    out: Path,
    encoder: ColumnEncoder,
    frequency: Frequency,
    known: Half | None = None,
    progress: Progress = no_progress,
    index: tuple[str, str] = ("auto", "cosine"),
    encode: Encode = encode_here,
) -> int:
    """Encode the live columns without a known row, and write the rows and their index to ``out``.

    ``index`` is its kind and metric. Returns how many columns were encoded; those that have left
    the lake get a row of zeros.
    """
    about = About(encoder.name, encoder.digest, encoder.dimension)
    with rows_to_fill(out, "columns", about, segment.values.columns, *index) as rows:
        if known is not None and known.shape != rows.shape:
            raise DeepJoinError(
                f"Known vectors of shape {known.shape} came for {len(rows)} columns of "
                f"{rows.shape[1]} numbers. Encode without them."
            )
        unseen = np.ones(len(rows), bool)
        if known is not None:
            for start in range(0, len(rows), _ROWS):
                some = slice(start, start + _ROWS)
                rows[some] = known[some]
                unseen[some] = unknown(rows[some])
        if segment.dead is not None:
            rows[segment.dead & unseen] = 0
            unseen &= ~segment.dead
        missing = np.flatnonzero(unseen)
        done = 0
        with closing(encode(segment, missing, encoder, frequency)) as encoded:
            for block, vectors in encoded:
                rows[block] = narrowed(vectors)
                done += len(block)
                progress(done, len(missing), "columns")
    return len(missing)


def column_blocks(sizes: Int, columns: Int, encoder: ColumnEncoder) -> Iterator[Int]:
    """Cut columns of these sizes into blocks; encoders that prefer larger ones get them."""
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
    progress: Progress = no_progress,
    kind: str = "auto",
) -> None:
    """Sketch all columns of a segment and write the rows and their index to ``out``.

    Sketches are always made again: that takes a minute for half a million.
    """
    rows = sketch_rows(segment, frequency, dimension, progress)
    about = About("sketch", sketch_digest(dimension), dimension)
    write_rows(out, "sketch", about, segment.values.columns, rows, kind)


def meanings(
    segment: Segment, out: Path, frequency: FrequencySnapshot, progress: Progress = no_progress
) -> MeaningRows | None:
    """Make the meanings of a segment's columns, if ``out`` has vectors of its values."""
    cells = CellVectors.open(out)
    if cells is None:
        return None
    about = meaning_about(cells.digest, cells.vectors.dimension)
    return about, meaning_rows(segment, cells, frequency, progress)


def finish_both(out: Path, kind: str = "auto", meanings: MeaningRows | None = None) -> None:
    """Combine column vectors, sketches and meanings into one vector each, and write them."""
    columns, sketch = (ColumnVectors.open(out, space) for space in ("columns", "sketch"))
    if columns is None or sketch is None or not (columns.complete and sketch.complete):
        raise DeepJoinError(
            f"{out} lacks column vectors or sketches, of which deepjoin-sketch is made. "
            "Give both `encoder` and `sketch`."
        )
    meaning, rows = (None, None) if meanings is None else meanings
    both = _combined(columns.rows, sketch.rows, rows)
    about = both_about(columns.about, sketch.about, meaning)
    write_rows(out, "both", about, len(columns.rows), both, kind)


def _combined(columns: Half, sketch: Half, meanings: Iterator[Half] | None) -> Iterator[Float]:
    """Combine rows as far as each block of meanings goes."""
    start = 0
    while start < len(columns):
        meaning = None if meanings is None else next(meanings)
        stop = start + (_ROWS if meaning is None else len(meaning))
        yield both_rows(columns[start:stop], sketch[start:stop], meaning)
        start = stop


def both_rows(columns: Array, sketch: Array, meaning: Array | None = None) -> Float:
    """Put vectors, sketches and meanings side by side, the similarity of sketches weighing double.

    A column without a sketch gets one that is similar to no query's: a shorter row would have a
    higher cosine than those that share values with the query.
    """
    sketches = unit(sketch)
    sketches[~sketches.any(axis=1), -1] = 1
    return _side_by_side(unit(columns), sketches, meaning)


def both_query(columns: Array, sketch: Array, join: str, meaning: Array | None = None) -> Float:
    """Put vector, sketch and meaning of a query side by side, weighed for the kind of join."""
    sketch_weight, meaning_weight = map(np.float32, _QUERY_WEIGHTS[join])
    if meaning is not None:
        meaning = unit(meaning) * meaning_weight
    return _side_by_side(unit(columns), unit(sketch) * sketch_weight, meaning)


def _side_by_side(columns: Float, sketches: Float, meanings: Array | None) -> Float:
    parts = [columns, sketches * np.float32(_SKETCH_WEIGHT**0.5)]
    return np.hstack(parts if meanings is None else [*parts, meanings.astype(np.float32)])


def both_digest(columns: str, sketch: str, meaning: str = "") -> str:
    """Identify everything that combined vectors depend on."""
    return f"{columns}+{sketch}+{_BOTH_VERSION}" + (f"+{meaning}" if meaning else "")


def both_about(columns: About, sketch: About, meaning: About | None = None) -> About:
    """Describe combined vectors by what they are made of."""
    parts = [columns, sketch] if meaning is None else [columns, sketch, meaning]
    return About(
        "+".join(part.name for part in parts),
        both_digest(*(part.digest for part in parts)),
        sum(part.dimension for part in parts),
    )


def meaning_about(cells: str, dimension: int, version: int = MEANING_VERSION) -> About:
    """Describe meanings made of the vectors of a cell encoder, given its digest."""
    return About("meaning", meaning_digest(cells, version), dimension + 1)
