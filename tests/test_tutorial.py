"""The tutorial and the examples run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepjoin.cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_block_of_the_tutorial_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = re.findall(r"```(python)?\n(.*?)```", TUTORIAL, re.DOTALL)
    assert len(blocks) > 8
    for language, block in blocks:
        if language:
            exec(block, scope)
        else:
            for line in block.strip().splitlines():
                assert main(line.removeprefix("deepjoin ").split()) == 0, line
    printed = capsys.readouterr().out
    assert "geo/countries.csv country 0.9" in printed
    for name in ("enriched.parquet", "enriched.csv", "joins.csv"):
        assert (tmp_path / name).stat().st_size


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
