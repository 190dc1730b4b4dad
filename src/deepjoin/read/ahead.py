"""Copies of remote files, the next few under way while one is being read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

from deepjoin.read.formats import format_of, suffixes
from deepjoin.read.remote_files import Download, RemoteFiles

_AHEAD = 8
#: Larger files are copied when their turn comes: transfer, not waiting, is what they cost.
_LARGEST = 32 << 20


class Downloads:
    """Copies files when they are taken, and ahead of time while they are taken in order.

    Whoever takes one file, or every tenth, has nothing copied ahead. At most eight files of
    32 MiB are held; the last of them go with this object.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files
        self._sizes: Mapping[str, int] = {}
        self._order: list[str] = []
        self._positions: dict[str, int] = {}
        self._latest = -1
        self._held: dict[str, Future[Download]] = {}

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Set the order, with the sizes, in which files will be taken; forget older copies."""
        self._sizes, self._order = sizes, list(sizes)
        self._positions = {name: position for position, name in enumerate(self._order)}
        self._latest = -1
        self._held = {}

    def take(self, name: str) -> Download:
        """Give the copy of a file; it is the caller's to remove."""
        held = self._held.pop(name, None)
        position = self._positions.get(name, -1)
        step = position - self._latest
        if position >= 0:
            in_order = step == 1 or (held is not None and 0 < step <= _AHEAD)
            if in_order and self._files.is_parallel:
                self._go_on(position + 1)
            self._latest = position
        return held.result() if held is not None else self._copy(name)

    def take_held(self, name: str) -> Download | None:
        """Give the copy of a file if there is one already."""
        held = self._held.pop(name, None)
        return held.result() if held is not None else None

    def keep(self, name: str, copy: Download) -> None:
        """Hold a whole copy that will soon be taken again, if files are taken in order."""
        if name not in self._positions:
            copy.remove()
            return
        while len(self._held) >= _AHEAD:
            self._held.pop(next(iter(self._held)))
        done: Future[Download] = Future()
        done.set_result(copy)
        self._held[name] = done

    def _go_on(self, position: int) -> None:
        """Begin to copy what comes next; forget what was passed over."""
        for name in [name for name in self._held if self._positions[name] < position]:
            del self._held[name]
        for name in self._order[position : position + _AHEAD]:
            fits = len(self._held) < _AHEAD and self._sizes[name] <= _LARGEST
            if fits and name not in self._held:
                self._held[name] = self._pool.submit(self._copy, name)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_AHEAD, "deepjoin-download")

    def _copy(self, name: str) -> Download:
        return self._files.download(name, ending(name))


def ending(name: str) -> str:
    """Give a copy the ending that says what it is, and nothing else of a foreign name."""
    return suffixes(name) if format_of(name) else ""
