"""Where a table begins, whether its first row names the columns, and what they are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from deepjoin.read.cells import unique_names

Row = Sequence[str]

_NUMBER = re.compile(
    r"[-+(]? ?[$€£¥]? ?[-+]?(?:[0-9][0-9., '\u00a0\u202f]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)? ?[%)€]?"
)
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?:[ T]+[0-9]{1,2}:[0-9]{2}.*)?"
    r"|[0-9]{1,2}:[0-9]{2}(?::[0-9.]+)?(?: ?[ap]m)?"
    rf"|[0-9]{{1,2}}[- ]{_MONTHS}[-, ]+[0-9]{{2,4}}|{_MONTHS} [0-9]{{1,2}},? [0-9]{{4}}",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"[0-9]")
_YEAR = re.compile(r"(?:1[5-9]|20)[0-9]{2}")
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "--", "?", ".", "\\n"))
# Enough to judge by; a table may have ten thousand columns.
_COLUMNS = 64
_ROWS = 50
_TITLES = 20
_LONGEST_NAME = 1000
#: A row with more cells is not one of a table.
WIDEST = 100_000


def kind(cell: str) -> str:
    """Tell what a cell looks like.

    >>> [kind(cell) for cell in ("1,200", "5 Jan 2020", "n/a", "Oslo")]
    ['number', 'date', '', 'text']
    """
    cell = cell.strip()
    if cell.lower() in _MISSING:
        return ""
    if not _DIGIT.search(cell):
        return "text"
    if _DATE.fullmatch(cell):
        return "date"
    return "number" if _NUMBER.fullmatch(cell) else "text"


def first_row(rows: Sequence[Row], width: int) -> int:
    """Return which row is the header or, without one, the first row of data.

    Titles and comments come before it: rows that are short or nearly blank.
    """
    first = next((at for at, row in enumerate(rows) if len(row) >= width), 0)
    if first and _short_header(rows[first - 1], rows[first], width):
        first -= 1
    return _header_under_titles(rows, first, width) or first


def _short_header(row: Row, data: Row, width: int) -> bool:
    """Whether a row lacks only some names: R writes none for the row labels."""
    if len(row) < 2 or 2 * len(row) <= width or row[0].lstrip().startswith("#"):
        return False
    kinds = {kind(cell) for cell in row}
    return kinds <= {"text", ""} and bool({kind(cell) for cell in data} - {"text", ""})


def _header_under_titles(rows: Sequence[Row], top: int, width: int) -> int | None:
    """Find the header below titles of full width, as spreadsheets export them."""
    sparse = takewhile(lambda at: 2 * _filled(rows[at]) <= width, range(top, len(rows)))
    under = top + len(list(sparse))
    if width < 3 or not top < under < min(len(rows), top + _TITLES):
        return None
    below, body = rows[under], rows[under + 1 :]
    named = below[0].strip() and 10 * _filled(below) >= 9 * width
    if not named or "text" not in map(kind, below) or not is_header(below, body):
        return None
    typed = any(kind(cell) not in ("text", "") for row in body[:10] for cell in row)
    title = _filled(rows[top]) == 1 and rows[top][0].strip()
    return under if typed or title else None


def _filled(row: Row) -> int:
    return sum(1 for cell in row if cell.strip())


def is_header(first: Row, body: Sequence[Row]) -> bool:
    """Decide whether a row names the columns of the rows below; in doubt it does.

    >>> is_header(["city", "1960"], [["Oslo", "7"], ["Rome", "8"]])
    True
    >>> is_header(["Oslo", "7"], [["Rome", "8"], ["Oslo", "9"]])
    False
    """
    body = [row for row in body if row != first][: 4 * _ROWS]
    if not body:
        return _names_alone(first)
    if _counts_up(first) and not _counts_up(body[0]):
        return True
    evidence = sum(
        _evidence(first[at].strip(), [row[at].strip() for row in body if at < len(row)])
        for at in range(min(len(first), _COLUMNS))
    )
    return evidence - _twins(first, body) >= 0


def _names_alone(first: Row) -> bool:
    kinds = [kind(cell) for cell in first]
    years = all(_YEAR.fullmatch(cell.strip()) for cell in first if kind(cell) == "number")
    return "date" not in kinds and ("number" not in kinds or (years and "text" in kinds))


def _evidence(name: str, column: list[str]) -> int:
    """Weigh one column: above zero its first cell is a name, below it is data."""
    if not (found := kind(name)):
        return 0
    pairs = [(cell, which) for cell in column[:_ROWS] if (which := kind(cell))]
    cells = [cell for cell, _ in pairs]
    kinds = Counter(which for _, which in pairs)
    usual, times = kinds.most_common(1)[0] if kinds else ("", 0)
    if 5 * times < 4 * len(cells) or not cells:
        return 0
    if usual == "text":
        return _text_evidence(name, found, column, cells)
    if found != usual:
        return 2
    years = sum(1 for cell in cells if _YEAR.fullmatch(cell))
    return 1 if _YEAR.fullmatch(name) and 2 * years < len(cells) else -2


def _text_evidence(name: str, found: str, column: list[str], cells: list[str]) -> int:
    if found != "text":
        return 0
    if name in column:
        return -2
    lengths = {len(cell) for cell in cells}
    if len(cells) < 5 or len(lengths) > 1 or len(set(cells)) < 3 or lengths == {1}:
        return 0  # single letters are as likely names as codes
    # Codes: all of one length, in capitals and digits or with a mark at one place.
    shapes = {_shape(cell) for cell in cells}
    alike = len(name) in lengths and (_shape(name) in shapes or not _small((name, *cells)))
    codes = len(shapes) == 1 or not _small(cells)
    return (-1 if alike else 1) if codes else 0


def _small(cells: Iterable[str]) -> bool:
    return any(c.islower() for cell in cells for c in cell)


def _shape(cell: str) -> str:
    """Codes of one kind share a shape: `AB-12` and `XY-07` do."""
    return "".join(
        "9" if c.isdigit() else "A" if c.isupper() else "a" if c.islower() else c for c in cell[:12]
    )


def _counts_up(first: Row) -> bool:
    """Whether numbers beside a word count up by one, as the heads of a matrix do."""
    numbers = [cell.strip() for cell in first if kind(cell) == "number"]
    if len(numbers) < 3 or len(numbers) == len(first) or not all(map(str.isdecimal, numbers)):
        return False
    return all(int(after) - int(before) == 1 for before, after in pairwise(numbers))


def _twins(first: Row, body: Sequence[Row]) -> int:
    """Whether equal cells fill the first row as they fill the rows below."""
    if not _has_twins(first):
        return 0
    return int(2 * sum(_has_twins(row) for row in body[:_ROWS]) > min(len(body), _ROWS))


def _has_twins(row: Row) -> bool:
    cells = [cell for cell in row[:_COLUMNS] if cell.strip()]
    return 3 * len(set(cells)) < 2 * len(cells)


def header_names(cells: Row) -> tuple[str, ...]:
    """Name columns by the cells of a header, without the white space that lays it out.

    >>> header_names([" id ", "", "id", "id_2"])
    ('id', 'column_2', 'id_3', 'id_2')
    """
    clean = (" ".join(cell.replace("\ufeff", "").split())[:_LONGEST_NAME] for cell in cells)
    return tuple(unique_names(clean))


def widened(names: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Add names for columns beyond those that have one."""
    if width <= len(names):
        return names
    return (*names, *unique_names([""] * (width - len(names)), names))
