"""Vectors in PostgreSQL's binary formats: as numbers, or as bits in their place.

The bits are the signs a vector has after a fixed rotation. The more bits of two codes differ, the
larger is the angle between their vectors. Comparing codes finds candidates where a graph does not:
sketches have no neighbourhoods that a search could follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_256

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Float, Half, Int
from deepjoin.embed.vector_build import collapsed, widened

#: The least number of bits of a code.
_BITS = 2_048
#: Rounds of random signs and sums; with one, the first numbers would decide most bits.
_ROUNDS = 2
#: Header and trailer of a binary COPY.
HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), struct.pack(">h", -1)
#: The OID of int4, the element type of the array of columns.
_INT4 = 23
#: Rows sent at a time.
_SENT = 1 << 9
#: Big-endian NumPy types of pgvector's types.
_FORMATS = {"vector": ">f4", "halfvec": ">f2"}


def bits_of(dimension: int) -> int:
    """Return the number of bits of the code of a vector.

    >>> bits_of(1281), bits_of(3000)
    (2048, 4096)
    """
    return max(_BITS, 1 << (dimension - 1).bit_length())


def codes(rows: Half | Float) -> npt.NDArray[np.uint8]:
    """Turn rows into codes, the same on every machine."""
    turned = np.zeros((len(rows), bits_of(rows.shape[1])), np.float32)
    turned[:, : rows.shape[1]] = widened(rows)
    for number in range(_ROUNDS):
        turned *= _signs(turned.shape[1], number)
        _hadamard(turned)
    return np.packbits(turned > 0, axis=1)


@lru_cache(maxsize=8)
def _signs(width: int, number: int) -> Float:
    drawn = shake_256(f"deepjoin {number}".encode()).digest(width // 8)
    return np.unpackbits(np.frombuffer(drawn, np.uint8)).astype(np.float32) * 2 - 1


def _hadamard(rows: Float) -> None:
    """Multiply rows by the Hadamard matrix, in place (fast Walsh-Hadamard transform)."""
    step = 1
    while step < rows.shape[1]:
        pairs = rows.reshape(len(rows), -1, 2, step)
        sums, differences = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        pairs[:, :, 0], pairs[:, :, 1] = sums, differences
        step *= 2


@dataclass(frozen=True)
class EqualRows:
    """The columns of a segment grouped by equal vectors, each group by its lowest column."""

    members: Int
    #: Where the members of each group start, and the end of the last.
    offsets: Int

    @classmethod
    def of(cls, rows: Half) -> EqualRows:
        """Group the rows of a segment."""
        _, offsets, members = collapsed(rows)
        return cls(members, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def share(self, shard: int, shards: int) -> Int:
        """Select the groups of one of several servers, by their first column."""
        lowest = self.members[self.offsets[:-1]]
        return np.flatnonzero(lowest % shards == shard)


def copied(rows: Half, groups: EqualRows, chosen: Int, kind: str) -> Iterator[tuple[int, bytes]]:
    """Encode groups as rows (first, members, v) of a COPY; yield blocks with their row counts."""
    stored: Array
    width, bits = rows.shape[1], bits_of(rows.shape[1])
    for start in range(0, len(chosen), _SENT):
        numbers = chosen[start : start + _SENT]
        begins, ends = groups.offsets[numbers].tolist(), groups.offsets[numbers + 1].tolist()
        some = rows[groups.members[begins]]
        # Each value starts with its length in bytes and the header of its type.
        if kind == "bit":
            head, stored = struct.pack(">ii", 4 + bits // 8, bits), codes(some)
        else:
            stored = some.astype(_FORMATS[kind])
            head = struct.pack(">ihh", 4 + stored.itemsize * width, width, 0)
        parts = []
        for row, begin, end in zip(stored, begins, ends, strict=True):
            parts += [_row_start(groups.members[begin:end]), head, row.tobytes()]
        yield len(numbers), b"".join(parts)


def _row_start(columns: Int) -> bytes:
    """Encode the first column of a group, and the array of all if there are others."""
    first = struct.pack(">hii", 3, 4, int(columns[0]))
    if len(columns) == 1:
        return first + struct.pack(">i", -1)
    numbers = np.full((len(columns), 2), 4, ">i4")
    numbers[:, 1] = columns
    head = struct.pack(">iiiiii", 20 + numbers.nbytes, 1, 0, _INT4, len(columns), 1)
    return first + head + numbers.tobytes()


class VectorParameter:
    """One vector as a query parameter of type vector."""

    def __init__(self, numbers: Float) -> None:
        self.bytes = struct.pack(">hh", len(numbers), 0) + numbers.astype(">f4").tobytes()


class BitCode:
    """The code of one vector as a query parameter of type bit."""

    def __init__(self, vector: Float) -> None:
        self.bytes = struct.pack(">i", bits_of(len(vector))) + codes(vector[None])[0].tobytes()
