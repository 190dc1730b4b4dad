"""The same thing written another way: what tables of one lake do to each other's keys."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ABBREVIATED = {
    "Alexander": "Alex.",
    "Charles": "Chas.",
    "Elizabeth": "Eliz.",
    "Frederick": "Fred.",
    "George": "Geo.",
    "James": "Jas.",
    "Joseph": "Jos.",
    "Robert": "Robt.",
    "Samuel": "Saml.",
    "Thomas": "Thos.",
    "William": "Wm.",
}
_LEGAL_FORM = re.compile(
    r",? (Inc\.|Ltd|Pty Ltd|PLC|GmbH|AG|S\.A\.|SARL|S\.r\.l\.|S\.L\.|B\.V\.|AB|A/S|AS|Oy|Lda"
    r"|Ltda|Sp\. z o\.o\.|s\.r\.o\.|Kft\.|K\.K\.|Co\., Ltd\.|A\.Ş\.|S\.A\. de C\.V\.)$"
)


def long_date(day: datetime.date) -> str:
    """Write a date as people do in letters.

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
    """Put a blank behind every third cell, as fixed-width exports leave them.

    >>> padded(["a", "b", "c"])
    ['a ', 'b', 'c']
    """
    return [cell + " " if place % 3 == 0 else cell for place, cell in enumerate(cells)]
