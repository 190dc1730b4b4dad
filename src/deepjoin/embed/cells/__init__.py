"""Cell encoders: a unit vector for every distinct value; similar meanings get close vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from deepjoin.arrays import Float, Marks
from deepjoin.embed.cells.folder import SHIPPED as DEFAULT_TABLE
from deepjoin.embed.cells.table import StaticTable
from deepjoin.embed.cells.tokens import character_counts
from deepjoin.embed.cells.words import KnownWords

__all__ = [
    "DEFAULT_TABLE",
    "CellEncoder",
    "StaticTable",
    "encode_many",
    "has_meaning",
    "load_cell_encoder",
    "match_chance",
]

#: The logistic curve is this many units below its middle at the floor: a chance of .05.
_STEEPNESS = 3.0
#: Least digits and characters of a code; a value longer than this is a text.
_CODE_DIGITS, _CODE_LENGTH, LONGEST_VALUE = 2, 5, 120


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


def has_meaning(values: pa.Array) -> Marks:
    """Mark the values that a lake compares by meaning; all others match equal ones alone.

    Numbers, dates and times have no letters, or few beside their digits. A word with two digits or
    more is a code, unless it is short: other codes are not similar to it. A long text is not a key.

    >>> has_meaning(pa.array(["2020-03-01", "3 sep 2020 08:43", "sku-10023", "10th"])).tolist()
    [False, False, False, True]
    """
    lengths, letters, digits, spaces = character_counts(values)
    is_code = (spaces == 0) & (digits >= _CODE_DIGITS) & (lengths >= _CODE_LENGTH)
    meant: Marks = (3 * letters > digits) & ~is_code & (lengths <= LONGEST_VALUE)
    return meant


def encode_many(encoder: CellEncoder, memory: int) -> Callable[[pa.Array], Float]:
    """Return a function that encodes the values of a lake, block after block.

    Values without meaning get zeros, and words that come again cost memory only. Threads may
    share the function.
    """
    encode: Callable[[pa.Array], Float] = encoder.encode
    if isinstance(encoder, StaticTable):
        each = 4 * encoder.dimension + KnownWords.BYTES
        most = max(1, memory // 4 // each)
        encode = partial(encoder.encode, known=KnownWords(most, encoder.dimension))

    def encoded(values: pa.Array) -> Float:
        chosen = has_meaning(values)
        if chosen.all():
            return encode(values)
        rows = np.zeros((len(values), encoder.dimension), np.float32)
        rows[chosen] = encode(values.filter(pa.array(chosen)))
        return rows

    return encoded


def match_chance(cosines: Float, floor: float, tau: float) -> Float:
    """Turn cosines into chances that two cells mean the same: one half at tau, 0 below floor.

    >>> match_chance(np.array([0.5, 0.65, 0.9], np.float32), 0.55, 0.65).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    curve = 1 / (1 + np.exp(-_STEEPNESS * (cosines - tau) / (tau - floor)))
    return np.where(cosines >= floor, curve, 0).astype(np.float32)
