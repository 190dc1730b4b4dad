"""Where a lake's tables are kept, so that a hit can be joined long after the index was built."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from xxhash import xxh3_64, xxh3_64_hexdigest

from deepjoin.catalog import TableEntry
from deepjoin.columns import Table
from deepjoin.errors import DeepJoinError
from deepjoin.lake.build import FRAMES
from deepjoin.settings import Settings
from deepjoin.sources import TableSource
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource, Root
from deepjoin.sources.parquet import read_parquet
from deepjoin.sources.walk import is_glob


def describe(source: TableSource | CorpusSource, index: Path) -> dict[str, Any]:
    """Say where a source is, as the manifest stores it: relative to the index folder."""
    if isinstance(source, CorpusSource):
        return {"kind": "corpus", "root": _relative(source.folder, index)}
    if isinstance(source, FileSource):
        paths = [_given(root, index) for root in source.roots]
        return {"kind": "files", "root": _relative(source.root, index), "paths": paths}
    names = "\n".join(table.name for table in source.tables())
    return {"kind": "memory", "tables": xxh3_64_hexdigest(names.encode("utf-8", "replace"))}


def state(source: TableSource | CorpusSource, words: object) -> str:
    """Sum up the files of a source, and other words, so that any change shows; '' if it cannot.

    Names, sizes and times are compared, not contents: a look at a folder must be quick.
    """
    if isinstance(source, CorpusSource):
        files = {"columns.parquet": source.folder / "columns.parquet"}
    elif isinstance(source, FileSource):
        files = source.files()
    else:
        return ""
    digest = xxh3_64(repr(words).encode("utf-8", "replace"))
    for name, path in sorted(files.items()):
        status = path.stat()
        stamp = (name, status.st_size, status.st_mtime_ns)
        digest.update(repr(stamp).encode("utf-8", "replace"))
    return digest.hexdigest()


def _given(root: Root, index: Path) -> str:
    """Write down one place the user named, a pattern or a file's own name unresolved."""
    tail = (root.file.name,) if root.file else root.patterns
    return PurePosixPath(_relative(root.folder, index), *tail).as_posix()


def _relative(path: Path, index: Path) -> str:
    return Path(os.path.relpath(path.resolve(), index.resolve())).as_posix()


class Origin:
    """Opens the tables of an index again."""

    def __init__(
        self, index: Path, source: dict[str, Any], segment: Path, settings: Settings
    ) -> None:
        self._source = source
        self._segment = segment
        self._settings = settings
        self._index = index.resolve()
        self.root = self._found(source["root"]) if "root" in source else None

    def table(self, name: str, number: int) -> Table:
        """Open a table by its name and its number in the lake."""
        if self.root is None:
            path = self._segment / FRAMES / f"{number}.parquet"
            return Table(name, lambda: read_parquet(path))
        if self._source["kind"] == "corpus":
            return CorpusSource(self._root()).table(name)
        return self._files().table(name)

    def key(self, table: str, column: str, column_id: str) -> str:
        """Return the name a hit's column has in its table when that is opened.

        The columns of a corpus may be nameless, or of one name; then only the id tells.
        """
        if self._source["kind"] != "corpus":
            return column
        names = CorpusSource(self._root()).column_names(table)
        return names.get(column_id, column)

    def path(self, name: str) -> Path | None:
        """Return the file that holds a table, if files are what the lake was made of."""
        return self._files().paths(name) if self._source["kind"] == "files" else None

    def has_changed(self, entry: TableEntry) -> bool:
        """Tell whether the file of a table is no longer the one that was indexed."""
        path = self.path(entry.name)
        if path is None or not entry.stamp:
            return False
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) != entry.stamp

    def name_of(self, path: Path) -> str | None:
        """Return the name a file would have as a table of this lake, or None."""
        if self.root is None or self._source["kind"] != "files":
            return None
        # A link inside the lake goes by its own name; one from outside by what it leads to.
        root = self.root.resolve()
        for there in (path.parent.resolve() / path.name, path.resolve()):
            if there.is_relative_to(root):
                return there.relative_to(root).as_posix()
        return None

    def _found(self, relative: str) -> Path:
        return Path(os.path.normpath(self._index / relative))

    def _root(self) -> Path:
        if self.root is None or not self.root.exists():
            raise DeepJoinError(
                f"The tables of this index were in {self.root}, which is gone. "
                "Searches still work; to join, put the folder back or index it again."
            )
        return self.root

    def _files(self) -> FileSource:
        root = self._root()
        paths = [self._found(path) for path in self._source["paths"]]
        # Of several places, those that are left still serve their tables, by the old names.
        there = [path for path in paths if path.exists() or is_glob(str(path))]
        source = FileSource(there or paths, self._settings.include, self._settings.exclude)
        source.root = root
        return source
