"""A PostgreSQL server: connections that threads take and give back, errors in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from deepjoin.errors import (
    DeepJoinError,
    MissingExtra,
    StoreChanged,
    StoreUnreachable,
    StoreUnusable,
)
from deepjoin.read.database.url import Address, dialect_of, one_line

if TYPE_CHECKING:
    from psycopg import Connection, Error

Done = TypeVar("Done")

#: Seconds until a server that does not answer is given up: to be reached, and for one question.
CONNECTING, ANSWERING = 5, 10
#: How a connection whose other end has gone without a word is noticed, in 20 seconds.
_KEPT_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2}
#: Seconds that stopping the work of a server may take.
_STOPPING = 5
#: What PostgreSQL calls a table, a schema, a column, an operator or a type that is not there.
_GONE = ("42P01", "3F000", "42703", "42883", "42704")
_TIMED_OUT, _FORBIDDEN = "57014", "42501"
#: How the states begin of a connection that failed, and of a server that is shut down.
_LOST = ("08", "57P")
#: Work that takes long is not ended by what a server sets for others; and a server lets go of what
#: a run holds soon after its machine has gone.
_AT_LENGTH = """
SET statement_timeout = 0; SET idle_session_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4
"""


class Server:
    """A database that holds vectors; threads share it, each with a connection while it asks."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url)
        address = Address.of(self._url)
        #: The address without secrets.
        self.place = address.shown()
        self._secrets = [*address.secrets(), *filter(None, [os.environ.get("PGPASSWORD")])]
        self._lock, self._owner = Lock(), os.getpid()
        self._idle: list[Connection[Any]] = []
        self._working: list[Connection[Any]] = []
        # When nobody has the server any more, or the process ends.
        finalize(self, _close, self._idle)

    def __repr__(self) -> str:
        return f"Server({self.place!r})"

    def ask(self, work: Callable[[Connection[Any]], Done]) -> Done:
        """Ask something; a connection that broke since it was last used is replaced."""
        import psycopg

        idle = self._take()
        if idle is not None:
            try:
                return self._use(idle, work)
            except psycopg.Error as error:
                if not idle.closed:
                    raise self._unanswered(error) from None
                self.close()  # those beside it broke with it
        try:
            return self._use(self._connect(), work)
        except psycopg.Error as error:
            raise self._unanswered(error) from None

    @contextmanager
    def session(self) -> Iterator[Connection[Any]]:
        """Lend a connection of its own, for work that takes long."""
        connection = self._connect()
        self._working.append(connection)
        try:
            with self.telling():
                connection.execute(_AT_LENGTH)
                yield connection
        finally:
            self._working.remove(connection)
            connection.close()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say of this server what goes wrong with it."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self.failure(error) from None

    def interrupt(self) -> None:
        """Stop what sessions are doing; one that cannot be stopped is closed soon anyway."""
        import psycopg

        for connection in list(self._working):
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_STOPPING)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            _close(self._idle)

    def failure(self, error: Error) -> DeepJoinError:
        """Say in one line, without secrets, what went wrong."""
        said, state = one_line(error, self._secrets), error.sqlstate or ""
        if state == _FORBIDDEN:
            return StoreUnusable(
                f"{self.place} does not allow it: {said}. Searching needs USAGE on the schema "
                "deepjoin and SELECT on its tables; publishing needs to own them."
            )
        if not state or state.startswith(_LOST):
            return StoreUnreachable(f"Lost the connection to {self.place}: {said}.")
        return StoreUnusable(f"{self.place} said: {said}.")

    def _unanswered(self, error: Error) -> DeepJoinError:
        """Say why a question has no answer."""
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

    def _take(self) -> Connection[Any] | None:
        with self._lock:
            if self._owner != os.getpid():  # connections cannot be shared with a parent process
                self._idle.clear()
                self._owner = os.getpid()
            return self._idle.pop() if self._idle else None

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
            # Statements are not prepared: poolers in front of a server may not know them again.
            connection = psycopg.connect(
                self._url, autocommit=True, prepare_threshold=None, **options
            )
        except psycopg.Error as error:
            said = one_line(error, self._secrets)
            hint = ""
            if "password" in said or "authentication" in said:
                hint = " Give the password by PGPASSWORD or ~/.pgpass."
            raise StoreUnreachable(f"Cannot connect to {self.place}: {said}.{hint}") from None
        from deepjoin.engines.postgres.adapting import teach

        teach(connection)
        return connection


@contextmanager
def limited(connection: Connection[Any]) -> Iterator[None]:
    """Ask within one transaction, in which no statement takes longer than a question may."""
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = {int(1000 * ANSWERING)}".encode())
        yield


def _close(connections: list[Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


def addresses(given: str | Sequence[str]) -> list[str]:
    """List the addresses of a vector store: several are parted by blanks.

    >>> addresses("postgresql://a/v postgresql://b/v")
    ['postgresql://a/v', 'postgresql://b/v']
    """
    found = [url for text in ([given] if isinstance(given, str) else given) for url in text.split()]
    if not found:
        raise DeepJoinError("No vector store came; name one such as postgresql://host/vectors")
    return found


def _checked(url: str) -> str:
    """Refuse what is no address of a PostgreSQL database, or cannot be reached from here."""
    if "://" not in url or dialect_of(url)[0] != "postgresql":
        # Such text may be a password, or hold one: no part of it is shown.
        shown = f"{dialect_of(url)[0]}://..." if "://" in url else "Text that is no URL"
        raise DeepJoinError(
            f"{shown} came as a vector store; it is a PostgreSQL database with pgvector, such as "
            "postgresql://me@host/vectors"
        )
    scheme, separator, rest = url.partition("://")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra(
            f"The vector store {Address.of(url).shown()} needs the PostgreSQL extra: "
            "pip install 'deepjoin[postgres]'"
        ) from None
    return scheme.partition("+")[0] + separator + rest
