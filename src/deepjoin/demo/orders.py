"""The invented business behind the demo: customers, products and the orders to be enriched."""

from __future__ import annotations

import datetime
import random
from functools import cache
from typing import NamedTuple

from deepjoin.demo.countries import BY_NAME
from deepjoin.demo.sheets import Sheet, records

QUERY_COLUMN = "customer_country"

#: Countries of the customers and how many customers each has.
_MARKETS = records("""
3|Germany, France, United Kingdom, United States
2|Italy, Spain, Netherlands, Switzerland, Sweden, Poland, Canada, Brazil, Japan, Australia, India
2|Argentina
1|Belgium, Austria, Norway, Denmark, Finland, Czechia, Hungary, Portugal, Greece, Ireland, Turkey
1|Mexico, Chile, Colombia, South Korea, China, Singapore, New Zealand, South Africa, Egypt
1|Kenya, Morocco, United Arab Emirates, Namibia, Côte d'Ivoire
""")
#: What was typed in the second order from a country.
_SECOND_TIME = {
    "Germany": " germany",
    "France": "FRANCE",
    "United States": "united states",
    "Italy": "Italy ",
    "Spain": "  Spain",
    "Japan": "JAPAN",
    "Argentina": "Argentinia",
}
_NEW_MARKETS = (
    "Germany",
    "Austria",
    "Slovenia",
    "Croatia",
    "Estonia",
    "Ireland",
    "Norway",
    "Chile",
)
_PROSPECTS = 29
_FIRST_DAY = datetime.date(2024, 1, 2)
_LEGAL_FORMS = {
    **{"US": ", Inc.", "CA": ", Inc.", "DE": " GmbH", "AT": " GmbH", "CH": " AG", "FR": " SARL"},
    **{"IT": " S.r.l.", "ES": " S.L.", "NL": " B.V.", "BE": " B.V.", "SE": " AB", "NO": " AS"},
    **{"DK": " A/S", "FI": " Oy", "PL": " Sp. z o.o.", "CZ": " s.r.o.", "HU": " Kft."},
    **{"PT": " Lda", "BR": " Ltda", "JP": " K.K.", "CN": " Co., Ltd.", "KR": " Co., Ltd."},
    **{"TR": " A.Ş.", "MX": " S.A. de C.V.", "AU": " Pty Ltd", "AR": " S.A.", "CL": " S.A."},
    **{"CO": " S.A.", "GR": " S.A.", "MA": " S.A.", "CI": " S.A."},
}
_HEADS = (
    *("Alderbrook", "Brightwell", "Cobaltine", "Dunmarsh", "Elmridge", "Fenwold", "Granitor"),
    *("Harrowgate", "Ironvale", "Juniperra", "Kestrelby", "Larkholm", "Mirador", "Nordhagen"),
    *("Oakhampton", "Pinemoor", "Quillstone", "Redfernley", "Silverthorn", "Tamarisk"),
)
_TRADES = ("Optics", "Interiors", "Foods", "Textiles", "Instruments", "Papers", "Lighting")
#: Three letters, product, category, price of the plain one.
_PRODUCTS = records("""
LMP|Desk lamp|Lighting|39.90
FLR|Floor lamp|Lighting|119.00
CHR|Office chair|Furniture|249.00
DSK|Standing desk|Furniture|489.00
SHL|Wall shelf|Furniture|59.50
NTB|Notebook|Stationery|4.20
PEN|Fountain pen|Stationery|24.00
BND|Ring binder|Stationery|3.10
MUG|Coffee mug|Kitchen|8.90
KTL|Kettle|Kitchen|44.00
BAG|Messenger bag|Accessories|79.00
CLK|Wall clock|Accessories|32.50
""")
_COLOURS = records("BLK|black\nWHT|white\nRED|red\nOAK|oak\nBLU|blue")


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
    """Name those who ordered, by market, and then those who have not ordered yet."""
    rng = random.Random("customers")
    names = [f"{head} {trade}" for head in _HEADS for trade in _TRADES]
    rng.shuffle(names)
    markets = [
        country
        for count, countries in _MARKETS
        for country in countries.split(", ")
        for _ in range(int(count))
    ]
    prospects = rng.choices(_NEW_MARKETS, k=_PROSPECTS)
    return tuple(
        Customer(5001 + place, names[place] + _legal_form(country), country)
        for place, country in enumerate(markets + prospects)
    )


def _legal_form(country: str) -> str:
    return _LEGAL_FORMS.get(BY_NAME[country].iso2, " Ltd")


@cache
def products() -> tuple[Product, ...]:
    """List every product in every colour."""
    found = []
    for line, (letters, name, category, price) in enumerate(_PRODUCTS):
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
    days = sorted(_FIRST_DAY + datetime.timedelta(rng.randrange(175)) for _ in buyers)
    countries = _as_typed([buyer.country for buyer in buyers])
    found = []
    for place, (buyer, day, country) in enumerate(zip(buyers, days, countries, strict=True)):
        product = rng.choice(products())
        amount = round(product.price * rng.randint(1, 12), 2)
        found.append(Order(1001 + place, day, country, buyer.name, product.sku, amount))
    return tuple(found)


def _as_typed(countries: list[str]) -> list[str]:
    """Write each country as buyers do: mostly well, now and then carelessly."""
    slips = dict(_SECOND_TIME)
    seen: set[str] = set()
    typed = []
    for country in countries:
        typed.append(slips.pop(country, country) if country in seen else country)
        seen.add(country)
    return ["Ivory Coast" if country == "Côte d'Ivoire" else country for country in typed]


def query_sheet() -> Sheet:
    """Give the query table."""
    rows = [(*order[:5], f"{order.amount:.2f}") for order in orders()]
    header = ("order_id", "date", QUERY_COLUMN, "customer", "product_sku", "amount")
    return Sheet("orders.csv", header, rows)
