"""The two tables of a join: as the caller gives them, and as DuckDB reads them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.matching.values import SemanticMatching
from deepjoin.model import Table
from deepjoin.progress import Progress, no_progress
from deepjoin.read.frames import file_table, frame_table
from deepjoin.read.sql import duckdb_scan
from deepjoin.store.models import cell_encoder
from deepjoin.store.origin import TableOrigin

JOINS = ("equi", "semantic")
_NUMERIC = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\([^)]*\)")


class JoinWarning(UserWarning):
    """Something to know about a join: more rows than before, renamed columns."""


@dataclass(frozen=True)
class JoinSide:
    """One table of a join and its key column.

    ``scan`` is a DuckDB table expression with the same rows, such as ``read_parquet('x')``
    or ``read_csv('x', all_varchar = true)``: faster, and used in the printed SQL.
    """

    table: Table
    key: str
    scan: str | None = None


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


def left_side(left: object, on: str) -> JoinSide:
    """Take the user's table: a path, a data frame, an Arrow table, a `Table` or a `JoinSide`."""
    if isinstance(left, JoinSide):
        return left
    if isinstance(left, Table):
        return JoinSide(left, on)
    if not isinstance(left, str | os.PathLike):
        return JoinSide(frame_table(left, "query"), on)
    path = Path(left).expanduser()
    return JoinSide(file_table(path), on, duckdb_scan(path))


def right_side(origin: TableOrigin, column: str) -> JoinSide:
    """Open a table of the lake at its source."""
    path = origin.path()
    return JoinSide(origin.table(), column, duckdb_scan(path) if path else None)


def check_key(side: JoinSide) -> None:
    """Check that a table still has its key column, before anything is planned."""
    names: dict[str, None] = {}
    # JSON lines may have the column in a later batch only.
    for batch in side.table.open():
        names |= dict.fromkeys(batch.schema.names)
        if side.key in names:
            return
    raise unknown_name("column", side.key, side.table.name, names)


def semantic_or_equi(
    hit: object,
    join: str | None,
    tau: float | None,
    matching: str,
    progress: Progress | None,
    encoder: Callable[[], CellEncoder],
) -> SemanticMatching | None:
    """Return how to match values that are not equal; None for an equi-join."""
    if join not in (None, *JOINS):
        raise unknown_name("join kind", str(join), "a join", JOINS)
    found: Any = getattr(hit, "semantic", None)
    if join is None:
        join = "equi"
        if found is not None and getattr(hit, "join", "equi") in ("semantic", "any"):
            # A hit joins by meaning only if that matches more than equality does.
            equi = getattr(hit, "equi", None)
            if equi is None or equi.joinability < found.joinability:
                join = "semantic"
    if join == "equi":
        if tau is not None or matching != "best":
            raise DeepJoinError(
                '`tau` and `matching` are for semantic joins; add `join="semantic"`.'
            )
        return None
    # A hit joins with the threshold that it was found with.
    if tau is None and found is not None:
        tau = found.tau
    return SemanticMatching(encoder(), tau, matching, progress or no_progress)


def encoder_of(spec: str, folder: Path) -> CellEncoder:
    """Load the cell encoder of an index, or the default one if the index has no cell vectors."""
    return cell_encoder(spec, folder) or load_cell_encoder()


def frame_like(given: object, joined: pa.Table) -> Any:
    """Return the result as the kind of frame that was given."""
    library = type(given).__module__.partition(".")[0]
    if library == "pandas":
        return joined.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(joined)
    return joined


def warn(texts: Iterable[str]) -> None:
    """Issue Python warnings for what the command line prints."""
    for text in texts:
        warnings.warn(text, JoinWarning, stacklevel=4)
