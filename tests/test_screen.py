"""Tables on terminals of every width and in pipes: what is cut, what never is, and colour."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin.cli import main
from deepjoin.show.text import Screen, aligned, cut_names, text_width

YEARS = (2021, 2022, 2023)
#: Names that differ in their middle alone, and are wider than most terminals.
LONG = [f"{'office-of-' * 8}/report-{year}-final/{'figures-' * 8}all.csv" for year in YEARS]
COLUMN = "country_of_origin_" * 4


class Watched(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index tables with long names that share a key."""
    folder = tmp_path_factory.mktemp("lake")
    for count, name in enumerate([*LONG, "geo/countries.csv"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cells = ["France", "Italy", "Spain", "Peru", "Japan", "Chile", "Cuba", "Fiji"][: 8 - count]
        path.write_text(f"{COLUMN},size\n" + "".join(f"{cell},{len(cell)}\n" for cell in cells))
    deepjoin.index(folder, vectors={"cells": "none"})
    return folder


def search(lake: Path, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Search with the output on a stream; return its lines."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main(["search", str(lake), "--values", "France,Italy,Spain,Peru,Chad"]) == 0
    return stream.getvalue().splitlines()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the environment of the test run may ask for."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_table_fits_the_terminal(lake: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    lines = search(lake, Watched(), monkeypatch)
    assert max(map(text_width, lines[1:])) <= width
    assert max(map(text_width, lines[1:])) > 0.9 * width, "what there is, is used"
    rows = "".join(line for line in lines if re.match(r"\d ", line))
    assert all(str(year) in rows for year in YEARS), "what tells the files apart"


def test_names_are_whole_in_a_pipe(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = search(lake, io.StringIO(), monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = search(lake, io.StringIO(), monkeypatch)
    for lines in (wide, narrow):
        for name in (*LONG, COLUMN):
            assert any(name in line for line in lines)
    assert sum(line.startswith("   ") for line in narrow) == 4, "examples go below long names"
    assert not any(line.startswith("   ") for line in wide)


def test_the_results_of_python_fit_as_well(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = deepjoin.open(lake).search(["France", "Italy", "Spain", "Peru"])
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr(sys, "stdout", Watched())
    lines = repr(results).splitlines()
    assert max(map(text_width, lines)) <= 90 and "\x1b" not in repr(results)


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
    ids=str,
)
def test_colour_where_it_is_wanted(
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    is_terminal: bool,
    expected: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lines = search(lake, Watched() if is_terminal else io.StringIO(), monkeypatch)
    assert ("\x1b[" in "\n".join(lines)) == expected


def test_colour_moves_nothing(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    painted = search(lake, Watched(), monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert [re.sub(r"\x1b\[[\d;]*m", "", one) for one in painted] == search(
        *(lake, Watched(), monkeypatch)
    )


def test_errors_are_marked_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Watched()
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["info", "nowhere"]) == 1
    assert stream.getvalue().startswith("\x1b[1;31mdeepjoin\x1b[0m: No index or folder")


def test_a_terminal_of_unknown_width_has_80_columns() -> None:
    assert Screen.of(Watched()) == Screen(80, True, True)
    assert Screen.of(io.StringIO()) == Screen()


@given(
    st.lists(st.text("ab/_-.é日😀 ", min_size=1, max_size=60), min_size=1, max_size=8),
    st.integers(8, 40),
)
def test_cut_names_stay_different(names: list[str], width: int) -> None:
    cut = cut_names(names, width)
    assert len(set(cut)) == len(set(names))
    fits = [text_width(one) <= width for one in cut]
    assert all(fits) or cut == names, "all are cut, or none"


def test_names_are_cut_in_the_middle() -> None:
    assert cut_names(["geo/" + "x" * 40 + "/cities.csv"], 20) == ["geo/xx…xx/cities.csv"]


def test_wide_letters_are_aligned() -> None:
    lines = aligned([("name", "n"), ("日本", "1"), ("e\u0301", "2")]).splitlines()
    assert lines == ["name  n", "日本  1", "e\u0301     2"]


def test_a_joined_table_shows_the_columns_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lake").mkdir()
    names = ",".join(f"figure {number}" for number in range(30))
    rows = "".join(f"{key},{','.join(['number'] * 30)}\n" for key in "vwxyz")
    (tmp_path / "lake" / "wide.csv").write_text(f"key,{names}\n{rows}")
    mine = tmp_path / "mine.csv"
    command = ["join", tmp_path / "lake", mine, "-c", "k", "--with", "wide.csv:key"]
    mine.write_text("k\nv\nw\n")
    stream = Watched()
    monkeypatch.setenv("COLUMNS", "80")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main(list(map(str, command))) == 0
    assert max(len(re.sub(r"\x1b\[\d*m", "", one)) for one in stream.getvalue().splitlines()) <= 80
    assert "more columns; -o and --format csv have all of them." in capsys.readouterr().err
    assert main(list(map(str, command))) == 0
    assert "figure 29" in capsys.readouterr().out, "a pipe gets them all"
