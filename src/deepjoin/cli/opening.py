"""What several commands need: opening an index by path, indexing with a bar, sizes in words."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from deepjoin.build.build import usual_means
from deepjoin.build.engine import engine_named
from deepjoin.build.refresh import Refreshed
from deepjoin.cli.progress import progress_bar
from deepjoin.cli.wording import in_options
from deepjoin.errors import DeepJoinError, IndexUnusable
from deepjoin.indexing import open_lake, refresh
from deepjoin.lake import Lake
from deepjoin.settings import BuildSettings
from deepjoin.show.terminal import printable
from deepjoin.store.manifest import DEFAULT, MANIFEST, is_index
from deepjoin.store.remote import is_remote

#: Where the addresses of a vector store may be: they may hold a password.
STORE_VARIABLE = "DEEPJOIN_VECTOR_STORE"


def open_or_index(path: str, device: str | None = None, vector_store: Sequence[str] = ()) -> Lake:
    """Open an index; a plain folder of tables is indexed first."""
    lake = _opened(path, device, vector_store)
    if lake is not None:
        if not lake.report.tables:
            say(f"{lake.location} holds no tables.")
        return lake
    folder = Path(path)
    if not folder.exists():
        near = difflib.get_close_matches(folder.name, _folders(folder.parent), n=1)
        hint = f" Did you mean '{folder.parent / near[0]}'?" if near else ""
        raise DeepJoinError(
            f"No index or folder '{path}'.{hint} Make one with: deepjoin index SOURCE"
        )
    if folder.is_file():
        raise DeepJoinError(
            f"'{path}' is a file, not an index. The index comes first: deepjoin search INDEX FILE"
        )
    say(f"No index in {path} yet: indexing it.")
    made = index_with_progress(folder, build=BuildSettings(device=device))
    return open_lake(made.path, device=device, vector_store=vector_store) if vector_store else made


def vector_store(options: argparse.Namespace) -> list[str]:
    """Give the addresses of the vector store: the command's, or the environment's."""
    return list(options.vector_store or os.environ.get(STORE_VARIABLE, "").split())


def open_index(path: str) -> Lake:
    """Open an index to change it; it has to be there."""
    lake = _opened(path)
    return open_lake(path) if lake is None else lake


def _opened(path: str, device: str | None = None, vector_store: Sequence[str] = ()) -> Lake | None:
    """Open the index a path stands for: at a URL, the folder itself, in it, or here."""
    if is_remote(path):
        return open_lake(path, device=device, vector_store=vector_store)
    folder = Path(path)
    for place in (folder, folder / DEFAULT, Path(DEFAULT)):
        if _is_index_of(place, folder):
            return open_lake(place, device=device, vector_store=vector_store)
    return None


def _is_index_of(index: Path, folder: Path) -> bool:
    """Tell whether an index is the one meant by a folder: itself, inside it, or here."""
    if index == folder:
        return is_index(folder)
    if index == folder / DEFAULT or not (index / MANIFEST).exists():
        return (index / MANIFEST).exists()
    # A folder that cannot be written to has its index in the working directory.
    try:
        root = Lake(index).index.root
    except IndexUnusable:
        return False
    return root is not None and root.resolve() == folder.resolve()


def _folders(parent: Path) -> list[str]:
    try:
        return [entry.name for entry in parent.iterdir() if entry.is_dir()]
    except OSError:
        return []


def index_with_progress(
    source: object,
    out: str | None = None,
    build: BuildSettings | None = None,
    settings: Mapping[str, Any] | None = None,
    vectors: Mapping[str, Any] | None = None,
) -> Lake:
    """Index a source, a progress bar on stderr when a person is watching."""
    how = build or BuildSettings()
    # Ray's nodes report on stdout what went wrong with a worker; stdout is for results.
    aside = redirect_stdout(sys.stderr) if how.engine == "ray" else nullcontext()
    with (
        aside,
        engine_named(how.engine, how.ray_address, say) as elsewhere,
        progress_bar() as progress,
    ):
        means = usual_means(how.threads, how.memory, progress, how.device, elsewhere)
        location, found = refresh(
            *(source, out, means),
            settings=settings,
            vectors=vectors,
            titles=how.titles,
            rebuild=how.rebuild,
        )
    lake = open_lake(location, device=how.device)
    for text in found.unreachable:
        say(f"Not looked at, its tables stay as they were: {in_options(text)}")
    if lake.report.tables and not found and found.encoded:
        say(f"Encoded what {lake.location} holds: {described_vectors(lake)}.")
        return lake
    if lake.report.tables and not found:
        say(f"Nothing has changed since {lake.location} was made (--rebuild makes it anew).")
        return lake
    report = lake.report
    if not report.tables:
        say("No tables found: nothing to search or join yet.")
    if found and not found.whole:
        say(_changes(found))
    say(
        f"Indexed {report.tables:,} {'table' if report.tables == 1 else 'tables'}: "
        f"{report.columns:,} columns, {report.values:,} distinct "
        f"values, {human_size(lake.info()['bytes'])} in {lake.location}."
    )
    for text in left_out_lines(lake):
        say(text)
    return lake


def described_vectors(lake: Lake) -> str:
    """Say what is encoded beside the values."""
    chosen = lake.vectors
    return f"cells by {chosen.cells}, columns by {chosen.encoder}, " + (
        f"sketches of {chosen.sketch} numbers" if chosen.sketch else "no sketches"
    )


def _changes(found: Refreshed) -> str:
    """Say how many files or tables were read, and which were not there any more."""
    counts = {
        "new": found.new - found.renamed,
        "changed": found.changed,
        "renamed": found.renamed,
        "gone": found.gone - found.renamed,
    }
    return (
        "Found " + ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) + "."
    )


def say_names(what: str, names: Sequence[str], lake: Lake, form: str) -> None:
    """List tables that came or went."""
    if form == "json":
        print(json.dumps({"index": str(lake.location), "tables": list(names)}, ensure_ascii=False))
    else:
        for name in names:
            print(printable(name))
    say(
        f"{what} {len(names):,} {'table' if len(names) == 1 else 'tables'}; "
        f"{lake.location} has {lake.report.tables:,} now."
    )


def left_out_lines(lake: Lake, shown: int = 5) -> Iterator[str]:
    """Say what is not in the index, and why."""
    report = lake.report
    if report.left_out:
        reasons = ", ".join(
            f"{count:,} {reason}" for reason, count in report.left_out.most_common()
        )
        yield f"Columns left out: {reasons}."
    if report.notes:
        mended = len({table for table, _ in report.notes})
        yield f"Mended while being read: {mended:,}; see: deepjoin info {lake.location}"
    if report.skipped:
        yield f"Not read: {len(report.skipped):,}."
        for one in report.skipped[:shown]:
            yield f"  {one.name}: {one.reason}"
        if len(report.skipped) > shown:
            yield f"  and {len(report.skipped) - shown:,} more; see: deepjoin info {lake.location}"


def say(text: str) -> None:
    """Tell the person, not the pipe."""
    print(printable(text), file=sys.stderr)


def human_size(size: float) -> str:
    """Write bytes for people.

    >>> human_size(512), human_size(3_400_000)
    ('512 B', '3.2 MB')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
