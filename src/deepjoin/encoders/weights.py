"""Weights stored small: codes of 8 or 10 bits with one scale a block, or as they are.

Codes times scales give a matrix back. The two extra bits are kept apart, four to a byte. Blocks
run along the rows, the side over which a product sums up.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.errors import DeepJoinError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
#: Numbers that share a scale; with fewer, scales weigh more than they bring.
BLOCK = 32
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)


def compressed(weights: Mapping[str, Floats], coarse: set[str], fine: set[str]) -> dict[str, Array]:
    """Replace the named matrices by their codes, of 8 or of 10 bits."""
    stored: dict[str, Array] = {}
    for name, array in weights.items():
        if name in coarse | fine:
            parts = codes_of(array, extra=name in fine)
            stored |= {f"{name}.{part}": value for part, value in parts.items()}
        else:
            stored[name] = array
    return stored


def codes_of(matrix: Floats, extra: bool) -> dict[str, Array]:
    """Round a matrix to 8 bits, or 10 with the extra ones, each block in steps of its own.

    >>> parts = codes_of(np.eye(2, 64, dtype=np.float32), extra=True)
    >>> {name: part.shape for name, part in parts.items()}
    {'scales': (2, 2, 1), 'codes': (2, 2, 32), 'extra': (2, 2, 8)}
    """
    largest = 511 if extra else 127
    blocks = matrix.reshape(len(matrix), -1, BLOCK)
    scales = (np.abs(blocks).max(axis=2, keepdims=True) / largest).astype(np.float16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    codes = np.clip(np.rint(blocks / steps), -largest, largest).astype(np.int16)
    if not extra:
        return {"scales": scales, "codes": codes.astype(np.int8)}
    low = (codes & 3).astype(np.uint8).reshape(*codes.shape[:2], -1, 4)
    packed = np.bitwise_or.reduce(low << _SHIFTS, axis=3)
    return {"scales": scales, "codes": (codes >> 2).astype(np.int8), "extra": packed}


def restored(parts: Mapping[str, Array]) -> Floats:
    """Undo `codes_of`, up to the rounding."""
    codes = parts["codes"].astype(np.float32)
    if "extra" in parts:
        low = (parts["extra"][..., None] >> _SHIFTS) & 3
        codes = 4 * codes + low.reshape(codes.shape)
    matrix: Floats = (codes * parts["scales"].astype(np.float32)).reshape(len(codes), -1)
    return matrix


def grouped(stored: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Put the parts of each matrix together; what is stored as it is has the part ''."""
    matrices: dict[str, dict[str, Array]] = {}
    for name, array in stored.items():
        matrix, _, part = name.rpartition(".")
        if part in ("scales", "codes", "extra"):
            matrices.setdefault(matrix, {})[part] = array
        else:
            matrices[name] = {"": array}
    return matrices


def read_weights(path: Path) -> dict[str, Array]:
    """Read what `write_weights` wrote."""
    try:
        with np.load(path) as stored:
            return dict(stored)
    except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
        raise DeepJoinError(
            f"The weights {path} cannot be read: {error}. Copy the model folder again."
        ) from None


def write_weights(path: Path, weights: Mapping[str, Array]) -> None:
    """Write arrays to one file, without pickles; equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in weights.items():
            # A fixed date keeps the file, and so the encoder's digest, the same each time.
            member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
