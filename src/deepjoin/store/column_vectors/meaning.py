"""What columns mean: the vectors of their values summed up, rare values the longer.

Columns that say the same in other words have sums that point the same way. Unlike in sketches,
values of one column only count most: what they mean may be in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.scan import ZERO_POINT
from deepjoin.model import Column
from deepjoin.normalise.distinct import distinct_cells
from deepjoin.normalise.hashing import hash_values
from deepjoin.store.cell_vectors import CellVectors
from deepjoin.store.column_vectors.frequency import FrequencySnapshot
from deepjoin.store.column_vectors.sketch import Told, column_sums
from deepjoin.store.segment import Segment

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
Half = npt.NDArray[np.float16]

#: Version of the weights: meanings of another cannot be compared.
_VERSION = 1
#: The last number of a column's meaning, which queries do not have, is as long as the root of so
#: many of the rarest values: columns of a few values do not outrank those that hold more.
_STEADY = 32
#: Columns kept at a time.
_COLUMNS = 1 << 13


def meaning_digest(cells: str) -> str:
    """Return what stands for all a meaning depends on beside the lake, of the cells' encoder."""
    return f"meaning-{_VERSION}-{cells}"


def rarity(frequencies: Int, columns: int) -> Float:
    """Weigh values by their rarity, those in one column the most."""
    return np.log((columns + 1) / np.maximum(frequencies, 1)).astype(np.float32)


def meaning_rows(
    segment: Segment,
    cells: CellVectors,
    frequency: FrequencySnapshot,
    told: Told = lambda done, total, text: None,
) -> Iterator[Half]:
    """Sum up what the values of every column mean, some at a time; every row has length 1."""
    columns = max(frequency.columns, segment.live_columns)
    weighed = rarity(frequency.of_segment(segment), columns)
    steady = _STEADY**0.5 * np.log(columns + 1)
    stored, dimension = cells.vectors, cells.vectors.dimension

    def vectors(values: Int) -> Float:
        found = stored.stored.take(stored.rows_of(values))
        return (found.codes.astype(np.float32) - ZERO_POINT) * found.scales[:, None]

    count = segment.values.columns
    for start in range(0, count, _COLUMNS):
        stop = min(start + _COLUMNS, count)
        sums = column_sums(segment, weighed, (start, stop), dimension, vectors)
        yield _steadied(sums @ stored.rotation.T, steady).astype(np.float16)
        told(stop, count, "meanings")


def _steadied(sums: Float, steady: float) -> Float:
    """Put the steady number behind sums, and scale to length 1."""
    rows = np.pad(sums, ((0, 0), (0, 1)), constant_values=steady)
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows


class Meaning:
    """Says what queries mean, for the segments of a lake."""

    def __init__(
        self,
        segments: Sequence[Segment],
        frequency: FrequencySnapshot,
        encoder: CellEncoder,
        profile: str,
    ) -> None:
        self._segments, self._frequency = segments, frequency
        self._encoder, self._profile = encoder, profile
        live = (segment.live_columns for segment in segments)
        self._columns = max([frequency.columns, *live])

    def __call__(self, query: Column) -> Float:
        """Sum up what a query means: all zeros if nothing is known of its values."""
        values = distinct_cells(query.cells, self._profile).values
        found = self._frequency.of_query(hash_values(values), self._segments)
        # Lone surrogates, which no lake holds, cannot be encoded.
        known = [value.encode("utf-8", "replace").decode() for value in values]
        return np.append(rarity(found, self._columns) @ self._encoder.encode(known), np.float32(0))
