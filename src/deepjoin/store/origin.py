"""Where a lake's tables are kept, so that they can be listed and joined again later."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepjoin.checksums import verify_file
from deepjoin.errors import UnreadableTable
from deepjoin.model import Table
from deepjoin.normalise.private import hidden_text, key
from deepjoin.read import reopen
from deepjoin.read.frames import read_columns
from deepjoin.read.parquet import read_parquet
from deepjoin.read.source import file_digest, file_stamp
from deepjoin.store.ledger import entries_of
from deepjoin.store.manifest import SEGMENTS, Described, read_manifest
from deepjoin.store.segment import FRAMES, Segment

if TYPE_CHECKING:
    from deepjoin.store.open_index import OpenIndex


def root_of(described: Described, index: Path) -> Path | None:
    """Return the folder of a source of files, there or not."""
    if "root" not in described:
        return None
    return Path(os.path.normpath(index.resolve() / described["root"]))


class TableOrigin:
    """One table of the lake, where it came from."""

    def __init__(self, lake: OpenIndex, segment: Segment, number: int) -> None:
        self._lake, self._segment, self._number = lake, segment, number
        self.name = segment.catalog.table_names[number]
        row = int(segment.catalog.table_items[number])
        self._entry = entries_of(segment.ledger.slice(row, 1))[0]
        self._described = lake.sources[self._entry.key.source]
        self.source = reopen(self._described, lake.path, lake.settings)

    def table(self) -> Table:
        """Open the table."""
        if self.source is not None:
            return self.source.table(self.name)
        path = self._frame()
        if path is None:
            raise UnreadableTable(
                f"{self.name} was in memory when it was indexed, and the index has no copy of it "
                "(any more). Search finds it; to join, index its file, or open the lake again."
            )
        return Table(self.name, lambda: read_parquet(verify_file(path)))

    def cells(self, column: str) -> list[str]:
        """Read the cells of a column as they would be indexed: no empty ones, none too long."""
        (found,) = read_columns(self.table(), column)
        present = (cell for cell in found.cells if cell is not None and cell.strip())
        return [cell for cell in present if len(cell) <= self._lake.settings.max_cell]

    def _frame(self) -> Path | None:
        """Find the copy of a table from memory, which a merge may have moved meanwhile."""
        name = f"{FRAMES}/{self._number}.parquet"
        path = self._segment.folder / name
        if path.exists():
            return path
        # A merge copies frames unchanged, so size and checksum identify the file.
        records = {record.name: record for record in self._lake.records}
        wanted = records[self._segment.folder.name].files.get(name)
        for record in read_manifest(self._lake.path).segments if wanted else ():
            for other, content in record.files.items():
                if content == wanted:
                    return self._lake.path / SEGMENTS / record.name / other
        return None

    def key(self, column: str, column_id: str) -> str:
        """Return the name a hit's column has in its table when that is opened.

        The columns of a corpus may have no name, or the same one; then only the id identifies them.
        """
        names = self.source.column_names(self.name) if self.source else {}
        return names.get(column_id, column)

    def path(self) -> Path | None:
        """Return the file that holds the table, if one local file does."""
        return self.source.path(self.name) if self.source else None

    @property
    def has_changed(self) -> bool:
        """Whether the file of the table is no longer the one that was indexed."""
        path = self.path()
        if path is None:
            return False
        of, entry = key(self._lake.settings), self._entry
        if hidden_text(file_stamp(path.stat()), of) == entry.stamp != "":
            return False
        return not entry.digest or hidden_text(file_digest(path), of) != entry.digest

    @property
    def described(self) -> dict[str, Any]:
        """The source of the table, as the manifest describes it."""
        return self._described


def name_of(path: Path, described: Described, index: Path) -> str | None:
    """Return the name a file would have as a table of a source of files, or None."""
    root = root_of(described, index)
    if root is None or described["kind"] != "files":
        return None
    # A link inside the lake has its own name; one from outside has the name of its target.
    root = root.resolve()
    for there in (path.parent.resolve() / path.name, path.resolve()):
        if there.is_relative_to(root):
            return there.relative_to(root).as_posix()
    return None
