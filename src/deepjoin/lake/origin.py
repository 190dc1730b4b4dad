"""Where a lake's tables are kept, so that a hit can be joined long after the index was built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deepjoin.columns import Table
from deepjoin.errors import DeepJoinError
from deepjoin.settings import Settings
from deepjoin.sources import TableSource
from deepjoin.sources.corpus import CorpusSource
from deepjoin.sources.files import FileSource
from deepjoin.sources.parquet import read_parquet

#: Folder, inside the index, of the tables that came from memory.
FRAMES = "frames"


def describe(source: TableSource | CorpusSource, index: Path) -> dict[str, Any]:
    """Say where a source is, as the manifest stores it: relative to the index folder."""
    if isinstance(source, CorpusSource):
        return {"kind": "corpus", "root": _relative(source.folder, index)}
    if isinstance(source, FileSource):
        given = [str(root.file or root.folder.joinpath(*root.patterns)) for root in source.roots]
        paths = [Path(os.path.relpath(path, index.resolve())).as_posix() for path in given]
        return {"kind": "files", "root": _relative(source.root, index), "paths": paths}
    return {"kind": "memory"}


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

    def path(self, name: str) -> Path | None:
        """Return the file that holds a table, if files are what the lake was made of."""
        return self._files().paths(name) if self._source["kind"] == "files" else None

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
        self._root()
        paths = [self._found(path) for path in self._source["paths"]]
        return FileSource(paths, self._settings.include, self._settings.exclude)
