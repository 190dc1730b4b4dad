"""Hits that a person would hardly make joins of come apart, and families do not fill a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin import Column, Lake, SearchSettings
from deepjoin.cli import main
from deepjoin.serve.mcp.arguments import SearchArguments
from deepjoin.serve.mcp.tools import AgentSession
from tests.support.serving import serving

CODES = [f"code {n}" for n in range(30)]
EVERY = SearchSettings(least=0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One table that the codes are of, and many that hold some of them among others."""
    tables: dict[str, dict[str, list[str]]] = {"first": {"code": CODES}}
    for n in range(8):
        others = [f"{'stuvwxyz'[n]}{m}" for m in range(40)]
        tables[f"table{'abcdefgh'[n]}"] = {f"{'stuvwxyz'[n]} note": CODES[:10] + others}
    return deepjoin.index(tables, tmp_path_factory.mktemp("unlikely") / "i")


def names(hits: Any) -> list[str]:
    """Return the tables of hits."""
    return [hit.table for hit in hits]


def test_unlikely_hits_come_apart_and_are_counted(lake: Lake) -> None:
    query = Column(CODES, "code")
    every, found = lake.search(query, 5, settings=EVERY), lake.search(query, 5)
    assert names(found) == ["first"]
    assert found.hits + found.unlikely == every.hits
    assert not every.unlikely and all(hit.probability < 0.15 for hit in found.unlikely)
    assert [hit.rank for hit in found.unlikely] == [2, 3, 4, 5]
    assert len(found.to_dict()["unlikely"]) == 4
    assert repr(found).splitlines()[-1].startswith("and 4 unlikely hits with a chance of 0.0")
    assert "4 unlikely hits" in found._repr_html_()


def test_what_was_not_weighed_stays_together(lake: Lake) -> None:
    """A list with room left, a query without a name, a definition, a limit of the caller's own."""
    query = Column(CODES, "code")
    assert not lake.search(query, 50).unlikely
    assert not lake.search(CODES, 5).unlikely
    for how in ({"join": "equi"}, {"join": "semantic"}, {"min_joinability": 0.1}):
        assert len(lake.search(query, 5, **how).hits) == 5


def test_no_hit_may_be_likely(lake: Lake) -> None:
    query = Column([*CODES[:2], *(f"else {n}" for n in range(40))], "measure")
    found = lake.search(query, 3)
    assert (len(found.hits), len(found.unlikely)) == (0, 3)
    assert repr(found).startswith("no likely hit\nand 3 unlikely hits")


def test_callers_choose_what_is_unlikely(lake: Lake) -> None:
    query = Column(CODES, "code")
    for join in ("any", "equi"):
        found = lake.search(query, 5, join=join, settings=SearchSettings(least=1))
        assert (len(found.hits), len(found.unlikely)) == (0, 5)
    with pytest.raises(deepjoin.DeepJoinError, match="`least` is 2; it must be between 0 and 1"):
        SearchSettings(least=2)


def test_the_shell_says_how_many_and_how_to_list_them(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("code,x\n" + "".join(f"{code},1\n" for code in CODES))
    command = ["search", str(lake.path), str(mine), "-c", "code", "-k", "5"]
    main(command)
    shown = capsys.readouterr().out
    assert "and 4 unlikely hits with a chance of 0.0" in shown
    assert "at most: --least 0 lists them" in shown
    main([*command, "--least", "0", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (len(found["hits"]), "unlikely" in found) == (5, False)
    main([*command, "--format", "csv"])
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), "code: and 4 unlikely hits" in err) == (2, True)


def test_the_service_keeps_them_apart(lake: Lake, tmp_path: Path) -> None:
    asked = {"query": {"values": CODES, "name": "code"}, "k": 5}
    with serving(tmp_path, lake) as served:
        found = served.post("/api/search", asked)
        assert (len(found["hits"]), len(found["unlikely"])) == (1, 4)
        every = served.post("/api/search", asked | {"least": 0})
        assert every["hits"] == found["hits"] + found["unlikely"] and "unlikely" not in every


def test_agents_learn_of_unlikely_hits(lake: Lake) -> None:
    tools = AgentSession(lake)
    query: dict[str, Any] = {"values": CODES, "k": 5, "join": "any"}
    answer = tools.search(SearchArguments(**query, least=0.05))
    assert names(answer.hits) == ["first"] and answer.hits[0].probability > 0.05
    assert any("4 unlikely hits" in note and "least=0" in note for note in answer.cut)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Seven days of one forecast in a folder, and two other tables with the same countries."""
    folder = tmp_path_factory.mktemp("days")
    countries = [
        "France",
        "Germany",
        "Peru",
        "Chile",
        "Japan",
        "Kenya",
        "Norway",
        "Ghana",
        "Italy",
        "Spain",
    ]
    (folder / "forecast").mkdir()
    for day in range(7):
        rows = "".join(f"{one},{day}{n}\n" for n, one in enumerate(countries))
        (folder / "forecast" / f"day{day}.csv").write_text("country,points\n" + rows)
    for name in ("capitals", "areas"):
        rows = "".join(f"{one},{name}{n}\n" for n, one in enumerate(countries))
        (folder / f"{name}.csv").write_text(f"country,{name}\n" + rows)
    return deepjoin.index(folder)


def test_tables_of_one_family_do_not_fill_the_page(days: Lake) -> None:
    query = days.column("forecast/day0.csv", "country")
    found = days.search(query, 4)
    assert {"capitals.csv", "areas.csv"} < set(names(found)[:3])
    assert sum(name.startswith("forecast/") for name in names(found)) == 2
    everything = days.search(query, 50, min_joinability=0)
    assert sorted(names(everything)) == sorted(set(days.tables) - {"forecast/day0.csv"})


def test_an_accepted_table_of_a_family_comes_first(days: Lake) -> None:
    query = days.column("forecast/day0.csv", "country")
    ends = ("forecast/day0.csv", "country"), ("forecast/day6.csv", "country")
    days.accept(*ends)
    try:
        assert names(days.search(query, 3))[0] == "forecast/day6.csv"
    finally:
        days.forget(*ends)


def test_years_of_one_list_and_columns_of_one_table_do_not_fill_the_page(tmp_path: Path) -> None:
    countries = ["France", "Germany", "Peru", "Chile", "Japan", "Kenya", "Norway", "Ghana"]
    for year in (2019, 2020, 2021):
        (tmp_path / str(year)).mkdir()
        rows = "".join(f"{one},{n}.{year}\n" for n, one in enumerate(countries))
        (tmp_path / str(year) / "lean.csv").write_text(f"country,{year}\n" + rows)
    rows = "".join(f"{one},{one},{n}\n" for n, one in enumerate(countries))
    (tmp_path / "games.csv").write_text("country,other_country,goals\n" + rows)
    rows = "".join(f"{one},cap {n}\n" for n, one in enumerate(countries))
    (tmp_path / "capitals.csv").write_text("country,capital\n" + rows)
    found = deepjoin.index(tmp_path).search(Column(countries, "country"), 6)
    assert len({name[-9:] for name in names(found)[:3]}) == 3
    assert len(names(found)) == 6
