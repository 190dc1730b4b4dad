"""Ctrl-C and SIGTERM end a command within two seconds, from every step of a build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deepjoin
from deepjoin.cli.interrupts import Interrupts

pytestmark = pytest.mark.slow

MESSAGE = "deepjoin: Interrupted. The index is consistent; run the same command to resume.\n"
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}

#: Never ends and takes no time of the processor: waits in native code, which no signal interrupts,
#: as a long call of Faiss or ONNX Runtime would.
FOREVER = """
    import ctypes
    library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_init(lock, None)
    while True:
        library.pthread_mutex_lock(lock)
"""
#: Runs a command in which a step never ends.
STUCK = """
import os, sys
from importlib import import_module
module, _, path = {step!r}.partition(":")
owner = import_module(module)
*outer, name = path.split(".")
for part in outer:
    owner = getattr(owner, part)

def stuck(*arguments, **options):
    os.write(1, b"here\\n")  # whole lines, also of several threads
FOREVER
setattr(owner, name, stuck)
""".replace("FOREVER", FOREVER)
#: Runs a command, and says when it comes to a step.
SAYING = """
import os, sys
from importlib import import_module
module, _, path = {step!r}.partition(":")
owner = import_module(module)
*outer, name = path.split(".")
for part in outer:
    owner = getattr(owner, part)
usual = getattr(owner, name)

def saying(*arguments, **options):
    os.write(1, b"here\\n")
    return usual(*arguments, **options)

setattr(owner, name, saying)
"""
RUN = "from deepjoin.cli import main; sys.exit(main())"

STEPS = {
    "listing": "deepjoin.build.refresh:list_items",
    "reading": "deepjoin.build.segment_builder:SegmentBuilder.read",
    "reducing chunks": "deepjoin.store.values.builder:reduce_chunk",
    "merging postings": "deepjoin.store.values.postings:merge_rows",
    "embedding values": "deepjoin.embed.cells.table:StaticTable.encode",
    "making lists": "deepjoin.store.cell_vectors:ValueVectors.open",
    "merging segments": "deepjoin.build.update:merge_segments",
    "writing to disk": "deepjoin.store.storage:fingerprint",
    "committing": "deepjoin.store.storage:IndexWriter.commit",
    "encoding columns": "deepjoin.embed.columns.onnx_encoder:OnnxEncoder.encode_texts",
    "indexing vectors": "deepjoin.store.column_vectors:index_rows",
}


def seconds_to_start() -> float:
    """Measure how long this machine, busy or not, takes to run almost nothing."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import json"], check=True)
    return time.monotonic() - started


def interrupted(code: str, step: str, number: int, *arguments: object) -> tuple[int, str, float]:
    """Run a command until it comes to a step; return status, stderr and seconds from the signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(step=step) + RUN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=100)
    finally:
        process.kill()  # a command that is stuck would never end
    return process.returncode, said, time.monotonic() - started


def is_prompt(seconds: float) -> bool:
    """Whether a command ended within two seconds, apart from what a busy machine adds."""
    return seconds < 2 + 10 * seconds_to_start()


@pytest.mark.parametrize(
    ("step", "number"), list(zip(STEPS.values(), cycle(STATUS), strict=False)), ids=STEPS
)
def test_a_build_ends_soon_in_any_step(
    lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    monkeypatch.setenv("DEEPJOIN_CACHE", str(tmp_path / "cache"))
    options: tuple[str, ...] = ("--encoder", "default")
    if step == STEPS["merging segments"]:
        deepjoin.index(lake_folder)
        (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
        options = ()
    before = manifest(lake_folder)
    status, said, seconds = interrupted(STUCK, step, number, "index", lake_folder, *options)
    assert (status, said) == (STATUS[signal.Signals(number)], MESSAGE)
    assert is_prompt(seconds), seconds
    if "column" not in step:  # columns are encoded after the commit
        assert manifest(lake_folder) == before
    assert deepjoin.index(lake_folder).search(["Peru", "Chad"], k=1)


def manifest(folder: Path) -> bytes | None:
    path = folder / ".deepjoin" / "manifest.json"
    return path.read_bytes() if path.exists() else None


@pytest.fixture(scope="module")
def many_values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table whose values take several seconds to embed and to sort into lists."""
    folder = tmp_path_factory.mktemp("values")
    names = (f"person {i:x} of town {i * 7919 % 999_983:x}\n" for i in range(300_000))
    (folder / "people.csv").write_text("person\n" + "".join(names))
    return folder


@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("deepjoin.store.cell_vectors:write_in_order", signal.SIGINT),
        ("deepjoin.store.cell_vectors:write_in_order", signal.SIGTERM),
        ("deepjoin.store.cell_vectors:write_value_lists", signal.SIGINT),
    ],
    ids=["embedding", "embedding, SIGTERM", "sorting into lists"],
)
def test_values_are_embedded_in_short_steps(many_values: Path, step: str, number: int) -> None:
    out = many_values / os.urandom(4).hex()
    answer = interrupted(SAYING, step, number, "index", many_values, "-o", out)
    assert answer[:2] == (STATUS[signal.Signals(number)], MESSAGE)
    assert is_prompt(answer[2]), answer


def test_a_search_ends_as_soon(lake_folder: Path) -> None:
    deepjoin.index(lake_folder)
    search = ("search", lake_folder, "--values", "Peru,Chad")
    step = "deepjoin.lake:Lake.search"
    status, said, seconds = interrupted(STUCK, step, signal.SIGTERM, *search)
    assert (status, said) == (143, MESSAGE)
    assert is_prompt(seconds), seconds


@pytest.mark.parametrize("number", STATUS, ids=["SIGINT", "SIGTERM"])
def test_the_status_is_that_of_the_signal_wherever_it_comes(lake_folder: Path, number: int) -> None:
    """Python ends as if by SIGINT where the signal comes in code that was made from a string."""
    code = STUCK.replace(FOREVER, '    exec("while True: pass")\n')
    step = "deepjoin.lake:Lake.search"
    search = ("search", lake_folder, "--values", "Peru")
    deepjoin.index(lake_folder)
    assert interrupted(code, step, number, *search)[:2] == (STATUS[signal.Signals(number)], MESSAGE)


def test_a_signal_while_an_error_is_reported_ends_the_command(lake_folder: Path) -> None:
    step = "deepjoin.cli:say"
    status, said, seconds = interrupted(STUCK, step, signal.SIGTERM, "info", lake_folder / "none")
    assert (status, said) == (143, MESSAGE)
    assert is_prompt(seconds), seconds


def test_a_signal_in_a_finalizer_is_one_line_too(lake_folder: Path) -> None:
    """Python prints what a finalizer raises, and goes on."""
    code = STUCK.replace(FOREVER, "    import time; time.sleep(100)\n")
    code += """
class Held:
    __del__ = stuck

setattr(owner, name, lambda *_, **__: [Held() and 0, stuck()])
"""
    deepjoin.index(lake_folder)
    search = ("search", lake_folder, "--values", "Peru")
    status, said, _ = interrupted(code, "deepjoin.lake:Lake.search", signal.SIGTERM, *search)
    assert (status, said) == (143, MESSAGE)


def test_a_signal_is_heard_while_arrow_reads_a_file_with_errors(lake_folder: Path) -> None:
    """Arrow would handle the signal itself, and forget it for the error of the file."""
    code = STUCK.replace(
        FOREVER,
        """
    import signal, time
    import pyarrow.csv
    class File:  # which Arrow reads while it handles signals
        closed, mode = False, "rb"
        def readable(self): return True
        def seekable(self): return False
        def writable(self): return False
        def read(self, size=-1): time.sleep(1); return b""
        def close(self): pass
    try:
        pyarrow.csv.read_csv(File())
    except pyarrow.ArrowInvalid:
        time.sleep(100)
""",
    )
    status, said, seconds = interrupted(
        code, STEPS["listing"], signal.SIGTERM, "index", lake_folder
    )
    assert (status, said) == (143, MESSAGE)
    assert is_prompt(seconds), seconds


def test_what_is_taken_apart_after_a_signal_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "__unraisablehook__", printed.append)
    interrupts = Interrupts()
    told: Any = SimpleNamespace(exc_type=ValueError, exc_value=ValueError("connection closed"))
    interrupts._ignored(told)
    interrupts.is_raised = True
    interrupts._ignored(told)
    assert printed == [told]


def test_an_ignored_signal_stays_ignored(lake_folder: Path) -> None:
    """A shell lets commands in the background of a script ignore Ctrl-C."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + STUCK
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(step=STEPS["listing"]) + RUN, "index", str(lake_folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=100)[1] == MESSAGE
