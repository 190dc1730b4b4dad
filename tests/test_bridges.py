"""Bridges: tables in which two keys meet that have nothing in common."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake
from deepjoin.cli import main
from deepjoin.errors import DeepJoinError
from deepjoin.settings import Settings

AIRPORTS = {
    "OSL": "Oslo", "LIM": "Lima", "FCO": "Rome", "CIA": "Rome", "NBO": "Nairobi", "HND": "Tokyo",
    "NRT": "Tokyo", "SYD": "Sydney", "YUL": "Montreal",
}  # fmt: skip


def write(path: Path, head: str, rows: list[tuple[str, ...]]) -> None:
    path.write_text(head + "\n" + "".join(",".join(row) + "\n" for row in rows))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    source = tmp_path / "data"
    source.mkdir()
    write(source / "airports.csv", "iata,city,zone", [
        (code.lower(), city, "GMT" if at % 2 else "UTC")
        for at, (code, city) in enumerate(AIRPORTS.items())
    ])  # fmt: skip
    write(source / "flights.csv", "airport,passengers", [
        (code, str(100 + at)) for at, code in enumerate([*AIRPORTS, "XXX"])
    ])  # fmt: skip
    write(source / "hotels.csv", "town,rooms", [
        (city, str(7 * at)) for at, city in enumerate([*sorted(set(AIRPORTS.values())), "Paris"])
    ])  # fmt: skip
    return deepjoin.index(source, tmp_path / "index")


def test_two_keys_meet_in_a_third_table(lake: Lake, tmp_path: Path) -> None:
    codes, cities = [*AIRPORTS, "XXX"], sorted(set(AIRPORTS.values()))
    (bridge,) = lake.bridges(codes, [*cities, "Paris"])
    assert (bridge.table, bridge.left_column, bridge.right_column) == (
        "airports.csv", "iata", "city",
    )  # fmt: skip
    assert bridge.coverage == bridge.left_coverage == 0.9
    assert bridge.right_coverage == 7 / 8 and bridge.ambiguous == 0
    assert {(one.query, one.target) for one in bridge.matches} == set(AIRPORTS.items())
    assert {one.how for one in bridge.matches} == {"bridge"}
    # The other way round, a city has several airports.
    (back,) = lake.bridges(cities, codes)
    assert back.coverage == 1 and back.ambiguous == 2


def test_tables_of_the_lake_are_bridged_with_sql_that_runs(lake: Lake, tmp_path: Path) -> None:
    found = lake.bridges("flights.csv", "hotels.csv", left_on="airport", right_on="town")
    assert [one.table for one in found] == ["airports.csv"]
    database = duckdb.connect()
    for file in (tmp_path / "data").glob("*.csv"):
        database.execute(f"""CREATE TABLE "{file.name}" AS FROM read_csv('{file}')""")
    rows = database.execute(found[0].sql).fetchall()
    assert {(row[0], row[2]) for row in rows} == set(AIRPORTS.items())
    assert "airports.csv" in repr(found) and "OSL → Oslo" in repr(found[:1])


def test_countries_lead_to_continents(tmp_path: Path) -> None:
    continents = ("Asia", "Africa", "Europe", "Oceania", "America")
    write(tmp_path / "world.csv", "country,continent", [
        (f"land {at}", continents[at % 5]) for at in range(12)
    ])  # fmt: skip
    lake = deepjoin.index(tmp_path)
    (bridge,) = lake.bridges([f"Land {at}" for at in range(8)], list(continents))
    assert bridge.right_column == "continent" and bridge.coverage == 1


@pytest.mark.slow
@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("vwxyz")), max_size=12))
def test_pairs_equal_a_comparison_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    write(folder / "t.csv", "one,two", rows)
    lake = deepjoin.index(folder, settings=Settings(min_distinct=1))
    left, right = list("abcd"), list("wxyz")
    wanted = {pair for pair in rows if pair[0] in left and pair[1] in right}
    found = lake.bridges(left, right, least=0)
    pairs = {(one.query, one.target) for bridge in found for one in bridge.matches}
    held = [
        len({pair[at] for pair in rows if pair[at] in side})
        for at, side in enumerate((left, right))
    ]
    assert pairs == (wanted if held[1] >= 2 else set())


def test_nothing_meets(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not lake.bridges(["a", "b"], ["c", "d"])
    assert "no table of the lake leads" in repr(lake.bridges(["a"], ["c"]))


def test_what_cannot_be_bridged_is_said(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match=r"The right column has no values"):
        lake.bridges(["a"], [None, " "])
    with pytest.raises(DeepJoinError, match=r"`least` is 2; it must be between 0 and 1"):
        lake.bridges(["a"], ["b"], least=2)
    with pytest.raises(
        DeepJoinError, match=r"The left table has 2 columns; name one with `left_on`"
    ):
        lake.bridges("flights.csv", ["b"])
    hidden = deepjoin.index(tmp_path / "data", tmp_path / "h", settings=Settings(hash_only=True))
    with pytest.raises(DeepJoinError, match="holds hashes of values, whose rows are not stored"):
        hidden.bridges(["a"], ["b"])


def test_the_command_names_its_options(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bridges", str(tmp_path / "index"), "flights.csv", "hotels.csv"])
    assert "name one with --left-column: airport, passengers" in capsys.readouterr().err


def test_the_command(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bridges", str(tmp_path / "index"), str(tmp_path / "data" / "flights.csv"),
               "hotels.csv", "--left-column", "airport", "--right-column", "town"]  # fmt: skip
    main(command)
    assert "airports.csv" in capsys.readouterr().out
    main([*command, "--format", "json"])
    (bridge,) = json.loads(capsys.readouterr().out)["bridges"]
    assert bridge["coverage"] == 0.9 and "JOIN" in bridge["sql"] and len(bridge["matches"]) == 9
    main([*command, "--format", "csv"])
    assert "OSL,Oslo,1.0,bridge" in capsys.readouterr().out
