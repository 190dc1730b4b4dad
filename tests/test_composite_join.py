"""Joins on several columns give the rows of nested loops, in every form they are written in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake
from deepjoin.errors import DeepJoinError
from deepjoin.joining import JoinSide, plan_join
from deepjoin.normalise.canonical import canonical
from deepjoin.read.frames import frame_table
from deepjoin.settings import JoinSettings, Settings

Rows = dict[str, list[str | None]]
CELL = st.sampled_from(["a", "A ", "b", "1", "1.0", "01", "", None])


def rows(least: int) -> st.SearchStrategy[Rows]:
    return st.integers(least, 6).flatmap(
        lambda count: st.fixed_dictionaries(
            {name: st.lists(CELL, min_size=count, max_size=count) for name in ("x", "y")}
        )
    )


def nested_loops(left: Rows, right: Rows, how: str) -> list[tuple[int, int | None]]:
    """Join row by row: pairs of row numbers, None where no row matches."""

    def keys(table: Rows) -> list[tuple[str, ...] | None]:
        tuples = zip(
            *([canonical(cell or "") for cell in table[name]] for name in "xy"), strict=True
        )
        return [one if all(one) else None for one in tuples]

    theirs, found = keys(right), []
    for number, key in enumerate(keys(left)):
        same = [other for other, one in enumerate(theirs) if one is not None and one == key]
        missing: list[int | None] = [None] if how == "left" else []
        found += [(number, other) for other in (same or missing)]
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(rows(1), rows(1), st.sampled_from(["left", "inner"]), st.booleans())
def test_rows_are_those_of_nested_loops(left: Rows, right: Rows, how: str, many: bool) -> None:
    mine = pa.table(left | {"row": list(range(len(left["x"])))}, _schema("row"))
    theirs = pa.table(right | {"place": list(range(len(right["x"])))}, _schema("place"))
    sides = (JoinSide(frame_table(one, "t"), ("x", "y")) for one in (mine, theirs))
    with plan_join(*sides, how=how, settings=JoinSettings(columns=["place"])) as plan:
        joined = plan.to_arrow().to_pydict()
        assert list(zip(joined["row"], joined["place"], strict=True)) == nested_loops(
            left, right, how
        )
        assert plan.facts.result_rows == len(joined["row"])
        names: dict[str, Any] = {"yours": mine.to_pandas(), "theirs": theirs.to_pandas()}
        exec(plan.pandas_code, names)
        again = names["joined"][["row", "place"]].astype(object)
        pairs = again.where(again.notna(), None).values.tolist()
        assert sorted(pairs, key=str) == sorted(map(list, nested_loops(left, right, how)), key=str)


def _schema(number: str) -> pa.Schema:
    return pa.schema({"x": pa.string(), "y": pa.string(), number: pa.int64()})


ORDERS: Rows = {
    "year": ["2001", "2001", "2002", "2003", None],
    "team": ["BOS", "nya", "BOS ", "NYA", "BOS"],
}
TEAMS: Rows = {
    "teamID": ["BOS", "NYA", "BOS", "NYA", "SEA"],
    "yearID": ["2001", "2001", "2002", "2002", "2003"],
    "park": ["Fenway", "Yankee", "Fenway Park", "Stadium", "Safeco"],
}
PARKS = ["Fenway", "Yankee", "Fenway Park", None, None]


def texts(cells: Any) -> list[str | None]:
    return [cell if isinstance(cell, str) else None for cell in cells]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    folder = tmp_path / "lake"
    folder.mkdir()
    pq.write_table(pa.table(TEAMS), folder / "teams.parquet")
    pd.DataFrame(
        {
            "town": ["Springfield", "Springfield", "Portland", "Portland"],
            "st": ["IL", "MA", "OR", "ME"],
            "mayor": ["A", "B", "C", "D"],
        }
    ).to_csv(folder / "cities.csv", index=False)
    return deepjoin.index(folder, settings=Settings(min_distinct=1))


@pytest.mark.slow
def test_a_hit_joins_on_all_its_columns(lake: Lake) -> None:
    frame = pd.DataFrame(ORDERS)
    (hit,) = lake.search(frame)
    joined = lake.join(frame, on=["year", "team"], hit=hit, columns=["park"])
    assert texts(joined["park"]) == PARKS
    named = lake.join(frame, ["year", "team"], ("teams.parquet", ["yearID", "teamID"]))
    assert texts(named["park"]) == PARKS
    # Every match spells the year alike, and not the team: both key columns stay.
    assert list(named.columns) == ["year", "team", "teamID", "yearID", "park"]


def test_two_tables_join_on_several_columns() -> None:
    joined = deepjoin.join(
        ORDERS, TEAMS, on=(["year", "team"], ["yearID", "teamID"]), columns=["park"], join="equi"
    )
    assert joined["park"].to_pylist() == PARKS


def test_the_printed_sql_gives_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    pq.write_table(pa.table(ORDERS), tmp_path / "orders.parquet")
    target = ("teams.parquet", ["yearID", "teamID"])
    with lake.plan_join(str(tmp_path / "orders.parquet"), ["year", "team"], target) as plan:
        printed = [row[-1] for row in duckdb.connect().execute(plan.sql).fetchall()]
        assert printed == PARKS == plan.to_arrow()["park"].to_pylist()
        assert len(plan.unmatched().to_arrow()) == 2


@pytest.mark.parametrize("many", ["expand", "first", "aggregate"])
def test_sqlite_gives_the_same_rows(tmp_path: Path, many: str) -> None:
    database = tmp_path / "sport.sqlite"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE teams (teamID TEXT, yearID INTEGER, wins INTEGER)")
        rows = [("BOS", 2001, 82), ("NYA", 2001, 95), ("BOS", 2002, 93), ("BOS", 2001, 1)]
        connection.executemany("INSERT INTO teams VALUES (?, ?, ?)", rows)
        connection.execute("CREATE TABLE games (year INTEGER, team TEXT)")
        games = [(2001, "bos "), (2002, "BOS"), (2001, "NYA"), (2003, "BOS"), (None, "BOS")]
        connection.executemany("INSERT INTO games VALUES (?, ?)", games)
    lake = deepjoin.index(database, tmp_path / "index", settings=Settings(min_distinct=1))
    (left, right) = sorted(lake.tables, key=lambda name: "teams" in name)
    with lake.plan_join(
        left,
        ["year", "team"],
        (right, ["yearID", "teamID"]),
        many=many,
        columns=["wins"],
        join="equi",
    ) as plan:
        expected = [tuple(row.values()) for row in plan.to_arrow().to_pylist()]
        statement = lake.join_sql(plan, right, left)
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement).fetchall() == expected


@pytest.mark.slow
def test_parts_join_by_meaning(lake: Lake) -> None:
    people = pd.DataFrame({"city": ["Springfeild", "Portland"], "state": ["MA", "OR"], "n": [1, 2]})
    (hit,) = lake.search(people, on=["city", "state"])
    joined = lake.join(people, on=["city", "state"], hit=hit, columns=["mayor"])
    assert joined["mayor"].tolist() == ["B", "C"]
    assert joined["similarity"].tolist()[1] == 1.0 > joined["similarity"].tolist()[0] > 0.5
    with lake.plan_join(people, ["city", "state"], hit, columns=["mayor"]) as plan:
        assert plan.facts.matched_keys == 2 and plan.facts.equal_keys == 1
        names: dict[str, Any] = {"yours": people, "theirs": lake.read("cities.csv", "pandas")}
        exec(plan.pandas_code, names)
        assert names["joined"]["mayor"].tolist() == ["B", "C"]
    every = JoinSettings(matching="all", columns=["mayor"])
    assert lake.join(people, ["city", "state"], hit, settings=every)["mayor"].tolist() == ["B", "C"]
    with pytest.raises(DeepJoinError, match='`matching="one-to-one"` is for a key of one column'):
        lake.plan_join(people, ["city", "state"], hit, settings=JoinSettings(matching="one-to-one"))


@pytest.mark.parametrize(
    ("on", "target", "says"),
    [
        ("year", ["yearID", "teamID"], r"`on` names 1 column \(year\) and the hit joins on 2"),
        (["year", "year"], ["yearID", "teamID"], "`on` has 'year' twice"),
        (["year", "team"], ["yearID", "yearID"], "The key of the other table has 'yearID' twice"),
        (["year", "team"], ["yearID", "tamID"], "No column 'tamID' in teams.parquet"),
        (["year", "tema"], ["yearID", "teamID"], "No column 'tema' in query"),
        ([str(n) for n in range(20)], ["yearID"], "`on` has 20 columns; a key has at most 8"),
    ],
)
def test_wrong_keys_are_refused(lake: Lake, on: list[str], target: list[str], says: str) -> None:
    with pytest.raises(DeepJoinError, match=says):
        lake.join(ORDERS, on, ("teams.parquet", target))


def test_the_separator_in_a_cell_is_refused() -> None:
    odd = {"a": ["x\x1fy"], "b": ["z"]}
    keys = (["a", "b"], ["a", "b"])
    with pytest.raises(DeepJoinError, match="hold the control character 31, which separates"):
        deepjoin.join(odd, odd, on=keys, join="equi", settings=None)
