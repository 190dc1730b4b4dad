"""Rows of vectors as PostgreSQL copies them: equal ones as one, in its binary format."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.embed.vector_index.build import collapsed
from deepjoin.engines.postgres.codes import bits_of, codes

Half = npt.NDArray[np.float16]
Int = npt.NDArray[np.int64]

#: What the binary format begins and ends with.
HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), struct.pack(">h", -1)
#: The type of the numbers in a list of columns: int4.
_INT4 = 23
#: Rows sent at a time.
_SENT = 1 << 9
_KINDS = {"vector": ">f4", "halfvec": ">f2"}


@dataclass(frozen=True)
class Groups:
    """The columns of a segment, those with equal vectors together, by their lowest number."""

    members: Int
    #: Where the members of each group begin, and where the last ones end.
    offsets: Int

    @classmethod
    def of(cls, rows: Half) -> Groups:
        """Find the columns whose vectors are equal."""
        _, offsets, members = collapsed(rows)
        return cls(members, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def share(self, shard: int, shards: int) -> Int:
        """Choose the groups of one of several servers, by the number of their first column."""
        lowest = self.members[self.offsets[:-1]]
        return np.flatnonzero(lowest % shards == shard)


def copied(rows: Half, groups: Groups, chosen: Int, kind: str) -> Iterator[tuple[int, bytes]]:
    """Write some groups as rows (first, members, v); yields how many, and their bytes."""
    for start in range(0, len(chosen), _SENT):
        numbers = chosen[start : start + _SENT]
        begins, ends = groups.offsets[numbers].tolist(), groups.offsets[numbers + 1].tolist()
        head, stored = _written(rows[groups.members[begins]], kind)
        parts = []
        for row, begin, end in zip(stored, begins, ends, strict=True):
            parts += [_listed(groups.members[begin:end]), head, row.tobytes()]
        yield len(numbers), b"".join(parts)


def _written(rows: Half, kind: str) -> tuple[bytes, npt.NDArray[Any]]:
    """Give what comes before each vector or code, and their bytes."""
    width = rows.shape[1]
    if kind == "bit":
        return struct.pack(">ii", 4 + bits_of(width) // 8, bits_of(width)), codes(rows)
    stored = rows.astype(_KINDS[kind])
    return struct.pack(">ihh", 4 + stored.itemsize * width, width, 0), stored


def _listed(columns: Int) -> bytes:
    """Write the beginning of a row: its first column, and all of them if there are others."""
    first = struct.pack(">hii", 3, 4, int(columns[0]))
    if len(columns) == 1:
        return first + struct.pack(">i", -1)
    numbers = np.full((len(columns), 2), 4, ">i4")
    numbers[:, 1] = columns
    head = struct.pack(">iiiiii", 20 + numbers.nbytes, 1, 0, _INT4, len(columns), 1)
    return first + head + numbers.tobytes()


class Vector:
    """One vector as a parameter of the type vector."""

    def __init__(self, numbers: npt.NDArray[np.float32]) -> None:
        self.bytes = struct.pack(">hh", len(numbers), 0) + numbers.astype(">f4").tobytes()
