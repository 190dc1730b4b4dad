"""The demo lake: its facts hang together and its tables overlap as the demo promises."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deepjoin.demo import DemoLake, write_demo_lake
from deepjoin.errors import DeepJoinError
from deepjoin.normalise.canonical import canonical
from tests.support.demo import without_legal_form

Columns = dict[str, list[str]]
LATIN_1 = "logistics/versandkosten.csv"
PREAMBLE = "sales/crm_export.csv"
EMPTY = "support/escalations.csv"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoLake:
    return write_demo_lake(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def lake(demo: DemoLake) -> dict[str, Columns]:
    return {name: read(demo.folder / name, name) for name in demo.tables}


@pytest.fixture(scope="module")
def orders(demo: DemoLake) -> Columns:
    return read(demo.query)


def read(path: Path, name: str = "") -> Columns:
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return {
            column: [str(cell) for cell in table[column].to_pylist()]
            for column in table.column_names
        }
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return {key: [str(row.get(key, "")) for row in rows] for key in rows[0]}
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("latin-1" if name == LATIN_1 else "utf-8-sig")
    delimiter = "\t" if path.suffix == ".tsv" else ";" if name == LATIN_1 else ","
    grid = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    header, *body = grid[1:] if name == PREAMBLE else grid
    assert {len(row) for row in body} <= {len(header)}
    return {column: [row[place] for row in body] for place, column in enumerate(header)}


def values(cells: list[str]) -> set[str]:
    return {cell.strip().lower() for cell in cells} - {""}


def share(query: list[str], target: list[str]) -> float:
    return len(values(query) & values(target)) / len(values(query))


def ranking(lake: dict[str, Columns], query: list[str]) -> list[tuple[float, str]]:
    found = [
        (share(query, cells), f"{table}:{column}")
        for table, columns in lake.items()
        for column, cells in columns.items()
    ]
    return sorted((hit for hit in found if hit[0] > 0), reverse=True)


def files_under(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_written(demo: DemoLake) -> None:
    assert demo.query == demo.folder.parent / "orders.csv"
    assert demo.query_column == "customer_country"
    assert 42 <= len(demo.tables) <= 50
    assert {*demo.tables} == {*files_under(demo.folder)}
    assert len({*demo.tables}) == len(demo.tables)


def test_formats(demo: DemoLake) -> None:
    endings = Counter("".join(Path(name).suffixes) for name in demo.tables)
    assert endings == {".csv": 39, ".tsv": 5, ".csv.gz": 1, ".parquet": 3, ".jsonl": 1}


def test_size(demo: DemoLake, lake: dict[str, Columns]) -> None:
    assert sum(map(len, files_under(demo.folder.parent).values())) < 400_000
    rows = {name: len(next(iter(columns.values()))) for name, columns in lake.items()}
    assert rows.pop(EMPTY) == 0
    assert all(10 <= count <= 300 for count in rows.values()), rows


def test_same_bytes_every_time(tmp_path: Path, demo: DemoLake) -> None:
    again = write_demo_lake(tmp_path / "new" / "place")
    assert files_under(again.folder.parent) == files_under(demo.folder.parent)
    assert again.tables == demo.tables


def test_only_its_own_files_are_written_over(tmp_path: Path) -> None:
    first = write_demo_lake(tmp_path)
    before = first.query.read_bytes()
    first.query.write_text("spoilt")
    mine = first.folder / "geo" / "mine.csv"
    mine.write_text("a\n1\n")
    write_demo_lake(tmp_path)
    assert first.query.read_bytes() == before
    assert mine.read_text() == "a\n1\n"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    with pytest.raises(
        DeepJoinError, match=r"Cannot write the demo to .*taken: .* Choose a folder"
    ):
        write_demo_lake(path)
    assert path.is_file()


def test_orders(orders: Columns) -> None:
    assert list(orders) == [
        *("order_id", "date", "customer_country", "customer", "product_sku", "amount")
    ]
    assert orders["order_id"] == [str(number) for number in range(1001, 1121)]
    assert orders["date"] == sorted(orders["date"])
    typed = set(orders["customer_country"])
    assert {" germany", "FRANCE", "  Spain", "Italy ", "Argentinia", "Argentina"} <= typed


def test_best_tables_for_the_country(lake: dict[str, Columns], orders: Columns) -> None:
    hits = ranking(lake, orders["customer_country"])
    assert hits[0] == (40 / 42, "geo/countries.csv:country")
    assert hits[1] == (37 / 42, "geo/cities.csv:country")
    assert sum(0.4 <= score <= 0.9 for score, _ in hits) >= 10
    missed = values(orders["customer_country"]) - values(lake["geo/countries.csv"]["country"])
    assert missed == {"argentinia", "ivory coast"}


@pytest.mark.parametrize(
    ("column", "target", "low", "high"),
    [
        ("customer_country", "reference/public_holidays_2024.csv:country", 0.8, 0.9),
        ("customer_country", "geo/borders.csv:cntry_name", 0.7, 0.9),
        ("customer_country", "sales/territories.csv:territory", 0.5, 0.8),
        ("customer_country", "geo/capitals.tsv:nation", 0.5, 0.8),
        ("customer_country", "logistics/versandkosten.csv:Land", 0.4, 0.7),
        ("customer_country", "finance/companies.csv:headquarters", 0.2, 0.5),
        ("customer_country", "travel/destinations.csv:nation", 0.1, 0.5),
        ("customer_country", "geo/laender.csv:Land", 0.05, 0.2),
        ("product_sku", "sales/products.csv:sku", 1, 1),
        ("product_sku", "logistics/stock.csv:article", 0.6, 0.95),
        ("customer", "sales/customers.csv:customer", 0.6, 0.9),
        ("customer", "sales/crm_export.csv:Client", 0, 0),
        ("order_id", "sales/order_lines.csv:order_no", 1, 1),
        ("order_id", "sales/payments.csv:order", 0, 0),
        ("date", "reference/calendar_2024_h1.csv:day", 1, 1),
    ],
)
def test_overlaps(
    lake: dict[str, Columns], orders: Columns, column: str, target: str, low: float, high: float
) -> None:
    table, name = target.rsplit(":", 1)
    assert low <= share(orders[column], lake[table][name]) <= high


@pytest.mark.parametrize(
    ("column", "target"),
    [
        ("order_id", "sales/payments.csv:order"),
        ("order_id", "sales/invoices.parquet:order_ref"),
        ("date", "sales/payments.csv:paid_on"),
        ("date", "reference/public_holidays_2024.csv:date"),
    ],
)
def test_other_spellings_of_numbers_and_dates(
    lake: dict[str, Columns], orders: Columns, column: str, target: str
) -> None:
    table, name = target.rsplit(":", 1)
    cells = lake[table][name]
    meant = {canonical(cell) for cell in orders[column]} & {canonical(cell) for cell in cells}
    assert len(meant) >= 10
    assert share(orders[column], cells) == 0


def test_most_clients_of_the_crm_are_customers_without_legal_form(
    lake: dict[str, Columns], orders: Columns
) -> None:
    bare = [without_legal_form(customer) for customer in orders["customer"]]
    assert share(bare, lake["sales/crm_export.csv"]["Client"]) > 0.95


@pytest.mark.parametrize(
    "target",
    [
        *(
            "geo/cities.csv:country",
            "geo/borders.csv:cntry_name",
            "geo/languages_spoken.csv:territory",
        ),
        *("sales/order_lines.csv:article_no", "sales/order_lines.csv:order_no"),
        *(
            "logistics/stock.csv:article",
            "sales/store_targets.tsv:shop",
            "films/films.csv:director",
        ),
    ],
)
def test_one_to_many(lake: dict[str, Columns], target: str) -> None:
    table, name = target.rsplit(":", 1)
    assert Counter(lake[table][name]).most_common(1)[0][1] > 1


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ("geo/laender.csv:Kürzel", "geo/countries.csv:iso2", 1, 1),
        ("web/visits.jsonl:country_code", "reference/iso_codes.csv:ISO-2", 1, 1),
        ("sales/suppliers.csv:delivers_from", "geo/countries.csv:iso3", 1, 1),
        ("geo/countries.csv:currency", "reference/currencies.csv:code", 1, 1),
        ("finance/budget_rates_2024.csv:ccy", "reference/currencies.csv:code", 1, 1),
        ("geo/languages_spoken.csv:language", "reference/languages.csv:language", 1, 1),
        ("travel/flights.csv.gz:from_iata", "travel/airports.csv:iata", 1, 1),
        ("travel/city_breaks.tsv:TOWN", "geo/cities.csv:city", 1, 1),
        ("sales/store_targets.tsv:shop", "sales/stores.csv:store_no", 1, 1),
        ("sensors/readings.parquet:sensor_id", "sensors/sensors.csv:sensor", 1, 1),
        ("finance/simulated_prices.parquet:symbol", "finance/companies.csv:ticker", 1, 1),
        ("support/tickets.csv:client_name", "sales/customers.csv:customer", 0.5, 0.95),
        ("films/films.csv:director", "films/directors.csv:name", 0.8, 0.99),
        ("films/screenings.csv:film", "films/films.csv:title", 0.6, 0.95),
        ("films/club_ratings.tsv:movie", "films/films.csv:title", 0.5, 0.9),
        ("finance/approved_vendors.csv:firm", "finance/companies.csv:company", 0, 0),
        ("hr/phone_list.csv:name", "hr/employees.csv:full_name", 0, 0),
        ("hr/training.csv:participant", "hr/employees.csv:full_name", 0, 0),
        ("hr/alumni.csv:full_name", "hr/employees.csv:full_name", 0, 0),
        ("reference/first_names.csv:name", "geo/cities.csv:city", 0.1, 0.3),
    ],
)
def test_keys_within_the_lake(
    lake: dict[str, Columns], one: str, other: str, low: float, high: float
) -> None:
    (table, name), (far_table, far_name) = one.rsplit(":", 1), other.rsplit(":", 1)
    assert low <= share(lake[table][name], lake[far_table][far_name]) <= high


@pytest.mark.parametrize(
    ("target", "cells"),
    [
        ("sales/stores.csv:store_no", {"007"}),
        ("finance/companies.csv:ticker", {"", "005930"}),
        ("geo/countries.csv:iso2", {"NA"}),
        ("reference/calling_codes.tsv:COUNTRY", {"USA", "UK", "CZECH REP.", "COTE D'IVOIRE"}),
        ("reference/iso_codes.csv:official_name", {"United States of America", "Czech Republic"}),
        ("travel/destinations.csv:nation", {"U.S.A.", "Great Britain", "Ivory Coast", "Holland"}),
        ("sales/crm_export.csv:Country", {"Argentinia", "Swizerland"}),
        ("hr/employees.csv:full_name", {"William Smith"}),
        ("hr/phone_list.csv:name", {"Smith, William"}),
        ("hr/training.csv:participant", {"Wm. Smith"}),
        ("finance/companies.csv:company", {"Siemens AG", "Robert Bosch GmbH", "Apple Inc."}),
        ("films/club_ratings.tsv:movie", {"Godfather, The"}),
        ("reference/first_names.csv:name", {"Charlotte", "Florence", "Sydney"}),
        ("travel/city_breaks.tsv:TOWN", {"CHARLOTTE", "SYDNEY"}),
        ("logistics/versandkosten.csv:Land", {"Côte d'Ivoire"}),
    ],
)
def test_telling_cells(lake: dict[str, Columns], target: str, cells: set[str]) -> None:
    table, name = target.rsplit(":", 1)
    assert cells <= {cell.rstrip() for cell in lake[table][name]}


def test_awkward_files(demo: DemoLake, lake: dict[str, Columns]) -> None:
    assert (demo.folder / PREAMBLE).read_bytes().startswith(b"CRM export of 30 June 2024")
    assert b"\r\n" in (demo.folder / PREAMBLE).read_bytes()
    assert (demo.folder / "hr/phone_list.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with pytest.raises(UnicodeDecodeError):
        (demo.folder / LATIN_1).read_text("utf-8")
    comments = lake["support/tickets.csv"]["comment"]
    assert sum(map(len, comments)) / len(comments) > 128
    assert any("\n" in comment for comment in comments)


def test_decoys(lake: dict[str, Columns]) -> None:
    assert lake["reference/first_names.csv"]["rank"][:3] == ["1", "2", "3"]
    assert set(lake["reference/calendar_2024_h1.csv"]["is_weekend"]) == {"0", "1"}
    assert set(lake["travel/destinations.csv"]["rating"]) <= {"1", "2", "3", "4", "5"}
    staff = {name.split()[-1] for name in lake["hr/employees.csv"]["full_name"]}
    assert len(staff & {name.split()[-1] for name in lake["hr/alumni.csv"]["full_name"]}) > 10


@pytest.mark.parametrize("field", ["country", "iso2", "iso3", "capital"])
def test_a_country_is_known_by_each_of_its_keys(lake: dict[str, Columns], field: str) -> None:
    keys = lake["geo/countries.csv"][field]
    assert len(set(keys)) == len(keys) >= 80
    assert len(set(lake["reference/iso_codes.csv"]["official_name"])) == len(keys)


@pytest.mark.parametrize(
    "target",
    [
        *("geo/cities.csv:country", "geo/peaks.csv:country", "travel/airports.csv:cntry_name"),
        *("geo/borders.csv:cntry_name", "geo/borders.csv:neighbour"),
        *("geo/languages_spoken.csv:territory", "reference/public_holidays_2024.csv:country"),
        *("films/directors.csv:born_in", "finance/companies.csv:headquarters"),
    ],
)
def test_every_country_is_in_the_table_of_countries(lake: dict[str, Columns], target: str) -> None:
    table, name = target.rsplit(":", 1)
    assert set(lake[table][name]) <= set(lake["geo/countries.csv"]["country"])


@pytest.mark.parametrize(
    ("table", "at_least"),
    [
        ("geo/cities.csv", 120),
        ("travel/airports.csv", 60),
        ("geo/peaks.csv", 25),
        ("finance/companies.csv", 60),
        ("films/films.csv", 60),
        ("films/directors.csv", 30),
        ("reference/currencies.csv", 50),
        ("reference/languages.csv", 45),
    ],
)
def test_facts_are_complete(lake: dict[str, Columns], table: str, at_least: int) -> None:
    keys = next(iter(lake[table].values()))
    assert len(set(keys)) == len(keys) >= at_least


def test_books_borders_and_cities_hang_together(lake: dict[str, Columns]) -> None:
    titles = lake["library/books.csv"]["title"]
    assert len(set(titles)) == len(titles) >= 40
    one, other = lake["geo/borders.csv"].values()
    pairs = [*zip(one, other, strict=True)]
    assert len(set(pairs)) == len(pairs)
    assert {(b, a) for a, b in pairs} == set(pairs)
    cities = set(lake["geo/cities.csv"]["city"])
    assert {"Charlotte", "Florence", "Sydney"} <= cities
    assert set(lake["travel/airports.csv"]["city"]) - cities == {"Auckland"}
