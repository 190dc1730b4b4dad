"""What all tools work with: the lake as it is now, and the folder that joins may go to."""

from __future__ import annotations

from pathlib import Path

from deepjoin.errors import DeepJoinError
from deepjoin.lake import Lake
from deepjoin.model import Column
from deepjoin.read.frames import as_column
from deepjoin.search.methods import joins_of
from deepjoin.serve.current import CurrentLake
from deepjoin.serve.mcp.asked import AskQuery
from deepjoin.store.directory import Directory


class Desk:
    """One open lake for one agent; tools use it one after the other."""

    def __init__(self, lake: Lake, out: Path | None = None) -> None:
        self.out = out
        # What an agent has just indexed it may ask for at once.
        self._current = CurrentLake(lake, every=0.0)

    def renew(self) -> None:
        """Move to the lake as it is now, if it has become another that can be opened."""
        if self._current.is_due():
            self._current.renew()

    @property
    def lake(self) -> Lake:
        """The lake as the call that runs found it."""
        return self._current.lake

    @property
    def directory(self) -> Directory:
        """The names in the lake, put in order when first asked for."""
        return self._current.opened.directory

    @property
    def has_meaning(self) -> bool:
        """Whether values can be compared by what they mean."""
        return self.lake.context().has_cells

    @property
    def joins(self) -> list[str]:
        """The kinds of join this index can answer."""
        return joins_of(self.lake.context())

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
