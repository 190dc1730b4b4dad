"""How the reader finds out in which way a file is written."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from deepjoin.errors import UnreadableTable
from deepjoin.read.dialect import Dialect, first_row, header_names, is_header, sniff, widened
from deepjoin.read.encoding import encoding_of

CYRILLIC = "имя,город\nИван,Москва\nОльга,Санкт-Петербург\nПётр,Новосибирск\n"


def sniffed(folder: Path, content: bytes | str, name: str = "t.csv") -> Dialect:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return sniff(path)


@pytest.mark.parametrize(
    ("content", "name", "delimiter"),
    [
        ("a,b\n1,2\n", "t.csv", ","),
        ("a;b\n1,5;2,5\n3,5;4,5\n", "t.csv", ";"),
        ("1,5;2,5;3,5\n4,5;5,5;6,5\n", "t.csv", ";"),
        ("a\tb\n1\t2\n", "t.csv", "\t"),
        ("a|b|c\n1|2,5|x y\n", "t.txt", "|"),
        ("a,b\n1,x;y\n2,u;v\n3,w;z\n", "t.csv", ","),
        ('a,b\n"1;2;3","x"\n"4;5;6","y"\n', "t.csv", ","),
        ('a,b\n"x\ny;z\n",2\n"u;v",3\n', "t.csv", ","),
        ("sep=;\nname,first;age\nx,y;1\n", "t.csv", ";"),
        ("1.0  2.0   3.5\n4.0  5.5   6.0\n7.0  8.5  99.0\n", "t.dat", " "),
        ("name\nOslo\nRome\n", "t.csv", ","),
    ],
)
def test_delimiter(tmp_path: Path, content: str, name: str, delimiter: str) -> None:
    assert sniffed(tmp_path, content, name).form.delimiter == delimiter


def test_list_whose_items_hold_commas_is_one_column(tmp_path: Path) -> None:
    content = "city\nOslo\nBergen\nRome, old town\nParis\nMadrid\nKiel\nUlm\n"
    dialect = sniffed(tmp_path, content, "cities.txt")
    assert dialect.names == ("city",)
    assert dialect.form.delimiter not in content


@pytest.mark.parametrize(
    ("content", "quote"),
    [
        ("a,b\n'x, y',2\n'z',3\n'u',4\n", "'"),
        ("a,b\n'tHooft,2\n'sGraven,3\n", '"'),
        ('a\tb\n"one" he said\t1\n"two" she said\t2\n"three" they said\t3\n', ""),
        ("a,b\nx,1\n", '"'),
    ],
)
def test_quote(tmp_path: Path, content: str, quote: str) -> None:
    assert sniffed(tmp_path, content).form.quote == quote


@pytest.mark.parametrize(
    ("content", "skipped", "header", "names"),
    [
        ("a,b\n1,2\n", 0, True, ("a", "b")),
        ("\n\na,b\n1,2\n", 2, True, ("a", "b")),
        ("Report of 2020\n\na,b,c\n1,2,3\n4,5,6\n", 2, True, ("a", "b", "c")),
        ("# made by hand\n# twice, or so\na,b,c\n1,2,3\n4,5,6\n", 2, True, ("a", "b", "c")),
        ("Title,,\n,,\nid,name,x\n1,o,2\n2,p,3\n", 2, True, ("id", "name", "x")),
        ("Sales,,\nQ1,,\n,,\nid,b,x\n1,o,2\n2,p,3\n", 3, True, ("id", "b", "x")),
        (",2019,,2020,\ncity,m,f,m,f\nOslo,1,2,3,4\n", 1, True, ("city", "m", "f", "m_2", "f_2")),
        ("x,y\nr1,1,2\nr2,3,4\n", 0, True, ("column_1", "x", "y")),
        ("x,y\n1,2,\n3,4,\n", 0, True, ("x", "y", "column_3")),
        ("1,2\n3,4\n", 0, False, ("column_1", "column_2")),
        ("Oslo,7\nRome,8\nOslo,9\n", 0, False, ("column_1", "column_2")),
        ("2020-01-01,a\n2020-01-02,b\n", 0, False, ("column_1", "column_2")),
        ("country,1960,1961\nNO,3.5,3.6\nSE,7.4,7.5\n", 0, True, ("country", "1960", "1961")),
        ("team,0,1,2\nA,.5,.6,.7\nB,.5,.4,.3\n", 0, True, ("team", "0", "1", "2")),
        ("city,1/22/20,1/23/20\nOslo,0,1\n", 0, True, ("city", "1/22/20", "1/23/20")),
        ("a,b,c", 0, True, ("a", "b", "c")),
        ("7,8,9", 0, False, ("column_1", "column_2", "column_3")),
        ("name,city\nAnn,Oslo\nBob,Rome\n", 0, True, ("name", "city")),
        ("\ufeffid,name\n1,x\n", 0, True, ("id", "name")),
        ('"first\nname",b\nx,1\n', 0, True, ("first name", "b")),
    ],
)
def test_header(
    tmp_path: Path, content: str, skipped: int, header: bool, names: tuple[str, ...]
) -> None:
    dialect = sniffed(tmp_path, content)
    assert (dialect.skip_lines, dialect.header, dialect.names) == (skipped, header, names)


def test_codes_without_header() -> None:
    planes = ([f"Plane {n}", f"P{n}0"] for n in range(9))
    body = [["Boeing 717", "717"], ["Concorde", "SSC"], *planes]
    assert not is_header(["Airbus A300", "AB3"], body)
    assert is_header(["name", "code"], body)


def test_first_row_is_zero_without_rows_of_full_width() -> None:
    assert first_row([["a"], ["b"]], 5) == 0


def test_names_never_collide() -> None:
    assert header_names(["x", "x", "x_2", "", "column_4"]) == (
        *("x", "x_3", "x_2", "column_4_2", "column_4"),
    )
    names = header_names(["same"] * 5000 + [""] * 5000)
    assert len(set(names)) == 10_000
    assert widened(("column_3", "a"), 4) == ("column_3", "a", "column_3_2", "column_4")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("name;ort\nMüller;Köln\nJäger;Düsseldorf\n", "cp1252"),
        ("they don’t,it isn’t\nCafé,“Zoë” – here", "cp1252"),
        ("nombre,ciudad\nPeña,Málaga\nMuñoz,León\nHélène,x", "mac_roman"),
        ("imię,miasto\nŁukasz,Łódź\nŻaneta,Gdańsk\nMałgorzata,Kraków", "cp1250"),
        ("ad,şehir\nAyşe,İstanbul\nÇağlar,Eskişehir\nIşık,Muğla", "cp1254"),
        (CYRILLIC, "cp1251"),
        (CYRILLIC, "koi8_r"),
        ("名前,都市\n田中太郎,東京\n鈴木花子,大阪府", "cp932"),
        ("姓名,城市\n王伟,北京市\n李娜,上海市\n张敏,广州市", "gb18030"),
        ("이름,도시\n김철수,서울특별시\n이영희,부산광역시", "cp949"),
        ("Zoë,1\n", "utf-8"),
        ("Zoë,1\n", "utf-8-sig"),
        ("Zoë,1\n", "utf-16"),
        ("id,name\n1,Zoë\n", "utf-16-le"),
        ("id,name\n1,Zoë\n", "utf-16-be"),
        ("id,name\n1,Zoë\n", "utf-32"),
    ],
)
def test_encoding(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    assert data.decode(encoding_of(data)) == text.encode(encoding).decode(encoding)


def test_character_cut_at_the_end_is_still_utf8() -> None:
    assert encoding_of("Zoë".encode()[:-1]) == "utf-8"


@pytest.mark.parametrize("compression", ["gzip", "bz2", "zstd"])
def test_compression_is_recognised_by_content(tmp_path: Path, compression: str) -> None:
    packers = {"gzip": gzip.compress, "bz2": bz2.compress}
    pack = packers.get(compression, lambda data: pa.compress(data, "zstd", asbytes=True))
    dialect = sniffed(tmp_path, pack(b"a,b\n1,2\n"), "no-hint")
    assert (dialect.compression, dialect.names) == (compression, ("a", "b"))


NOTES = (
    "# Data\n\nThis holds the data, as follows:\n\n- one file, with cities\n- more, with people\n"
)
PROSE = "It was a dark and stormy night, and the rain fell in torrents.\nExcept at times.\n" * 9


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "t.csv is empty"),
        (b"\n \n\n", "t.csv", "nothing but blanks"),
        (b",,,\n,,,\n", "t.csv", "nothing but blanks"),
        (b"\0" * 500, "t.csv", "binary data|nothing but blanks"),
        (b"\x89PNG\r\n\x1a\n\0\0", "t.csv", "a PNG image"),
        (b"%PDF-1.4\n", "t.txt", "a PDF document"),
        (b"PK\x03\x04\x14\0", "t.csv", "a zip archive or an Office file"),
        (b"SQLite format 3\0\x10\0", "t.dat", "an SQLite database"),
        (b"MZ\x90\0\x03\0\0\0\x04\0", "t.dat", "an executable"),
        (b"PAR1\x15\x04\x15", "t.csv", "a Parquet file"),
        (b"<!DOCTYPE html>\n<html>", "t.csv", "an HTML page"),
        (b"<?xml version='1.0'?>", "t.csv", "an XML document"),
        (b'{"a": 1}\n', "t.txt", "JSON"),
        (bytes(range(1, 9)) * 50, "t.dat", "binary data"),
        (b"version https://git-lfs.github.com/spec/v1\n", "t.csv", "a Git LFS pointer"),
        (PROSE.encode(), "t.txt", "looks like prose, not a table"),
        (NOTES.encode(), "t.md", "looks like prose"),
        (b"# Title\n\nSome words here.\n\n- One item\n- Two items.\n", "t.md", "looks like prose"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, name: str, message: str) -> None:
    with pytest.raises(UnreadableTable, match=message) as caught:
        sniffed(tmp_path, content, name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", ["ID3,x", "ORC,x", "MZ,x", "BM,x", "RIFF,x"])
def test_table_may_begin_like_a_binary_format(tmp_path: Path, first: str) -> None:
    assert sniffed(tmp_path, f"{first}\n1,2\n").names == tuple(first.split(","))


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTable, match="cannot be read: No such file"):
        sniff(tmp_path / "none.csv")
    with pytest.raises(UnreadableTable, match="is not a file"):
        sniff(tmp_path)
