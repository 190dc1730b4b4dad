"""Enrichment on order: the nearest earlier row, and the range that holds a value."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import DeepJoinError, EnrichSettings
from deepjoin.enriching.joins import KeyCells, RepeatableJoin, joined_rows
from deepjoin.enriching.ordered import OrderedKey
from deepjoin.joining.session import Session

FIRST = date(2024, 1, 1)


def days(numbers: Any) -> list[date]:
    return [FIRST + timedelta(days=int(number)) for number in numbers]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sales, prices that change from day to day, rates by day, and prices of periods."""
    folder = tmp_path_factory.mktemp("ordered")
    drawn = np.random.default_rng(3)
    products = [f"product {number}" for number in range(30)]
    prices = [
        {"product": product, "date": day, "price": 10 * at + number}
        for at, product in enumerate(products)
        for number, day in enumerate(days(range(0, 200, 50)))
    ]
    pd.DataFrame(prices).to_csv(folder / "prices.csv", index=False)
    rates = pd.DataFrame({"day": days(range(10, 200, 20)), "rate": range(10)})
    rates.to_csv(folder / "rates.csv", index=False)
    tariffs = {"valid_from": days(range(0, 200, 40)), "valid_to": days(range(30, 230, 40))}
    pd.DataFrame({**tariffs, "tariff": range(5)}).to_csv(folder / "tariffs.csv", index=False)
    count = 300
    sales = {"product": drawn.choice(products, count), "date": days(drawn.integers(0, 220, count))}
    pd.DataFrame(sales).to_csv(folder / "sales.csv", index=False)
    return folder


def test_the_nearest_earlier_row_of_a_key_and_without_one(folder: Path, tmp_path: Path) -> None:
    lake = deepjoin.index(folder, tmp_path / "index")
    sales = pd.read_csv(folder / "sales.csv", parse_dates=["date"])
    found = lake.enrich(sales, settings=EnrichSettings(as_of="date"))
    offers = {one.column: one for one in found.offers}
    assert {"price", "rate"} <= offers.keys(), "not summarised: no price_mean"
    ordered = OrderedKey("date", "date")
    join = RepeatableJoin("product", -1, "prices.csv", "product", ordered=ordered)
    cells = pa.Table.from_pandas(sales)
    got = joined_rows(lake, join, KeyCells(cells["product"], cells["date"]))
    prices = pd.read_csv(folder / "prices.csv", parse_dates=["date"])
    wanted = pd.merge_asof(
        sales.reset_index().sort_values("date"), prices.sort_values("date"), on="date", by="product"
    ).sort_values("index")
    assert got["price"].to_pylist() == wanted["price"].tolist()
    alone = RepeatableJoin(
        "date", -1, "rates.csv", "day", "ordered", ordered=OrderedKey("date", "day")
    )
    got = joined_rows(lake, alone, KeyCells(cells["date"], cells["date"]))
    late = [max((day.date() - FIRST).days - 10, -20) // 20 for day in sales["date"]]
    assert got["rate"].to_pylist() == [min(9, one) if one >= 0 else None for one in late]


def test_the_range_that_holds_a_value(folder: Path, tmp_path: Path) -> None:
    lake = deepjoin.index(folder, tmp_path / "index")
    sales = pd.read_csv(folder / "sales.csv", parse_dates=["date"])
    offers = lake.enrich(sales, settings=EnrichSettings(ranges="date")).offers
    assert "tariff" in {one.column for one in offers}
    ordered = OrderedKey("date", "valid_from", "valid_to")
    join = RepeatableJoin("date", -1, "tariffs.csv", "valid_from", "ordered", ordered=ordered)
    cells = pa.Table.from_pandas(sales)
    got = joined_rows(lake, join, KeyCells(cells["date"], cells["date"]))
    numbers = [(day.date() - FIRST).days for day in sales["date"]]
    wanted = [number // 40 if number % 40 <= 30 and number < 200 else None for number in numbers]
    assert got["tariff"].to_pylist() == wanted


def test_a_column_that_has_no_order(folder: Path, tmp_path: Path) -> None:
    lake = deepjoin.index(folder, tmp_path / "index")
    sales = folder / "sales.csv"
    with pytest.raises(DeepJoinError, match="`as_of` column 'product' holds string; it must hold"):
        lake.enrich(sales, settings=EnrichSettings(as_of="product"))
    with pytest.raises(KeyError, match="No column 'dat' in .*Did you mean 'date'"):
        lake.enrich(sales, settings=EnrichSettings(ranges="dat"))
    with pytest.raises(DeepJoinError, match="`as_of` and `ranges` cannot be combined"):
        EnrichSettings(as_of="a", ranges="b")


NUMBERS = st.integers(-5, 12)
RANGES = st.lists(st.tuples(NUMBERS, st.none() | NUMBERS, st.integers(0, 99)), max_size=8)


@given(st.lists(st.none() | NUMBERS, min_size=1, max_size=8), RANGES, st.booleans())
@settings(max_examples=40, deadline=None)
def test_sql_is_what_the_words_say(mine: list[Any], rows: list[Any], is_range: bool) -> None:
    """Both forms of SQL, in DuckDB, and the one for the rows of a key in SQLite too."""
    key = OrderedKey("x", "low", "high" if is_range else None)
    wanted = []
    for number, value in enumerate(mine):
        fits = [
            (-low, (high is None, high or 0), code)
            for low, high, code in rows
            if value is not None and low <= value
            if not is_range or high is None or value <= high
        ]
        if fits:
            wanted.append((number, -min(fits)[0]))
    joined = [(n, v, *row) for n, v in enumerate(mine) for row in rows]
    names = ["low", "high", "code"]
    schema = pa.schema([("deepjoin_row", pa.int64()), ("deepjoin_order", pa.int64())])
    schema = pa.schema([*schema, *((name, pa.int64()) for name in names)])
    columns = list(zip(*joined, strict=True)) or [[] for _ in schema]
    table = pa.table([pa.array(one, pa.int64()) for one in columns], schema)
    session = Session()
    session.run("CREATE TABLE joined AS SELECT * FROM batch", table)
    session.run('CREATE TABLE "query" (deepjoin_row BIGINT, deepjoin_order BIGINT)')
    session.run("CREATE TABLE stored (low BIGINT, high BIGINT, code BIGINT)")
    lite = sqlite3.connect(":memory:")
    lite.execute("CREATE TABLE joined (deepjoin_row, deepjoin_order, low, high, code)")
    lite.executemany("INSERT INTO joined VALUES (?, ?, ?, ?, ?)", joined)
    for number, value in enumerate(mine):
        session.run(f'INSERT INTO "query" VALUES ({number}, {"NULL" if value is None else value})')
    for row in rows:
        cells = ", ".join("NULL" if cell is None else str(cell) for cell in row)
        session.run(f"INSERT INTO stored VALUES ({cells})")
    nearest = (
        f"SELECT deepjoin_row, low FROM ({key.nearest('joined', names)}) ORDER BY deepjoin_row"
    )
    alone = f"SELECT deepjoin_row, low FROM ({key.alone('stored', names)}) ORDER BY deepjoin_row"
    assert session.run(nearest) == wanted
    assert session.run(alone) == wanted
    with closing(lite):
        assert lite.execute(nearest).fetchall() == wanted
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["as_of", "ranges"])
def test_the_ordered_column_is_not_taken_for_the_key(tmp_path: Path, kind: str) -> None:
    """Its dates are those of the other table, and more than the keys; the SQL says the same.

    Also of steps that do not compare it. A copy of the table under other names is not joined on it.
    """
    drawn = np.random.default_rng(0)
    shops = np.array([f"shop {number}" for number in range(30)])
    begin = np.concatenate([np.sort(drawn.choice(200, 8, replace=False)) for _ in shops])
    level = drawn.normal(size=240).round(3)
    end = np.where(np.arange(240) % 8 == 7, 999, np.roll(begin, -1) - 1)
    first = {"as_of": "date", "ranges": "valid_from"}[kind]
    lines = pd.DataFrame({"shop": np.repeat(shops, 8), first: days(begin), "level": level})
    if kind == "ranges":
        lines["valid_to"] = days(end)
    lines.to_csv(tmp_path / "levels.csv", index=False)
    towns = [f"town {number % 7}" for number in range(30)]
    pd.DataFrame({"shop": shops, "town": towns}).to_csv(tmp_path / "shops.csv", index=False)
    size = {f"town {number}": 3 * number for number in range(7)}
    pd.DataFrame(size.items(), columns=["town", "size"]).to_csv(tmp_path / "towns.csv", index=False)
    at, day = drawn.choice(30, 300), drawn.integers(0, 220, 300)
    fits = [
        8 * shop + np.searchsorted(begin[8 * shop :][:8], one, "right") - 1
        for shop, one in zip(at, day, strict=True)
    ]
    wanted = [level[one] if one >= 8 * shop else None for shop, one in zip(at, fits, strict=True)]
    sales = pa.table(
        {
            "shop": shops[at],
            "date": days(day),
            "target": [
                (one or 0) + size[towns[shop]] + noise
                for one, shop, noise in zip(wanted, at, 0.3 * drawn.normal(size=300), strict=True)
            ],
        }
    )
    copied = [sales["date"], sales["target"], pa.array(days(day + 5))]
    names = [first, "total", "valid_to"][: 2 + (kind == "ranges")]
    copy = pa.table(dict(zip(names, copied, strict=False)))
    copy.to_pandas().to_csv(tmp_path / "ledger.csv", index=False)
    lake = deepjoin.index(tmp_path, tmp_path / "index")
    found = lake.enrich(sales, "target", settings=EnrichSettings(**{kind: "date"}))
    assert {"levels.csv", "shops.csv", "towns.csv"} == {step.table for step in found.steps}
    assert found.table["level"].to_pylist() == wanted
    reasons = {one.reason for one in found.rejected if one.table == "ledger.csv"}
    assert reasons == {"is your table, or one that holds it with the target"}
    connection = pytest.importorskip("duckdb").connect()
    connection.register("your_table", sales)
    connection.execute(found.sql).fetchall()  # its last result is waited for
    got = connection.sql(found.sql.rpartition(";\n\n")[2]).to_arrow_table()
    assert got.to_pydict() == found.table.to_pydict()
