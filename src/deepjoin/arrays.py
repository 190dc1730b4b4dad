"""Arrays and strings on disk as plain ``.npy`` files, appended in one pass, read by mapping."""

from __future__ import annotations

import io
import math
import mmap
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.checksums import BLOCK, BlockGuard, sealed_file, verify_file

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
#: Numbers made narrower at a time; texts of up to _NARROW_TEXTS bytes get narrow offsets, which
#: Arrow takes as a copy.
_AT_ONCE, _NARROW_TEXTS = 1 << 20, 1 << 30
_SHIFT = BLOCK.bit_length() - 1
#: Offsets that share one in full, as a power of two, and how much more the others are at most.
_OFFSETS, _SHORT = 6, (1 << 16) - 1
#: Bytes of a header as numpy pads it, so that it can be rewritten when the length is known.
HEADER = 128
_HEADER_PATTERN = re.compile(
    rb"\x93NUMPY\x01\x00v\x00\{'descr': '([^']+)', 'fortran_order': False, "
    rb"'shape': \((\d+), ?(\d*)\), \} *\n"
)
#: What files are made of, as headers name it.
_DTYPES = {
    np.dtype(kind).str.encode(): np.dtype(kind)
    for kind in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "?")
}


class MappedFiles(ABC):
    """Reads what it is asked for from mapped files."""

    @abstractmethod
    def expect_lookups(self) -> None:
        """Expect elements far apart to be read."""

    @abstractmethod
    def prefetch(self, numbers: Any, lengths: Any = 1) -> None:
        """Start reading runs of elements that will be needed soon."""

    @abstractmethod
    def settle(self, whole: bool) -> None:
        """Stop verifying files if all is verified; ``whole`` verifies it."""


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


def narrow(path: Path) -> None:
    """Write an array of whole numbers again, with as few bytes each as the largest needs."""
    wide = np.load(path, mmap_mode="r") if path.stat().st_size > HEADER else np.zeros(0, np.uint8)
    kind = np.min_scalar_type(int(wide.max(initial=0)))
    if kind.itemsize >= wide.dtype.itemsize:
        return
    beside = path.with_name(f"{path.name}.narrow")
    with ArrayWriter(beside, kind) as writer:
        for start in range(0, len(wide), _AT_ONCE):
            writer.append(wide[start : start + _AT_ONCE])
    del wide
    beside.replace(path)


def load_array(path: Path) -> Array:
    """Map an array; only the pages that are touched are read, and verified if there are checksums.

    Then it is a `StoredArray`, which can do what a read-only array can.
    """
    # Several times faster than np.load, and opening a lake takes a hundred of these.
    with path.open("rb") as file:
        # As numpy writes it, and no other: parsing what it allows takes most of the time.
        header = _HEADER_PATTERN.fullmatch(file.read(HEADER))
        found = os.fstat(file.fileno())
        shape = tuple(int(size) for size in header.group(2, 3) if size) if header else ()
        dtype, start, count = _DTYPES.get(header[1]) if header else None, HEADER, math.prod(shape)
        # It is verified with the first element; until then, it agrees with the size.
        if dtype is None or start + count * dtype.itemsize != found.st_size:
            verify_file(path)
            raise ValueError(f"{path.name} is not a plain array")
        if count == 0:  # nothing can be mapped
            verify_file(path)
            return np.zeros(shape, dtype)
        pages = _Pages(file.fileno(), 0, access=mmap.ACCESS_READ)
        pages.start = start
        array = np.frombuffer(pages, dtype, count, start).reshape(shape)
        sealed = sealed_file(path)
        if sealed is None:
            return array
        guard = sealed.checksums.guard(sealed.name, found, pages)
        return cast(Array, StoredArray(array, guard, start))


class StoredArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A mapped array whose blocks are verified when they are first read.

    Reading elements verifies their blocks, everything else that needs the content verifies all:
    whatever numpy, Arrow and our own code make of it, they never see a block that is damaged.
    """

    __slots__ = ("_start", "_step", "dtype", "guard", "mapped", "shape", "strides")

    def __init__(self, mapped: Array, guard: BlockGuard, start: int) -> None:
        self.mapped, self.guard, self._start = mapped, guard, start
        self.dtype, self.shape, self.strides = mapped.dtype, mapped.shape, mapped.strides
        #: Bytes from one element or row to the next.
        self._step = mapped.strides[0]

    def __len__(self) -> int:
        return len(self.mapped)

    @property
    def ndim(self) -> int:
        """How many dimensions the array has."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> Any:
        if self.guard.left:
            if type(key) is int and key >= 0:  # most reads; a row may reach into the next block
                first = self._start + key * self._step
                seen = self.guard.seen[first >> _SHIFT : (first + self._step - 1 >> _SHIFT) + 1]
                if 0 in seen:
                    self._verify(key)
            else:
                self._verify(key)
        return self.mapped[key]

    def _verify(self, key: Any) -> None:
        """Verify what a key reads."""
        if isinstance(key, (int, np.integer)):
            first = self._start + (key if key >= 0 else key + len(self)) * self._step
            self.guard.span(first, first + self._step - 1)
        elif isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                self.guard.whole()
            elif start < stop:
                self.guard.span(
                    self._start + start * self._step, self._start + stop * self._step - 1
                )
        elif isinstance(key, np.ndarray) and key.dtype.kind in "iub" and key.ndim:
            rows = np.flatnonzero(key) if key.dtype.kind == "b" else key.ravel()
            self.verify_rows(rows)
        else:
            self.guard.whole()

    def verify_rows(self, rows: Array) -> None:
        """Verify elements by their numbers."""
        if len(rows) == 0:
            return
        if rows.min() < 0 or self._step > BLOCK:
            self.guard.whole()
            return
        if not (self._start % self._step or BLOCK % self._step):  # each row is within a block
            places = np.add(rows, self._start // self._step, dtype=np.int64)
            places >>= _SHIFT - self._step.bit_length() + 1
            self.guard.blocks(places)
            return
        places = rows.astype(np.int64)
        places *= self._step
        places += self._start
        self.guard.blocks(places >> _SHIFT)
        places += self._step - 1
        self.guard.blocks(places >> _SHIFT)

    def part(self, start: int, stop: int) -> StoredArray:
        """Return some of the elements, which are verified when they are read."""
        return StoredArray(self.mapped[start:stop], self.guard, self._start + start * self._step)

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> Any:
        """Copy some elements or rows."""
        if self.guard.left:
            self._verify(np.asarray(indices) if axis == 0 or self.ndim == 1 else None)
        return self.mapped.take(indices, axis=axis, **options)

    def searchsorted(self, wanted: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Find places in ascending numbers; only those beside each place are verified."""
        places = self.mapped.searchsorted(wanted, side, sorter)
        if not self.guard.left or np.size(places) == 0:
            return places
        # Between these two no other place is possible, however the search came there.
        before, behind = np.maximum(places - 1, 0), np.minimum(places, len(self) - 1)
        low, high = self[np.atleast_1d(before)], self[np.atleast_1d(behind)]
        left = side == "left"
        below = (low < wanted) if left else (low <= wanted)
        above = (high >= wanted) if left else (high > wanted)
        if not np.all((below | (places == 0)) & (above | (places == len(self)))):
            self.guard.whole()
            return self.mapped.searchsorted(wanted, side, sorter)
        return places

    def reshape(self, *shape: int) -> StoredArray:
        """Return the same elements in another shape."""
        return StoredArray(self.mapped.reshape(*shape), self.guard, self._start)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        self.guard.whole()
        return np.array(self.mapped, dtype) if copy else np.asarray(self.mapped, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        plain = (np.asarray(one) if isinstance(one, StoredArray) else one for one in given)
        return getattr(ufunc, method)(*plain, **options)

    def __arrow_array__(self, type: Any = None) -> pa.Array:
        return pa.array(np.asarray(self), type)

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def settle(holder: object, whole: bool = False) -> None:
    """Replace the arrays of an object that are verified by plain ones, which are faster.

    ``whole`` verifies all of them first.
    """
    for name, one in list(vars(holder).items()):
        vars(holder)[name] = settled(one, whole)


def settled(one: Any, whole: bool) -> Any:
    """Return the plain array of one that is verified; strings and tuples likewise."""
    if isinstance(one, StoredArray):
        if whole:
            one.guard.whole()
            pages = _pages(one)
            if pages is not None and pages.ahead is not None:
                pages.ahead[:], pages.is_there = True, True
        return one if one.guard.left else one.mapped
    if isinstance(one, MappedFiles):
        one.settle(whole)
    elif isinstance(one, tuple) and any(isinstance(part, StoredArray) for part in one):
        parts = [settled(part, whole) for part in one]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one


class _Pages(mmap.mmap):
    """The pages of a file, and which of them have been read ahead."""

    #: Where the elements begin.
    start = 0
    #: Marks pages that were read ahead; None while the system reads ahead by itself.
    ahead: Marks | None = None
    #: Whether all of them were.
    is_there = False


def _pages(array: Any) -> _Pages | None:
    """Return the pages that an array is mapped from, if it is."""
    if isinstance(array, StoredArray):
        array = array.mapped
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array if isinstance(array, _Pages) else None


def expect_lookups(array: Any) -> None:
    """Tell the system that elements far apart will be read: it stops reading around each.

    A small array is read whole sooner than page by page, so it stays as it is.
    """
    if isinstance(array, MappedFiles):
        array.expect_lookups()
        return
    pages = _pages(array)
    if pages is None or pages.ahead is not None or len(pages) < _SMALL:
        return
    if hasattr(mmap, "MADV_RANDOM"):  # not on Windows
        pages.madvise(mmap.MADV_RANDOM)
        pages.ahead = np.zeros(-(-len(pages) // mmap.PAGESIZE), bool)


def all_are_there(array: Any) -> bool:
    """Check whether nothing of an array needs to be requested before it is read."""
    pages = _pages(array)
    return pages is None or pages.ahead is None or pages.is_there


def prefetch(array: Any, starts: npt.ArrayLike, lengths: npt.ArrayLike = 1) -> None:
    """Start reading elements that will be needed soon, all at once instead of one by one.

    Does something only where lookups are expected, and once for each page.
    """
    if isinstance(array, MappedFiles):
        array.prefetch(starts, lengths)
        return
    pages = _pages(array)
    if pages is None or pages.ahead is None or pages.is_there:
        return
    if 0 < np.size(starts) < np.ndim(starts) * _FEW:
        return
    stride = array.strides[0]
    first = np.atleast_1d(np.asarray(starts, np.int64))
    begin = (pages.start + np.maximum(0, first) * stride) // mmap.PAGESIZE
    in_one_page = np.ndim(lengths) == 0 and lengths == 1
    if in_one_page and not (pages.start % stride or mmap.PAGESIZE % stride):
        end = begin
    else:
        count = np.broadcast_to(np.asarray(lengths, np.int64), first.shape)
        end = (pages.start + (first + count) * stride - 1) // mmap.PAGESIZE
        end = np.minimum(end, len(pages.ahead) - 1)
    # In a process that has answered queries, nearly all pages are there.
    are_short = end is begin or (end - begin).max(initial=0) <= 1
    if are_short and pages.ahead[begin].all() and (end is begin or pages.ahead[end].all()):
        return
    needed = ranges(begin, np.maximum(0, end - begin + 1))
    new = distinct(needed[~pages.ahead[needed]])
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


def distinct(numbers: Any) -> Any:
    """Return the different numbers of an array, ascending.

    As `np.unique`, which hashes them: that takes up to a hundred times as long as sorting.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found = np.sort(numbers, axis=None)
    new = np.ones(len(found), bool)
    np.not_equal(found[1:], found[:-1], out=new[1:])
    return found[new]


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


def find_in_blocks(numbers: Any, block: Int, size: int, wanted: Array, side: Any) -> Int:
    """Find places in ascending numbers, in the block of each or at its end.

    >>> numbers = np.array([1, 1, 3, 7])
    >>> find_in_blocks(numbers, np.array([0, 1]), 2, np.array([2, 7]), "left").tolist()
    [2, 3]
    """
    places = block[:, None] * size + np.arange(size)
    inside = places < len(numbers)
    held = numbers[np.where(inside, places, 0)]
    before = held < wanted[:, None] if side == "left" else held <= wanted[:, None]
    return np.asarray(block * size + (before & inside).sum(axis=1))


class Offsets(MappedFiles):
    """Ascending numbers, mapped: each as 16 bits more than the first of its 64, which is in full.

    It reads like an array of 64 bits.
    """

    dtype = np.dtype(np.int64)

    def __init__(self, bases: Any, more: Any) -> None:
        self._bases, self._more = bases, more

    @staticmethod
    def bases_of(path: Path) -> Path:
        """Return where the numbers in full are, beside the others."""
        return path.with_name(f"{path.stem}.bases.npy")

    def __len__(self) -> int:
        return len(self._more)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int or isinstance(key, np.integer):
            at = int(key if key >= 0 else key + len(self))
            return int(self._bases[at >> _OFFSETS]) + int(self._more[at])
        if isinstance(key, slice):
            key = np.arange(*key.indices(len(self)))
        elif not isinstance(key, np.ndarray):
            key = np.asarray(key)
        if key.dtype == bool:
            key = np.flatnonzero(key)
        if key.size and key.min() < 0:
            key = np.where(key < 0, key + len(self), key)
        found = self._bases[key >> _OFFSETS].astype(np.int64)
        found += self._more[key]
        return found

    def spans(self) -> Callable[[int], tuple[int, int]]:
        """Return a function that reads a number and the next one; it verifies nothing."""
        # Memory views return plain integers, at a third of the cost of an array's.
        bases, more = (getattr(one, "mapped", one).data for one in (self._bases, self._more))

        def span(at: int) -> tuple[int, int]:
            stop = at + 1
            return bases[at >> _OFFSETS] + more[at], bases[stop >> _OFFSETS] + more[stop]

        return span

    def searchsorted(self, wanted: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Find places as `np.searchsorted` calls it, which would read all."""
        asked = np.atleast_1d(np.asarray(wanted, np.int64))
        # The last block that begins before a place may go on beyond it; none before it does.
        block = np.maximum(self._bases.searchsorted(asked, side) - 1, 0)
        found = find_in_blocks(self, block, 1 << _OFFSETS, asked, side)
        return found if np.ndim(wanted) else found[0]

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> Array:
        """Copy some numbers: `np.take` would read all."""
        return np.asarray(self[indices])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def expect_lookups(self) -> None:
        """Expect numbers far apart to be read."""
        for array in (self._bases, self._more):
            expect_lookups(array)

    def prefetch(self, numbers: Any, lengths: Any = 1) -> None:
        """Start reading runs of numbers that will be needed soon."""
        numbers = np.asarray(numbers, np.int64)
        prefetch(self._more, numbers, lengths)
        prefetch(self._bases, numbers >> _OFFSETS, (np.asarray(lengths) >> _OFFSETS) + 2)

    def settle(self, whole: bool) -> None:
        """Stop verifying files that are verified; ``whole`` verifies them."""
        self._bases, self._more = settled(self._bases, whole), settled(self._more, whole)

    @property
    def is_verified(self) -> bool:
        """Whether nothing is left to verify."""
        return not any(isinstance(one, StoredArray) for one in (self._bases, self._more))


def _spans(offsets: Any) -> Callable[[int], tuple[int, int]]:
    """Return a function that reads an offset and the next one, as plain integers."""
    if isinstance(offsets, Offsets):
        return offsets.spans()
    plain = getattr(offsets, "mapped", offsets).data
    return lambda at: (plain[at], plain[at + 1])


def load_offsets(path: Path) -> Any:
    """Map offsets as `shorten` wrote them, or an earlier version."""
    bases = Offsets.bases_of(path)
    more = load_array(path)
    return Offsets(load_array(bases), more) if bases.exists() else more


def shorten(path: Path, wide: bool = False) -> None:
    """Write ascending numbers again as `Offsets` reads them.

    Those that are too far apart, and those for which two bytes are enough, are made narrow, unless
    who reads them calculates with 64 bits: then they stay ``wide`` where they are too far apart.
    """
    plain = np.load(path, mmap_mode="r")
    firsts = np.asarray(plain[:: 1 << _OFFSETS])
    ends = np.append(firsts[1:], plain[-1:])
    is_far = (ends - firsts).max() > _SHORT
    if is_far or (plain[-1] <= _SHORT and not wide):
        if not wide:
            narrow(path)
        return
    beside = path.with_name(f"{path.name}.short")
    with ArrayWriter(beside, np.uint16) as writer:
        for start in range(0, len(plain), _AT_ONCE):
            part = plain[start : start + _AT_ONCE]
            here = firsts[start >> _OFFSETS : start + _AT_ONCE >> _OFFSETS]
            writer.append(part - np.repeat(here, 1 << _OFFSETS)[: len(part)])
    del plain
    bases = Offsets.bases_of(path)
    with ArrayWriter(bases, np.min_scalar_type(int(firsts[-1]))) as writer:
        writer.append(firsts)
    beside.replace(path)


class Strings(Sequence[str], MappedFiles):
    """An immutable list of strings: one byte array and where each string starts."""

    def __init__(self, offsets: Any, data: Any) -> None:
        self._arrays: tuple[Any, Any] = offsets, data
        self._data = getattr(data, "mapped", data).data
        self._span = _spans(offsets)
        self._is_verified = self._are_verified()

    @classmethod
    def load(cls, folder: Path, name: str) -> Strings:
        """Map the strings that a `StringsWriter` wrote under this name."""
        offsets = load_offsets(folder / f"{name}.offsets.npy")
        return cls(offsets, load_array(folder / f"{name}.bytes.npy"))

    def __len__(self) -> int:
        return len(self._arrays[0]) - 1

    def expect_lookups(self) -> None:
        """Expect strings far apart to be read."""
        offsets, data = self._arrays
        expect_lookups(offsets)
        expect_lookups(data)

    def prefetch(self, numbers: Int, lengths: Any = 1) -> None:
        """Start reading strings that will be needed soon; runs are of one string each."""
        offsets, data = self._arrays
        if len(numbers) < _FEW or _pages(data) is None:
            return
        prefetch(offsets, numbers, 2)
        starts = np.asarray(offsets[numbers], np.int64)
        prefetch(data, starts, offsets[numbers + 1] - starts)

    def take(self, numbers: Int) -> list[str]:
        """Return some of the strings, read together."""
        if len(numbers) < _FEW:
            return [self[number] for number in numbers.tolist()]
        starts, sizes, data = self._spans(numbers)
        text = data[ranges(starts, sizes)].tobytes()
        ends = np.cumsum(sizes)
        return [
            str(text[start:end], "utf-8")
            for start, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        ]

    def begin_with(self, prefix: bytes, numbers: Int) -> Marks:
        """Mark the strings that begin with some bytes."""
        starts, sizes, data = self._spans(numbers)
        long = sizes >= len(prefix)
        places = starts[long, None] + np.arange(len(prefix))
        wanted = np.frombuffer(prefix, np.uint8)
        found = np.zeros(len(numbers), bool)
        found[long] = (data[places.ravel()].reshape(places.shape) == wanted).all(axis=1)
        return found

    def _spans(self, numbers: Int) -> tuple[Int, Int, Array]:
        """Return where strings start, their sizes, and what they are in."""
        self.prefetch(numbers)
        offsets, data = self._arrays
        starts = np.asarray(offsets[numbers], np.int64)
        return starts, np.asarray(offsets[numbers + 1], np.int64) - starts, data

    def arrow(self) -> pa.LargeStringArray:
        """Give the same strings as an Arrow array; their bytes are not copied."""
        offsets, data = self._arrays
        buffers = (pa.py_buffer(one.data) for one in (np.asarray(offsets, np.int64),
                                                      np.asarray(data)))  # fmt: skip
        return pa.LargeStringArray.from_buffers(len(self), *buffers)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[at] for at in range(*i.indices(len(self)))]
        if not self._is_verified:
            return str(self._verified(i), "utf-8")
        start, stop = self._span(i)
        return str(self._data[start:stop], "utf-8")

    def raw(self, i: int) -> bytes:
        """Return one string as its bytes, which may be no text."""
        if not self._is_verified:
            return bytes(self._verified(i))
        start, stop = self._span(i)
        return bytes(self._data[start:stop])

    def _verified(self, i: int) -> memoryview:
        """Return the bytes of one string; what is not verified yet is verified."""
        offsets, data = self._arrays
        found: memoryview = data[int(offsets[i]) : int(offsets[i + 1])].data
        return found

    def settle(self, whole: bool) -> None:
        """Stop verifying strings if all are verified; ``whole`` verifies them."""
        self._arrays = settled(self._arrays[0], whole), settled(self._arrays[1], whole)
        self._is_verified = self._are_verified()

    def _are_verified(self) -> bool:
        offsets, data = self._arrays
        known = offsets.is_verified if isinstance(offsets, Offsets) else True
        return known and not any(isinstance(one, StoredArray) for one in (offsets, data))


class StringsWriter:
    """Appends strings; close it to make them readable by `Strings.load`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = ArrayWriter(folder / f"{name}.bytes.npy", np.uint8)
        self._path = folder / f"{name}.offsets.npy"
        self._offsets = ArrayWriter(self._path, np.int64)
        self._offsets.append([0])

    def append(self, strings: Iterable[str]) -> None:
        """Write strings, or bytes, behind the last: an Arrow array without nulls, or others."""
        is_arrow = isinstance(strings, pa.Array)
        array: Any = strings if is_arrow else pa.array(list(strings), pa.large_string())
        if not pa.types.is_large_binary(array.type):
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
        if self._bytes.length < _NARROW_TEXTS:
            shorten(self._path)
