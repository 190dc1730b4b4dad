"""The two tables of a join: as the caller gives them, and as DuckDB reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from deepjoin.model import Table

_NUMERIC = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\([^)]*\)")


@dataclass(frozen=True)
class JoinSide:
    """One table of a join and its key column, or the columns of its key.

    ``scan`` is a DuckDB table expression with the same rows, such as ``read_parquet('x')``
    or ``read_csv('x', all_varchar = true)``: faster, and used in the printed SQL.
    """

    table: Table
    key: str | tuple[str, ...]
    scan: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else self.key


@dataclass(frozen=True)
class SideColumn:
    """A column: its name in DuckDB and in the table, its type, and the type that its text has."""

    name: str
    original: str
    kind: str
    cast: str | None = None
    has_blanks: bool = False

    def value(self, cell: str) -> str:
        """Return SQL that casts the text of a cell to its type."""
        if self.cast is None:
            return cell
        # A blank cell among numbers is not a number: it becomes NULL.
        return f"{'TRY_CAST' if self.has_blanks else 'CAST'}({cell} AS {self.cast})"

    @property
    def is_numeric(self) -> bool:
        """Whether its cells have a mean."""
        return _NUMERIC.fullmatch(self.cast or self.kind) is not None


@dataclass(frozen=True)
class SideTable:
    """A table that DuckDB can read repeatedly, always in the same order.

    ``reads`` is the expression for the DuckDB session, ``shows`` the one for printed SQL.
    """

    table: str
    reads: str
    shows: str
    columns: tuple[SideColumn, ...]
    key: SideColumn
    #: The other columns of a key of several.
    more: tuple[SideColumn, ...] = ()

    @property
    def keys(self) -> tuple[SideColumn, ...]:
        """The columns of the key."""
        return (self.key, *self.more)

    def parts(self) -> Iterator[SideTable]:
        """Yield the same table once for each column of the key, with that column as its key."""
        return (replace(self, key=key, more=()) for key in self.keys)
