"""Vectors as bits: the signs they have after a fixed rotation.

The more bits of two codes differ, the larger is the angle between their vectors. Comparing codes
finds candidates where a graph does not: vectors of which like ones do not lie together, as
sketches are, have no neighbourhoods that a search could follow.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import shake_256

import numpy as np
import numpy.typing as npt

from deepjoin.embed.vector_index.build import widened

Float = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

#: The least number of bits.
_BITS = 2_048
#: Signs and sums that follow each other; one would leave it to the first numbers what comes out.
_ROUNDS = 2


def bits_of(dimension: int) -> int:
    """Return how many bits stand for a vector.

    >>> bits_of(1281), bits_of(3000)
    (2048, 4096)
    """
    return max(_BITS, 1 << (dimension - 1).bit_length())


def codes(rows: npt.NDArray[np.float16] | Float) -> Bytes:
    """Turn rows into codes, the same everywhere."""
    turned = np.zeros((len(rows), bits_of(rows.shape[1])), np.float32)
    turned[:, : rows.shape[1]] = widened(rows)
    for number in range(_ROUNDS):
        turned *= _signs(turned.shape[1], number)
        _add_up(turned)
    return np.packbits(turned > 0, axis=1)


@lru_cache(maxsize=8)
def _signs(width: int, number: int) -> Float:
    drawn = shake_256(f"deepjoin {number}".encode()).digest(width // 8)
    return np.unpackbits(np.frombuffer(drawn, np.uint8)).astype(np.float32) * 2 - 1


def _add_up(rows: Float) -> None:
    """Multiply rows with the Hadamard matrix, by sums and differences."""
    step = 1
    while step < rows.shape[1]:
        pairs = rows.reshape(len(rows), -1, 2, step)
        sums, differences = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        pairs[:, :, 0], pairs[:, :, 1] = sums, differences
        step *= 2


class Code:
    """One code as a parameter of the type bit."""

    def __init__(self, vector: Float) -> None:
        self.bytes = struct.pack(">i", bits_of(len(vector))) + codes(vector[None])[0].tobytes()
