"""The picture of the layers in docs/architecture.md is the one that lint-imports checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import deepjoin

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
(CONTRACT,) = PROJECT["tool"]["importlinter"]["contracts"]


def rooms(line: str) -> set[str]:
    return {name for name in re.split(r"[\s|:]+", line) if name}


def test_the_picture_shows_the_layers_that_are_checked() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    _, _, after = text.partition("## Layers")
    picture = after.split("```")[1].strip().splitlines()
    drawn = [rooms(line.partition("#")[0]) for line in picture]
    assert drawn == [rooms(layer) for layer in CONTRACT["layers"]]


def test_there_are_few_layers_and_every_room_is_in_one() -> None:
    assert len(CONTRACT["layers"]) <= 10
    named = set().union(*(rooms(layer) for layer in CONTRACT["layers"]))
    package = Path(deepjoin.__path__[0])
    found = {path.stem for path in package.iterdir() if path.suffix == ".py"}
    found |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert named == found - {"__init__"}
