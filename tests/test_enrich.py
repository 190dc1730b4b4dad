"""Enrichment: which joins help to predict a column, and what they gain."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
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
from deepjoin.enriching.features import Scorer, as_feature, chosen_features

pytest.importorskip("sklearn")

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
def test_the_table_itself_is_never_joined(found: Any) -> None:
    tables = {step.table for step in found.steps} | {one.table for one in found.rejected}
    assert "houses.csv" not in tables


@pytest.mark.slow
def test_a_shuffled_target_gains_nothing(lake: Lake, houses: pd.DataFrame) -> None:
    shuffled = houses.assign(price=houses["price"].sample(frac=1, random_state=3).to_numpy())
    found = lake.enrich(shuffled, "price")
    assert found.interval is not None and found.interval[0] <= 0


@pytest.mark.slow
def test_without_a_target_the_lake_offers_columns(lake: Lake, houses: pd.DataFrame) -> None:
    offers = lake.enrich(houses.drop(columns="price")).offers
    assert ("region", "towns.csv", "town") in {(one.column, one.table, one.via) for one in offers}
    assert ("income", "regions.csv", "town") in {(one.column, one.table, one.via) for one in offers}
    assert ("visitors_mean", "visits.csv") in {(one.column, one.table) for one in offers}
    assert all(0 <= one.coverage <= 1 for one in offers)


@pytest.mark.slow
def test_leaks_are_recognised() -> None:
    drawn = np.random.default_rng(0)
    target = pa.chunked_array([pa.array(drawn.normal(size=400))])
    scorer = Scorer(target, "y", 1000, 0)
    values = target.to_numpy()
    copy = as_feature("copy", pa.chunked_array([pa.array(values * 2 + 1)]))
    related = as_feature("related", pa.chunked_array([pa.array(values + drawn.normal(size=400))]))
    assert copy is not None and scorer.leaks(copy)
    assert related is not None and not scorer.leaks(related)
    rated = scorer.relevant([copy, related])
    assert [one.name for one in chosen_features([copy, copy], rated, 5)] == ["copy"], "told once"


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
    with pytest.raises(DeepJoinError, match="`tables` is 0; it must be at least 1"):
        EnrichSettings(tables=0)
    with pytest.raises(DeepJoinError, match="`seconds` is -1"):
        EnrichSettings(seconds=-1)
    with pytest.raises(DeepJoinError, match="`least` is 2"):
        EnrichSettings(least=2)


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
    assert main([*words, "-o", "x.xlsx"]) == 1
    assert "an enriched table is .parquet or .csv" in capsys.readouterr().err


@pytest.mark.slow
def test_the_estimator_joins_other_rows(lake: Lake, houses: pd.DataFrame) -> None:
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from deepjoin.sklearn import LakeEnricher

    X, y = houses[["town", "rooms"]], houses["price"]
    enricher = LakeEnricher(lake).fit(X[:300], y[:300])
    later = X[300:].assign(town=["nowhere", *X["town"][301:]])
    table = enricher.transform(later)
    assert list(table.columns) == list(enricher.get_feature_names_out())
    assert len(table) == len(later) and table.iloc[0, 2:].isna().all()
    again = pickle.loads(pickle.dumps(enricher))
    assert again.lake.location == lake.location and len(pickle.dumps(enricher)) < 10_000
    pd.testing.assert_frame_equal(again.transform(later), table)
    assert clone(enricher).depth == 2
    numbers = FunctionTransformer(lambda frame: frame.select_dtypes("number"))
    model = make_pipeline(enricher, numbers, HistGradientBoostingRegressor())
    assert model.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.5
