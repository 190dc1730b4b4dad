"""The page against hostile names, missing tokens and a service that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import deepjoin
from deepjoin.serve.http.app import PAGE
from tests.support.browsing import (
    PHONE,
    downloaded,
    link,
    picture,
    serving,
    settled,
    too_wide,
    visiting,
)

#: Whether marks of direction in the first name of a heading move it among the second.
MIXED = """() => {
  const places = (name) => {
    const range = document.createRange();
    range.selectNodeContents(name);
    return [...range.getClientRects()].map(({top, left}) => Math.round(top) * 10000 + left);
  };
  const [one, other] = [...document.querySelectorAll('h1 bdi')].map(places);
  return Math.max(...one) > Math.min(...other);
}"""
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\u2066"
SCRIPT = "<script>alert(2)</script>\"'><svg onload=alert(3)>"
LONG = "very_long_" * 1000


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("hostile") / "lake"
    folder.mkdir()
    cells = [f"{SCRIPT}{number}" for number in range(20)]
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    rows = "".join(f"{cell},key {place},=1+{place}\n" for place, cell in enumerate(quoted))
    heads = '"' + SCRIPT.replace('"', '""') + f'",{LONG},"{HOSTILE}"\n'
    for name in (f"{HOSTILE}.csv", f"{'n' * 200}.csv", "\u200f\u200f.csv"):
        (folder / name).write_text(heads + rows)
    query = folder.parent / f"{HOSTILE} mine.csv"
    query.write_text(heads + rows)
    deepjoin.index(folder)
    with serving(folder) as (address, _):
        yield address, query


@pytest.mark.parametrize("look", ["wide", "phone"])
def test_hostile_names_stay_text(
    browser: Browser, hostile: tuple[str, Path], look: str, tmp_path: Path
) -> None:
    address, query = hostile
    with visiting(browser, address, **(PHONE if look == "phone" else {})) as page:
        expect(page.locator(".entry")).to_have_count(3)
        picture(page, f"hostile-{look}-start")
        page.get_by_label("File to search with").set_input_files(query)
        expect(page.locator("h1")).to_contain_text("<img src=x onerror=alert(1)>")
        assert too_wide(page) <= 0
        picture(page, f"hostile-{look}-table")
        page.locator(".key").filter(has_text="<script>").click()
        expect(page.locator(".card").first).to_be_visible()
        settled(page)
        page.get_by_text("2 tables of the same kind").click()
        expect(page.locator(".also li")).to_have_count(2)
        expect(page.locator(".matches").first).to_contain_text("<script>alert(2)</script>")
        assert too_wide(page) <= 0
        picture(page, f"hostile-{look}-hits")
        page.locator(".card .primary").first.click()
        expect(page.locator("tbody tr").first).to_be_visible()
        assert too_wide(page) <= 0
        assert page.evaluate(MIXED) is False
        picture(page, f"hostile-{look}-preview")
        assert_code_is_seen_and_copied(page)
        picture(page, f"hostile-{look}-code")
        page.get_by_label("Make the CSV safe").check()
        text = downloaded(page, "Download CSV", tmp_path).read_text()
        assert "'=1+3" in text
        assert page.locator("main script, main img").count() == 0


def assert_code_is_seen_and_copied(page: Page) -> None:
    """Look for marks of direction in the SQL: drawn as numbers, copied as what they are."""
    page.get_by_role("tab", name="SQL").click()
    marks = page.locator(".code .unseen-letter")
    expect(marks.first).to_have_attribute("data-number", re.compile("U\\+20[26]"))
    drawn = "mark => getComputedStyle(mark, '::before').content"
    assert "U+20" in marks.first.evaluate(drawn)
    code = page.locator(".code code")
    selected = "code => (getSelection().selectAllChildren(code), getSelection().toString())"
    assert "\u202egnp.exe\u2066" in code.evaluate(selected)
    assert (
        code.evaluate("code => code.textContent").count("\u202e")
        == page.locator(".code [data-number='U+202E']").count()
    )


def test_ten_thousand_characters_can_be_read(browser: Browser, hostile: tuple[str, Path]) -> None:
    address, _ = hostile
    with visiting(browser, address) as page:
        page.get_by_label("Values, one per line").fill("key 1\nkey 2\nkey 3")
        page.get_by_label("Column name").fill(LONG)
        page.get_by_role("button", name="Search 3 values").click()
        expect(page.locator(".card")).to_have_count(1)
        assert page.locator("h1").inner_text().count("very_long_") < 20
        page.get_by_role("button", name="Show all 10,000 characters").first.click()
        assert page.locator("h1").inner_text().count("very_long_") == 1000
        assert too_wide(page) <= 0
        expect(page.get_by_role("button", name="Show all 1,000 characters")).to_be_visible()
        picture(page, "hostile-long-name")
        page.goto(link(view="map", table="\u200f\u200f.csv"))
        expect(page.locator(".map-node")).to_have_count(3)
        assert too_wide(page) <= 0
        picture(page, "hostile-map")


def test_token_is_asked_for_and_kept_out_of_the_address(
    browser: Browser, lake_folder: Path
) -> None:
    deepjoin.index(lake_folder)
    with serving(lake_folder, "--token", "s3cret") as (address, _):
        with visiting(browser, address, "401") as page:
            expect(page.get_by_text("This lake needs a token")).to_be_visible()
            page.get_by_label("Token").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.get_by_text("Wrong token.")).to_be_visible()
            picture(page, "token")
            page.get_by_label("Token").fill("s3cret")
            page.get_by_role("button", name="Open the lake").click()
            expect(page.locator(".entry").first).to_be_visible()
            page.reload()
            expect(page.locator(".entry").first).to_be_visible()
        with visiting(browser, f"{address}#token=s3cret") as page:
            expect(page.locator(".entry").first).to_be_visible()
            assert "s3cret" not in page.url


def test_token_is_asked_for_again_when_it_has_changed(browser: Browser, lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    with (
        serving(lake_folder, "--token", "first") as (address, service),
        visiting(browser, f"{address}#token=first", "401") as page,
    ):
        expect(page.locator(".entry").first).to_be_visible()
        service.terminate()
        service.wait()
        port = address.rsplit(":", 1)[1].strip("/")
        with serving(lake_folder, "--port", port, "--token", "second"):
            page.get_by_role("link", name="geo/countries.csv").click()
            expect(page.get_by_text("This lake needs a token")).to_be_visible()
            expect(page.get_by_text("Wrong token.")).to_have_count(0)
            picture(page, "token-changed")
            page.get_by_label("Token").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.get_by_text("Wrong token.")).to_be_visible()
            page.get_by_label("Token").fill("second")
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="geo/countries.csv")).to_be_visible()


def test_too_large_and_gone_are_explained(
    browser: Browser, lake_folder: Path, tmp_path: Path
) -> None:
    deepjoin.index(lake_folder)
    large = tmp_path / "large.csv"
    large.write_text("a\n" + "x" * 3000 + "\n")
    with (
        serving(lake_folder, "--max-upload", "2KB") as (address, service),
        visiting(browser, address, "ERR_CONNECTION_REFUSED") as page,
    ):
        # The page knows the limit once the service has described the lake.
        expect(page.get_by_text("Up to 2.0 KB")).to_be_visible()
        page.get_by_label("File to search with").set_input_files(large)
        expect(page.get_by_text("large.csv has 2.9 KB")).to_be_visible()
        picture(page, "too-large")
        service.terminate()
        service.wait()
        page.get_by_role("link", name="geo/countries.csv").click()
        expect(page.get_by_text("The service does not answer")).to_be_visible()
        picture(page, "gone")
        port = address.rsplit(":", 1)[1].strip("/")
        with serving(lake_folder, "--port", port):
            page.get_by_role("button", name="Try again").click()
            expect(page.locator(".key").first).to_be_visible()


def test_built_page_is_small_and_needs_nothing_else() -> None:
    files = {
        path.relative_to(PAGE): path.read_bytes() for path in PAGE.rglob("*") if path.is_file()
    }
    assert sum(map(len, files.values())) < 300_000
    index = files[Path("index.html")].decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", index)
    addresses = {
        found for text in files.values() for found in re.findall(rb"https?://[\w.]+", text)
    }
    # Names of kinds of elements, never fetched.
    assert addresses <= {b"http://www.w3.org"}
