"""Enrichment on the page: what could be added, and the waterfall of what helps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, expect

import deepjoin
from tests.support.browsing import AXE, inaccessible, link, picture, serving, visiting

TOWNS = [f"{word} {number}" for word in ("north", "south", "east") for number in range(20)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("towns")
    drawn = np.random.default_rng(0)
    income = dict(zip((f"region {number}" for number in range(12)), range(12), strict=True))
    regions = [f"region {number % 12}" for number in range(60)]
    towns = pd.DataFrame({"town": TOWNS, "region": regions, "height": drawn.integers(0, 900, 60)})
    towns.to_csv(folder / "towns.csv", index=False)
    wealth = pd.DataFrame({"region": list(income), "income": list(income.values())})
    wealth.to_csv(folder / "regions.csv", index=False)
    at = drawn.choice(60, 300)
    houses = pd.DataFrame({"town": np.array(TOWNS)[at], "rooms": drawn.integers(1, 9, 300)})
    price = [income[regions[one]] for one in at] + drawn.normal(size=300)
    houses.assign(price=price.round(3)).to_csv(folder / "houses.csv", index=False)
    deepjoin.index(folder)
    with serving(folder) as (served, _):
        yield served


def test_from_a_table_to_what_helps(browser: Browser, address: str) -> None:
    pytest.importorskip("sklearn")
    with visiting(browser, address) as page:
        page.goto(link(view="table", table="houses.csv"))
        page.get_by_role("link", name="Enrich").click()
        expect(page.get_by_role("heading", name="could be added")).to_be_visible()
        page.get_by_label("About").fill("earnings of people")
        expect(page.locator(".offers li").first).to_contain_text("income")
        picture(page, "enrich-offers")
        page.get_by_label("Column to predict").select_option("price")
        expect(page.locator(".gains li").first).to_be_visible()
        expect(page.locator(".gains")).to_contain_text("regions.csv")
        expect(page.get_by_text("R² with it")).to_be_visible()
        expect(page.locator("pre")).to_contain_text("CREATE TABLE step_1")
        picture(page, "enrich-gains")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download CSV").click()
        assert download.value.suggested_filename == "houses-enriched.csv"
        if AXE.exists():
            assert inaccessible(page) == []
        page.get_by_role("link", name="Join more tables to it").click()
        expect(page.get_by_role("heading", name="houses-enriched.parquet")).to_be_visible()
        page.go_back()
        page.go_back()
        expect(page.locator(".offers li").first).to_be_visible()
