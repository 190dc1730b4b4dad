"""Enrichment of awkward tables: no keys, no joins, too many columns, rows that would multiply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import DeepJoinError, EnrichSettings, Lake
from deepjoin.enriching.enrich import apply_plan
from deepjoin.enriching.features import Feature, is_near_number, numbers_in
from deepjoin.enriching.joins import number_sql
from deepjoin.enriching.scoring import Scorer

pytest.importorskip("sklearn")

KEYS = [f"key {number}" for number in range(50)]


def indexed(folder: Path, **tables: dict[str, Any]) -> Lake:
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return deepjoin.index(folder, folder / "index")


def drawn_rows(count: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw rows whose target is the worth of their key, and some noise."""
    drawn = np.random.default_rng(0)
    at = drawn.choice(50, count)
    frame = pd.DataFrame({"key": np.array(KEYS)[at], "other": drawn.normal(size=count)})
    return frame.assign(target=at % 10 + drawn.normal(size=count)), at


WORTH = {"key": KEYS, "worth": [number % 10 for number in range(50)]}


@pytest.mark.slow
def test_rows_without_a_key_get_missing_values(tmp_path: Path) -> None:
    lake = indexed(tmp_path, worth=WORTH)
    frame, _ = drawn_rows()
    frame.loc[::4, "key"] = None
    found = lake.enrich(frame, "target")
    assert len(found.table) == 120 and found.table["worth"][::4].isna().all()
    assert found.table["worth"].drop(range(0, 120, 4)).notna().all()
    nothing = lake.enrich(frame.assign(key=None), "target")
    assert nothing.steps == () and nothing.gain == 0


def test_a_lake_without_a_join(tmp_path: Path) -> None:
    lake = indexed(tmp_path, other={"name": [f"{number}?" for number in range(900, 950)]})
    frame, _ = drawn_rows(40)
    found = lake.enrich(frame, "target")
    assert (found.gain, found.steps, found.plan) == (0, (), ())
    assert list(found.table) == list(frame) and "is sure to help" in repr(found)
    assert lake.enrich(frame).offers == ()
    empty = deepjoin.index(indexed_nothing(tmp_path / "empty"), tmp_path / "empty.index")
    assert empty.enrich(frame, "target").steps == ()


def indexed_nothing(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    return folder


@pytest.mark.slow
def test_two_thousand_columns(tmp_path: Path) -> None:
    drawn = np.random.default_rng(1)
    noise = {f"noise {number}": drawn.normal(size=50).round(3) for number in range(2000)}
    lake = indexed(tmp_path, wide=WORTH | noise)
    frame, _ = drawn_rows(150)
    found = lake.enrich(frame, "target", depth=1, settings=EnrichSettings(columns=5))
    added = [column for step in found.steps for column in step.columns]
    assert "worth" in added and len(added) <= 5


@pytest.mark.slow
def test_joins_that_multiply_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"key": KEYS * 20, "worth": [number % 10 for number in range(50)] * 20}
    lake = indexed(tmp_path, many=many)
    frame, at = drawn_rows()
    found = lake.enrich(frame, "target", depth=1)
    assert len(found.table) == 120
    assert found.table.filter(like="worth_").iloc[:, 0].tolist() == (at % 10).tolist()
    monkeypatch.setattr("deepjoin.enriching.joins._MOST_ROWS", 1000)
    found = lake.enrich(frame, "target", depth=1)
    assert "would make up to 2,400 rows of your 120" in {one.reason for one in found.rejected}


def test_your_table_is_joined_on_no_path(tmp_path: Path) -> None:
    """Its copies, under other names, with fewer rows or a renamed target, are not joined."""
    frame, _ = drawn_rows()
    frame["town"] = [f"town {number}" for number in range(120)]
    links = {"key": KEYS, "link": [f"link {number}" for number in range(50)]}
    back = frame.assign(link=[f"link {number % 50}" for number in range(120)])
    lake = indexed(
        *(tmp_path,),
        links=links,
        same=frame,
        part=frame[:90],
        wider=back,
        renamed=frame.rename(columns={"target": "label"}),
    )
    for depth in (1, 2, 3):
        found = lake.enrich(frame, "target", depth=depth)
        assert {one.table for one in found.steps} <= {"links.csv"}
    own = {one.table: one.reason for one in found.rejected}
    assert own["renamed.csv"] == "is your table, or one that holds it with the target"
    assert not {"same.csv", "part.csv", "wider.csv"} & own.keys()
    path = lake.enrich(tmp_path / "same.csv", "target", depth=2)
    assert "same.csv" not in {one.table for one in path.rejected} | {s.table for s in path.steps}


@pytest.mark.parametrize("is_class", [False, True])
def test_a_copy_under_other_names_is_not_summarised(tmp_path: Path, is_class: bool) -> None:
    """The rows of a key are yours, though only the key is called alike; rows and order differ."""
    drawn = np.random.default_rng(2)
    frame = pd.DataFrame({"group": [f"group {number // 3}" for number in range(150)]})
    frame["size"], frame["place"] = drawn.integers(0, 60, 150), drawn.choice(["a", "b", "c"], 150)
    frame["target"] = drawn.normal(size=150)
    if is_class:
        frame["target"] = frame["target"] > 0
    names = {"size": "width", "place": "spot", "target": "label"}
    other = frame.rename(columns=names).assign(label=drawn.permutation(frame["target"]))
    copy = frame.rename(columns=names).sample(frac=0.7, random_state=1)
    lake = indexed(tmp_path, copy=copy, other=other)
    reasons = {one.table: one.reason for one in lake.enrich(frame, "target").rejected}
    assert reasons["copy.csv"] == "is your table, or one that holds it with the target"
    assert reasons["other.csv"] != reasons["copy.csv"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": 1.0}, "has one value: there is nothing to predict"),
        ({"target": None}, "has no values"),
        ({"target": [f"text {n}" for n in range(40)]}, "40 different texts in 40 rows"),
    ],
)
def test_targets_that_no_model_can_learn(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    lake = indexed(tmp_path, worth=WORTH)
    frame, _ = drawn_rows(40)
    with pytest.raises(DeepJoinError, match=f"`target` column 'target' {text}|{text}"):
        lake.enrich(frame.assign(**change), "target")


def test_targets_that_look_odd_and_can_be_learned(tmp_path: Path) -> None:
    lake = indexed(tmp_path, worth=WORTH)
    frame, at = drawn_rows(60)
    names = frame.assign(target=np.where(at % 10 > 4, "high", "low"))
    assert lake.enrich(names, "target", depth=1).metric == "accuracy"
    numbers = frame.assign(target=range(60))
    assert lake.enrich(numbers, "target", depth=1).metric == "R²"
    dates = frame.assign(target=pd.Timestamp("2020-01-01") + pd.to_timedelta(range(60), "D"))
    assert lake.enrich(dates, "target", depth=1).metric == "R²"
    endless = frame.assign(target=frame["target"].where(frame.index > 3, np.inf))
    assert lake.enrich(endless, "target", depth=1).score_before is not None
    assert lake.enrich(frame[["target"]], "target").steps == ()
    with pytest.raises(DeepJoinError, match="has no values"):
        lake.enrich(frame[:0], "target")


def test_rare_classes_are_learned_as_one() -> None:
    cells = [f"class {number % 80}" for number in range(400)] + ["class 0"] * 100
    scorer = Scorer(pa.chunked_array([cells]), "target", 1000, 0)
    assert scorer.is_class
    assert scorer.cross_validated([])[0] == pytest.approx(30 * 5 / 500)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["185,602", "39,249.5", "7"], [185602, 39249.5, 7]),
        (["53%", "4.5 %", "-1%", "N/A", "2%", "3%", "4%"], [53, 4.5, -1, None, 2, 3, 4]),
        (["$1,200.50", "€ 3", "4 £", "-$5"], [1200.5, 3, 4, -5]),
        (["12, 13", "1", "2", "3", "4", "5", "6"], [None, 1, 2, 3, 4, 5, 6]),
        (["1.5", "2e-5", ".5", "+3", " 7. ", None], [1.5, 2e-5, 0.5, 3, 7, None]),
        (["1,5", "2,5"], None),
        (["007", "008"], None),
        (["1e5", "2e5"], None),
        (["2020-01-02", "2020-01-03"], None),
        (["", None], None),
        ([None], None),
    ],
)
def test_text_that_holds_numbers(cells: list[str | None], numbers: list[float] | None) -> None:
    column = pa.chunked_array([pa.array(cells, pa.string())])
    assert is_near_number(column) == (numbers is not None)
    if numbers is not None:
        assert numbers_in(column).to_pylist() == pytest.approx(numbers)
        duckdb = pytest.importorskip("duckdb").connect()
        duckdb.register("rows", pa.table({"cell": column}))
        found = duckdb.execute(f"SELECT {number_sql('cell')} FROM rows").fetchall()
        assert [one for (one,) in found] == pytest.approx(numbers)


def test_keys_that_are_named(tmp_path: Path) -> None:
    lake = indexed(tmp_path, worth=WORTH, other={"id": KEYS, "size": range(50)})
    frame, _ = drawn_rows(60)
    frame = frame[["key", "other"]]
    offers = lake.enrich(frame, settings=EnrichSettings(keys=("key",))).offers
    assert {one.table for one in offers} == {"worth.csv"}
    offers = lake.enrich(frame, settings=EnrichSettings(keys=("key=id",))).offers
    assert {one.table for one in offers} == {"other.csv"}
    with pytest.raises(DeepJoinError, match="`keys` is 'key'; it must be a list of names"):
        EnrichSettings(keys="key")  # type: ignore[arg-type]


def test_scores_are_of_all_folds_together() -> None:
    """So that the gain of the first step starts at the score without new columns."""
    cells = np.random.default_rng(0).lognormal(sigma=2, size=100)
    scorer = Scorer(pa.chunked_array([cells]), "target", 1000, 0)
    gain = scorer.gain([], [], 5)[0]
    assert gain is not None
    score, errors = scorer.cross_validated([])
    assert score == pytest.approx(gain.before) and errors == pytest.approx(gain.errors)


@pytest.mark.slow
def test_a_step_that_lowers_the_score_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that forests took for relevant can mislead a model, and what leads to them goes."""
    drawn = np.random.default_rng(4)
    links = [f"link {number}" for number in range(50)]
    noise = {f"noise {number}": drawn.normal(size=50).round(3) for number in range(20)}
    lake = indexed(
        tmp_path, links={"key": KEYS, "link": links}, noise={"link": links} | noise, worth=WORTH
    )

    def all_relevant(self: Scorer, base: object, new: list[Feature], *rows: object) -> Any:
        return np.array([2.0 if one.name == "worth" else 1.0 for one in new])

    monkeypatch.setattr(Scorer, "relevant", all_relevant)
    frame, _ = drawn_rows(100)
    found = lake.enrich(frame, "target")
    assert [step.table for step in found.steps] == ["worth.csv"]
    assert list(found.table) == [*frame, "worth"]
    reasons = {one.table: one.reason for one in found.rejected}
    assert reasons["noise.csv"] == "lowers the score beside better columns"
    assert "links.csv" in reasons


def test_a_class_of_one_row(tmp_path: Path) -> None:
    """All rows that one fold learns from may then be of the other class."""
    lake = indexed(tmp_path, worth=WORTH)
    frame, _ = drawn_rows(80)
    found = lake.enrich(frame.assign(target=["a"] * 79 + ["b"]), "target", depth=1)
    assert found.score_before == pytest.approx(79 / 80) and found.gain == 0


def test_new_columns_have_the_index_of_your_rows(tmp_path: Path) -> None:
    lake = indexed(tmp_path, worth=WORTH)
    frame, _ = drawn_rows(60)
    shuffled = frame.sample(frac=1, random_state=0)
    found = lake.enrich(shuffled, "target", depth=1)
    assert found.table.index.equals(shuffled.index)
    assert apply_plan(lake, shuffled, found.plan).index.equals(shuffled.index)


def test_lists_and_bytes_are_offered_and_names_may_be_numbers(tmp_path: Path) -> None:
    cells = {"tags": [[1, 2]] * 50, "raw": [b"x"] * 50, "mean": [0.1234567891] * 50}
    pd.DataFrame({"key": KEYS, **cells}).to_parquet(tmp_path / "odd.parquet")
    lake = deepjoin.index(tmp_path, tmp_path / "index")
    frame = pd.DataFrame({0: KEYS, 1: range(50)})
    offers = {one.column: one.examples for one in lake.enrich(frame).offers}
    assert offers == {"tags": ("[1, 2]",), "raw": ("b'x'",), "mean": ("0.123457",)}
    assert lake.enrich(frame, 1).metric == "R²"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frame", "given", "text"),
    [
        (pd.DataFrame(), {}, "The table has no columns; it must have at least one"),
        ({"key": KEYS, "y": [[1]] * 50}, {"target": "y"}, "'y' holds list.*must be numbers or"),
        ({"key": KEYS}, {"target": 5}, "No column '5' in the table. Columns: key"),
        ({"key": KEYS}, {"depth": "2"}, "`depth` is '2'; it must be between 1 and 3"),
        ({"key": KEYS}, {"depth": 2.5}, "`depth` is 2.5; it must be between 1 and 3"),
        (
            {"key": KEYS},
            {"settings": EnrichSettings(keys=("kay",))},
            "No column 'kay' in the table. Columns: key. Did you mean 'key'",
        ),
    ],
)
def test_what_cannot_be_enriched(
    tmp_path: Path, frame: object, given: dict[str, Any], text: str
) -> None:
    lake = indexed(tmp_path, worth=WORTH)
    with pytest.raises(DeepJoinError, match=text):
        lake.enrich(pd.DataFrame(frame), **given)
