"""Paths of joins over relations: ranked by probability and fan-out, run as one join."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import deepjoin
from deepjoin.__main__ import main
from deepjoin.errors import DeepJoinError
from deepjoin.lake import Lake
from deepjoin.settings import Vectors

NO_VECTORS = Vectors(cells="none")


def shop() -> dict[str, list[dict[str, Any]]]:
    """Make customers with orders of items; all keys are row numbers, which say little alone."""
    return {
        "customer": [{"customer_id": n, "name": f"Name {n}"} for n in range(1, 31)],
        "orders": [
            {"order_id": n, "customer_id": 1 + n % 30, "day": f"2024-01-{1 + n % 28:02}"}
            for n in range(1, 61)
        ],
        "item": [
            {"item_id": n, "order_id": 1 + n % 60, "product_id": 1 + n % 20} for n in range(1, 181)
        ],
        "product": [{"product_id": n, "title": f"Thing {n}"} for n in range(1, 21)],
    }


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("shop")
    with closing(sqlite3.connect(folder / "shop.sqlite")) as db, db:
        for table, rows in shop().items():
            db.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
            marks = ", ".join("?" * len(rows[0]))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", [[*of.values()] for of in rows])
    return deepjoin.index(str(folder / "shop.sqlite"), folder / "i", vectors=NO_VECTORS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("files")
    for table, rows in shop().items():
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (folder / f"{table}.csv").write_text("\n".join(lines) + "\n")
    return deepjoin.index(str(folder), folder / "i", vectors=NO_VECTORS)


def expected() -> list[tuple[Any, ...]]:
    of = shop()
    orders, items = of["orders"], of["item"]
    found = [
        (customer["name"], order["day"], item["item_id"], of["product"][item["product_id"] - 1])
        for customer in of["customer"]
        for order in orders
        if order["customer_id"] == customer["customer_id"]
        for item in items
        if item["order_id"] == order["order_id"]
    ]
    return sorted((name, day, item, product["title"]) for name, day, item, product in found)


WANTED = ("name", "day", "item_id", "title")


def test_a_path_leads_through_keys_that_are_row_numbers(database: Lake) -> None:
    found = database.paths("customer", "product")
    best = found.paths[0]
    assert [edge.b.table for edge in best] == ["orders", "item", "product"]
    assert all(edge.a.column == edge.b.column for edge in best)
    assert found.probabilities[0] > 0.5
    # 60 orders of 30 customers, 180 items of 60 orders, one product each.
    assert found.fan_outs[0] == pytest.approx(6)
    around = database.neighbourhood("orders")
    assert {node.table for node in around.nodes} >= {"orders", "customer", "item"}


def test_what_a_person_says_changes_paths_and_maps_at_once(database: Lake) -> None:
    join = ("item", "product_id"), ("product", "product_id")
    database.reject(*join)
    try:
        for path in database.paths("customer", "product").paths:
            assert all({edge.a.column, edge.b.column} != {"product_id"} for edge in path)
    finally:
        database.forget(*join)
    database.accept(("orders", "order_id"), ("product", "product_id"))
    try:
        first = database.paths("orders", "product")
        assert [edge.decided for edge in first.paths[0]] == ["accepted"]
        assert first.probabilities[0] == 1
        edges = database.neighbourhood("orders").edges
        assert [edge.probability for edge in edges if edge.decided] == [1]
    finally:
        database.forget(("orders", "order_id"), ("product", "product_id"))


def test_a_path_over_a_database_runs_as_one_join(database: Lake, tmp_path: Path) -> None:
    (path, *_) = database.paths("customer", "product").paths
    with database.join_path(path) as chain:
        assert chain.tables == ("customer", "orders", "item", "product")
        rows = chain.to_arrow()
        assert chain.rows == len(rows) == 180
        found = rows.select(WANTED).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == expected()
        assert chain.write(tmp_path / "out.parquet") == 180
        assert len(chain.preview(3)) == 3
        source = database.index.origin("customer").source
        assert source is not None and source.as_database is not None
        with source.as_database.database.session() as ask:
            told = ask(f"SELECT {', '.join(WANTED)} FROM ({chain.sql})")
        assert sorted(map(tuple, told)) == expected()


def test_a_path_over_files_runs_as_one_statement_of_duckdb(files: Lake) -> None:
    (path, *_) = files.paths("customer.csv", "product.csv").paths
    with files.join_path(path, how="inner") as chain:
        assert chain.rows == 180
        told = duckdb.sql(f"SELECT {', '.join(WANTED)} FROM ({chain.sql})").fetchall()
        assert sorted((a, str(b), int(c), d) for a, b, c, d in told) == expected()


def test_a_key_that_the_next_join_needs_is_brought(tmp_path: Path) -> None:
    codes = [f"c{n:02}" for n in range(20)]
    tables = {
        "a": {"code": codes[:15], "x": [f"x{n}" for n in range(15)]},
        "b": {"code": codes[5:], "y": [f"y{n}" for n in range(15)]},
        "c": {"code": codes, "z": [f"z{n}" for n in range(20)]},
    }
    lake = deepjoin.index(tables, tmp_path / "i", vectors=NO_VECTORS)
    edges = [edge for path in lake.paths("a", "c").paths if len(path) == 2 for edge in path]
    with lake.join_path(edges) as chain:
        rows = chain.to_arrow().to_pylist()
    # Rows of a that b lacks get nothing of c, though c has their codes.
    assert [row["z"] is None for row in rows] == [row["y"] is None for row in rows]
    assert sum(row["z"] is not None for row in rows) == 10


def test_a_path_without_joins_is_refused(database: Lake) -> None:
    with pytest.raises(DeepJoinError, match="A path without joins has nothing to run"):
        database.join_path([])


def test_the_command(database: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = [str(database.path), "customer", "product"]
    main(["path", *ends])
    out = capsys.readouterr().out
    assert out.startswith("1. probability 0.") and "item.product_id = product.product_id" in out
    assert "about 6.0 rows for one" in out
    main(["path", *ends, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["fan_outs"][0] == 6
    main(["path", *ends, "--sql"])
    assert capsys.readouterr().out.count("LEFT JOIN") == 3
    main(["path", *ends, "--run", "--format", "json"])
    assert len(json.loads(capsys.readouterr().out)) == 10
    main(["path", *ends, "-o", str(tmp_path / "o.csv")])
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 181
    assert main(["path", *ends, "--run", "99"]) == 1
    assert "path 99 is not one of them" in capsys.readouterr().err
