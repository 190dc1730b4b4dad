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
from deepjoin.read.database.relation import Database, Relation, first_rows, full_name
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
from deepjoin.settings import Settings

__all__ = ["DatabaseSource", "is_database", "open_database", "reopen", "shown"]


class DatabaseSource(Source):
    """The tables and views of one database.

    ``include`` and ``exclude`` are patterns for a schema, a table or both (`sales.*`).
    ``sample_rows`` above 0 lists tables of their first so many rows. ``version_query`` is SQL
    whose answer is another whenever a table is, `{table}` standing for its quoted name, as in
    ``SELECT max(updated_at) FROM {table}``; where it fails, the database's own stamp serves.
    A ``prefix`` goes before the names of all tables, to tell them from those of another database.
    """

    kind = "database"

    def __init__(
        self,
        url: str,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        sample_rows: int = 0,
        version_query: str = "",
        prefix: str = "",
    ) -> None:
        self.database = _database(url)
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.sample_rows = sample_rows
        self.version_query = version_query
        self.prefix = prefix
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
        found = self._found()
        relations = list(self._wanted(found).values())
        if found and not relations:
            yield skipped_item(self.database.place, left_out(len(found)))
        versions = self._versions(relations) if self.version_query else [None] * len(relations)
        for relation, version in zip(relations, versions, strict=True):
            yield self._item(relation, version)

    def relations(self) -> dict[str, Relation]:
        """Look up what is in the database and wanted, by name."""
        return self._wanted(self._found())

    def _found(self) -> list[Relation]:
        found = sorted(self.database.relations(), key=lambda relation: relation.name)
        before = self._before()
        return [replace(relation, name=before + relation.name) for relation in found]

    def _before(self) -> str:
        return f"{full_name(self.prefix)}." if self.prefix else ""

    def _wanted(self, found: Iterable[Relation]) -> dict[str, Relation]:
        return {relation.name: relation for relation in found if self._is_wanted(relation)}

    def _is_wanted(self, relation: Relation) -> bool:
        own = relation.name.removeprefix(self._before())
        names = (relation.name, own, relation.schema, relation.table)
        included = not self.include or _fits(self.include, names)
        return included and not _fits(self.exclude, names)

    def _versions(self, relations: Iterable[Relation]) -> list[str | DeepJoinError]:
        """Ask for the version of every table in one transaction."""
        versions: list[str | DeepJoinError] = []
        with self.database.session() as ask:
            for relation in relations:
                try:
                    rows = ask(self.version_query.replace("{table}", relation.sql))
                    versions.append(f"{relation.sql} {rows!r}")
                except DeepJoinError as error:
                    versions.append(error)
        return versions

    def _item(self, relation: Relation, version: str | DeepJoinError | None) -> Item:
        notes = []
        if isinstance(version, DeepJoinError):
            # What it said may quote cells; a private index keeps what is before the semicolon.
            said = str(version).rstrip(".")
            notes.append(
                f"The version query failed, so the database's own stamp serves; it said: {said}."
            )
        listing = partial(self._listing, relation, notes)
        if isinstance(version, str):
            return Item(relation.name, version, listing)
        digest = partial(self._digest, relation)
        return Item(
            *(relation.name, relation.stamp, listing), digest if relation.has_digest else None
        )

    def _digest(self, relation: Relation) -> str:
        try:
            return self.database.digest(relation, self.sample_rows)
        except UnreadableTable:  # reading it will say why
            return ""

    def _listing(self, relation: Relation, notes: list[str]) -> Listing:
        if relation.refusal:
            return Listing(skipped=(Skipped(relation.name, relation.refusal, passing=True),))
        return Listing((self._table(relation, self.sample_rows, notes),))

    def _table(self, relation: Relation, limit: int, notes: Iterable[str] = ()) -> Table:
        read = partial(self._read, relation, limit, tuple(notes))
        return Table(relation.name, read, relation.title, relation.context)

    def _read(self, relation: Relation, limit: int, notes: Iterable[str]) -> Reading:
        reading = self.database.read(relation, limit + 1 if limit else 0)
        reading.notes.extend(notes)
        if not limit:
            return reading
        batches = first_rows(reading.batches, limit, relation.rows, reading.notes)
        return Reading(batches, reading.notes)

    def table(self, name: str) -> Table:
        """Open one table by its name, with all of its rows: a sample serves no join."""
        return self._table(self.relation(name), 0)

    def relation(self, name: str) -> Relation:
        """Look up one table by its name."""
        relations = self.relations()
        if name not in relations:
            raise unknown_name("table", name, self.database.place, relations)
        return relations[name]

    def describe(self, index: Path) -> Description:
        """Say where the database is, without its password."""
        described = {"kind": self.kind, "url": self.database.describe(index)}
        return described | ({"prefix": self.prefix} if self.prefix else {})


def _fits(patterns: Iterable[str], names: Iterable[str]) -> bool:
    names = list(names)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _database(url: str) -> Database:
    dialect, driver = dialect_of(url)
    if dialect == "postgresql" and driver in ("", "psycopg", "psycopg2"):
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
    from deepjoin.read.database.sqlalchemy_engine import SqlalchemyDatabase

    return SqlalchemyDatabase(url)


def open_database(location: str, settings: Settings, prefix: str = "") -> DatabaseSource:
    """Open a database by its URL or its file."""
    return DatabaseSource(
        *(location, settings.include, settings.exclude),
        sample_rows=settings.sample_rows,
        version_query=settings.version_query,
        prefix=prefix,
    )


def reopen(described: Description, index: Path, settings: Settings) -> DatabaseSource:
    """Open the database that `DatabaseSource.describe` wrote down.

    A password comes from where libpq looks for it (PGPASSWORD, ~/.pgpass, a service file), or
    from DEEPJOIN_DATABASE_URL if that names the same host and database.
    """
    url = described["url"]
    dialect, _ = dialect_of(url)
    if dialect in ("sqlite", "duckdb"):
        scheme, _, path = url.partition(":///")
        url = f"{scheme}:///{(index.resolve() / path).as_posix()}"
    else:
        url = from_environment(url)
    return open_database(url, settings, described.get("prefix", ""))


def shown(location: str) -> str:
    """Write a location without its password, for messages."""
    dialect, _ = dialect_of(location)
    if dialect in ("sqlite", "duckdb", ""):
        return file_shown(location)
    return Address.of(location).shown()
