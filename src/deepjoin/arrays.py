"""Arrays and strings on disk as plain ``.npy`` files, appended in one pass, read by mapping."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]
#: Room for any one-dimensional header, so that it can be rewritten when the length is known.
_HEADER = 128


class ArrayWriter:
    """Appends to a one-dimensional ``.npy`` file of unknown final length."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        self._file.write(bytes(_HEADER))

    def append(self, values: npt.ArrayLike) -> None:
        """Write more elements behind the last."""
        array = np.ascontiguousarray(values, self.dtype)
        self._file.write(array.data)
        self.length += len(array)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the length into the header and close the file."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._file.write(_header(self.dtype, self.length))
        self._file.close()


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({length},), }}"
    prefix = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
    return prefix + text.ljust(_HEADER - 11).encode() + b"\n"


def create_array(path: Path, dtype: npt.DTypeLike, length: int) -> Array:
    """Make an array of known length on disk, to be filled in any order."""
    if length == 0:  # nothing can be mapped
        np.save(path, np.zeros(0, dtype))
        return np.zeros(0, dtype)
    array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), (length,))
    # Space is reserved now: a mapped file on a full disk would end the process by a signal.
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def load_array(path: Path) -> Array:
    """Map an array; only the pages that are touched are read."""
    # Several times faster than np.load, and opening a lake takes a hundred of these.
    with path.open("rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{path.name} is not an array of ours")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        start = file.tell()
        if shape[0] == 0:
            return np.zeros(0, dtype)
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(pages, dtype, shape[0], start)


def load_strings(folder: Path, name: str) -> pa.LargeStringArray:
    """Map the strings that a `StringsWriter` wrote under this name as an Arrow array."""
    offsets, data = (load_array(folder / f"{name}.{of}.npy") for of in ("offsets", "bytes"))
    return pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
    )


def blocks(work: Int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a list into runs of at most ``most`` work, and one element more.

    >>> list(blocks(np.array([1, 1, 5, 1]), 2))
    [(0, 2), (2, 3), (3, 4)]
    """
    before = np.cumsum(work) - work
    starts = np.flatnonzero(np.diff(before // most, prepend=-1))
    return pairwise([*starts.tolist(), len(work)])


def ranges(starts: Int, lengths: Int) -> Int:
    """Concatenate ranges: from each start, as many numbers as its length.

    >>> ranges(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


class Strings(Sequence[str]):
    """An immutable list of strings: one byte array and where each string starts."""

    def __init__(self, offsets: Array, data: Array) -> None:
        # Memory views hand out plain integers, at half the cost of an array's.
        self._offsets = offsets.data
        self._data = data.data

    @classmethod
    def load(cls, folder: Path, name: str) -> Strings:
        """Map the strings that a `StringsWriter` wrote under this name."""
        return cls(
            load_array(folder / f"{name}.offsets.npy"), load_array(folder / f"{name}.bytes.npy")
        )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def arrow(self) -> pa.LargeStringArray:
        """Give the same strings, not copied, as an Arrow array."""
        buffers = pa.py_buffer(self._offsets), pa.py_buffer(self._data)
        return pa.LargeStringArray.from_buffers(len(self), *buffers)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[at] for at in range(*i.indices(len(self)))]
        return str(self._data[self._offsets[i] : self._offsets[i + 1]], "utf-8")


class StringsWriter:
    """Appends strings; close it to make them readable by `Strings.load`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = ArrayWriter(folder / f"{name}.bytes.npy", np.uint8)
        self._offsets = ArrayWriter(folder / f"{name}.offsets.npy", np.int64)
        self._offsets.append([0])

    def append(self, strings: pa.Array) -> None:
        """Write an Arrow string array without nulls behind the last string."""
        strings = strings.cast(pa.large_string())
        _, offsets, data = strings.buffers()
        starts = np.frombuffer(offsets, np.int64)[
            strings.offset : strings.offset + len(strings) + 1
        ]
        if len(strings) == 0:
            return
        self._offsets.append(starts[1:] - starts[0] + self._bytes.length)
        if data is not None:
            self._bytes.append(np.frombuffer(data, np.uint8)[starts[0] : starts[-1]])

    def extend(self, strings: Iterable[str]) -> None:
        """Write strings behind the last: an Arrow array, or any others."""
        if not isinstance(strings, pa.Array):
            strings = pa.array(list(strings), pa.large_string())
        self.append(strings)

    @property
    def length(self) -> int:
        """How many strings have been written."""
        return self._offsets.length - 1

    def __enter__(self) -> StringsWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both files."""
        self._bytes.close()
        self._offsets.close()
