"""Whether two columns list the same keys: in the same order, or numbers with none beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepjoin.enriching.features import rank_correlation
from deepjoin.normalise.cells import canonical_all
from deepjoin.read.frames import as_columns
from deepjoin.store.open_index import OpenIndex

#: Keys that both columns must have; how alike their orders must be.
_LEAST_KEYS, _ALIKE = 50, 0.95
#: Columns that are sorted more than this agree in their order whatever they refer to.
_MOST_SORTED = 0.8
#: Columns of numbers share more of these than of their neighbours, if they list the same keys: how
#: many times more, of how many keys; the neighbours, as rounded numbers have theirs further off.
_LIFT, _LEAST_SHARED = 4, 20
_NEIGHBOURS = (-1000, -100, -10, -5, -2, -1, 1, 2, 5, 10, 100, 1000)
_IS_WHOLE, _MOST_DIGITS = re.compile(r"-?\d+").fullmatch, 15
#: Rows of a table that are read for this.
_FIRST_ROWS = 20_000


class RowOrders:
    """The cells of columns of a lake in the order of their rows, read once.

    Keys that number rows are found in every column of numbers, so their values prove nothing. Two
    tables that list them in the same order, if it is not that of the numbers, do belong together.
    """

    def __init__(self, index: OpenIndex) -> None:
        self._index = index
        self._cells: dict[tuple[str, str], Sequence[str]] = {}

    def of(self, table: str, column: str) -> Sequence[str]:
        """Return the first cells of a column, in canonical form."""
        if (table, column) not in self._cells:
            cells: list[str] = []
            for batch in self._index.origin(table).table().open():
                if column not in batch.schema.names or len(cells) >= _FIRST_ROWS:
                    break
                some = batch.column(batch.schema.names.index(column))
                read = as_columns(pa.table({column: some[: _FIRST_ROWS - len(cells)]}))[0].cells
                cells += self.read(read)
            self._cells[table, column] = cells
        return self._cells[table, column]

    def read(self, cells: Sequence[str | None]) -> Sequence[str]:
        """Return the first cells of a column that is not in the lake, in canonical form."""
        return canonical_all([cell or "" for cell in cells[:_FIRST_ROWS]], "default")

    def agree(self, keys: Sequence[str], table: str, column: str) -> bool:
        """Check whether a column of the lake has the keys of another in the same order."""
        if len(keys) < _LEAST_KEYS or _sortedness(keys) > _MOST_SORTED:
            return False
        places = {key: at for at, key in enumerate(self.of(table, column)) if key}
        both = [(at, places[key]) for at, key in enumerate(keys) if key in places]
        if len(both) < _LEAST_KEYS:
            return False
        here, there = np.array(both, float).T
        return float(np.corrcoef(here, there)[0, 1]) >= _ALIKE

    def stand_out(self, mine: Sequence[str], table: str, column: str) -> bool:
        """Check whether a column of the lake has whole numbers of another, but not those beside.

        Numbers of two columns that fill the same range meet by chance, and so do their neighbours.
        """
        keys = _whole_numbers(mine)
        if len(keys) < _LEAST_SHARED:
            return False  # before their table is read
        theirs = _whole_numbers(self.of(table, column))
        shared = len(np.intersect1d(keys, theirs))
        if shared < _LEAST_SHARED:
            return False
        step = int(np.gcd.reduce(keys)) or 1
        beside = max(len(np.intersect1d(keys + one * step, theirs)) for one in _NEIGHBOURS)
        return shared >= _LIFT * beside


def _whole_numbers(cells: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the whole numbers among cells, each once."""
    known = {cell for cell in cells if cell and len(cell) <= _MOST_DIGITS}
    return np.unique(np.array([int(cell) for cell in known if _IS_WHOLE(cell)], np.int64))


def _sortedness(keys: Sequence[str]) -> float:
    """Return how much keys rise or fall with their place, from 0 to 1."""
    known = [key for key in keys if key]
    try:
        values = np.array([float(key) for key in known])
    except ValueError:
        values = np.unique(np.array(known), return_inverse=True)[1].astype(float)
    return rank_correlation(values, np.arange(len(known), dtype=float))
