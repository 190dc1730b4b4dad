"""What holds for every source of tables, and for those who use one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import deepjoin
from deepjoin.errors import DeepJoinError
from deepjoin.read import KINDS, reopen
from deepjoin.settings import Settings

HOUSE = Path(deepjoin.__file__).parent


def names_of(node: ast.AST) -> set[str]:
    """Return every name and attribute inside a syntax tree."""
    nodes = list(ast.walk(node))
    names = {one.id for one in nodes if isinstance(one, ast.Name)}
    return names | {one.attr for one in nodes if isinstance(one, ast.Attribute)}


def classes_asked_for(code: str) -> set[str]:
    """Return the sources whose class a module asks for: isinstance, issubclass, type, match."""
    asked: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and names_of(node.func) & {"isinstance", "issubclass"}:
            asked |= names_of(node.args[1])
        if isinstance(node, ast.Compare):
            asked |= set().union(*map(names_of, node.comparators))
        if isinstance(node, ast.MatchClass):
            asked |= names_of(node.cls)
    return {name for name in asked if name.endswith("Source")}


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(one, FileSource)",
        "isinstance(one, read.FileSource | int)",
        "type(one) is FileSource",
        "type(one) in (int, FileSource)",
        "issubclass(type(one), FileSource)",
        "match one:\n    case FileSource(root=root): pass",
    ],
)
def test_asking_for_a_class_is_noticed(code: str) -> None:
    assert classes_asked_for(code) == {"FileSource"}


def test_nobody_outside_asks_for_the_class_of_a_source() -> None:
    modules = [path for path in HOUSE.rglob("*.py") if HOUSE / "read" not in path.parents]
    asked = {str(path): classes_asked_for(path.read_text("utf-8")) for path in modules}
    assert {path: names for path, names in asked.items() if names} == {}


def test_a_kind_this_version_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="a kind this version does not know: 'telex'"):
        reopen({"kind": "telex"}, tmp_path, Settings())


def test_nothing_is_left_to_reopen_of_frames_and_removed_sources(tmp_path: Path) -> None:
    assert reopen({"kind": "memory"}, tmp_path, Settings()) is None
    assert reopen({"kind": "gone"}, tmp_path, Settings()) is None
    assert "memory" not in KINDS
