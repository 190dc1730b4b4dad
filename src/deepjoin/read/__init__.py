"""Where tables come from: files, databases, buckets, data frames and column corpora."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, Table
from deepjoin.read.formats import title_of
from deepjoin.read.source import Description, Location, Skipped, Source
from deepjoin.settings import Settings

__all__ = [
    "KINDS",
    "Description",
    "Skipped",
    "Source",
    "TableSource",
    "open_sources",
    "reopen",
    "title_of",
]

ALLOWED = (
    "a folder, a file, a pattern such as 'data/**/*.csv', a URL of a database or bucket, or a "
    "list of these; a pandas, polars or Arrow frame, or a dict of name to frame; a list of "
    "deepjoin.Table or deepjoin.Column"
)
#: The module of each kind of source; its ``reopen`` makes a source from its description.
KINDS = {
    "files": "deepjoin.read.files",
    "corpus": "deepjoin.read.corpus",
    "bucket": "deepjoin.read.bucket",
    "database": "deepjoin.read.database",
}
#: Kinds of which nothing is left to open: frames of an earlier process, sources removed since.
_NOT_REOPENED = ("memory", "gone")
# A scheme has two letters at least, so that C:// is a path.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@runtime_checkable
class TableSource(Protocol):
    """The least a user's own object must do to be indexed: list its tables, in a fixed order.

    Its tables are taken as if they were in memory; `Source` is what deepjoin's own sources do.
    ``skipped`` says what the latest listing passed over; it is complete when the listing is.
    """

    skipped: list[Skipped]

    def tables(self) -> Iterator[Table]:
        """Yield every table, unread."""


def open_sources(
    source: object, settings: Settings, skip_dirs: Iterable[Location] = ()
) -> list[Source]:
    """Open whatever the user passed, one source of each kind; ``skip_dirs`` are not entered.

    >>> (source,) = open_sources({"cities": {"id": [1, 2]}}, Settings())
    >>> [table.name for table in source.tables()]
    ['cities']
    """
    from deepjoin.read.frames import MemorySource, is_frame

    if isinstance(source, (str, os.PathLike)):
        return _open_locations([source], settings, skip_dirs)
    if isinstance(source, (Table, Column)):
        return [MemorySource.of_items([source])]
    if isinstance(source, Mapping) or is_frame(source):
        return [MemorySource.of_frames(source)]
    if isinstance(source, (list, tuple)):
        return _open_list(source, settings, skip_dirs)
    if isinstance(source, Source):
        return [source]
    if isinstance(source, TableSource):
        return [MemorySource(list(source.tables()))]
    raise DeepJoinError(f"Cannot take tables from {_type_name(source)}. Allowed: {ALLOWED}.")


def _open_list(
    items: Sequence[object], settings: Settings, skip_dirs: Iterable[Location]
) -> list[Source]:
    from deepjoin.read.frames import MemorySource, is_frame

    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    given = [item for item in items if isinstance(item, (Table, Column))]
    if items and len(paths) == len(items):
        return _open_locations(paths, settings, skip_dirs)
    if items and len(given) == len(items):
        return [MemorySource.of_items(given)]
    if any(is_frame(item) for item in items):
        raise DeepJoinError("A list of frames has no table names: pass a dict of name to frame.")
    kinds = ", ".join(sorted({_type_name(item) for item in items})) or "nothing"
    raise DeepJoinError(f"Cannot take tables from a list of {kinds}. Allowed: {ALLOWED}.")


def _open_locations(
    locations: Sequence[Location], settings: Settings, skip_dirs: Iterable[Location]
) -> list[Source]:
    """Open databases and buckets one by one, and all files together."""
    from deepjoin.read.corpus import CorpusSource, is_corpus
    from deepjoin.read.files import FileSource

    texts = [os.fspath(location) for location in locations]
    corpora = [text for text in texts if not _URL.match(text) and is_corpus(_path(text))]
    if corpora and len(texts) > 1:
        raise DeepJoinError(f"'{corpora[0]}' is a column corpus; give it on its own.")
    if corpora:
        return [CorpusSource(corpora[0])]
    opened = {text: _open_service(text, settings) for text in texts}
    files = [text for text, source in opened.items() if source is None]
    sources = [source for source in opened.values() if source is not None]
    # Several databases often have tables of the same names.
    if sum(source.as_database is not None for source in sources) > 1:
        sources = [source.apart() if source.as_database else source for source in sources]
    for text in files:
        sources += _databases_in(_path(text), settings, skip_dirs)
    if files:
        sources.insert(0, FileSource(files, settings, skip_dirs))
    return sources


def _databases_in(
    folder: Path, settings: Settings, skip_dirs: Iterable[Location]
) -> Iterator[Source]:
    """Open the database files below a folder, each a source with a name of its own."""
    from deepjoin.read.database import DatabaseSource
    from deepjoin.read.database.url import is_readable_file
    from deepjoin.read.walk import is_wanted, walk

    if not folder.is_dir():
        return
    left = {os.path.realpath(path) for path in skip_dirs}
    found = walk(
        str(folder),
        lambda entry: os.path.realpath(entry.path) not in left,
        lambda path, reason, passing: None,  # the source of the files reports it
    )
    for path, status in found:
        name = os.path.relpath(path, folder)
        if status is None or not isinstance(status, os.stat_result):
            continue
        if is_wanted(Path(name).as_posix(), (), settings.exclude) and is_readable_file(Path(path)):
            yield DatabaseSource(path, settings, Path(name).with_suffix("").as_posix())


def _open_service(location: str, settings: Settings) -> Source | None:
    """Open a database or a bucket; None for files and folders of tables."""
    is_url = _URL.match(location)
    if not is_url and not os.path.isfile(_path(location)):
        return None
    from deepjoin.read import database

    if database.is_database(location):
        return database.DatabaseSource(location, settings)
    if not is_url:
        return None
    from deepjoin.read.bucket import BucketSource

    return BucketSource(location, settings)


def reopen(described: Description, index: Path, settings: Settings) -> Source | None:
    """Open a source again from its description; None where there is nothing to open.

    A source whose place no longer exists raises an error that says so.
    """
    kind = described["kind"]
    if kind in _NOT_REOPENED:
        return None
    if kind not in KINDS:
        raise DeepJoinError(f"{index} has tables of a kind this version does not know: '{kind}'.")
    source: Source = import_module(KINDS[kind]).reopen(described, index, settings)
    return source


def _path(location: str) -> Path:
    return Path(location).expanduser()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
