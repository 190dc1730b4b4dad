"""Files that other processes may be reading or writing: locks, atomic writes, shared copies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, busy: Exception, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file at ``path``; raise ``busy`` if another process has it, or wait for it.

    The operating system releases the lock when its process ends, even if it is killed; the
    file stays, and what it holds does not matter. One that cannot be opened raises OSError.
    """
    # Imported here: opening and searching an index lock nothing.
    from filelock import FileLock, Timeout

    # One lock object may be entered on one thread and left on another (an async generator).
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        lock.release()


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file so that readers see the old content or the new, never a part.

    With ``durable`` the new content also survives a power cut once this returns.
    """
    aside = path.with_suffix(".new")
    data = content.encode() if isinstance(content, str) else content
    with aside.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    aside.replace(path)
    if durable:
        sync_folder(path.parent)


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Give a path to write to; it becomes ``target`` if the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=".deepjoin-", dir=target.parent) as folder:
        aside = Path(folder, target.name)
        yield aside
        aside.replace(target)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file that never changes a second name, or copy it where links are not supported."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def cache_root() -> Path:
    """Return the folder of cached copies and vectors: DEEPJOIN_CACHE, or one in the home folder."""
    given = os.environ.get("DEEPJOIN_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "deepjoin"
