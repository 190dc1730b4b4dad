"""`deepjoin.index` and `deepjoin.publish`: build a lake, and copy its vectors to PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.build.engine import BuildResources
from deepjoin.build.pipeline import add_tables
from deepjoin.build.refresh import Refresh, Refreshed
from deepjoin.build.segment_builder import Titles
from deepjoin.engines import engine_named
from deepjoin.errors import DeepJoinError, IndexUnusable, unknown_name
from deepjoin.lake import Lake, open_lake
from deepjoin.normalise.private import salted
from deepjoin.progress import Progress, no_progress
from deepjoin.read import Source, open_sources
from deepjoin.settings import (
    TEXT_FIELDS,
    BuildSettings,
    PublishSettings,
    Settings,
    Vectors,
    deprecated_keywords,
    with_deprecated,
)
from deepjoin.store.manifest import (
    DEFAULT,
    MANIFEST,
    READS,
    Manifest,
    NewerFormat,
    is_index,
    is_remote,
    may_write,
    parse_manifest,
)
from deepjoin.store.models import identified, stored
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.origin import root_of
from deepjoin.store.remote import editing
from deepjoin.store.storage import pending_salt

if TYPE_CHECKING:
    from deepjoin.engines.postgres.publishing import Published

#: Changes of what is indexed or encoded: all of it, or single fields by name.
SettingsChange = Settings | Mapping[str, Any] | None
VectorsChange = Vectors | Mapping[str, Any] | None
#: Fields of `Vectors` that users choose; digests follow from them.
_ENCODED = ("encoder", "cells", "sketch", "index", "metric", *TEXT_FIELDS)


def index(
    source: object,
    out: str | os.PathLike[str] | None = None,
    *,
    encoder: str | None = None,
    profile: str | None = None,
    settings: SettingsChange = None,
    vectors: VectorsChange = None,
    build: BuildSettings | None = None,
    progress: Progress | None = None,
    **deprecated: Any,
) -> Lake:
    """Index tables and open the lake; of an index that exists, only what changed is read.

    Parameters
    ----------
    source
        A folder, a file, a glob pattern, a database or bucket URL, or a list of these; a data
        frame, or a dict of name to frame; a column corpus.
    out
        Folder or bucket URL of the index. Default: ``.deepjoin`` inside the source folder, or in
        the working directory when there is no folder to write to.
    encoder
        Encoder of columns: "default", "none", a model folder or the name of a model; default:
        that of the index that exists.
    profile
        How cells are normalised before they are compared: a field of `Settings`.
    settings
        What is indexed and how cells compare: a `Settings`, or a dict of single fields to change
        in the settings of the index that exists, or in the defaults.
    vectors
        What is encoded: a `Vectors`, or a dict of single fields to change.
    build
        How this build runs: memory, threads, device, engine, titles, whether to rebuild.
    progress
        Called after each file or table with (done, total, name).
    **deprecated
        Fields of `Settings`, `Vectors` and `BuildSettings`; accepted for one more release.
    """
    moved = deprecated_keywords(
        *("index", deprecated, {"vector_index": "index"}),
        settings=Settings,
        vectors=Vectors,
        build=BuildSettings,
    )
    for name, value, field in (("settings", profile, "profile"), ("vectors", encoder, "encoder")):
        moved[name] |= {} if value is None else {field: value}
    how = replace(build or BuildSettings(), **moved["build"])
    with engine_named(how.engine, how.ray_address) as elsewhere:
        resources = BuildResources.of(how, progress, elsewhere)
        location, _ = refresh(
            *(source, out, resources),
            settings=_changed(settings, moved["settings"]),
            vectors=_changed(vectors, moved["vectors"]),
            titles=how.titles,
            rebuild=how.rebuild,
        )
    return open_lake(location, device=how.device)


def refresh(
    source: object,
    out: str | os.PathLike[str] | None,
    resources: BuildResources,
    *,
    settings: SettingsChange = None,
    vectors: VectorsChange = None,
    titles: Titles | None = None,
    rebuild: bool = False,
    needs_tables: bool = False,
) -> tuple[str | Path, Refreshed]:
    """Do the work of `index`; return where the index is and what has changed.

    With ``needs_tables``, sources without any table are an error instead of an empty lake.
    """
    if isinstance(source, str) and is_index(Path(source)):
        source = Path(source)
    if out is not None:
        location = out if isinstance(out, str) and is_remote(out) else Path(out)
    elif isinstance(source, Path) and is_index(source):
        location = source  # refreshed from its own sources
    else:
        location = default_folder(source)
    with editing(location, resources.progress, fresh=rebuild) as folder:
        if folder.is_file():
            raise DeepJoinError(f"{folder} is a file; an index is a folder. Choose another `out`.")
        if folder.is_dir() and not may_write(folder):
            raise DeepJoinError(
                f"{folder} holds something else than an index; "
                f"choose an empty folder, for example: `out='{folder / DEFAULT}'`"
            )
        manifest, before = _earlier(folder, rebuild)
        chosen = _chosen(folder, manifest, settings)
        encoded = _chosen_vectors(location, folder, manifest, chosen, vectors, resources)
        sources = []
        if source != location:
            sources = open_sources(source, chosen, skip_dirs=[folder])
        more: list[Source] = []
        if manifest:
            sources, more = _with_new_databases(folder, manifest, sources)
        may_replace = rebuild and out is not None
        if manifest and not _is_continued(folder, manifest, before, sources, may_replace):
            manifest = before = None
        job = Refresh(folder, resources, chosen, encoded, sources, titles or {}, needs_tables)
        if before is None or rebuild or (before.settings, before.reads) != (chosen, READS):
            done = job.rebuild(before or manifest)
        else:
            done = job.refresh(before)
        for one in more:
            add_tables(folder, one, resources)
        return location, done


def _with_new_databases(
    folder: Path, manifest: Manifest, sources: Sequence[Source]
) -> tuple[list[Source], list[Source]]:
    """Split the sources of a folder: those of its index, and databases that it does not have yet.

    Databases come and go in a folder as files do. One that is gone is a source that cannot be
    reached, and keeps its tables until they are removed.
    """
    described = [one.describe(folder) for one in sources]
    first = list(manifest.sources[:1])
    if len(sources) < 2 or described[:1] != first or sources[0].as_database is not None:
        return list(sources), []
    of_folder = [one.as_database is not None for one in sources[1:]]
    if not all(of_folder) or described == list(manifest.sources[: len(described)]):
        return list(sources), []
    known = list(manifest.sources)
    return list(sources[:1]), [
        one for one, of in zip(sources, described, strict=True) if of not in known
    ]


def _changed(
    given: Settings | Vectors | Mapping[str, Any] | None, changes: Mapping[str, Any]
) -> Any:
    """Apply further changes to settings, or to changes of settings."""
    if isinstance(given, Settings | Vectors):
        return replace(given, **changes)
    return {**(given or {}), **changes}


def _earlier(folder: Path, rebuild: bool) -> tuple[Manifest | None, OpenIndex | None]:
    """Read the manifest of an index that exists, and open it if it is not damaged.

    The manifest of a damaged index still says what it was made of. Where it does not, or where
    only the index has some of the tables, only ``rebuild`` replaces it.
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
        return manifest, OpenIndex(folder)
    except IndexUnusable:
        if not rebuild and any(source["kind"] == "memory" for source in manifest.sources):
            raise
        return manifest, None


def _is_continued(
    folder: Path,
    manifest: Manifest,
    before: OpenIndex | None,
    sources: Sequence[Source],
    may_replace: bool,
) -> bool:
    """Whether the sources are those of the index that exists; if not, they replace it.

    An index of other tables is replaced only if the user asks for it by name, an index of frames
    also if all of its tables come again: no table is lost then.
    """
    described = [one.describe(folder) for one in sources]
    same = list(manifest.sources[: len(described)]) == described
    if same and not (sources and sources[0].in_memory):
        return True
    if may_replace:
        return False
    if before is not None and all(one.in_memory for one in sources):
        names = {table.name for one in sources for table in one.tables()}
        of_frames = all(described["kind"] == "memory" for described in before.sources)
        if of_frames and names.issuperset(before.tables):
            return False
    first = manifest.sources[0]
    of = root_of(first, folder) or first.get("url", "frames")
    raise DeepJoinError(
        f"{folder} is the index of other tables ({of}). Choose another place with `out`, add the "
        "tables with: deepjoin add, or replace it with `out` and `rebuild=True`."
    )


def _chosen(folder: Path, before: Manifest | None, settings: SettingsChange) -> Settings:
    """Apply changes of settings; the rest stays as it was indexed before."""
    if isinstance(settings, Settings):
        chosen = settings
    else:
        earlier = Settings() if before is None else before.settings
        chosen = replace(earlier, **_known_fields(Settings, settings))
    if before is not None and before.settings.hash_only:
        return salted(chosen, before.settings)
    return salted(chosen, replace(chosen, salt=pending_salt(folder)))


def _known_fields(kind: type, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    names = [field.name for field in fields(kind)]
    for name in changes or ():
        if name not in names:
            raise unknown_name("field", name, kind.__name__, names)
    return dict(changes or {})


def _chosen_vectors(
    location: str | Path,
    folder: Path,
    before: Manifest | None,
    settings: Settings,
    vectors: VectorsChange,
    resources: BuildResources,
) -> Vectors:
    """Apply changes of what is encoded, and check that it can be, before anything is read."""
    if isinstance(vectors, Vectors):
        vectors = {name: getattr(vectors, name) for name in _ENCODED}
    wanted = {
        name: value
        for name, value in _known_fields(Vectors, vectors).items()
        if value is not None and name in _ENCODED
    }
    named = [name for name in ("encoder", "cells") if wanted.get(name, "none") != "none"]
    earlier = Vectors() if before is None else before.vectors
    if settings.hash_only:
        if named:
            raise DeepJoinError(
                f"`{named[0]}` is '{wanted[named[0]]}', and an index of hashes has nothing to "
                "encode. Leave it out, or index without `hash_only`."
            )
        earlier = replace(earlier, encoder="none", cells="none")
    place = None if is_remote(location) else folder
    wanted |= {name: stored(wanted[name], place) for name in named}
    if wanted.get("encoder", earlier.encoder) != earlier.encoder:
        # How texts were written for another encoder says nothing about this one.
        earlier = replace(earlier, pattern="", tokens=0, sampling="", unit="")
    chosen = replace(earlier, **wanted)
    if chosen.text and chosen.encoder == "none":
        raise DeepJoinError(
            f"`{chosen.text[0][0]}` is '{chosen.text[0][1]}', which says how columns become texts "
            'for an encoder, and there is none. Add `encoder="default"`, or a model.'
        )
    # A new version may ship other encoders under the same names.
    known = before is not None and before.version == __version__ and chosen == before.vectors
    if known and not named:
        return chosen
    return identified(chosen, settings, folder, resources.threads, resources.device)


def publish(
    lake: Lake | str | os.PathLike[str],
    vector_store: str | Sequence[str],
    *,
    name: str | None = None,
    spaces: Sequence[str] | None = None,
    replace: bool = False,
    settings: PublishSettings | None = None,
    progress: Progress | None = None,
    **deprecated: Any,
) -> Published:
    """Copy the column vectors of an index to PostgreSQL; a later call copies only what is new.

    Parameters
    ----------
    lake
        An open lake, or where its index is.
    vector_store
        The address of a PostgreSQL database with pgvector; of several, each gets a share.
    name
        Name of the lake in the store; default: its folder's. Two lakes that have the same path
        on different machines need different names.
    spaces
        Which vectors: "columns", "sketch" and "both"; default: all that the index has.
    replace
        Replace another lake that is published under this name.
    settings
        How the vectors are indexed and searched there.
    progress
        Called with (done, total, what).
    **deprecated
        Fields of `PublishSettings`; accepted for one more release.
    """
    from deepjoin.engines.postgres.publishing import publish_index

    return publish_index(
        (lake if isinstance(lake, Lake) else open_lake(lake)).index,
        vector_store,
        name=name,
        spaces=spaces,
        replace=replace,
        settings=with_deprecated("publish", settings, PublishSettings, deprecated),
        progress=progress or no_progress,
    )


def default_folder(source: object) -> Path:
    """Choose the folder of an index when the user does not."""
    first = open_sources(source, Settings())[0]
    if first.folder is not None and os.access(first.folder, os.W_OK):
        return first.folder / DEFAULT
    return Path(DEFAULT)
