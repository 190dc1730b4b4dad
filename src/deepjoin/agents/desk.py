"""What all tools work with: the lake as it is now, and the folder that joins may go to."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from deepjoin.agents.asked import AskQuery
from deepjoin.columns import Column
from deepjoin.errors import DeepJoinError
from deepjoin.lake import Lake
from deepjoin.lake.directory import Directory
from deepjoin.sources.frames import as_column

#: Seconds between two looks at an index in a bucket; one in a folder is looked at every time.
_EVERY = 60.0


class Desk:
    """One open lake for one agent; tools use it one after the other."""

    def __init__(self, lake: Lake, out: Path | None = None) -> None:
        self.lake, self.out = lake, out
        self._directory: Directory | None = None
        self._looked = monotonic()

    def renew(self) -> None:
        """Move to the lake as it is now, if it has become another."""
        if self.lake.url and monotonic() - self._looked < _EVERY:
            return
        self._looked = monotonic()
        if self.lake.reopen():
            self._directory = None

    @property
    def directory(self) -> Directory:
        """The names in the lake, put in order when first asked for."""
        if self._directory is None:
            self._directory = Directory(self.lake)
        return self._directory

    @property
    def has_meaning(self) -> bool:
        """Whether values can be compared by what they mean."""
        return not self.lake.settings.hash_only and self.lake.ground().has_cells

    @property
    def joins(self) -> list[str]:
        """The kinds of join this index can answer."""
        return ["any", "equi", "semantic"] if self.has_meaning else ["any", "equi"]

    def query(self, asked: AskQuery) -> Column:
        """Find the query column: one of the lake by its names, or the values that were sent."""
        if asked.values is not None and asked.table is None:
            cells = as_column(asked.values).cells
            return Column(cells, asked.column or "")
        if asked.table is not None and asked.column is not None and asked.values is None:
            return self.lake.column(asked.table, asked.column)
        raise DeepJoinError(
            "Say what the query column is: either table and column, both names of this lake, or "
            "values, a list of cells. Paths of files are not opened."
        )


def query_name(query: Column) -> str:
    """Say in words what the query is."""
    if query.table is None:
        return f"the values sent as '{query.name}'" if query.name else "the values sent"
    return f"{query.table}:{query.name}"
