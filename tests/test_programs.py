"""Programs: what they find, and that their Python, SQL and pandas forms agree."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin.joining.entry import JoinWarning
from deepjoin.matching import formats, steps, units
from deepjoin.matching.programs import _CONSTANT, Rewriting, _taken_apart, find_programs
from deepjoin.matching.steps import ProgramStep

pd = pytest.importorskip("pandas")

#: Line breaks are left out: a dot of a regular expression means another thing in each engine.
CELLS = st.text(
    st.sampled_from("abZÉé07 .,-/_@()';:\"")
    | st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]),
    max_size=14,
)
STEPS = [
    *(steps.split(by, at) for by in (" ", ",", "-", "'") for at in (0, 1, -1, -2)),
    *(steps.after(by) for by in (",", " ", " - ")),
    *(steps.before_last(by) for by in (",", " ")),
    *(steps.found(pattern, "run", at) for pattern, _ in steps._RUNS for at in (0, 1, -1)),
    *(steps.begin(1), steps.begin(3), steps.end(2), steps.middle(1, 3), steps.padded(5)),
    *(steps.TITLE, steps.BRACKETED, steps.CAPITALS, steps.INITIALS, steps.DIGITS, steps.NO_DIGITS),
    *(steps.NO_ZEROS, steps.NO_TAGS, steps.NO_MIDDLE, steps.FIRST_LAST, steps.NO_SUFFIX),
    *(steps.SQUASHED, steps.NO_SCHEME, steps.TITLE.then(steps.FIRST_LAST)),
    steps.split(" ", -1).then(steps.begin(1)),
    *(formats.NUMBER, formats._HEX, formats._BINARY, steps.ROMAN, formats.PLAIN_DATE),
    *(formats.months_in(language) for language in ("French", "German", "Spanish")),
    *(units.FEET, units.HOURS, units.MINUTES, units.FIRST_NUMBER),
    *(make("%Y-%m-%d %H:%M:%S") for make in formats._COUNTED.values()),
]
#: Cells that the steps above change.
WRITTEN = [
    *("5'7\"", "6 ft 1 in", "12 feet", "1:02:03", "59:07", "9:5", "1,250.5 kg", "VII", "xix"),
    *("Thursday, September 9th, 2021", "9. März 2021", "1 août 2020", "3 de mayo de 1999"),
    *("2021-09-09T22:02:00.5Z", "1631145600", "1631145600123", "44448", "99999"),
]


def in_sql(step: ProgramStep, cells: list[str]) -> list[str | None]:
    rows = duckdb.execute(
        f"SELECT {step.sql.replace('{x}', 'cell')} FROM (SELECT unnest($1) AS cell, "
        "unnest(range(len($1))) AS place) ORDER BY place",
        [cells],
    ).fetchall()
    return [row[0] for row in rows]


def in_pandas(step: ProgramStep, cells: list[str]) -> list[str | None]:
    series = pd.Series(cells, dtype=object)
    found = eval(step.pandas.replace("{x}", "cells"), {"cells": series, "pd": pd})
    return [None if pd.isna(cell) else cell for cell in found]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@example(["\xa0a", "a\xa0,\u2003b", "\u3000x y"], steps.split(" ", 0))
@example(["\xa0a", "a\xa0,\u2003b", "\u3000x y"], steps.split(",", -1))
@example(["Acme Inc\n", "a b\n", "7\n"], steps.NO_SUFFIX)
@given(st.lists(CELLS, min_size=1, max_size=6), st.sampled_from(STEPS))
def test_a_step_gives_the_same_text_in_python_sql_and_pandas(
    cells: list[str], step: ProgramStep
) -> None:
    expected = [step(cell) for cell in cells]
    # DuckDB trims other kinds of spaces too, unless the characters are given.
    assert in_sql(step, cells) == expected
    assert in_pandas(step, cells) == expected


def test_dates_units_and_numerals_are_the_same_in_python_sql_and_pandas() -> None:
    for step in STEPS:
        expected = [step(cell) for cell in WRITTEN]
        assert in_sql(step, WRITTEN) == expected, step.words
        assert in_pandas(step, WRITTEN) == expected, step.words


def test_dates_without_separators_and_early_years_are_the_same_in_every_form() -> None:
    cells = ["20200131", "2020131", "202001", "20201", "0930", "930", "0999-01-02"]
    for shape in ("%Y%m%d", "%Y%m", "%H%M", "%Y-%m-%d"):
        step = formats._reread(shape, "%Y-%m-%d %H:%M")
        expected = [step(cell) for cell in cells]
        assert len([one for one in expected if one]) == 1
        assert in_sql(step, cells) == in_pandas(step, cells) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [("Anna Smith", "Smith, A."), ("19610223", "23.02.1961"), ("smith, john", "jsmith")],
)
def test_a_synthesised_program_gives_its_example_in_every_form(source: str, target: str) -> None:
    made = _taken_apart(source, target)
    assert made
    for step in made:
        assert step(source).lower() == target.lower()  # type: ignore[union-attr]
        assert in_sql(step, [source]) == in_pandas(step, [source]) == [step(source)]


@pytest.mark.parametrize("constant", ["{x}", "a{x}'b", '\\{x}"', "{0}{{x}}", "\x1b[2J\n\u202e"])
def test_a_constant_of_a_program_stays_text(constant: str) -> None:
    """It comes from a cell, which may hold what stands for the cell, or codes of a terminal."""
    step = steps.joined([steps.begin(2), constant], 1)
    assert (step.words + step.sql + step.pandas).isprintable()
    assert in_sql(step, ["Oslo"]) == in_pandas(step, ["Oslo"]) == [step("Oslo")]
    cities = ["berlin", "paris", "london", "madrid", "lisbon", "vienna", "prague", "oslo"]
    left = [f"{city}.{city} {number}" for number, city in enumerate(cities)]
    right = [f"{city}{city[:2]}@{{x}}.org" for city in cities]
    (one,) = found(left, right)
    assert "@{' || 'x}.org" in one.program.sql and r"@\x7bx}.org" in one.program.pandas


def found(left: list[str], right: list[str]) -> list[Rewriting]:
    return find_programs(left, right, np.arange(len(left)))


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (
            ["Smith, Anna", "Doe, John", "Lee, Kim", "Ng, Eva"],
            ["Eva Ng", "Kim Lee", "John Doe", "Anna Smith"],
            "the last word, then",
        ),
        (["1001", "8013", "9001", "12"], ["01001", "08013", "09001", "00012"], "zeros in front"),
        (
            ["2020-03-01", "2020-03-13", "2021-11-30"],
            ["03/13/2020", "11/30/2021", "03/01/2020"],
            "%m/%d/%Y",
        ),
        (["January", "March", "June"], ["3", "6", "1"], "the number of the month"),
        (["3", "7", "18", "40"], ["0.9144", "5.4864", "2.1336", "12.192"], "feet to metres"),
        (["(244) 655-094", "(308) 916-545", "(623) 599-749"],
         ["244.655.094", "308.916.545", "623.599.749"], "letters and digits"),
        (["2021-09-09", "2020-03-01", "2019-11-30"],
         ["Sunday, March 1st, 2020", "Saturday, November 30th, 2019",
          "Thursday, September 9th, 2021"], "without weekday"),
        (["2021-09-09", "2020-03-01", "2019-12-30"],
         ["30. Dezember 2019", "9. September 2021", "1. März 2020"], "in German"),
        (["1631145600", "1583020800", "1575072000"],
         ["2020-03-01", "2019-11-30", "2021-09-09"], "seconds since 1970"),
        (["44448", "43891", "43799"], ["03/01/2020", "11/30/2019", "09/09/2021"], "Excel"),
        (["2021-09", "2020-03", "2019-11"], ["Mar-20", "Nov-19", "Sep-21"], "%b-%y"),
        (["2021-09-09", "2020-03-01", "2019-11-30"], ["Q1 2020", "Q4 2019", "Q3 2021"],
         "the quarter"),
        (["2021-09-09T22:02:00Z", "2020-03-01T10:00:00Z", "2019-11-30T23:59:59Z"],
         ["03/01/2020", "11/30/2019", "09/09/2021"], "%m/%d/%Y"),
        (["5025", "75", "12345"], ["1:23:45", "0:01:15", "3:25:45"], "as seconds"),
        ([f"{at // 12}'{at % 12}\"" for at in range(60, 72)],
         [f"{at * 2.54:.0f} cm" for at in range(60, 72)], "inches to centimetres"),
        (["70 kg", "81 kg", "93 kg"], ["154.3 lb", "178.6 lb", "205.0 lb"], "kilograms to pounds"),
        (["0.771", "0.05", "0.314"], ["5.0%", "31.4%", "77.1%"], "hundredth"),
        (["I", "IV", "IX", "XL"], ["4", "40", "1", "9"], "Roman numeral"),
        (["Anna Smith", "John Doe", "Kim Lee"],
         ["jdoe@acme.org", "asmith@acme.org", "klee@acme.org"], "then '@acme.org'"),
    ],
)  # fmt: skip
def test_programs_are_found(left: list[str], right: list[str], words: str) -> None:
    (one,) = found(left, right)
    assert words in one.program.text
    assert one.program.covers == len(left)
    assert one.program.exceptions == 0
    assert sorted(one.left.tolist()) == list(range(len(left)))
    assert sorted(one.right.tolist()) == list(range(len(right)))


def test_the_sql_of_units_reads_thousands_on_both_sides() -> None:
    left, right = ["70 kg", "81 kg", "93 kg", "600 kg"], ["154.3 lb", "178.6 lb", "205.0 lb",
                                                           "1,322.8 lb"]  # fmt: skip
    (one,) = found(left, right)
    joined = duckdb.execute(
        "SELECT left_cell, right_cell FROM (SELECT unnest($1) AS left_cell), "
        f"(SELECT unnest($2) AS right_cell) WHERE {one.program.sql} ORDER BY ALL",
        [left, right],
    ).fetchall()
    assert joined == sorted(zip(left, right, strict=True))
    assert units._conversion(2.0, 0, "twice", 1)("n/a") is None


def test_the_whole_column_settles_the_order_of_day_and_month() -> None:
    (one,) = found(["2020-01-02", "2020-04-03", "2020-12-25"],
                   ["02/01/2020", "03/04/2020", "25/12/2020"])  # fmt: skip
    pairs = dict(zip(one.left.tolist(), one.right.tolist(), strict=True))
    assert pairs == {0: 0, 1: 1, 2: 2}
    assert "%d/%m/%Y" in one.program.text


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["apple", "pear", "plum", "fig"], ["oslo", "lima", "rome", "bern"]),
        (["1", "2", "3", "4", "5"], ["11", "12", "13", "14", "15"]),
        (["10", "20", "30"], ["1", "2", "3"]),
        (["a"], ["b"]),
        ([], ["b"]),
        (["x", "y", "z"], []),
        # The seasons of two leagues have their years alone in common.
        ([f"{year} Mongolian National Cup" for year in range(1980, 1990)],
         [f"{year} Estonian Football Cup" for year in range(1980, 1990)]),
        # The first digit of every year is 2: that makes no quarter of it.
        (["2021/x", "2020/y", "2022/z", "2023/a"], ["Q2 2021", "Q1 2021", "Q2 2020", "Q4 2020",
                                                    "Q3 2022", "Q4 2022", "Q1 2023", "Q3 2023"]),
        # Any minute of a day is among the numbers up to 1,500.
        ([f"{at // 60:02}:{at % 60:02}" for at in range(3, 1440, 7)],
         [str(number) for number in range(1, 1501)]),
    ],
)  # fmt: skip
def test_chance_is_no_program(left: list[str], right: list[str]) -> None:
    assert found(left, right) == []


def test_separators_of_a_program_are_not_constant_letters() -> None:
    parts = [steps.split("-", at) for at in (0, 1)]
    assert not _CONSTANT.search(steps.joined([parts[0], ", ", parts[1]], 1).words)
    constants: list[list[ProgramStep | str]]
    constants = [["Q", *parts], [parts[0], "-Q"], [*parts, " nr ", parts[0]]]
    for constant in constants:
        assert _CONSTANT.search(f"{steps.joined(constant, 1).words}, the value")
        assert _CONSTANT.search(f"the value, {steps.joined(constant, 1).words}")


def test_a_second_program_leaves_alone_what_the_first_has_matched() -> None:
    left = ["Germany", "France", "Italy", "Spain", "Poland", "Austria", "Brazil", "Canada",
            "Mexico", "Norway", "Sweden", "Finland", "Greece", "Turkey", "Egypt", "Japan",
            "Switzerland", "China"]  # fmt: skip
    right = ["DEU", "FRA", "ITA", "ESP", "POL", "AUT", "BRA", "CAN", "MEX", "NOR", "SWE", "FIN",
             "GRC", "TUR", "EGY", "JPN", "CHE", "CHN"]  # fmt: skip
    assert [one.program.text for one in found(left, right)] == ["left: the first 3 characters"]


def test_a_program_says_how_many_values_share_a_match() -> None:
    left = ["Honda125", "Honda250", "Acura125", "Ducati100", "Ducati125"]
    (one,) = found(left, ["Honda", "Acura", "Ducati"])
    assert one.program.text == "left: the value without digits"
    assert one.program.merged == 2


def test_joins_and_reports_say_that_values_share_a_match() -> None:
    makes = {"make": ["Honda125", "Honda250", "Acura125", "Ducati100", "Ducati125"]}
    known = {"name": ["Honda", "Acura", "Ducati"], "land": ["JP", "US", "IT"]}
    with pytest.warns(JoinWarning, match=r"2 of them lead to the match of another"):
        deepjoin.join(makes, known, on=("make", "name"))
    found = deepjoin.match(makes["make"], known["name"])
    assert "(5 values, 2 of which share the match of another one)" in " ".join(repr(found).split())
    (one,) = found.programs
    assert replace(one, covers=1, merged=0).covering == "1 value"
    assert replace(one, merged=1).covering.endswith("1 of which shares the match of another one")


def test_where_many_values_are_equal_a_program_does_not_lead_to_kinds() -> None:
    genera = ["Hyla", "Rana", "Bufo", "Pipa", "Atelopus", "Triturus", "Litoria", "Salamandra"]
    species = [f"{genus} {end}" for genus in genera for end in ("alba", "nigra", "rubra", "minor")]
    right = [*genera, *species[::4]]
    free = np.array([at for at, value in enumerate(species) if value not in right])
    assert find_programs(species, right, free) == []
    # Without values that are equal, the genus is all that a species can be matched with.
    (found,) = find_programs(species, genera, np.arange(len(species)))
    assert found.program.text == "left: the first word"
