"""Files that other processes may be reading or writing: locks, atomic writes, shared copies."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from deepjoin.errors import DeepJoinError

#: Held by the process that uses a temporary folder.
_LOCK = ".lock"
#: What the names of temporary folders begin with, also those beside a file that is written.
_OURS = ("deepjoin-", ".deepjoin-")
#: Seconds in which a new folder gets its lock.
_LOCKED_WITHIN = 60


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


def replace_file(
    path: Path, content: str | bytes, *, durable: bool = False, private: bool = False
) -> None:
    """Write a file so that readers see the old content or the new, never a part.

    With ``durable`` the new content also survives a power cut once this returns; with ``private``
    only its owner can read it, and the group if that could read the one it replaces.
    """
    aside = path.with_suffix(".new")
    data = content.encode() if isinstance(content, str) else content
    aside.unlink(missing_ok=True)  # one of a killed process may be readable by all
    mode = 0o666
    if private:
        mode = 0o600 | (path.stat().st_mode & 0o040 if path.exists() else 0)
    with open(aside, "wb", opener=partial(os.open, mode=mode)) as file:
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
    try:
        with TemporaryFolder(".deepjoin-", target.parent) as folder:
            aside = folder / target.name
            yield aside
            aside.replace(target)
    except OSError as error:
        reason = error.strerror or str(error).split("\n", 1)[0]
        raise DeepJoinError(
            f"Cannot write {target}: {reason}. Choose a folder that exists and has room."
        ) from error


class TemporaryFolder:
    """A folder that disappears with this object; if its process is killed, with the next one made.

    Making one removes what killed processes left in the same place: folders of this user whose
    lock is free. Names begin with ``deepjoin-``, beside a user's files ``.deepjoin-``.
    """

    def __init__(self, prefix: str, parent: str | Path | None = None) -> None:
        parent = Path(tempfile.gettempdir() if parent is None else parent)
        _remove_strays(parent)
        self.path, lock = _locked_folder(prefix, parent)
        #: Removes the folder; at the latest, this happens when the object is deleted or at exit.
        self.remove = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()


def _locked_folder(prefix: str, parent: Path) -> tuple[Path, Any]:
    # Imported here: opening and searching an index lock nothing.
    from filelock import FileLock, Timeout

    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = FileLock(folder / _LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            continue
        except (OSError, NotImplementedError):
            return folder, lock  # a disk without locks: what a killed process leaves there stays
        # Another process may have taken the folder for a stray before it was locked.
        if (folder / _LOCK).exists():
            return folder, lock


def _remove(folder: Path, lock: Any) -> None:
    if os.name == "nt":  # which removes no open file
        lock.release()
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()


def _remove_strays(parent: Path) -> None:
    """Remove the temporary folders of killed processes."""
    from filelock import FileLock, Timeout

    for folder in [path for start in _OURS for path in parent.glob(f"{start}*")]:
        # Another user's folder, or one that another process removes at the same time, is left.
        with suppress(OSError, NotImplementedError, Timeout):
            found = folder.lstat()
            if hasattr(os, "getuid") and found.st_uid != os.getuid():
                continue
            if (folder / _LOCK).is_file():
                lock = FileLock(folder / _LOCK, timeout=0, thread_local=False)
                lock.acquire()
                _remove(folder, lock)
            elif time.time() - found.st_mtime > _LOCKED_WITHIN:
                folder.rmdir()  # only if it is empty: others may use such names, too


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
