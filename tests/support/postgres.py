"""A PostgreSQL server for tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepjoin.files import TemporaryFolder

#: A role that needs a password.
ROLE, PASSWORD = "locked", "open sesame/1"


@pytest.fixture(scope="module")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a server of our own; where none can be started, say so loudly and skip."""
    # initdb wants a folder without a lock in it.
    place = TemporaryFolder("deepjoin-pg-")
    folder = place.path / "data"
    try:
        # As a matter of course it warns of folders that a desktop would have.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pgserver
            import psycopg  # noqa: F401

            started = pgserver.get_server(folder)
    except Exception as error:
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        reason = f"NO POSTGRESQL WAS TESTED: {type(error).__name__}: {error}"
        if reporter is not None:
            reporter.write_line(reason, red=True)
        pytest.skip(reason)
    _require_password(folder, started.get_uri())
    yield started.get_uri()
    started.cleanup()
    place.remove()


def _require_password(folder: Path, uri: str) -> None:
    access = folder / "pg_hba.conf"
    access.write_text(f"local all {ROLE} scram-sha-256\n{access.read_text()}")
    execute(uri, f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'", "SELECT pg_reload_conf()")


@pytest.fixture
def postgres_uri(postgres_server: str) -> Iterator[str]:
    """Give every test a database without tables of others."""
    execute(postgres_server, "DROP DATABASE IF EXISTS fresh WITH (FORCE)", "CREATE DATABASE fresh")
    yield postgres_server.replace("/postgres?", "/fresh?")


def execute(uri: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
