"""Workbooks: one table a sheet, and what is wrong with one told in one line."""

from __future__ import annotations

import datetime
import sys
import zipfile
from pathlib import Path

import pytest

from deepjoin.errors import MissingExtra, UnknownName, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read import Skipped
from deepjoin.read.files import FileSource
from deepjoin.read.formats import read_file
from deepjoin.settings import Settings
from tests.support.opening import open_source

CSV = "city,people\nParis,2\nRome,3\n"
ROWS = [{"city": "Paris", "people": "2"}, {"city": "Rome", "people": "3"}]


def write(path: Path, content: str | bytes = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(reading: Reading) -> list[dict[str, object]]:
    return [row for batch in reading for row in batch.to_pylist()]


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales 2024"
    sheet.append(["id", "id", None, "when", "at", None])
    sheet.append([1, 12345678901.5, "x", datetime.date(2020, 1, 2), datetime.time(9, 30), None])
    sheet.append(["two", None, True, None, None, None])
    book.create_sheet("Empty")
    book.create_sheet("Codes").append(["code"])
    path = tmp_path / "books" / "ourSales.xlsx"
    path.parent.mkdir()
    book.save(path)
    return path


def test_sheets_are_tables(workbook: Path) -> None:
    source = FileSource([workbook.parent.parent])
    tables = list(source.tables())
    names = ["books/ourSales.xlsx#Codes", "books/ourSales.xlsx#Sales 2024"]
    assert [table.name for table in tables] == names
    assert (tables[1].title, tables[1].context) == ("our Sales", "Sales 2024")
    assert [batch.to_pydict() for batch in tables[0].open()] == [{"code": []}]
    assert rows(tables[1].open()) == [
        {
            "id": "1",
            "id_2": "12345678901.5",
            "column_3": "x",
            "when": "2020-01-02 00:00:00",
            "at": "09:30:00",
        },
        {"id": "two", "id_2": None, "column_3": "true", "when": None, "at": None},
    ]


def test_sheet_by_name(workbook: Path) -> None:
    source = FileSource([workbook.parent])
    assert source.table("ourSales.xlsx#Codes").context == "Codes"
    assert source.path("ourSales.xlsx#Codes") == workbook
    with pytest.raises(UnknownName, match=r"No table 'ourSales.xlsx' in .*#Codes, .*#Sales 2024\."):
        source.table("ourSales.xlsx")
    with pytest.raises(UnknownName, match=r"Did you mean 'ourSales.xlsx#Codes'\?"):
        source.table("ourSales.xlsx#Code")


def test_workbook_named_csv(workbook: Path) -> None:
    path = workbook.rename(workbook.with_name("t.csv"))
    reading = read_file(path, "delimited")
    assert len(rows(reading)) == 2
    assert reading.notes == ["Only sheet 'Sales 2024' is read, not Codes."]


@pytest.mark.parametrize("content", [b"PK\x03\x04junk", b"a,b\n1,2\n", b"\xd0\xcf\x11\xe0" * 9])
def test_damaged_workbook(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("fastexcel")
    write(tmp_path / "t.xlsx", content)
    (table,) = open_source(tmp_path, Settings()).tables()
    assert table.name == "t.xlsx"
    with pytest.raises(UnreadableTable, match=r"t.xlsx is not a readable workbook: .*\.") as raised:
        table.open()
    assert "\n" not in str(raised.value)


def test_workbook_with_a_damaged_sheet(workbook: Path) -> None:
    with zipfile.ZipFile(workbook) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["xl/worksheets/sheet3.xml"] = b"<worksheet><sheetData><row"
    with zipfile.ZipFile(workbook, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    codes, sales = FileSource([workbook]).tables()
    assert len(rows(sales.open())) == 2
    with pytest.raises(UnreadableTable, match="is not a readable workbook"):
        codes.open()


def test_workbook_of_empty_sheets(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    openpyxl.Workbook().save(tmp_path / "t.xlsx")
    source = FileSource([tmp_path])
    assert list(source.tables()) == []
    assert source.skipped == [Skipped("t.xlsx", "every sheet is empty")]
    with pytest.raises(UnreadableTable, match="is empty: none of its sheets holds a cell"):
        read_file(tmp_path / "t.xlsx", "excel")


def test_open_document_sheet(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    cells = "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p>'
            "</table:table-cell>"
            for cell in row
        )
        + "</table:table-row>"
        for row in (("city", "people"), ("Paris", "2"), ("Rome", "3"))
    )
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    with zipfile.ZipFile(tmp_path / "t.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{cells}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    (table,) = FileSource([tmp_path]).tables()
    assert (table.name, rows(table.open())) == ("t.ods#S", ROWS)


def test_missing_excel_extra(workbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    write(workbook.parent / "t.csv")
    source = FileSource([workbook.parent])
    assert [table.name for table in source.tables()] == ["t.csv"]
    text = r"ourSales.xlsx needs fastexcel: pip install 'deepjoin\[excel\]'"
    assert "pip install 'deepjoin[excel]'" in source.skipped[0].reason
    with pytest.raises(MissingExtra, match=text):
        list(FileSource([workbook]).tables())
