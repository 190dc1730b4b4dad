"""One lock and one atomic write, on every system that Python runs on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepjoin.files import TemporaryFolder, locked, replace_file, written_aside

HOLDER = """
import sys, time
from pathlib import Path
from deepjoin.files import locked
with locked(Path(sys.argv[1]), ValueError("busy")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("left by an earlier version")
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="busy"), locked(lock, ValueError("busy")):
            pass
        holder.kill()
        holder.wait()
    with locked(lock, ValueError("busy")), locked(tmp_path / "other", ValueError("busy")):
        pass
    assert lock.exists()


@pytest.mark.parametrize("wait", [True, False])
def test_a_lock_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path, wait: bool) -> None:
    (tmp_path / "lock").mkdir()
    busy = ValueError("busy")
    with pytest.raises(OSError) as caught, locked(tmp_path / "lock", busy, wait=wait):
        pass
    assert caught.value.errno == errno.EISDIR


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps other permissions")
def test_a_lock_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with locked(tmp_path / "lock", ValueError("busy")):
        assert (tmp_path / "lock").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("durable", [True, False])
def test_a_replaced_file_is_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path = tmp_path / "a.json"
    replace_file(path, "old", durable=durable)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", _interrupted)
        replace_file(path, "new", durable=durable)
    assert path.read_text() == "old"
    replace_file(path, "näher".encode(), durable=durable)
    assert path.read_text("utf-8") == "näher"
    assert list(tmp_path.iterdir()) == [path]


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_written_aside_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("before")
    with pytest.raises(KeyboardInterrupt), written_aside(target) as aside:
        aside.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "before"
    with written_aside(target) as aside:
        aside.write_text("whole")
        assert target.read_text() == "before"
    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


KILLED = """
import os, sys
from deepjoin.files import TemporaryFolder
folder = TemporaryFolder(*sys.argv[1:])
(folder.path / "half").write_text("written")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["deepjoin-join-", ".deepjoin-"])
def test_a_folder_of_a_killed_process_goes_with_the_next_one(tmp_path: Path, prefix: str) -> None:
    command = [sys.executable, "-c", KILLED, prefix, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        stray = Path(process.stdout.readline().strip())
        with TemporaryFolder(prefix, tmp_path) as living:
            assert {living, stray} == set(tmp_path.iterdir()), "a living process keeps its folder"
        assert (stray / "half").exists()
        process.kill()
    with TemporaryFolder("deepjoin-other-", tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that were never locked, or that belong to another user."""
    mine, empty = tmp_path / "deepjoin-mine", tmp_path / "deepjoin-empty"
    for folder in (mine, empty):
        folder.mkdir()
    (mine / "a.csv").write_text("a")
    for folder in (mine, empty):
        os.utime(folder, (0, 0))
    with TemporaryFolder("deepjoin-x-", tmp_path):
        assert (mine / "a.csv").exists()
        assert not empty.exists(), "nothing is lost with it"
    (mine / ".lock").touch()
    if hasattr(os, "getuid"):
        monkeypatch.setattr(os, "getuid", lambda: 1 << 30)
        with TemporaryFolder("deepjoin-x-", tmp_path):
            assert (mine / "a.csv").exists()


def test_what_a_killed_write_left_goes_with_the_next_write(tmp_path: Path) -> None:
    stray = tmp_path / ".deepjoin-abc"
    stray.mkdir()
    (stray / ".lock").touch()
    (stray / "out.csv").write_text("half")
    with written_aside(tmp_path / "out.csv") as aside:
        aside.write_text("whole")
    assert list(tmp_path.iterdir()) == [tmp_path / "out.csv"]


ELSEWHERE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

# What Windows does not have; some are loaded before any of our modules is.
ABSENT = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"}
for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())

import deepjoin

lake = deepjoin.index(sys.argv[1], sys.argv[2])
print(len(deepjoin.open(lake.path).search(["France", "Italy", "Peru"])))
"""


@pytest.mark.slow
def test_a_system_without_posix_modules_indexes_and_searches(
    lake_folder: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(lake_folder), str(tmp_path / "index")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert int(done.stdout) > 0
