"""Cell encoders: a vector for every distinct value, so that equal meanings lie close together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.embed.cells.folder import SHIPPED as DEFAULT_TABLE
from deepjoin.embed.cells.table import StaticTable

__all__ = ["DEFAULT_TABLE", "CellEncoder", "StaticTable", "load_cell_encoder"]


class CellEncoder(Protocol):
    """Gives each value one unit vector; close vectors mean the same thing in other words.

    A value the encoder knows nothing of gets a zero row: it matches its equal alone. ``floor``
    is the least cosine that counts in the soft score, ``tau`` the least that counts as a match.
    Two encoders with one ``digest`` give the same vectors.
    """

    name: str
    digest: str
    dimension: int
    floor: float
    tau: float

    def encode(self, values: Sequence[str | None] | pa.Array) -> npt.NDArray[np.float32]:
        """Encode canonical values, one row each."""


def load_cell_encoder(source: str | Path = "default") -> CellEncoder:
    """Load the shipped table, a folder of ``deepjoin.lab.cell_table.make``, or fastText vectors.

    >>> load_cell_encoder().dimension == load_cell_encoder("default").dimension
    True
    """
    if str(source) == "default":
        return StaticTable.load(DEFAULT_TABLE)
    path = Path(source)
    if path.suffix in (".vec", ".bin"):
        from deepjoin.embed.cells.fasttext import load_vectors

        return load_vectors(path)
    return StaticTable.load(path)
