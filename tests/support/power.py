"""A power cut, as far as it can be played: what was not synced is lost, or only half kept.

Files are known by their inodes. The content a file had at its last sync is sure to be kept, and
so are the names a folder had at its last sync; of everything later, any part may be.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

#: Of a folder, by name: the inode, and whether it is a folder.
Names = dict[str, tuple[int, bool]]

#: Whether names and contents that were not synced are lost (0.0), kept (1.0), or by chance.
LOSSES = {"nothing": (0.0, 0.0), "names": (1.0, 0.0), "contents": (0.0, 1.0), "mixed": (0.5, 0.5)}


class Disk:
    """What a disk is sure to hold of one folder inside another."""

    def __init__(self, root: Path, name: str) -> None:
        self._root, self._name = root, name
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, Names] = {}
        #: An inode that is held open is not given to another file.
        self._held: list[int] = []
        self._sync_path(root)
        for path in root.joinpath(name).rglob("*"):
            self._sync_path(path)
        if root.joinpath(name).exists():
            self._sync_path(root / name)

    def _sync_path(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        self.synced(descriptor)
        os.close(descriptor)

    def synced(self, descriptor: int) -> None:
        """Take note that an open file or folder has been synced."""
        here = Path(f"/proc/self/fd/{descriptor}")
        inode = os.fstat(descriptor).st_ino
        if inode not in self._files and inode not in self._folders:
            self._held.append(os.dup(descriptor))
        if here.is_dir():
            self._folders[inode] = _names(here)
        else:
            self._files[inode] = here.read_bytes()

    def cut(self, out: Path, loss: str, seed: int) -> None:
        """Write down what a power cut would leave of the folder."""
        chance = random.Random(f"{loss} {seed}")
        names, contents = LOSSES[loss]
        now = {inode: path for path, inode in _walk(self._root / self._name)}
        now[self._root.stat().st_ino] = self._root

        def restore(inode: int, is_folder: bool, to: Path) -> None:
            if not is_folder:
                to.write_bytes(self._content(inode, now, chance.random() < contents, chance))
                return
            to.mkdir(exist_ok=True)
            kept, there = self._folders.get(inode, {}), _names(now.get(inode))
            for name in sorted({*kept, *there}):
                found = (there if chance.random() < names else kept).get(name)
                if found is not None:
                    restore(*found, to / name)

        root = self._root.stat().st_ino
        kept, there = self._folders[root], _names(self._root)
        found = (there if chance.random() < names else kept).get(self._name)
        if found is not None:
            restore(*found, out)

    def _content(
        self, inode: int, now: dict[int, Path], whole: bool, chance: random.Random
    ) -> bytes:
        """Return what is left of a file: what was synced, or what was written, or a part."""
        sure = self._files.get(inode)
        if sure is not None:
            return sure
        written = now[inode].read_bytes() if inode in now else b""
        return written if whole else written[: chance.choice([0, len(written) // 2])]


def _names(folder: Path | None) -> Names:
    if folder is None:
        return {}
    with os.scandir(folder) as entries:
        return {one.name: (one.inode(), one.is_dir()) for one in entries}


def _walk(folder: Path) -> Iterator[tuple[Path, int]]:
    if folder.exists():
        for path in (folder, *folder.rglob("*")):
            yield path, path.stat().st_ino
