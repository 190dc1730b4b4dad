"""Spellings that the tables of the demo differ in."""

from __future__ import annotations

import re

_LEGAL_FORM = re.compile(
    r",? (Inc\.|Ltd|Pty Ltd|PLC|GmbH|AG|S\.A\.|SARL|S\.r\.l\.|S\.L\.|B\.V\.|AB|A/S|AS|Oy|Lda"
    r"|Ltda|Sp\. z o\.o\.|s\.r\.o\.|Kft\.|K\.K\.|Co\., Ltd\.|A\.Ş\.|S\.A\. de C\.V\.)$"
)


def without_legal_form(company: str) -> str:
    """Drop the legal form at the end of a company's name.

    >>> without_legal_form("Alder Optics GmbH")
    'Alder Optics'
    """
    return _LEGAL_FORM.sub("", company)
