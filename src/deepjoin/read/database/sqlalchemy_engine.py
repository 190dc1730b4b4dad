"""Every other database that SQLAlchemy reaches; nothing is ever committed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.database.relation import (
    BATCH_ROWS,
    Ask,
    Batcher,
    Relation,
    full_name,
    relation_context,
    relation_title,
)
from deepjoin.read.database.url import ADDRESS_VARIABLE, Address, file_secrets, file_shown, one_line
from deepjoin.read.source import relative

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Inspector

_SYSTEM = re.compile(
    "information_schema|pg_catalog|mysql|performance_schema|sys|guest|temp|db_owner|db_ddladmin|"
    "db_(access|security)admin|db_backupoperator|db_(deny)?data(reader|writer)",
    re.IGNORECASE,
)
#: How a transaction is made read-only, where the dialect has a word for it.
_READ_ONLY = {
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
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
#: What these call schemas are whole databases, or the tables of other users.
_DEFAULT_SCHEMA_ONLY = ("mysql", "mariadb", "oracle")


class SqlalchemyDatabase:
    """A database behind a SQLAlchemy dialect.

    No stamp is common to all of them, so tables are read again unless a version query tells.
    Types are those of the driver's values.
    """

    def __init__(self, url: str) -> None:
        self._engine, self._secrets = _engine(url)
        self.dialect = self._engine.dialect.name
        self._file = self._engine.url.database if self.dialect == "sqlite" else None
        self.place = file_shown(url) if self._file else Address.of(url).shown()

    def __repr__(self) -> str:
        return f"SqlalchemyDatabase({self.place!r})"

    def describe(self, index: Path) -> str:
        """Give the address without secrets, a file's relative to the index folder."""
        if not self._file:
            return self.place
        return f"{self._engine.url.drivername}:///{relative(Path(self._file), index)}"

    def relations(self) -> list[Relation]:
        """List the tables and views of all schemas but the system's."""
        import sqlalchemy

        with self._connected() as connection:
            try:
                inspector = sqlalchemy.inspect(connection)
                return [
                    self._relation(inspector, schema, table)
                    for schema in self._schemas(inspector)
                    for table in [
                        *inspector.get_table_names(schema),
                        *inspector.get_view_names(schema),
                    ]
                ]
            except sqlalchemy.exc.SQLAlchemyError as error:
                raise self._failed("Cannot list the tables of", error) from None

    def _schemas(self, inspector: Inspector) -> list[str]:
        if self.dialect in _DEFAULT_SCHEMA_ONLY and inspector.default_schema_name:
            return [inspector.default_schema_name]
        return [name for name in inspector.get_schema_names() if not _SYSTEM.fullmatch(name)]

    def _relation(self, inspector: Inspector, schema: str, table: str) -> Relation:
        alone = self.dialect == "sqlite" and schema == "main"
        try:
            comment = inspector.get_table_comment(table, schema).get("text")
        except NotImplementedError:
            comment = None
        quote = self._engine.dialect.identifier_preparer.quote_identifier
        return Relation(
            table if alone else full_name(schema, table),
            table,
            f"{quote(schema)}.{quote(table)}",
            schema,
            relation_title(table, comment),
            relation_context("" if alone else schema, None),
        )

    @contextmanager
    def session(self) -> Iterator[Ask]:
        """Open a transaction that is rolled back."""
        import sqlalchemy

        with self._connected() as connection:

            def ask(sql: str) -> list[tuple[Any, ...]]:
                try:
                    return [tuple(row) for row in connection.exec_driver_sql(sql)]
                except sqlalchemy.exc.SQLAlchemyError as error:
                    raise DeepJoinError(self._said(error)) from None

            yield ask

    def read(self, relation: Relation, limit: int = 0) -> Reading:
        """Read a table as the driver gives it."""
        return Reading(self._batches(relation, limit))

    def _batches(self, relation: Relation, limit: int) -> Iterator[pa.RecordBatch]:
        import sqlalchemy

        quoted = sqlalchemy.quoted_name
        table = sqlalchemy.table(quoted(relation.table, True), schema=quoted(relation.schema, True))
        query = sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
        with self._connected() as connection:
            try:
                streaming = connection.execution_options(stream_results=True)
                result = streaming.execute(query.limit(limit) if limit else query)
                names = list(result.cursor.description) if result.cursor else []
                batcher = Batcher([name for name, *_ in names], [None] * len(names))
                yield from batcher.batches(result.partitions(BATCH_ROWS))
            except sqlalchemy.exc.SQLAlchemyError as error:
                if _is_lost(error):
                    raise self._failed("Cannot read", error) from None
                said = self._said(error)
                raise UnreadableTable(f"{relation.name} cannot be read: {said}.") from None

    def digest(self, relation: Relation, limit: int = 0) -> str:
        """Say nothing: reading the rows is all that could be done."""
        return ""

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        import sqlalchemy

        if self._file and not os.path.isfile(self._file):  # SQLite would make an empty one
            raise DeepJoinError(f"Cannot open {self.place}: the file is gone.")
        try:
            connection = self._engine.connect()
            if self.dialect in _READ_ONLY:
                connection.exec_driver_sql(_READ_ONLY[self.dialect])
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self._failed("Cannot connect to", error) from None
        with connection:
            yield connection

    def _failed(self, what: str, error: Exception) -> DeepJoinError:
        said = self._said(error)
        hint = f" Give the whole URL in {ADDRESS_VARIABLE}." if "denied" in said.lower() else ""
        return DeepJoinError(f"{what} {self.place}: {said}.{hint}")

    def _said(self, error: Exception) -> str:
        return one_line(getattr(error, "orig", None) or error, self._secrets)


def _is_lost(error: Exception) -> bool:
    """Tell what concerns the whole database: it is locked, or there no more."""
    from deepjoin.read.database.sqlite import is_lost

    return getattr(error, "connection_invalidated", False) or is_lost(getattr(error, "orig", None))


def _engine(url: str) -> tuple[Engine, list[str]]:
    try:
        import sqlalchemy
    except ImportError:
        scheme = url.partition("://")[0]
        raise MissingExtra(
            f"Reading {scheme} databases needs the SQL extra: pip install 'deepjoin[sql]'"
        ) from None
    is_file = url.partition("+")[0].partition(":")[0] == "sqlite"
    secrets = file_secrets(url) if is_file else Address.of(url).secrets()
    try:
        parsed = sqlalchemy.make_url(url)
        if is_file:
            parsed = _existing(parsed)
        return sqlalchemy.create_engine(parsed, poolclass=sqlalchemy.pool.NullPool), secrets
    except ModuleNotFoundError as error:
        scheme = url.partition("://")[0]
        raise MissingExtra(
            f"Reading {scheme} databases needs its driver: {_install(error.name or '')}"
        ) from None
    except (sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        raise DeepJoinError(f"Not a database URL: {one_line(error, secrets)}.") from None


def _install(module: str) -> str:
    """Say how to install a driver, whose package may be called otherwise than its module."""
    package = _PACKAGES.get(module)
    return f"pip install {package}" if package else f"the package that provides module {module}"


def _existing(url: Any) -> Any:
    """Insist on a file that exists, for SQLite would make an empty one."""
    path = os.path.abspath(os.path.expanduser(url.database or ""))
    if not os.path.isfile(path):
        raise DeepJoinError(f"No SQLite file '{url.database}'.")
    return url.set(database=path)
