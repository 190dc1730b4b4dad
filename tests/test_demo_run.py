"""The demo as it runs: a join by equal cells, and one where no cell is equal."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import deepjoin
from deepjoin.cli import main
from deepjoin.demo import write_demo_lake
from deepjoin.normalise.canonical import canonical
from tests.support.demo import without_legal_form

#: The columns of the lake that hold countries, and customers.
RIGHT = {
    "country": {
        *("geo/countries.csv", "geo/cities.csv", "reference/public_holidays_2024.csv"),
        *("sales/customers.csv", "geo/borders.csv", "geo/languages_spoken.csv"),
        *("travel/airports.csv", "reference/calling_codes.tsv", "sales/crm_export.csv"),
    },
    "customer": {"sales/crm_export.csv", "sales/customers.csv", "support/tickets.csv"},
}


def assert_no_false_friends(printed: str) -> None:
    """Check every hit and every pair of different spellings that the demo shows."""
    shown = re.findall(r"^\d+ +(\S+) +(\S+) .* (?:1|n):(?:1|n|m) +(.*)$", printed, re.MULTILINE)
    assert len(shown) == 8 + 3
    for place, (table, _, why) in enumerate(shown):
        assert table in RIGHT["country" if place < 8 else "customer"]
        for pair in re.findall(r"[^≈]+ ≈ .+?(?=, [A-Z…]|$)", why.replace(", Inc.", " Inc.")):
            mine, theirs = pair.removeprefix(", ").split(" ≈ ")
            assert canonical(without_legal_form(mine)) == canonical(without_legal_form(theirs))


@pytest.mark.slow
def test_the_demo_joins_by_equality_and_by_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert_no_false_friends(told)
    assert "--with geo/countries.csv:country --join equi" in told
    assert "--with sales/crm_export.csv:Client --join semantic" in told
    with (tmp_path / "orders-with-clients.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert all(0.65 <= float(row["similarity"]) < 1 for row in rows)
    for row in rows:
        assert canonical(row["Client"]) == canonical(without_legal_form(row["customer"]))


@pytest.mark.slow
def test_numbers_and_codes_of_the_demo_are_no_false_friends(tmp_path: Path) -> None:
    demo = write_demo_lake(tmp_path)
    results = deepjoin.index(demo.folder).search(demo.query)
    hits = {one.query["column"]: one.hits for one in (results, *results.others)}
    assert all(match.similarity == 1 for hit in hits["order_id"] for match in hit.matches)
    assert {hit.column for hit in hits["product_sku"]} == {"sku", "article_no", "article"}
    (clients, *_) = hits["customer"]
    assert all(
        canonical(without_legal_form(match.query)) == canonical(match.target)
        for match in clients.matches
    )


def test_what_is_typed_in_finds_the_table_of_it_first(tmp_path: Path) -> None:
    lake = deepjoin.index(write_demo_lake(tmp_path).folder)
    for typed in (["Ireland", "India", "Spain"], ["France", "Germany", "Japan"]):
        assert lake.search(typed)[0].table == "geo/countries.csv"
    first = lake.search({"customer_country": ["Ireland", "India", "Spain", "Peru"]})[0]
    assert (first.table, first.column) == ("geo/countries.csv", "country")
