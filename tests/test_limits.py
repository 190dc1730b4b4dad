"""A process with too few descriptors or too little memory says so in one line."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepjoin
from deepjoin import DeepJoinError
from deepjoin.errors import ResourceLimit, resource_limit
from deepjoin.joining import session

FILES = "Too few file descriptors: close programs, or raise the limit, e.g. ulimit -n 1024."
FULL = "The disk that is written to is full: free some space on it."
MEMORY = "Not enough memory: free some, or raise the limit of this process (ulimit -v)."
needs_ulimit = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), FILES),
        (OSError(errno.ENFILE, "Too many open files in system"), FILES),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
        (MemoryError(), MEMORY),
        (OSError(errno.ENOSPC, "No space left on device"), FULL),
        (RuntimeError("can't start new thread"), MEMORY),
        (TypeError("Got unexpected argument type <class 'str'> for compute function"), MEMORY),
        (OSError(errno.ENOENT, "No such file"), None),
        (ValueError("no"), None),
    ],
)
def test_limits_are_distinguished_from_other_errors(error: Exception, said: str | None) -> None:
    limit = resource_limit(error)
    assert (None if limit is None else str(limit)) == said


def limited(limit: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell with a limit."""
    words = [sys.executable, "-m", "deepjoin", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *words], capture_output=True, text=True
    )


@needs_ulimit
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_join_that_does_not_fit_on_its_disk_says_so(
    lake_folder: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python 3.11 would keep what it has compiled, cut short.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    deepjoin.index(lake_folder)
    (tmp_path / "q.csv").write_text(
        "country,n\nItaly,0\n" + "".join(f"x{n},{n}\n" for n in range(9000))
    )
    out = tmp_path / f"o.{ending}"
    arguments = (
        *("join", lake_folder, tmp_path / "q.csv", "-c", "country"),
        *("--with", "geo/countries.csv:country", "-o", out),
    )
    done = limited("-f 2; trap '' XFSZ", *arguments)
    line = f"Cannot write {out}: File too large. Choose a folder that exists and has room."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"deepjoin: {line}")
    done = limited("-f 0; trap '' XFSZ", *arguments)
    line = "No temporary folder can be written to: free some space, or name one with TMPDIR."
    assert (done.returncode, done.stderr) == (1, f"deepjoin: {line}\n")
    assert not out.exists()


@needs_ulimit
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "limit", "said"),
    [
        ("search", "-n 16", FILES),
        ("info", "-n 16", FILES),
        ("check", "-n 16", FILES),
        ("index", "-n 16", FILES),
        ("search", "-v 300000", "deepjoin needs 430 MB of address space, and the limit of"),
        ("match", "-v 300000", "deepjoin needs 430 MB of address space, and the limit of"),
        ("index", "-v 500000", "A build with cell vectors needs 690 MB of address space, and the"),
        ("serve", "-v 600000", "The service needs 800 MB of address space, and the limit of"),
        (
            "join",
            "-v 500000",
            "A join needs 800 MB of address space, and the limit of this process",
        ),
    ],
)
def test_one_line_says_which_limit(command: str, limit: str, said: str, lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    rest: dict[str, list[object]] = {
        "search": ["--values", "France,Peru"],
        "index": ["--rebuild"],
        "match": [lake_folder / "geo/cities.csv"],
        "serve": ["--port", 0],
        "join": [
            lake_folder / "geo/cities.csv",
            "-c",
            "nation",
            "--with",
            "geo/countries.csv:country",
        ],
    }
    done = limited(limit, command, lake_folder, *rest.get(command, []))
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "damaged" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", ["info", "search", "--help"])
def test_an_output_that_does_not_fit_is_one_line(command: str, lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    more = ["--values", "France,Peru"] if command == "search" else []
    words = [sys.executable, "-m", "deepjoin", command, str(lake_folder), *more]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, f"deepjoin: {FULL}\n")


@needs_ulimit
@pytest.mark.slow
def test_a_search_works_in_500_megabytes(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    done = limited("-v 488000", "search", lake_folder, "--values", "France,Peru,Itlay")
    assert done.returncode == 0, done.stderr
    assert "geo/countries.csv" in done.stdout


def test_a_join_is_refused_where_duckdb_would_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500_000_000, -1))
    with pytest.raises(ResourceLimit, match="the limit of this process is 500 MB; raise it with"):
        session.Session()


def test_joins_hold_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(asked: str | None = None) -> str:
        one = session.Session(asked)
        ((found,),) = one.run("SELECT current_setting('memory_limit')")
        one.close()
        return str(found)

    assert limit("1GiB") == "1.0 GiB"
    assert re.fullmatch(r"[\d.]+ [GT]iB", limit())
    for own, expected in (("96.0 GiB", "12.0 GiB"), ("4.5 GiB", "2.0 GiB"), ("1.0 GiB", "1.0 GiB")):
        monkeypatch.setattr(session.Session, "_limit", lambda _, own=own: own)
        assert limit() == expected
    with pytest.raises(DeepJoinError, match="`memory_limit` is 'much'; it must be a size such as"):
        session.Session("much")
