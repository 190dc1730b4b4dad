"""Canonical strings: the rules, and the array form against the definition."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.normalise.canonical import (
    PROFILES,
    CellType,
    canonical,
    canonical_array,
    cell_type,
    cell_types,
)

CASES = {
    "  Apple ": "apple",
    "ÎLE\u00a0de   France": "île de france",
    "Ｆｕｌｌ ｗｉｄｔｈ ７": "full width 7",
    "ﬁle": "file",
    "7": "7",
    "7.0": "7",
    "7.": "7",
    "+7": "7",
    "-0.0": "0",
    "-7.50": "-7.5",
    ".305": "0.305",
    "007": "007",
    "00.5": "00.5",
    "1,234": "1,234",
    "1e5": "1e5",
    "1.2.3": "1.2.3",
    "2024-01-05": "2024-01-05",
    "2024-1-5": "2024-01-05",
    "2024/01/05": "2024-01-05",
    "2024-01-05T00:00:00": "2024-01-05",
    "2024-01-05 00:00:00.000000Z": "2024-01-05",
    "2024-01-05T10:30": "2024-01-05 10:30:00",
    "2024-01-05 10:30:00.120": "2024-01-05 10:30:00.12",
    "5 Jan 2024": "2024-01-05",
    "5th January 2024": "2024-01-05",
    "05-JAN-2024": "2024-01-05",
    "January 5, 2024": "2024-01-05",
    "Sept. 5 2024": "2024-09-05",
    "31 Feb 2024": "31 feb 2024",
    "2024-13-01": "2024-13-01",
    "03/04/2024": "03/04/2024",
    "": "",
    " \t\n": "",
}


@pytest.mark.parametrize(("cell", "expected"), CASES.items())
def test_canonical_rules(cell: str, expected: str) -> None:
    assert canonical(cell) == expected


def test_basic_profile_strips_and_lowers_only() -> None:
    assert canonical(" A  B 7.0 ", "basic") == "a  b 7.0"


NUMBER_LIKE = st.text("0123456789.+-e ", max_size=12)
DATE_LIKE = st.from_regex(
    r"\A ?[0-9]{1,4}(st|th)?[-/ ](jan|Sept\.|5|12)[-/ ,]{1,2}[0-9]{1,4}[ tT]?(00:00|10:5)?\Z"
)
CELLS = st.one_of(st.text(), NUMBER_LIKE, DATE_LIKE, st.sampled_from(list(CASES)))


@pytest.mark.slow
@given(CELLS)
def test_canonical_is_idempotent(cell: str) -> None:
    for profile in PROFILES:
        once = canonical(cell, profile)
        assert canonical(once, profile) == once


@pytest.mark.slow
@given(st.lists(st.none() | CELLS))
def test_array_form_equals_the_definition(cells: list[str | None]) -> None:
    for profile in PROFILES:
        expected = [None if cell is None else canonical(cell, profile) for cell in cells]
        assert canonical_array(pa.array(cells, pa.string()), profile).to_pylist() == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("abc", CellType.TEXT),
        ("007", CellType.TEXT),
        ("0", CellType.INTEGER),
        ("-12", CellType.INTEGER),
        ("-1.5", CellType.DECIMAL),
        ("2024-01-05", CellType.DATE),
        ("2024-01-05 10:30:00.5z", CellType.DATE),
        ("1\n", CellType.TEXT),
    ],
)
def test_cell_types(value: str, kind: CellType) -> None:
    assert cell_types(pa.array([value])).to_pylist() == [kind]
    assert cell_type(value) is kind


@given(st.lists(st.text("-.0123 :z\n", max_size=12)))
def test_one_by_one_cells_have_the_same_types(values: list[str]) -> None:
    assert [cell_type(value) for value in values] == cell_types(
        pa.array(values, pa.string())
    ).to_pylist()
