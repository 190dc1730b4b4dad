"""Databases as sources: every table and view an item, read in read-only transactions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath

from deepjoin.errors import DeepJoinError, UnreadableTable, unknown_name
from deepjoin.model import Reading, Table
from deepjoin.optional import require
from deepjoin.read.database.relation import Database, DatabaseRelation, first_rows, full_name
from deepjoin.read.database.url import (
    Address,
    dialect_of,
    file_of,
    file_shown,
    from_environment,
    is_database,
)
from deepjoin.read.source import (
    Description,
    Item,
    Listing,
    Skipped,
    Source,
    left_out,
    skipped_item,
)
from deepjoin.read.sql import check_version_query
from deepjoin.settings import DEFAULTS, Settings

__all__ = ["DatabaseSource", "is_database", "reopen", "shown"]


class DatabaseSource(Source):
    """The tables and views of one database.

    Of the settings, ``include`` and ``exclude`` are patterns for a schema, a table or both
    (`sales.*`), ``sample_rows`` limits listed tables to their first rows, ``version_query`` is SQL
    whose answer changes whenever a table does, `{table}` being replaced by its quoted name, as
    in ``SELECT max(updated_at) FROM {table}``; if it fails, the database's own stamp is used. It
    is one statement that reads, and in PostgreSQL names other tables with their schemas.
    A ``prefix`` precedes the names of all tables, which other databases may have too.
    """

    kind = "database"

    def __init__(self, url: str, settings: Settings = DEFAULTS, prefix: str = "") -> None:
        check_version_query(settings.version_query)
        self.database = _database(url)
        self.settings, self.prefix = settings, prefix
        self.skipped: list[Skipped] = []

    def __repr__(self) -> str:
        return f"DatabaseSource({self.database.place!r})"

    @property
    def as_database(self) -> DatabaseSource:
        """The source itself."""
        return self

    def apart(self) -> DatabaseSource:
        """Return the same tables, their names beginning with that of the database."""
        other = copy.copy(self)
        other.prefix = PurePosixPath(self.database.place.partition("?")[0]).stem or "database"
        return other

    def items(self) -> Iterator[Item]:
        """List the tables and views, unread, in the order of their names."""
        wanted, count = self._wanted()
        relations = list(wanted.values())
        self.warnings = self.database.warnings(relations)
        if count and not relations:
            yield skipped_item(self.database.place, left_out(count))
        versions: list[str | DeepJoinError | None] = [None] * len(relations)
        if self.settings.version_query:
            # In one transaction, so that all answers are of the same state.
            with self.database.session() as ask:
                for at, relation in enumerate(relations):
                    try:
                        rows = ask(self.settings.version_query.replace("{table}", relation.sql))
                        versions[at] = f"{relation.sql} {rows!r}"
                    except DeepJoinError as error:
                        versions[at] = error
        for relation, version in zip(relations, versions, strict=True):
            yield self._item(relation, version)

    def relations(self) -> dict[str, DatabaseRelation]:
        """Look up the tables and views that the patterns leave, by name."""
        return self._wanted()[0]

    def _wanted(self) -> tuple[dict[str, DatabaseRelation], int]:
        """Look up the wanted tables and views by name, and how many there are in all."""
        found = sorted(self.database.relations(), key=lambda relation: relation.name)
        prefix = f"{full_name(self.prefix)}." if self.prefix else ""
        wanted, include, exclude = {}, self.settings.include, self.settings.exclude
        for relation in found:
            name = prefix + relation.name
            # A pattern may name a table with or without its schema and its database.
            names = (name, relation.name, relation.schema, relation.table)
            if (not include or _fits(include, names)) and not _fits(exclude, names):
                wanted[name] = replace(relation, name=name)
        return wanted, len(found)

    def _item(self, relation: DatabaseRelation, version: str | DeepJoinError | None) -> Item:
        notes = []
        if isinstance(version, DeepJoinError):
            # The error may quote cells; a private index keeps only what precedes the semicolon.
            said = str(version).rstrip(".")
            notes.append(
                f"The version query failed, so the database's own stamp serves; it said: {said}."
            )
        listing = partial(self._listing, relation, notes)
        if isinstance(version, str):
            return Item(relation.name, version, listing)

        def digest() -> str:
            try:
                return self.database.digest(relation, self.settings.sample_rows)
            except UnreadableTable:  # reading it reports why
                return ""

        return Item(
            *(relation.name, relation.stamp, listing), digest if relation.has_digest else None
        )

    def _listing(self, relation: DatabaseRelation, notes: list[str]) -> Listing:
        if relation.refusal:
            return Listing.without_tables(relation.name, relation.refusal, passing=True)
        return Listing((self._table(relation, self.settings.sample_rows, notes),))

    def _table(self, relation: DatabaseRelation, limit: int, notes: Iterable[str] = ()) -> Table:
        def read() -> Reading:
            # One row more than the limit shows whether there are more.
            reading = self.database.read(relation, limit + 1 if limit else 0)
            reading.notes.extend(notes)
            if not limit:
                return reading
            batches = first_rows(reading.batches, limit, relation.rows, reading.notes)
            return Reading(batches, reading.notes)

        return Table(relation.name, read, relation.title, relation.context)

    def table(self, name: str) -> Table:
        """Open one table by its name, with all of its rows: a join needs more than a sample."""
        return self._table(self.relation(name), 0)

    def relation(self, name: str) -> DatabaseRelation:
        """Look up one table by its name."""
        relations = self.relations()
        if name not in relations:
            raise unknown_name("table", name, self.database.place, relations)
        return relations[name]

    def describe(self, index: Path) -> Description:
        """Describe where the database is, without its password."""
        described = {"kind": self.kind, "url": self.database.describe(index)}
        return described | ({"prefix": self.prefix} if self.prefix else {})


def _fits(patterns: Iterable[str], names: Iterable[str]) -> bool:
    names = list(names)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _database(url: str) -> Database:
    # A driver in the URL, as in sqlite+pysqlcipher, asks for SQLAlchemy; psycopg is ours too.
    dialect, driver = dialect_of(url)
    if dialect == "postgresql" and driver in ("", "psycopg", "psycopg2"):
        require("psycopg", "postgres", f"Reading {Address.of(url).shown()}")
        from deepjoin.read.database.postgres import PostgresDatabase

        return PostgresDatabase(url)
    if dialect == "sqlite" and not driver:
        from deepjoin.read.database.sqlite import SqliteDatabase

        return SqliteDatabase(file_of(url))
    if dialect == "duckdb" and not driver:
        from deepjoin.read.database.duckdb_file import DuckdbDatabase

        return DuckdbDatabase(file_of(url))
    if not dialect:
        raise DeepJoinError(
            f"'{url}' is neither a SQLite nor a DuckDB file, nor a URL such as "
            "postgresql://host/shop."
        )
    scheme = url.partition("://")[0]
    require("sqlalchemy", "sql", f"Reading {scheme} databases")
    from deepjoin.read.database.sqlalchemy_engine import SqlalchemyDatabase

    return SqlalchemyDatabase(url)


def reopen(described: Description, index: Path, settings: Settings) -> DatabaseSource:
    """Open the database that `DatabaseSource.describe` described.

    A password comes from where libpq looks for it (PGPASSWORD, ~/.pgpass, a service file), or
    from DEEPJOIN_DATABASE_URL if that names the same host and database.
    """
    url = described["url"]
    dialect, _ = dialect_of(url)
    # Files are described relative to the index, servers without their passwords.
    if dialect in ("sqlite", "duckdb"):
        scheme, _, path = url.partition(":///")
        url = f"{scheme}:///{(index.resolve() / path).as_posix()}"
    else:
        url = from_environment(url)
    return DatabaseSource(url, settings, described.get("prefix", ""))


def shown(location: str) -> str:
    """Write a location without its password, for messages."""
    dialect, _ = dialect_of(location)
    if dialect in ("sqlite", "duckdb", ""):
        return file_shown(location)
    return Address.of(location).shown()
