"""Give segments the vectors of an index: those of cells as they are built, of columns later.

Vectors depend only on what a segment stores, so no table is read for them. A segment that lacks
some is replaced by one with the same files, linked, and the vectors beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event

import numpy as np

from deepjoin.arrays import Marks
from deepjoin.build.engine import BuildResources
from deepjoin.build.workers import EncodeElsewhere, TextModel
from deepjoin.checksums import NAME, verify_file
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns.cache import CachedEncoder, VectorCache
from deepjoin.embed.columns.encoder import ColumnEncoder, TextEncoder
from deepjoin.embed.columns.torch_encoder import TorchEncoder
from deepjoin.errors import DeepJoinError
from deepjoin.files import link_or_copy
from deepjoin.lazy import cached_property
from deepjoin.memory import CELLS_SPACE, check_address_space, release
from deepjoin.progress import worker_threads
from deepjoin.settings import Settings, Vectors
from deepjoin.show.text import duration
from deepjoin.store import cell_vectors
from deepjoin.store.column_vectors import (
    SPACES,
    ColumnVectors,
    Encode,
    both_digest,
    encode_here,
    finish_both,
    finish_columns,
    finish_sketch,
    known_rows,
    meanings,
    merge_rows,
)
from deepjoin.store.models import (
    cell_encoder,
    column_encoder,
    encoding_seconds,
    located,
    vector_cache,
)
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    SNAPSHOT,
    FrequencySnapshot,
    meaning_digest,
    sketch_digest,
    write_frequency,
)
from deepjoin.store.values.signatures import Signatures, write_signatures

#: A forecast is printed if encoding the columns takes at least this many seconds.
_WORTH_A_WORD = 10


class Encoding:
    """Encodes the cells and columns of an index for its writer."""

    def __init__(
        self, vectors: Vectors, settings: Settings, folder: Path, resources: BuildResources
    ) -> None:
        self._vectors, self._settings = vectors, settings
        self._folder, self._resources = folder, resources

    @cached_property
    def _cells(self) -> CellEncoder | None:
        encoder = cell_encoder(self._vectors.cells, self._folder)
        if encoder is not None:
            check_address_space("A build with cell vectors", CELLS_SPACE)
        return encoder

    @cached_property
    def _columns(self) -> ColumnEncoder | None:
        return column_encoder(
            *(self._vectors.encoder, self._folder, self._settings.profile),
            *(self._resources.threads, self._resources.device, self._vectors.text),
        )

    @property
    def _spaces(self) -> list[str]:
        """The kinds of column vectors that segments should have."""
        chosen = self._vectors.encoder != "none", self._vectors.sketch > 0
        return [space for space, there in zip(SPACES, (*chosen, all(chosen)), strict=True) if there]

    def write_of_values(self, built: Path) -> None:
        """Give a segment that was just built the vectors and signatures of its values."""
        release()
        stopped = Event()
        with worker_threads(1) as pool:
            # Beside the vectors, whose lists leave Python idle; each has half of the memory.
            memory = self._resources.memory // 2
            given = memory, stopped.is_set
            signing = None if self._is_hidden else pool.submit(write_signatures, built, *given)
            try:
                self._write_cell_vectors(built, memory)
            except BaseException:
                stopped.set()
                raise
            if signing is not None:
                signing.result()

    def _write_cell_vectors(self, built: Path, memory: int) -> None:
        if self._cells is not None:
            how = self._resources.threads, self._resources.progress, memory
            cell_vectors.write_cell_vectors(built, self._cells, *how)

    @property
    def _is_hidden(self) -> bool:
        """Whether values are stored as hashes, which have no signatures."""
        return self._settings.hash_only

    def write_signatures(self, built: Path) -> None:
        """Give a segment the signatures of its values, unless it has them."""
        if not self._is_hidden and Signatures.open(built) is None:
            release()
            write_signatures(built, self._resources.memory)

    def merge(self, parts: Sequence[Segment], out: Path, renew: bool) -> None:
        """Give a merged segment the vectors that its parts have.

        ``renew`` leaves out column vectors, which are then encoded with current frequencies.
        """
        if self._cells is not None:
            known = [(part.values, part.cells) for part in parts]
            release()
            given = self._resources
            how = given.threads, given.progress, given.memory
            cell_vectors.merge_cell_vectors(known, out, self._cells, *how)
        if renew:
            return
        if FrequencySnapshot.exists(parts[0].folder):
            for name in SNAPSHOT:
                _link(parts[0].folder / name, out / name)
        kept = [(part, kept_columns(part)) for part in parts]
        # Sketches are cheaper to make again than to merge.
        if "columns" in self._spaces:
            merge_rows(kept, out, "columns", self._vectors.index, self._vectors.metric)

    def lacking(self, segment: Segment) -> bool:
        """Whether a segment has other vectors than it should; loads no encoder."""
        return (
            not self._has_cells(segment)
            or (segment.signatures is None and not self._is_hidden)
            or any(_digest_of(segment, space) != self._wanted_digest(space) for space in SPACES)
        )

    def _has_cells(self, segment: Segment) -> bool:
        return (segment.cells.digest if segment.cells else "") == self._vectors.cells_digest

    def _wanted_digest(self, space: str) -> str:
        """Identify the vectors that a space should have; "" for none."""
        if space not in self._spaces:
            return ""
        columns, sketch = self._vectors.encoder_digest, sketch_digest(self._vectors.sketch)
        cells = self._vectors.cells_digest
        both = both_digest(columns, sketch, meaning_digest(cells) if cells else "")
        whose = {"columns": columns, "sketch": sketch, "both": both}[space]
        # Sketches estimate cosines.
        metric = self._vectors.metric if space == "columns" else "cosine"
        return f"{whose} {self._vectors.index} {metric}"

    def complete(self, segment: Segment, out: Path, lake: Sequence[Segment]) -> None:
        """Write a segment of the index again with the vectors it lacks; link the rest."""
        ready = [
            space
            for space in self._spaces
            if _digest_of(segment, space) == self._wanted_digest(space)
        ]
        taken = [Path("vectors") / space for space in ready]
        if self._has_cells(segment):
            taken.append(cell_vectors.FOLDER)
        for path in segment.folder.rglob("*"):
            name = path.relative_to(segment.folder)
            if name == Path(NAME) or not path.is_file():
                continue
            if name.parts[0] != "vectors" or name.parent in taken:
                _link(path, out / name)
        if cell_vectors.FOLDER not in taken:
            release()
            self._write_cell_vectors(out, self._resources.memory)
        if segment.signatures is None:
            self.write_signatures(out)
        missing = [space for space in self._spaces if space not in ready]
        if missing:
            self._add_columns(segment, out, lake, missing)

    def _add_columns(
        self, segment: Segment, out: Path, lake: Sequence[Segment], spaces: Sequence[str]
    ) -> None:
        # All segments use the snapshot of the oldest one, which gets it when it is first needed.
        if FrequencySnapshot.exists(lake[0].folder):
            frequency = FrequencySnapshot(lake[0].folder)
        else:
            assert segment.folder == lake[0].folder
            write_frequency(lake, out)
            frequency = FrequencySnapshot(out)
        progress, kind = self._resources.progress, self._vectors.index
        if "columns" in spaces and self._columns is not None:
            known = known_rows(segment.folder, "columns", self._columns.digest)
            seconds = encoding_seconds(self._vectors.encoder, segment.live_columns)
            if known is None and seconds is not None and seconds >= _WORTH_A_WORD:
                self._resources.notify(
                    f"Encoding {segment.live_columns:,} columns takes about {duration(seconds)}. "
                    "The lake can be searched meanwhile; if interrupted, the same command resumes."
                )
            with vector_cache() as cache:
                encode = self._encode(self._columns, frequency, cache)
                encoder = self._columns
                if cache is not None and isinstance(encoder, TextEncoder):
                    encoder = CachedEncoder(encoder, cache)
                index = kind, self._vectors.metric
                finish_columns(segment, out, encoder, frequency, known, progress, index, encode)
        if "sketch" in spaces:
            finish_sketch(segment, out, frequency, self._vectors.sketch, progress, kind)
        if "both" in spaces:
            finish_both(out, kind, meanings(segment, out, frequency, progress))

    def _encode(
        self, encoder: ColumnEncoder, frequency: FrequencySnapshot, cache: VectorCache | None
    ) -> Encode:
        """Choose where to encode; what is not made from a text is encoded here, engine or not."""
        engine = self._resources.engine
        if engine is None or not isinstance(encoder, TextEncoder):
            return encode_here
        spec = located(self._vectors.encoder, self._folder)
        model = TextModel(spec, self._settings.profile, encoder.digest, self._vectors.text)
        on_gpu = isinstance(encoder, TorchEncoder) and self._resources.device != "cpu"
        if on_gpu and self._resources.device is not None and not engine.gpus:
            raise DeepJoinError(
                f"`device` is '{self._resources.device}', and the engine has no GPU. Leave "
                "`device` out, or start nodes of the Ray cluster with: ray start --num-gpus N"
            )
        return EncodeElsewhere(engine, model, frequency.folder, cache, on_gpu)


def _digest_of(segment: Segment, space: str) -> str:
    """Identify the vectors that a segment has in a space, if it has all."""
    found = ColumnVectors.open(segment.folder, space)
    if found is None or not found.complete:
        return ""
    return " ".join((found.about.digest, *found.requested))


def is_outdated(lake: Sequence[Segment]) -> bool:
    """Whether columns were encoded with other frequencies than the index has now."""
    if not lake or not FrequencySnapshot.exists(lake[0].folder):
        return False
    columns = sum(segment.live_columns for segment in lake)
    return FrequencySnapshot(lake[0].folder).columns != columns


def kept_columns(segment: Segment) -> Marks:
    """Mark the columns of a segment that a merge keeps: those of tables not removed."""
    return np.ones(segment.values.columns, bool) if segment.dead is None else ~segment.dead


def _link(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    # Verified here, since what is read of the link has no checksums yet.
    link_or_copy(verify_file(path), to)
