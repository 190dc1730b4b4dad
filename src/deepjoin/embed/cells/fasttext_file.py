"""Whether a fastText .bin file is whole: its own reader takes torn ones for models, or crashes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from deepjoin.errors import DeepJoinError

_MAGIC = 793712314
#: Magic number, version, twelve settings, one more as a double, three counts of the dictionary.
_HEADER = struct.Struct("<2i12id3i")
_MATRIX = struct.Struct("<2q")
_SUPERVISED = 3


class _Sizes(NamedTuple):
    """What the head of a file says of the matrices at its end."""

    dimension: int
    model: int
    buckets: int
    words: int


def torn(path: Path, why: str) -> DeepJoinError:
    """Build the error for a model that is not what was written."""
    return DeepJoinError(
        f"{path} is no fastText model, or a torn one: {why}. Download or train it again."
    )


def check_binary(path: Path) -> None:
    """Refuse a .bin file whose two matrices are not where its length says they are.

    A supervised model may be compressed, and then says nothing of where its matrices are.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            raise torn(path, "it ends within its head")
        sizes = _sizes(path, head)
        if sizes.model == _SUPERVISED:
            return
        end = size
        for rows in (sizes.words, sizes.words + sizes.buckets):
            start = end - 4 * rows * sizes.dimension - _MATRIX.size
            if start < _HEADER.size:
                raise torn(path, f"{size} bytes are too few for its {sizes.words} words")
            file.seek(start)
            if _MATRIX.unpack(file.read(_MATRIX.size)) != (rows, sizes.dimension):
                raise torn(path, f"its matrices do not end at its {size} bytes")
            end = start - 1  # a byte says whether the matrix behind it is compressed


def _sizes(path: Path, head: bytes) -> _Sizes:
    numbers = _HEADER.unpack(head)
    if numbers[0] != _MAGIC:
        raise torn(path, "it begins otherwise")
    sizes = _Sizes(numbers[2], numbers[9], numbers[10], numbers[16])
    if min(sizes) < 0 or not sizes.dimension:
        raise torn(path, "its sizes are none")
    return sizes
