"""Programs for numbers, units, dates and names of months: what text operations cannot express."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

import numpy as np

from deepjoin.arrays import Double, Int
from deepjoin.matching.steps import WHOLE, ProgramStep, replaced
from deepjoin.read.sql import literal

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: Ways to write dates and times, in the letters that Python, DuckDB and pandas share.
_DATES = (
    "%Y-%m-%d", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y%m%d",
    "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%m-%d-%y", "%d-%m-%y", "%d %b %Y", "%d %B %Y",
    "%b %d %Y", "%B %d %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%Y-%b-%d",
    "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M",
    "%Y%m%d%H%M%S", "%b %d %Y %H:%M:%S",
)  # fmt: skip
_TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I %p", "%H%M")
#: Parts of a date that the other column may have instead of the whole.
_PARTS = {
    "%Y": "the year", "%m": "the month", "%B": "the name of the month", "%A": "the weekday",
    "%b": "the short name of the month", "%a": "the short weekday", "%Y-%m": "year and month",
    "%m/%Y": "month and year", "%B %Y": "month and year", "%b %Y": "month and year",
    "%B %d": "month and day", "%b %d": "month and day", "%d %B": "day and month",
}  # fmt: skip
#: Cells that must follow a format before it counts as the column's own.
_MOSTLY = 0.8
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

NUMBER = (
    replaced("[^0-9.-]", "", "the number", 1.0)
    .then(replaced(r"^(-?)0+([0-9])", r"\1\2", "", 0.0))
    .then(replaced(r"^(-?[0-9]*\.[0-9]*?)0+$", r"\1", "", 0.0))
    .then(replaced(r"\.$", "", "", 0.0))
)
NUMBER = ProgramStep("the number as such", NUMBER.run, NUMBER.sql, NUMBER.pandas, 1.0)

#: Factor, offset and words of conversions between units; the inverse of each is tried as well.
_UNITS = (
    (0.3048, 0, "feet to metres"), (2.54, 0, "inches to centimetres"),
    (25.4, 0, "inches to millimetres"), (0.0254, 0, "inches to metres"),
    (30.48, 0, "feet to centimetres"), (12, 0, "feet to inches"), (3, 0, "yards to feet"),
    (0.9144, 0, "yards to metres"), (1.609344, 0, "miles to kilometres"),
    (1609.344, 0, "miles to metres"), (5280, 0, "miles to feet"), (1.852, 0, "knots to km/h"),
    (2.2369362920544, 0, "m/s to mph"), (3.6, 0, "m/s to km/h"),
    (28.349523125, 0, "ounces to grams"), (0.45359237, 0, "pounds to kilograms"),
    (453.59237, 0, "pounds to grams"), (16, 0, "pounds to ounces"),
    (29.5735295625, 0, "fluid ounces to millilitres"),
    (33.8140227018, 0, "litres to fluid ounces"), (3.785411784, 0, "gallons to litres"),
    (8, 0, "cups to fluid ounces"), (236.5882365, 0, "cups to millilitres"),
    (0.092903, 0, "square feet to square metres"), (9, 0, "square yards to square feet"),
    (43560, 0, "acres to square feet"), (0.40468564224, 0, "acres to hectares"),
    (2.589988110336, 0, "square miles to square kilometres"),
    (10, 0, "a tenth of the unit"), (100, 0, "a hundredth of the unit"),
    (1000, 0, "a thousandth of the unit"), (1024, 0, "a 1,024th of the unit"),
    (60, 0, "hours to minutes"), (3600, 0, "hours to seconds"), (24, 0, "days to hours"),
    (1.8, 32, "Celsius to Fahrenheit"), (1, 273.15, "Celsius to kelvin"),
    (57.29577951308, 0, "radians to degrees"),
)  # fmt: skip


def format_steps(left: list[str], right: list[str]) -> Iterator[tuple[ProgramStep, ProgramStep]]:
    """Propose what to do with both sides: read numbers, dates, times, names of months."""
    if _mostly_numbers(left) and _mostly_numbers(right):
        yield NUMBER, NUMBER
    for kind, formats in (("%Y-%m-%d %H:%M:%S", _DATES), ("%H:%M:%S", _TIMES)):
        mine, theirs = (_formats_of(side, formats) for side in (left, right))
        # 03/04/2020 has two readings; 03/13/2020 in the same column leaves one of them.
        for one in mine:
            for other in theirs:
                if one != other:
                    yield _reread(one, kind), _reread(other, kind)
            if kind.startswith("%Y"):
                for part, words in _PARTS.items():
                    yield _reread(one, part, words), WHOLE
        for other in theirs if kind.startswith("%Y") else ():
            for part, words in _PARTS.items():
                yield WHOLE, _reread(other, part, words)
    for words, table in _tables().items():
        for step in (lookup(words, table),):
            if any(step(cell) is not None for cell in left[:50]):
                yield step, WHOLE
            if any(step(cell) is not None for cell in right[:50]):
                yield WHOLE, step
    if _mostly_numbers(left) or _mostly_numbers(right):
        for step in (_HEX, _BINARY):
            yield step, WHOLE
            yield WHOLE, step


def _mostly_numbers(cells: list[str]) -> bool:
    some = cells[:200]
    good = sum(bool(re.search("[0-9]", cell)) and len(re.findall("[^0-9]", cell)) < 8
               for cell in some)  # fmt: skip
    return bool(some) and good >= _MOSTLY * len(some)


def _formats_of(cells: list[str], formats: tuple[str, ...]) -> list[str]:
    some = cells[:500]
    if not some or not all(re.search("[0-9]", cell) for cell in some[:5]):
        return []
    found = []
    for one in formats:
        good = sum(_parsed(cell, one) is not None for cell in some)
        if good >= _MOSTLY * len(some) and (good == len(some) or good >= 5):
            found.append((good, one))
    most = max((good for good, _ in found), default=0)
    return [one for good, one in found if good == most]


def _parsed(cell: str, shape: str) -> datetime | None:
    try:
        return datetime.strptime(cell.strip(" "), shape)
    except ValueError:
        return None


def _reread(shape: str, to: str, words: str = "") -> ProgramStep:
    """Read a date in one way and write it in another."""

    def run(cell: str) -> str | None:
        moment = _parsed(cell, shape)
        return None if moment is None else moment.strftime(to)

    return ProgramStep(
        f"{words} of the date written as {shape}" if words else f"the date written as {shape}",
        run,
        f"strftime(try_strptime(trim({{x}}, ' '), {literal(shape)}), {literal(to)})",
        f'pd.to_datetime({{x}}.str.strip(" "), format={shape!r}, errors="coerce")'
        f".dt.strftime({to!r})",
        1.0,
    )


def lookup(words: str, table: Mapping[str, str]) -> ProgramStep:
    """Look a text up in a table, whatever its case."""
    known = dict(table)
    keys, values = (", ".join(map(literal, side)) for side in (known.keys(), known.values()))
    return ProgramStep(
        words,
        lambda cell: known.get(cell.strip(" ").lower()),
        f"map([{keys}], [{values}])[lower(trim({{x}}, ' '))]",
        f'{{x}}.str.strip(" ").str.lower().map({known!r})',
        1.5,
    )


def _tables() -> dict[str, dict[str, str]]:
    numbers = {str(at): name for at, name in enumerate(_MONTHS, 1)}
    return {
        "the number of the month": {name: at for at, name in numbers.items()},
        "the number of the abbreviated month": {name[:3]: at for at, name in numbers.items()},
        "the short name of the month": {name: name[:3] for name in _MONTHS},
        "the two-digit number of the month": {
            name: at.rjust(2, "0") for at, name in numbers.items()
        },
        "the short name of the weekday": {name: name[:3] for name in _DAYS},
    }


def _whole(cell: str) -> int | None:
    text = cell.strip(" ")
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


_HEX = ProgramStep(
    "the number in hexadecimal",
    lambda cell: None if (number := _whole(cell)) is None else f"{number:x}",
    "CASE WHEN regexp_full_match(trim({x}, ' '), '[0-9]{1,15}') "
    "THEN format('{:x}', CAST(trim({x}, ' ') AS BIGINT)) END",
    '{x}.str.strip(" ").where({x}.str.strip(" ").str.fullmatch("[0-9]{1,15}"))'
    '.map(lambda text: format(int(text), "x"), na_action="ignore")',
    1.5,
)
_BINARY = ProgramStep(
    "the number in binary",
    lambda cell: None if (number := _whole(cell)) is None else f"{number:b}",
    "CASE WHEN regexp_full_match(trim({x}, ' '), '[0-9]{1,15}') "
    "THEN format('{:b}', CAST(trim({x}, ' ') AS BIGINT)) END",
    '{x}.str.strip(" ").where({x}.str.strip(" ").str.fullmatch("[0-9]{1,15}"))'
    '.map(lambda text: format(int(text), "b"), na_action="ignore")',
    1.5,
)


def unit_pairs(left: list[str], right: list[str]) -> tuple[ProgramStep, Int, Int] | None:
    """Find the conversion of units that maps most numbers of the left to the right.

    The right numbers are rounded, so they are compared up to the last digit they have.
    """
    mine, _ = _numbers(left)
    theirs, digits = _numbers(right)
    known, others = np.flatnonzero(~np.isnan(mine)), np.flatnonzero(~np.isnan(theirs))
    if len(known) < 3 or len(others) < 3 or len(known) < _MOSTLY * len(left):
        return None
    order = others[np.argsort(theirs[others], kind="stable")]
    goals, slack = theirs[order], digits[order]
    best: tuple[int, ProgramStep, Int, Int] | None = None
    for factor, offset, words in _conversions():
        wanted = mine[known] * factor + offset
        at = np.searchsorted(goals, wanted)
        near = np.stack([np.clip(at - 1, 0, len(goals) - 1), np.clip(at, 0, len(goals) - 1)])
        away = np.abs(goals[near] - wanted)
        place = near[away.argmin(axis=0), np.arange(len(wanted))]
        allowed = np.maximum(slack[place], np.abs(wanted) * 2e-5)
        hit = np.abs(goals[place] - wanted) <= allowed
        # By chance a number would meet one of the column's if those lie close together.
        spread = (goals[-1] - goals[0]) or 1.0
        if 2 * allowed.mean() * len(goals) / spread > 0.2:
            continue
        count = len(np.unique(place[hit]))
        integral = bool(np.all(goals == np.rint(goals)) and factor in (10, 100, 1000, 1, 24, 60))
        if count >= 3 and hit.mean() >= 0.8 and not integral and (best is None or count > best[0]):
            decimals = Counter(np.rint(-np.log10(2 * slack[place[hit]])).astype(int).tolist())
            step = _conversion(factor, offset, words, decimals.most_common(1)[0][0])
            best = count, step, known[hit], order[place[hit]]
    return None if best is None else best[1:]


def _conversions() -> Iterator[tuple[float, float, str]]:
    for factor, offset, words in _UNITS:
        yield factor, offset, words
        one, _, other = words.partition(" to ")
        back = f"{other} to {one}" if other else f"{factor:,} times the unit"
        yield 1 / factor, -offset / factor, back


def _numbers(cells: list[str]) -> tuple[Double, Double]:
    """Read numbers, and half a unit of their last digit."""
    values, slack = np.full((2, len(cells)), np.nan)
    for at, cell in enumerate(cells):
        text = cell.strip(" ").replace(",", "")
        if len(text) < 30 and _NUMBER.fullmatch(text) and "e" not in text.lower():
            values[at] = float(text)
            slack[at] = 0.51 * 10.0 ** -len(text.partition(".")[2])
    return values, slack


def _conversion(factor: float, offset: float, words: str, decimals: int) -> ProgramStep:
    plus = f" + {offset:.10g}" if offset else ""
    return ProgramStep(
        words,
        lambda cell: f"{round(float(cell.replace(',', '')) * factor + offset, decimals):.12g}",
        f"round(TRY_CAST(replace({{x}}, ',', '') AS DOUBLE) * {factor:.12g}{plus}, {decimals})",
        f'(pd.to_numeric({{x}}.str.replace(",", ""), errors="coerce") * {factor:.12g}{plus})'
        f".round({decimals})",
        1.5,
    )
