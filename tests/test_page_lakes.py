"""The page over lakes of other shapes: nameless columns, more tables than a page of the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import deepjoin
from deepjoin.model import Column
from deepjoin.read.corpus import write_corpus
from tests.support.browsing import downloaded, link, picture, serving, visiting

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
