"""What every command has: a help that names its options, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepjoin
from deepjoin.cli.parser import GROUPS
from tests.support.command_line import call, commands

#: Commands that open an index or index a folder, with what else they need.
OPENING = {"graph": [], "info": [], "mcp": [], "search": ["--values", "x"], "serve": []}


@pytest.mark.parametrize("name", commands())
def test_help(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = call(capsys, name, "--help")
    prose = [line for line in answer.out.splitlines() if line[:2] != "  "]
    assert max(map(len, prose)) <= 80
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.startswith(f"usage: deepjoin {name}")
    for action in commands()[name]._actions:
        assert all(option in answer.out for option in action.option_strings)


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "--help")
    assert answer.status == 0
    assert all(f"\n  {name} " in answer.out for name in commands())


def test_the_help_groups_commands_by_use(capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "--help").out
    places = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    assert text.index("\n  search ") < text.index("\n  index ") < text.index("\n  train ")


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "help") == call(capsys, "--help")
    assert call(capsys, "help", "search") == call(capsys, "search", "--help")


def test_without_a_command_the_overview_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in ("80", "200"):
        monkeypatch.setenv("COLUMNS", width)
        answer = call(capsys)
        assert (answer.status, answer.err) == (0, "")
        assert answer.out == call(capsys, "--help").out
        assert max(map(len, answer.out.splitlines())) <= int(width)


@pytest.mark.parametrize("name", OPENING)
def test_an_index_that_is_not_there(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = call(capsys, name, tmp_path / "none", *OPENING[name])
    answer.refused("No index or folder", str(tmp_path / "none"))


@pytest.mark.parametrize("name", OPENING)
def test_an_index_that_is_damaged(
    name: str, lake_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = deepjoin.index(lake_folder, vectors={"cells": "none"}).path
    (index / "manifest.json").write_text("{}")
    call(capsys, name, index, *OPENING[name]).refused(str(index))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gather"], "no command 'gather'"),
        (["info", "data", "orders.csv", "more"], "unrecognized arguments: more"),
        (["search", "data", "--values", "-x"], "is written --values=-x"),
        (["search", "data", "--values", "-5,3", "-k", "0"], "-k: must be a whole number >= 1"),
        (["search", "data", "--values", ""], "--values: must be values such as"),
        (["search", "data", "--values", " , "], "--values: must be values such as"),
        (["graph"], "INDEX"),
        (["graph", "data", "--most", "0"], "--most"),
        (["mcp"], "INDEX"),
        (["mcp", "data", "--port", "1"], "--port"),
        (["serve"], "INDEX"),
        (["serve", "data", "--port", "-1"], "--port"),
        (["serve", "data", "--max-upload", "many"], "--max-upload"),
        (["serve", "data", "--timeout", "0"], "--timeout"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_usage(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, *arguments).refused(text, status=2)


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["serch", "data"], "search"),
        (["--verison"], "--version"),
        (["info", "data", "--frmat", "json"], "--format"),
        (["info", "data", "--frmat=json"], "--format"),
        (["info", "data", "--format", "jsn"], "json"),
        (["search", "data", "--join", "semantik"], "semantic"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_the_nearest_word_is_suggested(
    arguments: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, *arguments).refused(f"Did you mean '{nearest}'?", status=2)


def test_nothing_is_suggested_for_words_unlike_any(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "info", "data", "--zzz")
    answer.refused("unrecognized arguments: --zzz", status=2)
    assert "Did you mean" not in answer.err
