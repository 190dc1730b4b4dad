"""Cells to canonical strings: the one space in which cells are compared.

`canonical` is the definition; `canonical_array` is the same function over an Arrow array,
fast because only the rare cells that are not plain ASCII text need the slow path. The rules,
and what they refuse to guess, are in ``docs/decisions/0002-canonical-strings.md``.

Values are ordered and looked up by a stable hash of that string. Hashes order and find; they never
decide: every equal pair of hashes is confirmed on the strings, so a collision costs time and never
an answer.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterable
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest as hash_bytes

from deepjoin.arrays import Hashes

PROFILES = ("default", "basic")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december", "sept"),
)
_MONTH = "(" + "|".join(sorted((*_FULL_MONTHS, *_MONTHS), key=len, reverse=True)) + ")"

_DIGIT = re.compile("[0-9]")
# No leading zeros: 007 is a code, not the number 7.
_NUMBER = re.compile(r"([+-]?)(0|[1-9][0-9]*)?(?:\.([0-9]*))?")
_TIME = r"(?:[t ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?(z|\+00:?00)?)?"
_YEAR_FIRST = re.compile(r"([0-9]{4})([-/])([0-9]{1,2})\2([0-9]{1,2})" + _TIME)
_DAY_MONTH = re.compile(rf"([0-9]{{1,2}})(?:st|nd|rd|th)?[ -]{_MONTH}\.?,?[ -]([0-9]{{4}})")
_MONTH_DAY = re.compile(rf"{_MONTH}\.? ([0-9]{{1,2}})(?:st|nd|rd|th)?,? ([0-9]{{4}})")

# What the fast path cannot do: letters beyond ASCII, odd white space, and whatever might be
# a number or a date in another spelling. RE2 syntax; it may match too much, never too little.
_SLOW = (
    r"[^\x20-\x7e]|  |^ *[+-]?[0-9]*\.[0-9]* *$|^ *\+|^ *-0|^ *[0-9]{4}[-/][0-9]"
    r"|^ *[0-9]{1,2}[A-Za-z]{0,2}[ -][A-Za-z]{3,9}\.?,?[ -][0-9]{4} *$"
    r"|^ *[A-Za-z]{3,9}\.? [0-9]{1,2}[A-Za-z]{0,2},? [0-9]{4} *$"
)
_INTEGER = r"^-?(0|[1-9][0-9]*)$"
_DECIMAL = r"^-?(0|[1-9][0-9]*)\.[0-9]+$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?z?)?$"
_FIRST = frozenset("-0123456789")


class CellType(IntEnum):
    """What a canonical string looks like; a column has the type all its cells share."""

    TEXT = 0
    INTEGER = 1
    DECIMAL = 2
    DATE = 3


#: What a value of each type looks like, and what it begins with.
_TYPES = {
    CellType.INTEGER: re.compile(_INTEGER),
    CellType.DECIMAL: re.compile(_DECIMAL),
    CellType.DATE: re.compile(_DATE),
}


def canonical(cell: str, profile: str = "default") -> str:
    """Return the string under which a cell is compared; blank cells become ''.

    >>> [canonical(c) for c in (" Île de  France ", "7.0", "007", "5 Jan 2020", "03/04/2020")]
    ['île de france', '7', '007', '2020-01-05', '03/04/2020']
    """
    if profile == "basic":
        return cell.strip().lower()
    if cell.isascii():
        lowered = cell.lower()
    else:  # lower-casing can undo NFKC ('İ' becomes two characters), so normalise on both sides
        lowered = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", cell).lower())
    text = " ".join(lowered.split())
    if not text or _DIGIT.search(text) is None:
        return text
    # At most one applies: a number has no separator that a date needs.
    return _number(text) or _date(text) or text


def _number(text: str) -> str | None:
    """`7.0`, `+7` and `7` are one number; `007`, `1,000` and `1e5` are left as they are."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction = match.groups()
    if whole is None and not fraction:
        return None
    fraction = (fraction or "").rstrip("0")
    digits = (whole or "0") + (f".{fraction}" if fraction else "")
    return f"-{digits}" if sign == "-" and digits != "0" else digits


def _date(text: str) -> str | None:
    """Write dates in ISO form whose year, month and day cannot be confused."""
    if match := _YEAR_FIRST.fullmatch(text):
        year, _, month, day, minutes, seconds, fraction, zone = match.groups()
        date = _iso(int(year), int(month), int(day))
        return date and date + _time(minutes, seconds, fraction, zone)
    if match := _DAY_MONTH.fullmatch(text):
        day, month, year = match.groups()
    elif match := _MONTH_DAY.fullmatch(text):
        month, day, year = match.groups()
    else:
        return None
    return _iso(int(year), _MONTHS.index(month[:3]) + 1, int(day))


def _iso(year: int, month: int, day: int) -> str | None:
    try:
        return datetime.date(year, month, day).isoformat()
    except ValueError:
        return None


def _time(minutes: str | None, seconds: str | None, fraction: str | None, zone: str | None) -> str:
    """Write a time after its date; midnight adds nothing, nor do zeros at the end."""
    fraction = (fraction or "").rstrip("0")
    if minutes in (None, "00:00") and seconds in (None, "00") and not fraction:
        return ""
    fraction = f".{fraction}" if fraction else ""
    return f" {minutes}:{seconds or '00'}{fraction}{'z' if zone else ''}"


def canonical_array(cells: pa.Array, profile: str = "default") -> pa.Array:
    """`canonical` for every cell of a string array; nulls stay null."""
    if profile == "basic":
        # Python strips more separators than Arrow does, hence the second test.
        slow = pc.invert(pc.string_is_ascii(cells))
        slow = pc.or_(slow, pc.match_substring_regex(cells, r"[\x1c-\x1f]"))
        fast = pc.ascii_lower(pc.ascii_trim_whitespace(cells))
    else:
        slow = pc.match_substring_regex(cells, _SLOW)
        fast = pc.ascii_lower(pc.ascii_trim(cells, " "))
    if not pc.any(slow).as_py():
        return fast
    slow = pc.fill_null(slow, False)
    normalised = [canonical(cell, profile) for cell in cells.filter(slow).to_pylist()]
    return pc.replace_with_mask(fast, slow, pa.array(normalised, cells.type))


def cell_type(value: str) -> CellType:
    """Return the type of one canonical string; of few, this is faster than `cell_types`.

    >>> [cell_type(value).name for value in ("7", "-7.50", "007", "2020-01-05", "")]
    ['INTEGER', 'DECIMAL', 'TEXT', 'DATE', 'TEXT']
    """
    if value[:1] in _FIRST:
        for kind, pattern in _TYPES.items():
            if pattern.fullmatch(value):
                return kind
    return CellType.TEXT


def cell_types(values: pa.Array) -> pa.Array:
    """Return the `CellType` of each canonical string, as an 8-bit integer."""
    kinds = pc.if_else(pc.match_substring_regex(values, _INTEGER), 1, 0)
    kinds = pc.if_else(pc.match_substring_regex(values, _DECIMAL), 2, kinds)
    return pc.if_else(pc.match_substring_regex(values, _DATE), 3, kinds).cast(pa.uint8())


def hash_value(value: str) -> int:
    """Hash one canonical string, the same on every machine and version."""
    return int(hash_values([value])[0])


def hash_values(values: Iterable[str]) -> Hashes:
    """Hash canonical strings."""
    # Lone surrogates cannot be stored in a lake, but a query may bring them.
    return np.array([hash_bytes(v.encode("utf-8", "surrogatepass")) for v in values], np.uint64)


def hash_array(values: pa.Array) -> Hashes:
    """Hash every string of an Arrow array without nulls."""
    encoded = values.cast(pa.binary()).to_pylist()
    return np.fromiter(map(hash_bytes, encoded), np.uint64, len(encoded))
