"""One DuckDB database for one join: in memory, spilling to a temporary folder."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError, ResourceLimit
from deepjoin.files import TemporaryFolder
from deepjoin.memory import JOIN_SPACE, check_address_space
from deepjoin.progress import stop_signal

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 65_536
#: Bytes that a join may hold in any case: DuckDB sets aside half a megabyte for each column.
_LEAST_MEMORY = 2 << 30
#: What part of the memory that DuckDB would take, four fifths of the machine's, a join may hold.
_MEMORY_PART = 8
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Session:
    """A connection; closed, and its folder removed, at the latest when the object is deleted."""

    def __init__(self, memory_limit: str | None = None) -> None:
        # DuckDB ends the process where it cannot be loaded, instead of reporting an error.
        check_address_space("A join", JOIN_SPACE)
        import duckdb

        folder = TemporaryFolder("deepjoin-join-")
        # SQL must see no Python variables, and times must not depend on the machine.
        config: dict[str, Any] = {
            "temp_directory": str(folder.path),
            "python_enable_replacements": False,
        }
        #: Where queries that do not fit in memory write to.
        self.folder = folder.path
        self._connection = duckdb.connect(":memory:", config=config)
        # A finalizer also runs at exit, where __del__ may not, so the folder never stays behind.
        self.close = weakref.finalize(self, _discard, self._connection, folder)
        self._connection.execute("SET TimeZone = 'UTC'").fetchall()
        try:
            limit = memory_limit or default_limit(self._limit())
            self._connection.execute("SET memory_limit = ?", [limit]).fetchall()
        except duckdb.Error:
            self.close()
            raise DeepJoinError(
                f"`memory_limit` is '{memory_limit}'; it must be a size such as '4GB'."
            ) from None

    def _limit(self) -> str:
        (row,) = self._connection.execute("SELECT current_setting('memory_limit')").fetchall()
        return str(row[0])

    def check_reading(self, table: str, needed: int) -> None:
        """Refuse a table that takes more memory to read than the join may hold."""
        if needed > in_bytes(self._limit()):
            raise ResourceLimit(
                f"Reading {table} takes {needed >> 20} MB at once, for the dictionaries of a row "
                f"group, and the join may hold {self._limit()}; raise `memory_limit`."
            )

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Open a cursor: an unread result blocks only the cursor that it came from."""
        if not self.close.alive:
            raise DeepJoinError("This join is closed. Call plan_join again to use it.")
        return self._connection.cursor()

    def run(self, sql: str, batch: pa.Table | None = None) -> list[tuple[Any, ...]]:
        """Run one statement to its end and return its rows; it may read a table as `batch`."""
        with self.cursor() as cursor, _interruptible(cursor):
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
        with self.cursor() as cursor, _interruptible(cursor):
            return cursor.sql(sql).to_arrow_table()

    def reader(self, sql: str) -> pa.RecordBatchReader:
        """Run a query batch by batch; the reader keeps the session open."""
        cursor = self.cursor()
        reader = cursor.sql(sql).to_arrow_reader(_BATCH_ROWS)

        def batches(session: Session, cursor: duckdb.DuckDBPyConnection) -> Iterator[Any]:
            # The arguments keep the database open while there are batches to come.
            with _interruptible(cursor):
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches(self, cursor))


def default_limit(own: str) -> str:
    """Choose what a join may hold before it spills to disk, given the limit DuckDB would have.

    >>> default_limit("24.0 GiB"), default_limit("3.2 GiB"), default_limit("819.2 MiB")
    ('3072MiB', '2048MiB', '819MiB')
    """
    whole = in_bytes(own)
    return f"{min(whole, max(_LEAST_MEMORY, whole // _MEMORY_PART)) >> 20}MiB"


def in_bytes(size: str) -> int:
    """Return a size as DuckDB shows it in bytes.

    >>> in_bytes("1.5 KiB"), in_bytes("7 bytes")
    (1536, 7)
    """
    number, unit = size.split()
    return int(float(number) * 1024 ** _UNITS.index(unit))


@contextmanager
def explained(besides: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Report errors of DuckDB as one line; ``besides`` are left to the caller."""
    import duckdb

    try:
        yield
    except besides:
        raise
    except duckdb.OutOfMemoryException as error:
        limit = re.search(r"([\d.]+ \w+) used", str(error))
        raise ResourceLimit(
            f"The join does not fit its memory limit{f' of {limit[1]}' if limit else ''}. Bring "
            "fewer `columns`, or raise `memory_limit`."
        ) from None
    except duckdb.Error as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeepJoinError(f"The join cannot be made: {said}") from None


@contextmanager
def _interruptible(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Stop a query with the work it is part of; raise KeyboardInterrupt on Ctrl-C.

    DuckDB turns Ctrl-C into a RuntimeError.
    """
    try:
        with stop_signal().interrupting(cursor.interrupt):
            yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        raise


def _discard(connection: duckdb.DuckDBPyConnection, folder: TemporaryFolder) -> None:
    connection.close()
    folder.remove()
