"""Folders as they are found: every file is read right or named with a reason, and no run stops."""

from __future__ import annotations

import builtins
import bz2
import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deepjoin
from deepjoin import Lake
from deepjoin.read import delimited
from tests.support.command_line import Run, call

CITIES = ["Zürich", "Málaga", "Orléans", "Västerås", "Göteborg", "Tromsø"]
PLAIN = "city,n\n" + "".join(f"{city},{i}7\n" for i, city in enumerate(CITIES))


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"city": CITIES, "n": range(6)}), out)
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("inside.csv", PLAIN)
    return out.getvalue()


ROWS = PLAIN.splitlines()[1:]
#: Files that hold the cities in their first text column, and a note that must come of each.
READ: dict[str, tuple[bytes, str]] = {
    "plain.csv": (PLAIN.encode(), ""),
    "mark.csv": (PLAIN.encode("utf-8-sig"), ""),
    "utf16-mark-le.csv": (b"\xff\xfe" + PLAIN.encode("utf-16-le"), ""),
    "utf16-mark-be.csv": (b"\xfe\xff" + PLAIN.encode("utf-16-be"), ""),
    "utf16-le.csv": (PLAIN.encode("utf-16-le"), ""),
    "utf16-be.csv": (PLAIN.encode("utf-16-be"), ""),
    "latin1.csv": (PLAIN.encode("latin-1"), "not UTF-8"),
    "nul.csv": (PLAIN.replace(",", "\0,").encode(), "NUL bytes"),
    "crlf.csv": (PLAIN.replace("\n", "\r\n").encode(), ""),
    "cr.csv": (PLAIN.replace("\n", "\r").encode(), ""),
    "mixed-ends.csv": (
        "city,n\r\nZürich,1\nMálaga,2\rOrléans,3\r\nVästerås,4\nGöteborg,5\r\nTromsø,6".encode(),
        "",
    ),
    "blank-lines.csv": (PLAIN.replace("\n", "\n\n").encode(), ""),
    "ragged.csv": (
        "city,n\nZürich,1\nMálaga\nOrléans,3,extra\nVästerås,4\nGöteborg,5\nTromsø,6\n".encode(),
        "too few cells",
    ),
    "same-names.csv": (PLAIN.replace("city,n", "city,city").encode(), ""),
    "no-header.csv": ("".join(f"{row},x\n" for row in ROWS).encode(), "No header"),
    "preamble.csv": (f"Cities of Europe\nSource: made up\n\n{PLAIN}".encode(), "before the table"),
    "semicolon.csv": (PLAIN.replace(",", ";").encode(), ""),
    "tabs.tsv": (PLAIN.replace(",", "\t").encode(), ""),
    "quoted.csv": (
        PLAIN.replace("Zürich,07", '"Zürich","0\n7"').replace("Málaga", '"Málaga"').encode(),
        "",
    ),
    "quoted-head.csv": (PLAIN.replace("city,n", '"city\nname","n\n(1)"').encode(), ""),
    "packed.csv.gz": (gzip.compress(PLAIN.encode()), ""),
    "packed.csv.bz2": (bz2.compress(PLAIN.encode()), ""),
    "packed-in-secret.csv": (gzip.compress(PLAIN.encode()), ""),
    "array.json": (json.dumps([{"city": c, "n": i} for i, c in enumerate(CITIES)]).encode(), ""),
    "lines.jsonl": ("".join(json.dumps({"city": c}) + "\n" for c in CITIES).encode(), ""),
    "table.parquet": (parquet(), ""),
    "parquet-in-secret.csv": (parquet(), ""),
}
#: Files that are no tables, and what must be said of each.
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b" \n\n \n", ""),
    "mark-only.csv": (b"\xef\xbb\xbf", ""),
    "picture.csv": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(99), "a PNG image"),
    "paper.csv": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF document"),
    "archive.csv": (zipped(), "a zip archive"),
    "page.csv": (b"<!DOCTYPE html><html><body>404, Not Found</body></html>", "an HTML page"),
    "binary.csv": (bytes(range(256)) * 40, "binary"),
    "cut.csv.gz": (gzip.compress(PLAIN.encode() * 99)[:-30], "cut short"),
    "false.csv.gz": (b"\x1f\x8b" + b"no gzip at all" * 9, "damaged"),
    "corrupt.parquet": (parquet()[:60] + b"\xff" * 80 + parquet()[140:], ""),
    "cut.parquet": (parquet()[:-20], ""),
    "text.parquet": (PLAIN.encode(), ""),
    "object.json": (b'{"cities": 7}', ""),
    "broken.json": (b'[{"city": "Z', ""),
    "cut.jsonl": (b'{"city": "Z\n', ""),
    "false.xlsx": (b"PK\x03\x04 no workbook", ""),
    "notes.docx": (b"PK\x03\x04", "not a table format we read (.docx)"),
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(call, capsys)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Index all of these files at once."""
    folder = tmp_path_factory.mktemp("found")
    for name, (content, _) in {**READ, **REFUSED}.items():
        (folder / name).write_bytes(content)
    (folder / "header-only.csv").write_text("city,n\n")
    (folder / "loop").mkdir()
    (folder / "loop" / "again").symlink_to(folder)
    (folder / "loop" / "itself.csv").symlink_to(folder / "loop" / "itself.csv")
    (folder / "loop" / "gone.csv").symlink_to(folder / "nowhere.csv")
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    return deepjoin.index(folder, folder.parent / "found-index")


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_odd_files_are_read_right(found: Lake, name: str) -> None:
    hits = {hit.table: hit for hit in found.search(CITIES, 100)}
    assert name in hits, found.report.skipped
    assert hits[name].joinability == 1
    assert hits[name].equi.reverse == 1
    assert [match.target for match in hits[name].matches] == CITIES
    note = READ[name][1]
    notes = found.table(name).notes
    assert any(note in one for one in notes) if note else not notes


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_named_with_a_reason(found: Lake, name: str) -> None:
    assert name not in set(found.tables)
    (reason,) = (one.reason for one in found.report.skipped if one.name == name)
    assert REFUSED[name][1] in reason
    assert reason.isprintable(), "one line"
    assert 0 < len(reason) < 250
    assert str(found.path.parent) not in reason, "the name alone is enough"


@pytest.mark.slow
def test_every_file_is_accounted_for(found: Lake) -> None:
    skipped = {one.name: one.reason for one in found.report.skipped}
    assert set(found.tables) == {*READ, "header-only.csv"}
    assert set(skipped) == {
        *REFUSED,
        *("loop/again", "loop/itself.csv", "loop/gone.csv", "pipe.csv"),
    }
    assert skipped["loop/again"] == "links to a folder that is already listed"
    assert skipped["loop/gone.csv"] == "broken link"
    assert skipped["pipe.csv"] == "not a regular file"


def test_a_header_alone_is_a_table_without_rows(found: Lake) -> None:
    entry = found.table("header-only.csv")
    assert entry.rows == 0
    assert [(c.name, c.left_out) for c in entry.columns] == [
        *(("city", "no values"), ("n", "no values"))
    ]


def test_same_names_are_distinguished(found: Lake) -> None:
    names = [column.name for column in found.table("same-names.csv").columns]
    assert names[0] == "city"
    assert len(set(names)) == 2


def test_the_report_is_printed(run: Run, found: Lake) -> None:
    lines = run("info", found.path).out.splitlines()
    for name in REFUSED:
        assert sum(line.startswith(f"  {name}: ") for line in lines) == 1
    assert f"Not read: {len(REFUSED) + 4}." in lines


@pytest.mark.parametrize("name", [*REFUSED, "header-only.csv", "folder.csv", "pipe.csv"])
def test_a_query_that_is_no_table_is_refused(run: Run, found: Lake, name: str) -> None:
    path = found.index.root / name if found.index.root else Path(name)
    for column in ([], ["-c", "city"]):
        answer = run("search", found.path, path, *column, "--format", "json")
        if name == "header-only.csv":
            assert answer.status == 0
            assert answer.json["hits"] == []
        else:
            answer.refused(name)


@pytest.mark.parametrize("name", ["empty.csv", "picture.csv", "cut.csv.gz", "corrupt.parquet"])
def test_a_left_side_that_is_no_table_is_refused(run: Run, found: Lake, name: str) -> None:
    assert found.index.root is not None
    target = ("-c", "city", "--with", "plain.csv:city")
    run("join", found.path, found.index.root / name, *target).refused(name)


@pytest.mark.slow
def test_a_target_that_was_mended_is_joined_as_it_was_read(run: Run, found: Lake) -> None:
    assert found.index.root is not None
    query = found.index.root / "table.parquet"
    for name in READ:
        key = found.table(name).columns[0].name
        target = ("-c", "city", "--with", f"{name}:{key}", "--format", "json")
        answer = run("join", found.path, query, *target)
        assert answer.status == 0, answer.err
        assert "6 of 6 rows match (1:1)" in answer.err, name


def test_a_workbook_of_empty_sheets_as_query(run: Run, found: Lake, tmp_path: Path) -> None:
    import openpyxl

    openpyxl.Workbook().save(tmp_path / "empty.xlsx")
    run("search", found.path, tmp_path / "empty.xlsx").refused("empty.xlsx")


@pytest.mark.slow
def test_a_query_whose_name_is_no_text(run: Run, found: Lake, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text(PLAIN)
    answer = run("search", found.path, path, "-c", "city", "--format", "json")
    assert answer.status == 0, answer.err
    assert answer.json["hits"][0]["joinability"] == 1


@pytest.mark.parametrize("way", ["asked", "tried"])
def test_no_permission(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Root may read anything, so the system's answers are replaced."""
    (tmp_path / "good.csv").write_text(PLAIN)
    closed = tmp_path / "closed.csv"
    closed.write_text(PLAIN)
    may, really_open = os.access, builtins.open

    def access(path: Any, mode: int, **options: Any) -> bool:
        return Path(path) != closed and may(path, mode, **options)

    def opened(path: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(path, str | Path) and Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *arguments, **options)

    if way == "asked":
        monkeypatch.setattr(os, "access", access)
    else:
        monkeypatch.setattr(builtins, "open", opened)
    answer = run("index", tmp_path)
    assert "Indexed 1 table:" in answer.err
    (line,) = (line for line in answer.err.splitlines() if "closed.csv" in line)
    assert "no permission" in line


def test_a_file_that_changes_while_it_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.csv").write_text(PLAIN)
    growing = tmp_path / "growing.csv"
    growing.write_text(PLAIN)
    really = delimited._batches

    def batches(state: Any) -> Iterator[pa.RecordBatch]:
        yield from really(state)
        if state.path == growing:
            with growing.open("a") as file:
                file.write("Oslo,9\n")

    monkeypatch.setattr(delimited, "_batches", batches)
    answer = run("index", tmp_path)
    assert "Indexed 1 table:" in answer.err
    assert "growing.csv: changed while it was being read" in answer.err
    assert [hit.table for hit in deepjoin.open(tmp_path).search(CITIES)] == ["good.csv"]


@pytest.mark.parametrize("name", ["b.csv", "b.parquet", "b.jsonl", "b.json"])
def test_a_file_that_goes_before_it_is_read(tmp_path: Path, name: str) -> None:
    sources = {"csv": "plain.csv", "parquet": "table.parquet"}
    sources |= {"jsonl": "lines.jsonl", "json": "array.json"}
    (tmp_path / "a.csv").write_text(PLAIN)
    (tmp_path / name).write_bytes(READ[sources[name.partition(".")[2]]][0])
    lake = deepjoin.index(tmp_path, progress=lambda *_: (tmp_path / name).unlink(missing_ok=True))
    assert list(lake.tables) == ["a.csv"]
    (skipped,) = lake.report.skipped
    assert skipped.name == name
    assert "no longer there" in skipped.reason or "No such file" in skipped.reason


@pytest.mark.slow
def test_ten_thousand_columns(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    names = [f"c{i}" for i in range(10_000)]
    rows = [",".join(f"{i}-{row}" for i in range(10_000)) for row in range(5)]
    (tmp_path / "lake" / "wide.csv").write_text("\n".join([",".join(names), *rows]))
    answer = run("search", tmp_path / "lake", "--values", "9999-1,9999-2")
    assert "10,000 columns" in answer.err
    assert answer.out.splitlines()[2].split()[:4] == ["1", "wide.csv", "c9999", "100%"]
    assert all(len(line) < 1000 for line in answer.out.splitlines())
    lines = run("search", tmp_path / "lake", "--values", "9999-1", "-c", "nosuch").err
    assert len(lines) < 2000


@pytest.mark.slow
def test_a_cell_of_fifty_megabytes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    rows = PLAIN + '"' + "x" * (50 << 20) + '",8\nOslo,9\n'
    (tmp_path / "lake" / "huge.csv").write_text(rows)
    (tmp_path / "lake" / "good.csv").write_text(PLAIN)
    answer = run("index", tmp_path / "lake")
    assert answer.status == 0
    lake = deepjoin.open(tmp_path / "lake")
    assert lake.search(CITIES)[0].table == "good.csv"
    if "huge.csv" in set(lake.tables):
        assert lake.search(["Oslo", *CITIES])[0].table == "huge.csv"
        assert "x" * 5000 not in repr(lake.table("huge.csv"))
    else:
        assert "huge.csv" in answer.err


NAMES = [
    *("new\nline", "qu\"o'te", "emoji 😀", "right\u202eleft\u200f", "escape\x1b[31m", "tab\there"),
    *(" led by a space", "semi;colon", "-dash", "com,ma", "100%", "back\\slash", "st*r", "[brack]"),
    *("a#b", "co:lon", "bell\x07", "東京", "na\u0308ive", "line\u2028sep", "$(touch x)", "{brace}"),
]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Index a lake of odd names of files, columns and cells."""
    folder = tmp_path_factory.mktemp("named")
    for number, name in enumerate(NAMES):
        # A column's name cannot be told from a table's where both have colons.
        quoted = '"' + name.replace('"', '""').replace(":", " ") + '"'
        cells = "".join(f"{number}v{row},{row}\n" for row in range(6))
        (folder / f"{name}.csv").write_text(f'{quoted},{quoted[:-1]} too"\n{cells}', newline="")
        (folder / f"{name}.docx").write_text("")
    return deepjoin.index(folder, folder.parent / "named-index")


def lines_of(text: str) -> list[str]:
    """Split printed text at line feeds alone; nothing else may break or colour a line."""
    lines = text.rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines), text
    return lines


odd_names = pytest.mark.parametrize(
    "number", range(len(NAMES)), ids=[ascii(name) for name in NAMES]
)


@pytest.mark.slow
@odd_names
def test_odd_names_stay_one_line(run: Run, named: Lake, number: int) -> None:
    table = f"{NAMES[number]}.csv"
    values = f"{number}v1,{number}v2,odd\x1b[0m"
    hit = run("search", named.path, "--values", values, "--format", "json").json["hits"][0]
    assert (hit["table"], hit["equi"]["matched"]) == (table, 2)
    shown = run("search", named.path, "--values", values)
    assert len(lines_of(shown.out)) == 6, "title, head, hit, blank, lacks, brings"
    described = run("info", named.path, "--", table)
    assert described.status == 0
    assert len(lines_of(described.out)) == 4


@pytest.mark.slow
@odd_names
def test_odd_names_are_joined(run: Run, named: Lake, tmp_path: Path, number: int) -> None:
    table = f"{NAMES[number]}.csv"
    column = named.search([f"{number}v1"])[0].column
    query = tmp_path / "query.csv"
    query.write_text(f"k\n{number}v1\n{number}v5\n")
    answer = run("join", named.path, query, "-c", "k", f"--with={table}:{column}")
    assert answer.status == 0, answer.err
    assert len(lines_of(answer.out)) == 3
    assert "2 of 2 rows match" in lines_of(answer.err)[0]


@odd_names
def test_odd_names_of_columns_are_kept(named: Lake, number: int) -> None:
    name = " ".join(NAMES[number].replace(":", " ").split())
    names = [column.name for column in named.table(f"{NAMES[number]}.csv").columns]
    assert [" ".join(one.split()) for one in names] == [name, f"{name} too"]


def test_errors_stay_one_line(run: Run, named: Lake) -> None:
    for answer in (
        run("search", named.path, "no\nsuch\x1b[1m.csv"),
        run("info", named.path, "escape.csv"),
        run("search", "no\nsuch\x1b[1m", "--values", "a"),
    ):
        assert answer.status == 1
        assert len(lines_of(answer.err)) == 1


def test_odd_names_stay_one_line_in_reports(run: Run, named: Lake) -> None:
    assert named.index.root is not None
    report = run("info", named.path)
    shown = [line for line in lines_of(report.out) if "not a table format" in line]
    assert len(shown) == len(NAMES)
    lines_of(run("index", named.index.root, "-o", named.path).err)
    dry = lines_of(run("index", named.index.root, "--dry-run").out)
    assert sum(line.startswith("not read: ") for line in dry) == len(NAMES)
