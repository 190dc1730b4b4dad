"""Keys of several columns: search equals comparing all rows of all tables, under every mapping."""

from __future__ import annotations

import json
import random
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, Lake
from deepjoin.embed.value_vectors import PROBES
from deepjoin.errors import DeepJoinError
from deepjoin.matching.joinability import cardinality_of
from deepjoin.model import Hit
from deepjoin.normalise.canonical import canonical
from deepjoin.search import blocks, mappings
from deepjoin.search.ranking import name_similarity
from deepjoin.settings import SearchSettings, Settings, Vectors
from deepjoin.store.cell_vectors import CellVectors
from tests.support.agents import ask, refused
from tests.support.command_line import call
from tests.support.index_files import sign
from tests.support.serving import serving

Rows = dict[str, list[str | None]]
CELL = st.sampled_from(["a", "A", "b", "c", "1", "01", "1.0", " ", None])
NAMES = ("year", "team", "lg", "Year", "x y")


def table(least: int, most: int) -> st.SearchStrategy[Rows]:
    columns = st.lists(st.sampled_from(NAMES), min_size=least, max_size=most, unique=True)
    return columns.flatmap(
        lambda names: st.integers(0, 6).flatmap(
            lambda rows: st.fixed_dictionaries(
                {name: st.lists(CELL, min_size=rows, max_size=rows) for name in names}
            )
        )
    )


def tuples_of(rows: Rows, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the tuples of all rows without a missing part, as canonical strings."""
    parts = ([canonical(cell or "") for cell in rows[name]] for name in names)
    return [one for one in zip(*parts, strict=True) if all(one)]


def brute_force(
    tables: dict[str, Rows], query: Rows, k: int
) -> list[tuple[str, tuple[str, ...], int]]:
    names = tuple(query)
    wanted = set(tuples_of(query, names))
    found = []
    for name, rows in tables.items():
        order = list(rows)
        mapped = []
        for columns in permutations(rows, len(names)):
            theirs = tuples_of(rows, columns)
            matched = len(wanted & set(theirs))
            pairs = list(zip(names, columns, strict=True))
            key = (
                -matched,
                len(set(theirs)) < len(theirs),
                -sum(one.lower() == other.lower() for one, other in pairs),
                -round(sum(name_similarity(one, other) for one, other in pairs), 9),
                name,
                [order.index(column) for column in columns],
            )
            if matched:
                mapped.append((key, name, columns, matched))
        found += [min(mapped)] if mapped else []
    return [(name, columns, matched) for _, name, columns, matched in sorted(found)[:k]]


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    st.lists(table(1, 4), min_size=1, max_size=4),
    st.lists(table(2, 3), max_size=6),
    st.integers(1, 3),
    st.sampled_from([1, 3, 6]),
)
def test_search_equals_comparing_all_rows(
    tables: list[Rows], queries: list[Rows], k: int, least: int
) -> None:
    named = {f"t{number}": rows for number, rows in enumerate(tables)}
    # Tables are verified one by one, or several together.
    one_by_one = patch.object(mappings, "_ONE_BY_ONE", len(tables) % 2 * 32)
    with TemporaryDirectory() as folder, one_by_one:
        lake = deepjoin.index(
            {name: pa.table(rows) for name, rows in named.items()},
            Path(folder) / "index",
            settings=Settings(min_distinct=least),
            vectors={"cells": "none"},
        )
        for query in queries:
            results = lake.search(pa.table(query), k, on=list(query), join="equi")
            found = [(hit.table, hit.columns, hit.matched) for hit in results]
            assert found == brute_force(named, query, k)
            for hit in results:
                check_evidence(hit, query, named[hit.table])


def check_evidence(hit: Hit, query: Rows, rows: Rows) -> None:
    mine, theirs = tuples_of(query, tuple(query)), tuples_of(rows, hit.columns)
    shared = set(mine) & set(theirs)
    assert hit.column == hit.columns[0]
    assert hit.query_size == len(set(mine)) and hit.target_size == len(set(theirs))
    assert hit.joinability == len(shared) / len(set(mine))
    assert hit.reverse == len(shared) / len(set(theirs))
    assert hit.equi.join_size == sum(theirs.count(one) for one in mine)
    assert len(hit.matches) + len(hit.unmatched) == len(set(mine))
    most_mine = max(mine.count(one) for one in shared)
    most_theirs = max(theirs.count(one) for one in shared)
    assert hit.cardinality == cardinality_of(most_mine, most_theirs)


GAMES: Rows = {
    "year": ["2001", "2001", "2002", "2002", "2003"],
    "team": ["BOS", "NYA", "BOS", "NYA", None],
    "wins": ["82", "95", "93", "103", "95"],
}
TEAMS: Rows = {
    "teamID": ["BOS", "NYA", "BOS", "NYA", "BOS"],
    "yearID": ["2001", "2001", "2002", "2002", "2003"],
    "park": ["Fenway", "Yankee", "Fenway", "Yankee", "Fenway"],
}
CITIES: Rows = {
    "town": ["Springfield", "Springfield", "Portland", "Portland", "Paris", "Paris"],
    "st": ["IL", "MA", "OR", "ME", "TX", "TN"],
    "mayor": ["A", "B", "C", "D", "E", "F"],
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    tables = {"teams": pa.table(TEAMS), "cities": pa.table(CITIES)}
    return deepjoin.index(tables, tmp_path / "index", settings=Settings(min_distinct=1))


def test_a_small_frame_is_one_key(lake: Lake) -> None:
    results = lake.search({"year": GAMES["year"], "team": GAMES["team"]})
    assert results.query == {
        **{"table": None, "column": "year", "columns": ["year", "team"], "cells": 5, "size": 4}
    }
    (hit,) = results
    assert (hit.table, hit.column, hit.columns) == ("teams", "yearID", ("yearID", "teamID"))
    assert (hit.cardinality, hit.equi.join_size, hit.brings.columns) == ("1:1", 4, ("park",))
    assert hit.matches[0] == ("2001 · BOS", "2001 · BOS", 1.0, "equal")
    assert hit.to_dict()["columns"] == ["yearID", "teamID"]
    assert results.to_dict()["query"]["columns"] == ["year", "team"]
    assert results.to_arrow()["columns"].to_pylist() == ['["yearID", "teamID"]']
    one = lake.search(GAMES["year"])[0]
    assert one.columns == ("yearID",) and "columns" not in one.to_dict()


def test_keys_says_how_several_columns_are_searched(lake: Lake) -> None:
    query = {"year": GAMES["year"], "team": GAMES["team"]}
    each = lake.search(query, settings=SearchSettings(keys="each"))
    assert each.query["column"] in query and len(each.others) == 1
    columns = [Column(cells, name) for name, cells in query.items()]
    assert lake.search(columns).others
    together = lake.search(columns, settings=SearchSettings(keys="together"))
    assert together[0].columns == ("yearID", "teamID")
    # No table has a tuple of it, so each column is searched.
    apart = lake.search({"year": ["2001", "2002"], "town": ["Paris", "Portland"]})
    assert len(apart.others) == 1 and apart[0].key == ()
    assert len(lake.search({"y": ["2001"], "t": ["Paris"]}, on=["y", "t"])) == 0
    with pytest.raises(DeepJoinError, match="No choice of keys 'all' in deepjoin"):
        SearchSettings(keys="all")


def test_a_tuple_with_a_missing_part_never_matches(lake: Lake) -> None:
    results = lake.search({"year": ["2001", None], "team": [None, "BOS"]}, on=["year", "team"])
    assert results.query["size"] == 0 and len(results) == 0
    blank = lake.search({"year": ["2001"] * 2, "team": ["", " "]}, on=["year", "team"])
    assert blank.query["size"] == 0 and len(blank) == 0


def test_parts_of_few_values_count(tmp_path: Path) -> None:
    rows = {
        "manager": [f"m{number}" for number in range(12) for _ in (1, 2)],
        "half": ["1", "2"] * 12,
        "league": ["NL"] * 24,
        "wins": [f"w{number}" for number in range(24)],
    }
    lake = deepjoin.index({"halves": pa.table(rows)}, tmp_path / "index", vectors={"cells": "none"})
    assert lake.index.indexed_columns("halves") == ["manager", "wins"]
    query = {"m": ["m3", "m4", "m5"], "h": ["2", "1", "3"]}
    (hit,) = lake.search(pa.table(query), on=["m", "h"])
    assert (hit.columns, hit.matched, hit.cardinality) == (("manager", "half"), 2, "1:1")
    assert hit.unmatched == ("m5 · 3",) and hit.brings.columns == ("league", "wins")
    turned = lake.search(pa.table(query), on=["h", "m"])[0]
    assert turned.columns == ("half", "manager") and turned.column == "half"
    assert lake.explain(query, ("halves", ["manager", "half"]), on=["m", "h"]).matched == 2
    joined = lake.join(query, on=["m", "h"], hit=hit)
    assert joined["wins"].to_pylist() == ["w7", "w8", None]
    # Of columns of few values alone, and where the lake has no others.
    assert lake.search({"a": ["NL"], "b": ["2"]}, on=["a", "b"])[0].columns == ("league", "half")
    # A hit on one column names one of few values that makes it unique.
    single = lake.search(pa.table({"m": query["m"], "h": ["1", "2", "2"]}), on="m")[0]
    assert single.better is not None and single.better.columns == ("manager", "half")
    assert (single.better.rows, single.better.instead_of) == (3, 6)
    lake.add({"more": pa.table(rows | {"wins": [f"v{number}" for number in range(24)]})})
    lake.compact()
    lake.reopen()
    both = lake.search(pa.table(query), on=["m", "h"])
    assert [hit.table for hit in both] == ["halves", "more"]
    assert {hit.columns for hit in both} == {("manager", "half")}
    lake.remove("halves")
    lake.reopen()
    assert [hit.table for hit in lake.search(pa.table(query), on=["m", "h"])] == ["more"]


def test_tables_that_repeat_tuples_come_after_those_that_have_each_once(tmp_path: Path) -> None:
    years = [str(year) for year in range(1981, 1991)]
    tables = {
        # Exactly the tuples of the query, each twice; and those of all teams, each once.
        "halves": {"year": years * 2, "team": ["BOS"] * 20, "half": ["1"] * 10 + ["2"] * 10},
        "teams": {
            "year": [str(year) for year in range(1900, 2000)] * 3,
            "team": ["BOS"] * 100 + ["NYA"] * 100 + ["CHN"] * 100,
            "park": [str(number) for number in range(300)],
        },
    }
    lake = deepjoin.index(
        {name: pa.table(rows) for name, rows in tables.items()},
        tmp_path / "index",
        vectors={"cells": "none"},
    )
    query = {"year": years, "team": ["BOS"] * 10}
    for join in ("equi", "any"):
        found = lake.search(query, on=["year", "team"], join=join)
        assert [(hit.table, hit.joinability) for hit in found] == [("teams", 1), ("halves", 1)]


def test_parts_match_by_a_program(tmp_path: Path) -> None:
    codes = [f"{number:05}" for number in range(1001, 1041)]
    rows = {
        "zip": codes * 2,
        "year": ["2019"] * 40 + ["2020"] * 40,
        "rent": [str(number) for number in range(80)],
    }
    other = {"n": [str(number) for number in range(40)], "year": ["2019", "2020"] * 20}
    lake = deepjoin.index({"rents": pa.table(rows), "other": pa.table(other)}, tmp_path / "index")
    query = {"code": [str(int(code)) for code in codes[:30]], "y": ["2019", "2020"] * 15}
    assert not lake.search(query, on=["code", "y"], join="equi").hits
    (hit,) = lake.search(query, on=["code", "y"])
    assert (hit.table, hit.columns, hit.joinability) == ("rents", ("zip", "year"), 1.0)
    assert hit.found_by == ("program",) and hit.equi.joinability == 0
    assert hit.matches[0] == ("1001 · 2019", "01001 · 2019", 1.0, "program")
    assert len(hit.programs) == 1 and hit.cardinality == "1:1"
    with pytest.warns(UserWarning, match="30 values match by a program"):
        joined = lake.join(query, on=["code", "y"], hit=hit)
    assert joined["rent"].to_pylist()[:3] == [0, 41, 2]
    assert not lake.search(query, on=["code", "y"], settings=SearchSettings(programs=False)).hits


def test_parts_match_by_meaning(lake: Lake) -> None:
    query = {"city": ["Springfeild", "Portland"], "state": ["MA", "ME"]}
    (equal,) = lake.search(query, join="equi")
    assert (equal.table, equal.joinability) == ("cities", 0.5)
    for join in ("any", "semantic"):
        (hit,) = lake.search(query, join=join)
        assert hit.semantic is not None and hit.columns == ("town", "st")
        assert (hit.join, hit.joinability, hit.equi.joinability) == (join, 1.0, 0.5)
        assert hit.matches[0][:2] == ("Springfeild · MA", "Springfield · MA")
        assert hit.found_by == ("exact-equi", "cell-vectors")


def test_parts_are_looked_up_in_as_many_lists_as_a_column(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, asked = CellVectors.near, list[Any]()

    def noted(self: CellVectors, *given: Any) -> Any:
        asked.append(given[-1])
        return near(self, *given)

    monkeypatch.setattr(CellVectors, "near", noted)
    lake.search({"city": ["Springfeild", "Portland"], "state": ["MA", "ME"]}, join="semantic")
    assert set(asked) == {PROBES} and PROBES > 1


def test_hits_have_a_probability_which_orders_joins_of_kind_any(tmp_path: Path) -> None:
    years = [str(year) for year in range(1990, 2010) for _ in range(4)]
    teams = ["BOS", "NYA", "CHN", "SFN"] * 20
    numbers = [str(number) for number in range(80)]
    tables = {
        # All tuples, but each twice, under names that say nothing.
        "log": {"a": years * 2, "b": teams * 2, "c": numbers * 2},
        "teams": {"yearID": years[4:], "teamID": teams[4:], "park": numbers[4:]},
    }
    lake = deepjoin.index(
        {name: pa.table(rows) for name, rows in tables.items()},
        tmp_path / "index",
        settings=Settings(min_distinct=1),
        vectors={"cells": "none"},
    )
    query = {"yearID": years, "teamID": teams}
    equi = lake.search(query, join="equi")
    assert [(hit.table, hit.joinability) for hit in equi] == [("log", 1.0), ("teams", 0.95)]
    found = lake.search(query, join="any")
    assert [hit.table for hit in found] == ["teams", "log"]
    assert [hit.rank for hit in found] == [1, 2]
    assert found[0].probability > found[1].probability + 0.1 > 0.1
    assert {hit.table: hit.probability for hit in equi} == {
        hit.table: hit.probability for hit in found
    }
    measured = lake.explain(query, ("teams", ["yearID", "teamID"]), on=["yearID", "teamID"])
    assert measured.probability == found[0].probability
    assert [hit.table for hit in lake.search(query, 1, join="any")] == ["teams"]


@pytest.mark.parametrize(
    ("on", "says"),
    [
        (["year", "year"], "`on` has 'year' twice; name each key column once"),
        ([], "`on` is an empty list; name the key columns"),
        (7, "`on` is 7; it must be the name of a column, or a list of names"),
        (["year", "tema"], "No column 'tema' in the query. .* Did you mean 'team'"),
        ([f"c{i}" for i in range(20)], "`on` has 20 columns; a key has at most 8"),
    ],
)
def test_wrong_keys_are_refused(lake: Lake, on: list[str], says: str) -> None:
    query = GAMES | {f"c{i}": GAMES["year"] for i in range(20)}
    with pytest.raises(DeepJoinError, match=says):
        lake.search(query, on=on)


def test_other_methods_search_with_one_column(lake: Lake) -> None:
    with pytest.raises(DeepJoinError, match="Method 'sketch' searches with one column. With sev"):
        lake.search(GAMES, on=["year", "team"], method="sketch")
    hit = lake.search(GAMES, on=["year", "team"], method="exact-equi")[0]
    assert hit.join == "equi"
    columns = [Column(["2001"], "year"), Column(["a", "b"], "team")]
    with pytest.raises(DeepJoinError, match="must be equally long, but are: year 1, team 2"):
        lake.search(columns, settings=SearchSettings(keys="together"))


def test_an_index_without_rows_says_what_to_run(lake: Lake, tmp_path: Path) -> None:
    for path in lake.path.rglob("row_*.npy"):
        path.unlink()
    sign(lake.path)
    older = Lake(lake.path)
    assert older.search(GAMES["year"])
    with pytest.raises(DeepJoinError, match="stores no rows.*deepjoin index .* --rebuild"):
        older.search(GAMES, on=["year", "team"])
    private = deepjoin.index(
        {"t": pa.table(TEAMS)}, tmp_path / "hashes", settings=Settings(hash_only=True)
    )
    with pytest.raises(DeepJoinError, match="holds hashes of values and no rows"):
        private.search(GAMES, on=["year", "team"])


@pytest.mark.slow
def test_odd_column_names_and_wide_tables(tmp_path: Path) -> None:
    odd = {"a,b": ["1", "2"], "c|d": ["x", "y"], "e:f": ["p", "q"]}
    flags = {f"f{i}": ["0", "1"] for i in range(40)}
    tables = {"odd": pa.table(odd), "flags": pa.table(flags)}
    lake = deepjoin.index(tables, tmp_path / "index", settings=Settings(min_distinct=1))
    query = {"c|d": ["y"], "a,b": ["2"]}
    assert lake.search(query, join="equi")[0].columns == ("c|d", "a,b")
    wide = {f"q{i}": ["0", "1"] for i in range(6)}
    results = lake.search(wide, on=list(wide), join="equi")
    assert results[0].table == "flags" and results.partial is not None
    assert results.partial.text.startswith("flags can be mapped in too many ways")


@pytest.mark.parametrize("one_by_one", [0, 32])
@pytest.mark.parametrize("most", [3, 1 << 21])
def test_tables_are_verified_together_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_by_one: int, most: int
) -> None:
    monkeypatch.setattr(mappings, "_ONE_BY_ONE", one_by_one)
    monkeypatch.setattr(blocks, "MOST_ROWS", most)
    chance = random.Random(5)
    tables: dict[str, Rows] = {
        f"t{n:02}": {
            name: [chance.choice(["a", "b", "c", "d", None]) for _ in range(9)]
            for name in NAMES[:3]
        }
        for n in range(30)
    }
    lake = deepjoin.index(
        {name: pa.table(rows) for name, rows in tables.items()},
        tmp_path / "index",
        settings=Settings(min_distinct=1),
        vectors={"cells": "none"},
    )
    query = {name: tables["t03"][name][:6] for name in ("lg", "team", "year")}
    results = lake.search(query, 5, on=list(query), join="equi")
    found = [(hit.table, hit.columns, hit.matched) for hit in results]
    assert found == brute_force(tables, query, 5)


def test_removed_and_own_tables_are_no_hits(lake: Lake) -> None:
    query = {"year": GAMES["year"], "team": GAMES["team"]}
    assert not lake.search(query, on=["year", "team"], exclude_table="teams").hits
    lake.remove("teams")
    lake.reopen()
    assert not lake.search(query, on=["year", "team"]).hits


@pytest.mark.slow
def test_the_command_line_takes_several_columns(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games, index = tmp_path / "games.csv", str(lake.path)
    games.write_text("year,team,wins\n2001,BOS,82\n2002,NYA,103\n2003,NYA,1\n")
    key = ["-c", "year", "-c", "team"]
    answer = call(capsys, "search", index, str(games), *key)
    assert answer.out.startswith("year, team: 3 distinct tuples\n")
    assert "yearID, teamID  67%" in answer.out and "not in teams: 2003 · NYA" in answer.out
    found = json.loads(call(capsys, "search", index, str(games), *key, "--format", "json").out)
    assert found["hits"][0]["columns"] == ["yearID", "teamID"]
    assert found["query"]["columns"] == ["year", "team"]
    rows = call(capsys, "search", index, str(games), *key, "--format", "csv").out.splitlines()
    assert rows[1].startswith('"year, team",1,teams,yearID')
    own = call(capsys, "search", index, "teams", "-c", "yearID", "-c", "teamID")
    assert own.out == "yearID, teamID: 5 distinct tuples\nno joinable column found\n"
    target = ["--with", "teams:yearID,teamID", "--columns", "park", "--format", "csv"]
    joined = call(capsys, "join", index, str(games), *key, *target)
    assert [line.split(",")[-1] for line in joined.out.split()] == ["park", "Fenway", "Yankee", ""]
    blank = tmp_path / "blank.csv"
    blank.write_text("year,team\n2001,\n,BOS\n")
    nothing = call(capsys, "search", index, str(blank), *key)
    assert "nothing to search with: every tuple has a missing part" in nothing.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["search", "-c", "year", "-c", "year"], "-c has 'year' twice; name each key column once"),
        (["search", "-c", "year", "-c", "tema"], "No column 'tema' in"),
        (["search", *(w for n in range(20) for w in ("-c", "year"))], "-c has 'year' twice"),
        (["join", "-c", "year", "-c", "team", "--with", "teams:yearID"], "--with must name 2 col"),
        (["join", "-c", "year", "--with", "teams"], "must have the form TABLE:COLUMN"),
    ],
)
def test_wrong_options_are_refused(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    games = tmp_path / "games.csv"
    games.write_text("year,team\n2001,BOS\n2002,NYA\n")
    command, *rest = words
    answer = call(capsys, command, str(lake.path), str(games), *rest)
    assert answer.status and says in answer.err


def test_a_key_needs_a_table(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "search", str(lake.path), "--values", "a,b", "-c", "x", "-c", "y")
    assert "Nothing to search with: name a file, a table of the lake, - for" in answer.err


@pytest.mark.slow
def test_the_service_takes_several_columns(lake: Lake, tmp_path: Path) -> None:
    with serving(tmp_path, lake) as served:
        key = {"table": "teams", "columns": ["yearID", "teamID"]}
        assert served.post("/api/search", {"query": key})["query"]["columns"] == key["columns"]
        games = "year,team,wins\n2001,BOS,82\n2002,NYA,103\n2003,NYA,1\n"
        mine = served.upload(games.encode(), "games.csv")["upload"]
        query = {"upload": mine, "columns": ["year", "team"]}
        (hit,) = served.post("/api/search", {"query": query})["hits"]
        assert hit["columns"] == ["yearID", "teamID"] and hit["equi"]["matched"] == 2
        request = {
            "left": {"upload": mine},
            "on": ["year", "team"],
            "hit": {one: hit[one] for one in ("table", "column", "column_id", "columns")},
            "columns": ["park"],
        }
        preview = served.post("/api/join/preview", request)
        assert [row[-1] for row in preview["rows"]] == ["Fenway", "Yankee", None]
        assert "--column=year --column=team --with=teams:yearID,teamID" in preview["shell"]
        assert "on=['year', 'team'], hit=('teams', ['yearID', 'teamID'])" in preview["python"]
        wrong = served.post("/api/join/preview", request | {"on": "year"}, 400)
        assert "on names 1 column (year) and the hit joins on 2 columns" in wrong["error"]


@pytest.mark.slow
def test_agents_take_several_columns(tmp_path: Path) -> None:
    tables = {"teams": pa.table(TEAMS), "games": pa.table(GAMES)}
    lake = deepjoin.index(tables, tmp_path / "index", settings=Settings(min_distinct=1))
    key: dict[str, Any] = {"table": "games", "column": ["year", "team"]}
    found = ask(lake, "search", **key)
    assert found["query"] == "games:year,team" and found["query_size"] == 4
    assert found["hits"][0]["columns"] == ["yearID", "teamID"]
    target: dict[str, Any] = {"target_table": "teams", "target_column": ["yearID", "teamID"]}
    told = ask(lake, "explain", **key, **target)
    assert told["joins"] and told["evidence"]["equal"]["matched"] == 4
    shown = ask(lake, "preview_join", **key, **target, columns=["park"])
    assert [row[-1] for row in shown["rows"]] == ["Fenway", "Yankee", "Fenway", "Yankee", None]
    assert "pass it as table and column" in refused(lake, "search", values=["a"], column=["x", "y"])
    with pytest.raises(DeepJoinError, match="The query has 2 columns and the target 3"):
        lake.explain(GAMES, ("teams", list(TEAMS)), on=["year", "team"])


def test_hits_that_multiply_rows_name_a_longer_key(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = lake.search(GAMES, on="team", join="equi")
    (hit,) = results
    assert hit.cardinality == "n:m" and hit.equi.join_size == 10
    assert hit.better is not None
    assert (hit.better.on, hit.better.columns) == (("team", "year"), ("teamID", "yearID"))
    assert str(hit.better) == "with `year`: 4 rows instead of 10"
    joined = lake.join(GAMES, hit.better.on, ("teams", hit.better.columns), how="inner")
    assert len(joined) == hit.better.rows
    assert hit.to_dict()["better"]["columns"] == ["teamID", "yearID"]
    assert lake.search(GAMES["team"], join="equi")[0].better is None
    whole = lake.search(GAMES, join="equi", settings=SearchSettings(keys="each"))
    every = [one for of in (whole, *whole.others) for one in of]
    assert any(one.better and one.better.on[0] == "team" for one in every)
    games = tmp_path / "games.csv"
    games.write_text("year,team\n2001,BOS\n2002,NYA\n2002,BOS\n")
    shown = call(capsys, "search", str(lake.path), str(games), "-c", "team", "--join", "equi")
    assert "teams with -c team -c year: 3 rows instead of 8" in shown.out


def test_columns_of_the_index_are_no_tuples(lake: Lake) -> None:
    columns = [lake.column("teams", name) for name in ("yearID", "teamID")]
    with pytest.raises(DeepJoinError, match="has its values in no order of rows.*lake.read"):
        lake.search(columns, settings=SearchSettings(keys="together"))
    each = lake.search(columns, exclude_table="cities")
    assert all(hit.better is None for hit in each)


def test_files_and_tables_of_the_lake_are_keys_by_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    teams = "yearID,teamID,park\n" + "\n".join(
        f"{year},{team},{team} park {year}" for year in range(2001, 2007) for team in "ABCDE"
    )
    (tmp_path / "data" / "teams.csv").write_text(teams)
    (tmp_path / "data" / "copy.csv").write_text(teams.replace("park", "field"))
    lake = deepjoin.index(tmp_path / "data")
    games = tmp_path / "games.csv"
    games.write_text("year,team,n\n2001,A,1\n2002,B,2\n2003,Z,3\n")
    for query in (games, str(games)):
        results = lake.search(query, on=["year", "team"])
        assert [hit.columns for hit in results] == [("yearID", "teamID")] * 2
        assert {hit.matched for hit in results} == {2}
        target = ("teams.csv", ["yearID", "teamID"])
        assert lake.explain(query, target, on=["year", "team"]).matched == 2
    # A file of few columns is one key, as a frame is.
    pair = tmp_path / "pair.csv"
    pair.write_text("year,team\n2001,A\n2002,B\n")
    assert lake.search(pair).query["columns"] == ["year", "team"]
    own = lake.search("teams.csv", on=["yearID", "teamID"])
    assert [(hit.table, hit.joinability) for hit in own] == [("copy.csv", 1.0)]
    # The values of a table of the lake are in no order of rows, so each column is searched.
    assert lake.search("teams.csv").others
    with pytest.raises(KeyError, match="No column 'tem' in .*games.csv"):
        lake.search(games, on=["year", "tem"])
    with pytest.raises(KeyError, match="No file or table 'gmes.csv'"):
        lake.search("gmes.csv", on=["year", "team"])
    with pytest.raises(DeepJoinError, match="query has 2 columns and the target 1"):
        lake.explain(games, ("teams.csv", "teamID"), on=["year", "team"])


def test_small_frames_are_searched_by_column_where_there_are_no_rows(tmp_path: Path) -> None:
    private = deepjoin.index(
        {"t": pa.table(TEAMS)}, tmp_path / "hashes", settings=Settings(hash_only=True)
    )
    query = {"year": GAMES["year"], "team": GAMES["team"]}
    assert len(private.search(query).others) == 1
    with pytest.raises(DeepJoinError, match="holds hashes of values and no rows"):
        private.search(query, settings=SearchSettings(keys="together"))


def test_a_longer_key_keeps_most_rows_matched_and_matches_some(tmp_path: Path) -> None:
    """Of columns that make a key unique, not the one that happens to match fewest rows."""
    years, teams = [str(2000 + n // 5) for n in range(50)], [f"t{n % 5}" for n in range(50)]
    # Found with the team in all rows but the first four.
    counts = ["-1"] * 4 + [str(n) for n in range(4, 50)]
    standings = {"team": teams, "year": years, "count": [str(n) for n in range(50)]}
    lake = deepjoin.index({"standings": standings}, tmp_path / "i", vectors=Vectors(cells="none"))
    mine = pa.table({"club": teams, "count": counts, "season": years})
    (hit,) = lake.search(mine, on="club", join="equi")
    assert hit.better is not None
    assert (hit.better.on, hit.better.rows) == (("club", "season"), 50)
    unlike = pa.table({"club": ["t0", "t9"], "season": ["1900", "2000"]})
    (hit,) = lake.search(unlike, on="club", join="equi")
    assert hit.better is None


def test_a_column_that_is_a_key_alone_makes_no_longer_key(tmp_path: Path) -> None:
    """The share of pupils is in both tables too, but the school's number is the whole key."""
    schools, shares = [f"s{n}" for n in range(60)], [str(n % 20) for n in range(60)]
    survey = {"share": shares, "school": schools, "score": [str(n * 7) for n in range(60)]}
    lake = deepjoin.index({"survey": survey}, tmp_path / "i", vectors=Vectors(cells="none"))
    mine = pa.table({"share": shares, "school": schools})
    hits = {hit.column: hit for hit in lake.search(mine, on="share", join="equi")}
    assert hits["share"].multiplies and hits["share"].better is None
    (hit,) = lake.search(mine, on="school", join="equi")
    assert hit.cardinality == "1:1" and hit.better is None
