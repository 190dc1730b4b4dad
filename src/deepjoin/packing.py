"""Whole numbers in blocks of 64, each with as many bits as the range of its block needs.

A file is an array of 64-bit words: a mark, how many numbers there are, a word for each block with
its least number and where its bits start, the end, and the bits, one word for each bit of a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.arrays import (
    HEADER,
    Array,
    ArrayWriter,
    Int,
    MappedFiles,
    StoredArray,
    all_are_there,
    expect_lookups,
    find_in_blocks,
    load_array,
    prefetch,
    settled,
)
from deepjoin.checksums import verify_file

Words = npt.NDArray[np.uint64]

#: In front of a file of packed numbers.
_MARK = int.from_bytes(b"packed 1", "little")
#: Words before those of blocks, and numbers of a block, as a power of two.
_HEAD, _SHIFT = 2, 6
_SIZE = 1 << _SHIFT
#: Blocks packed at a time, and numbers unpacked at a time.
_BLOCKS, _AT_ONCE = 1 << 13, 1 << 18
_LOW = np.uint64(0xFFFFFFFF)
_ONE, _HALF, _WORD = np.uint64(1), np.uint64(32), np.uint64(63)


class PackedArray(MappedFiles):
    """A file of packed numbers below 2**32, mapped; it reads like an array of 32 bits.

    ``less`` is taken from every number, modulo 2**32: so one that means nothing, with all its bits
    set, is the least of its block.
    """

    def __init__(self, words: Any, count: int, less: int = 0) -> None:
        self._words, self._count, self._less = words, count, less
        self.dtype = np.dtype(np.uint32)

    def __len__(self) -> int:
        # Any other read verifies the block that holds the number as well.
        if isinstance(self._words, StoredArray) and not self._words.guard.seen[0]:
            self._words[0]
        return self._count

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._unpacked(np.arange(*key.indices(len(self))))
        places = np.asarray(key)
        if places.dtype == bool:
            places = np.flatnonzero(places)
        places = np.where(places < 0, places + len(self), places).astype(np.int64)
        if places.size and (places.min() < 0 or places.max() >= len(self)):
            raise IndexError(f"{key} of {len(self)} numbers")
        found = self._unpacked(places.ravel()).reshape(places.shape)
        return found if found.shape else found[()]

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> Array:
        """Copy some numbers: `np.take` would read all."""
        return np.asarray(self[indices])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def _unpacked(self, places: Int) -> npt.NDArray[np.uint32]:
        if len(places) <= _AT_ONCE:
            return self._some(places)
        found = np.empty(len(places), np.uint32)
        for start in range(0, len(places), _AT_ONCE):
            found[start : start + _AT_ONCE] = self._some(places[start : start + _AT_ONCE])
        return found

    def _some(self, places: Int) -> npt.NDArray[np.uint32]:
        words = self._words
        at = (places >> _SHIFT) + _HEAD
        blocks = words[at]
        starts = blocks & _LOW
        widths = (words[at + 1] & _LOW) - starts
        bits = (places & _SIZE - 1).astype(np.uint64) * widths
        first = (starts + (bits >> np.uint64(_SHIFT))).astype(np.int64)
        bits &= _WORD
        found = words[first] >> bits
        # A number may go on in the next word; shifting by 64 bits at once means nothing.
        found |= (words[first + 1] << _ONE) << (_WORD - bits)
        found &= (_ONE << widths) - _ONE
        found += blocks >> _HALF
        numbers: npt.NDArray[np.uint32] = found.astype(np.uint32)
        numbers -= np.uint32(self._less)
        return numbers

    def searchsorted(self, wanted: Any, side: Any = "left", sorter: Any = None) -> Int:
        """Find places in ascending numbers; as `np.searchsorted` calls it, which would read all."""
        wanted = np.asarray(wanted, np.uint32)
        if len(self) == 0:
            return np.zeros(wanted.shape, np.int64)
        # Words of blocks ascend as their least numbers do. The last block that begins before a
        # place may go on beyond it; none before it does.
        blocks = self._words
        end = _HEAD + -(-len(self) // _SIZE)
        blocks = blocks.part(_HEAD, end) if isinstance(blocks, StoredArray) else blocks[_HEAD:end]
        word = wanted.astype(np.uint64) << _HALF | (_LOW if side == "right" else np.uint64(0))
        block = np.maximum(np.asarray(blocks.searchsorted(word, side), np.int64) - 1, 0)
        return find_in_blocks(self, block, _SIZE, wanted, side)

    def expect_lookups(self) -> None:
        """Expect numbers far apart to be read."""
        expect_lookups(self._words)

    def prefetch(self, numbers: Any, lengths: Any = 1) -> None:
        """Start reading the blocks of runs of numbers that will be needed soon."""
        first = np.atleast_1d(np.asarray(numbers, np.int64))
        last = np.minimum(first + np.maximum(1, lengths), len(self)) - 1 >> _SHIFT
        at = (first >> _SHIFT) + _HEAD
        prefetch(self._words, at, last + _HEAD + 2 - at)
        if all_are_there(self._words):
            return
        starts, ends = (self._words[one] & _LOW for one in (at, last + _HEAD + 1))
        prefetch(self._words, starts.astype(np.int64), (ends - starts).astype(np.int64) + 1)

    def settle(self, whole: bool) -> None:
        """Stop verifying words if all are verified; ``whole`` verifies them."""
        self._words = settled(self._words, whole)


def load_numbers(path: Path, less: int = 0) -> Any:
    """Map an array, or numbers that `pack` wrote in its place."""
    array = load_array(path)
    if array.dtype != np.uint64:
        return array
    count = _count(path, len(array))
    if count is None:
        verify_file(path)
        raise ValueError(f"{path.name} is not an array of packed numbers")
    return PackedArray(array, count, less)


def _count(path: Path, words: int) -> int | None:
    """Read how many numbers a file of so many words has; None if it has others.

    Three words are looked at, which agree with the size; they are verified with the first number.
    """
    # Not as mapped: the system would read megabytes around a page that is missing.
    with path.open("rb", buffering=0) as file:
        file.seek(HEADER)
        mark, count = (int.from_bytes(file.read(8), "little") for _ in range(2))
        end = _HEAD + -(-count // _SIZE)
        if mark != _MARK or end >= words:
            return None
        file.seek(HEADER + 8 * end)
        return count if int.from_bytes(file.read(4), "little") == words - 2 else None


def is_packed(path: Path) -> bool:
    """Check whether packed numbers are as `pack` writes them, bit for bit."""
    words = np.asarray(load_array(path))
    count = _count(path, len(words))
    if count is None:
        return False
    end = _HEAD + -(-count // _SIZE)
    blocks, bits = words[_HEAD : end + 1], words[end + 1 :]
    starts = (blocks & _LOW).astype(np.int64)
    widths = np.diff(starts)
    if starts[0] != end + 1 or widths.min(initial=0) < 0 or widths.max(initial=0) > _HALF:
        return False
    if int(blocks[-1]) >> 32 or starts[-1] != len(words) - 2 or words[-2:].any():
        return False
    array = PackedArray(words, count)
    for start in range(0, len(widths), _BLOCKS):
        stop = min(start + _BLOCKS, len(widths))
        part = _filled(array[start * _SIZE : stop * _SIZE])
        if not np.array_equal(part.min(axis=1), blocks[start:stop] >> _HALF):
            return False
        here = bits[starts[start] - end - 1 : starts[stop] - end - 1]
        again = _bits(part - part.min(axis=1)[:, None], widths[start:stop])
        if not np.array_equal(_widths(part), widths[start:stop]) or not np.array_equal(here, again):
            return False
    return True


def _filled(part: Array) -> Words:
    """Cut numbers into blocks, the last one filled up with its last number."""
    missing = -len(part) % _SIZE
    part = np.append(part, np.repeat(part[-1:], missing)) if missing else part
    return part.reshape(-1, _SIZE).astype(np.uint64)


def pack(path: Path, more: int = 0) -> None:
    """Write an array of whole numbers again as packed ones; each is made larger by ``more``.

    Numbers above 32 bits stay as they are.
    """
    plain = np.load(path, mmap_mode="r") if path.stat().st_size > HEADER else np.zeros(0, np.uint8)
    count = len(plain)
    blocks = -(-count // _SIZE)
    if plain.dtype.itemsize > 4 and int(plain.max(initial=0)) > int(_LOW):
        return

    def parts() -> Iterator[Words]:
        """Return blocks."""
        for start in range(0, count, _BLOCKS * _SIZE):
            yield _filled(
                plain[start : start + _BLOCKS * _SIZE].astype(np.uint32) + np.uint32(more)
            )

    beside, end = path.with_name(f"{path.name}.packed"), _HEAD + blocks + 1
    with ArrayWriter(beside, np.uint64) as writer:
        writer.append([_MARK, count])
        for part in parts():
            least, widths = part.min(axis=1), _widths(part)
            ends = end + np.cumsum(widths)
            writer.append(least << _HALF | (ends - widths).astype(np.uint64))
            end = int(ends[-1])
        if end > int(_LOW):
            raise ValueError(f"{path.name} has too many numbers")
        writer.append([end])
        for part in parts():
            writer.append(_bits(part - part.min(axis=1)[:, None], _widths(part)))
        writer.append([0, 0])  # since numbers are read two words at a time
    beside.replace(path)


def _widths(part: Words) -> Int:
    """Return how many bits the numbers of each block need, beyond the least of them."""
    most = (part.max(axis=1) - part.min(axis=1)).astype(np.float64)
    widths: Int = np.ceil(np.log2(most + 1)).astype(np.int64)
    return widths


def _bits(part: Words, widths: Int) -> Words:
    """Put numbers into words, block after block: as many words as each has bits."""
    starts = np.cumsum(widths) - widths
    words = np.zeros(int(widths.sum()) + 1, np.uint64)
    for width in np.unique(widths[widths > 0]).tolist():
        mine = np.flatnonzero(widths == width)
        numbers, at = part[mine], starts[mine]
        for place in range(_SIZE):
            word, bit = divmod(place * width, _SIZE)
            words[at + word] |= numbers[:, place] << np.uint64(bit)
            if bit + width > _SIZE:
                words[at + word + 1] |= numbers[:, place] >> np.uint64(_SIZE - bit)
    return words[:-1]
