"""`deepjoin serve` as a process: workers that share one index, a clean stop, clear refusals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin.cli import main
from deepjoin.serve.http import running
from deepjoin.serve.http.settings import ServerSettings

pytestmark = pytest.mark.slow


@contextmanager
def started(*arguments: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a service; gives the process and its address."""
    command = [sys.executable, "-m", "deepjoin", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "http://" in line:
                break
        assert "http://" in said[-1], said
        yield process, said[-1].split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def fetched(address: str, path: str, body: Any = None) -> Any:
    """Ask the service; a new connection each time, so that any worker may answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def text(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        return str(answer.read(), "utf-8")


@pytest.mark.parametrize(("workers", "sent"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_workers_share_what_there_is_and_stop(
    lake_folder: Path, tmp_path: Path, workers: int, sent: signal.Signals
) -> None:
    deepjoin.index(lake_folder)
    private = tmp_path / "private"
    private.mkdir()
    with started(lake_folder, "--workers", workers, TMPDIR=str(private)) as (process, address):
        assert fetched(address, "api/lake")["tables"] == 3
        upload = fetched(address, "api/uploads/values", {"values": ["Peru", "Italy"]})["upload"]
        asked = {"query": {"upload": upload, "column": "values"}, "join": "equi"}
        for _ in range(8):
            hits = fetched(address, "api/search", asked)["hits"]
            assert hits[0]["table"] == "geo/countries.csv"
        counted = 'deepjoin_requests_total{method="POST",route="/search",status="200"} 8.0'
        assert counted in text(address, "metrics")
        assert len(list(private.glob("deepjoin-serve-*"))) == 1
        process.send_signal(sent)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "Stopped."
    assert list(private.glob("deepjoin-*")) == []


def test_what_a_worker_writes_aside_is_in_the_folder_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(running, "create_app", lambda _: tempfile.mkdtemp())
    made = Path(str(running._app(ServerSettings("index", tmp_path))))
    assert made.parent == tmp_path / "scratch" == Path(os.environ["TMPDIR"])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command here, for it to fail, and return its one line."""
    assert main(["serve", *map(str, arguments)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


def test_a_port_that_is_taken_is_reported(
    lake_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deepjoin.index(lake_folder)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(capsys, lake_folder, "--port", port)
    assert line.startswith(f"deepjoin: Port {port} of 127.0.0.1 is in use by another program.")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host", "1.2.3.4.5"], "Cannot find the host '1.2.3.4.5'"),
        (["--host", "192.0.2.1"], "Cannot serve at 192.0.2.1, port 8765: Cannot assign"),
        (["--port", "70000"], "--port is 70000; ports go from 0 to 65535."),
        (["--token", "two words"], "--token must be letters, digits and punctuation"),
        (["--token", ""], "--token must be letters, digits and punctuation"),
        (["--out", "no/such/folder"], "--out 'no/such/folder' is not a writable folder"),
    ],
)
def test_what_cannot_be_served_is_reported(
    lake_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    deepjoin.index(lake_folder)
    line = refused(capsys, lake_folder, *arguments)
    assert text in line


def test_an_index_that_is_not_there_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No index or folder" in refused(capsys, tmp_path / "nothing")


def test_the_missing_extra_is_reported(
    lake_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")

    monkeypatch.setattr("deepjoin.optional.import_module", without)
    line = refused(capsys, lake_folder)
    assert line.endswith("deepjoin serve needs fastapi: pip install 'deepjoin[server]'")


def test_options_reach_the_service(
    lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    deepjoin.index(lake_folder)
    given: list[Any] = []
    monkeypatch.setattr(running, "serve", lambda *asked: given.extend(asked))
    monkeypatch.setenv("DEEPJOIN_TOKEN", "from-the-environment")
    more = ["--max-upload", "1MB", "--max-rows", "7", "--timeout", "0.5", "--workers", "3"]
    command = ["serve", str(lake_folder), "--host", "0.0.0.0", "--out", str(tmp_path), *more]
    assert main(command) == 0
    settings, port, workers, ready = given
    assert (settings.token, settings.max_upload, settings.max_rows, settings.seconds) == (
        *("from-the-environment", 1 << 20, 7, 0.5),
    )
    assert (settings.out, settings.host, port, workers) == (tmp_path, "0.0.0.0", 8765, 3)
    ready("http://127.0.0.1:1/")
    said = capsys.readouterr().err
    assert "(3 tables) at http://127.0.0.1:1/" in said
    assert "from-the-environment" not in said


def test_what_others_can_read_is_warned_of_and_the_browser_opened(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deepjoin.index(lake_folder)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(running, "serve", lambda settings, port, workers, ready: ready("http://x/"))
    assert main(["serve", str(lake_folder), "--open", "--host", "0.0.0.0"]) == 0
    assert opened == ["http://x/"]
    assert "warning: whoever can reach 0.0.0.0 can read this lake" in capsys.readouterr().err


def test_workers_go_when_their_parent_is_killed(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    with started(lake_folder, "--workers", 1) as (process, address):
        fetched(address, "healthz")
        tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not tasks.exists():
            pytest.skip("no /proc: workers cannot be found")
        workers = [os.pidfd_open(int(child)) for child in tasks.read_text().split()]
        assert workers
        process.kill()
        process.wait()
        with selectors.DefaultSelector() as ends:
            for worker in workers:
                ends.register(worker, selectors.EVENT_READ)
            while ends.get_map():
                ended = ends.select(60)
                assert ended, "they have ended"
                for key, _ in ended:
                    ends.unregister(key.fd)
                    os.close(key.fd)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that answer requests."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    command = "/proc/{}/cmdline".format
    return [int(one) for one in children if b"spawn_main" in Path(command(one)).read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers in /proc")
def test_a_worker_that_dies_is_reported_and_replaced(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    with started(lake_folder, "--workers", 1) as (process, address):
        assert fetched(address, "api/lake")["tables"] == 3
        (worker,) = workers_of(process)
        os.kill(worker, signal.SIGBUS)
        assert fetched(address, "api/lake")["tables"] == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert f"Worker {worker} died (Bus error); another takes its place" in said


def test_a_request_that_the_end_of_the_service_cuts_short_is_answered(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    values = [f"Person {number:x} of Town {number * 7919 % 9973:x}" for number in range(200_000)]
    answers: list[tuple[int, Any]] = []

    def ask(address: str) -> None:
        try:
            fetched(address, "api/search", {"query": {"values": values}, "join": "semantic"})
        except urllib.error.HTTPError as error:
            with error:
                answers.append((error.code, json.load(error)["error"]))

    with started(lake_folder, "--workers", 1) as (process, address):
        asking = threading.Thread(target=ask, args=(address,))
        asking.start()
        while re.search(r"requests_held [1-9]", text(address, "metrics")) is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        asking.join(60)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert answers == [(503, "The service was stopped before it could answer.")]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers in /proc")
def test_a_service_stops_while_a_worker_does_not_answer(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    with started(lake_folder, "--workers", 1) as (process, address):
        assert fetched(address, "healthz")["status"] == "ok"
        (worker,) = workers_of(process)
        os.kill(worker, signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
