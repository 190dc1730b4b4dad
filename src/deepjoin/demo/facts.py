"""Facts behind the demo, read from `data/*.csv`, and other ways to write them.

Facts about the world are real and rounded; names of people and products are invented.
"""

from __future__ import annotations

import csv
import datetime
import random
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple


def _rows(name: str) -> list[list[str]]:
    """Read the rows of a data file, without its header."""
    text = (files(__package__) / "data" / f"{name}.csv").read_text("utf-8")
    return list(csv.reader(text.splitlines()))[1:]


class Country(NamedTuple):
    """A country by its English short name, with its keys in other tables."""

    name: str
    iso2: str
    iso3: str
    capital: str
    continent: str
    #: Rounded, about 2023.
    millions: str
    currency: str
    calling_code: str
    official_name: str

    @property
    def population(self) -> int:
        """Number of inhabitants, to the precision of ``millions``."""
        return round(float(self.millions) * 1_000_000)


COUNTRIES = tuple(Country(*row) for row in _rows("countries"))
BY_ISO2 = {country.iso2: country for country in COUNTRIES}
BY_NAME = {country.name: country for country in COUNTRIES}
#: ISO-2 code, German name, German name of the capital.
GERMAN_NAMES = _rows("german_names")
#: English short name to its spelling in a travel brochure and in an official register.
OTHER_NAMES = {name: (brochure, register) for name, brochure, register in _rows("other_names")}
#: Country name to a misspelling of it, as found where people type.
TYPOS = dict(_rows("typos"))

#: City, country (ISO-2), latitude, longitude to a tenth of a degree.
CITIES = _rows("cities")
#: IATA code, airport, the city it serves, country (ISO-2).
AIRPORTS = _rows("airports")
#: Mountain, height in metres, one of its countries (ISO-2).
PEAKS = _rows("peaks")
#: Countries that share a land border, each pair once; only countries of the demo.
BORDERS = [(country, neighbour) for country, neighbour in _rows("borders")]

#: ISO 4217 code, name, digits after the decimal point.
CURRENCIES = _rows("currencies")
#: ISO 639-1 code, English name, native name, family.
LANGUAGES = _rows("languages")
#: Country (ISO-2) and a language widely spoken there.
SPOKEN = [(country, language) for country, language in _rows("spoken")]
#: Month and day, country (ISO-2), name; only holidays with a fixed date.
HOLIDAYS = _rows("holidays")
#: Planning rates for one euro, as a treasurer might round them.
BUDGET_RATES = _rows("budget_rates")

#: Company with its legal form, everyday name, share ticker, country (ISO-2), industry.
COMPANIES = _rows("companies")
#: Title, year, director.
FILMS = _rows("films")
#: Director, year of birth, country of birth (ISO-2).
DIRECTORS = _rows("directors")
#: Title, author, year of first publication.
BOOKS = _rows("books")

FIRST_NAMES = [name for name, is_city in _rows("first_names") if is_city == "no"]
#: First names that are also large cities.
CITY_NAMES = [name for name, is_city in _rows("first_names") if is_city == "yes"]
SURNAMES = [name for (name,) in _rows("surnames")]
#: Always employed, so that every demo shows 'Wm. Smith' beside 'William Smith'.
_ALWAYS = ("William Smith", "Charles Jones", "Elizabeth Baker", "Thomas O'Brien", "Nora Müller")

#: Country of customers, how many customers it has.
MARKETS = _rows("markets")
#: Country (ISO-2) to the end of its companies' names.
LEGAL_FORMS = dict(_rows("legal_forms"))
#: Three letters, product, category, base price.
PRODUCTS = _rows("products")
#: Subject, title of a course.
COURSES = _rows("courses")


@cache
def people() -> tuple[str, ...]:
    """Draw 240 different full names, five fixed ones first."""
    pairs = [f"{first} {last}" for first in FIRST_NAMES for last in SURNAMES]
    drawn = random.Random("people").sample([name for name in pairs if name not in _ALWAYS], 235)
    return (*_ALWAYS, *drawn)


# strftime would follow the reader's locale, and the demo must be the same bytes everywhere.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ABBREVIATED = {
    **{"Alexander": "Alex.", "Charles": "Chas.", "Elizabeth": "Eliz.", "Frederick": "Fred."},
    **{"George": "Geo.", "James": "Jas.", "Joseph": "Jos.", "Robert": "Robt."},
    **{"Samuel": "Saml.", "Thomas": "Thos.", "William": "Wm."},
}
_LEGAL_FORM = re.compile(
    r",? (Inc\.|Ltd|Pty Ltd|PLC|GmbH|AG|S\.A\.|SARL|S\.r\.l\.|S\.L\.|B\.V\.|AB|A/S|AS|Oy|Lda"
    r"|Ltda|Sp\. z o\.o\.|s\.r\.o\.|Kft\.|K\.K\.|Co\., Ltd\.|A\.Ş\.|S\.A\. de C\.V\.)$"
)


def long_date(day: datetime.date) -> str:
    """Write a date with the name of its month.

    >>> long_date(datetime.date(2024, 1, 5))
    '5 Jan 2024'
    """
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def without_legal_form(company: str) -> str:
    """Drop the legal form at the end of a company's name.

    >>> without_legal_form("Alder Optics GmbH")
    'Alder Optics'
    """
    return _LEGAL_FORM.sub("", company)


def article_last(title: str) -> str:
    """Put a leading article behind a comma, as catalogues do.

    >>> article_last("The Third Man")
    'Third Man, The'
    """
    article, _, rest = title.partition(" ")
    return f"{rest}, {article}" if article in ("The", "A") else title


def without_article(title: str) -> str:
    """Drop a leading article.

    >>> without_article("The Third Man")
    'Third Man'
    """
    article, _, rest = title.partition(" ")
    return rest if article in ("The", "A") else title


def abbreviated(person: str) -> str:
    """Shorten the first name, by custom or to its initial.

    >>> abbreviated("William Smith"), abbreviated("Nora Smith")
    ('Wm. Smith', 'N. Smith')
    """
    first, _, last = person.partition(" ")
    return f"{_ABBREVIATED.get(first, first[0] + '.')} {last}"


def surname_first(person: str) -> str:
    """Write the surname before the first name.

    >>> surname_first("William Smith")
    'Smith, William'
    """
    first, _, last = person.partition(" ")
    return f"{last}, {first}"


def padded(cells: Sequence[str]) -> list[str]:
    """Put a blank behind every third cell, as fixed-width exports do.

    >>> padded(["a", "b", "c"])
    ['a ', 'b', 'c']
    """
    return [cell + " " if place % 3 == 0 else cell for place, cell in enumerate(cells)]
