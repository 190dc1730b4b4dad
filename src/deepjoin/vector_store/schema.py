"""The tables of a store in PostgreSQL: which lake has which vectors, and where these are.

Each segment of a lake has a table of its own in each space, since a segment never changes: it is
loaded and indexed once, and dropped when no lake has it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from deepjoin.errors import StoreUnusable
from deepjoin.sources.quote import identifier
from deepjoin.vector_store.codes import bits_of

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

#: Raised when a later version would lay out the tables differently.
FORMAT = 1
#: Bytes that a page has for a vector.
_PAGE = 8_000
#: Whoever makes the tables below is alone with it.
_MAKING = 20_221
_TABLES = """
CREATE SCHEMA IF NOT EXISTS deepjoin;
CREATE TABLE IF NOT EXISTS deepjoin.store (format int PRIMARY KEY);
INSERT INTO deepjoin.store SELECT {format} WHERE NOT EXISTS (SELECT FROM deepjoin.store);
CREATE TABLE IF NOT EXISTS deepjoin.lakes (
  name text PRIMARY KEY, location text NOT NULL, version text NOT NULL, published timestamptz);
CREATE TABLE IF NOT EXISTS deepjoin.parts (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  segment text NOT NULL, space text NOT NULL, shard int NOT NULL, shards int NOT NULL,
  encoder text NOT NULL, digest text NOT NULL, metric text NOT NULL, dimension int NOT NULL,
  columns int NOT NULL, vectors int NOT NULL, kind text NOT NULL, indexed boolean NOT NULL,
  effort int NOT NULL, UNIQUE (segment, space, shard, shards, kind));
CREATE TABLE IF NOT EXISTS deepjoin.uses (
  lake text REFERENCES deepjoin.lakes ON DELETE CASCADE,
  part int REFERENCES deepjoin.parts, PRIMARY KEY (lake, part));
"""
_EXTENSION = """
SELECT n.nspname, e.extversion FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector'
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

    @property
    def table(self) -> str:
        """The table that holds them."""
        return f"deepjoin.vectors_{self.id}"

    @property
    def coded(self) -> bool:
        """Whether there are codes in place of vectors."""
        return self.kind == "bit"


@dataclass(frozen=True)
class Extension:
    """The pgvector of a server: where its types and operators are, and what it can do."""

    schema: str
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version, to be compared."""
        return tuple(int(number) for number in self.version.split(".")[:2] if number.isdigit())

    @property
    def kind(self) -> str:
        """The smallest type that holds what an index holds, which is of half precision."""
        return "halfvec" if self.numbers >= (0, 7) else "vector"

    @property
    def most(self) -> int:
        """The most dimensions that an HNSW index takes."""
        return 4_000 if self.kind == "halfvec" else 2_000

    @property
    def iterates(self) -> bool:
        """Whether a search of the index can go on until enough was found."""
        return self.numbers >= (0, 8)

    def name(self, of: str) -> str:
        """Name something of it, whatever the search path."""
        return f"{identifier(self.schema)}.{of}"

    def operator(self, metric: str) -> str:
        """Name the operator that gives the distance."""
        return f"OPERATOR({self.name('<=>' if metric == 'cosine' else '<->')})"

    def differing(self, one: str, other: str) -> str:
        """Write how many bits of two codes differ; the operator for it came with 0.7."""
        if self.numbers < (0, 7):
            return f"bit_count({one} # {other})::float8"
        return f"{one} OPERATOR({self.name('<~>')}) ({other})"

    def classed(self, kind: str, metric: str) -> str:
        """Name the operators that an index is built for."""
        return self.name(f"{kind}_{'cosine' if metric == 'cosine' else 'l2'}_ops")


NO_EXTENSION = Extension("", "")


def prepare(connection: Connection[Any], place: str) -> Extension:
    """Make the tables of a store where there are none."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKING])
        if connection.execute("SELECT to_regclass('deepjoin.uses')").fetchone() == (None,):
            execute(connection, _TABLES.format(format=FORMAT))
    _check_format(connection, place)
    return _extended(connection, place)


def _extended(connection: Connection[Any], place: str) -> Extension:
    import psycopg

    found = connection.execute(_EXTENSION).fetchone()
    if found is None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            why = " ".join(str(error).split("\n")[0].split()).rstrip(".")
            raise StoreUnusable(
                f"{place} has no pgvector ({why}). Have it installed, and then: "
                "CREATE EXTENSION vector"
            ) from None
        found = connection.execute(_EXTENSION).fetchone()
    extension = NO_EXTENSION if found is None else Extension(*found)
    if extension.numbers < (0, 5):
        raise StoreUnusable(
            f"{place} has pgvector {extension.version}, and HNSW came with 0.5. Update it, and "
            "then: ALTER EXTENSION vector UPDATE"
        )
    return extension


def extension_of(connection: Connection[Any], place: str) -> Extension:
    """Look up the pgvector of a store."""
    found = connection.execute(_EXTENSION).fetchone()
    if found is None:
        raise StoreUnusable(
            f"{place} has lost pgvector, and the vectors with it. Publish the index again, after "
            "deepjoin publish --remove"
        )
    return Extension(*found)


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


_FIELDS = ", ".join(field.name for field in fields(Part))


def parts_of(
    connection: Connection[Any], place: str, segments: Sequence[str], shards: int
) -> list[Part]:
    """List what a server has of some segments, cut into so many shares; nothing of none."""
    if connection.execute("SELECT to_regclass('deepjoin.uses')").fetchone() == (None,):
        return []
    _check_format(connection, place)
    sql = (
        f"SELECT {_FIELDS} FROM deepjoin.parts WHERE segment = ANY(%s) AND shards = %s ORDER BY id"
    )
    return [Part(*row) for row in execute(connection, sql, [list(segments), shards])]


def add_part(connection: Connection[Any], part: Part) -> Part:
    """Note a part that is about to be loaded, and give it its number."""
    names = _FIELDS.partition(", ")[2]
    places = ", ".join(["%s"] * (len(fields(Part)) - 1))
    sql = f"INSERT INTO deepjoin.parts ({names}) VALUES ({places}) RETURNING {_FIELDS}"
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
