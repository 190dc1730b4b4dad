"""Enrichment: which joins help to predict a column, and what they gain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin import DeepJoinError, EnrichSettings, Lake
from deepjoin.cli import main
from deepjoin.enriching.features import as_feature
from deepjoin.enriching.joins import BroughtColumns, KeyCells, find_joins, make_join
from deepjoin.enriching.row_order import RowOrders
from deepjoin.enriching.scoring import Scorer, chosen_features
from deepjoin.model import EnrichStep, RejectedJoin

pytest.importorskip("sklearn")

COUNTS = ("tables", "columns", "sample")
TOWNS = [f"town {number}" for number in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a lake in which a region's income, two joins away, decides the price of a house."""
    folder = tmp_path_factory.mktemp("houses")
    drawn = np.random.default_rng(1)
    regions = [f"region {number % 12}" for number in range(60)]
    income = {f"region {number}": number for number in range(12)}
    pd.DataFrame({"town": TOWNS, "region": regions, "noise": drawn.normal(size=60)}).to_csv(
        folder / "towns.csv", index=False
    )
    pd.DataFrame({"region": list(income), "income": list(income.values())}).to_csv(
        folder / "regions.csv", index=False
    )
    visits = pd.DataFrame({"town": np.repeat(TOWNS, 3), "visitors": drawn.normal(size=180)})
    visits.to_csv(folder / "visits.csv", index=False)
    towns = drawn.choice(60, 400)
    price = np.array([income[regions[one]] for one in towns]) + drawn.normal(size=400)
    houses = pd.DataFrame(
        {"town": [TOWNS[one] for one in towns], "rooms": drawn.integers(1, 9, 400)}
    )
    houses["price"] = price.round(3)
    houses.to_csv(folder / "houses.csv", index=False)
    copies = pd.DataFrame({"town": TOWNS, "mean_price": [3.0 * income[one] for one in regions]})
    copies.to_csv(folder / "other.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def lake(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    yield deepjoin.index(folder, tmp_path_factory.mktemp("index") / "index")


@pytest.fixture(scope="module")
def houses(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "houses.csv")


@pytest.fixture(scope="module")
def found(lake: Lake, houses: pd.DataFrame) -> Any:
    return lake.enrich(houses, "price")


@pytest.mark.slow
def test_what_helps_is_added_row_by_row(found: Any, houses: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.table[houses.columns.tolist()], houses)
    added = [column for step in found.steps for column in step.columns]
    assert {"income", "mean_price"} & set(added)
    assert found.score_after > found.score_before + 0.5
    assert found.interval[0] > 0
    assert found.metric == "R²"
    assert all("SELECT" in step.sql for step in found.steps)
    assert "price" in repr(found) or "income" in repr(found)
    assert set(found.to_dict()) >= {"score_before", "score_after", "steps", "rejected"}


@pytest.mark.slow
def test_the_sql_gives_the_same_table(found: Any, houses: pd.DataFrame) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("your_table", houses)
    connection.execute(found.sql)
    got = connection.execute(found.sql.rpartition(";\n\n")[2]).df()
    assert found.steps[0].parent == -1
    pd.testing.assert_frame_equal(got, found.table, check_dtype=False)


@pytest.mark.slow
def test_a_name_does_not_end_a_comment_of_the_sql(found: Any) -> None:
    steps = tuple(replace(step, table="t\nDROP TABLE b; --") for step in found.steps)
    assert "DROP TABLE b" in replace(found, steps=steps).sql
    assert "\nDROP" not in replace(found, steps=steps).sql


@pytest.mark.slow
def test_the_table_itself_is_never_joined(found: Any) -> None:
    tables = {step.table for step in found.steps} | {one.table for one in found.rejected}
    assert "houses.csv" not in tables


@pytest.mark.slow
def test_a_shuffled_target_gains_nothing(lake: Lake, houses: pd.DataFrame) -> None:
    shuffled = houses.assign(price=houses["price"].sample(frac=1, random_state=3).to_numpy())
    found = lake.enrich(shuffled, "price")
    assert found.interval is not None and found.interval[0] <= 0
    assert found.gain == 0 and not found.steps
    assert list(found.table) == list(houses), "nothing is added that is not proven"


@pytest.mark.slow
def test_without_a_target_the_lake_offers_columns(lake: Lake, houses: pd.DataFrame) -> None:
    offers = lake.enrich(houses.drop(columns="price")).offers
    assert ("region", "towns.csv", "town") in {(one.column, one.table, one.via) for one in offers}
    assert ("income", "regions.csv", "town") in {(one.column, one.table, one.via) for one in offers}
    assert ("visitors_mean", "visits.csv") in {(one.column, one.table) for one in offers}
    assert all(0 <= one.coverage <= 1 and 0 <= one.novelty <= 1 for one in offers)
    assert [one.worth for one in offers] == sorted((one.worth for one in offers), reverse=True)


@pytest.mark.slow
def test_offers_are_found_by_words(lake: Lake, houses: pd.DataFrame) -> None:
    found = lake.enrich(houses.drop(columns="price"))
    assert found.about("something about income")[0].column == "income"
    assert found.about("how much do people earn")[0].column == "income", "by meaning"
    assert found.about("tourists")[0].column.startswith("visitors")
    assert set(found.about("income")) == set(found.offers)
    with pytest.raises(DeepJoinError, match="`about` is 'the'; it must say what to look for"):
        found.about("the")


def test_offers_that_are_not_new_come_last(tmp_path: Path) -> None:
    keys = [f"key {number}" for number in range(50)]
    numbers = list(range(50))
    other = np.random.default_rng(0).permutation(50)
    table = {"key": keys, "same": [2 * one for one in numbers], "new": other, "one": ["x"] * 50}
    pd.DataFrame(table).to_csv(tmp_path / "more.csv", index=False)
    lake = deepjoin.index(tmp_path, tmp_path / "index")
    mine = pd.DataFrame({"key": keys, "number": numbers, "other": numbers})
    offers = lake.enrich(mine).offers
    novelty = {one.column: round(one.novelty, 1) for one in offers}
    assert novelty["same"] == novelty["one"] == 0 and novelty["new"] > 0.5
    assert offers[0].column == "new" and len(offers[0].examples) == 3


@pytest.mark.slow
def test_leaks_are_recognised() -> None:
    drawn = np.random.default_rng(0)
    target = pa.chunked_array([pa.array(drawn.normal(size=400))])
    scorer = Scorer(target, "y", 1000, 0)
    values = target.to_numpy()
    copy = as_feature("copy", pa.chunked_array([pa.array(values * 2 + 1)]))
    skewed = Scorer(pa.chunked_array([pa.array(np.exp(3 * values))]), "y", 1000, 0)
    assert copy is not None and skewed.leaks(copy), "whatever the scale"
    related = as_feature("related", pa.chunked_array([pa.array(values + drawn.normal(size=400))]))
    assert copy is not None and scorer.leaks(copy)
    assert related is not None and not scorer.leaks(related)
    rated = scorer.relevant([], [copy, related])
    assert [one.name for one in chosen_features([], [copy, copy], rated, 5)] == ["copy"], "once"
    assert chosen_features([copy], [copy, copy], rated, 5) == [], "your table has it already"


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([1.0] * 30, "has one value: there is nothing to predict"),
        ([None] * 30, "has no values"),
        ([str(number) for number in range(30)], "must be a number, or a class that repeats"),
        (["a", "b"] * 5, "has 10 values; measuring needs 20"),
    ],
)
def test_a_target_that_cannot_be_predicted(cells: list[Any], text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        Scorer(pa.chunked_array([pa.array(cells)]), "y", 1000, 0)


def test_bad_arguments(lake: Lake, houses: pd.DataFrame) -> None:
    with pytest.raises(KeyError, match="No column 'prise'.*Did you mean 'price'"):
        lake.enrich(houses, "prise")
    with pytest.raises(DeepJoinError, match="`depth` is 4; it must be between 1 and 3"):
        lake.enrich(houses, "price", depth=4)
    for odd in (houses["price"], [{"price": 1}], 5):
        with pytest.raises(DeepJoinError, match="A table must be a data frame.*but got"):
            lake.enrich(odd, "price")
    with pytest.raises(DeepJoinError, match="`settings` is {'seconds': 3}; it must be an Enrich"):
        lake.enrich(houses, "price", settings={"seconds": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values", "allowed"),
    [
        *((one, (0, -1, 2.5, "3", None, True), "a whole number >= 1") for one in COUNTS),
        ("seconds", (-1, float("nan"), "60", None, False), "a number >= 0"),
        ("least", (2, -0.1, float("nan"), "0.3", None, True), "a number between 0 and 1"),
        ("seed", (-1, 1 << 32, 1.5, "7", None), "a whole number from 0 to 4294967295"),
        ("keys", ("id", {"id"}, 5, None), "a list of names, such as"),
        ("leaks", (1, "no", None), "True or False"),
        *((one, (5, None, ["date"]), 'the name of a column, or ""') for one in ("as_of", "ranges")),
    ],
)
def test_settings_of_the_wrong_kind(name: str, values: tuple[Any, ...], allowed: str) -> None:
    for value in values:
        text = re.escape(f"`{name}` is {value!r}; it must be {allowed}")
        with pytest.raises(DeepJoinError, match=text):
            EnrichSettings(**{name: value})


def test_keys_and_settings_of_the_right_kind() -> None:
    for odd in (5, "", " =b", None):
        with pytest.raises(
            DeepJoinError, match=re.escape(f"`keys` has {odd!r}; a key is the name")
        ):
            EnrichSettings(keys=["id", odd])  # type: ignore[list-item]
    given: dict[str, Any] = {
        "tables": np.int64(3),
        "least": np.float32(0.5),
        "keys": ["id", "town=city"],
    }
    assert EnrichSettings(**given).keys == ("id", "town=city")
    assert hash(EnrichSettings(keys=["id"], seconds=float("inf"), seed=(1 << 32) - 1))


@pytest.mark.slow
def test_the_command_writes_the_table(
    folder: Path, lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    words = ["enrich", str(lake.path), str(folder / "houses.csv"), "--target", "price"]
    assert main([*words, "--rejected", "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert "R² " in printed.out and "400 rows in" in printed.err
    assert pq.read_table(out).num_rows == 400
    assert main([*words, "--about", "income"]) == 1
    assert "--about looks through what could be added" in capsys.readouterr().err
    assert main([*words, "-o", "x.xlsx"]) == 1
    assert "an enriched table is .parquet or .csv" in capsys.readouterr().err


def test_columns_that_give_the_target_away_together_are_not_used(tmp_path: Path) -> None:
    """The class is computed from two scores of another table; neither tells it alone."""
    drawn = np.random.default_rng(2)
    names = [f"school {number}" for number in range(600)]
    scores = drawn.random((600, 2))
    is_weak = (scores < 0.7).all(axis=1)
    frame = pd.DataFrame({"school": names, "pupils": drawn.integers(100, 999, 600)})
    survey = pd.DataFrame({"school": names, "safety": scores[:, 0], "respect": scores[:, 1]})
    frame.assign(weak=is_weak).to_csv(tmp_path / "base.csv", index=False)
    survey.to_csv(tmp_path / "survey.csv", index=False)
    pd.DataFrame({"school": names, "size": ["N/A", *range(599)]}).to_csv(
        tmp_path / "sizes.csv", index=False
    )
    lake = deepjoin.index(tmp_path, tmp_path / "index")
    mine = frame.assign(is_weak=is_weak)[:500]
    found = lake.enrich(mine, "is_weak")
    reasons = {one.table: one.reason for one in found.rejected}
    assert "gives the target away: its columns together reach accuracy" in reasons["survey.csv"]
    assert reasons["base.csv"] == "is your table, or one that holds it with the target"
    assert found.gain == 0 and not found.steps
    kept = lake.enrich(mine, "is_weak", settings=EnrichSettings(leaks=True, keys=("school",)))
    assert kept.score_after is not None and kept.score_after > 0.98
    offers = {one.column: one for one in lake.enrich(frame[["school"]]).offers}
    assert "size" in offers


def test_words_among_numbers_are_missing_values(tmp_path: Path) -> None:
    names = [f"place {number}" for number in range(40)]
    heights = ["N/A" if number % 4 == 0 else str(number) for number in range(40)]
    frame = pd.DataFrame({"place": np.repeat(names, 2), "height": np.repeat(heights, 2)})
    frame.assign(kind=["a", "b"] * 40).to_csv(tmp_path / "heights.csv", index=False)
    lake = deepjoin.index(tmp_path, tmp_path / "index")
    mine = pa.table({"place": names})
    orders = RowOrders(lake.index)
    choice = find_joins(lake, mine, -1, lambda table: False, EnrichSettings(), orders, {})[0][0]
    keys = KeyCells(mine["place"])
    brought = make_join(lake, choice, keys, [], EnrichSettings(), lambda *_: False)
    assert isinstance(brought, BroughtColumns)
    assert brought.join.numbers == ("height",) and brought.join.is_summarised
    assert brought.table["height_mean"].to_pylist()[:3] == [None, 1.0, 2.0]
    assert brought.table["kind_most_frequent"].to_pylist()[0] == "a"
    assert set(brought.table["kind_share"].to_pylist()) == {0.5}
    assert set(brought.table["matched_rows"].to_pylist()) == {2}
    assert "TRY_CAST" in brought.sql and "GROUP BY" in brought.sql


@pytest.mark.slow
def test_an_interruption_gives_the_best_so_far(
    folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first Ctrl-C ends the walk after some joins, a second one the measuring."""
    made: list[str] = []

    def join_two(*arguments: Any) -> Any:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(arguments[1].table)
        return make_join(*arguments)

    monkeypatch.setattr("deepjoin.enriching.walk.make_join", join_two)
    words = ["enrich", str(lake.path), str(folder / "houses.csv"), "--target", "price"]
    assert main([*words, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "Interrupted: this is the best by then." in printed.err
    found = json.loads(printed.out)
    assert found["stopped"] == "interrupted" and found["score_after"] > found["score_before"]
    assert {one["table"] for one in found["steps"]} <= set(made)

    folds = iter(range(9))

    def predict_some(self: Scorer, *arguments: Any) -> Any:
        if next(folds) == 5:
            raise KeyboardInterrupt
        return predicted(self, *arguments)

    predicted = Scorer._predicted
    monkeypatch.setattr(Scorer, "_predicted", predict_some)
    monkeypatch.setattr("deepjoin.enriching.walk.make_join", make_join)
    no_checks = EnrichSettings(leaks=True)  # these predict too
    measured = lake.enrich(folder / "houses.csv", "price", settings=no_checks)
    assert measured.stopped == "interrupted" and measured.score_before is not None

    def predict_none(self: Scorer, *arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scorer, "_predicted", predict_none)
    nothing = lake.enrich(folder / "houses.csv", "price", settings=no_checks)
    assert nothing.score_before is nothing.score_after is nothing.gain is None
    assert "was not measured: it was interrupted" in {one.reason for one in nothing.rejected}
    assert "stopped before anything was measured" in repr(nothing)
    assert "Stopped before anything was measured" in nothing._repr_html_()


@pytest.mark.slow
def test_an_interruption_of_the_last_choice_takes_that_of_the_last_fold(
    lake: Lake, houses: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    relevant = Scorer.relevant

    def in_folds(self: Scorer, base: Any, new: Any, rows: Any = None) -> Any:
        if rows is None:
            raise KeyboardInterrupt
        return relevant(self, base, new, rows)

    monkeypatch.setattr(Scorer, "relevant", in_folds)
    found = lake.enrich(houses, "price")
    assert found.stopped == "interrupted" and "income" in found.table.columns


@pytest.mark.slow
def test_time_that_is_up(lake: Lake, houses: pd.DataFrame) -> None:
    found = lake.enrich(houses, "price", settings=EnrichSettings(seconds=0))
    assert found.stopped == "time" and not found.steps
    offered = lake.enrich(houses, settings=EnrichSettings(seconds=0))
    assert offered.stopped == "time" and not offered.offers


@pytest.mark.slow
def test_cards_draw_gains_and_the_tree(found: Any, lake: Lake, houses: pd.DataFrame) -> None:
    near = EnrichStep("towns.csv", "town", "town", "n:1", 1.0, 0.9, (), None, "SELECT 1")
    far = replace(near, table="regions.csv", via="region", columns=("income",), gain=0.4, parent=0)
    left = replace(far, table="<b>", via="town", columns=("x",), gain=-0.1, parent=-1)
    drawn = replace(
        found, steps=(near, far, left), rejected=(RejectedJoin("a.csv", "k", "town", "covers 3%"),)
    )
    card = drawn._repr_html_()
    assert "R²" in card and "└ <bdi>regions.csv" in card and "+0.400" in card and "-0.100" in card
    assert "not used" in card and "covers 3%" in card and "&lt;b&gt;" in card
    assert "└ regions.csv" in repr(drawn) and "▇" in repr(drawn)
    offered = lake.enrich(houses.drop(columns="price"))
    assert "could be added" in offered._repr_html_() and "income" in offered._repr_html_()
    words = ["".join(drawn) for drawn in np.random.default_rng(5).choice(list("qxzvkj"), (30, 9))]
    nothing = lake.enrich({"word": words})
    assert "Nothing in the lake joins" in nothing._repr_html_()
    assert repr(nothing) == "nothing in the lake joins with this table"
