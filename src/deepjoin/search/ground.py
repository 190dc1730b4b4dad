"""What a lake gives the search methods to stand on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns.base import ColumnEncoder
from deepjoin.search.stores import OpenStore
from deepjoin.store.column_vectors import FrequencySnapshot
from deepjoin.store.segment import Segment


class Ground(Protocol):
    """An open lake as search methods see it; encoders are loaded when a method needs them."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, from the oldest to the newest."""

    @property
    def profile(self) -> str:
        """How cells are compared."""

    @property
    def key(self) -> bytes:
        """The key of a lake of hashes; empty for others."""

    @property
    def has_cells(self) -> bool:
        """Whether all segments have cell vectors."""

    @property
    def location(self) -> object:
        """Where the lake is, for messages."""

    @property
    def store(self) -> OpenStore:
        """Opens column vectors where they are searched."""

    def cell_encoder(self) -> CellEncoder:
        """Load the encoder that made the cell vectors; raises if it cannot be had."""

    def column_encoder(self, method: str = "deepjoin", kind: str = "") -> ColumnEncoder:
        """Load the encoder that made the column vectors; raises if it is not one of the kind."""

    def remedy(self, space: str) -> str:
        """Give the options that make the vectors of a space anew."""

    def sketch_dimension(self) -> int:
        """Say how many numbers a sketch has; raises if there are no sketches."""

    def frequency(self) -> FrequencySnapshot:
        """Read in how many columns values were when columns were encoded."""
