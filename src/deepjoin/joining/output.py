"""Runs a query of the join: a preview, Arrow data, or a file that appears only when complete."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from deepjoin.errors import DeepJoinError
from deepjoin.files import written_aside
from deepjoin.joining.session import Session, explained
from deepjoin.joining.shown import Stored
from deepjoin.joining.sql import Show
from deepjoin.read.sql import literal

#: Endings of files that can be written, and how DuckDB writes them.
ENDINGS = {
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
    ".csv": "FORMAT csv, HEADER",
    ".csv.gz": "FORMAT csv, HEADER, COMPRESSION gzip",
    ".tsv": "FORMAT csv, HEADER, DELIMITER '\t'",
    ".tsv.gz": "FORMAT csv, HEADER, DELIMITER '\t', COMPRESSION gzip",
}


class Query(Protocol):
    """A query that writes itself: with or without casts, to be run or, given how, shown."""

    def __call__(self, typed: bool, show: Show | None = None) -> str:
        """Write the SQL."""


class Rows:
    """The rows of a query, always in the same order, read or written as often as wanted."""

    def __init__(self, session: Session, query: Query) -> None:
        self._session = session
        self._query = query

    @cached_property
    def sql(self) -> str:
        """The SELECT, over the original tables: DuckDB runs it where both sides have a scan."""
        return self._query(True, Stored(self._session))

    def preview(self, rows: int = 10) -> pa.Table:
        """Return the first rows."""
        with explained():
            return self._session.table(f"{self._query(True)}\nLIMIT {int(rows)}")

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        with explained():
            return self._session.table(self._query(True))

    def batches(self) -> pa.RecordBatchReader:
        """Return all rows, a batch at a time."""
        with explained():
            return self._session.reader(self._query(True))

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write all rows to a .parquet, .csv or .tsv file (also .gz) and return their number.

        Parquet gets types, the others the cells as they were. A file that exists is replaced
        once the new one is complete.
        """
        import duckdb

        target = Path(os.path.realpath(path))
        options = writing_options(target)
        try:
            with explained(besides=duckdb.IOException):
                return self._write(target, self._query(typed="parquet" in options), options)
        except (OSError, duckdb.IOException) as error:
            reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
            raise DeepJoinError(
                f"Cannot write {target}: {reason}. Choose a folder that exists and has room."
            ) from error

    def _write(self, target: Path, query: str, options: str) -> int:
        with written_aside(target) as aside:
            copied = self._session.run(f"COPY ({query}) TO {literal(str(aside))} ({options})")
        return int(copied[0][0])


def writing_options(path: Path) -> str:
    """Return how DuckDB writes a file with this ending; any other ending is refused."""
    for ending, options in ENDINGS.items():
        if path.name.lower().endswith(ending):
            return options
    raise DeepJoinError(
        f"Cannot write {path.name}: its ending must be one of {', '.join(ENDINGS)}."
    )
