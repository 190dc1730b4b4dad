"""`LakeEnricher` among scikit-learn's own estimators."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import DeepJoinError, EnrichSettings, Lake
from deepjoin.joining.entry import JoinWarning

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

from deepjoin.sklearn import LakeEnricher

#: Checks that scikit-learn itself skips, and why.
SKIPPED = {"check_array_api_input": "needs SCIPY_ARRAY_API in the environment"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Index parts by number: their weight decides the price."""
    folder = tmp_path_factory.mktemp("parts")
    weights = np.random.default_rng(0).permutation(100)
    parts = pd.DataFrame({"part": [f"part {n}" for n in range(100)], "weight": weights})
    parts.assign(number=range(1000, 1100)).to_csv(folder / "parts.csv", index=False)
    yield deepjoin.index(folder, folder / "index")


def sold(lake: Lake, count: int = 200) -> tuple[pd.DataFrame, np.ndarray]:
    drawn = np.random.default_rng(1)
    parts = lake.read("parts.csv", "pandas")
    at = drawn.choice(100, count)
    frame = pd.DataFrame({"part": parts["part"].to_numpy()[at], "pieces": drawn.normal(size=count)})
    return frame, parts["weight"].to_numpy()[at] + 5 * drawn.normal(size=count)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(lake: Lake) -> None:
    passed = []
    for estimator, check in estimator_checks_generator(LakeEnricher(lake), legacy=True):
        name = check.func.__name__
        try:
            check(estimator)
            passed.append(name)
        except SkipTest:
            assert name in SKIPPED
    assert len(passed) > 40


@pytest.mark.slow
def test_a_plan_that_fits_the_lake_no_more_says_so(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    towns = pd.DataFrame(
        {"town": [f"town {n}" for n in range(60)], "income": drawn.normal(size=60)}
    )
    towns.to_csv(tmp_path / "towns.csv", index=False)
    lake = deepjoin.index(tmp_path, tmp_path / "index", vectors={"cells": "none"})
    at = drawn.choice(60, 400)
    X = pd.DataFrame({"town": towns["town"].to_numpy()[at], "rooms": drawn.integers(1, 9, 400)})
    fitted = LakeEnricher(lake.path).fit(X, towns["income"].to_numpy()[at] + drawn.normal(size=400))
    kept = pickle.dumps(fitted)
    assert fitted.transform(X)["income"].tolist() == towns["income"].to_numpy()[at].tolist()
    towns.rename(columns={"income": "salary"}).to_csv(tmp_path / "towns.csv", index=False)
    with pytest.warns(JoinWarning, match=r"towns.csv has changed and no longer brings income"):
        assert pickle.loads(kept).transform(X)["income"].isna().all()
    pd.concat([towns, towns]).to_csv(tmp_path / "towns.csv", index=False)
    with pytest.warns(JoinWarning, match=r"town of towns.csv has several rows for a value"):
        pickle.loads(kept).transform(X)


@pytest.mark.slow
def test_a_pipeline_is_cross_validated(lake: Lake) -> None:
    X, y = sold(lake)
    numbers = FunctionTransformer(lambda frame: frame.select_dtypes("number"))
    bounds = EnrichSettings(tables=1, columns=2)
    model = make_pipeline(
        LakeEnricher(lake, depth=1, settings=bounds), numbers, HistGradientBoostingRegressor()
    )
    alone = make_pipeline(numbers, HistGradientBoostingRegressor())
    assert (
        cross_val_score(model, X, y, cv=2).mean() > cross_val_score(alone, X, y, cv=2).mean() + 0.5
    )


@pytest.mark.slow
def test_frames_arrays_clones_and_pickles(lake: Lake) -> None:
    X, y = sold(lake, 100)
    fitted = LakeEnricher(lake, depth=1).fit(X, y)
    names = list(fitted.get_feature_names_out())
    assert names[:2] == ["part", "pieces"] and "weight" in names
    other = pd.DataFrame({"part": ["part 7", "nothing"], "pieces": [1.0, 2.0]})
    known, unknown = fitted.transform(other)["weight"]
    assert known == lake.read("parts.csv", "pandas")["weight"][7] and np.isnan(unknown)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.plan_ == fitted.plan_ and len(pickle.dumps(fitted)) < 10_000
    assert list(again.transform(other).columns) == names
    assert clone(fitted).settings is None and not hasattr(clone(fitted), "plan_")
    for kind in (pl.from_pandas(other), pa.Table.from_pandas(other)):
        assert type(fitted.transform(kind)) is type(kind)
    mixed = LakeEnricher(lake, depth=1).fit(X.to_numpy(), y)
    assert mixed.transform(X.to_numpy()).shape == (100, len(names))
    assert list(mixed.get_feature_names_out())[:2] == ["x0", "x1"]


def test_a_target_that_cannot_be_predicted_adds_nothing(lake: Lake) -> None:
    X, _ = sold(lake, 30)
    with pytest.warns(UserWarning, match="has one value: there is nothing to predict. Nothing is"):
        fitted = LakeEnricher(lake).fit(X, np.zeros(30))
    assert fitted.transform(X) is X and fitted.plan_ == ()


def test_what_is_missing(lake: Lake, tmp_path: Path) -> None:
    X, y = sold(lake, 30)
    with pytest.raises(DeepJoinError, match="`lake` is None; it must be a lake, or the path"):
        LakeEnricher().fit(X, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        LakeEnricher(lake).fit(X, None)
    with pytest.raises(DeepJoinError, match="is not a deepjoin index"):
        LakeEnricher(str(tmp_path / "nowhere")).fit(X, y)
