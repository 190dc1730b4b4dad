"""Errors name what the caller used: arguments, options of a shell, fields, controls of the page."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepjoin
from deepjoin.cli.parser import make_parser
from deepjoin.show.wording import CONTROLS, in_fields, in_options, in_tool_arguments, on_page

PACKAGE = Path(deepjoin.__file__).parent
#: An option in a sentence, or at the start of a text that goes on.
OPTION = re.compile(r"(?:(?<=[\s(])|^(?=--[a-z-]+ ))--[a-z][a-z-]*")
#: Whole commands that messages tell everybody to run; {} is a place or a value.
COMMANDS = (
    "deepjoin index SOURCE -o {} --rebuild",
    "deepjoin index INDEX --sketch N",
    "deepjoin index {} --cells {}",
    "deepjoin index {} --encoder fasttext:{}",
    "deepjoin index tables/ --encoder {} --metric {}",
    "deepjoin index {} --cells none, then --cells {}",
    "deepjoin index {} --encoder none, then --encoder {}",
    "deepjoin index {} --sketch 0, then --sketch {}",
    "deepjoin join --matches-out",
    "deepjoin publish --remove",
    "deepjoin serve --host ADDRESS",
    "deepjoin serve --out FOLDER",
    "deepjoin mcp --out FOLDER",
    "pip install --upgrade deltalake",
    "ray start --head",
    "ray start --num-gpus N",
)
#: Arguments that only Python callers have.
WITHOUT_OPTION = {"lake", "settings"}


def texts() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every string outside `cli`, except docstrings."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "cli"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        skipped = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(node.value)
            if isinstance(node, ast.JoinedStr):
                skipped.update(node.values)
        for node in ast.walk(tree):
            if node in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
            yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


@pytest.mark.slow
def test_messages_outside_the_command_line_name_no_options() -> None:
    found, used = [], set()
    for where, text in texts():
        rest = text
        for command in COMMANDS:
            if command in rest:
                used.add(command)
                rest = rest.replace(command, "")
        if OPTION.search(rest):
            found.append(f"{where}: {text}")
    assert found == [], "write the argument in backticks, as deepjoin.errors says"
    assert used == set(COMMANDS)


@pytest.mark.slow
def test_arguments_in_messages_are_options_of_a_command() -> None:
    parser = make_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    known = {name for one in commands.choices.values() for name in one._option_string_actions}
    checked = set()
    for where, text in texts():
        for name, value in re.findall(r"(?<!`)`([a-z_.]+)((?:=[^`]*|\([^`]*\))?)`(?!`)", text):
            if name not in WITHOUT_OPTION:
                option = in_options(f"`{name}{value}`").split()[0]
                assert option in known, f"{where}: {option}"
                checked.add(option)
    assert {"--tau", "-o", "--ann", "--matches-out", "--no-save", "--rebuild"} <= checked


@pytest.mark.parametrize(
    ("text", "shell", "http"),
    [
        ("`tau` is 2; leave it out.", "--tau is 2; leave it out.", "tau is 2; leave it out."),
        ('Use `many="first"`.', "Use --many first.", "Use many=first."),
        ("Use `join='semantic'`.", "Use --join semantic.", "Use join=semantic."),
        ("`min_joinability` is 2.", "--min-joinability is 2.", "min_joinability is 2."),
        ("Name it with `on`.", "Name it with -c.", "Name it with on."),
        ("Choose another `out`.", "Choose another -o.", "Choose another out."),
        ("Use `rebuild=True`.", "Use --rebuild.", "Use rebuild=True."),
        ("Use `save=False`.", "Use --no-save.", "Use save=False."),
        ('Use `index="codes"`.', "Use --ann codes.", "Use index=codes."),
        ("Any free one: `port=0`.", "Any free one: --port 0.", "Any free one: port=0."),
        (
            'Use `plan.reading("pairs.parquet")` to read it.',
            "Use --matches-out pairs.parquet to read it.",
            "Use deepjoin join --matches-out pairs.parquet to read it.",
        ),
        ("No table '`2` B' exists.", "No table '`2` B' exists.", "No table '`2` B' exists."),
    ],
)
def test_arguments_become_options_and_fields(text: str, shell: str, http: str) -> None:
    assert in_options(text) == shell
    assert in_fields(text) == in_tool_arguments(text) == http


def test_agents_read_no_hint_at_a_threshold_they_cannot_set() -> None:
    assert in_tool_arguments("Try another column, or a lower `tau`.") == "Try another column."


#: Rooms whose messages a request of the page can bring to light.
SERVED = (
    "errors",
    "joining",
    "lake",
    "matching",
    "read",
    "relating",
    "search",
    "serve",
    "settings",
)
#: Arguments in those rooms that only Python callers and the shell have.
NOT_ON_PAGE = {"memory_limit", "on", "parts", "sample_rows", "min_distinct", "sketch", "save"}
NOT_ON_PAGE |= {"plan.reading", "device", "vector_store", "host", "port", "time_limit"}
NOT_ON_PAGE |= {"verified", "exclude", "version_query", "least"}
NOT_ON_PAGE |= {"as_of", "ranges", "keys", "decisions", "precision", "doubtful"}


@pytest.mark.slow
def test_messages_on_the_page_name_its_controls() -> None:
    used = set()
    for where, text in texts():
        if not where.startswith(SERVED) or where.startswith("serve/mcp"):
            continue
        read = on_page(text)
        for command in ("deepjoin index ", "deepjoin serve", "pip install", "GET /", "reopen()"):
            assert command not in read, f"{where}: {read}"
        assert not OPTION.search(read), f"{where}: {read}"
        for name in re.findall(r"(?<!`)`([a-z_.]+)(?:=[^`]*|\([^`]*\))?`(?!`)", text):
            assert name in CONTROLS or name in NOT_ON_PAGE, f"{where}: {name}"
            used.add(name)
    assert {"many", "join", "tau", "k", "min_joinability"} | NOT_ON_PAGE <= used


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("`tau` is 2.", "“Minimum similarity” is 2."),
        ('Use `many="aggregate"`.', "Use “summarise”."),
        ('Use `matching="all"`.', "Use “all” under “If several values are similar”."),
        ('Use `plan.reading("pairs.parquet")`.', "Use the Python or Shell code."),
        (
            "x is damaged: a file is gone. Build it again with: deepjoin index SOURCE -o x",
            "x is damaged: a file is gone. Ask whoever runs this service.",
        ),
        (
            "Reading t.xlsx needs fastexcel: pip install 'deepjoin[excel]'",
            "Reading t.xlsx needs fastexcel. Ask whoever runs this service.",
        ),
        ("Read-only (deepjoin serve --out FOLDER). Download it.", "Read-only. Download it."),
        ("No column 'many=first' in 'deepjoin'.", "No column 'many=first' in 'deepjoin'."),
    ],
)
def test_arguments_become_controls_and_commands_are_left_out(text: str, read: str) -> None:
    assert on_page(text) == read
