"""A copy of an index on this machine: locked, filled and pruned so that no half segment is used."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.files import locked
from deepjoin.store.manifest import SEGMENTS, SegmentRecord, check_sizes


def cache_root() -> Path:
    """Return where copies and vectors are kept: DEEPJOIN_CACHE, or a folder in the user's home."""
    given = os.environ.get("DEEPJOIN_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "deepjoin"


def is_whole(folder: Path, record: SegmentRecord) -> bool:
    """Tell whether a folder has every file of a segment in its full length."""
    try:
        check_sizes(folder, record)
    except IndexUnusable:
        return False
    return True


@contextmanager
def only_process(folder: Path, wait: bool = True) -> Iterator[None]:
    """Be the only process of this machine at work on a copy."""
    busy = IndexUnusable(
        "The index is being written by another process of this machine. "
        "Wait for it to end, or stop it."
    )
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(folder.with_suffix(".lock"), busy, wait=wait))
        except OSError as error:
            raise DeepJoinError(
                f"Cannot keep a copy of the index in {folder.parent}: {error.strerror}. "
                "Set DEEPJOIN_CACHE to a folder you may write to."
            ) from None
        yield


@contextmanager
def copy_errors(folder: Path) -> Iterator[None]:
    """Put what the disk of a copy says into one line."""
    try:
        yield
    except OSError as error:
        space = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "no space left on its disk" if space else error.strerror or str(error)
        raise DeepJoinError(
            f"Cannot keep a copy of the index in {folder}: {what}. "
            "Set DEEPJOIN_CACHE to a folder elsewhere."
        ) from None


@contextmanager
def aside(folder: Path) -> Iterator[Path]:
    """Make a folder to download to; what is left in it is removed."""
    scratch = Path(tempfile.mkdtemp(prefix="pulling-", dir=folder / SEGMENTS))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def link_segments(records: Iterable[SegmentRecord], source: Path, target: Path) -> None:
    """Put segments of one folder into another as well; they are the same files."""
    for record in records:
        if not is_whole(target, record):
            with aside(target) as scratch:
                there = target / SEGMENTS / record.name
                here = source / SEGMENTS / record.name
                shutil.copytree(here, scratch, copy_function=link_or_copy, dirs_exist_ok=True)
                shutil.rmtree(there, ignore_errors=True)
                scratch.rename(there)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Let a file be in two places; files of segments never change."""
    try:
        os.link(source, target)
    except OSError:  # some file systems have no links
        shutil.copyfile(source, target)


def remove_others(segments: Path, records: Iterable[SegmentRecord]) -> None:
    """Remove every segment that is not among these."""
    named = {record.name for record in records}
    for old in segments.iterdir():
        if old.name not in named:
            shutil.rmtree(old, ignore_errors=True)
