"""Indexes of earlier versions are read, checked, extended, and written anew by `compact`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.checksums import NAME
from deepjoin.store.manifest import FORMAT
from tests.support.command_line import call

#: Made by `tests/earlier/make.py` with the code of that time; one for every format of the past.
EARLIER = {int(path.stem[7:]): path for path in Path(__file__).parent.glob("earlier/format-*.zip")}


@pytest.fixture(params=EARLIER)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(EARLIER[request.param]) as file:
        file.extractall(tmp_path)
    assert format_of(tmp_path) == request.param
    return tmp_path


def format_of(place: Path) -> Any:
    return json.loads((place / "index" / "manifest.json").read_text())["format"]


def answers(lake: Lake, place: Path, changed: bool = False) -> tuple[list[Any], list[Any]]:
    """Return what the lake answered then and answers now.

    How likely similar values are one thing depends on all values that have vectors, which are
    fewer in a lake that is ``changed``.
    """
    asked = json.loads((place / "answers.json").read_text())
    found = [
        [
            [hit.table, hit.column, hit.equi.matched,
             sorted([match.query, match.target] for match in hit.matches),
             0 if changed and kind == "any" else pytest.approx(hit.joinability, abs=0.002)]
            for hit in lake.search(query, 10, join=kind)
        ]
        for query, kind, _ in asked
    ]  # fmt: skip
    then = [
        [[table, column, matched, matches, 0 if changed and kind == "any" else joinability]
         for table, column, joinability, matched, matches in hits]
        for _, kind, hits in asked
    ]  # fmt: skip
    return [sorted(hits, key=str) for hits in then], [sorted(hits, key=str) for hits in found]


def test_every_format_of_the_past_is_here() -> None:
    assert sorted(EARLIER) == list(range(1, FORMAT))


def test_an_earlier_index_answers_as_it_did(place: Path) -> None:
    lake = deepjoin.open(place / "index")
    then, found = answers(lake, place)
    assert found == then
    assert lake.check().problems == []


def test_compact_writes_an_earlier_index_anew(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call(capsys, "compact", place / "index").err
    assert "Wrote the segment anew in" in said
    assert format_of(place) == FORMAT
    lake = deepjoin.open(place / "index")
    (record,) = lake.index.records
    assert NAME in record.files
    assert not any(segment.is_outdated for segment in lake.index.segments)
    then, found = answers(lake, place, True)
    assert found == then
    assert lake.check().problems == []
    assert not lake.compact()


def test_an_earlier_index_goes_on(place: Path) -> None:
    """New tables are in the present format, beside segments of the earlier one or merged."""
    table = place / "new.csv"
    table.write_text("name,number\n" + "".join(f"Peru {i},{i}\n" for i in range(9)) + "CHAD,9\n")
    lake = deepjoin.open(place / "index")
    lake.add(table)
    assert format_of(place) == FORMAT
    assert "new.csv" in {hit.table.rsplit("/")[-1] for hit in lake.search(["Chad", "Peru 3"])}
    assert lake.check().problems == []
    lake.compact()
    lake.remove("*new.csv")
    then, found = answers(lake, place, True)
    assert found == then
    assert lake.check().problems == []
