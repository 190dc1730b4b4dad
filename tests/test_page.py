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
from deepjoin.show.wording import CONTROLS
from tests.support.browsing import (
    AXE,
    COMMON_PHONE,
    FAINT,
    PHONE,
    downloaded,
    inaccessible,
    link,
    picture,
    serving,
    settled,
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
    page.locator(".keys").get_by_role("link", name=re.compile(f"^{column} ")).click()
    expect(page.locator(".card").first).to_be_visible()
    settled(page)


def test_story_from_drop_to_download(browser: Browser, demo: Demo, tmp_path: Path) -> None:
    with visiting(browser, demo.address, color_scheme="light") as page:
        expect(page.locator(".facts")).to_contain_text(f"{len(demo.files.tables)}")
        picture(page, "start")
        drop(page, demo.files.query)
        expect(page.get_by_role("heading", name="orders.csv")).to_be_visible()
        expect(page.locator(".key").first).to_contain_text("customer")
        picture(page, "table")

        page.locator(".keys").get_by_role("link", name=re.compile("^customer_country ")).click()
        card = page.locator(".card").first
        expect(card).to_contain_text("geo/countries.csv")
        expect(card.locator(".matches")).to_contain_text("Ireland")
        expect(card).to_contain_text("Ivory Coast")
        expect(card.locator(".brings")).to_contain_text("capital")
        picture(page, "hits")

        card.get_by_role("link", name="Preview the join").click()
        page.get_by_role("radio", name="Equal values").check()
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
        assert path.name == "orders-joined-with-countries.csv"
        assert path.read_bytes() == written(wanted, tmp_path / "wanted.csv", demo)

        while "view=join" in page.url:  # a choice of the preview is a step of its own
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
        settled(page)
        expect(card).to_contain_text("sales/crm_export.csv")
        expect(card.locator(".matches")).to_contain_text("OAKHAMPTON INTERIORS")
        page.get_by_label("Group by table").check()
        expect(page).to_have_url(re.compile("grouped=true"))
        settled(page)
        page.get_by_role("button", name="Show evidence of hit 2").click()
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


def test_pasted_values_are_answered_as_a_list_is(browser: Browser, demo: Demo) -> None:
    for values in (["France"], ["Ireland", "India", "Spain"]):
        wanted = [hit.table for hit in demo.lake.search(values)]
        with visiting(browser, demo.address) as page:
            page.get_by_label("Values, one per line").fill(", ".join(values))
            page.get_by_role("button", name=re.compile("Search [13] value")).click()
            expect(page.locator("h1")).to_have_text("your values")
            expect(page.locator(".card").first).to_be_visible()
            settled(page)  # similar values are searched, too
            assert page.locator(".card h2").all_inner_texts() == wanted


def test_best_joins_of_all_columns_after_an_upload(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        searched = []
        page.on("request", lambda request: searched.append(request.url.rpartition("/")[2]))
        drop(page, demo.files.query)
        best = page.locator(".best li")
        expect(best).to_have_count(5)
        expect(best.filter(has_text="customer_country")).to_contain_text("geo/countries.csv")
        expect(page.get_by_text(re.compile("columns? searched"))).to_have_count(0)
        picture(page, "best-joins")
        best.filter(has_text="product_sku").get_by_role("link").first.click()
        expect(page.locator("h1")).to_contain_text(re.compile("sales/products|logistics/stock"))
        assert searched.count("stream") == 1, "one search for all columns"
        page.go_back()
        expect(best).to_have_count(5)
        assert searched.count("stream") == 1, "what was found is kept"


def test_evidence_lists_similar_values_first_and_all_on_request(
    browser: Browser, demo: Demo
) -> None:
    with visiting(browser, demo.address) as page:
        open_hits(page, demo, "customer_country")
        card = page.locator(".card").filter(has_text="geo/countries.csv").first
        figures = card.locator(".matches .figure")
        expect(figures.first).to_have_text(re.compile("≈ 0"))
        expect(figures).to_have_count(8)
        card.get_by_role("button", name="Show all values").first.click()
        expect(figures.nth(20)).to_be_visible()
        expect(figures.last).to_have_text("equal")
        picture(page, "evidence-all")


#: Holds back all lines of a search but the first until the test calls `release`.
HELD_BACK = """
const real = window.fetch;
window.fetch = async (...call) => {
  const answer = await real(...call);
  if (!String(call[0]).includes("search/stream")) return answer;
  const [first, ...rest] = (await answer.text())
    .split(/(?<=\\n)/)
    .map((line) => new TextEncoder().encode(line));
  return new Response(new ReadableStream({
    start: (lines) => {
      lines.enqueue(first);
      window.release = () => (rest.forEach((line) => lines.enqueue(line)), lines.close());
    },
  }));
};
"""


def test_equal_values_are_shown_while_similar_ones_are_searched(
    browser: Browser, demo: Demo
) -> None:
    with visiting(browser, demo.address) as page:
        page.add_init_script(HELD_BACK)
        page.goto(link(view="search", table="sales/customers.csv", column="country"))
        expect(page.get_by_text("similar ones are still being searched")).to_be_visible()
        expect(page.locator(".card").first).to_contain_text("geo/countries.csv")
        picture(page, "early")
        page.evaluate("window.release()")
        expect(page.get_by_text("still being searched")).to_have_count(0)
        expect(page.locator(".card").filter(has_text="calling_codes")).to_be_visible()


def test_opened_evidence_stays_with_its_hit(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        page.add_init_script(HELD_BACK)
        page.goto(link(view="search", table="sales/customers.csv", column="country"))
        opened = page.locator(".card").filter(has=page.locator(".evidence")).locator("h2")

        def show(table: str, before: int) -> None:
            """Open a card among early hits; most of them have another rank in the end."""
            expect(page.get_by_text("still being searched")).to_be_visible()
            card = page.locator(".card").filter(has=page.get_by_role("heading", name=table))
            rank = card.locator(".rank").inner_text()
            card.get_by_role("button", name=re.compile("Show evidence")).click()
            expect(opened).to_have_count(before + 1)
            page.evaluate("window.release()")
            settled(page)
            assert card.locator(".rank").inner_text() != rank

        show("reference/calling_codes.tsv", 1)
        assert opened.all_inner_texts() == ["geo/countries.csv", "reference/calling_codes.tsv"]
        page.get_by_label("Group by table").check()
        show("geo/cities.csv", 2)
        tables = ["geo/countries.csv", "reference/calling_codes.tsv", "geo/cities.csv"]
        assert opened.all_inner_texts() == tables
        page.reload()
        expect(page.get_by_text("still being searched")).to_be_visible()
        page.evaluate("window.release()")
        settled(page)
        assert opened.all_inner_texts() == tables


@pytest.mark.parametrize("look", [{}, COMMON_PHONE])
def test_new_columns_of_a_preview_are_in_sight(
    browser: Browser, demo: Demo, look: dict[str, object]
) -> None:
    with visiting(browser, demo.address, **look) as page:
        hit = {"with": "geo/countries.csv", "on": "country"}
        page.goto(link(view="join", table="sales/customers.csv", column="country", **hit))
        fresh = page.locator("th.fresh")
        expect(fresh.first).to_be_visible()
        picture(page, f"preview-{len(look)}")
        expect(fresh.first).to_be_in_viewport()
        sheet = page.locator(".sheet")
        sheet.evaluate("sheet => { sheet.scrollLeft = 10_000; }")
        expect(page.locator("thead th").first).to_be_in_viewport()
        expect(page.locator("thead th").first).to_contain_text("country")


def test_equal_join_after_a_similar_one_with_a_threshold(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        key = {"table": "sales/crm_export.csv", "column": "Client", "with": "sales/customers.csv"}
        page.goto(link(view="join", **key, on="customer", join="semantic", tau=0.8))
        expect(page.locator("th.fresh").first).to_contain_text("similarity")
        page.get_by_role("radio", name="Equal values").check()
        expect(page.locator("th.fresh").first).to_contain_text("customer_no")
        expect(page.locator(".notice.error")).to_have_count(0)


def test_columns_and_summaries_of_a_join_are_chosen(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        hit = {"with": "geo/cities.csv", "on": "country", "join": "equi"}
        page.goto(link(view="join", table="sales/customers.csv", column="country", **hit))
        fresh = page.locator("thead .fresh .name")
        expect(fresh.filter(has_text=re.compile("^lat$"))).to_have_count(1)
        page.get_by_text("Columns to add").click()
        page.get_by_role("checkbox", name="lat").uncheck()
        expect(fresh.filter(has_text=re.compile("^lat$"))).to_have_count(0)
        page.get_by_role("radio", name="summarise").check()
        page.get_by_label("Summary of lon").select_option("max")
        expect(fresh.filter(has_text="lon_max")).to_have_count(1)
        expect(page).to_have_url(re.compile(r"aggregate=max\+lon"))
        assert inaccessible(page) == [] if AXE.exists() else True
        picture(page, "columns-to-add")
        page.reload()
        expect(fresh.filter(has_text="lon_max")).to_have_count(1)


def test_matches_that_may_mean_several_are_shown(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    names = [
        "Acme Holdings Ltd",
        "Acme Holdings Inc",
        "Borealis Optics",
        "Cobalt Foods",
        "Dune Air",
    ]
    rows = "".join(f"{name},{place}.5\n" for place, name in enumerate(names))
    (tmp_path / "lake/firms.csv").write_text(f"firm,size\n{rows}")
    (tmp_path / "mine.csv").write_text("client,x\nAcme Holdings,1\nBorealis Optics,2\nDune,3\n")
    deepjoin.index(tmp_path / "lake")
    with serving(tmp_path / "lake") as (address, _), visiting(browser, address) as page:
        page.get_by_label("File to search with").set_input_files(tmp_path / "mine.csv")
        best = page.locator(".best").get_by_role("link", name=re.compile("^client")).first
        expect(best).to_be_visible()
        # Links to early hits join equal values; those to the final hits join similar ones too.
        expect(page.locator(".best + .hint")).to_have_count(0)
        best.click()
        expect(page.get_by_label("The join in numbers")).to_contain_text("several good matches")
        page.get_by_text("1 value of yours may mean several of theirs").click()
        expect(page.locator(".ties .chip")).to_have_count(2)
        picture(page, "ties")


def test_doubtful_pairs_are_accepted_and_rejected(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    names = ["Acme Holdings Ltd", "Borealis Optics", "Cobalt Foods", "Dune Air", "Great Britain"]
    rows = "".join(f"{name},{place}.5\n" for place, name in enumerate(names))
    (tmp_path / "lake/firms.csv").write_text(f"firm,size\n{rows}")
    (tmp_path / "lake/mine.csv").write_text(
        "client,x\nAcme Trading,1\nBorealis Optics,2\nDune Air,3\nCobalt Foods,4\n"
    )
    deepjoin.index(tmp_path / "lake", settings=deepjoin.Settings(min_distinct=1))
    hit = {"with": "firms.csv", "on": "firm"}
    with serving(tmp_path / "lake") as (address, _), visiting(browser, address) as page:
        page.goto(link(view="join", table="mine.csv", column="client", **hit))
        expect(page.get_by_label("The join in numbers")).to_be_visible()
        pairs = page.locator(".pairs")
        doubtful = pairs.get_by_label("Doubtful pairs").get_by_role("listitem")
        if not doubtful.first.is_visible():
            pairs.locator("summary").click()
        expect(doubtful).to_contain_text(["Acme Trading ≈ Acme Holdings Ltd"])
        doubtful.first.get_by_role("button", name=re.compile("^Reject")).click()
        kept = pairs.get_by_label("Decided pairs").get_by_role("listitem")
        expect(kept).to_contain_text(["rejected by you"])
        expect(page.locator(".code pre")).to_contain_text("decisions='decisions.csv'")
        picture(page, "doubtful-pairs")
        assert inaccessible(page) == [] if AXE.exists() else True
        # Kept for the next time, and in a file for the shell.
        page.reload()
        page.get_by_text("1 pair decided").click()
        expect(kept).to_contain_text(["rejected by you"])
        with page.expect_download() as download:
            pairs.get_by_role("button", name="Save decisions.csv").click()
        saved = Path(download.value.path()).read_text("utf-8")
        assert saved == "query,target,chance,decision\nAcme Trading,Acme Holdings Ltd,,reject\n"
        kept.first.get_by_role("button", name=re.compile("^Undo")).click()
        expect(kept).to_have_count(0)
        expect(page.get_by_label("The join in numbers")).to_contain_text("75%")
        doubtful.first.get_by_role("button", name=re.compile("^Accept")).click()
        expect(kept).to_contain_text(["accepted by you"])
        expect(page.get_by_label("The join in numbers")).to_contain_text("100%")


def test_joined_table_is_searched_further(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        hit = {"with": "geo/countries.csv", "on": "country"}
        page.goto(link(view="join", table="sales/customers.csv", column="country", **hit))
        page.get_by_role("button", name="Join more tables to the result").click()
        expect(page.locator("h1")).to_have_text("customers-joined-with-countries.parquet")
        expect(page.locator(".best li").first).to_be_visible()


def test_unknown_address_is_answered_in_words(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address, "404") as page:
        page.goto("/nopage")
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
        page.get_by_role("link", name="Go to the start page").click()
        expect(page.get_by_role("heading", name="Find what joins")).to_be_visible()


def test_messages_name_labels_that_the_page_has(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        seen = page.locator("body").inner_html()
        for address in ("hits", "join", "enrich"):
            page.goto(views(demo)[address])
            expect(page.locator("main h1, main h2").first).to_be_visible()
            settled(page)
            seen += page.locator("body").inner_html()
    labels = {label for values in CONTROLS.values() for label in values.values()}
    assert [label for label in sorted(labels) if label not in seen] == []


def test_map_shows_joins_and_paths(browser: Browser, demo: Demo) -> None:
    with visiting(browser, demo.address) as page:
        page.get_by_role("link", name="Map").click()
        expect(page.locator(".map-node")).to_have_count(len(demo.files.tables))
        expect(page.locator(".map-line.similar").first).to_be_visible()
        picture(page, "map-overview")
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
        first = page.locator(".paths > li").first
        expect(first).to_contain_text("travel/airports.csv")
        expect(first).to_contain_text(re.compile(r"Probability \d+%"))
        steps = page.locator(".paths > li").nth(1).locator(".path > li").count() - 1
        page.get_by_role("button", name="Show on the map path 2").click()
        expect(page.locator(".map-line.on-path")).to_have_count(steps)
        picture(page, "map-paths")
        page.get_by_role("button", name="Show SQL of path 1").click()
        expect(first.locator("pre")).to_contain_text("LEFT JOIN")
        page.reload()
        expect(page.locator(".paths > li").first).to_contain_text("travel/airports.csv")
        page.get_by_role("button", name="Join along this path").first.click()
        expect(page.locator("h1")).to_contain_text("travel/airports.csv")
        expect(page.locator("h1")).to_contain_text("-joined-with-")
        expect(page.locator("th.fresh").first).to_be_visible()
        page.go_back()
        middle.click()
        page.get_by_role("link", name="Open the table").click()
        expect(page.get_by_role("heading", name="sales/customers.csv")).to_be_visible()


def test_joins_are_accepted_and_rejected(browser: Browser, tmp_path: Path) -> None:
    """On a lake of its own: decisions change what every other view shows."""
    files = write_demo_lake(tmp_path / "demo")
    deepjoin.index(files.folder)
    with serving(files.folder) as (address, _), visiting(browser, address) as page:
        page.get_by_role("link", name="Relations").click()
        rows = page.locator("[aria-labelledby=relations] li")
        expect(rows.first).to_be_visible()
        expect(page.locator(".diagram svg .diagram-line").first).to_be_visible()
        picture(page, "relations")
        before, first = rows.count(), rows.first.locator(".relation-ends").inner_text()
        rows.first.get_by_role("button", name=re.compile("^Reject")).click()
        rejected = page.locator("[aria-labelledby=rejected]")
        expect(rejected).to_contain_text("rejected by a person")
        expect(rows.filter(has_text=first)).to_have_count(0)
        rejected.get_by_role("button", name=re.compile("^Undo")).click()
        expect(rows).to_have_count(before)
        rows.last.get_by_role("button", name=re.compile("^Accept")).click()
        expect(rows.first).to_contain_text("accepted by a person")
        expect(rows.first).to_contain_text("100%")

        # A hit of an uploaded table, known by the name of its column.
        drop(page, files.query)
        page.locator(".keys").get_by_role("link", name=re.compile("^customer_country ")).click()
        cards = page.locator(".card")
        expect(cards.nth(1)).to_be_visible()
        settled(page)  # hits by equal values were in another order
        tables = cards.locator("h2").all_inner_texts()
        other = next(n for n, table in enumerate(tables) if table != tables[0])
        table = tables[other]
        cards.nth(other).get_by_role("button", name=re.compile("^Accept")).click()
        expect(cards.first.locator("h2")).to_have_text(table)
        expect(cards.first).to_contain_text("accepted by a person")
        settled(page)
        cards.first.get_by_role("button", name=re.compile("^Undo")).click()
        expect(cards.first.locator("h2")).not_to_have_text(table)


def views(demo: Demo) -> dict[str, str]:
    """Addresses of every view that needs no upload."""
    key = {"table": "sales/crm_export.csv", "column": "Client"}
    return {
        "start": "",
        "look-up": link(text="france"),
        "table": link(view="table", table="reference/calendar_2024_h1.csv"),
        "hits": link(view="search", **key, open=["sales/customers.csv#1", "support/tickets.csv#2"]),
        "join": link(
            view="join", **key, **{"with": "sales/customers.csv"}, on="customer", join="semantic"
        ),
        "map": link(view="map", table="geo/countries.csv"),
        "overview": link(view="map"),
        "relations": link(view="relations", least=0.3),
        "paths": link(
            view="map",
            table="sales/customers.csv",
            to="travel/airports.csv",
            picked=["sales/customers.csv", "geo/countries.csv"],
        ),
        "enrich": link(view="enrich", table="sales/customers.csv"),
        "lost": link(view="table", upload="f" * 32),
        "wrong": link(view="search", table="nowhere.csv", column="x"),
        "nowhere": link(view="nowhere"),
    }


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_view_fits_and_can_be_read(browser: Browser, demo: Demo, look: str) -> None:
    """Also by readers of screens, where axe-core is here: npm ci in web/."""
    scheme = {"color_scheme": "dark" if look == "dark" else "light"}
    options = scheme | (PHONE if look == "phone" else {})
    with visiting(browser, demo.address, "40[04]", **options) as page:
        for name, address in views(demo).items():
            page.goto(address or "/")
            expect(page.locator("main h1, main h2").first).to_be_visible()
            settled(page)
            picture(page, f"{look}-{name}")
            assert too_wide(page) <= 0, name
            assert page.evaluate(FAINT) == [], name
            assert not AXE.exists() or inaccessible(page) == [], name
        drop(page, demo.files.query)
        expect(page.locator(".best li")).to_have_count(5)
        assert not AXE.exists() or inaccessible(page) == []


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
        tab_to(page, r"^customer_country\s+text")
        page.keyboard.press("Enter")
        expect(page.locator(".card").first).to_be_visible()
        settled(page)
        tab_to(page, "Hide evidence")
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

        page.route("**/api/search/stream", hold)
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
