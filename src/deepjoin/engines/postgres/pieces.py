"""The vectors of an index, piece by piece: one segment in one space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from deepjoin.engines.postgres.rows import Groups
from deepjoin.engines.postgres.schema import Part
from deepjoin.store.column_vectors.columns import ColumnVectors

#: Pieces whose equal vectors are kept in mind; servers are about as far as each other.
_KEPT = 2


@dataclass(frozen=True)
class Piece:
    """The vectors of one segment in one space, as the index has them."""

    segment: str
    space: str
    vectors: ColumnVectors


class Grouping:
    """Finds the equal vectors of a piece, once for all servers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known = lru_cache(_KEPT)(lambda piece: Groups.of(piece.vectors.rows))

    def of(self, piece: Piece) -> Groups:
        """Give the groups of equal vectors; who comes while they are looked for waits."""
        with self._lock:
            return self._known(piece)


class Difference(NamedTuple):
    """In what a part is not what the index has."""

    what: str
    there: object
    here: object


def difference(part: Part, vectors: ColumnVectors) -> Difference | None:
    """Say in what a part is not what the index has; None if it is the same."""
    about, index = vectors.about, vectors.index
    if part.digest != about.digest:
        there, here = f"{part.encoder} ({part.digest})", f"{about.name} ({about.digest})"
        return Difference("encoder", there, here)
    for one in (
        Difference("metric", part.metric, index.metric),
        Difference("dimension", part.dimension, index.dimension),
        Difference("columns", part.columns, len(index)),
    ):
        if one.there != one.here:
            return one
    return None
