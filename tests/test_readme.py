"""The README shows what really happens: its Python example is run, its output compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepjoin.cli import main
from deepjoin.demo import write_demo_lake

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_python_example_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, expected = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    write_demo_lake(tmp_path / "deepjoin-demo")
    scope: dict[str, object] = {}
    exec(code, scope)
    assert capsys.readouterr().out == expected
    assert "capital" in scope["enriched"].columns  # type: ignore[attr-defined]


def test_shell_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_demo_lake(tmp_path / "deepjoin-demo")
    commands = re.findall(r"^deepjoin (.*)$", README, re.MULTILINE)
    shell = [c.split() for c in commands if c.startswith(("search", "join"))]
    assert len(shell) == 2
    assert [main(command) for command in shell] == [0, 0]
    assert (tmp_path / "enriched.parquet").exists()
    assert "geo/countries.csv" in capsys.readouterr().out


def test_the_first_thirty_lines_hold_the_essentials() -> None:
    head = "\n".join(README.splitlines()[:31])
    for essential in ("```python", "deepjoin search", "make demo", "make test"):
        assert essential in head
