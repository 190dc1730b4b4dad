"""The memory of a build: how steps share it, and that a build keeps to it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from deepjoin import index
from deepjoin.build.engine import BuildResources
from deepjoin.build.pipeline import add_tables
from deepjoin.memory import DEFAULT, LEAST, for_cells, rows_at_once
from tests.support.command_line import call


def test_blocks_follow_the_memory() -> None:
    for memory in (0, 1 << 20, 100 << 20, LEAST, DEFAULT, 1 << 40):
        assert 16 <= rows_at_once(memory, 100, 16, 1 << 16, 3) <= 1 << 16
        assert for_cells(memory) <= memory
    assert rows_at_once(LEAST, 2560, 1, 1 << 30, 3) * 2560 * 3 <= LEAST // 4
    assert for_cells(DEFAULT) == 1 << 30


def test_a_limit_below_the_least_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(f"v{i}" for i in range(9)) + "\n")
    (tmp_path / "u.csv").write_text("a\n" + "\n".join(f"w{i}" for i in range(9)) + "\n")
    index(tmp_path / "t.csv", tmp_path / "i")
    said: list[str] = []
    resources = BuildResources(1 << 20, notify=said.append)
    add_tables(tmp_path / "i", tmp_path / "u.csv", resources)
    assert said == [
        "A build needs about 600M of memory; the given limit is lower and will be exceeded."
    ]


@pytest.mark.parametrize("command", ["index", "add", "compact"])
def test_every_command_that_writes_has_a_limit(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(f"v{i}" for i in range(9)) + "\n")
    with zipfile.ZipFile(Path(__file__).parent / "earlier" / "format-2.zip") as file:
        file.extractall(tmp_path)  # to be written anew by `compact`
    more = {"index": [tmp_path / "t.csv", "-o", tmp_path / "new"], "compact": [tmp_path / "index"]}
    more["add"] = [tmp_path / "index", tmp_path / "t.csv"]
    answer = call(capsys, command, *more[command], "--memory", "100M")
    assert answer.status == 0
    assert "A build needs about 600M of memory; the given limit" in answer.err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_build_keeps_to_its_memory(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for table in range(4):
        rows = (f"name {table * 60_000 + i} of {i % 977},{i}" for i in range(60_000))
        (lake / f"{table}.csv").write_text("name,number\n" + "\n".join(rows) + "\n")
    command = [sys.executable, "-m", "deepjoin", "index", str(lake), "-o", str(tmp_path / "i")]
    held = 0
    with subprocess.Popen([*command, "--memory", "600M"], stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
            held = max([held, *map(int, re.findall(r"RssAnon:\s+(\d+)", status))])
            time.sleep(0.02)
    assert process.returncode == 0
    # Some room, since allocators differ.
    assert 0 < held >> 10 < 500
