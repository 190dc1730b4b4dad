"""DuckDB files, opened read-only."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.model import Reading
from deepjoin.normalise.cells import unique_names
from deepjoin.read.database.relation import (
    BATCH_ROWS,
    Ask,
    Database,
    Relation,
    files_stamp,
    full_name,
    relation_context,
    relation_title,
)
from deepjoin.read.database.url import file_dialect, one_line
from deepjoin.read.parquet import decoded, no_rows
from deepjoin.read.source import relative
from deepjoin.read.sql import identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RELATIONS = """
SELECT current_database(), schema_name, name, is_table, estimated, comment,
  (SELECT string_agg(column_name || ': ' || c.comment, '; ' ORDER BY column_index)
   FROM duckdb_columns() AS c WHERE c.database_name = current_database()
     AND c.schema_name = found.schema_name AND c.table_name = found.name)
FROM (
  SELECT database_name, schema_name, table_name AS name, true AS is_table,
    estimated_size AS estimated, comment FROM duckdb_tables() WHERE NOT internal AND NOT temporary
  UNION ALL
  SELECT database_name, schema_name, view_name, false, -1, comment
  FROM duckdb_views() WHERE NOT internal AND NOT temporary
) AS found
WHERE database_name = current_database()
"""
#: Seconds to wait for another program to finish writing, and between two tries.
BUSY_SECONDS = 5.0
_PAUSE = 0.1
# Types that arrive in Arrow as they are compared; all others are cast to text.
_BY_ARROW = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|HUGEINT|FLOAT|DOUBLE|DECIMAL\(.*\)|DATE|TIME|"
    r"TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|VARCHAR|BLOB"
)


class DuckdbDatabase(Database):
    """A DuckDB file: the stamp is that of the whole file and its log, the digest hashes rows."""

    dialect = "duckdb"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = f"duckdb:///{path}"

    def describe(self, index: Path) -> str:
        """Return the address relative to the index folder."""
        return f"duckdb:///{relative(self.path, index)}"

    def relations(self) -> list[Relation]:
        """List the tables and views of all schemas but the system's."""
        stamp = files_stamp(self.path, Path(f"{self.path}.wal"))
        with self.session() as ask:
            found = ask(_RELATIONS)
        return [
            Relation(
                full_name(schema, table),
                table,
                # A schema may have the name of its database; all three parts are unambiguous.
                ".".join(map(identifier, (database, schema, table))),
                schema,
                relation_title(table, comment),
                relation_context(schema, columns),
                rows,
                stamp if is_table else "",
                is_table,
            )
            for database, schema, table, is_table, rows, comment, columns in found
        ]

    @contextmanager
    def session(self) -> Iterator[Ask]:
        """Open a read-only transaction."""
        import duckdb

        with self._connected() as connection:

            def ask(sql: str) -> list[tuple[Any, ...]]:
                try:
                    return connection.execute(sql).fetchall()
                except duckdb.Error as error:
                    raise DeepJoinError(f"{self.place}: {one_line(error, [])}.") from None

            yield ask

    def read(self, relation: Relation, limit: int = 0) -> Reading:
        """Read a table in the order of its rows; lists, structs and rare types become text."""

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(relation) as connection:
                query = _query(connection, relation, limit)
                reader = connection.sql(query).to_arrow_reader(BATCH_ROWS)
                names = unique_names(reader.schema.names)
                is_empty = True
                for batch in reader:
                    is_empty = False
                    yield decoded(batch, names)
                if is_empty:
                    yield decoded(no_rows(reader.schema), names)

        return Reading(batches())

    def digest(self, relation: Relation, limit: int = 0) -> str:
        """Hash the rows of a table, in any order."""
        import duckdb

        with self._reading(relation) as connection:
            query = _query(connection, relation, limit)
            schema = connection.execute(f"DESCRIBE {query}").fetchall()
            counts = connection.execute(
                f"SELECT count(*), sum(hash(side)) FROM ({query}) AS side"
            ).fetchall()
        return repr((counts, schema, duckdb.__version__))

    @contextmanager
    def _reading(self, relation: Relation) -> Iterator[DuckDBPyConnection]:
        import duckdb

        with self._connected() as connection:
            try:
                yield connection
            except duckdb.CatalogException as error:
                if "does not exist" not in str(error):
                    raise self._unreadable(relation, error) from None
                raise UnreadableTable(f"{relation.name} is no longer in the database.") from None
            except duckdb.Error as error:
                raise self._unreadable(relation, error) from None

    def _unreadable(self, relation: Relation, error: Exception) -> DeepJoinError:
        import duckdb

        said = one_line(error, [])
        # Errors of the whole file are no fault of the table.
        is_lost = isinstance(error, duckdb.IOException) and str(self.path) in str(error)
        is_lost = is_lost or file_dialect(self.path) != "duckdb"
        if isinstance(error, duckdb.FatalException) or is_lost:
            return DeepJoinError(f"Cannot read {self.place}: {said}.")
        # A view may be of a file that is not there now.
        passing = isinstance(error, duckdb.IOException)
        return UnreadableTable(f"{relation.name} cannot be read: {said}.", passing=passing)

    @contextmanager
    def _connected(self) -> Iterator[DuckDBPyConnection]:
        """Open the file, waiting a little for a writer to give up its lock."""
        import duckdb

        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection = duckdb.connect(self.path, read_only=True)
                break
            except duckdb.Error as error:
                if "set lock" not in str(error) or time.monotonic() >= until:
                    raise DeepJoinError(
                        f"Cannot open {self.place}: {one_line(error, [])}. "
                        "Close it where it is open for writing."
                    ) from None
                time.sleep(_PAUSE)
        with closing(connection):
            connection.execute("SET TimeZone = 'UTC'")
            yield connection


def _query(connection: DuckDBPyConnection, relation: Relation, limit: int) -> str:
    described = connection.execute(f"DESCRIBE SELECT * FROM {relation.sql}").fetchall()
    return readable(described, relation, limit)


def readable(described: list[tuple[Any, ...]], relation: Relation, limit: int = 0) -> str:
    """Write the query for the rows as they are read, from what DESCRIBE says of the table."""
    cells = []
    for name, kind, *_ in described:
        quoted = identifier(name)
        is_plain = _BY_ARROW.fullmatch(kind)
        cells.append(quoted if is_plain else f"CAST({quoted} AS VARCHAR) AS {quoted}")
    return f"SELECT {', '.join(cells)} FROM {relation.sql}" + (f" LIMIT {limit}" if limit else "")
