"""The file of a model's weights: matrices as 8-bit codes with scales, vectors as floats.

The table of words has a scale for each block of a row, every other matrix one for each row.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import Array, Float, Half
from deepjoin.errors import DeepJoinError

#: Numbers that share a scale; smaller blocks cost more space than the precision is worth.
BLOCK = 32
_LARGEST = 127
#: Upper bound on the length of an array's .npy header.
_HEADER = 512


def block_codes(matrix: Float) -> tuple[npt.NDArray[np.int8], Half]:
    """Round a matrix to 8-bit codes, with one scale for each block.

    >>> codes, scales = block_codes(np.eye(2, 64, dtype=np.float32))
    >>> codes.shape, scales.shape
    ((2, 2, 32), (2, 2, 1))
    """
    blocks = matrix.reshape(len(matrix), -1, BLOCK)
    scales = (np.abs(blocks).max(axis=2, keepdims=True) / _LARGEST).astype(np.float16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    codes = np.clip(np.rint(blocks / steps), -_LARGEST, _LARGEST)
    return codes.astype(np.int8), scales


def read_weights(content: bytes, path: Path) -> dict[str, Array]:
    """Return views of the arrays in a file that `write_weights` wrote, without copying."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
        return {
            member.filename.removesuffix(".npy"): _array(content, member.header_offset)
            for member in members
        }
    except (ValueError, zipfile.BadZipFile, struct.error) as error:
        raise DeepJoinError(
            f"The weights {path} cannot be read: {error}. Copy the model folder again."
        ) from None


def _array(content: bytes, at: int) -> Array:
    """Return a view of the zip member whose local header is at ``at``."""
    # The header has 30 bytes, then the name and the extra field, whose lengths are at byte 26.
    name, extra = struct.unpack_from("<HH", content, at + 26)
    start = at + 30 + name + extra
    file = io.BytesIO(content[start : start + _HEADER])
    np.lib.format.read_magic(file)
    shape, is_fortran, kind = np.lib.format.read_array_header_1_0(file)
    flat = np.frombuffer(content, kind, math.prod(shape), start + file.tell())
    # Copies only arrays that are not aligned in memory: the few floats.
    return np.require(flat, requirements="A").reshape(shape, order="F" if is_fortran else "C")


def write_weights(path: Path, weights: Mapping[str, Array]) -> None:
    """Write arrays to one uncompressed zip file; equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in weights.items():
            # A fixed date keeps the file, and so the encoder's digest, reproducible.
            member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
