"""Databases of each kind, and a check that a written join gives the same rows there."""

from __future__ import annotations

import datetime
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from deepjoin.joining import JoinSide, plan_join
from deepjoin.joining.database_sql import database_sql
from deepjoin.read.database import DatabaseSource
from deepjoin.read.sql import literal


class Shop:
    """A database of one kind: how to write to it and how to run a statement in it."""

    def __init__(
        self, url: str, prefix: str, run: Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]
    ) -> None:
        self.source = DatabaseSource(url)
        self.prefix, self.run = prefix, run

    def make(self, name: str, columns: str, cells: list[tuple[Any, ...]]) -> None:
        """Make a table."""
        self.run(f"CREATE TABLE {name} ({columns})")
        for start in range(0, len(cells), 400):
            rows = (f"({', '.join(map(value, row))})" for row in cells[start : start + 400])
            self.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")

    def side(self, name: str, key: str) -> JoinSide:
        """Take a table as one side of a join."""
        return JoinSide(self.source.table(self.prefix + name), key)


def value(cell: object) -> str:
    if cell is None:
        return "NULL"
    return literal(cell) if isinstance(cell, str) else str(cell)


def run_in_sqlite(path: Path) -> Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]:
    def run(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            cursor = connection.execute(sql)
            return [column[0] for column in cursor.description or []], cursor.fetchall()

    return run


def run_in_duckdb(path: Path) -> Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]:
    def run(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with duckdb.connect(path) as connection:
            cursor = connection.execute(sql)
            return [column[0] for column in cursor.description or []], cursor.fetchall()

    return run


def run_in_postgres(uri: str) -> Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]:
    def run(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        import psycopg

        with psycopg.connect(uri, autocommit=True) as connection:
            # Nothing may depend on how a session writes dates and reads strings.
            connection.execute("SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'")
            if not sql.startswith("INSERT"):
                connection.execute("SET standard_conforming_strings = off")
            cursor = connection.execute(sql.encode())
            if cursor.description is None:
                return [], []
            return [column.name for column in cursor.description], cursor.fetchall()

    return run


@pytest.fixture(params=["postgresql", "sqlite", "duckdb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    path = tmp_path / "shop.db"
    if request.param == "postgresql":
        address = request.getfixturevalue("postgres_uri")
        yield Shop(address, "public.", run_in_postgres(address))
    elif request.param == "sqlite":
        run_in_sqlite(path)("CREATE TABLE other (x)")
        yield Shop(str(path), "", run_in_sqlite(path))
    else:
        run_in_duckdb(path)("CREATE TABLE other (x INTEGER)")
        yield Shop(f"duckdb:///{path}", "main.", run_in_duckdb(path))


def comparable(cell: object) -> object:
    if isinstance(cell, bool) or cell is None:
        return cell
    if isinstance(cell, (int, float, Decimal)):
        return round(float(cell), 9)
    if isinstance(cell, datetime.datetime) and cell.tzinfo:
        return cell.astimezone(datetime.UTC).isoformat()
    return cell.isoformat() if isinstance(cell, datetime.date) else cell


def check(shop: Shop, left: JoinSide, right: JoinSide, named: str = "left", **options: Any) -> str:
    """Run both joins and compare their columns, their rows, and their order."""
    with plan_join(left, right, **options) as plan:
        statement = database_sql(plan, shop.source, left.table.name if named else "")
        expected = plan.to_arrow()
    names, rows = shop.run(statement.replace('"your_table"', "uploaded"))
    assert names == expected.column_names
    wanted = [tuple(map(comparable, row.values())) for row in expected.to_pylist()]
    found = [tuple(map(comparable, row)) for row in rows]
    assert Counter(found) == Counter(wanted)
    assert found == wanted
    return statement
