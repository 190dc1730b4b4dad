"""Column vectors on disk: one row a column, who made them, and whether all are there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.segment import Segment
from deepjoin.vectors import VectorIndex, index_rows
from deepjoin.vectors.build import load_rows, save_rows

Half = npt.NDArray[np.float16]
Rows = npt.NDArray[np.float16] | npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]

#: The model's vectors, the sketches, and both as one vector.
SPACES = ("columns", "sketch", "both")
FOLDER = "vectors"
_ABOUT = "about.json"


@dataclass(frozen=True)
class About:
    """Whose vectors they are; two with one digest can be compared."""

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
    #: The kind of index and the metric that were asked for.
    asked: tuple[str, str] = ("auto", "cosine")
    #: Where they are searched; None for the processor.
    device: str | None = None

    @classmethod
    def open(cls, segment: Path, space: str, device: str | None = None) -> ColumnVectors | None:
        """Open those of a segment's folder; None if it has none."""
        folder = segment / FOLDER / space
        try:
            fields = json.loads((folder / _ABOUT).read_bytes())
        except FileNotFoundError:
            return None
        about = About(fields["name"], fields["digest"], fields["dimension"])
        asked = fields["kind"], fields["metric"]
        return cls(folder, about, bool(fields["complete"]), asked, device)

    @cached_property
    def index(self) -> VectorIndex:
        """The index of complete vectors."""
        return VectorIndex(self.folder, self.device)

    @cached_property
    def rows(self) -> Half:
        """One row a column; NaN where it is not known yet."""
        return load_rows(self.folder)


def known_rows(segment: Path, space: str, digest: str) -> Half | None:
    """Return the rows a segment's folder has from this encoder; NaN where one is not known."""
    found = ColumnVectors.open(segment, space)
    return None if found is None or found.about.digest != digest else found.rows


def write_rows(
    segment: Path,
    space: str,
    about: About,
    rows: Rows,
    kind: str = "auto",
    metric: str = "cosine",
) -> None:
    """Write the rows of a segment's columns and, if none is NaN, the index that finds them."""
    folder = segment / FOLDER / space
    folder.mkdir(parents=True, exist_ok=True)
    save_rows(rows, folder)
    complete = not unknown(rows).any()
    if complete:
        index_rows(folder, kind, metric, clustered=space == "columns")
    fields = {"space": space, **asdict(about), "complete": complete, "kind": kind, "metric": metric}
    (folder / _ABOUT).write_text(json.dumps(fields))


def unknown(rows: Rows) -> Marks:
    """Mark the rows that are not known yet."""
    return np.isnan(rows[:, 0])


def merged_rows(parts: Sequence[tuple[Segment, Marks]], space: str) -> tuple[About, Half] | None:
    """Put the kept rows of several segments one after the other, NaN where a part has none.

    None if no part has any, or if they are of different encoders.
    """
    found = [ColumnVectors.open(segment.folder, space) for segment, _ in parts]
    whose = {one.about for one in found if one is not None}
    if len(whose) != 1:
        return None
    (about,) = whose
    rows = np.full((sum(int(kept.sum()) for _, kept in parts), about.dimension), np.nan, np.float16)
    start = 0
    for one, (_, kept) in zip(found, parts, strict=True):
        stop = start + int(kept.sum())
        if one is not None:
            rows[start:stop] = one.rows[kept]
        start = stop
    return about, rows
