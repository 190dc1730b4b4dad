"""Column vectors on disk: one row a column, who made them, and whether all are there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deepjoin.arrays import Half, Marks, Rows
from deepjoin.checksums import read_verified
from deepjoin.embed.vector_build import index_rows, load_rows, narrowed, new_rows
from deepjoin.embed.vector_index import VectorIndex
from deepjoin.lazy import cached_property
from deepjoin.store.segment import Segment

#: The model's vectors, the sketches, and both as one vector.
SPACES = ("columns", "sketch", "both")
FOLDER = "vectors"
_ABOUT = "about.json"
#: Rows handled at a time.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class About:
    """The encoder of vectors; those with equal digests can be compared."""

    name: str
    digest: str
    dimension: int


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
    for start in range(0, len(kept), _BLOCK):
        some = kept[start : start + _BLOCK]
        if one is None:
            yield np.full((int(some.sum()), dimension), np.nan, np.float16)
        else:
            yield one.rows[start : start + _BLOCK][some]
