"""Gives segments the vectors the lake is to have: cells' as they are built, columns' afterwards.

Vectors follow from what a segment stores, so no table is read for them, and a segment that
lacks some becomes another one: its files, linked, and the vectors beside them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from deepjoin import cell_vectors
from deepjoin.cells import CellEncoder
from deepjoin.column_vectors import (
    SPACES,
    ColumnVectors,
    FrequencySnapshot,
    finish_both,
    finish_columns,
    finish_sketch,
    known_rows,
    merged_rows,
    sketch_digest,
    write_frequency,
    write_rows,
)
from deepjoin.column_vectors.frequency import FILES as SNAPSHOT
from deepjoin.encoders.text_encoder import TextEncoder
from deepjoin.lake.build import Means
from deepjoin.lake.merging import kept_columns
from deepjoin.lake.models import cell_encoder, column_encoder, vector_cache
from deepjoin.segment import Segment
from deepjoin.settings import Settings, Vectors


class Encoding:
    """The encoders of a lake, for its writer."""

    def __init__(self, vectors: Vectors, settings: Settings, folder: Path, means: Means) -> None:
        self._vectors, self._settings = vectors, settings
        self._folder, self._means = folder, means

    @cached_property
    def _cells(self) -> CellEncoder | None:
        return cell_encoder(self._vectors.cells, self._folder)

    @cached_property
    def _columns(self) -> TextEncoder | None:
        return column_encoder(
            self._vectors.encoder, self._folder, self._settings.profile, self._means.threads
        )

    @property
    def _spaces(self) -> list[str]:
        """Name the kinds of column vectors there are to be."""
        chosen = self._vectors.encoder != "none", self._vectors.sketch > 0
        return [space for space, there in zip(SPACES, (*chosen, all(chosen)), strict=True) if there]

    def dress(self, built: Path) -> None:
        """Give a segment that was just built the vectors of its cells."""
        if self._cells is not None:
            progress = self._means.progress
            cell_vectors.write_cell_vectors(
                *(built, self._cells, self._means.threads),
                lambda done, total: progress(done, total, "values"),
            )

    def merge(self, parts: Sequence[Segment], out: Path, renew: bool) -> None:
        """Give a segment that stands for several the vectors that these have.

        ``renew`` leaves out those of columns, which then are made with the frequencies of now.
        """
        if self._cells is not None:
            known = [(part.values, part.cells) for part in parts]
            cell_vectors.merge_cell_vectors(known, out, self._cells, self._means.threads)
        if renew:
            return
        _link_snapshot(parts[0].folder, out)
        kept = [(part, kept_columns(part)) for part in parts]
        for space in self._spaces[:1]:
            found = merged_rows(kept, space)
            if found is not None:
                write_rows(out, space, *found, self._vectors.index, self._vectors.metric)

    def lacking(self, segment: Segment, again: bool) -> bool:
        """Tell whether a segment has other vectors than it should.

        Whose they are is only looked at if they may have to be made again: it takes the encoder.
        """
        return not self._has_cells(segment, again) or any(
            self._fits(segment, space, again) != (space in self._spaces) for space in SPACES
        )

    def _has_cells(self, segment: Segment, again: bool) -> bool:
        if not again or self._cells is None:
            return (self._vectors.cells == "none") == (segment.cells is None)
        return segment.cells is not None and segment.cells.digest == self._cells.digest

    def _fits(self, segment: Segment, space: str, again: bool) -> bool:
        """Tell whether a segment has all vectors of a space, from the encoder they should be of."""
        found = ColumnVectors.open(segment.folder, space)
        if found is None or not found.complete:
            return False
        return not again or found.about.digest == self._digest(space)

    def _digest(self, space: str) -> str:
        columns = "" if self._columns is None else self._columns.digest
        sketch = sketch_digest(self._vectors.sketch)
        return {"columns": columns, "sketch": sketch, "both": f"{columns}+{sketch}"}[space]

    def complete(self, segment: Segment, out: Path, lake: Sequence[Segment], again: bool) -> None:
        """Write a segment of a lake again with the vectors it lacks; the rest is linked."""
        taken = [cell_vectors.FOLDER] if self._has_cells(segment, again) else []
        taken += [Path("vectors") / space for space in SPACES if self._fits(segment, space, again)]
        for name in _files(segment.folder, taken):
            _link(segment.folder / name, out / name)
        if not taken or taken[0] != cell_vectors.FOLDER:
            self.dress(out)
        self._add_columns(segment, out, lake, again)

    def _add_columns(
        self, segment: Segment, out: Path, lake: Sequence[Segment], again: bool
    ) -> None:
        spaces = [space for space in self._spaces if not self._fits(segment, space, again)]
        if not spaces:
            return
        frequency = self._frequency(segment, out, lake)
        means, kind = self._means, self._vectors.index
        if "columns" in spaces and self._columns is not None:
            known = known_rows(segment.folder, "columns", self._columns.digest)
            with vector_cache() as cache:
                finish_columns(
                    *(segment, out, self._columns, frequency, known, means.progress, cache),
                    *(kind, self._vectors.metric),
                )
        if "sketch" in spaces:
            finish_sketch(segment, out, frequency, self._vectors.sketch, means.progress, kind)
        if "both" in spaces:
            finish_both(out, kind)

    def _frequency(self, segment: Segment, out: Path, lake: Sequence[Segment]) -> FrequencySnapshot:
        """Read the snapshot that the oldest segment holds; that one gets it if there is none."""
        if FrequencySnapshot.exists(lake[0].folder):
            return FrequencySnapshot(lake[0].folder)
        assert segment.folder == lake[0].folder
        write_frequency(lake, out)
        return FrequencySnapshot(out)


def _files(folder: Path, vectors: Sequence[Path]) -> Iterator[Path]:
    """Name the files of a segment: of its vectors, those in some folders only."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and (name.parts[0] != "vectors" or name.parent in vectors):
            yield name


def _link_snapshot(segment: Path, out: Path) -> None:
    """Take the frequencies along that texts were made with."""
    if FrequencySnapshot.exists(segment):
        for name in SNAPSHOT:
            _link(segment / name, out / name)


def _link(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, to)
    except OSError:  # a file system without links
        shutil.copyfile(path, to)
