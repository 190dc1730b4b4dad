"""Check that vectors are those of the stored values: encode some again and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Float, Half, Int, load_strings
from deepjoin.checking.vectors import ABOUT
from deepjoin.embed.cells import CellEncoder, has_meaning
from deepjoin.embed.columns.encoder import ColumnEncoder
from deepjoin.embed.packed import BOUNDS, PARTS, ZERO_POINT, PackedRows, QuantisedRows
from deepjoin.embed.scan import SLACK
from deepjoin.embed.value_vectors import FILES, LARGEST_CODE, OLD_FILES, ValueVectors, checked
from deepjoin.embed.vector_build import ROWS
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.store.cell_vectors import FOLDER as CELLS
from deepjoin.store.column_vectors import SPACES, ColumnVectors, segment_columns, unknown
from deepjoin.store.manifest import Manifest
from deepjoin.store.models import cell_encoder, column_encoder
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    SNAPSHOT,
    FrequencySnapshot,
    meaning_digest,
    meaning_rows,
    sketch_rows,
)

Encoder = TypeVar("Encoder", CellEncoder, ColumnEncoder)

#: Values and columns encoded again, and the most columns of a segment sketched again.
_VALUES, _COLUMNS, _SKETCHED = 4096, 5, 20_000
#: How far machines may round differently: a code where two are as near, in steps; the error of a
#: row; the vector of a column, by a share of its length.
_TIE, ERROR, _NEAR = 1e-3, 2e-5, 1e-2
#: What half precision changes, with room for sums in another order.
HALF = 2.0**-10
_OTHERS = f"{ABOUT} names another encoder than the one that made the vectors"


class VectorContents:
    """Compares the vectors of a lake's segments with those its encoders make now."""

    def __init__(self, manifest: Manifest, folder: Path, oldest: Path) -> None:
        self._vectors, self._profile = manifest.vectors, manifest.settings.profile
        self._folder, self._oldest = folder, oldest
        #: What could not be compared, and why.
        self.notes: list[str] = []

    def problems(self, segment: Segment) -> Iterator[str]:
        """Report vectors that are not those of their values, file by file."""
        found = list(self._of_cells(segment))
        yield from (f"{CELLS.as_posix()}/{text}" for text in found)
        spaces = [space for space in SPACES if (segment.folder / "vectors" / space).is_dir()]
        if not spaces:
            return
        if not FrequencySnapshot.exists(self._oldest):
            yield f"vectors/{spaces[0]}/{ROWS} needs {SNAPSHOT[-1]} of the oldest segment"
            return
        yield from (f"vectors/columns/{text}" for text in self._of_columns(segment))
        yield from (f"vectors/sketch/{text}" for text in self._of_sketches(segment))
        if not found:
            yield from (f"vectors/both/{text}" for text in self._of_meanings(segment))

    @cached_property
    def _cells(self) -> CellEncoder | None:
        return self._loaded(lambda: cell_encoder(self._vectors.cells, self._folder))

    @cached_property
    def _columns(self) -> ColumnEncoder | None:
        spec, text = self._vectors.encoder, self._vectors.text
        return self._loaded(lambda: column_encoder(spec, self._folder, self._profile, text=text))

    @cached_property
    def _frequency(self) -> FrequencySnapshot:
        return FrequencySnapshot(self._oldest)

    def _loaded(self, load: Callable[[], Encoder | None]) -> Encoder | None:
        try:
            return load()
        except (DeepJoinError, OSError, ValueError, ImportError) as error:
            self._note(str(error).splitlines()[0])
            return None

    def _note(self, why: str) -> None:
        note = f"Vectors were not compared with their encoder: {why}"
        if note not in self.notes:
            self.notes.append(note)

    def _note_other(self, encoder: CellEncoder | ColumnEncoder, name: str, digest: str) -> None:
        self._note(
            f"they are of '{name}' ({digest}), and the encoder here is "
            f"'{encoder.name}' ({encoder.digest})."
        )

    def _of_cells(self, segment: Segment) -> Iterator[str]:
        """Encode values all over the segment again."""
        found, encoder = segment.cells, self._cells
        if found is None or encoder is None:
            return
        problems = _cell_differences(segment, encoder)
        # Vectors of another encoder cannot be compared, but if they are equal the name is wrong.
        if found.digest != encoder.digest:
            if problems or not len(found.vectors):
                self._note_other(encoder, found.name, found.digest)
            else:
                yield _OTHERS
        elif found.name != encoder.name:
            yield _OTHERS
        else:
            yield from problems

    def _of_columns(self, segment: Segment) -> Iterator[str]:
        """Encode some columns again."""
        found, encoder = ColumnVectors.open(segment.folder, "columns"), self._columns
        if found is None or encoder is None:
            return
        encoded = ~unknown(found.rows)
        if segment.dead is not None:
            encoded &= ~segment.dead
        some = _spread(np.flatnonzero(encoded), _COLUMNS)
        same = found.about.dimension == encoder.dimension and self._are(found, segment, some)
        if found.about.digest != encoder.digest:
            if same and len(some):
                yield _OTHERS
            else:
                self._note_other(encoder, found.about.name, found.about.digest)
        elif found.about.name != encoder.name:
            yield _OTHERS
        elif not same:
            yield f"{ROWS} has vectors that are not those of their columns"

    def _are(self, found: ColumnVectors, segment: Segment, some: Int) -> bool:
        """Check whether these columns have the vectors that the encoder gives them now."""
        encoder = self._columns
        if encoder is None or len(some) == 0:
            return encoder is not None
        columns = list(segment_columns(segment, some, encoder.counted))
        wanted = encoder.encode(columns, self._frequency)
        lost = np.linalg.norm(found.rows[some].astype(np.float32) - wanted, axis=1)
        return bool((lost <= _NEAR * np.linalg.norm(wanted, axis=1)).all())

    def _of_sketches(self, segment: Segment) -> Iterator[str]:
        """Sketch the columns again, if that is quick and they are counted as they were."""
        found = ColumnVectors.open(segment.folder, "sketch")
        # Removed tables still counted when the sketches were made, and now they do not.
        if found is None or segment.removed or len(found.rows) > _SKETCHED:
            return
        if not _alike(found.rows, sketch_rows(segment, self._frequency, found.about.dimension)):
            yield f"{ROWS} has sketches that are not those of their columns"

    def _of_meanings(self, segment: Segment) -> Iterator[str]:
        """Sum up again what columns mean, where sketches are made again."""
        found, cells = ColumnVectors.open(segment.folder, "both"), segment.cells
        if found is None or cells is None or segment.removed or len(found.rows) > _SKETCHED:
            return
        if not found.about.digest.endswith(meaning_digest(cells.digest)):
            self._note(
                "sketches are of an earlier version; `deepjoin index INDEX --sketch N` makes them "
                "again."
            )
        elif not _alike(found.rows, meaning_rows(segment, cells, self._frequency)):
            yield f"{ROWS} has meanings that are not those of their columns"


def _alike(rows: Half, wanted: Iterator[Half]) -> bool:
    """Check whether rows end with those wanted, as machines round."""
    start = 0
    for block in wanted:
        ends = rows[start : start + len(block), -block.shape[1] :]
        off = np.abs(ends.astype(np.float32) - block.astype(np.float32))
        if not (off <= HALF * np.abs(block) + HALF**2).all():
            return False
        start += len(block)
    return True


def _cell_differences(segment: Segment, encoder: CellEncoder) -> list[str]:
    """Name the files in which some values have other numbers than they get now."""
    assert segment.cells is not None
    vectors = segment.cells.vectors
    if vectors.dimension != encoder.dimension:
        return [f"{FILES[-1]} is of {vectors.dimension} dimensions, not {encoder.dimension}"]
    numbers = _spread(np.arange(vectors.count), _VALUES)
    values = load_strings(segment.folder, "values").take(pa.array(numbers)).cast(pa.string())
    encoded = encoder.encode(values)
    text = "has vectors that are not those of their values"
    if vectors.is_outdated:
        stored = vectors.take(numbers)
        # Earlier versions also stored vectors of values without meaning.
        encoded[~has_meaning(values) & (stored.scales == 0)] = 0
        different = _old_differences(stored, encoded, vectors.rotation)
    else:
        encoded[~has_meaning(values)] = 0
        different = _differences(vectors, numbers, encoded)
    return [f"{name} {text}" for name in different][:1]


def _differences(vectors: ValueVectors, numbers: Int, encoded: Float) -> Iterator[str]:
    """Name the files whose numbers are not those of vectors, as machines round."""
    there, rows = vectors.copy(numbers)
    if not np.array_equal(there, encoded.any(axis=1)):
        yield FILES[0]
        return
    turned = checked(encoded[there], vectors.dimension) @ vectors.rotation
    again = PackedRows.pack(turned)
    steps = np.abs(rows.bounds.astype(int) - again.bounds)
    # Of two bounds that are as good, or nearly: vectors of earlier versions were rounded before.
    largest = np.abs(turned).max(axis=1, initial=0)
    nearly = np.abs(largest / np.minimum(BOUNDS[rows.bounds], BOUNDS[again.bounds]) - 1) <= 2 * HALF
    if not ((steps == 0) | ((steps == 1) & nearly)).all():
        yield FILES[2]
        return
    full = rows.take(np.arange(rows.size))
    off = np.abs(turned - full.floats())
    # Half a part, and what 8 bits may have lost before.
    most = (1 / PARTS + 0.5 / LARGEST_CODE + _TIE) * BOUNDS[rows.bounds]
    if not (off <= most[:, None]).all():
        yield FILES[0]
        return
    lost = np.linalg.norm(off, axis=1)
    if (lost > full.errors + SLACK).any():
        yield FILES[3]


def _old_differences(stored: QuantisedRows, encoded: Float, rotation: Float) -> Iterator[str]:
    """Name the files of an earlier version whose numbers are not those of vectors."""
    turned = checked(encoded, len(rotation)) @ rotation
    before = np.max(np.abs(turned), axis=1, initial=0) / LARGEST_CODE
    scales = np.abs(stored.scales - before) <= HALF * before
    # As they are stored. Where a merge has rounded scales of earlier versions, codes are those of
    # the scales before, and errors have that in them.
    codes, kept = stored.codes.astype(np.float32) - ZERO_POINT, stored.scales.astype(np.float32)
    off = np.abs(turned / np.where(scales & (kept > 0), kept, 1)[:, None] - codes)
    near = off <= 0.5 + _TIE + HALF * np.abs(codes)
    merged = np.linalg.norm(turned - codes * before[:, None], axis=1)
    merged += np.abs(before - kept) * (LARGEST_CODE * np.float32(len(rotation) ** 0.5))
    exact = np.linalg.norm(turned - codes * kept[:, None], axis=1)
    errors = before == 0
    for lost in (exact, merged):
        errors |= np.abs(stored.errors - lost) <= ERROR
    marks = near[scales].all(), scales.all(), errors.all()
    return (name for name, same in zip(OLD_FILES, marks, strict=False) if not same)


def _spread(numbers: Int, most: int) -> Int:
    """Choose at most ``most`` of some numbers, spread evenly over them."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.arange(most) * len(numbers) // most]
