"""`deepjoin.index`: from any source to an open lake."""

from __future__ import annotations

import errno
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, IndexUnusable, unknown_name
from deepjoin.lake.build import Progress, Titles, build_segment
from deepjoin.lake.lake import Lake
from deepjoin.lake.origin import describe, state
from deepjoin.lake.storage import MANIFEST, commit, is_index, may_write, read_manifest, writing
from deepjoin.settings import Settings
from deepjoin.sources import TableSource, open_source
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource

DEFAULT = ".deepjoin"
#: Bytes of distinct cells held in memory before they go to disk; a build takes 1 to 2 GB beside.
MEMORY = 1 << 30


def index(
    source: object,
    out: str | os.PathLike[str] | None = None,
    *,
    settings: Settings | None = None,
    titles: Titles | None = None,
    memory: int = MEMORY,
    threads: int | None = None,
    progress: Progress | None = None,
    rebuild: bool = False,
    **options: Any,
) -> Lake:
    """Index tables and open the lake; an index of files that have not changed is kept.

    Parameters
    ----------
    source
        A folder, a file, a glob pattern or a list of these; a data frame, or a dict of name
        to frame; a column corpus.
    out
        Where the index goes: ``.deepjoin`` inside the source folder unless told otherwise,
        or in the working directory when there is no folder to write to.
    settings
        What is indexed and how cells compare; unless given, those of the index that is
        there already, or the defaults.
    titles
        For names of tables, the (title, context) to use instead of file and folder names.
    memory
        Bytes of distinct cells to hold before they go to disk.
    threads
        How many chunks of cells are worked on at a time; as many as there are processors.
    progress
        Called after each table with (done, of how many, name).
    rebuild
        Index again even if no file of the source has another size or time than before.
    **options
        Single fields of `Settings`, such as ``profile="basic"`` or ``min_distinct=2``.
    """
    folder = Path(out) if out is not None else default_folder(open_source(source, Settings()))
    chosen = _chosen(folder, settings, options)
    opened = open_source(source, chosen)
    if isinstance(opened, FileSource):
        opened.skip_dirs |= {folder.resolve()}
    _refuse_foreign(folder)
    if out is None:
        _refuse_other_source(folder, describe(opened, folder))
    now = _state(opened, chosen, titles)
    if not rebuild and now and (unchanged := _unchanged(folder, now)):
        return unchanged
    try:
        with writing(folder) as scratch:
            built = scratch / "segment"
            build_segment(
                *(opened, chosen, built, scratch / "spill", memory),
                progress or (lambda done, of, name: None),
                titles,
                threads or os.cpu_count() or 1,
            )
            commit(folder, built, __version__, chosen, describe(opened, folder), now)
    except OSError as error:
        raise _disk_error(folder, error) from None
    return Lake(folder)


def _state(source: TableSource | CorpusSource, settings: Settings, titles: Titles | None) -> str:
    try:
        return state(source, (__version__, settings, sorted((titles or {}).items())))
    except OSError as error:
        raise DeepJoinError(f"Cannot list the files of the source: {error}.") from None


def _unchanged(folder: Path, now: str) -> Lake | None:
    """Open the index that is there if it is whole and of the source as it is now."""
    try:
        return Lake(folder) if read_manifest(folder).state == now else None
    except IndexUnusable:
        return None


def _chosen(folder: Path, settings: Settings | None, options: dict[str, Any]) -> Settings:
    """Change what is asked to be changed; the rest stays as it was indexed before."""
    unknown = options.keys() - {field.name for field in fields(Settings)}
    if unknown:
        names = [field.name for field in fields(Settings)]
        raise unknown_name("option", unknown.pop(), "deepjoin.index", names)
    if settings is None:
        try:
            settings = read_manifest(folder).settings
        except IndexUnusable:
            settings = Settings()
    return replace(settings, **options)


def open_lake(path: str | os.PathLike[str]) -> Lake:
    """Open an index: its folder, or the folder of tables that has one inside.

    A folder of tables without an index is an error here; `deepjoin.index` makes one.
    """
    folder = Path(path)
    inside = folder / DEFAULT
    return Lake(inside if not is_index(folder) and (inside / MANIFEST).exists() else folder)


def default_folder(source: TableSource | CorpusSource) -> Path:
    """Choose where the index of a source goes when the user does not say."""
    root = source.folder if isinstance(source, CorpusSource) else None
    if isinstance(source, FileSource) and source.roots[0].file is None:
        root = source.root
    if root is not None and os.access(root, os.W_OK):
        return Path(root) / DEFAULT
    return Path(DEFAULT)


def _refuse_foreign(folder: Path) -> None:
    """Never write into a folder that holds something else."""
    if folder.is_file():
        raise DeepJoinError(f"{folder} is a file; an index is a folder. Choose another with -o.")
    if folder.is_dir() and not may_write(folder):
        raise DeepJoinError(
            f"{folder} holds something else than an index; "
            f"choose an empty folder, for example: -o {folder / DEFAULT}"
        )


def _refuse_other_source(folder: Path, source: dict[str, Any]) -> None:
    """Replace an index nobody pointed at only when it is of the same tables."""
    try:
        there = read_manifest(folder).source
    except IndexUnusable:
        return
    if there != source:
        of = (folder / there.get("root", "memory")).resolve()
        raise DeepJoinError(
            f"{folder} is the index of other tables ({of}). Say where this one goes with -o."
        )


def _disk_error(folder: Path, error: OSError) -> DeepJoinError:
    short_write = error.errno is None and "requested and" in str(error)  # NumPy's words
    if short_write or error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeepJoinError(
            f"No space left on the disk of {folder}; the index is as it was before. "
            "Free some space, or choose another disk with -o."
        )
    return DeepJoinError(f"Cannot write the index in {folder}: {error.strerror or error}.")
