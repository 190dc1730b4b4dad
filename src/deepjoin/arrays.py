"""Arrays and strings on disk as plain ``.npy`` files, appended in one pass, read by mapping."""

from __future__ import annotations

import io
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Integers = npt.NDArray[np.integer[Any]]
Half = npt.NDArray[np.float16]
Float = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
#: Vectors in the precision of a file or in the precision of arithmetic.
Rows = Half | Float
#: Files below this many bytes are read whole; pages between two runs that are read with them.
_SMALL, _GAP = 8 << 20, 4
#: So few elements are read one by one: searches of a few values take half a millisecond.
_FEW = 32
#: Bytes of a header as numpy pads it, so that it can be rewritten when the length is known.
HEADER = 128


class ArrayWriter:
    """Appends to a one-dimensional ``.npy`` file of unknown final length."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        self._file.write(bytes(HEADER))

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
        self._file.write(array_header(self.dtype, (self.length,)))
        self._file.close()


def array_header(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bytes:
    """Return the bytes in front of an array's elements."""
    fields = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def create_array(path: Path, dtype: npt.DTypeLike, *shape: int) -> Array:
    """Make an array of known shape on disk, to be filled in any order."""
    if 0 in shape:  # nothing can be mapped
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    header = array_header(dtype, shape)
    size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
        # Space is reserved before mapping: a disk that fills later would end the process by SIGBUS.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    return np.lib.format.open_memmap(path, "r+")


def load_array(path: Path) -> Array:
    """Map an array; only the pages that are touched are read."""
    # Several times faster than np.load, and opening a lake takes a hundred of these.
    with path.open("rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{path.name} is not an array of .npy version 1.0")
        try:
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except TokenError:  # numpy reads a damaged header as one of Python 2
            raise ValueError(f"{path.name} has a damaged header") from None
        start = file.tell()
        if shape[0] == 0:
            return np.zeros(0, dtype)
        pages = _Pages(file.fileno(), 0, access=mmap.ACCESS_READ)
    pages.start = start
    return np.frombuffer(pages, dtype, shape[0], start)


class _Pages(mmap.mmap):
    """The pages of a file, and which of them have been read ahead."""

    #: Where the elements begin.
    start = 0
    #: Marks pages that were read ahead; None while the system reads ahead by itself.
    ahead: Marks | None = None


def _pages(array: Any) -> _Pages | None:
    """Return the pages that an array is mapped from, if it is."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array if isinstance(array, _Pages) else None


def expect_lookups(array: Any) -> None:
    """Tell the system that elements far apart will be read: it stops reading around each.

    A small array is read whole sooner than page by page, so it stays as it is.
    """
    pages = _pages(array)
    if pages is None or pages.ahead is not None or len(pages) < _SMALL:
        return
    if hasattr(mmap, "MADV_RANDOM"):  # not on Windows
        pages.madvise(mmap.MADV_RANDOM)
        pages.ahead = np.zeros(-(-len(pages) // mmap.PAGESIZE), bool)


def prefetch(array: Any, starts: npt.ArrayLike, lengths: npt.ArrayLike = 1) -> None:
    """Start reading elements that will be needed soon, all at once instead of one by one.

    Does something only where lookups are expected, and once for each page.
    """
    pages = _pages(array)
    if pages is None or pages.ahead is None or 0 < np.size(starts) < np.ndim(starts) * _FEW:
        return
    stride = array.strides[0]
    first = np.atleast_1d(np.asarray(starts, np.int64))
    count = np.broadcast_to(np.asarray(lengths, np.int64), first.shape)
    begin = (pages.start + np.maximum(0, first) * stride) // mmap.PAGESIZE
    end = (pages.start + (first + count) * stride - 1) // mmap.PAGESIZE
    end = np.minimum(end, len(pages.ahead) - 1)
    needed = ranges(begin, np.maximum(0, end - begin + 1))
    new = np.unique(needed[~pages.ahead[needed]])
    if len(new) == 0:
        return
    pages.ahead[new] = True
    # Small gaps are read as well, since a request costs more than a page.
    ends = np.append(np.flatnonzero(np.diff(new) > _GAP), len(new) - 1)
    runs = zip(new[np.append(0, ends[:-1] + 1)].tolist(), new[ends].tolist(), strict=True)
    for one, last in runs:
        size = (last - one + 1) * mmap.PAGESIZE
        pages.madvise(mmap.MADV_WILLNEED, one * mmap.PAGESIZE, size)


def load_strings(folder: Path, name: str) -> pa.LargeStringArray:
    """Map the strings that a `StringsWriter` wrote under this name as an Arrow array."""
    return Strings.load(folder, name).arrow()


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


def places_in_runs(keys: Integers) -> Int:
    """Count through each run of equal keys, from 0.

    >>> places_in_runs(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    sizes = np.diff(np.append(starts, len(keys)))
    return np.arange(len(keys)) - np.repeat(starts, sizes)


def find_sorted(keys: Array, wanted: Array) -> Int:
    """Return where each wanted number is among ascending keys, -1 where it is not.

    >>> find_sorted(np.array([10, 20, 30]), np.array([20, 25])).tolist()
    [1, -1]
    """
    if len(keys) == 0:
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


class Strings(Sequence[str]):
    """An immutable list of strings: one byte array and where each string starts."""

    def __init__(self, offsets: Array, data: Array) -> None:
        # Memory views return plain integers, at half the cost of an array's.
        self._offsets = offsets.data
        self._data = data.data

    @classmethod
    def load(cls, folder: Path, name: str) -> Strings:
        """Map the strings that a `StringsWriter` wrote under this name."""
        return cls(*(load_array(folder / f"{name}.{of}.npy") for of in ("offsets", "bytes")))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def expect_lookups(self) -> None:
        """Expect strings far apart to be read."""
        expect_lookups(self._offsets)
        expect_lookups(self._data)

    def prefetch(self, numbers: Int) -> None:
        """Start reading strings that will be needed soon."""
        if len(numbers) < _FEW or _pages(self._data) is None:
            return
        offsets = np.asarray(self._offsets)
        prefetch(offsets, numbers, 2)
        prefetch(np.asarray(self._data), offsets[numbers], offsets[numbers + 1] - offsets[numbers])

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

    def append(self, strings: Iterable[str]) -> None:
        """Write strings behind the last: an Arrow array without nulls, or any others."""
        is_arrow = isinstance(strings, pa.Array)
        array: Any = strings if is_arrow else pa.array(list(strings), pa.large_string())
        array = array.cast(pa.large_string())
        if len(array) == 0:  # then Arrow may have no buffers
            return
        _, offsets, data = array.buffers()
        starts = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        self._offsets.append(starts[1:] - starts[0] + self._bytes.length)
        if data is not None:
            self._bytes.append(np.frombuffer(data, np.uint8)[starts[0] : starts[-1]])

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
