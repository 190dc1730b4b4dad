"""One DuckDB database for one join: in memory, spilling to a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 65_536


class Session:
    """A connection that is closed, and whose folder is removed, at the latest with the object."""

    def __init__(self, memory_limit: str | None = None) -> None:
        folder = tempfile.mkdtemp(prefix="deepjoin-join-")
        try:
            self._connection = _connect(folder, memory_limit)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.close = weakref.finalize(self, _discard, self._connection, folder)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Open a second way into the same database: an unread result blocks only its own."""
        if not self.close.alive:
            raise DeepJoinError("This join is closed. Call plan_join again to use it.")
        return self._connection.cursor()

    def run(self, sql: str, batch: pa.Table | None = None) -> list[tuple[Any, ...]]:
        """Run one statement to its end and return its rows; it may read a table as `batch`."""
        with _interruptible(), self.cursor() as cursor:
            if batch is not None:
                cursor.register("batch", batch)
            return cursor.execute(sql).fetchall()

    def columns(self, reads: str, batch: pa.Table | None = None) -> dict[str, str]:
        """Name and DuckDB type of the columns of a table expression."""
        described = self.run(f"DESCRIBE SELECT * FROM {reads}", batch)
        return {name: kind for name, kind, *_ in described}

    def count(self, source: str) -> int:
        """Count the rows of a table expression, which may end in a WHERE clause."""
        return int(self.run(f"SELECT count(*) FROM {source}")[0][0])

    def table(self, sql: str) -> pa.Table:
        """Run a query into memory."""
        with _interruptible(), self.cursor() as cursor:
            return cursor.sql(sql).to_arrow_table()

    def reader(self, sql: str) -> pa.RecordBatchReader:
        """Run a query batch by batch; the reader keeps the session open."""
        cursor = self.cursor()
        reader = cursor.sql(sql).to_arrow_reader(_BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(reader.schema, _held(self, cursor, reader))


@contextmanager
def explained(besides: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Turn what DuckDB says of a query into one line of ours; some errors are the caller's."""
    import duckdb

    try:
        yield
    except besides:
        raise
    except duckdb.Error as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeepJoinError(f"The join cannot be made: {said}") from None


def _held(session: Session, cursor: object, reader: pa.RecordBatchReader) -> Iterator[Any]:
    """Yield the batches while holding on to what they come from."""
    with _interruptible():
        yield from reader


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be what it is; DuckDB turns it into an error of its own."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        raise


def _connect(folder: str, memory_limit: str | None) -> duckdb.DuckDBPyConnection:
    """Connect so that SQL sees no Python variable and times do not depend on the machine."""
    import duckdb

    config: dict[str, Any] = {"temp_directory": folder, "python_enable_replacements": False}
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'").fetchall()
    if memory_limit is not None:
        try:
            connection.execute("SET memory_limit = ?", [memory_limit]).fetchall()
        except duckdb.Error:
            connection.close()
            raise DeepJoinError(
                f"memory_limit is '{memory_limit}'; it must be a size such as '4GB'."
            ) from None
    return connection


def _discard(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)
