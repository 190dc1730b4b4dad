"""What every command has: a help that names its options, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepjoin
from tests.support.command_line import call, commands

#: Commands that open an index or index a folder, with what else they need.
OPENING = {"graph": [], "info": [], "mcp": [], "search": ["--values", "x"], "serve": []}


@pytest.mark.parametrize("name", commands())
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, name, "--help")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.startswith(f"usage: deepjoin {name}")
    for action in commands()[name]._actions:
        assert all(option in answer.out for option in action.option_strings)


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "--help")
    assert answer.status == 0
    assert all(f"\n    {name} " in answer.out for name in commands())


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
