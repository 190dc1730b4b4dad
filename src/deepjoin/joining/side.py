"""The two tables of a join: as the caller names them, and as DuckDB reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepjoin.model import Table

_NUMERIC = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\([^)]*\)")


@dataclass(frozen=True)
class Side:
    """One table of a join and its key column.

    ``scan`` is a DuckDB table expression with the same rows, such as ``read_parquet('x')``
    or ``read_csv('x', all_varchar = true)``: faster, and what the shown SQL reads.
    """

    table: Table
    key: str
    scan: str | None = None


@dataclass(frozen=True)
class SourceColumn:
    """A column: its name in DuckDB and in the table, its type, and what its text really is."""

    name: str
    original: str
    kind: str
    cast: str | None = None
    has_blanks: bool = False

    def value(self, cell: str) -> str:
        """Return SQL that turns the text of a cell into what it really is."""
        if self.cast is None:
            return cell
        # A blank cell among numbers is no number: it becomes NULL.
        return f"{'TRY_CAST' if self.has_blanks else 'CAST'}({cell} AS {self.cast})"

    @property
    def is_numeric(self) -> bool:
        """Whether a mean of its cells exists."""
        return _NUMERIC.fullmatch(self.cast or self.kind) is not None


@dataclass(frozen=True)
class Source:
    """A table that DuckDB can read as often as it likes, always in the same order."""

    table: str
    reads: str
    shows: str
    columns: tuple[SourceColumn, ...]
    key: SourceColumn
