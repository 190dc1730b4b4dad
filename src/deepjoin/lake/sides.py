"""The two tables of a join: the user's, whatever it came as, and the lake's, from where it is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepjoin.columns import Table
from deepjoin.errors import unknown_name
from deepjoin.join import Side
from deepjoin.lake.origin import TableOrigin
from deepjoin.sources.frames import frame_table
from deepjoin.sources.reading import file_table
from deepjoin.sources.scan import duckdb_scan


class JoinWarning(UserWarning):
    """Something about a join that its user should know: more rows than before, other names."""


def left_side(left: object, on: str) -> Side:
    """Take the user's table: a path, a data frame, an Arrow table or a `Table`."""
    if isinstance(left, Table):
        return Side(left, on)
    if not isinstance(left, str | os.PathLike):
        return Side(frame_table(left, "query"), on)
    path = Path(left).expanduser()
    return Side(file_table(path), on, duckdb_scan(path))


def right_side(origin: TableOrigin, column: str) -> Side:
    """Open a table of the lake where it was found."""
    path = origin.path()
    return Side(origin.table(), column, duckdb_scan(path) if path else None)


def check_key(side: Side) -> None:
    """See that a table still has its key column, before anything is planned."""
    names: dict[str, None] = {}
    for batch in side.table.open():
        names |= dict.fromkeys(batch.schema.names)
        if side.key in names:
            return
    raise unknown_name("column", side.key, side.table.name, names)


def frame_like(given: object, joined: pa.Table) -> Any:
    """Return the result as the kind of frame the user works with."""
    library = type(given).__module__.partition(".")[0]
    if library == "pandas":
        return joined.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(joined)
    return joined


def warn(texts: Iterable[str]) -> None:
    """Say in Python's own way what the command line prints."""
    for text in texts:
        warnings.warn(text, JoinWarning, stacklevel=4)
