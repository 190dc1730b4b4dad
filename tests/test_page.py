"""The page in a real browser: the story from drop to download, the map, and what can go wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

import deepjoin
from deepjoin.demo import DemoLake, write_demo_lake
from deepjoin.lake import Lake
from tests.support.browsing import (
    FAINT,
    PHONE,
    downloaded,
    link,
    picture,
    serving,
    too_wide,
    visiting,
)


@dataclass(frozen=True)
class Demo:
    """The demo lake, indexed and served."""

    files: DemoLake
    lake: Lake
    address: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    files = write_demo_lake(tmp_path_factory.mktemp("demo"))
    lake = deepjoin.index(files.folder)
    with serving(files.folder) as (address, _):
        yield Demo(files, lake, address)


def drop(page: Page, path: Path) -> None:
    """Let go of a file over the page."""
    held = page.evaluate_handle(
        """([name, text]) => {
          const held = new DataTransfer();
          held.items.add(new File([text], name));
          return held;
        }""",
        [path.name, path.read_text()],
    )
    page.dispatch_event("main", "dragover", {"dataTransfer": held})
    expect(page.get_by_text("Drop the file to search with it")).to_be_visible()
    page.dispatch_event("main", "drop", {"dataTransfer": held})


def open_hits(page: Page, demo: Demo, column: str) -> None:
    drop(page, demo.files.query)
    page.get_by_role("link", name=re.compile(f"^{column} ")).click()
    expect(page.locator(".card").first).to_be_visible()


def test_story_from_drop_to_download(browser: Browser, demo: Demo, tmp_path: Path) -> None:
    with visiting(browser, demo.address, color_scheme="light") as page:
        expect(page.locator(".facts")).to_contain_text(f"{len(demo.files.tables)}")
        picture(page, "start")
        drop(page, demo.files.query)
        expect(page.get_by_role("heading", name="orders.csv")).to_be_visible()
        expect(page.locator(".key").first).to_contain_text("customer")
        picture(page, "table")

        page.get_by_role("link", name=re.compile("^customer_country ")).click()
        card = page.locator(".card").first
        expect(card).to_contain_text("geo/countries.csv")
        expect(card.locator(".matches")).to_contain_text("Ireland")
        expect(card).to_contain_text("Ivory Coast")
        expect(card.locator(".brings")).to_contain_text("capital")
        picture(page, "hits")

        card.get_by_role("link", name="Preview the join").click()
        page.get_by_role("radio", name="equal").check()
        expect(page.locator("th.fresh")).to_have_count(7)
        expect(page.locator("tbody tr")).to_have_count(20)
        expect(page.locator("#joined")).to_contain_text("First 20 of 120 rows")
        expect(page.get_by_text("Scroll within the table to see all 20 rows.")).to_be_visible()
        page.locator("tbody tr").last.scroll_into_view_if_needed()
        expect(page.locator("tbody tr").last).to_be_in_viewport()
        picture(page, "preview")

        wanted = demo.lake.join(
            str(demo.files.query), "customer_country", ("geo/countries.csv", "country"), join="equi"
        )
        path = downloaded(page, "Download Parquet", tmp_path)
        assert pq.read_table(path).to_pylist() == wanted.to_pylist()
        path = downloaded(page, "Download CSV", tmp_path)
        expect(page.get_by_text("saved.")).to_be_visible()
        assert path.read_bytes() == written(wanted, tmp_path / "wanted.csv", demo)

        page.go_back()
        page.go_back()
        expect(page.locator(".card").first).to_contain_text("geo/countries.csv")
        page.go_back()
        expect(page.get_by_role("heading", name="orders.csv")).to_be_visible()


def written(table: pa.Table, path: Path, demo: Demo) -> bytes:
    """Write the join with the library itself."""
    with demo.lake.plan_join(
        str(demo.files.query), "customer_country", ("geo/countries.csv", "country"), join="equi"
    ) as plan:
        assert plan.write(path) == table.num_rows
    return path.read_bytes()


def test_alike_values_grouped_filtered_and_copied(browser: Browser, demo: Demo) -> None:
    options = {"permissions": ["clipboard-read", "clipboard-write"], "color_scheme": "dark"}
    with visiting(browser, demo.address, **options) as page:
        open_hits(page, demo, "customer")
        page.get_by_role("radio", name="Similar in meaning").check()
        expect(page).to_have_url(re.compile("join=semantic"))
        card = page.locator(".card").first
        expect(card).to_contain_text("sales/crm_export.csv")
        expect(card.locator(".matches")).to_contain_text("OAKHAMPTON INTERIORS")
        page.get_by_label("Group by table").check()
        expect(page).to_have_url(re.compile("grouped=true"))
        page.get_by_role("button", name="Show the evidence of hit 2").click()
        expect(page.locator(".matches")).to_have_count(2)
        picture(page, "hits-dark")
        page.get_by_label("Adds a column named").fill("newsletter")
        expect(page.locator(".card")).to_have_count(1)
        page.get_by_label("Adds a column named").fill("nothing like it")
        expect(page.get_by_text("The filters hide every hit")).to_be_visible()
        picture(page, "filtered-dark")
        page.get_by_role("button", name=re.compile("Show .* hits")).click()

        page.locator(".card").first.get_by_role("link", name="Preview the join").click()
        expect(page.locator("th.fresh").first).to_contain_text("similarity")
        picture(page, "preview-dark")
        page.get_by_role("radio", name="drop").check()
        expect(page).to_have_url(re.compile("how=inner"))
        page.get_by_role("tab", name="Python").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="SQL")).to_be_focused()
        page.get_by_role("button", name="Copy the SQL code").click()
        expect(page.get_by_text("Copied")).to_be_visible()
        assert "SELECT" in page.evaluate("navigator.clipboard.readText()")


def test_lake_is_browsed_by_name_and_value(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        expect(page.locator(".entry").first).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("france")
        expect(page.get_by_role("heading", name="Cells")).to_be_visible()
        expect(page).to_have_url(re.compile(r"\?text=france"))
        picture(page, "look-up")
        page.reload()
        entry = page.get_by_role("link").filter(has_text="geo/capitals.tsv").first
        expect(entry).to_contain_text("nation")
        entry.click()
        expect(page.locator(".card").first).to_be_visible()
        expect(page.locator(".card")).not_to_contain_text(["geo/capitals.tsv"])
        page.go_back()
        expect(page.get_by_label("Look up a table, a column or a value")).to_have_value("france")
        page.get_by_label("Look up a table, a column or a value").fill("zzzz")
        expect(page.get_by_text("Nothing found")).to_be_visible()
        picture(page, "look-up-empty")


def test_pasted_values_that_nothing_joins_with(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        page.get_by_label("Values, one per line").fill("qqxx1\nqqxx2\nqqxx3")
        page.get_by_role("button", name="Search 3 values").click()
        expect(page.get_by_text("Nothing in the lake joins with this column")).to_be_visible()
        picture(page, "nothing-found")


def test_map_shows_joins_and_paths(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        page.get_by_role("link", name="Map").click()
        expect(page.get_by_text("Choose a table to start from")).to_be_visible()
        picture(page, "map-empty")
        page.get_by_label("From table").fill("customers")
        page.get_by_role("option", name="sales/customers.csv").click()
        middle = page.get_by_role("button", name="Table sales/customers.csv")
        expect(middle).to_be_visible()
        picture(page, "map")

        line = "Join of geo/countries.csv and sales/customers.csv"
        page.get_by_role("button", name=line).press("Enter")
        details = page.locator(".edges")
        expect(details).to_contain_text("country")
        expect(details).to_contain_text("geo/countries.csv")
        expect(details.locator(".edge-share").first).to_have_text(re.compile(r"\d+%"))
        picture(page, "map-join")

        page.get_by_label("Path to table").fill("airports")
        page.keyboard.press("Enter")
        expect(page.locator(".paths > li").first).to_contain_text("travel/airports.csv")
        expect(page.locator(".map-line.on-path").first).to_be_visible()
        picture(page, "map-paths")
        page.reload()
        expect(page.locator(".paths > li").first).to_contain_text("travel/airports.csv")
        middle.click()
        page.get_by_role("link", name="Open the table").click()
        expect(page.get_by_role("heading", name="sales/customers.csv")).to_be_visible()


def views(demo: Demo) -> dict[str, str]:
    """Addresses of every view that needs no upload."""
    key = {"table": "sales/crm_export.csv", "column": "Client"}
    return {
        "start": "",
        "look-up": link(text="france"),
        "table": link(view="table", table="reference/calendar_2024_h1.csv"),
        "hits": link(view="search", **key, open="1.2"),
        "join": link(
            view="join", **key, **{"with": "sales/customers.csv"}, on="customer", join="semantic"
        ),
        "map": link(view="map", table="geo/countries.csv"),
        "paths": link(
            view="map",
            table="sales/customers.csv",
            to="travel/airports.csv",
            picked=["sales/customers.csv", "geo/countries.csv"],
        ),
        "lost": link(view="table", upload="f" * 32),
        "wrong": link(view="search", table="nowhere.csv", column="x"),
        "nowhere": link(view="nowhere"),
    }


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_view_fits_and_can_be_read(browser: Browser, demo: Demo, look: str) -> None:
    scheme = {"color_scheme": "dark" if look == "dark" else "light"}
    options = scheme | (PHONE if look == "phone" else {})
    with visiting(browser, demo.address, "40[04]", **options) as page:
        for name, address in views(demo).items():
            page.goto(address or "/")
            page.wait_for_load_state("networkidle")
            expect(page.locator("main h1, main h2").first).to_be_visible()
            picture(page, f"{look}-{name}")
            assert too_wide(page) <= 0, name
            assert page.evaluate(FAINT) == [], name


def test_colours_can_be_switched_and_stay(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address, color_scheme="light") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Colours").click()
        page.get_by_role("button", name="Colours: light").click()
        assert page.evaluate(ground) != light
        page.reload()
        expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
        assert page.evaluate(ground) != light


def tab_to(page: Page, name: str) -> None:
    """Press the tab key until what has the focus is called so."""
    called = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
    for _ in range(60):
        page.keyboard.press("Tab")
        if re.search(name, page.evaluate(called) or ""):
            break
    else:
        raise AssertionError(f"The tab key does not lead to {name}")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"


def test_whole_story_by_keyboard(browser: Browser, demo: Demo, tmp_path: Path) -> None:
    with visiting(browser, demo.address) as page:
        # From here on the browser gives choosers to the test; asked for later, it may miss one.
        page.on("filechooser", lambda _: None)
        expect(page.locator(".entry").first).to_be_visible()
        tab_to(page, "^Skip")
        tab_to(page, "^Drop a file here, or choose one")
        with page.expect_file_chooser() as choosing:
            page.keyboard.press("Enter")
        choosing.value.set_files(demo.files.query)
        expect(page.get_by_role("heading", name="orders.csv")).to_be_visible()
        tab_to(page, "^customer_country")
        page.keyboard.press("Enter")
        expect(page.locator(".card").first).to_be_visible()
        tab_to(page, "Hide the evidence of hit 1")
        page.keyboard.press("Enter")
        expect(page.locator(".evidence")).to_have_count(0)
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.locator("th.fresh").first).to_be_visible()
        tab_to(page, "Download CSV")
        with page.expect_download() as waiting:
            page.keyboard.press("Enter")
        assert waiting.value.suggested_filename.endswith(".csv")


def test_older_answers_never_replace_newer_ones(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        held = []

        def hold(route: object) -> None:
            body = json.loads(route.request.post_data)  # type: ignore[attr-defined]
            held.append(route) if "join" not in body else route.continue_()  # type: ignore[attr-defined]

        page.route("**/api/search", hold)
        page.goto(link(view="search", table="sales/crm_export.csv", column="Client"))
        expect(page.locator(".waiting")).to_be_visible()
        page.get_by_role("radio", name="Equal values").check()
        answered = page.locator(".card, .notice")
        expect(answered.first).to_be_visible()
        before = page.locator(".main-side").inner_text()
        for route in held:
            route.continue_()
        page.wait_for_load_state("networkidle")
        assert page.locator(".main-side").inner_text() == before
