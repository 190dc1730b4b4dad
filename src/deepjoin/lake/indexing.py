"""`deepjoin.index`: from any source to an open lake, reading only what has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeGuard

from deepjoin.errors import DeepJoinError, IndexUnusable, unknown_name
from deepjoin.lake.build import Means, Progress, Titles, usual_means
from deepjoin.lake.lake import Lake
from deepjoin.lake.manifest import MANIFEST, READS, Described, is_index, may_write
from deepjoin.lake.origin import root_of
from deepjoin.lake.refresh import Refresh, Refreshed
from deepjoin.lake.remote import editing, is_remote, pull
from deepjoin.lake.storage import pending_salt
from deepjoin.lake.updating import refresh_lake
from deepjoin.private import salted
from deepjoin.settings import Settings
from deepjoin.sources import open_sources
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource

DEFAULT = ".deepjoin"


def index(
    source: object,
    out: str | os.PathLike[str] | None = None,
    *,
    settings: Settings | None = None,
    titles: Titles | None = None,
    memory: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    rebuild: bool = False,
    **options: Any,
) -> Lake:
    """Index tables and open the lake; of an index that is there, only what changed is read.

    Parameters
    ----------
    source
        A folder, a file, a glob pattern, a database or bucket URL, or a list of these; a data
        frame, or a dict of name to frame; a column corpus.
    out
        Where the index goes, a folder or a bucket's URL: ``.deepjoin`` inside the source folder
        unless told otherwise, or in the working directory when there is no folder to write to.
    settings
        What is indexed and how cells compare; unless given, those of the index that is
        there already, or the defaults.
    titles
        For names of tables, the (title, context) to use instead of file and folder names.
    memory
        Bytes of distinct cells to hold before they go to disk; 1 GiB.
    threads
        How many chunks of cells are worked on at a time; as many as there are processors.
    progress
        Called after each file or table with (done, of how many, name).
    rebuild
        Read everything again, changed or not.
    **options
        Single fields of `Settings`, such as ``profile="basic"`` or ``min_distinct=2``.
    """
    means = usual_means(threads, memory, progress)
    location, _ = refresh(source, out, settings, titles or {}, means, rebuild, options)
    return open_lake(location)


def refresh(
    source: object,
    out: str | os.PathLike[str] | None,
    settings: Settings | None,
    titles: Titles,
    means: Means,
    rebuild: bool,
    options: Mapping[str, Any],
) -> tuple[str | Path, Refreshed]:
    """Do the work of `index`; returns where the index is and what was found to have changed."""
    if out is None and _is_local_index(source) and not (settings or titles or rebuild or options):
        place = Path(os.fspath(source))
        return place, refresh_lake(place, means)
    location: str | Path = default_folder(source) if out is None else _location(out)
    with editing(location, fresh=rebuild) as folder:
        _refuse_foreign(folder)
        before = _usable(folder)
        chosen = _chosen(folder, before, settings, options)
        sources = open_sources(source, chosen, skip_dirs=[folder])
        described = [one.describe(folder) for one in sources]
        if out is None:
            _refuse_other_source(folder, before, described)
        job = Refresh(folder, chosen, sources, described, titles, means)
        return location, _run(job, before, described, chosen, rebuild)


def _run(
    job: Refresh,
    before: Lake | None,
    described: Sequence[Described],
    chosen: Settings,
    rebuild: bool,
) -> Refreshed:
    """Keep what an index of the same tables has, if it has what a build would store now."""
    if before is None or list(before.sources[: len(described)]) != list(described):
        return job.rebuild(None)
    if described[0]["kind"] == "memory":
        return job.rebuild(None)
    if rebuild or (before.settings, before.reads) != (chosen, READS):
        return job.rebuild(before)
    return job.refresh(before)


def _location(out: str | os.PathLike[str]) -> str | Path:
    return out if isinstance(out, str) and is_remote(out) else Path(out)


def _is_local_index(source: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(source, str | os.PathLike) and is_index(Path(source))


def _usable(folder: Path) -> Lake | None:
    """Open the index that is there, if it is whole."""
    try:
        return Lake(folder)
    except IndexUnusable:
        return None


def _chosen(
    folder: Path, before: Lake | None, settings: Settings | None, options: Mapping[str, Any]
) -> Settings:
    """Change what is asked to be changed; the rest stays as it was indexed before."""
    unknown = options.keys() - {field.name for field in fields(Settings)}
    if unknown:
        names = [field.name for field in fields(Settings)]
        raise unknown_name("option", unknown.pop(), "deepjoin.index", names)
    if settings is None:
        settings = Settings() if before is None else before.settings
    chosen = replace(settings, **options)
    earlier = replace(chosen, salt=pending_salt(folder)) if before is None else before.settings
    return salted(chosen, earlier)


def open_lake(path: str | os.PathLike[str]) -> Lake:
    """Open an index: its folder or URL, or the folder of tables that has one inside.

    A folder of tables without an index is an error here; `deepjoin.index` makes one.
    """
    if isinstance(path, str) and is_remote(path):
        return Lake(pull(path).folder, path)
    folder = Path(path)
    inside = folder / DEFAULT
    return Lake(inside if not is_index(folder) and (inside / MANIFEST).exists() else folder)


def default_folder(source: object) -> Path:
    """Choose where the index of a source goes when the user does not say."""
    first = open_sources(source, Settings())[0]
    root = first.folder if isinstance(first, CorpusSource) else None
    if isinstance(first, FileSource) and first.roots[0].file is None:
        root = first.root
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


def _refuse_other_source(folder: Path, before: Lake | None, described: Sequence[Described]) -> None:
    """Replace an index nobody pointed at only when it is of the same tables."""
    if before is None or list(before.sources[: len(described)]) == list(described):
        return
    first = before.sources[0]
    of = root_of(first, folder) or first.get("url", "memory")
    raise DeepJoinError(
        f"{folder} is the index of other tables ({of}). Say where this one goes with -o."
    )
