"""Every other database that SQLAlchemy reaches; nothing is ever committed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy
from sqlalchemy import Connection, Engine, Inspector
from sqlalchemy.exc import SQLAlchemyError

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable, first_line
from deepjoin.read.database.relation import BATCH_ROWS, Batcher, Database, DatabaseRelation
from deepjoin.read.database.sqlite import is_lost
from deepjoin.read.database.url import ADDRESS_VARIABLE, Address, file_secrets, file_shown
from deepjoin.read.source import relative

_SYSTEM = re.compile(
    "information_schema|pg_catalog|mysql|performance_schema|sys|guest|temp|db_owner|db_ddladmin|"
    "db_(access|security)admin|db_backupoperator|db_(deny)?data(reader|writer)",
    re.IGNORECASE,
)
#: The statements that make a transaction read-only, where the dialect has one.
_READ_ONLY = {
    "mysql": ("SET TRANSACTION READ ONLY",),
    "mariadb": ("SET TRANSACTION READ ONLY",),
    "oracle": ("SET TRANSACTION READ ONLY",),
    # As in `postgres.py`: names mean the server's own functions, and a view that never ends does.
    "postgresql": (
        "SET TRANSACTION READ ONLY",
        "SET LOCAL search_path = pg_catalog, pg_temp",
        "SELECT set_config('statement_timeout', '1h', true) FROM pg_settings "
        "WHERE name = 'statement_timeout' AND setting = '0'",
    ),
    "cockroachdb": ("SET TRANSACTION READ ONLY",),
    "sqlite": ("PRAGMA query_only = ON",),
}
#: The packages of drivers, by their modules.
_PACKAGES = {
    "MySQLdb": "mysqlclient",
    "pymysql": "pymysql",
    "oracledb": "oracledb",
    "cx_Oracle": "oracledb",
    "pyodbc": "pyodbc",
    "psycopg2": "psycopg2-binary",
}
#: In these, other schemas are whole databases, or the tables of other users.
_DEFAULT_SCHEMA_ONLY = ("mysql", "mariadb", "oracle")


class SqlalchemyDatabase(Database):
    """A database behind a SQLAlchemy dialect.

    The dialects have no stamp in common, so tables are read again unless a version query is
    set. Types are those of the driver's values.
    """

    driver_error = SQLAlchemyError

    def __init__(self, url: str) -> None:
        self._engine, self.secrets = _engine(url)
        self.dialect = self._engine.dialect.name
        self._file = self._engine.url.database if self.dialect == "sqlite" else None
        self.place = file_shown(url) if self._file else Address.of(url).shown()

    def describe(self, index: Path) -> str:
        """Return the address without secrets, a file's relative to the index folder."""
        if not self._file:
            return self.place
        return f"{self._engine.url.drivername}:///{relative(Path(self._file), index)}"

    def relations(self) -> list[DatabaseRelation]:
        """List the tables and views of all schemas but the system's."""
        with self.connected() as connection:
            try:
                inspector = sqlalchemy.inspect(connection)
                if self.dialect in _DEFAULT_SCHEMA_ONLY and inspector.default_schema_name:
                    schemas = [inspector.default_schema_name]
                else:
                    known = inspector.get_schema_names()
                    schemas = [name for name in known if not _SYSTEM.fullmatch(name)]
                return [
                    self._relation(inspector, schema, table)
                    for schema in schemas
                    for list_names in (inspector.get_table_names, inspector.get_view_names)
                    for table in list_names(schema)
                ]
            except SQLAlchemyError as error:
                raise self._failed("Cannot list the tables of", error) from None

    def _relation(self, inspector: Inspector, schema: str, table: str) -> DatabaseRelation:
        try:
            comment = inspector.get_table_comment(table, schema).get("text")
        except NotImplementedError:
            comment = None
        quote = self._engine.dialect.identifier_preparer.quote_identifier
        found = DatabaseRelation.in_schema(
            schema, table, f"{quote(schema)}.{quote(table)}", comment
        )
        # Every SQLite file calls its schema main, which says nothing about a table.
        if self.dialect == "sqlite" and schema == "main":
            return replace(found, name=table, context="")
        return found

    def fetch(self, connection: Connection, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows."""
        return [tuple(row) for row in connection.exec_driver_sql(sql)]

    def batches(
        self, connection: Connection, relation: DatabaseRelation, limit: int, notes: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Read a table with the types of the driver."""
        quoted = sqlalchemy.quoted_name
        table = sqlalchemy.table(quoted(relation.table, True), schema=quoted(relation.schema, True))
        query = sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
        streaming = connection.execution_options(stream_results=True)
        result = streaming.execute(query.limit(limit) if limit else query)
        names = list(result.cursor.description) if result.cursor else []
        batcher = Batcher([name for name, *_ in names], [None] * len(names))
        yield from batcher.batches(result.partitions(BATCH_ROWS))

    def read_error(
        self, connection: Connection, relation: DatabaseRelation, error: Exception
    ) -> DeepJoinError:
        """Return `UnreadableTable` if the table is at fault, `DeepJoinError` if the server is."""
        # A lost connection, or a file that is locked or gone, is not the table's fault.
        invalidated = getattr(error, "connection_invalidated", False)
        if invalidated or is_lost(getattr(error, "orig", None)):
            return self._failed("Cannot read", error)
        return UnreadableTable(f"{relation.name} cannot be read: {self.message(error)}.")

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Open a transaction that is rolled back."""
        if self._file and not os.path.isfile(self._file):  # SQLite would make an empty one
            raise DeepJoinError(f"Cannot open {self.place}: the file is gone.")
        try:
            connection = self._engine.connect()
            for statement in _READ_ONLY.get(self.dialect, ()):
                connection.exec_driver_sql(statement)
        except SQLAlchemyError as error:
            raise self._failed("Cannot connect to", error) from None
        with connection:
            yield connection

    def _failed(self, what: str, error: Exception) -> DeepJoinError:
        said = self.message(error)
        hint = f" Set the whole URL in {ADDRESS_VARIABLE}." if "denied" in said.lower() else ""
        return DeepJoinError(f"{what} {self.place}: {said}.{hint}")

    def message(self, error: Exception) -> str:
        """Write the driver's error, not SQLAlchemy's, which quotes the whole statement."""
        return super().message(getattr(error, "orig", None) or error)


def _engine(url: str) -> tuple[Engine, list[str]]:
    """Make the engine of a URL; returns it with the secrets that no message may show."""
    scheme = url.partition("://")[0]
    is_file = scheme.partition("+")[0] == "sqlite"
    secrets = file_secrets(url) if is_file else Address.of(url).secrets()
    try:
        parsed = sqlalchemy.make_url(url)
        if is_file:
            # SQLite would make an empty file.
            path = os.path.abspath(os.path.expanduser(parsed.database or ""))
            if not os.path.isfile(path):
                raise DeepJoinError(f"No SQLite file '{parsed.database}'.")
            parsed = parsed.set(database=path)
        return sqlalchemy.create_engine(parsed, poolclass=sqlalchemy.pool.NullPool), secrets
    except ModuleNotFoundError as error:
        # The package of a driver may have another name than its module.
        module = error.name or ""
        install = f"the package that provides module {module}"
        if module in _PACKAGES:
            install = f"pip install {_PACKAGES[module]}"
        raise MissingExtra(f"Reading {scheme} databases needs its driver: {install}") from None
    except (SQLAlchemyError, ValueError) as error:
        raise DeepJoinError(f"Not a database URL: {first_line(error, secrets)}.") from None
