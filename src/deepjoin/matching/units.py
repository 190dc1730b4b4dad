"""Conversions between units, found in the numbers of two columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int
from deepjoin.matching.steps import WHOLE, ProgramStep, found, replaced
from deepjoin.read.sql import literal

#: Cells that must follow a format before it counts as the column's own.
_MOSTLY = 0.8
#: The share of the numbers of a column without gaps that must be met.
_MET = 0.5
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

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
    (1000000, 0, "a millionth of the unit"),
    (10, 0, "a tenth of the unit"), (100, 0, "a hundredth of the unit"),
    (1000, 0, "a thousandth of the unit"), (1024, 0, "a 1,024th of the unit"),
    (60, 0, "hours to minutes"), (3600, 0, "hours to seconds"), (24, 0, "days to hours"),
    (1.8, 32, "Celsius to Fahrenheit"), (1, 273.15, "Celsius to kelvin"),
    (57.29577951308, 0, "radians to degrees"),
)  # fmt: skip


def _in_two_units(words: str, pattern: str, factors: tuple[int, ...]) -> ProgramStep:
    """Read texts such as 5'7" or 1:30:00 as one number of the smaller unit."""
    compiled = re.compile(pattern)

    def run(cell: str) -> str | None:
        met = compiled.fullmatch(cell.strip(" "))
        if met is None:
            return None
        return str(sum(int(one or 0) * each
                       for one, each in zip(met.groups(), factors, strict=True)))  # fmt: skip

    text = "trim({x}, ' ')"
    parts = " + ".join(
        f"coalesce(TRY_CAST(regexp_extract({text}, {literal(pattern)}, {at}) AS BIGINT), 0)"
        f" * {each}"
        for at, each in enumerate(factors, 1)
    )
    columns = " + ".join(
        f'{{x}}.str.strip(" ").str.extract({"^" + pattern + "$"!r})[{at}].fillna("0")'
        f".astype(int) * {each}"
        for at, each in enumerate(factors)
    )
    return ProgramStep(
        words, run,
        f"CASE WHEN regexp_full_match({text}, {literal(pattern)}) "
        f"THEN CAST({parts} AS VARCHAR) END",
        f'({columns}).astype("string").where({{x}}.str.strip(" ").str.fullmatch({pattern!r}))',
        1.0,
    )  # fmt: skip


FEET = _in_two_units(
    "feet and inches as inches",
    "([0-9]{1,4}) *(?:'|′|ft|feet) *(?:([0-9]{1,2}) *(?:\"|″|''|in|inches))?", (12, 1),
)  # fmt: skip
HOURS = _in_two_units(
    "hours, minutes and seconds as seconds", "([0-9]{1,6}):([0-5][0-9]):([0-5][0-9])", (3600, 60, 1)
)
MINUTES = _in_two_units(
    "minutes and seconds as seconds, or hours and minutes as minutes",
    "([0-9]{1,6}):([0-5][0-9])", (60, 1),
)  # fmt: skip
#: The first number of a cell, whose other characters are a unit.
_AROUND = re.compile("[0-9][0-9,]*(?:[.][0-9]+)?")
FIRST_NUMBER = found(_AROUND.pattern, "number", 0).then(replaced(",", "", ""))
FIRST_NUMBER = replace(FIRST_NUMBER, words="the first number", cost=2.0)
_LONGEST_UNIT = 12


class _Numbers(NamedTuple):
    """The numbers of a column, and how they are read."""

    values: Double
    #: Half a unit of the last digit of each.
    slack: Double
    step: ProgramStep
    #: Whether the cells are lengths or times in two units (5'7", 1:30:00): no chance then.
    is_sure: bool = False


def unit_pairs(
    left: list[str], right: list[str]
) -> tuple[ProgramStep, ProgramStep, Int, Int] | None:
    """Find the conversion of units that maps most numbers of the left to the right.

    The right numbers are rounded, so they are compared up to the last digit they have. Returned
    are the steps of both sides, and the places of what meets.
    """
    mine, theirs = _numbers_of(left), _numbers_of(right)
    if mine is None or theirs is None:
        return None
    known, others = (np.flatnonzero(~np.isnan(one.values)) for one in (mine, theirs))
    if len(known) < 3 or len(others) < 3 or len(known) < _MOSTLY * len(left):
        return None
    order = others[np.argsort(theirs.values[others], kind="stable")]
    goals, slack = theirs.values[order], theirs.slack[order]
    is_sure = mine.is_sure or theirs.is_sure
    is_plain = mine.step is WHOLE and theirs.step is WHOLE
    best: tuple[int, ProgramStep, Int, Int] | None = None
    for factor, offset, words in _conversions(is_sure):
        wanted = mine.values[known] * factor + offset
        at = np.searchsorted(goals, wanted)
        near = np.stack([np.clip(at - 1, 0, len(goals) - 1), np.clip(at, 0, len(goals) - 1)])
        away = np.abs(goals[near] - wanted)
        place = near[away.argmin(axis=0), np.arange(len(wanted))]
        allowed = np.maximum(slack[place], np.abs(wanted) * 2e-5)
        hit = np.abs(goals[place] - wanted) <= allowed
        # By chance a number would meet one of the column's if those lie close together.
        spread = (goals[-1] - goals[0]) or 1.0
        dense = 2 * allowed.mean() * len(goals) / spread
        count = len(np.unique(place[hit]))
        is_met = hit.mean() >= 0.95 and len(hit) >= 8 and count >= _MET * len(goals)
        if dense > 0.2 and not (is_sure and is_met and dense < 1.2):
            continue
        integral = bool(np.all(goals == np.rint(goals)) and factor in (10, 100, 1000, 1, 24, 60))
        if (
            count >= 3 and hit.mean() >= 0.8 and not (integral and is_plain)
            and (best is None or count > best[0])
        ):  # fmt: skip
            decimals = Counter(np.rint(-np.log10(2 * slack[place[hit]])).astype(int).tolist())
            step = mine.step
            if factor != 1 or offset:
                step = _conversion(factor, offset, words, decimals.most_common(1)[0][0])
                step = step if mine.step is WHOLE else mine.step.then(step)
            best = count, step, known[hit], order[place[hit]]
    return None if best is None else (best[1], theirs.step, *best[2:])


def _conversions(is_sure: bool) -> Iterator[tuple[float, float, str]]:
    if is_sure:
        yield 1, 0, ""
    for factor, offset, words in _UNITS:
        yield factor, offset, words
        one, _, other = words.partition(" to ")
        back = f"{other} to {one}" if other else f"{factor:,} times the unit"
        yield 1 / factor, -offset / factor, back


def _numbers_of(cells: list[str]) -> _Numbers | None:
    """Read the numbers of a column: plain, in two units, or with the same text around them."""
    if not any(cell[-1:].isdigit() or cell[:1].isdigit() or "%" in cell for cell in cells[:20]):
        return None
    found = _Numbers(*_parsed(cells), WHOLE)
    if np.mean(~np.isnan(found.values)) >= _MOSTLY:
        return found
    for step in (FEET, HOURS, MINUTES):
        read = _Numbers(*_parsed([step(cell) or "" for cell in cells]), step, is_sure=True)
        if np.mean(~np.isnan(read.values)) >= _MOSTLY:
            return read
    around = Counter(_AROUND.sub("\0", cell.strip(" "), count=1) for cell in cells)
    text, count = around.most_common(1)[0]
    if count < _MOSTLY * len(cells) or "\0" not in text or len(text) > _LONGEST_UNIT:
        return None
    same = [_AROUND.sub("\0", cell.strip(" "), count=1) == text for cell in cells]
    bare = [FIRST_NUMBER(cell) or "" if one else "" for cell, one in zip(cells, same, strict=True)]
    return _Numbers(*_parsed(bare), FIRST_NUMBER)


def _parsed(cells: list[str]) -> tuple[Double, Double]:
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

    def run(cell: str) -> str | None:
        text = cell.strip(" ").replace(",", "")
        if not _NUMBER.fullmatch(text):
            return None
        return f"{round(float(text) * factor + offset, decimals):.12g}"

    return ProgramStep(
        words,
        run,
        f"round(TRY_CAST(replace({{x}}, ',', '') AS DOUBLE) * {factor:.12g}{plus}, {decimals})",
        f'(pd.to_numeric({{x}}.str.replace(",", ""), errors="coerce") * {factor:.12g}{plus})'
        f".round({decimals})",
        1.5,
    )
