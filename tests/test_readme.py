"""The README is a story that runs: its blocks in their order, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.wheel_check import INSTALLED, ROOT, blocks, run_story

README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """With the package as a wheel has it, which `make wheel-check` installs with all it needs."""
    check = [sys.executable, "tools/wheel_check.py", "--here"]
    # As Python sees it: readline, which pytest loads, adds COLUMNS to the environment behind it.
    clean = dict(os.environ)
    done = subprocess.run(check, cwd=ROOT, env=clean, capture_output=True, text=True)
    if "No matching distribution found" in done.stderr:  # of what builds it; there is no network
        python = Path(sys.executable)
        assert (python.parent / "deepjoin").exists(), "the command is installed"
        run_story(tmp_path, python, {**os.environ, "PYTHONPATH": str(ROOT / "src")})
        assert (tmp_path / "deepjoin-demo" / "lake" / ".deepjoin").is_dir()
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("installed and used\n")


def test_a_line_that_is_shown_must_have_been_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = "```sh\necho one\n```\n```text\ntwo\n```\n"
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: pages)
    with pytest.raises(SystemExit, match="shows a line that was not printed: two"):
        run_story(tmp_path, Path(sys.executable), os.environ)


def test_the_story_has_a_shell_its_output_and_python() -> None:
    assert [language for language, _ in blocks(README)] == ["sh", "text", "python"]
    # Two lines cannot run in an empty folder; what replaces them is what they do.
    shell = blocks(README)[0][1].splitlines()
    assert [line for line in shell if line in INSTALLED] == list(INSTALLED)
    assert "$(BIN)/deepjoin demo" in (ROOT / "Makefile").read_text("utf-8")


def test_a_shell_without_comments_can_run_the_block() -> None:
    """Pasted into zsh, # and what follows it are arguments."""
    assert not any("#" in code for language, code in blocks(README) if language == "sh")


def test_make_demo_ends_with_the_line_that_makes_the_command_available() -> None:
    command = ["make", "--no-print-directory", "-n", "-o", ".venv/installed", "demo"]
    # Make, which may run these tests, tells its children to name their directories.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].endswith('source .venv/bin/activate"')


def test_the_first_thirty_lines_hold_the_essentials() -> None:
    head = "\n".join(README.splitlines()[:31])
    for essential in ("```python", "deepjoin search", "make demo", "make test"):
        assert essential in head
