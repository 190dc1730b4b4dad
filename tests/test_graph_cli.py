"""`deepjoin graph`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv

import deepjoin
from deepjoin.cli import main


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Index three tables, two of which share towns with the first."""
    tables = {
        "towns": {"town": ["Oslo", "Rome", "Lima", "Bern", "Kiev"]},
        "trips": {"to": ["oslo", "rome", "rome", "lima", "bern"]},
        "guests": {"from": ["Rome", "Lima", "Bern", "Turku", "Pau"]},
    }
    deepjoin.index(
        tables,
        tmp_path / "lake",
        settings=deepjoin.Settings(min_distinct=2),
        vectors={"cells": "none"},
    )
    return tmp_path / "lake"


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command; returns its status, stdout and stderr."""
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_graph_is_made_kept_and_reported(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    status, out, err = call(capsys, "graph", lake)
    assert (status, out) == (0, "2 joins with joinability >= 0.7 between 3 columns of 3 tables\n")
    assert "3 of 3 columns joined in " in err
    assert "; saved in the index" in err
    _, again, err = call(capsys, "graph", lake)
    assert again == out
    assert "0 of 3 columns joined in " in err


def test_edges_are_written(capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    arguments = ("graph", lake, "--min-joinability", 0.6, "-o", edges, "--no-save")
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (0, "3 joins with joinability >= 0.6 between 3 columns of 3 tables\n")
    assert f"3 edges in {edges}\n" in err
    assert "kept" not in err
    assert not (lake / "graph").exists()
    pairs = {(row["a_table"], row["b_table"]) for row in csv.read_csv(edges).to_pylist()}
    assert pairs == {("trips", "towns"), ("trips", "guests"), ("guests", "towns")}


def test_json_sums_up(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    status, out, _ = call(capsys, "graph", lake, "--format", "json", "--rebuild")
    said: dict[str, Any] = json.loads(out)
    assert status == 0
    assert said.keys() == {"index", "min_joinability", "least", "edges", "columns", "tables",
                           "saved", "work", "seconds"}  # fmt: skip
    assert (said["index"], said["edges"], said["saved"]) == (str(lake), 2, True)


def test_the_least_probability_is_said(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    status, out, _ = call(capsys, "graph", lake, "--least", 1)
    text = "0 joins with joinability >= 0.7 and probability >= 1 between 0 columns of 0 tables\n"
    assert (status, out) == (0, text)


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    status, out, err = call(capsys, "graph", lake, "--most", 1)
    assert (status, out) == (0, "1 joins with joinability >= 0.7 between 2 columns of 2 tables\n")
    assert "1 edges were left out: --most 1.\n" in err


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["-o", "edges.txt"], 1, "Cannot write edges.txt: its ending must be one of .csv, "),
        (["--min-joinability", "0"], 1, "min_joinability is 0.0; it must be above 0"),
    ],
)
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], lake: Path, options: list[str], status: int, text: str
) -> None:
    found, out, err = call(capsys, "graph", lake, *options)
    assert (found, out) == (status, "")
    assert text in err


@pytest.mark.parametrize("options", [["--most", "0"], ["--min-joinability", "2"], ["--least", "7"]])
def test_usage_errors_exit_2(lake: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["graph", str(lake), *options])
