"""Programs for numbers, dates and names of months: what text operations cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from deepjoin.matching.steps import ROMAN, WHOLE, ProgramStep, joined, lookup, replaced
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
    "%Y%m%d%H%M%S", "%b %d %Y %H:%M:%S", "%d %B, %Y", "%Y-%j", "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M", "%d %b %Y %H:%M:%S",
)  # fmt: skip
#: Ways to write a month of a year.
_MONTHLY = (
    "%Y-%m", "%m/%Y", "%Y/%m", "%m-%Y", "%b-%y", "%b %y", "%b-%Y", "%b %Y", "%B %Y", "%B, %Y",
    "%Y%m",
)  # fmt: skip
_TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I %p", "%H%M")
#: Digits of those without separators: Python and pandas would read 930 as half past nine.
_LENGTHS = {"%Y%m%d": 8, "%Y%m%d%H%M%S": 14, "%Y%m": 6, "%H%M": 4}
#: Parts of a date that the other column may have instead of the whole.
_PARTS = {
    "%Y": "the year", "%m": "the month", "%B": "the name of the month", "%A": "the weekday",
    "%b": "the short name of the month", "%a": "the short weekday", "%Y-%m": "year and month",
    "%m/%Y": "month and year", "%B %Y": "month and year", "%b %Y": "month and year",
    "%B %d": "month and day", "%b %d": "month and day", "%d %B": "day and month",
    "%G-W%V": "the ISO week", "%b-%y": "month and year", "%Y-%m-%d": "the day",
}  # fmt: skip
#: Cells that must follow a format before it counts as the column's own.
_MOSTLY = 0.8
#: Cells that tell whether a format is worth trying on the others.
_FIRST = 10

NUMBER = (
    replaced("[^0-9.-]", "", "the number", 1.0)
    .then(replaced(r"^(-?)0+([0-9])", r"\1\2", "", 0.0))
    .then(replaced(r"^(-?[0-9]*\.[0-9]*?)0+$", r"\1", "", 0.0))
    .then(replaced(r"\.$", "", "", 0.0))
)
NUMBER = ProgramStep("the number as such", NUMBER.run, NUMBER.sql, NUMBER.pandas, 1.0)

#: A date without its weekday, st, nd, rd and th, the dot behind its day, and its time zone.
PLAIN_DATE = (
    replaced(
        "^(?i:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?i:day)?,? +", "", "the date"
    )
    .then(replaced(r"([0-9])(?:(?i:st|nd|rd|th)|\.)([ ,])", r"\1\2", "", 0.0))
    .then(replaced(r"(?:\.[0-9]+)?(?:Z|[+-]00:?00)$", "", "", 0.0))
)
PLAIN_DATE = ProgramStep(
    "the date without weekday, ordinals and time zone",
    *(PLAIN_DATE.run, PLAIN_DATE.sql, PLAIN_DATE.pandas, 0.3),
)
_LANGUAGES = {
    language: tuple(words.split())
    for language, words in {
        "German": "januar februar märz april mai juni juli august september oktober november "
        "dezember",
        "French": "janvier février mars avril mai juin juillet août septembre octobre novembre "
        "décembre",
        "Spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
        "diciembre",
        "Italian": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre "
        "novembre dicembre",
        "Portuguese": "janeiro fevereiro março abril maio junho julho agosto setembro outubro "
        "novembro dezembro",
        "Dutch": "januari februari maart april mei juni juli augustus september oktober november "
        "december",
    }.items()
}


def months_in(language: str) -> ProgramStep:
    """Write the months of a language in English."""
    made = PLAIN_DATE
    if language in ("Spanish", "Portuguese"):
        made = made.then(replaced(" de ", " ", "", 0.0))
    for word, english in zip(_LANGUAGES[language], _MONTHS, strict=True):
        if word != english:
            pattern = f"[{word[0].upper()}{word[0]}]{word[1:]}"
            made = made.then(replaced(pattern, english.capitalize(), "", 0.0))
    return ProgramStep(f"the date in {language}", made.run, made.sql, made.pandas, 0.4)


class _Reading(NamedTuple):
    """How the dates of a column are written: what is cleaned first, then the format."""

    cleaned: ProgramStep
    shape: str

    def write(self, to: str, words: str = "") -> ProgramStep:
        """Read the date and write it in another way."""
        step = _reread(self.shape, to, words)
        return step if self.cleaned is WHOLE else self.cleaned.then(step)


def format_steps(left: list[str], right: list[str]) -> Iterator[tuple[ProgramStep, ProgramStep]]:
    """Propose what to do with both sides: read numbers, dates, times, names of months."""
    if _mostly_numbers(left) and _mostly_numbers(right):
        yield NUMBER, NUMBER
    sides = left, right
    for mine, theirs, is_left in ((0, 1, True), (1, 0, False)):
        for step, other in _date_steps(sides[mine], sides[theirs], both=is_left):
            yield (step, other) if is_left else (other, step)
        for step in _TABLES:
            if any(step(cell) is not None for cell in sides[mine][:50]):
                yield (step, WHOLE) if is_left else (WHOLE, step)
    if _mostly_numbers(left) or _mostly_numbers(right):
        for step in (_HEX, _BINARY):
            yield step, WHOLE
            yield WHOLE, step


def _date_steps(
    cells: list[str], others: list[str], both: bool
) -> Iterator[tuple[ProgramStep, ProgramStep]]:
    """Propose how to read the dates and times of one column; ``both``: and those of the other."""
    dates = _readings_of(cells, _DATES)
    months = _readings_of(cells, _MONTHLY)
    if both:
        for kind, mine, formats in (
            ("%Y-%m-%d %H:%M:%S", dates, _DATES),
            ("%Y-%m", months, _MONTHLY),
            ("%H:%M:%S", _readings_of(cells, _TIMES), _TIMES),
        ):
            # 03/04/2020 has two readings; 03/13/2020 in the same column leaves one of them.
            for one in mine:
                for other in _readings_of(others, formats):
                    if one != other:
                        timed = kind.startswith("%Y") and ("%H" in one.shape) != (
                            "%H" in other.shape
                        )
                        to = "%Y-%m-%d" if timed else kind
                        yield one.write(to), other.write(to)
    for one in dates:
        for part, words in _PARTS.items():
            yield one.write(part, words), WHOLE
    quarterly = sum(bool(re.search("[Qq][1-4]", cell)) for cell in others[:50])
    if quarterly >= _MOSTLY * len(others[:50]):
        for one in (*dates, *months):
            year, month = one.write("%Y"), one.write("%m")
            quarter = month.then(_QUARTER)
            for parts in _QUARTERS:
                made = [{"Y": year, "q": quarter}.get(part, part) for part in parts]
                yield joined(made, 1.5), WHOLE
    yield from _counted_dates(cells, others)


def _counted_dates(
    cells: list[str], others: list[str]
) -> Iterator[tuple[ProgramStep, ProgramStep]]:
    """Propose to read numbers as dates where the other column has dates."""
    for pattern, make in _COUNTED.items():
        if not all(re.fullmatch(pattern, cell.strip(" ")) for cell in cells[:_FIRST]):
            continue
        for other in _readings_of(others, _DATES):
            to = "%Y-%m-%d %H:%M:%S" if "%H" in other.shape else "%Y-%m-%d"
            yield make(to), other.write(to)


def _mostly_numbers(cells: list[str]) -> bool:
    some = cells[:200]
    good = sum(bool(re.search("[0-9]", cell)) and len(re.findall("[^0-9]", cell)) < 8
               for cell in some)  # fmt: skip
    return bool(some) and good >= _MOSTLY * len(some)


def _readings_of(cells: list[str], formats: tuple[str, ...]) -> list[_Reading]:
    """Find the formats that the dates of a column follow, as they are or cleaned."""
    some = cells[:500]
    if not some or not all(re.search("[0-9]", cell) for cell in some[:5]):
        return []
    if (plain := _shapes_of(some, formats)) or formats is _TIMES:
        return [_Reading(WHOLE, one) for one in plain]
    text = " ".join(some[:50]).lower()
    known = [
        months_in(language) for language, words in _LANGUAGES.items()
        if any(word in text for word in words)
    ]  # fmt: skip
    for step in (PLAIN_DATE, *known):
        cleaned = [step(cell) or "" for cell in some]
        if cleaned != some and (shapes := _shapes_of(cleaned, formats)):
            return [_Reading(step, one) for one in shapes]
    return []


def _shapes_of(some: list[str], formats: tuple[str, ...]) -> list[str]:
    found = []
    for one in formats:
        if not any(_parsed(cell, one) is not None for cell in some[:_FIRST]):
            continue
        good = sum(_parsed(cell, one) is not None for cell in some)
        if good >= _MOSTLY * len(some) and (good == len(some) or good >= 5):
            found.append((good, one))
    most = max((good for good, _ in found), default=0)
    return [one for good, one in found if good == most]


def _parsed(cell: str, shape: str) -> datetime | None:
    text = cell.strip(" ")
    if len(text) != _LENGTHS.get(shape, len(text)):
        return None
    try:
        return datetime.strptime(text, shape)
    except ValueError:
        return None


def _reread(shape: str, to: str, words: str = "") -> ProgramStep:
    """Read a date in one way and write it in another."""

    def run(cell: str) -> str | None:
        moment = _parsed(cell, shape)
        if moment is None:
            return None
        # DuckDB writes the year 999 with four digits, Python with three.
        return moment.strftime(to.replace("%Y", f"{moment.year:04}"))

    sql, pandas = "trim({x}, ' ')", '{x}.str.strip(" ")'
    if shape in _LENGTHS:
        sql = f"CASE WHEN length({sql}) = {_LENGTHS[shape]} THEN {sql} END"
        pandas = f"{pandas}.where({pandas}.str.len() == {_LENGTHS[shape]})"
    return ProgramStep(
        f"{words} of the date written as {shape}" if words else f"the date written as {shape}",
        run,
        f"strftime(try_strptime({sql}, {literal(shape)}), {literal(to)})",
        f'pd.to_datetime({pandas}, format={shape!r}, errors="coerce").dt.strftime({to!r})',
        1.0,
    )


_NUMBERS = {str(at): name for at, name in enumerate(_MONTHS, 1)}
_TABLES = (
    lookup("the number of the month", {name: at for at, name in _NUMBERS.items()}),
    lookup("the number of the abbreviated month", {name[:3]: at for at, name in _NUMBERS.items()}),
    lookup("the short name of the month", {name: name[:3] for name in _MONTHS}),
    lookup(
        "the two-digit number of the month",
        {name: at.rjust(2, "0") for at, name in _NUMBERS.items()},
    ),
    lookup("the short name of the weekday", {name: name[:3] for name in _DAYS}),
    ROMAN,
)
_QUARTER = lookup("the quarter", {f"{month:02}": str((month + 2) // 3) for month in range(1, 13)})
#: Ways to write a quarter: Y is the year, q the quarter.
_QUARTERS = (
    ("Q", "q", " ", "Y"), ("Y", "Q", "q"), ("Y", "-Q", "q"), ("Y", " Q", "q"), ("Q", "q", "-", "Y"),
    ("Q", "q", "/", "Y"), ("Q", "q"),
)  # fmt: skip


def _counted(
    words: str, pattern: str, first: datetime, unit: str, sql: str
) -> Callable[[str], ProgramStep]:
    """Make steps that read a count of days, seconds or milliseconds as a date."""

    def written(to: str) -> ProgramStep:
        def run(cell: str) -> str | None:
            text = cell.strip(" ")
            if not re.fullmatch(pattern, text):
                return None
            each = {"D": timedelta(days=1), "s": timedelta(seconds=1)}
            moment = first + int(text) * each.get(unit, timedelta(milliseconds=1))
            return moment.strftime(to)

        number = "CAST(trim({x}, ' ') AS BIGINT)"
        origin = f', origin="{first:%Y-%m-%d}"' if unit == "D" else ""
        return ProgramStep(
            words, run,
            f"CASE WHEN regexp_full_match(trim({{x}}, ' '), {literal(pattern)}) "
            f"THEN strftime({sql.format(number=number)}, {literal(to)}) END",
            f'pd.to_datetime(pd.to_numeric({{x}}.str.strip(" ").where({{x}}.str.strip(" ")'
            f".str.fullmatch({pattern!r}))), unit={unit!r}{origin}).dt.strftime({to!r})",
            1.0,
        )  # fmt: skip

    return written


_EPOCH = datetime(1970, 1, 1)
#: What counts of days and seconds look like, and how they are read.
_COUNTED = {
    "[0-9]{9,10}": _counted(
        "the date of the seconds since 1970", "[0-9]{9,10}", _EPOCH, "s",
        "make_timestamp({number} * 1000000)",
    ),
    "[0-9]{12,13}": _counted(
        "the date of the milliseconds since 1970", "[0-9]{12,13}", _EPOCH, "ms",
        "make_timestamp({number} * 1000)",
    ),
    "[0-9]{5}": _counted(
        "the date of the days since 1900 (Excel)", "[0-9]{5}",
        datetime(1899, 12, 30),
        "D", "DATE '1899-12-30' + CAST({number} AS INTEGER)",
    ),
}  # fmt: skip


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
