"""`deepjoin.index`: from any source to an open lake."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deepjoin._version import __version__
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.lake.build import Progress, Titles, build_segment
from deepjoin.lake.lake import Lake
from deepjoin.lake.origin import FRAMES, describe
from deepjoin.lake.storage import MANIFEST, commit, is_index, may_write, read_manifest, writing
from deepjoin.settings import Settings
from deepjoin.sources import TableSource, open_source
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource

DEFAULT = ".deepjoin"
#: Distinct cells held in memory before they go to disk; a build needs about three times this.
MEMORY = 1 << 30


def index(
    source: object,
    out: str | os.PathLike[str] | None = None,
    *,
    profile: str = "default",
    settings: Settings | None = None,
    titles: Titles | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Lake:
    """Index tables and open the lake.

    Parameters
    ----------
    source
        A folder, a file, a glob pattern or a list of these; a data frame, or a dict of name
        to frame; a column corpus.
    out
        Where the index goes: ``.deepjoin`` inside the source folder unless told otherwise,
        or in the working directory when there is no folder to write to.
    profile
        How cells are compared: "default", or "basic" for strip and lower-case only.
    settings
        Everything else that decides what is indexed; overrides ``profile``.
    titles
        For names of tables, the (title, context) to use instead of file and folder names.
    memory
        Bytes of distinct cells to hold before they go to disk.
    progress
        Called after each table with (done, of how many, name).
    """
    chosen = settings or Settings(profile=profile)
    opened = open_source(source, chosen)
    folder = Path(out) if out is not None else default_folder(opened)
    _refuse_foreign(folder)
    if out is None:
        _refuse_other_source(folder, describe(opened, folder))
    try:
        with writing(folder) as scratch:
            built = scratch / "segment"
            build_segment(
                *(opened, chosen, built, scratch / "spill", memory),
                progress or (lambda done, of, name: None),
                titles,
            )
            _keep_frames(opened, built)
            commit(folder, built, __version__, chosen, describe(opened, folder))
    except OSError as error:
        raise _disk_error(folder, error) from None
    return Lake(folder)


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


def _keep_frames(source: TableSource | CorpusSource, built: Path) -> None:
    """Store tables that live in memory only, so that hits can be joined after a restart."""
    if isinstance(source, FileSource | CorpusSource):
        return
    (built / FRAMES).mkdir()
    for number, table in enumerate(source.tables()):
        batches = list(table.open())
        whole = pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in batches] or [pa.table({})],
            promote_options="default",
        )
        pq.write_table(whole, built / FRAMES / f"{number}.parquet")


def _disk_error(folder: Path, error: OSError) -> DeepJoinError:
    short_write = error.errno is None and "requested and" in str(error)  # NumPy's words
    if short_write or error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeepJoinError(
            f"No space left on the disk of {folder}; the index is as it was before. "
            "Free some space, or choose another disk with -o."
        )
    return DeepJoinError(f"Cannot write the index in {folder}: {error.strerror or error}.")
