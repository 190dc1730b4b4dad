"""Tables of the invented business: the sales, logistics and finance folders."""

from __future__ import annotations

import datetime
import itertools
import random

from deepjoin.demo.countries import BY_ISO2, BY_NAME, COUNTRIES, OTHER_NAMES, TYPOS, Country
from deepjoin.demo.names import people
from deepjoin.demo.orders import Customer, customers, orders, products
from deepjoin.demo.places import BORDERS, CITIES
from deepjoin.demo.sheets import Sheet
from deepjoin.demo.spellings import long_date, padded, without_legal_form
from deepjoin.demo.standards import BUDGET_RATES
from deepjoin.demo.works import COMPANIES

#: Where the warehouse delivers outside Europe.
_FAR = ("Côte d'Ivoire", "Egypt", "Morocco", "Turkey", "United Arab Emirates")


def sales_sheets() -> list[Sheet]:
    """Give the tables of the sales department."""
    product_rows = [(*product[:3], f"{product.price:.2f}") for product in products()]
    return [
        _customers(),
        _crm_export(),
        Sheet("sales/products.csv", ("sku", "product", "category", "price"), product_rows),
        _order_lines(),
        _payments(),
        _invoices(),
        _stores(),
        _store_targets(),
        _territories(),
        _suppliers(),
    ]


def _customers() -> Sheet:
    """Leave out every fourth customer: they came after the table was made."""
    rng = random.Random("customer table")
    rows = [
        (c.number, c.name, c.country, BY_NAME[c.country].capital, rng.randrange(2009, 2024))
        for c in customers()
        if c.number % 4
    ]
    return Sheet(
        "sales/customers.csv", ("customer_no", "customer", "country", "city", "since"), rows
    )


def _crm_export() -> Sheet:
    """Write names as the sales people typed them, under a line of their system's own."""
    rows = [
        (padded_name, _typed_country(customer), "yes" if customer.number % 3 else "no")
        for padded_name, customer in zip(_crm_names(), customers(), strict=True)
    ]
    header = ("Client", "Country", "Newsletter")
    preamble = "CRM export of 30 June 2024 - confidential"
    return Sheet("sales/crm_export.csv", header, rows, newline="\r\n", preamble=preamble)


def _crm_names() -> list[str]:
    return padded([without_legal_form(customer.name).upper() for customer in customers()])


def _typed_country(customer: Customer) -> str:
    country = customer.country
    if country in TYPOS and customer.number % 2:
        return TYPOS[country]
    return OTHER_NAMES.get(country, ("", country))[1]


def _order_lines() -> Sheet:
    rng = random.Random("order lines")
    rows = []
    for order in orders():
        others = rng.sample([product.sku for product in products()], rng.randint(0, 2))
        for line, sku in enumerate((order.sku, *others), 1):
            rows.append((order.number, line, sku, rng.randint(1, 12)))
    return Sheet("sales/order_lines.csv", ("order_no", "line", "article_no", "quantity"), rows)


def _payments() -> Sheet:
    """Give order numbers the '.0' that spreadsheets add to columns with gaps."""
    rng = random.Random("payments")
    rows = []
    for order in rng.sample(orders(), 104):
        paid = order.day + datetime.timedelta(rng.randrange(3, 40))
        method = rng.choice(("card", "transfer", "direct debit"))
        rows.append((f"P{order.number * 7:06d}", f"{order.number}.0", long_date(paid), method))
    return Sheet("sales/payments.csv", ("payment", "order", "paid_on", "method"), rows)


def _invoices() -> Sheet:
    rows = [
        (f"INV-{place:05d}", float(order.number), order.day, order.amount, order.number % 9 != 0)
        for place, order in enumerate(orders()[:90], 1)
    ]
    header = ("invoice", "order_ref", "issued", "net_amount", "is_paid")
    return Sheet("sales/invoices.parquet", header, rows)


def _stores() -> Sheet:
    rng = random.Random("stores")
    towns = rng.sample([city for city, *_ in CITIES], 36)
    rows = []
    for place, (town, manager) in enumerate(zip(towns, people()[100:], strict=False), 1):
        opened = datetime.date(rng.randrange(1998, 2023), rng.randint(1, 12), rng.randint(1, 28))
        rows.append((f"{place:03d}", town, manager, opened))
    return Sheet("sales/stores.csv", ("store_no", "town", "manager", "opened"), rows)


def _store_targets() -> Sheet:
    rng = random.Random("store targets")
    rows = [
        (f"{place:03d}", year, rng.randrange(200, 900) * 1000)
        for place in range(1, 31)
        for year in (2023, 2024)
    ]
    return Sheet("sales/store_targets.tsv", ("shop", "year", "target_eur"), rows)


def _territories() -> Sheet:
    rng = random.Random("territories")
    markets = sorted({customer.country for customer in customers()})
    chosen = sorted(rng.sample(markets, 30))
    rows = [
        (country, person, rng.randrange(10, 90) * 10_000)
        for country, person in zip(chosen, rng.choices(people()[:12], k=30), strict=True)
    ]
    return Sheet("sales/territories.csv", ("territory", "sales_rep", "quota_eur"), rows)


def _suppliers() -> Sheet:
    rng = random.Random("suppliers")
    rows = []
    for place, (company, _, _, iso2, industry) in enumerate(rng.sample(COMPANIES, 25), 1):
        rows.append((f"S{place:03d}", company, industry, BY_ISO2[iso2].iso3))
    for place, customer in enumerate(customers()[-14:], 26):
        iso3 = BY_NAME[customer.country].iso3
        rows.append((f"S{place:03d}", customer.name, "Wholesale", iso3))
    return Sheet("sales/suppliers.csv", ("supplier_id", "supplier", "trade", "delivers_from"), rows)


def logistics_sheets() -> list[Sheet]:
    """Give the tables of the warehouse."""
    return [_shipping_costs(), _stock()]


def _shipping_costs() -> Sheet:
    """Write a German office's price list: semicolons, decimal commas, Latin-1."""
    rows = []
    for country in COUNTRIES:
        if country.continent == "Europe" or country.name in _FAR:
            zone = _shipping_zone(country)
            fee = f"{4.9 * zone + len(country.name) / 10:.2f}".replace(".", ",")
            rows.append((country.name, zone, 2 * zone, fee))
    header = ("Land", "Zone", "Laufzeit (Tage)", "Gebühr (EUR)")
    return Sheet("logistics/versandkosten.csv", header, rows, delimiter=";", encoding="latin-1")


def _shipping_zone(country: Country) -> int:
    near = {*itertools.chain(*(pair for pair in BORDERS if "DE" in pair))}
    if country.name in _FAR:
        return 3
    return 1 if country.iso2 in near else 2


def _stock() -> Sheet:
    rng = random.Random("stock")
    rows = [
        (product.sku.lower(), warehouse, rng.randrange(0, 400))
        for product in products()[:48]
        for warehouse in ("North", "South")
    ]
    return Sheet("logistics/stock.csv", ("article", "warehouse", "on_hand"), rows)


def finance_sheets() -> list[Sheet]:
    """Give the tables of the finance department."""
    companies = [
        (company, ticker, BY_ISO2[iso2].name, industry)
        for company, _, ticker, iso2, industry in COMPANIES
    ]
    header = ("company", "ticker", "headquarters", "industry")
    return [
        Sheet("finance/companies.csv", header, companies),
        _approved_vendors(),
        _simulated_prices(),
        Sheet("finance/budget_rates_2024.csv", ("ccy", "per_eur"), BUDGET_RATES),
    ]


def _approved_vendors() -> Sheet:
    """Call companies what people call them."""
    rng = random.Random("vendors")
    firms = sorted(everyday for _, everyday, *_ in COMPANIES if rng.random() < 0.75)
    rows = [
        (firm, 70_000 + 10 * place, datetime.date(2024, rng.randint(1, 6), 15))
        for place, firm in enumerate(firms, 1)
    ]
    return Sheet("finance/approved_vendors.csv", ("firm", "vendor_no", "reviewed"), rows)


def _simulated_prices() -> Sheet:
    """Walk at random from 100: prices of a game, not of the market."""
    rng = random.Random("prices")
    rows: list[tuple[str, datetime.date, float]] = []
    for ticker in [
        ticker for _, _, ticker, iso2, _ in COMPANIES if iso2 in ("US", "DE") and ticker
    ]:
        price = 100.0
        for day in range(8, 16):
            price = round(price * rng.uniform(0.97, 1.03), 2)
            rows.append((ticker, datetime.date(2024, 1, day), price))
    return Sheet("finance/simulated_prices.parquet", ("symbol", "day", "game_price"), rows[:288])
