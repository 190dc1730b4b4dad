"""The page over lakes of other shapes: nameless columns, more tables than a page of the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import deepjoin
from deepjoin.model import Column
from deepjoin.read.corpus import write_corpus
from tests.support.browsing import downloaded, link, picture, serving, settled, visiting

CITIES = ["Oslo", "Lima", "Rome", "Cairo", "Quito"]
TABLES = 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a collection whose first table has two nameless columns; the second joins."""
    folder = tmp_path_factory.mktemp("corpus")
    columns = [
        Column([f"number {place}" for place in range(5)], "", "a", column_id="a#0"),
        Column(CITIES, "", "a", column_id="a#1"),
    ]
    for table in range(TABLES - 1):
        cells = [f"{table}.{place}" for place in range(5)]
        columns.append(Column(cells, "code", f"table {table:02}", column_id=f"{table}#0"))
    write_corpus(folder / "columns", columns)
    deepjoin.index(folder / "columns", folder / "index")
    with serving(folder / "index") as (address, _):
        yield address


def test_join_is_with_the_column_of_the_hit(browser: Browser, corpus: str, tmp_path: Path) -> None:
    with visiting(browser, corpus) as page:
        page.get_by_label("Values, one per line").fill("\n".join(CITIES[:3]))
        page.get_by_role("button", name="Search 3 values").click()
        page.locator(".card").first.get_by_role("link", name="Preview the join").click()
        facts = page.get_by_label("The join in numbers")
        expect(facts).to_contain_text("100%")
        page.reload()
        expect(facts).to_contain_text("100%")
        picture(page, "nameless-preview")
        text = downloaded(page, "Download CSV", tmp_path).read_text()
        assert "Oslo,number 0" in text


def test_list_of_tables_grows(browser: Browser, corpus: str) -> None:
    with visiting(browser, corpus) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator(".entry")).to_have_count(24)
        page.get_by_role("button", name=f"Show more of {TABLES} tables").click()
        expect(page.locator(".entry")).to_have_count(TABLES)
        expect(page.get_by_role("button", name="Show more")).to_have_count(0)
        assert any("offset=24" in one for one in asked)


def test_tables_of_one_kind_are_folded(browser: Browser, tmp_path: Path) -> None:
    for year in (2022, 2023, 2024):
        rows = "".join(f"{city},{year + place}.5\n" for place, city in enumerate(CITIES))
        (tmp_path / f"rain_{year}.csv").write_text(f"city,rain\n{rows}")
    names = ["Ada", "Ben", "Cem", "Dot", "Eve"]
    rows = "".join(f"{city},{name}\n" for city, name in zip(CITIES, names, strict=True))
    (tmp_path / "mayors.csv").write_text(f"city,mayor\n{rows}")
    deepjoin.index(tmp_path)
    with serving(tmp_path) as (address, _), visiting(browser, address) as page:
        page.get_by_label("Values, one per line").fill("\n".join(CITIES[:3]))
        page.get_by_role("button", name="Search 3 values").click()
        expect(page.locator(".card")).to_have_count(2)
        expect(page.get_by_text("2 folded under similar tables")).to_be_visible()
        picture(page, "folded")
        settled(page)
        page.get_by_text("2 tables of the same kind").click()
        page.get_by_role("link", name="Preview the join with rain_2024.csv").click()
        expect(page.locator("h1")).to_contain_text("rain_2024.csv")


def test_generic_keys_are_marked_wherever_they_are_shown(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    rows = "".join(f"{number},x{number}\n" for number in range(1, 60))
    (tmp_path / "lake/stations.csv").write_text(f"station_no,text\n{rows}")
    (tmp_path / "mine.csv").write_text(
        "station_no,other\n" + "".join(f"{n},y{n}\n" for n in range(1, 40))
    )
    deepjoin.index(tmp_path / "lake")
    with serving(tmp_path / "lake") as (address, _), visiting(browser, address) as page:
        page.get_by_label("File to search with").set_input_files(tmp_path / "mine.csv")
        expect(page.locator(".best li").first).to_contain_text("generic key")
        expect(page.locator(".key-warning")).to_contain_text("Row numbers")
        page.locator(".key").filter(has_text="station_no").last.click()
        expect(page.locator(".card .warning")).to_contain_text("Row numbers")
        page.get_by_role("link", name="Preview the join").click()
        expect(page.locator(".warning").first).to_contain_text("Row numbers")


def test_map_claims_no_more_than_was_searched(browser: Browser, corpus: str) -> None:
    with visiting(browser, corpus) as page:
        page.goto(link(view="map", table="table 00"))
        expect(page.get_by_text("No table joins with this one")).to_be_visible()
        page.goto(link(view="map", table="table 00", to="table 01"))
        expect(page.get_by_text("no path within 4 joins at this minimum")).to_be_visible()
        picture(page, "map-no-path")
        node = {"table": "table 00", "rows": 5, "columns": 1, "distance": 0}
        cut = {"nodes": [node], "edges": [], "truncated": True}
        page.route("**/api/graph?*", lambda route: route.fulfill(json=cut))
        page.goto(link(view="map", table="table 00"))
        expect(page.get_by_text("No join was found before the search stopped")).to_be_visible()
        picture(page, "map-unfinished")


def test_a_key_of_several_columns(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    teams = ["Lions", "Bears", "Hawks", "Foxes", "Wolves"]
    seasons = [(2000 + year, team) for year in range(5) for team in teams]
    rows = "".join(f"{year},{team},{place}\n" for place, (year, team) in enumerate(seasons))
    (tmp_path / "lake/standings.csv").write_text(f"season,club,wins\n{rows}")
    rows = "".join(f"{team},{year},{place}\n" for place, (year, team) in enumerate(seasons[:12]))
    (tmp_path / "mine.csv").write_text(f"team,year,paid\n{rows}")
    deepjoin.index(tmp_path / "lake")
    with serving(tmp_path / "lake") as (address, _), visiting(browser, address) as page:
        page.get_by_label("File to search with").set_input_files(tmp_path / "mine.csv")
        settled(page)
        page.locator(".key").filter(has_text="team").last.click()
        expect(page.locator(".card").first).to_contain_text("On this column alone, 60 rows result.")
        page.get_by_label("and", exact=True).select_option("year")
        expect(page.locator("h1")).to_have_text("team and year")
        expect(page.locator(".card").first).to_contain_text("club, season")
        picture(page, "several-key-columns")
        page.locator(".card").first.get_by_role("link", name="Preview the join").click()
        facts = page.get_by_label("The join in numbers")
        expect(facts).to_contain_text("rows in the result12")
        page.reload()
        expect(page.get_by_text("on team = club and year = season")).to_be_visible()
        page.get_by_role("link", name="Back to the results").click()
        page.get_by_role("button", name="Take out of the key: year").click()
        expect(page.locator("h1")).to_have_text("team")
