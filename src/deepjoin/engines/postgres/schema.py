"""The tables of a store in PostgreSQL: which lake has which vectors, and where these are.

Each segment of a lake has a table of its own in each space, since a segment never changes: it is
loaded and indexed once, and dropped when no lake has it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from deepjoin.engines.postgres.codes import bits_of
from deepjoin.engines.postgres.extension import Extension, made_extension
from deepjoin.errors import StoreUnusable

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

#: Raised when a later version would lay out the tables differently.
FORMAT = 1
#: Bytes that a page has for a vector.
_PAGE = 8_000
#: Whoever makes the tables below is alone with it.
_MAKING = 20_221
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


@dataclass(frozen=True)
class Part:
    """The vectors that one segment has in one space, or a server's share of them."""

    id: int
    segment: str
    space: str
    #: Which share it is, from 0 on, and of how many.
    shard: int
    shards: int
    encoder: str
    digest: str
    metric: str
    dimension: int
    #: How many columns the whole segment has, and how many different vectors are here.
    columns: int
    vectors: int
    #: Their type: "halfvec", "vector", or "bit" for codes in their place.
    kind: str
    #: Whether there is an HNSW index; else all are compared.
    indexed: bool
    #: How many candidates a search of the index keeps (hnsw.ef_search), or one of codes gives.
    effort: int
    #: Drawn for its table's name, so that no other table is ever called so.
    token: str
    #: Whether a whole state of a lake was there with it, so that searches may use it.
    ready: bool = False

    @property
    def name(self) -> str:
        """What the table that holds them is called in its schema."""
        return f"vectors_{self.id}_{self.token}"

    @property
    def table(self) -> str:
        """The table that holds them."""
        return f"deepjoin.{self.name}"

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What is the same of all that hold the same vectors, by whichever encoder."""
        return self.segment, self.space, self.shard, self.shards

    @property
    def coded(self) -> bool:
        """Whether there are codes in place of vectors."""
        return self.kind == "bit"


def prepare(connection: Connection[Any], place: str) -> Extension:
    """Make the tables of a store where there are none."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKING])
        extension = made_extension(connection, place)
        # Only what is missing is made: whoever owns the schema may do no more than that.
        if connection.execute("SELECT to_regnamespace('deepjoin')").fetchone() == (None,):
            connection.execute("CREATE SCHEMA deepjoin")
        if not is_made(connection):
            execute(connection, _TABLES.format(format=FORMAT))
        _check_format(connection, place)
    return extension


def is_made(connection: Connection[Any]) -> bool:
    """Tell whether a server has the tables of a store."""
    return connection.execute("SELECT to_regclass('deepjoin.uses')").fetchone() != (None,)


def _check_format(connection: Connection[Any], place: str) -> None:
    (number,) = connection.execute("SELECT max(format) FROM deepjoin.store").fetchone() or (0,)
    if number > FORMAT:
        raise StoreUnusable(
            f"The vectors in {place} have format {number}; this version reads up to {FORMAT}. "
            "Install a newer deepjoin."
        )


def execute(
    connection: Connection[Any], sql: str, values: Sequence[Any] | None = None
) -> Cursor[Any]:
    """Run a statement that is put together from names of our own."""
    return connection.execute(sql.encode(), values)


PART_FIELDS = ", ".join(field.name for field in fields(Part))


def parts_of(connection: Connection[Any], place: str, segments: Sequence[str]) -> list[Part]:
    """List what a server has of some segments, from the oldest to the newest; nothing of none."""
    if not is_made(connection):
        return []
    _check_format(connection, place)
    sql = f"SELECT {PART_FIELDS} FROM deepjoin.parts WHERE segment = ANY(%s) ORDER BY id"
    return [Part(*row) for row in execute(connection, sql, [list(segments)])]


def lock_part(connection: Connection[Any], key: Sequence[object], *, wait: bool) -> bool:
    """Be the only one, until the transaction ends, who makes or drops a part of this key.

    Unless it is waited for, False says that another one is at it.
    """
    lock = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    sql = f"SELECT {lock}(hashtextextended(%s, 0))"
    text = " ".join(["deepjoin part", *map(str, key)])
    return execute(connection, sql, [text]).fetchone() != (False,)


def add_part(connection: Connection[Any], part: Part) -> Part:
    """Note a part that is about to be loaded, and give it its number."""
    names = PART_FIELDS.partition(", ")[2]
    places = ", ".join(["%s"] * (len(fields(Part)) - 1))
    sql = f"INSERT INTO deepjoin.parts ({names}) VALUES ({places}) RETURNING {PART_FIELDS}"
    (row,) = execute(connection, sql, astuple(part)[1:]).fetchall()
    return Part(*row)


def create_table(connection: Connection[Any], extension: Extension, part: Part) -> None:
    """Make the table of a part; rows that fit a page are stored as they are, in one piece."""
    size = part.dimension * {"vector": 4, "halfvec": 2, "bit": 1}[part.kind]
    kind = f"{extension.name(part.kind)}({part.dimension})"
    if part.coded:
        kind = f"bit({bits_of(part.dimension)})"
    execute(
        connection,
        f"CREATE TABLE {part.table} (first int NOT NULL, members int[], v {kind} NOT NULL)",
    )
    if size <= _PAGE:
        execute(connection, f"ALTER TABLE {part.table} ALTER COLUMN v SET STORAGE PLAIN")
