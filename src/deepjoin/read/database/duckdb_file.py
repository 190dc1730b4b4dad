"""DuckDB files, opened read-only."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from deepjoin.errors import DeepJoinError, UnreadableTable
from deepjoin.normalise.cells import unique_names
from deepjoin.read.database.relation import BATCH_ROWS, DatabaseFile, DatabaseRelation, ForeignKey
from deepjoin.read.database.url import file_dialect
from deepjoin.read.parquet import named_batches
from deepjoin.read.sql import identifier

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

_FOREIGN_KEYS = """
SELECT schema_name, table_name, constraint_column_names, referenced_table,
  referenced_column_names
FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY'
"""


class DuckdbDatabase(DatabaseFile):
    """A DuckDB file: the stamp is that of the whole file and its log, the digest hashes rows."""

    dialect = "duckdb"
    driver_error = duckdb.Error
    log_ending = ".wal"

    def relations(self) -> list[DatabaseRelation]:
        """List the tables and views of all schemas but the system's."""
        stamp = self.stamp()
        with self.session() as ask:
            found = ask(_RELATIONS)
        return [
            DatabaseRelation.in_schema(
                *(schema, table),
                # A schema may have the name of its database; all three parts are unambiguous.
                ".".join(map(identifier, (database, schema, table))),
                *(comment, columns),
                rows=rows,
                stamp=stamp if is_table else "",
                has_digest=is_table,
            )
            for database, schema, table, is_table, rows, comment, columns in found
        ]

    def foreign_keys(self) -> list[ForeignKey]:
        """Read the declared foreign keys, which lead to tables of the same schema."""
        with self.session() as ask:
            rows = ask(_FOREIGN_KEYS)
        return [
            ((schema, table), tuple(columns), (schema, parent), tuple(others))
            for schema, table, columns, parent, others in rows
        ]

    def fetch(self, connection: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows."""
        statements = connection.extract_statements(sql)
        if len(statements) != 1:  # all of them would be run
            raise duckdb.InvalidInputException(f"expected one statement, got {len(statements)}")
        return connection.execute(statements[0]).fetchall()

    def batches(
        self,
        connection: DuckDBPyConnection,
        relation: DatabaseRelation,
        limit: int,
        notes: list[str],
    ) -> Iterator[pa.RecordBatch]:
        """Read a table in the order of its rows; lists, structs and rare types become text."""
        reader = connection.sql(self._query(connection, relation, limit))
        batches = reader.to_arrow_reader(BATCH_ROWS)
        yield from named_batches(batches.schema, batches)

    def digest(self, relation: DatabaseRelation, limit: int = 0) -> str:
        """Hash the rows of a table, in any order."""
        with self.reading(relation) as connection:
            query = self._query(connection, relation, limit)
            schema = self.fetch(connection, f"DESCRIBE {query}")
            hashed = f"SELECT count(*), sum(hash(side)) FROM ({query}) AS side"
            counts = self.fetch(connection, hashed)
        # Another version of DuckDB may hash differently.
        return repr((counts, schema, duckdb.__version__))

    def read_error(
        self, connection: DuckDBPyConnection, relation: DatabaseRelation, error: duckdb.Error
    ) -> DeepJoinError:
        """Return `UnreadableTable` if the table is at fault, `DeepJoinError` if the file is."""
        said = self.message(error)
        if isinstance(error, duckdb.CatalogException) and "does not exist" in str(error):
            return UnreadableTable(f"{relation.name} is no longer in the database.")
        is_lost = isinstance(error, duckdb.IOException) and str(self.path) in str(error)
        is_lost = is_lost or file_dialect(self.path) != "duckdb"
        if isinstance(error, duckdb.FatalException) or is_lost:
            return DeepJoinError(f"Cannot read {self.place}: {said}.")
        if isinstance(error, duckdb.PermissionException):
            said = "views of a DuckDB file may read its own tables only, no files or extensions"
        # The disk may fail now and not later.
        passing = isinstance(error, duckdb.IOException)
        return UnreadableTable(f"{relation.name} cannot be read: {said}.", passing=passing)

    @contextmanager
    def connected(self) -> Iterator[DuckDBPyConnection]:
        """Open the file, waiting a little for a writer to give up its lock."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                # A view of somebody else's file must not read others, nor fetch extensions.
                connection = duckdb.connect(
                    self.path, read_only=True, config={"enable_external_access": False}
                )
                break
            except duckdb.Error as error:
                if "set lock" not in str(error) or time.monotonic() >= until:
                    raise DeepJoinError(
                        f"Cannot open {self.place}: {self.message(error)}. "
                        "Close it where it is open for writing."
                    ) from None
                time.sleep(_PAUSE)
        with closing(connection):
            connection.execute("SET TimeZone = 'UTC'; SET lock_configuration = true")
            yield connection

    def _query(self, connection: DuckDBPyConnection, relation: DatabaseRelation, limit: int) -> str:
        described = self.fetch(connection, f"DESCRIBE SELECT * FROM {relation.sql}")
        return readable(described, relation, limit)


def readable(described: list[tuple[Any, ...]], relation: DatabaseRelation, limit: int = 0) -> str:
    """Write the query for the rows as they are read, from what DESCRIBE says of the table."""
    cells = []
    # Blank and repeated names are read under others, which the query must give them, too.
    shown = unique_names([name for name, *_ in described])
    for (name, kind, *_), called in zip(described, shown, strict=True):
        cell, quoted = identifier(name), identifier(called)
        if not _BY_ARROW.fullmatch(kind):
            cell = f"CAST({cell} AS VARCHAR)"
        cells.append(cell if cell == quoted else f"{cell} AS {quoted}")
    return f"SELECT {', '.join(cells)} FROM {relation.sql}" + (f" LIMIT {limit}" if limit else "")
