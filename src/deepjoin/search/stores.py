"""What a store of column vectors must do, and the one that every index has in itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from deepjoin.arrays import Float, Marks
from deepjoin.embed.vector_index import Nearest
from deepjoin.store.column_vectors.columns import ColumnVectors
from deepjoin.store.segment import Segment


class VectorStore(Protocol):
    """The column vectors of a lake in one space, wherever they are; threads share it."""

    @property
    def metric(self) -> str:
        """How near two vectors are: "cosine" or "euclidean"."""

    def nearest(
        self, vector: Float, k: int | None, excluded: Sequence[Marks | None]
    ) -> list[Nearest]:
        """Return the nearest k columns of each segment, or all, without those marked.

        Which columns are found may be approximate; their distances are exact, and equal ones
        come in the order of the segment's catalog.
        """


#: Opens the vectors that segments have in a space, which is named.
OpenStore = Callable[[Sequence[Segment], Sequence[ColumnVectors], str], VectorStore]


class EmbeddedStore:
    """Asks the index of each segment, which lies in the segment's folder."""

    def __init__(
        self,
        segments: Sequence[Segment],
        vectors: Sequence[ColumnVectors],
        space: str = "columns",
    ) -> None:
        self._parts = list(zip(segments, vectors, strict=True))

    @property
    def metric(self) -> str:
        """How near two vectors are."""
        return self._parts[0][1].index.metric if self._parts else "cosine"

    def nearest(
        self, vector: Float, k: int | None, excluded: Sequence[Marks | None]
    ) -> list[Nearest]:
        """Search the segments one after the other."""
        found = []
        for (segment, one), marks in zip(self._parts, excluded, strict=True):
            most = segment.values.columns if k is None else k
            order = np.asarray(segment.catalog.column_order)
            found.append(one.index.search(vector, most, marks, order))
        return found
