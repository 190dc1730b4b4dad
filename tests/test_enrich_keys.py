"""Joins on keys that number rows, whose names and values prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deepjoin
from deepjoin import DeepJoinError, EnrichSettings, Lake
from deepjoin.enriching.enrich import apply_plan
from deepjoin.enriching.features import Feature
from deepjoin.enriching.row_order import RowOrders
from deepjoin.enriching.scoring import chosen_features

pytest.importorskip("sklearn")

_ROWS = 400


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Lake, pd.DataFrame]:
    """Cut a table into three; their keys are permutations of the same numbers."""
    drawn = np.random.default_rng(3)
    first, second = drawn.permutation(_ROWS), drawn.permutation(_ROWS)
    near, far = drawn.normal(size=_ROWS), drawn.normal(size=_ROWS)
    folder = tmp_path / "lake"
    folder.mkdir()
    middle = pd.DataFrame({"alpha": first, "near": near, "beta": second})
    middle.to_csv(folder / "middle.csv", index=False)
    pd.DataFrame({"gamma": second, "far": far}).to_csv(folder / "last.csv", index=False)
    price = near + far + 0.3 * drawn.normal(size=_ROWS)
    own = pd.DataFrame({"delta": first, "size": drawn.normal(size=_ROWS), "price": price})
    return deepjoin.index(folder, tmp_path / "index"), own


def _joins(found: Any) -> list[tuple[str, str, str]]:
    return [(step.via, step.table, step.column) for step in found.steps]


RIGHT = [("delta", "middle.csv", "alpha"), ("beta", "last.csv", "gamma")]


def test_keys_in_the_same_order_belong_together(parts: tuple[Lake, pd.DataFrame]) -> None:
    """The order of rows proves the join, with a target and without."""
    lake, own = parts
    found = lake.enrich(own, "price")
    assert _joins(found) == RIGHT
    assert [step.probability for step in found.steps] == [0.9, 0.9]
    assert {offer.column for offer in lake.enrich(own.drop(columns="price")).offers} >= {
        "near",
        "far",
    }


def test_rows_drawn_from_a_table_of_the_lake_have_its_order(tmp_path: Path) -> None:
    """Training rows are mixed; the table that they come from lists its keys as others do."""
    drawn = np.random.default_rng(5)
    keys, near = drawn.permutation(_ROWS), drawn.normal(size=_ROWS)
    folder = tmp_path / "lake"
    folder.mkdir()
    pd.DataFrame({"alpha": keys.repeat(2), "near": near.repeat(2)})[40:].to_csv(
        folder / "near.csv", index=False
    )
    own = pd.DataFrame({"delta": keys, "size": drawn.normal(size=_ROWS), "price": near})
    own["price"] += 0.5 * drawn.normal(size=_ROWS)
    own.to_csv(folder / "own.csv", index=False)
    lake = deepjoin.index(folder, tmp_path / "index")
    mine = own.rename(columns={"price": "target"}).sample(frac=0.8, random_state=0)
    found = lake.enrich(mine, "target")
    assert _joins(found) == [("delta", "near.csv", "alpha")]
    assert found.steps[0].probability > 0.8


def test_the_target_tells_which_key_is_right(parts: tuple[Lake, pd.DataFrame]) -> None:
    """With rows in another order, several keys fit; a shuffled target proves none of them."""
    lake, own = parts
    mixed = own.sample(frac=0.9, random_state=1)
    found = lake.enrich(mixed, "price")
    assert _joins(found) == RIGHT
    assert found.steps[0].probability < EnrichSettings().least
    table = found.table
    expected = pd.read_csv(lake.index.origin("middle.csv").path()).set_index("alpha")["near"]
    assert np.allclose(table["near"], expected[mixed["delta"]])
    reasons = [one.reason for one in found.rejected if one.via == "delta"]
    assert any(
        reason.startswith("looks like a coincidence (probability 0.")
        and reason.endswith("), and tells nothing of the target beyond what is there")
        for reason in reasons
    )
    shuffled = mixed.assign(price=np.random.default_rng(0).permutation(mixed["price"]))
    assert lake.enrich(shuffled, "price").steps == ()
    assert lake.enrich(mixed.drop(columns="price")).offers == ()


@pytest.mark.parametrize(("name", "is_made"), [("Key_1_2", True), ("id", False)])
def test_names_of_row_numbers(tmp_path: Path, name: str, is_made: bool) -> None:
    """Row numbers of one name join if it says which key it is; the order of rows is another."""
    drawn = np.random.default_rng(6)
    keys = drawn.permutation(_ROWS)
    folder = tmp_path / "lake"
    folder.mkdir()
    near = pd.DataFrame({name: keys, "near": drawn.normal(size=_ROWS)})
    near.sample(frac=1, random_state=1).to_csv(folder / "near.csv", index=False)
    lake = deepjoin.index(folder, tmp_path / "index")
    own = pd.DataFrame({name: keys, "size": drawn.normal(size=_ROWS)})
    assert ("near" in {offer.column for offer in lake.enrich(own).offers}) == is_made


def test_orders_that_prove_nothing(parts: tuple[Lake, pd.DataFrame]) -> None:
    """Sorted keys, few keys and other orders say nothing."""
    lake, own = parts
    orders = RowOrders(lake.index)
    keys = [str(key) for key in own["delta"]]
    assert orders.agree(keys, "middle.csv", "alpha")
    assert orders.agree(keys[::2], "middle.csv", "alpha")
    assert not orders.agree(keys, "middle.csv", "beta")
    assert not orders.agree(keys[:40], "middle.csv", "alpha")
    assert not orders.agree(sorted(keys, key=int), "middle.csv", "alpha")
    assert not orders.agree(keys[::-1], "middle.csv", "alpha")
    assert not orders.agree(keys, "middle.csv", "absent")


def test_numbers_with_none_beside_them_belong_together(tmp_path: Path) -> None:
    """Most ids are known by both, in any order, but no ids near them."""
    drawn = np.random.default_rng(4)
    ids = drawn.choice(100_000, _ROWS, replace=False)
    size = drawn.normal(size=_ROWS)
    folder = tmp_path / "lake"
    folder.mkdir()
    known = drawn.permutation(_ROWS)[:300]
    pd.DataFrame({"alpha": ids[known], "size": size[known]}).to_csv(folder / "a.csv", index=False)
    lake = deepjoin.index(folder, tmp_path / "index")
    own = pd.DataFrame({"delta": ids, "price": size + 0.3 * drawn.normal(size=_ROWS)})
    assert _joins(lake.enrich(own, "price")) == [("delta", "a.csv", "alpha")]
    orders = RowOrders(lake.index)
    assert orders.stand_out([str(one) for one in ids], "a.csv", "alpha")
    assert orders.stand_out([str(one) for one in ids] + ["none", ""], "a.csv", "alpha")
    assert not orders.stand_out([str(one) for one in ids[known][:10]], "a.csv", "alpha")
    assert not orders.stand_out([str(one) for one in range(100_000)], "a.csv", "alpha")
    assert not orders.stand_out([], "a.csv", "alpha")


def test_one_of_several_joins_with_a_table_is_right() -> None:
    """The join whose columns rate highest stays."""
    drawn = np.random.default_rng(0)
    made = [("a", 0, 0.2), ("b", 1, 0.1), ("c", 1, 0.3), ("d", 2, 0.1)]
    new = [
        Feature(name, drawn.normal(size=50), False, ("two" if at == 2 else "one", at))
        for name, at, _ in made
    ]
    rated = np.array([rate for *_, rate in made])
    assert [one.name for one in chosen_features([], new, rated, 10)] == ["c", "b", "d"]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    """A table of years is joined on both; one of events is summarised, not taken for yours."""
    drawn = np.random.default_rng(5)
    folder = tmp_path / "lake"
    folder.mkdir()
    teams = [f"team {number}" for number in range(12)]
    keys = pd.MultiIndex.from_product([teams, range(1990, 2010)], names=["team", "year"])
    wins = keys.to_frame(index=False).assign(wins=drawn.integers(0, 100, len(keys)))
    wins.to_csv(folder / "wins.csv", index=False)
    own = keys.to_frame(index=False).sample(400, replace=True, random_state=1)
    own["size"] = drawn.normal(size=400)
    at = own.merge(wins, how="left")["wins"].to_numpy()
    own["pay"] = at / 10 + drawn.normal(size=400)
    events = own[["team", "year", "size"]].sample(300, random_state=2)
    events.assign(points=drawn.integers(0, 9, 300)).to_csv(folder / "events.csv", index=False)
    lake = deepjoin.index(folder, tmp_path / "index")
    found = lake.enrich(own.reset_index(drop=True), "pay", depth=1)
    step = next(step for step in found.steps if step.table == "wins.csv")
    assert {*step.via.split(", ")} == {"team", "year"} == {*step.column.split(", ")}
    assert (step.cardinality, step.coverage) == ("n:1", 1)
    assert found.table["wins"].tolist() == at.tolist()
    duckdb = pytest.importorskip("duckdb").connect()
    duckdb.register("your_table", own)
    duckdb.execute(found.sql)
    got = duckdb.execute(found.sql.rpartition(";\n\n")[2]).df()
    pd.testing.assert_frame_equal(got, found.table, check_dtype=False)
    others = pd.DataFrame({"team": ["team 3", "team 3"], "year": [1991, 1880], "size": [0.0, 0.0]})
    expected = wins.set_index(["team", "year"])["wins"][("team 3", 1991)]
    assert apply_plan(lake, others, found.plan)["wins"].tolist() == [
        expected,
        pytest.approx(np.nan, nan_ok=True),
    ]
    with pytest.raises(DeepJoinError, match="No column 'year' in the table"):
        apply_plan(lake, others.drop(columns="year"), found.plan)
    reasons = {one.table: one.reason for one in found.rejected}
    assert "is your table" not in reasons.get("events.csv", "")
    keys_of = {offer.column: offer.key for offer in lake.enrich(own, depth=1).offers}
    assert {*keys_of["wins"].split(", ")} == {"team", "year"}


def test_row_numbers_whose_names_say_whose_they_are(tmp_path: Path) -> None:
    """Lines of invoices belong to them, though both are numbered; rows numbered `id` do not."""
    drawn = np.random.default_rng(6)
    folder = tmp_path / "lake"
    folder.mkdir()
    lines = pd.DataFrame({"InvoiceNo": drawn.integers(1, 201, 900), "price": drawn.random(900)})
    lines.to_csv(folder / "lines.csv", index=False)
    other = pd.DataFrame({"id": range(1, 201), "height": drawn.normal(size=200)})
    pd.concat([other, other]).to_csv(folder / "other.csv", index=False)
    lake = deepjoin.index(folder, tmp_path / "index")
    own = pd.DataFrame({"invoice_id": range(1, 201), "size": drawn.normal(size=200)})
    offers = lake.enrich(own).offers
    assert {(one.table, one.via, one.key) for one in offers} == {
        ("lines.csv", "invoice_id", "InvoiceNo")
    }
    assert lake.enrich(own.rename(columns={"invoice_id": "id"})).offers == ()
