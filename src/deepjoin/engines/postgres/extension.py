"""The pgvector of a server: where its types and operators are, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepjoin.errors import StoreUnusable
from deepjoin.read.sql import identifier

if TYPE_CHECKING:
    from psycopg import Connection

_EXTENSION = """
SELECT n.nspname, e.extversion FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector'
"""


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


def made_extension(connection: Connection[Any], place: str) -> Extension:
    """Look up the pgvector of a server that is to be a store, or have it made."""
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
