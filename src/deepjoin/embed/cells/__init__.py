"""Cell encoders: a unit vector for every distinct value; similar meanings get close vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Float
from deepjoin.embed.cells.folder import SHIPPED as DEFAULT_TABLE
from deepjoin.embed.cells.table import StaticTable

__all__ = ["DEFAULT_TABLE", "CellEncoder", "StaticTable", "load_cell_encoder", "match_chance"]

#: The logistic curve is this many units below its middle at the floor: a chance of .05.
_STEEPNESS = 3.0


class CellEncoder(Protocol):
    """Encodes values as unit vectors; values with close vectors mean the same.

    A value unknown to the encoder gets a zero row and matches only an equal value. ``floor`` is
    the least cosine that counts in the soft score, ``tau`` the least that counts as a match.
    Encoders with the same ``digest`` give the same vectors.
    """

    name: str
    digest: str
    dimension: int
    floor: float
    tau: float

    def encode(self, values: Sequence[str | None] | pa.Array) -> Float:
        """Encode canonical values, one row each."""


def load_cell_encoder(source: str | Path = "default") -> CellEncoder:
    """Load the shipped table, a folder made by ``deepjoin.lab.cell_table.make``, or fastText.

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


def match_chance(cosines: Float, floor: float, tau: float) -> Float:
    """Turn cosines into chances that two cells mean the same: one half at tau, 0 below floor.

    >>> match_chance(np.array([0.5, 0.65, 0.9], np.float32), 0.55, 0.65).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    curve = 1 / (1 + np.exp(-_STEEPNESS * (cosines - tau) / (tau - floor)))
    return np.where(cosines >= floor, curve, 0).astype(np.float32)
