"""What users read says all there is: every command, option, public name and method."""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import deepjoin
from deepjoin.search.methods import all_methods
from tests.support.command_line import commands

DOCS = Path(__file__).parents[1] / "docs"


def arguments() -> list[tuple[str, argparse.Action]]:
    return [
        (name, action)
        for name, parser in commands().items()
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]


def section(command: str) -> str:
    """Return what the page says of one command."""
    _, _, after = (DOCS / "cli.md").read_text("utf-8").partition(f"\n## deepjoin {command}")
    return after.partition("\n## ")[0]


def words_of(action: argparse.Action) -> str:
    return " ".join(action.option_strings) or action.dest


every_argument = pytest.mark.parametrize(
    ("command", "action"),
    arguments(),
    ids=[f"{command} {words_of(action)}" for command, action in arguments()],
)


@pytest.mark.parametrize("command", commands())
def test_every_command_has_a_section(command: str) -> None:
    assert section(command).strip()


@every_argument
def test_every_argument_is_documented(command: str, action: argparse.Action) -> None:
    text = section(command)
    if action.dest == "format":
        text = (DOCS / "cli.md").read_text("utf-8").partition("\n## ")[0] + text
    for option in action.option_strings:
        assert f"`{option}" in text or f" {option}" in text
    if not action.option_strings:
        assert str(action.metavar or action.dest) in text
    for choice in action.choices or ():
        assert str(choice) in text


def test_no_option_is_documented_that_does_not_exist() -> None:
    known = {option for _, action in arguments() for option in action.option_strings}
    text = (DOCS / "cli.md").read_text("utf-8")
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= known


@every_argument
def test_every_argument_explains_itself(command: str, action: argparse.Action) -> None:
    assert action.help or action.choices


@pytest.mark.parametrize("name", deepjoin.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    public = getattr(deepjoin, name)
    if name == "__version__":
        assert public.count(".") == 2
        return
    assert inspect.getdoc(public)
    if inspect.isclass(public):
        assert not (inspect.getdoc(public) or "").startswith(f"{name}("), "written by hand"
        for member, value in vars(public).items():
            if not member.startswith("_") and (inspect.isfunction(value) or hasattr(value, "fget")):
                assert inspect.getdoc(value), member


@pytest.mark.parametrize("name", deepjoin.__all__)
def test_every_public_name_is_listed(name: str) -> None:
    assert name in dir(deepjoin)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'deepjoin' has no attribute 'serch'"):
        deepjoin.serch  # noqa: B018


@pytest.mark.slow
def test_every_module_has_a_docstring() -> None:
    for module in pkgutil.walk_packages(deepjoin.__path__, "deepjoin."):
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name


def test_every_method_has_a_summary() -> None:
    assert all(method.summary and method.joins for method in all_methods().values())


def test_the_version_is_that_of_the_project() -> None:
    project = (DOCS.parent / "pyproject.toml").read_text("utf-8")
    assert f'version = "{deepjoin.__version__}"' in project


def test_links_between_pages_lead_somewhere() -> None:
    for page in (*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")):
        for part in page.read_text("utf-8").split("](")[1:]:
            target = part.partition(")")[0].partition("#")[0]
            if target and "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
