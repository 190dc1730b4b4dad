"""Gives segments the vectors the lake is to have: cells' as they are built, columns' afterwards.

Vectors follow from what a segment stores, so no table is read for them, and a segment that
lacks some becomes another one: its files, linked, and the vectors beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from deepjoin.build.build import Means
from deepjoin.build.encode_elsewhere import EncodeElsewhere, Model
from deepjoin.build.merging import kept_columns
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache
from deepjoin.embed.columns.text_encoder import TextEncoder
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.settings import Settings, Vectors
from deepjoin.store import cell_vectors
from deepjoin.store.column_vectors import (
    SPACES,
    ColumnVectors,
    Encode,
    FrequencySnapshot,
    both_digest,
    encode_here,
    finish_both,
    finish_columns,
    finish_sketch,
    known_rows,
    meaning_digest,
    meanings,
    merge_rows,
    sketch_digest,
    write_frequency,
)
from deepjoin.store.column_vectors.sketch import SNAPSHOT
from deepjoin.store.copies import link_or_copy
from deepjoin.store.models import cell_encoder, column_encoder, located, vector_cache
from deepjoin.store.segment import Segment


class Encoding:
    """The encoders of a lake, for its writer."""

    def __init__(self, vectors: Vectors, settings: Settings, folder: Path, means: Means) -> None:
        self._vectors, self._settings = vectors, settings
        self._folder, self._means = folder, means

    @cached_property
    def _cells(self) -> CellEncoder | None:
        return cell_encoder(self._vectors.cells, self._folder)

    @cached_property
    def _columns(self) -> ColumnEncoder | None:
        means = self._means
        return column_encoder(
            *(self._vectors.encoder, self._folder, self._settings.profile),
            *(means.threads, means.device),
        )

    @property
    def _spaces(self) -> list[str]:
        """Name the kinds of column vectors there are to be."""
        chosen = self._vectors.encoder != "none", self._vectors.sketch > 0
        return [space for space, there in zip(SPACES, (*chosen, all(chosen)), strict=True) if there]

    def dress(self, built: Path) -> None:
        """Give a segment that was just built the vectors of its cells."""
        if self._cells is not None:
            means = self._means
            cell_vectors.write_cell_vectors(built, self._cells, means.threads, means.progress)

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
        # Sketches are cheaper to make than to look after, and are made after this.
        if "columns" in self._spaces:
            merge_rows(kept, out, "columns", self._vectors.index, self._vectors.metric)

    def lacking(self, segment: Segment) -> bool:
        """Tell whether a segment has other vectors than it should; no encoder is loaded."""
        return not self._has_cells(segment) or any(
            _digest_of(segment, space) != self._digest(space) for space in SPACES
        )

    def _has_cells(self, segment: Segment) -> bool:
        return (segment.cells.digest if segment.cells else "") == self._vectors.cells_digest

    def _digest(self, space: str) -> str:
        """Say whose vectors there are to be in a space; nothing if there are to be none."""
        if space not in self._spaces:
            return ""
        columns, sketch = self._vectors.encoder_digest, sketch_digest(self._vectors.sketch)
        cells = self._vectors.cells_digest
        both = both_digest(columns, sketch, meaning_digest(cells) if cells else "")
        whose = {"columns": columns, "sketch": sketch, "both": both}[space]
        # Sketches are made for the cosine.
        metric = self._vectors.metric if space == "columns" else "cosine"
        return f"{whose} {self._vectors.index} {metric}"

    def complete(self, segment: Segment, out: Path, lake: Sequence[Segment]) -> None:
        """Write a segment of a lake again with the vectors it lacks; the rest is linked."""
        ready = [space for space in self._spaces if self._is_ready(segment, space)]
        taken = [Path("vectors") / space for space in ready]
        if self._has_cells(segment):
            taken.append(cell_vectors.FOLDER)
        for name in _files(segment.folder, taken):
            _link(segment.folder / name, out / name)
        if cell_vectors.FOLDER not in taken:
            self.dress(out)
        missing = [space for space in self._spaces if space not in ready]
        if missing:
            self._add_columns(segment, out, lake, missing)

    def _is_ready(self, segment: Segment, space: str) -> bool:
        return _digest_of(segment, space) == self._digest(space)

    def _add_columns(
        self, segment: Segment, out: Path, lake: Sequence[Segment], spaces: Sequence[str]
    ) -> None:
        frequency = self._frequency(segment, out, lake)
        means, kind = self._means, self._vectors.index
        if "columns" in spaces and self._columns is not None:
            known = known_rows(segment.folder, "columns", self._columns.digest)
            with vector_cache() as cache:
                encode = self._encode(self._columns, frequency, cache)
                encoder = self._columns
                if cache is not None and isinstance(encoder, TextEncoder):
                    encoder = CachedEncoder(encoder, cache)
                index = kind, self._vectors.metric
                finish_columns(
                    segment, out, encoder, frequency, known, means.progress, index, encode
                )
        if "sketch" in spaces:
            finish_sketch(segment, out, frequency, self._vectors.sketch, means.progress, kind)
        if "both" in spaces:
            finish_both(out, kind, meanings(segment, out, frequency, means.progress))

    def _encode(
        self, encoder: ColumnEncoder, frequency: FrequencySnapshot, cache: VectorCache | None
    ) -> Encode:
        """Choose who encodes; what is not made of a text is encoded here, engine or not."""
        engine = self._means.engine
        if engine is None or not isinstance(encoder, TextEncoder):
            return encode_here
        spec = located(self._vectors.encoder, self._folder)
        model = Model(spec, self._settings.profile, encoder.digest)
        on_gpu = isinstance(encoder, TorchEncoder) and self._means.device != "cpu"
        if on_gpu and self._means.device is not None and not engine.gpus:
            raise DeepJoinError(
                f"The device '{self._means.device}' was asked for, and the Ray cluster has no GPU. "
                "Start nodes with --num-gpus, or leave the device out."
            )
        return EncodeElsewhere(engine, model, frequency.folder, cache, on_gpu)

    def _frequency(self, segment: Segment, out: Path, lake: Sequence[Segment]) -> FrequencySnapshot:
        """Read the snapshot that the oldest segment holds; that one gets it if there is none."""
        if FrequencySnapshot.exists(lake[0].folder):
            return FrequencySnapshot(lake[0].folder)
        assert segment.folder == lake[0].folder
        write_frequency(lake, out)
        return FrequencySnapshot(out)


def _digest_of(segment: Segment, space: str) -> str:
    """Say whose vectors a segment has in a space, and how they are stored, if it has all."""
    found = ColumnVectors.open(segment.folder, space)
    if found is None or not found.complete:
        return ""
    return " ".join((found.about.digest, *found.asked))


def is_outdated(lake: Sequence[Segment]) -> bool:
    """Tell whether texts were made with the frequencies of another lake than there is now."""
    if not lake or not FrequencySnapshot.exists(lake[0].folder):
        return False
    columns = sum(segment.live_columns for segment in lake)
    return FrequencySnapshot(lake[0].folder).columns != columns


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
    link_or_copy(path, to)
