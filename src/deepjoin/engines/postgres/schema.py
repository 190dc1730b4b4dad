"""The tables of a vector store in PostgreSQL: which lakes use which tables of vectors.

Each segment of a lake has one table per space: segments are immutable, so a table is loaded and
indexed once, and dropped when no lake uses it any more. A run that changes a lake locks its name
until the session ends, so that two runs never remove what the other has just added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, fields
from time import sleep
from typing import TYPE_CHECKING, Any

from deepjoin._version import __version__
from deepjoin.engines.postgres.binary import bits_of
from deepjoin.engines.postgres.server import Extension, ensure_extension
from deepjoin.errors import DeepJoinError, StoreUnusable

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

#: Raised when a later version would lay out the tables differently.
FORMAT = 1
#: Bytes that a page of PostgreSQL has for a vector.
_PAGE = 8_000
#: The advisory lock under which the tables below are created.
_CREATING = 20_221
#: A lake that is held is tried this often, after this many seconds: the server may not have noticed
#: yet that a run was killed a moment ago.
_TRIES, _PAUSE = 20, 0.1
#: How long to wait for an unused table that a search may still be reading.
_PATIENCE = "5s"
#: SQL states of a table that is being read, and of one that a lake has just started to use.
_IN_USE = ("55P03", "23503")
_TABLES = """
CREATE TABLE IF NOT EXISTS deepjoin.store (format int PRIMARY KEY);
INSERT INTO deepjoin.store SELECT {format} WHERE NOT EXISTS (SELECT FROM deepjoin.store);
CREATE TABLE IF NOT EXISTS deepjoin.lakes (
  name text PRIMARY KEY, location text NOT NULL, version text NOT NULL, published timestamptz);
CREATE TABLE IF NOT EXISTS deepjoin.parts (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  segment text NOT NULL, space text NOT NULL, shard int NOT NULL, shards int NOT NULL,
  encoder text NOT NULL, digest text NOT NULL, metric text NOT NULL, dimension int NOT NULL,
  columns int NOT NULL, vectors int NOT NULL, kind text NOT NULL, indexed boolean NOT NULL,
  effort int NOT NULL, token text NOT NULL, ready boolean NOT NULL DEFAULT false,
  UNIQUE (segment, space, shard, shards, kind, digest, metric, dimension, columns));
CREATE TABLE IF NOT EXISTS deepjoin.uses (
  lake text REFERENCES deepjoin.lakes ON DELETE CASCADE,
  part int REFERENCES deepjoin.parts, PRIMARY KEY (lake, part));
"""
_SIZE = """
SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(
  pg_catalog.format('deepjoin.vectors_%%s_%%s', p.id, p.token)::pg_catalog.regclass)), 0)
FROM deepjoin.uses u JOIN deepjoin.parts p ON p.id = u.part WHERE u.lake = %s
"""


@dataclass(frozen=True)
class VectorTable:
    """The vectors of one segment in one space, or a server's share of them: one table."""

    id: int
    segment: str
    space: str
    #: Which share it holds, counted from 0, and of how many.
    shard: int
    shards: int
    encoder: str
    digest: str
    metric: str
    dimension: int
    #: Columns of the whole segment, and distinct vectors in this table.
    columns: int
    vectors: int
    #: The type: "halfvec", "vector", or "bit" for codes instead of vectors.
    kind: str
    #: Whether there is an HNSW index; otherwise every row is compared.
    indexed: bool
    #: Candidates that a search of the index keeps (hnsw.ef_search) or a scan of codes returns.
    effort: int
    #: Random part of the table's name, so that no name is ever used twice.
    token: str
    #: Whether searches may use it: set once all tables of a lake are loaded.
    ready: bool = False

    @property
    def name(self) -> str:
        """The name of the table within its schema."""
        return f"vectors_{self.id}_{self.token}"

    @property
    def table(self) -> str:
        """The qualified name of the table."""
        return f"deepjoin.{self.name}"

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What all tables of the same share have in common, whatever the encoder."""
        return self.segment, self.space, self.shard, self.shards

    @property
    def coded(self) -> bool:
        """Whether it holds codes instead of vectors."""
        return self.kind == "bit"


def prepare(connection: Connection[Any], place: str) -> Extension:
    """Create the tables of a store if they do not exist."""
    with connection.transaction():
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [_CREATING])
        extension = ensure_extension(connection, place)
        # Create only what is missing: the role may own the schema and be allowed nothing else.
        if connection.execute("SELECT pg_catalog.to_regnamespace('deepjoin')").fetchone() == (
            None,
        ):
            connection.execute("CREATE SCHEMA deepjoin")
        if not is_made(connection):
            execute(connection, _TABLES.format(format=FORMAT))
        _check_format(connection, place)
    return extension


def is_made(connection: Connection[Any]) -> bool:
    """Check whether a server has the tables of a store."""
    return connection.execute("SELECT pg_catalog.to_regclass('deepjoin.uses')").fetchone() != (
        None,
    )


def _check_format(connection: Connection[Any], place: str) -> None:
    (number,) = connection.execute(
        "SELECT pg_catalog.max(format) FROM deepjoin.store"
    ).fetchone() or (0,)
    if number > FORMAT:
        raise StoreUnusable(
            f"The vectors in {place} have format {number}; this version reads up to {FORMAT}. "
            "Install a newer deepjoin."
        )


def execute(
    connection: Connection[Any], sql: str, values: Sequence[Any] | None = None
) -> Cursor[Any]:
    """Run a statement composed of our own names; psycopg wants bytes for those."""
    return connection.execute(sql.encode(), values)


_FIELDS = ", ".join(field.name for field in fields(VectorTable))


def tables_of(
    connection: Connection[Any], place: str, segments: Sequence[str]
) -> list[VectorTable]:
    """List the tables a server has of some segments, the oldest first."""
    if not is_made(connection):
        return []
    _check_format(connection, place)
    sql = f"SELECT {_FIELDS} FROM deepjoin.parts WHERE segment = ANY(%s) ORDER BY id"
    return [VectorTable(*row) for row in execute(connection, sql, [list(segments)])]


def lock_table(connection: Connection[Any], key: Sequence[object], *, wait: bool) -> bool:
    """Lock a key until the transaction ends, so that nobody else creates or drops its table.

    Without ``wait``, return False if another session holds it.
    """
    lock = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    sql = f"SELECT pg_catalog.{lock}(pg_catalog.hashtextextended(%s, 0))"
    text = " ".join(["deepjoin part", *map(str, key)])
    return execute(connection, sql, [text]).fetchone() != (False,)


def add_table(connection: Connection[Any], table: VectorTable) -> VectorTable:
    """Register a table that is about to be loaded; returns it with its id."""
    names = _FIELDS.partition(", ")[2]
    places = ", ".join(["%s"] * (len(fields(VectorTable)) - 1))
    sql = f"INSERT INTO deepjoin.parts ({names}) VALUES ({places}) RETURNING {_FIELDS}"
    (row,) = execute(connection, sql, astuple(table)[1:]).fetchall()
    return VectorTable(*row)


def create_table(connection: Connection[Any], extension: Extension, table: VectorTable) -> None:
    """Create a table; rows that fit a page are stored uncompressed and inline."""
    size = table.dimension * {"vector": 4, "halfvec": 2, "bit": 1}[table.kind]
    kind = f"{extension.name(table.kind)}({table.dimension})"
    if table.coded:
        kind = f"bit({bits_of(table.dimension)})"
    execute(
        connection,
        f"CREATE TABLE {table.table} (first int NOT NULL, members int[], v {kind} NOT NULL)",
    )
    if size <= _PAGE:
        execute(connection, f"ALTER TABLE {table.table} ALTER COLUMN v SET STORAGE PLAIN")


def hold(connection: Connection[Any], place: str, name: str) -> None:
    """Lock a lake on a server until the session ends."""
    sql = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))"
    for attempt in range(_TRIES):
        if attempt:
            sleep(_PAUSE)
        if connection.execute(sql, [f"deepjoin lake {name}"]).fetchone() == (True,):
            return
    raise DeepJoinError(
        f"Another run is publishing '{name}' to {place} or removing it. Wait for it, then run "
        "this again."
    )


def check_name(
    connection: Connection[Any], place: str, lake: tuple[str, str], segments: Collection[str]
) -> None:
    """Check that no other lake is published under this name.

    A lake from another location that shares a segment is a copy or a moved one, not another.
    """
    sql = (
        "SELECT location, coalesce(pg_catalog.array_agg(p.segment), '{}') FROM deepjoin.lakes l "
        "LEFT JOIN deepjoin.uses u ON u.lake = l.name LEFT JOIN deepjoin.parts p ON p.id = u.part "
        "WHERE l.name = %s GROUP BY l.name"
    )
    name, location = lake
    found = connection.execute(sql, [name]).fetchone()
    if found is not None and found[0] != location and not set(segments) & set(found[1]):
        raise DeepJoinError(
            f"{place} has another lake '{name}', published from {found[0]}. Give this one another "
            "name with `name`, or replace it with `replace=True`."
        )


def register(connection: Connection[Any], lake: tuple[str, str]) -> None:
    """Register a lake under its name, with its location."""
    connection.execute(
        "INSERT INTO deepjoin.lakes VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
        "location = excluded.location, version = excluded.version",
        [*lake, __version__],
    )


def make_visible(connection: Connection[Any], tables: Sequence[int]) -> None:
    """Let searches use tables, all at once."""
    connection.execute("UPDATE deepjoin.parts SET ready = true WHERE id = ANY(%s)", [list(tables)])


def finish(connection: Connection[Any], name: str, tables: Sequence[int]) -> tuple[int, int]:
    """Drop what a lake no longer uses; returns how many tables, and the bytes it takes."""
    with connection.transaction():
        connection.execute(
            "DELETE FROM deepjoin.uses WHERE lake = %s AND part <> ALL(%s)", [name, list(tables)]
        )
        connection.execute(
            "UPDATE deepjoin.lakes SET published = pg_catalog.now() WHERE name = %s", [name]
        )
    dropped = _drop_unused(connection)
    (size,) = connection.execute(_SIZE, [name]).fetchone() or (0,)
    return dropped, int(size)


def lake_names(connection: Connection[Any]) -> list[str]:
    """List the lakes of a server."""
    if not is_made(connection):
        return []
    return [name for (name,) in connection.execute("SELECT name FROM deepjoin.lakes")]


def remove_lake(connection: Connection[Any], name: str) -> int:
    """Remove a lake; returns the number of dropped tables."""
    connection.execute("DELETE FROM deepjoin.lakes WHERE name = %s", [name])
    return _drop_unused(connection)


def _drop_unused(connection: Connection[Any]) -> int:
    """Drop the tables that no lake uses; one that is being read is left to the next run."""
    from psycopg import Error

    unused = "NOT EXISTS (SELECT FROM deepjoin.uses WHERE part = p.id)"
    found = execute(connection, f"SELECT {_FIELDS} FROM deepjoin.parts p WHERE {unused}").fetchall()
    dropped = 0
    for table in (VectorTable(*row) for row in found):
        try:
            with connection.transaction():
                execute(connection, f"SET LOCAL lock_timeout = '{_PATIENCE}'")
                if not lock_table(connection, table.key, wait=False):
                    continue
                # Check again under the lock: another lake may have started to use it.
                sql = f"DELETE FROM deepjoin.parts p WHERE id = %s AND {unused}"
                if execute(connection, sql, [table.id]).rowcount:
                    execute(connection, f"DROP TABLE {table.table}")
                    dropped += 1
        except Error as error:
            if error.sqlstate not in _IN_USE:
                raise
    return dropped


def assigned(held: Sequence[Collection[int]]) -> list[int | None]:
    """Assign to as many servers as possible a different share they hold; None to the rest.

    This is maximum bipartite matching by augmenting paths.

    >>> assigned([{0, 1}, {0}, {1}])
    [1, 0, None]
    """
    owners: dict[int, int] = {}

    def assign(server: int, seen: set[int]) -> bool:
        """Assign a share to a server; its present owner moves to another share, if it can."""
        for share in sorted(held[server]):
            if share not in seen:
                seen.add(share)
                if share not in owners or assign(owners[share], seen):
                    owners[share] = server
                    return True
        return False

    for server in range(len(held)):
        assign(server, set())
    shares = {server: share for share, server in owners.items()}
    return [shares.get(server) for server in range(len(held))]


def completed(shares: Sequence[int | None]) -> list[int]:
    """Assign the remaining shares, in order, to the servers that have none.

    >>> completed([2, None, 0])
    [2, 1, 0]
    """
    free = iter(sorted(set(range(len(shares))) - set(shares)))
    return [next(free) if share is None else share for share in shares]
