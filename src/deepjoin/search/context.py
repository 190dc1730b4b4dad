"""An open lake as search methods see it: its segments, its vectors, the encoders that fit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from deepjoin.arrays import Float, Marks
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.columns.loading import example_of, split_kind
from deepjoin.embed.vector_index import Nearest
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.normalise.private import key
from deepjoin.settings import Settings, Vectors
from deepjoin.show.text import duration
from deepjoin.store.column_vectors import ColumnVectors
from deepjoin.store.models import (
    cell_encoder,
    column_encoder,
    encode_command,
    encoding_seconds,
    shown,
)
from deepjoin.store.segment import Segment

if TYPE_CHECKING:
    from deepjoin.embed.columns.encoder import ColumnEncoder
    from deepjoin.store.sketch import FrequencySnapshot


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


@dataclass(frozen=True)
class SearchContext:
    """An open lake for search methods; encoders are loaded on demand, and must be the lake's."""

    #: From the oldest to the newest.
    segments: Sequence[Segment]
    settings: Settings
    vectors: Vectors
    #: Where the lake is, for messages, and the folder of its files.
    location: str | Path
    folder: Path
    #: Where encoders that need torch run; None for the library's default.
    device: str | None = None
    #: Opens column vectors where they are searched; None: in the index itself.
    store: OpenStore | None = None

    @property
    def profile(self) -> str:
        """How cells are compared."""
        return self.settings.profile

    @property
    def key(self) -> bytes:
        """The key of a lake of hashes; empty for others."""
        return key(self.settings)

    @property
    def has_cells(self) -> bool:
        """Whether all segments have cell vectors."""
        return all(segment.cells is not None for segment in self.segments)

    def cell_encoder(self) -> CellEncoder:
        """Load the encoder that made the cell vectors."""
        if not self.has_cells:
            raise self._without("cell vectors", "semantic joins need", cells="default")
        encoder = cell_encoder(self.vectors.cells, self.folder)
        assert encoder is not None
        cells = shown(self.vectors.cells, self.folder)
        for segment in self.segments:
            if segment.cells is not None and segment.cells.digest != encoder.digest:
                raise IndexUnusable(
                    f"The cells of {self.location} were encoded by '{segment.cells.name}' "
                    f"({segment.cells.digest}), not by '{encoder.name}' ({encoder.digest}). Encode "
                    f"them again with: {encode_command(self.location, cells=cells)}; equi-joins "
                    '(`join="equi"`) need none.'
                )
        return encoder

    def column_encoder(self, method: str = "deepjoin", kind: str = "") -> ColumnEncoder:
        """Load the encoder that made the column vectors; a method reads those of one kind."""
        theirs = split_kind(self.vectors.encoder)[0]
        if self.vectors.encoder != "none" and theirs != kind:
            other = theirs or "deepjoin"
            raise DeepJoinError(
                f"The columns of {self.location} were encoded for method '{other}', not for "
                f"'{method}'. Search with '{other}', or encode them again with: "
                f"{encode_command(self.location, encoder=example_of(kind))}"
            )
        encoder = column_encoder(
            *(self.vectors.encoder, self.folder, self.profile),
            device=self.device,
            text=self.vectors.text,
        )
        if encoder is None:
            raise self._without(
                "column vectors", f"method '{method}' needs", encoder=example_of(kind)
            )
        return encoder

    def remedy(self, space: str) -> str:
        """Return the command that makes the vectors of a space again."""
        columns: dict[str, object] = {"encoder": shown(self.vectors.encoder, self.folder)}
        sketch: dict[str, object] = {"sketch": self.vectors.sketch}
        made = {"columns": columns, "sketch": sketch, "both": columns | sketch}[space]
        return encode_command(self.location, **made)

    def sketch_dimension(self) -> int:
        """Return how many numbers a sketch has."""
        if self.vectors.sketch == 0:
            raise DeepJoinError(
                f"{self.location} has no sketches, which this method needs. Make them with: "
                f"{encode_command(self.location, sketch=768)}"
            )
        return self.vectors.sketch

    def frequency(self) -> FrequencySnapshot:
        """Read in how many columns values were when columns were encoded: the oldest segment's."""
        from deepjoin.store.sketch import FrequencySnapshot

        if not FrequencySnapshot.exists(self.segments[0].folder):
            raise DeepJoinError(
                f"{self.location} is not completely encoded. Continue with: "
                f"deepjoin index {self.location}"
            )
        return FrequencySnapshot(self.segments[0].folder)

    def _without(self, what: str, why: str, **vectors: str) -> DeepJoinError:
        if self.settings.hash_only:
            return DeepJoinError(
                f"{self.location} holds hashes of values, of which no vectors can be made; "
                'use `join="equi"` with a method that needs values alone: see deepjoin methods.'
            )
        columns = sum(segment.live_columns for segment in self.segments)
        seconds = encoding_seconds(vectors.get("encoder"), columns)
        how_long = "" if seconds is None else f"in about {duration(seconds)} "
        return DeepJoinError(
            f"{self.location} has no {what}, which {why}. Make them {how_long}with: "
            f"{encode_command(self.location, **vectors)}"
        )
