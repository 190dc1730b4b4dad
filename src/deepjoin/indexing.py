"""`deepjoin.index`: from any source to an open lake, reading only what has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from deepjoin import settings as settings_of
from deepjoin._version import __version__
from deepjoin.build.build import Means, Progress, Titles, usual_means
from deepjoin.build.engine import engine_named
from deepjoin.build.refresh import Refresh, Refreshed
from deepjoin.errors import DeepJoinError, IndexUnusable, unknown_name
from deepjoin.lake import Lake
from deepjoin.normalise.private import salted
from deepjoin.read import Source, open_sources
from deepjoin.settings import Settings, Vectors
from deepjoin.store.manifest import (
    MANIFEST,
    READS,
    Described,
    Manifest,
    NewerFormat,
    is_index,
    may_write,
    parse_manifest,
)
from deepjoin.store.models import identified, stored
from deepjoin.store.origin import root_of
from deepjoin.store.remote import editing, is_remote, pull
from deepjoin.store.storage import pending_salt

DEFAULT = ".deepjoin"
#: Options of what is encoded; the others are of what is indexed.
_VECTORS = {"encoder", "cells", "sketch", "vector_index", "metric"}


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
    encoder: str | None = None,
    cells: str | None = None,
    sketch: int | None = None,
    vector_index: str | None = None,
    metric: str | None = None,
    device: str | None = None,
    engine: str | None = None,
    ray_address: str | None = None,
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
    encoder
        What gives each column a vector: "default", "none", a model folder or a model's name;
        unless given, that of the index that is there already.
    cells
        What gives each value a vector: "default", "none", a folder made by
        ``deepjoin.lab.cell_table.make``, or a file of fastText vectors.
    sketch
        How many numbers a column's sketch has, for the methods that use one; 0 for none.
    vector_index
        How column vectors are searched: "auto", "flat", "hnsw", "ivfpq" and others
        (``deepjoin.embed.vector_index.kinds.KINDS``).
    metric
        How near column vectors are: "cosine" or "euclidean".
    device
        Where an encoder that runs on torch works, and the lake that is returned: see
        `deepjoin.open`.
    engine
        Who reads the tables and encodes the columns: "local", this process, or "ray", the
        workers of a Ray cluster, which must see the same files. The index is the same.
    ray_address
        Where the cluster is: unless given, RAY_ADDRESS, or one that runs on this machine; where
        none does, one is started for as long as it is needed.
    **options
        Single fields of `Settings`, such as ``profile="basic"`` or ``min_distinct=2``.
    """
    encode = {"encoder": encoder, "cells": cells, "sketch": sketch}
    options |= encode | {"vector_index": vector_index, "metric": metric}
    with engine_named(engine, ray_address) as elsewhere:
        means = usual_means(threads, memory, progress, device, elsewhere)
        location, _ = refresh(source, out, settings, titles or {}, means, rebuild, options)
    return open_lake(location, device=device)


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
    if isinstance(source, str) and is_index(Path(source)):
        source = Path(source)
    location = _place(source, out)
    with editing(location, fresh=rebuild) as folder:
        _refuse_foreign(folder)
        manifest, before = _earlier(folder, rebuild)
        asked = {name: options[name] for name in options.keys() & _VECTORS}
        options = {name: options[name] for name in options.keys() - _VECTORS}
        chosen = _chosen(folder, manifest, settings, options)
        vectors = chosen_vectors(location, folder, manifest, chosen, asked, means)
        sources = []  # of an index that is to look again, they are those it has
        if source != location:
            sources = open_sources(source, chosen, skip_dirs=[folder])
        described = [one.describe(folder) for one in sources]
        if manifest is not None and not _is_index_of(manifest, described):
            if not (rebuild and out is not None) and not _keeps_all(before, sources):
                raise _other_tables(folder, manifest)
            manifest = before = None
        job = Refresh(folder, chosen, vectors, sources, described, titles, means)
        if before is None or rebuild or (before.settings, before.reads) != (chosen, READS):
            return location, job.rebuild(before or manifest)
        return location, job.refresh(before)


def _place(source: object, out: str | os.PathLike[str] | None) -> str | Path:
    """Choose where the index goes, or is: an index can be its own source."""
    if out is not None:
        return out if isinstance(out, str) and is_remote(out) else Path(out)
    if isinstance(source, Path) and is_index(source):
        return source
    return default_folder(source)


def _is_index_of(manifest: Manifest, described: Sequence[Described]) -> bool:
    """Tell whether an index is of these sources; of frames, the new ones take their place."""
    same = list(manifest.sources[: len(described)]) == list(described)
    return same and not (described and described[0]["kind"] == "memory")


def _earlier(folder: Path, rebuild: bool) -> tuple[Manifest | None, Lake | None]:
    """Read what index is there, and open it if it is whole.

    A damaged one still says what it was made of; where it does not, or where only the index
    has some of the tables, it is replaced only if that is asked for.
    """
    if not (folder / MANIFEST).exists():
        return None, None
    try:
        manifest = parse_manifest(folder)
    except NewerFormat:
        raise
    except IndexUnusable:
        if not rebuild:
            raise
        return None, None
    try:
        return manifest, Lake(folder)
    except IndexUnusable:
        if not rebuild and any(source["kind"] == "memory" for source in manifest.sources):
            raise
        return manifest, None


def _chosen(
    folder: Path, before: Manifest | None, settings: Settings | None, options: Mapping[str, Any]
) -> Settings:
    """Change what is asked to be changed; the rest stays as it was indexed before."""
    unknown = options.keys() - {field.name for field in fields(Settings)}
    if unknown:
        names = [field.name for field in fields(Settings)]
        raise unknown_name("option", unknown.pop(), "deepjoin.index", names)
    if settings is None:
        settings = Settings() if before is None else before.settings
    chosen = replace(settings, **options)
    if before is not None and before.settings.hash_only:
        return salted(chosen, before.settings)
    return salted(chosen, replace(chosen, salt=pending_salt(folder)))


def chosen_vectors(
    location: str | Path,
    folder: Path,
    before: Manifest | None,
    settings: Settings,
    asked: Mapping[str, Any],
    means: Means,
) -> Vectors:
    """Change what is asked to be encoded, and see that it can be, before anything is read."""
    wanted = {name: value for name, value in asked.items() if value is not None}
    if "vector_index" in wanted:
        wanted["index"] = wanted.pop("vector_index")
    named = [name for name in ("encoder", "cells") if wanted.get(name, "none") != "none"]
    earlier = settings_of.USUAL_VECTORS if before is None else before.vectors
    if settings.hash_only:
        if named:
            raise DeepJoinError(
                f"{named[0]} is '{wanted[named[0]]}', and a lake of hashes has nothing to encode. "
                "Leave it out, or index without --hash-only."
            )
        earlier = replace(earlier, encoder="none", cells="none")
    place = None if is_remote(location) else folder
    wanted |= {name: stored(wanted[name], place) for name in named}
    chosen = replace(earlier, **wanted)
    # Another version may come with other encoders of the same names.
    known = before is not None and before.version == __version__ and chosen == before.vectors
    if known and not named:
        return chosen
    return identified(chosen, settings, folder, means.threads, means.device)


def open_lake(
    path: str | os.PathLike[str],
    *,
    device: str | None = None,
    vector_store: str | Sequence[str] | None = None,
) -> Lake:
    """Open an index: its folder or URL, or the folder of tables that has one inside.

    A folder of tables without an index is an error here; `deepjoin.index` makes one.

    With a ``device``, "cuda" or "cuda:1", the methods with column vectors compare a query with
    every one of them there; an encoder that runs on torch works there too, the default one does
    not. Needs torch, the extra ``train``.

    With a ``vector_store``, "postgresql://host/vectors" or several such addresses, the methods
    with column vectors ask PostgreSQL, where `deepjoin publish` has put them; while it is down, the
    others go on. It takes the place of a device. Needs psycopg, the extra ``postgres``.
    """
    if isinstance(path, str) and is_remote(path):
        return Lake(pull(path).folder, path, device, vector_store)
    folder = Path(path)
    inside = folder / DEFAULT
    within = not is_index(folder) and (inside / MANIFEST).exists()
    return Lake(inside if within else folder, device=device, vector_store=vector_store)


def default_folder(source: object) -> Path:
    """Choose where the index of a source goes when the user does not say."""
    first = open_sources(source, Settings())[0]
    if first.folder is not None and os.access(first.folder, os.W_OK):
        return first.folder / DEFAULT
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


def _keeps_all(before: Lake | None, sources: Sequence[Source]) -> bool:
    """Tell whether frames take the place of an index of frames without losing any of them."""
    if before is None or not all(one.in_memory for one in sources):
        return False
    names = {table.name for one in sources for table in one.tables()}
    kinds = {source["kind"] for source in before.sources}
    return kinds == {"memory"} and set(before.tables) <= names


def _other_tables(folder: Path, manifest: Manifest) -> DeepJoinError:
    first = manifest.sources[0]
    of = root_of(first, folder) or first.get("url", "frames")
    return DeepJoinError(
        f"{folder} is the index of other tables ({of}). Say where this one goes with -o, put the "
        "tables in with deepjoin add, or replace it with -o and --rebuild."
    )
