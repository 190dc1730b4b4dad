"""A PostgreSQL server with pgvector: pooled connections, one-line errors, what its version can do.

psycopg is imported when a server is first used: it is optional, and slow to import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from deepjoin.engines.postgres.binary import BitCode, VectorParameter
from deepjoin.errors import DeepJoinError, StoreChanged, StoreUnreachable, StoreUnusable, first_line
from deepjoin.optional import require
from deepjoin.read.database.url import Address, dialect_of
from deepjoin.read.sql import identifier

if TYPE_CHECKING:
    from psycopg import Connection, Error
    from psycopg.adapt import Dumper

Done = TypeVar("Done")

#: Seconds until an unresponsive server is given up: for a connection, and for one query.
CONNECTING, ANSWERING = 5, 10
#: TCP settings that detect a dead peer within 20 seconds.
_KEPT_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2}
#: Seconds that cancelling a statement may take.
_STOPPING = 5
#: SQL states of a missing table, schema, column, operator or type.
_GONE = ("42P01", "3F000", "42703", "42883", "42704")
_TIMED_OUT, _FORBIDDEN = "57014", "42501"
#: Prefixes of the SQL states of a failed connection and of a server that is shut down.
_LOST = ("08", "57P")
#: For long sessions: names mean the server's own functions; its timeouts are ignored; it notices a
#: dead client soon, so that the locks of a lost run are released.
_LONG_SESSION = """
SET search_path = pg_catalog, pg_temp; SET statement_timeout = 0; SET idle_session_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4
"""

#: Where pgvector is installed, and its version.
_EXTENSION = """
SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector'
"""


class Server:
    """A database that holds vectors; threads share it and its pool of connections."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url)
        address = Address.of(self._url)
        #: The address without secrets.
        self.place = address.shown()
        self._secrets = [*address.secrets(), *filter(None, [os.environ.get("PGPASSWORD")])]
        self._lock, self._owner = Lock(), os.getpid()
        self._idle: list[Connection[Any]] = []
        self._working: list[Connection[Any]] = []
        # Close them when the server is garbage-collected or the process ends.
        finalize(self, _close, self._idle)

    def __repr__(self) -> str:
        return f"Server({self.place!r})"

    def ask(self, work: Callable[[Connection[Any]], Done]) -> Done:
        """Run a query; a connection that broke while it was idle is replaced."""
        import psycopg

        with self._lock:
            if self._owner != os.getpid():  # connections cannot be shared with a parent process
                self._idle.clear()
                self._owner = os.getpid()
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                return self._use(idle, work)
            except psycopg.Error as error:
                if not idle.closed:
                    raise self._unanswered(error) from None
                self.close()  # the other idle ones broke with it
        try:
            return self._use(self._connect(), work)
        except psycopg.Error as error:
            raise self._unanswered(error) from None

    @contextmanager
    def session(self) -> Iterator[Connection[Any]]:
        """Open a separate connection for long work."""
        connection = self._connect()
        self._working.append(connection)
        try:
            with self.reporting():
                connection.execute(_LONG_SESSION)
                yield connection
        finally:
            self._working.remove(connection)
            connection.close()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Turn psycopg's errors into ours, with the name of this server."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self.failure(error) from None

    def interrupt(self) -> None:
        """Cancel what sessions are doing; one that cannot be cancelled is closed soon anyway."""
        import psycopg

        for connection in list(self._working):
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_STOPPING)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            _close(self._idle)

    def failure(self, error: Error) -> DeepJoinError:
        """Describe an error in one line, without secrets."""
        said, state = first_line(error, self._secrets), error.sqlstate or ""
        if state == _FORBIDDEN:
            return StoreUnusable(
                f"{self.place} does not allow it: {said}. Searching needs USAGE on the schema "
                "deepjoin and SELECT on its tables; publishing needs to own them."
            )
        if not state or state.startswith(_LOST):
            return StoreUnreachable(f"Lost the connection to {self.place}: {said}.")
        return StoreUnusable(f"{self.place} said: {said}.")

    def _unanswered(self, error: Error) -> DeepJoinError:
        """Describe an error of a search: timeouts and missing tables have a remedy."""
        if error.sqlstate == _TIMED_OUT:
            return StoreUnreachable(
                f"{self.place} did not answer within {ANSWERING} seconds. Try again, or look at "
                "what else it is doing."
            )
        if error.sqlstate in _GONE:
            return StoreChanged(
                f"{self.place} no longer holds vectors that the index had when it was opened. Open "
                "the index again; if that does not help, publish it with: deepjoin publish"
            )
        return self.failure(error)

    def _use(self, connection: Connection[Any], work: Callable[[Connection[Any]], Done]) -> Done:
        from psycopg.pq import TransactionStatus

        try:
            return work(connection)
        finally:
            if connection.info.transaction_status == TransactionStatus.IDLE:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _connect(self) -> Connection[Any]:
        import psycopg

        options: dict[str, Any] = {"fallback_application_name": "deepjoin"}
        if "connect_timeout" not in self._url and "PGCONNECT_TIMEOUT" not in os.environ:
            options["connect_timeout"] = CONNECTING
        usual = {"tcp_user_timeout": 1000 * ANSWERING, **_KEPT_ALIVE}
        options |= {name: value for name, value in usual.items() if name not in self._url}
        try:
            # No prepared statements: a pooler may send the next query to another backend.
            connection = psycopg.connect(
                self._url, autocommit=True, prepare_threshold=None, **options
            )
        except psycopg.Error as error:
            said = first_line(error, self._secrets)
            hint = ""
            if "password" in said or "authentication" in said:
                hint = " Give the password by PGPASSWORD or ~/.pgpass."
            raise StoreUnreachable(f"Cannot connect to {self.place}: {said}.{hint}") from None
        for parameter in (VectorParameter, BitCode):
            connection.adapters.register_dumper(parameter, _bytes_dumper())
        return connection


@cache
def _bytes_dumper() -> type[Dumper]:
    """Make the class that lets psycopg send vectors and codes in their binary form."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class BytesDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj.bytes)

    return BytesDumper


def _close(connections: list[Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


def addresses(given: str | Sequence[str]) -> list[str]:
    """Split the addresses of a vector store, which are separated by blanks.

    >>> addresses("postgresql://a/v postgresql://b/v")
    ['postgresql://a/v', 'postgresql://b/v']
    """
    found = [url for text in ([given] if isinstance(given, str) else given) for url in text.split()]
    if not found:
        raise DeepJoinError(
            "No vector store was given. Give an address, e.g. postgresql://host/vectors"
        )
    return found


def _checked(url: str) -> str:
    """Refuse an address that is not PostgreSQL's, and a missing driver."""
    if "://" not in url or dialect_of(url)[0] != "postgresql":
        # Such text may be a password or hold one, so no part of it is printed.
        given = f"{dialect_of(url)[0]}://..." if "://" in url else "Text that is not a URL"
        raise DeepJoinError(
            f"{given} was given as a vector store, which is a PostgreSQL database with pgvector. "
            "Give an address, e.g. postgresql://me@host/vectors"
        )
    scheme, separator, rest = url.partition("://")
    require("psycopg", "postgres", f"The vector store {Address.of(url).shown()}")
    return scheme.partition("+")[0] + separator + rest


@dataclass(frozen=True)
class Extension:
    """The pgvector of a server: the schema of its types and operators, and its version."""

    schema: str
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, for comparison."""
        return tuple(int(number) for number in self.version.split(".")[:2] if number.isdigit())

    @property
    def kind(self) -> str:
        """The smallest type that holds vectors of half precision."""
        return "halfvec" if self.numbers >= (0, 7) else "vector"

    @property
    def most(self) -> int:
        """The most dimensions an HNSW index accepts."""
        return 4_000 if self.kind == "halfvec" else 2_000

    @property
    def iterates(self) -> bool:
        """Whether an index scan can continue until it has found enough."""
        return self.numbers >= (0, 8)

    def name(self, of: str) -> str:
        """Qualify a name of the extension, so that the search path does not matter."""
        return f"{identifier(self.schema)}.{of}"

    def operator(self, metric: str) -> str:
        """Return the distance operator."""
        return f"OPERATOR({self.name('<=>' if metric == 'cosine' else '<->')})"

    def differing(self, one: str, other: str) -> str:
        """Write the Hamming distance of two codes; the operator for it came with 0.7."""
        if self.numbers < (0, 7):
            return f"pg_catalog.bit_count({one} # {other})::pg_catalog.float8"
        return f"{one} OPERATOR({self.name('<~>')}) ({other})"

    def operator_class(self, kind: str, metric: str) -> str:
        """Return the operator class of an index."""
        return self.name(f"{kind}_{'cosine' if metric == 'cosine' else 'l2'}_ops")


NO_EXTENSION = Extension("", "")


def ensure_extension(connection: Connection[Any], place: str) -> Extension:
    """Return the pgvector of a server that becomes a store; create the extension if needed."""
    import psycopg

    found = connection.execute(_EXTENSION).fetchone()
    if found is None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        except psycopg.Error as error:
            why = " ".join(str(error).split("\n")[0].split()).rstrip(".")
            raise StoreUnusable(
                f"{place} has no pgvector ({why}). Have it installed, then run: "
                "CREATE EXTENSION vector"
            ) from None
        found = connection.execute(_EXTENSION).fetchone()
    extension = NO_EXTENSION if found is None else Extension(*found)
    if extension.numbers < (0, 5):
        raise StoreUnusable(
            f"{place} has pgvector {extension.version}; HNSW needs 0.5 or newer. Update it, then "
            "run: ALTER EXTENSION vector UPDATE"
        )
    return extension


def extension_of(connection: Connection[Any], place: str) -> Extension:
    """Return the pgvector of a store, which had it when it was made."""
    found = connection.execute(_EXTENSION).fetchone()
    if found is None:
        raise StoreUnusable(
            f"{place} has lost pgvector, and the vectors with it. Publish the index again, after "
            "deepjoin publish --remove"
        )
    return Extension(*found)
