"""What a person sees of a long build: a bar that moves, a clean line after it, a quiet pipe."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepjoin
from deepjoin.cli import output
from deepjoin.cli.output import progress_bar
from deepjoin.model import Column
from deepjoin.read.corpus import write_corpus
from deepjoin.show.text import cut

MOVING = re.compile(r"\d+%\|.*\| \d+/\d+ \[\d\d:\d\d<\d\d:\d\d, +[\d.]+ tables/s, [^\]]+\]")
COLUMNS = 100
#: More tables than can be indexed between the first bar and an interrupt, on any machine.
TABLES = 3000


class Terminal(io.TextIOWrapper):
    """A pseudo-terminal: what is written to it can be read at ``screen``."""

    def __init__(self) -> None:
        self.screen, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        super().__init__(os.fdopen(end, "wb", 0), encoding="utf-8", write_through=True)

    def read(self, size: int | None = -1) -> str:
        """Read what has been written until now, or until every writer has gone."""
        try:
            return os.read(self.screen, 1 << 16).decode("utf-8", "replace")
        except OSError:
            return ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.closing(Terminal()) as made:
        yield made
        os.close(made.screen)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write more tables than can be indexed in a moment."""
    folder = tmp_path_factory.mktemp("many")
    rows = "".join(f"{i},name {i},{i * i}\n" for i in range(20))
    for number in range(TABLES):
        (folder / f"table{3 * number + 5:05}.csv").write_text(f"id {number},name,square\n{rows}")
    return folder


def command(folder: Path, index: Path, include: str = "*.csv") -> list[str]:
    words = ("-m", "deepjoin", "index", str(folder), "-o", str(index), "--include", include)
    return [sys.executable, *words]


def indexing(folder: Path, index: Path, terminal: Terminal) -> subprocess.Popen[str]:
    """Index in another process that a person watches."""
    process = subprocess.Popen(
        command(folder, index), stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    terminal.close()
    return process


def shown(text: str) -> list[str]:
    """Return the lines that stay on a screen, written over as a terminal does."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@pytest.mark.slow
def test_a_terminal_shows_a_bar_and_keeps_a_clean_line(
    many: Path, tmp_path: Path, terminal: Terminal
) -> None:
    with indexing(many, tmp_path / "index", terminal) as process:
        text = "".join(iter(terminal.read, ""))
    assert process.wait() == 0
    assert MOVING.search(text)
    assert f"/{TABLES} " in text
    assert "table0" in text
    assert max(len(part) for part in re.split("[\r\n]", text) if "%|" in part) <= COLUMNS
    assert shown(text)[0].startswith(f"Indexed {TABLES:,} tables")
    assert not any("%|" in line for line in shown(text))


@pytest.mark.slow
def test_a_pipe_shows_no_bar(lake_folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(lake_folder, tmp_path / "i"), capture_output=True, text=True)
    assert done.returncode == 0
    assert "\r" not in done.stderr
    assert done.stderr.startswith("Indexed 3 tables")


@pytest.mark.slow
@pytest.mark.parametrize("exists", [True, False], ids=["again", "first"])
def test_an_interrupt_is_one_line_and_leaves_nothing_behind(
    many: Path, tmp_path: Path, terminal: Terminal, exists: bool
) -> None:
    index = tmp_path / "index"
    if exists:
        assert subprocess.run(command(many, index, "table0000*.csv")).returncode == 0
    before, paths = content(index), set(index.rglob("*"))
    with indexing(many, index, terminal) as process:
        text = part = terminal.read()
        while part and not MOVING.search(text):
            text += (part := terminal.read())
        process.send_signal(signal.SIGINT)
        text += "".join(iter(terminal.read, ""))
    assert process.wait() == 130
    assert [line for line in shown(text) if line] == [
        "deepjoin: Interrupted. The index is consistent; run the same command to resume."
    ]
    if exists:
        assert (content(index), set(index.rglob("*"))) == (before, paths)
    else:
        assert {path.name for path in index.rglob("*")} <= {"lock", "segments"}


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drawn(terminal: Terminal, *calls: tuple[int, int, str]) -> str:
    """Call a bar on a terminal and return all that was written there."""
    with contextlib.redirect_stderr(terminal), progress_bar() as show:
        for call in calls:
            show(*call)
    terminal.write("end")
    text = ""
    while not text.endswith("end"):
        text += terminal.read()
    return text.removesuffix("end")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a bar draw itself at every call, not ten times a second."""
    make = output.make_bar

    def bar(done: int, total: int, unit: str) -> Any:
        made = make(done, total, unit)
        made.mininterval = 0
        return made

    monkeypatch.setattr(output, "make_bar", bar)


@pytest.mark.usefixtures("eager")
def test_a_large_table_moves_the_bar_while_it_is_read(terminal: Terminal) -> None:
    text = drawn(
        terminal,
        (0, 2, "big.csv"),
        (0, 2, "big.csv: 1,000,000 rows"),
        (0, 2, "big.csv: 2,000,000 rows"),
        (1, 2, "big.csv"),
        (1, 2, "big2.csv"),
    )
    for words in ("0/2", "1,000,000 rows", "2,000,000 rows", "1/2", "big2.csv"):
        assert words in text
    assert shown(text) == [""]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "name",
    ["日本語の長い名前" * 9 + ".csv", "line\nfeed\tand \x1b[31mcolour.csv", "e\u0301" * 90, ""],
    ids=["wide", "control", "combining", "empty"],
)
def test_any_name_fits_on_the_line(terminal: Terminal, name: str) -> None:
    text = drawn(terminal, (1, 3, name), (2, 3, name))
    assert "\n" not in text
    assert "\x1b[31m" not in text
    assert "2/3" in text


@pytest.mark.usefixtures("eager")
def test_more_tables_may_turn_up_and_none_may_be_there(terminal: Terminal) -> None:
    text = drawn(terminal, (0, 0, ""), (1, 2, "a"), (1, 5, "b"), (0, 5, "b"))
    assert "1/5" in text


@pytest.mark.usefixtures("eager")
def test_every_kind_of_work_is_counted_in_its_unit(terminal: Terminal) -> None:
    """Also where more is done than of the work before, so that it could be the same work."""
    text = drawn(
        terminal,
        (3, 3, "orders.csv"),
        (32_768, 300_000, "values"),
        (40_000, 90_000, "columns"),
        (64 << 20, 1 << 30, "bytes"),
    )
    bars = [part for part in text.split("\r") if "%|" in part]
    for count, rate in (
        ("3/3", " tables/s"),
        ("32.8k/300k", " values/s"),
        ("40.0k/90.0k", " columns/s"),
        ("64.0M/1.00G", "B/s"),
    ):
        assert [bar for bar in bars if count in bar and rate in bar], bars
    assert sum("tables/s" in bar for bar in bars) == sum("3/3" in bar for bar in bars)


def test_a_build_reports_the_values_that_it_embeds(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.store.cell_vectors._BLOCK", 8)
    calls: list[tuple[int, int, str]] = []
    lake = deepjoin.index(lake_folder, progress=lambda *call: calls.append(call))
    values = lake.report.values
    done = [call for call in calls if call[2] == "values"]
    assert done == [(min(n, values), values, "values") for n in range(0, values + 8, 8)]


def test_the_columns_of_a_corpus_are_counted_as_columns(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", [Column(list("abcde")), Column(list("vwxyz"))])
    calls: list[tuple[int, int, str]] = []
    deepjoin.index(tmp_path / "corpus", progress=lambda *call: calls.append(call))
    assert (2, 2, "columns") in calls


def test_without_work_there_is_no_bar(terminal: Terminal) -> None:
    assert drawn(terminal) == ""


def test_a_dumb_terminal_is_left_alone(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert drawn(terminal, (1, 2, "a")) == ""


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("", 5, ""),
        ("abcde", 5, "abcde"),
        ("abcdef", 5, "…cdef"),
        ("日本", 4, "日本"),
        ("日本語", 5, "…本語"),
        ("日本語", 4, "…語"),
        ("xe\u0301e\u0301e\u0301", 3, "…e\u0301e\u0301"),
    ],
)
def test_names_are_shortened_by_the_columns_they_take(text: str, width: int, expected: str) -> None:
    assert cut(text, width, -1) == expected


@pytest.mark.slow
def test_a_search_shows_equal_hits_and_progress_before_the_answer(
    terminal: Terminal, tmp_path: Path
) -> None:
    names = [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{n // 676}ton" for n in range(1200)]
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "towns.csv").write_text("town\n" + "\n".join(names[:900]) + "\n")
    query = tmp_path / "mine.csv"
    query.write_text("town,n\n" + "\n".join(f"{name},{n}" for n, name in enumerate(names)) + "\n")
    deepjoin.index(tmp_path / "lake")

    def search(*more: str) -> tuple[str, str]:
        ask = [sys.executable, "-m", "deepjoin", "search", str(tmp_path / "lake"), str(query)]
        with subprocess.Popen(
            [*ask, *more], stdout=subprocess.PIPE, stderr=terminal, text=True
        ) as process:
            out = process.stdout.read()  # type: ignore[union-attr]
        return out, terminal.read()

    out, screen = search("-c", "town")
    assert "by equal values" in screen and "similar values of 0 of 1,200" in screen
    assert "not complete" not in out and out.count("towns.csv") > 0
    out, screen = search()
    assert re.search(r"\d/2 \[.* columns/s", screen) and "by equal values" not in screen
    assert "other columns of yours" in out
    out, screen = search("-c", "town", "--time-limit", "0.000001")
    assert "not complete: similar values of 0 of 1,200 were looked up" in out
    out, screen = search("-c", "town", "--time-limit", "0.000001", "--format", "json")
    assert json.loads(out)["partial"]["done"] == 0
    assert "Not complete after 1e-06 seconds: similar values of 0 of 1,200" in screen
