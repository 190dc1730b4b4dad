"""The README shows what really happens: its examples run, their output is compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deepjoin.cli import main
from deepjoin.demo import write_demo_lake

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


@pytest.fixture
def beside_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the demo lake, as after `make demo`."""
    monkeypatch.chdir(tmp_path)
    write_demo_lake(tmp_path / "deepjoin-demo")


@pytest.mark.slow
@pytest.mark.usefixtures("beside_the_demo")
def test_the_python_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["results"][0].table == "geo/countries.csv"
    assert "capital" in scope["enriched"].column_names


@pytest.mark.slow
@pytest.mark.usefixtures("beside_the_demo")
def test_the_shell_example_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"^deepjoin (search .*)$", README, re.MULTILINE)
    (shown,) = re.findall(r"```\n(#  table.*?)```", README, re.DOTALL)
    assert main(command.split()) == 0
    # The README leaves out hits, which may make columns narrower.
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line.split() for line in shown.splitlines()] == printed[1:3]


def test_the_first_thirty_lines_hold_the_essentials() -> None:
    head = "\n".join(README.splitlines()[:31])
    for essential in ("```python", "deepjoin search", "make demo", "make test"):
        assert essential in head
