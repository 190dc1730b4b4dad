"""The invented business of the demo: its orders, to be enriched, and its departments' tables."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from deepjoin.demo.facts import (
    BORDERS,
    BUDGET_RATES,
    BY_ISO2,
    BY_NAME,
    CITIES,
    COMPANIES,
    COUNTRIES,
    FIRST_NAMES,
    LEGAL_FORMS,
    MARKETS,
    OTHER_NAMES,
    PRODUCTS,
    SURNAMES,
    TYPOS,
    abbreviated,
    long_date,
    padded,
    people,
    surname_first,
    without_legal_form,
)
from deepjoin.demo.sheets import Sheet

QUERY_COLUMN = "customer_country"

#: Spelling in the second order from a country: people type carelessly now and then.
_SECOND_TIME = {
    "Germany": " germany",
    "France": "FRANCE",
    "United States": "united states",
    "Italy": "Italy ",
    "Spain": "  Spain",
    "Japan": "JAPAN",
    "Argentina": "Argentinia",
}
#: Countries of customers who have not ordered yet.
_NEW_MARKETS = (
    *("Germany", "Austria", "Slovenia", "Croatia", "Estonia", "Ireland", "Norway", "Chile"),
)
_PROSPECTS = 29
_HEADS = (
    *("Alderbrook", "Brightwell", "Cobaltine", "Dunmarsh", "Elmridge", "Fenwold", "Granitor"),
    *("Harrowgate", "Ironvale", "Juniperra", "Kestrelby", "Larkholm", "Mirador", "Nordhagen"),
    *("Oakhampton", "Pinemoor", "Quillstone", "Redfernley", "Silverthorn", "Tamarisk"),
)
_TRADES = ("Optics", "Interiors", "Foods", "Textiles", "Instruments", "Papers", "Lighting")
_COLOURS = (("BLK", "black"), ("WHT", "white"), ("RED", "red"), ("OAK", "oak"), ("BLU", "blue"))
#: Destinations of the warehouse outside Europe.
_FAR = ("Côte d'Ivoire", "Egypt", "Morocco", "Turkey", "United Arab Emirates")
_COMPLAINTS = (
    "The parcel arrived two weeks late and nobody answered the phone",
    "The colour of the article is not the one shown on the web page",
    "One of the boxes was open, the packing torn, and a part was missing",
    'The invoice shows the old address although we sent "the new one" in March',
    "We were charged twice for the same delivery and would like the money back",
)
_REPLIES = (
    "we called the carrier, who promised a new delivery before the end of the week.",
    "the customer accepts a discount of ten per cent and keeps the goods.",
    "waiting for a photograph of the damage before anything else is done.",
    "the warehouse sends a replacement; the old one need not come back.",
)


class Customer(NamedTuple):
    """A customer of the invented business."""

    number: int
    name: str
    country: str


class Product(NamedTuple):
    """A product of the invented business."""

    sku: str
    name: str
    category: str
    price: float


class Order(NamedTuple):
    """An order: a row of the query table."""

    number: int
    day: datetime.date
    country: str
    customer: str
    sku: str
    amount: float


@cache
def customers() -> tuple[Customer, ...]:
    """Name the customers with orders, by market, then those without."""
    rng = random.Random("customers")
    names = [f"{head} {trade}" for head in _HEADS for trade in _TRADES]
    rng.shuffle(names)
    markets = [country for country, count in MARKETS for _ in range(int(count))]
    found = []
    for place, country in enumerate(markets + rng.choices(_NEW_MARKETS, k=_PROSPECTS)):
        legal_form = LEGAL_FORMS.get(BY_NAME[country].iso2, " Ltd")
        found.append(Customer(5001 + place, names[place] + legal_form, country))
    return tuple(found)


@cache
def products() -> tuple[Product, ...]:
    """List every product in every colour."""
    found = []
    for line, (letters, name, category, price) in enumerate(PRODUCTS):
        for shade, (code, colour) in enumerate(_COLOURS):
            sku = f"{letters}-{1000 + 10 * line}-{code}"
            cost = round(float(price) * (1 + shade / 20), 2)
            found.append(Product(sku, f"{name}, {colour}", category, cost))
    return tuple(found)


@cache
def orders() -> tuple[Order, ...]:
    """Draw 120 orders of early 2024 in which every buyer appears at least once."""
    rng = random.Random("orders")
    buyers = list(customers()[:-_PROSPECTS])
    buyers += rng.choices(buyers[:36], k=120 - len(buyers))
    rng.shuffle(buyers)
    first_day = datetime.date(2024, 1, 2)
    days = sorted(first_day + datetime.timedelta(rng.randrange(175)) for _ in buyers)
    typos, seen = {**_SECOND_TIME}, set[str]()
    found = []
    for place, (buyer, day) in enumerate(zip(buyers, days, strict=True)):
        country = buyer.country
        typed = typos.pop(country, country) if country in seen else country
        seen.add(country)
        typed = "Ivory Coast" if typed == "Côte d'Ivoire" else typed
        product = rng.choice(products())
        amount = round(product.price * rng.randint(1, 12), 2)
        found.append(Order(1001 + place, day, typed, buyer.name, product.sku, amount))
    return tuple(found)


def query_sheet() -> Sheet:
    """Give the query table."""
    rows = [(*order[:5], f"{order.amount:.2f}") for order in orders()]
    header = ("order_id", "date", QUERY_COLUMN, "customer", "product_sku", "amount")
    return Sheet("orders.csv", header, rows)


def sales_sheets() -> Iterator[Sheet]:
    """Give the tables of the sales department."""
    yield from _customer_sheets()
    yield from _order_sheets()
    yield from _shop_sheets()


def _customer_sheets() -> Iterator[Sheet]:
    # Every fourth customer is missing: the table is older than they are.
    rng = random.Random("customer table")
    rows = [
        (c.number, c.name, c.country, BY_NAME[c.country].capital, rng.randrange(2009, 2024))
        for c in customers()
        if c.number % 4
    ]
    header = ("customer_no", "customer", "country", "city", "since")
    yield Sheet("sales/customers.csv", header, rows)

    # Names as sales people typed them, below a line that the exporting system wrote.
    clients = padded([without_legal_form(customer.name).upper() for customer in customers()])
    exported = []
    for client, customer in zip(clients, customers(), strict=True):
        country = OTHER_NAMES.get(customer.country, ("", customer.country))[1]
        if customer.number % 2:
            country = TYPOS.get(customer.country, country)
        exported.append((client, country, "yes" if customer.number % 3 else "no"))
    yield Sheet(
        "sales/crm_export.csv",
        ("Client", "Country", "Newsletter"),
        exported,
        newline="\r\n",
        preamble="CRM export of 30 June 2024 - confidential",
    )


def _order_sheets() -> Iterator[Sheet]:
    product_rows = [(*product[:3], f"{product.price:.2f}") for product in products()]
    yield Sheet("sales/products.csv", ("sku", "product", "category", "price"), product_rows)

    rng = random.Random("order lines")
    lines = []
    for order in orders():
        others = rng.sample([product.sku for product in products()], rng.randint(0, 2))
        for line, sku in enumerate((order.sku, *others), 1):
            lines.append((order.number, line, sku, rng.randint(1, 12)))
    yield Sheet("sales/order_lines.csv", ("order_no", "line", "article_no", "quantity"), lines)

    # Order numbers get the '.0' that spreadsheets add to columns with gaps.
    rng = random.Random("payments")
    payments = []
    for order in rng.sample(orders(), 104):
        paid = order.day + datetime.timedelta(rng.randrange(3, 40))
        method = rng.choice(("card", "transfer", "direct debit"))
        payments.append((f"P{order.number * 7:06d}", f"{order.number}.0", long_date(paid), method))
    yield Sheet("sales/payments.csv", ("payment", "order", "paid_on", "method"), payments)

    invoices = [
        (f"INV-{place:05d}", float(order.number), order.day, order.amount, order.number % 9 != 0)
        for place, order in enumerate(orders()[:90], 1)
    ]
    header = ("invoice", "order_ref", "issued", "net_amount", "is_paid")
    yield Sheet("sales/invoices.parquet", header, invoices)


def _shop_sheets() -> Iterator[Sheet]:
    rng = random.Random("stores")
    towns = rng.sample([city for city, *_ in CITIES], 36)
    stores = []
    for place, (town, manager) in enumerate(zip(towns, people()[100:], strict=False), 1):
        opened = datetime.date(rng.randrange(1998, 2023), rng.randint(1, 12), rng.randint(1, 28))
        stores.append((f"{place:03d}", town, manager, opened))
    yield Sheet("sales/stores.csv", ("store_no", "town", "manager", "opened"), stores)

    rng = random.Random("store targets")
    targets = [
        (f"{place:03d}", year, rng.randrange(200, 900) * 1000)
        for place in range(1, 31)
        for year in (2023, 2024)
    ]
    yield Sheet("sales/store_targets.tsv", ("shop", "year", "target_eur"), targets)

    rng = random.Random("territories")
    chosen = sorted(rng.sample(sorted({customer.country for customer in customers()}), 30))
    territories = [
        (country, person, rng.randrange(10, 90) * 10_000)
        for country, person in zip(chosen, rng.choices(people()[:12], k=30), strict=True)
    ]
    yield Sheet("sales/territories.csv", ("territory", "sales_rep", "quota_eur"), territories)

    rng = random.Random("suppliers")
    suppliers = []
    for place, (company, _, _, iso2, industry) in enumerate(rng.sample(COMPANIES, 25), 1):
        suppliers.append((f"S{place:03d}", company, industry, BY_ISO2[iso2].iso3))
    for place, customer in enumerate(customers()[-14:], 26):
        iso3 = BY_NAME[customer.country].iso3
        suppliers.append((f"S{place:03d}", customer.name, "Wholesale", iso3))
    header = ("supplier_id", "supplier", "trade", "delivers_from")
    yield Sheet("sales/suppliers.csv", header, suppliers)


def logistics_sheets() -> Iterator[Sheet]:
    """Give the tables of the warehouse."""
    # The price list of a German office: semicolons, decimal commas, Latin-1.
    near = {iso2 for pair in BORDERS if "DE" in pair for iso2 in pair}
    prices = []
    for country in COUNTRIES:
        if country.continent == "Europe" or country.name in _FAR:
            zone = 3 if country.name in _FAR else 1 if country.iso2 in near else 2
            fee = f"{4.9 * zone + len(country.name) / 10:.2f}".replace(".", ",")
            prices.append((country.name, zone, 2 * zone, fee))
    header = ("Land", "Zone", "Laufzeit (Tage)", "Gebühr (EUR)")
    yield Sheet("logistics/versandkosten.csv", header, prices, delimiter=";", encoding="latin-1")

    rng = random.Random("stock")
    stock = [
        (product.sku.lower(), warehouse, rng.randrange(0, 400))
        for product in products()[:48]
        for warehouse in ("North", "South")
    ]
    yield Sheet("logistics/stock.csv", ("article", "warehouse", "on_hand"), stock)


def finance_sheets() -> Iterator[Sheet]:
    """Give the tables of the finance department."""
    companies = [
        (company, ticker, BY_ISO2[iso2].name, industry)
        for company, _, ticker, iso2, industry in COMPANIES
    ]
    header = ("company", "ticker", "headquarters", "industry")
    yield Sheet("finance/companies.csv", header, companies)

    rng = random.Random("vendors")
    firms = sorted(everyday for _, everyday, *_ in COMPANIES if rng.random() < 0.75)
    vendors = [
        (firm, 70_000 + 10 * place, datetime.date(2024, rng.randint(1, 6), 15))
        for place, firm in enumerate(firms, 1)
    ]
    yield Sheet("finance/approved_vendors.csv", ("firm", "vendor_no", "reviewed"), vendors)

    # Random walks from 100: prices of a game, not of the market.
    rng = random.Random("prices")
    walks: list[tuple[str, datetime.date, float]] = []
    for _, _, ticker, iso2, _ in COMPANIES:
        if iso2 in ("US", "DE") and ticker:
            price = 100.0
            for day in range(8, 16):
                price = round(price * rng.uniform(0.97, 1.03), 2)
                walks.append((ticker, datetime.date(2024, 1, day), price))
    yield Sheet("finance/simulated_prices.parquet", ("symbol", "day", "game_price"), walks[:288])

    yield Sheet("finance/budget_rates_2024.csv", ("ccy", "per_eur"), BUDGET_RATES)


def hr_sheets() -> Iterator[Sheet]:
    """Give the tables of the personnel office, which spell a person in three ways."""
    staff = people()[:80]
    rng = random.Random("employees")
    departments = ("Sales", "Finance", "Warehouse", "Support", "Design")
    offices = ("Berlin", "Paris", "London", "Sydney", "Charlotte", "Florence")
    employees = []
    for number, person in enumerate(staff, 1):
        started = datetime.date(rng.randrange(2005, 2024), rng.randint(1, 12), 1)
        row = (f"{number:04d}", person, rng.choice(departments), rng.choice(offices), started)
        employees.append(row)
    header = ("staff_no", "full_name", "department", "office", "started")
    yield Sheet("hr/employees.csv", header, employees)

    phones = sorted((surname_first(person), 200 + place) for place, person in enumerate(staff[:70]))
    yield Sheet("hr/phone_list.csv", ("name", "extension"), phones, encoding="utf-8-sig")

    rng = random.Random("training")
    courses = ("First aid", "Fire safety", "Data protection", "Negotiation", "Spreadsheets")
    training = []
    for person in (*staff[:5], *rng.choices(staff[5:], k=55)):
        day = datetime.date(2024, rng.randint(1, 6), rng.randint(1, 28))
        training.append(
            (abbreviated(person), rng.choice(courses), long_date(day), rng.choice(("yes", "no")))
        )
    yield Sheet("hr/training.csv", ("participant", "course", "held_on", "passed"), training)

    # Other people than the staff, with the same surnames.
    rng = random.Random("alumni")
    pairs = [f"{first} {last}" for last in SURNAMES for first in FIRST_NAMES]
    strangers = rng.sample([person for person in pairs if person not in set(staff)], 60)
    alumni = [(person, rng.randrange(1999, 2020)) for person in strangers]
    yield Sheet("hr/alumni.csv", ("full_name", "left_in"), alumni)


def support_sheets() -> Iterator[Sheet]:
    """Give the tables of the help desk, one of them without rows."""
    # Comments are too long to be keys and have the commas and quotes of real ones.
    rng = random.Random("tickets")
    tickets = []
    for place in range(1, 71):
        client = rng.choice(customers()).name
        sku = rng.choice(products()).sku
        complaint, reply = rng.choice(_COMPLAINTS), rng.choice(_REPLIES)
        comment = f"{complaint} ({sku}).\nAnswer of the help desk: {reply}"
        opened = datetime.date(2024, 1, 1) + datetime.timedelta(place * 2)
        tickets.append((f"T-{place:04d}", opened, client, rng.randint(1, 5), comment))
    header = ("ticket", "opened", "client_name", "priority", "comment")
    yield Sheet("support/tickets.csv", header, tickets)
    yield Sheet("support/escalations.csv", ("escalation", "ticket", "raised_by", "raised_on"), [])
