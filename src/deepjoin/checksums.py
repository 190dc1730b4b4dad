"""Checksums of every block of the files of a folder, verified when a block is first read.

A folder that never changes any more is sealed: one file, `NAME`, gets a number for each block of
each other file. Whoever maps or reads a file of the folder through `deepjoin.arrays` finds it
there. A damaged block raises `DamagedFile`; so does a sound block whose number is damaged.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_hexdigest, xxh3_64_intdigest

from deepjoin.errors import IndexUnusable

#: The file, in a sealed folder, of the checksums of the others.
NAME = "checksums"
#: Bytes that share a checksum: a page, so that verifying reads nothing that is not needed.
BLOCK, _SHIFT = 1 << 12, 12
_MASK = 0xFFFFFFFF
#: Begins the file: the checksum and the length of what is said about the files, which follows.
_PREFIX = b"%s %010d\n"
#: Sealed folders are in folders of these names.
_PARENTS = ("segments", "graph")
#: Files up to this size are verified as a whole when they are first read.
_SMALL = 1 << 17
#: Bytes hashed at a time.
_PIECE = 1 << 22
#: Fewer blocks than this share of a file, as a power of two, are sorted to find new ones.
_FEW = 8
#: Checksums up to this size are read whole when the first of them is needed.
_REQUESTED = 1 << 25

Sums = npt.NDArray[np.uint32]


class DamagedFile(IndexUnusable):
    """A file of an index is not what was written."""

    def __init__(self, folder: Path, name: str, where: str = "") -> None:
        self.what = f"{folder.name}/{name} is not what was written{where}"
        index = folder.parent.parent
        advice = f"Build it again with: deepjoin index SOURCE -o {index} --rebuild"
        if folder.parent.name == "graph":
            advice = f"Remove {folder.parent} and run: deepjoin graph {index}"
        super().__init__(f"{index} is damaged: {self.what}. {advice}")


def block_sums(data: bytes | memoryview) -> list[int]:
    """Compute the checksums of consecutive blocks."""
    view = memoryview(data)
    starts = range(0, len(view), BLOCK)
    return [xxh3_64_intdigest(view[start : start + BLOCK]) & _MASK for start in starts]


def write_checksums(folder: Path, files: Mapping[str, tuple[tuple[int, str], Sums]]) -> Path:
    """Write checksums: of each file, its size, the checksum of all of it, those of its blocks."""
    whole = {name: of for name, (of, _) in files.items()}
    header = json.dumps({"block": BLOCK, "files": whole}, ensure_ascii=False).encode()
    path = folder / NAME
    with path.open("wb") as file:
        file.write(_PREFIX % (xxh3_64_hexdigest(header).encode(), len(header)) + header)
        for _, numbers in files.values():
            file.write(numbers.astype("<u4").tobytes())
    return path


class Checksums:
    """The checksums of a sealed folder, mapped; they stay readable when the folder is removed."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.stamp = folder, _stamp(os.fstat(number))
        self._map = mmap.mmap(number, 0, access=mmap.ACCESS_READ)
        #: Of each file: its size, the checksum of all of it, and where those of its blocks start.
        self._files: dict[str, tuple[int, str, int]] | None = None
        self._numbers: Sums = np.zeros(0, np.uint32)
        self._guards: WeakValueDictionary[tuple[str, int, int], BlockGuard] = WeakValueDictionary()

    def of(self, name: str, size: int) -> tuple[str, Sums] | None:
        """Return the checksum of a file of this size, and those of its blocks.

        None for a file that was not there when the folder was sealed.
        """
        if self._files is None:
            self._files = self._read()
        if name not in self._files:
            return None
        written, digest, first = self._files[name]
        if size != written:
            raise DamagedFile(self.folder, name)
        return digest, self._numbers[first : first - (-size >> _SHIFT)]

    def _read(self) -> dict[str, tuple[int, str, int]]:
        length = self._map[17:27]
        start = len(_PREFIX % (b"0" * 16, 0))
        end = start + int(length) if length.isdigit() else 0
        header = self._map[start:end]
        if self._map[:start] != _PREFIX % (xxh3_64_hexdigest(header).encode(), len(header)):
            raise DamagedFile(self.folder, NAME)
        files, count = {}, 0
        for name, (size, of) in json.loads(header)["files"].items():
            files[name] = size, of, count
            count -= -size >> _SHIFT
        if end + 4 * count != len(self._map):
            raise DamagedFile(self.folder, NAME)
        self._numbers = np.frombuffer(self._map, "<u4", count, end)
        # All at once: page by page, a first search would wait for the disk again and again.
        if len(self._map) <= _REQUESTED:
            request(self._map, 0, len(self._map))
        return files

    def guard(self, name: str, found: os.stat_result, pages: Any) -> BlockGuard:
        """Return the guard of a mapped file, shared by all that map the same one."""
        key = name, *_stamp(found)
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = BlockGuard(self, name, pages)
        return guard


class BlockGuard:
    """Which blocks of a mapped file are verified; threads may verify one twice, never skip one."""

    __slots__ = (
        *("__weakref__", "_checksums", "_lock", "_marks", "_name", "_pages"),
        *("_sums", "_view", "left", "seen"),
    )

    def __init__(self, checksums: Checksums, name: str, pages: Any) -> None:
        self._checksums, self._name, self._pages = checksums, name, pages
        self._lock, self._view = Lock(), memoryview(pages)
        #: The checksums of its blocks, once one was needed; none if the file has none.
        self._sums: Sums | None = None
        #: How many blocks are not verified; and one byte a block, 1 once it is.
        self.left = -(-len(pages) >> _SHIFT)
        self.seen = bytearray(self.left)
        #: The same bytes as an array.
        self._marks: npt.NDArray[np.uint8] = np.frombuffer(self.seen, np.uint8)

    def whole(self) -> None:
        """Verify all blocks."""
        size, view = len(self._pages), memoryview(self._pages)
        if self.left and size > _SMALL:
            # Large pieces are hashed while other threads run.
            digest = xxh3_64()
            for start in range(0, size, _PIECE):
                request(self._pages, start, min(2 * _PIECE, size - start))
                digest.update(view[start : start + _PIECE])
            sums = self._checksums.of(self._name, size)
            if sums is None or digest.hexdigest() == sums[0]:
                self._mark(slice(None))
        if self.left:
            self._verify(np.flatnonzero(self._marks == 0))

    def span(self, first: int, last: int) -> None:
        """Verify the blocks that hold the bytes from ``first`` to ``last``."""
        first, last = first >> _SHIFT, last >> _SHIFT
        if self.seen.find(0, first, last + 1) >= 0:
            if first == last and self.left < len(self.seen):  # most often, and in few steps
                self._verify_one(first)
            else:
                self._verify(np.flatnonzero(self._marks[first : last + 1] == 0) + first)

    def blocks(self, blocks: npt.NDArray[np.int64]) -> None:
        """Verify blocks by their numbers."""
        # Searching bytes takes a tenth of the time of a reduction of few elements.
        if 0 in self._marks.take(blocks).tobytes():
            if len(blocks) < len(self.seen) >> _FEW:
                blocks = np.sort(blocks[self._marks[blocks] == 0])
                self._verify(blocks[np.diff(blocks, prepend=-1) != 0])
            else:  # marking takes less than sorting
                asked = np.zeros(len(self.seen), np.bool_)
                asked[blocks] = True
                self._verify(np.flatnonzero(asked > self._marks.view(np.bool_)))

    def _verify_one(self, block: int) -> None:
        """Verify a block of a file of which another was verified before."""
        sums, start = self._sums, block << _SHIFT
        if sums is not None:
            found = xxh3_64_intdigest(self._view[start : start + BLOCK]) & _MASK
            if found != sums[block]:
                raise self._damage(block)
        with self._lock:
            self.left -= 1 - self.seen[block]
            self.seen[block] = 1

    def _verify(self, blocks: npt.NDArray[np.int64]) -> None:
        if len(blocks) == 0:  # another thread was faster
            return
        count = len(self.seen)
        if self.left == count:
            # The first block says what the others hold. Small files are read whole anyway.
            if len(self._pages) <= _SMALL:
                blocks = np.arange(count)
            elif blocks[0] > 0:  # they are in ascending order
                blocks = np.append(0, blocks)
            sums = self._checksums.of(self._name, len(self._pages))
            self._sums = None if sums is None else sums[1]
        if self._sums is None:
            self._mark(slice(None))
            return
        first, size = int(blocks[0]), int(blocks[-1] - blocks[0] + 1)
        if size == len(blocks) > 1:
            request(self._pages, first << _SHIFT, size << _SHIFT)
        view, starts = self._view, (blocks << _SHIFT).tolist()
        found = [xxh3_64_intdigest(view[start : start + BLOCK]) for start in starts]
        is_same = np.array(found, np.uint64).astype(np.uint32) == self._sums[blocks]
        if not is_same.all():
            raise self._damage(int(blocks[is_same.argmin()]))
        self._mark(blocks)

    def _damage(self, block: int) -> DamagedFile:
        start = block << _SHIFT
        end = min(start + BLOCK, len(self._pages)) - 1
        where = f" (between bytes {start} and {end})"
        return DamagedFile(self._checksums.folder, self._name, where)

    def _mark(self, blocks: npt.NDArray[np.int64] | slice) -> None:
        with self._lock:
            self.left -= int((self._marks[blocks] == 0).sum())
            self._marks[blocks] = 1


def request(pages: mmap.mmap, start: int, size: int) -> None:
    """Request pages together: one after the other takes long where nothing is read ahead."""
    if hasattr(mmap, "MADV_WILLNEED"):  # not on Windows
        pages.madvise(mmap.MADV_WILLNEED, start, size)


class SealedFile(NamedTuple):
    """A file of a sealed folder: its checksums, and its name there."""

    checksums: Checksums
    name: str


_OPEN: WeakValueDictionary[str, Checksums] = WeakValueDictionary()


def sealed_file(path: Path) -> SealedFile | None:
    """Find the checksums of a file, in its folder or one above; None if it has none."""
    folder, name = os.path.split(path)
    sealed, below = _sealed_folder(folder)
    found = (_OPEN.get(sealed) or _opened(sealed)) if sealed else None
    return None if found is None else SealedFile(found, below + name)


@lru_cache(256)
def _sealed_folder(folder: str) -> tuple[str, str]:
    """Return the folder that would be sealed, this one or one above, and the way from there."""
    below = ""
    while True:
        above, own = os.path.split(folder)
        if own == "" or own == "..":
            return "", ""
        # Only there: other programs call files by the same name.
        if above.endswith(_PARENTS):
            return folder, below
        folder, below = above, f"{own}/{below}"


def open_again(folder: Path) -> None:
    """Make sure that checksums written since, if any, are those that are found from now on."""
    found = _OPEN.get(str(folder))
    with suppress(OSError):
        if found is not None and found.stamp != _stamp((folder / NAME).stat()):
            _OPEN.pop(str(folder), None)


def _opened(folder: str) -> Checksums | None:
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            found = Checksums(Path(folder), file.fileno())
    except (
        OSError,
        ValueError,
    ):  # none there, or an empty one, of another size than in the manifest
        return None
    _OPEN[folder] = found
    return found


def _stamp(found: os.stat_result) -> tuple[int, int]:
    """Tell a file from one that is written later, or to the same place."""
    return found.st_ino, found.st_mtime_ns


def verify_file(path: Path) -> Path:
    """Verify a whole file that another library will open; one without checksums is left as is."""
    found = sealed_file(path)
    if found is not None:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                found.checksums.of(found.name, 0)
            else:
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                BlockGuard(found.checksums, found.name, pages).whole()
    return path


def read_verified(path: Path) -> bytes:
    """Read a small file whole; one without checksums is read as it is."""
    content = path.read_bytes()
    found = sealed_file(path)
    if found is not None:
        sums = found.checksums.of(found.name, len(content))
        if sums is not None and block_sums(content) != sums[1].tolist():
            raise DamagedFile(found.checksums.folder, found.name)
    return content
