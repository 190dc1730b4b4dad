"""Open an index by its path, or index a folder of tables first."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_hexdigest

from deepjoin.cli.output import (
    described_vectors,
    human_size,
    left_out_lines,
    progress_bar,
    say,
)
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.lake import Lake, open_lake
from deepjoin.progress import Progress
from deepjoin.settings import BuildSettings
from deepjoin.show.text import count
from deepjoin.store.manifest import DEFAULT, MANIFEST, is_index, is_remote

if TYPE_CHECKING:
    from deepjoin.build.engine import BuildResources

#: Addresses of a vector store; in the environment, since they may hold a password.
STORE_VARIABLE = "DEEPJOIN_VECTOR_STORE"


def vector_store(options: argparse.Namespace) -> list[str]:
    """Return the addresses of the vector store, of the option or else of the environment."""
    return list(options.vector_store or os.environ.get(STORE_VARIABLE, "").split())


def open_index(path: str) -> Lake:
    """Open an existing index."""
    lake = _opened(path)
    return open_lake(path) if lake is None else lake


def open_or_index(
    path: str,
    device: str | None = None,
    vector_store: Sequence[str] = (),
    vectors: Mapping[str, Any] | None = None,
) -> Lake:
    """Open an index; a plain folder of tables is indexed first, with these ``vectors``."""
    lake = _opened(path, device, vector_store)
    if lake is not None:
        if not lake.report.tables:
            say(f"{lake.location} has no tables.")
        return lake
    folder = Path(path)
    if not folder.exists():
        # Do not index a misspelt path into an empty lake.
        try:
            folders = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()]
        except OSError:
            folders = []
        near = difflib.get_close_matches(folder.name, folders, n=1)
        hint = f" Did you mean '{folder.parent / near[0]}'?" if near else ""
        raise DeepJoinError(
            f"No index or folder '{path}'.{hint} To make an index: deepjoin index SOURCE"
        )
    # A table given first is the likely mistake, since other tools take the file first.
    if folder.is_file():
        raise DeepJoinError(
            f"'{path}' is a file, not an index. The index comes first: deepjoin search INDEX FILE"
        )
    say(f"No index in {path} yet: indexing it.")
    made = index_with_progress(folder, build=BuildSettings(device=device), vectors=vectors)
    return open_lake(made.path, device=device, vector_store=vector_store) if vector_store else made


def open_or_index_source(source: str) -> Lake:
    """Open an index, or index a folder, a file or a database first, each in a place of its own.

    The index of a folder is inside it, that of a file beside it, and that of a database elsewhere
    is in the working directory, named after its address.
    """
    from deepjoin.read.database import is_database, shown

    if is_remote(source) and is_database(source):
        # Without the password, which must not show in a name.
        address = shown(source).partition("?")[0]
        place = Path(re.sub(r"\W+", "-", address).strip("-") + DEFAULT)
    elif Path(source).is_file():
        path = Path(source)
        place = path.with_name(path.name + DEFAULT)
        if not os.access(path.parent, os.W_OK):
            place = Path(place.name)
    else:
        return open_or_index(source)
    named = shown(source) if is_remote(source) else source
    if is_index(place):
        lake = open_lake(place)
        if _is_of(lake, source):
            return lake
        # a-b and a.b have one name, and so have files of two folders that cannot be written.
        whole = named if is_remote(source) else str(Path(source).resolve())
        digest = xxh3_64_hexdigest(whole.encode())[:8]
        place = place.with_name(f"{place.name.removesuffix(DEFAULT)}-{digest}{DEFAULT}")
        if is_index(place):
            return open_lake(place)
    say(f"No index of {named} yet: indexing it in {place}.")
    return index_with_progress(source, str(place))


def _is_of(lake: Lake, source: str) -> bool:
    """Check whether a lake is that of a source, and not of another one that gave it its name."""
    from deepjoin.read import open_sources
    from deepjoin.read.database import shown

    place, known = Path(lake.path), list(lake.index.sources)
    try:
        described = [one.describe(place) for one in open_sources(source, lake.settings)]
    except DeepJoinError:  # it is gone, or needs a driver that is not here: its index still answers
        last = shown(source).rpartition("/")[2]
        return any(str(one.get("url", "")).endswith(last) for one in known)
    return known[: len(described)] == described


def _opened(path: str, device: str | None = None, vector_store: Sequence[str] = ()) -> Lake | None:
    """Open the index that a path stands for: at a URL, the folder itself, inside it, or here."""
    if is_remote(path):
        return open_lake(path, device=device, vector_store=vector_store)
    folder, here = Path(path), Path(DEFAULT)
    place = None
    if is_index(folder):
        place = folder
    elif (folder / DEFAULT / MANIFEST).exists():
        place = folder / DEFAULT
    elif (here / MANIFEST).exists():
        # A folder that cannot be written to has its index in the working directory.
        try:
            root = Lake(here).index.root
        except IndexUnusable:
            return None
        place = here if root is not None and root.resolve() == folder.resolve() else None
    if place is None:
        return None
    return open_lake(place, device=device, vector_store=vector_store)


def build_resources(memory: int, progress: Progress, device: str | None) -> BuildResources:
    """Return what a command that writes an index may use; notices are printed."""
    from deepjoin.build.engine import BuildResources

    settings = BuildSettings(memory=memory, device=device)
    return replace(BuildResources.of(settings, progress, None), notify=say)


def index_with_progress(
    source: object,
    out: str | None = None,
    build: BuildSettings | None = None,
    settings: Mapping[str, Any] | None = None,
    vectors: Mapping[str, Any] | None = None,
) -> Lake:
    """Index a source, show progress on stderr, and report what changed."""
    # Commands that only open an index do without the parts that build one.
    from deepjoin.build.engine import BuildResources
    from deepjoin.engines import engine_named
    from deepjoin.indexing import refresh

    build = build or BuildSettings()
    # Ray's nodes write errors of workers to stdout, which is for results.
    redirected = redirect_stdout(sys.stderr) if build.engine == "ray" else nullcontext()
    with (
        redirected,
        engine_named(build.engine, build.ray_address, say) as engine,
        progress_bar() as progress,
    ):
        resources = replace(BuildResources.of(build, progress, engine), notify=say)
        location, found = refresh(
            *(source, out, resources),
            settings=settings,
            vectors=vectors,
            titles=build.titles,
            rebuild=build.rebuild,
            needs_tables=True,
        )
    lake = open_lake(location, device=build.device)
    report = lake.report
    for text in found.unreachable:
        say(f"Not reachable, its tables are kept as they were: {text}")
    if report.tables and not found and found.encoded:
        say(f"Encoded the columns of {lake.location}: {described_vectors(lake)}.")
        return lake
    if report.tables and not found:
        say(f"Nothing has changed since {lake.location} was made (--rebuild makes it anew).")
        return lake
    if found and not found.whole:
        counts = {
            "new": found.new - found.renamed,
            "changed": found.changed,
            "renamed": found.renamed,
            "deleted": found.gone - found.renamed,
        }
        changes = [f"{count:,} {what}" for what, count in counts.items() if count]
        say(f"Found {', '.join(changes)}.")
    say(
        f"Indexed {count(report.tables, 'table')}: {report.columns:,} columns, "
        f"{report.values:,} distinct values, {human_size(lake.info()['bytes'])} in {lake.location}."
    )
    for text in left_out_lines(lake):
        say(text)
    return lake
