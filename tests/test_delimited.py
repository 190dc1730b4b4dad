"""Reading delimited text: every ugly file gives its rows or one clear line."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepjoin.errors import UnreadableTable
from deepjoin.read import delimited, encoding, records
from deepjoin.read.delimited import duckdb_scan, read_delimited
from deepjoin.read.dialect import sniff

Rows = list[tuple[str | None, ...]]
ENGINES = ["", "csv"]


def written(folder: Path, content: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, engine: str = "") -> tuple[list[str], Rows, list[str]]:
    """Give names, rows filled up to the widest batch, and notes."""
    reading = read_delimited(path, _engine=engine)
    names: list[str] = []
    rows: Rows = []
    for batch in reading:
        assert all(field.type == pa.string() for field in batch.schema)
        assert batch.schema.names[: len(names)] == names[: batch.num_columns]
        names = max(names, batch.schema.names, key=len)
        rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return names, [row + (None,) * (len(names) - len(row)) for row in rows], reading.notes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a,b\n1,2\n3,4\n", [("1", "2"), ("3", "4")]),
        ("a,b\n1,\n,4\n,\n", [("1", None), (None, "4"), (None, None)]),
        ('a,b\n"",x\n" ",y\n', [(None, "x"), (" ", "y")]),
        ('a,b\n"x, y","say ""hi"""\n', [("x, y", 'say "hi"')]),
        ('a,b\n"x\ny",2\n"u\r\nv",4\n', [("x\ny", "2"), ("u\r\nv", "4")]),
        ("a,b\r\n1,2\r\n3,4", [("1", "2"), ("3", "4")]),
        ("a,b\r1,2\r3,4\r", [("1", "2"), ("3", "4")]),
        ("a,b\n1,2\r\n3,4\r5,6\n", [("1", "2"), ("3", "4"), ("5", "6")]),
        ("a,b\n\n1,2\n\n\r\n3,4\n\n", [("1", "2"), ("3", "4")]),
        ("a,b\n1,2\n   \n3,4\n", [("1", "2"), ("3", "4")]),
        ("a,b,c\nx,1\ny,2,3\n", [("x", "1", None), ("y", "2", "3")]),
        ("a,b\n1,2\n3,4,5\n", [("1", "2", None), ("3", "4", "5")]),
        ("a,b\n1,2\0\n", [("1", "2")]),
        ("name\nx\n\ny\n", [("x",), ("y",)]),
        ('name\nx\n""\n"y"\n', [("x",), (None,), ("y",)]),
        ("a,b\n", []),
        ("a,b", []),
        ("a\tb\n1\t2,5\n3\t4,5\n", [("1", "2,5"), ("3", "4,5")]),
        ('a,b\n5" pipe,1\n7" pipe,2\n', [('5" pipe', "1"), ('7" pipe', "2")]),
        ('a, b, c\n1, "x, y", 2\n3, "z", 4\n', [("1", "x, y", "2"), ("3", "z", "4")]),
        (r"a,b" + '\n"say \\"hi\\", you",2\n"x\\\\",4\n', [('say "hi", you', "2"), ("x\\", "4")]),
        ("a,b\nC:\\dir\\,2\n", [("C:\\dir\\", "2")]),
        ("a,b\n'x, y',2\n'z',3\n'it''s',4\n", [("x, y", "2"), ("z", "3"), ("it's", "4")]),
        ("sep=;\na;b\n1;2\n", [("1", "2")]),
    ],
)
def test_rows(tmp_path: Path, content: str, rows: Rows, engine: str) -> None:
    assert read(written(tmp_path, content), engine)[1] == rows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"])
def test_encodings(tmp_path: Path, name: str, engine: str) -> None:
    path = written(tmp_path, "id,name\n1,Zoë\n2,José\n".encode(name))
    assert read(path, engine)[:2] == (["id", "name"], [("1", "Zoë"), ("2", "José")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lambda data: pa.compress(data, "zstd", asbytes=True)]
)
def test_packed_files_and_their_truncation(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    content = "id,name\n" + "".join(f"{n},{random.Random(n).random()}\n" for n in range(20_000))
    packed = pack(content.encode())
    assert len(read(written(tmp_path, packed, "t.csv.gz"))[1]) == 20_000
    with pytest.raises(UnreadableTable, match="t.csv.gz is packed but damaged or cut short"):
        read(written(tmp_path, packed[: len(packed) // 2], "t.csv.gz"))


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("a,b,c\nx,1\ny,2,3\n", "Rows with too few cells, filled up: 1."),
        ("a,b\n1,2\n3,4,5\n", "Rows with more cells than names, given new columns: 1."),
        ("a,b\n1,2\0\0\n", "2 NUL bytes were removed."),
        ("Title\na,b\n1,2\n", "Lines before the table, left out: 1."),
        ("1,2\n3,4\n", "No header was found; the columns are numbered."),
        (b"a,b\nK\xf6ln,2\n", "The text is not UTF-8; it is read as cp1252."),
        (
            'a,b\n1,"x\n2,y\n3,z\n',
            'Lines whose quotes do not pair, each read by itself: 1; the first is 1,"x',
        ),
    ],
)
def test_notes(tmp_path: Path, content: bytes | str, note: str) -> None:
    assert read(written(tmp_path, content))[2] == [note]


def test_plain_file_has_no_notes(tmp_path: Path) -> None:
    assert read(written(tmp_path, "a,b\n1,2\n"))[2] == []


def test_bytes_beyond_the_sample_that_are_not_utf8(tmp_path: Path) -> None:
    body = b"a,b\n" + b"1,2\n" * 80_000
    _names, rows, notes = read(written(tmp_path, body + b"K\xf6ln,Zo\xc3\xab\nx\x9d,4\n"))
    assert rows[-2:] == [("Köln", "Zoë"), ("x\x9d", "4")]
    assert notes == [
        f"Bytes that are not utf-8, the first at {len(body) + 1:,}, are read as"
        " Windows-1252 or Latin-1."
    ]


def test_bytes_that_do_not_fit_a_code_page(tmp_path: Path) -> None:
    body = "id,имя\n" + "1,Ольга\n" * 40_000
    notes = read(written(tmp_path, body.encode("cp1251") + b"2,\x98\n"))[2]
    assert notes[-1].startswith("Bytes that are not cp1251, the first at")


@pytest.mark.parametrize("engine", ENGINES)
def test_unclosed_quote_costs_one_line(tmp_path: Path, engine: str) -> None:
    lines = [f"{n},x{n},y" for n in range(9000)]
    lines[70] = '70,x70,"y'
    lines[80] = '80,"a, b",y'
    _names, rows, notes = read(written(tmp_path, "\n".join(["a,b,c", *lines])), engine)
    assert len(rows) == 9000
    assert rows[70] == ("70", "x70", '"y')
    assert rows[80] == ("80", "a, b", "y")
    assert rows[-1] == ("8999", "x8999", "y")
    assert len(notes) == 1


@pytest.mark.parametrize("count", [10, 50_000])
def test_unclosed_quote_in_the_header(tmp_path: Path, count: int) -> None:
    names, rows, _ = read(written(tmp_path, '"a,b\n' + "1,2\n" * count))
    assert (len(names), len(rows)) == (2, count)


@pytest.mark.parametrize("engine", ENGINES)
def test_quote_open_beyond_the_longest_cell(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LONGEST_CELL", 500)
    monkeypatch.setattr(delimited, "LONGEST_CELL", 500)
    monkeypatch.setattr(encoding, "BLOCK", 100)
    lines = [f"{n},x" for n in range(1000)]
    lines[7] = '7,"x'
    _names, rows, _notes = read(written(tmp_path, "\n".join(["a,b", *lines])), engine)
    assert rows == [tuple(line.split(",")) for line in lines]
    with pytest.raises(UnreadableTable, match="has a line of more than 500 characters"):
        read(written(tmp_path, "a,b\n1," + "x" * 900), engine)


def test_long_cell(tmp_path: Path) -> None:
    cell = "line of text\n" * 400_000
    _names, rows, notes = read(written(tmp_path, f'a,b\n1,"{cell}"\n2,x\n'))
    assert rows == [("1", cell), ("2", "x")]
    assert notes == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_ten_thousand_columns(tmp_path: Path, engine: str) -> None:
    width = 10_000
    line = ",".join(map(str, range(width)))
    path = written(tmp_path, "\n".join([",".join(["x"] * width), line, line, "7"]))
    names, rows, _notes = read(path, engine)
    assert (len(set(names)), len(rows)) == (width, 3)
    assert rows[1][-1] == str(width - 1)


@pytest.mark.slow
def test_late_long_row_brings_columns_and_the_rest_keeps_its_shape(tmp_path: Path) -> None:
    content = "a,b\n" + "1,2\n" * 70_000 + "1,2" + ",x" * 3 + "\n" + "1,2\n" * 70_000
    batches = list(read_delimited(written(tmp_path, content)))
    assert sum(batch.num_rows for batch in batches) == 140_001
    assert all(batch.num_rows <= 1 << 16 for batch in batches)
    widths = [batch.num_columns for batch in batches]
    assert min(widths) == 2
    assert max(widths) == 5


@pytest.mark.slow
def test_rows_too_wide_and_lines_without_end_are_refused(tmp_path: Path) -> None:
    wide = "," * 100_001
    with pytest.raises(UnreadableTable, match="has a row of 100,002 cells; at most 100,000"):
        read(written(tmp_path, f"a,b\n1,2\n1,2\n{wide}\n"))
    with pytest.raises(UnreadableTable, match="has a row of 100,003 cells"):
        read(written(tmp_path, f"a,{wide}\n"))
    with pytest.raises(UnreadableTable, match="has no line end in its first 33,554,432 characters"):
        read(written(tmp_path, "x" * (1 << 25) + "x"))


def test_file_that_changes_while_being_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2\n")
    reading = read_delimited(path)
    next(reading.batches)
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(UnreadableTable, match="changed while it was being read; index it again"):
        list(reading)


def test_forbidden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = written(tmp_path, "a,b\n1,2\n")
    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(UnreadableTable, match="t.csv cannot be read: Permission denied"):
        read_delimited(path)


CELLS = st.one_of(
    st.sampled_from(["", " ", "x", "7", '"', "a,b", "é", "\n", "NULL", "\\", "'", "#"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6)
)


def as_csv(rows: list[list[str]], line_end: str) -> str:
    return "".join(",".join(map(quoted, row)) + line_end for row in rows)


def quoted(cell: str) -> str:
    plain = cell and not set(cell) & set(',"\r\n')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


@pytest.mark.slow
@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=TABLES, line_end=st.sampled_from(["\n", "\r\n", "\r"]), block=st.sampled_from([5, 1 << 24])
)
def test_well_written_tables_come_back(
    tmp_path: Path, rows: list[list[str]], line_end: str, block: int
) -> None:
    width = len(rows[0]) if rows else 2
    names = [f"name{n}" for n in range(width)]
    path = written(tmp_path, as_csv([names, ["v"] * width, ["w"] * width, *rows], line_end))
    if sniff(path).names != tuple(names):
        return
    # A row of one empty cell is written as "", a blank line to no one.
    expected = [
        tuple(cell or None for cell in row) for row in [["v"] * width, ["w"] * width, *rows]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BLOCK", block)
        for engine in ENGINES:
            assert read(path, engine)[1] == expected
    scan = duckdb_scan(path)
    if scan:
        assert duckdb.sql(f"SELECT * FROM {scan}").fetchall() == expected


PIECES = st.lists(
    st.sampled_from(
        ['"', '""', ",", "\n", "\r\n", "\r", "a", "7", " ", "é", ";", "\\", "\t", "x,y\n"]
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=PIECES, block=st.sampled_from([3, 11, 1 << 24]))
def test_engines_agree_on_anything(tmp_path: Path, pieces: list[str], block: int) -> None:
    path = written(tmp_path, "k,l\nu,v\n1,2\n" + "".join(pieces))
    dialect = sniff(path)
    whole = read(path, "csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BLOCK", block)
        assert read(path, "csv") == whole
        assert read(path) == whole
        scan = duckdb_scan(path)
    if scan:
        found = duckdb.sql(f"SELECT * FROM {scan}")
        assert tuple(found.columns) == dialect.names
        assert found.fetchall() == whole[1]


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n3\n",
        'a,b\n1,2"x"\n',
        "a,b\n1,2\r\n",
        "a\n1\n\n2\n",
        "a,A\n1,2\n",
        b"a,b\nK\xf6ln,2\n",
        'x "y" z\n\na,b\n1,2\n',
        '"a\nb",c\n1,2\n',
        "a,b\n" + "x" * 2_000_000 + ",2\n",
        "a,b\n1,\0\n",
    ],
)
def test_duckdb_is_not_offered_what_it_reads_otherwise(
    tmp_path: Path, content: bytes | str
) -> None:
    assert duckdb_scan(written(tmp_path, content)) is None


@pytest.mark.parametrize("name", ["it's.csv", "a b.csv", "ü.csv"])
@pytest.mark.parametrize(
    "content",
    [
        "it's,b\n1,2\n",
        "title\nmore\n\na;b\n1;2\n\n3;4",
        "1|2\n3|4\n",
        '\ufeffa,b\r\n1,"x\ny"\r\n',
        "a,b\n",
        'a\tb\n\'x\t1\n"y" z\t3\n"p" q\t3\n"r" s\t3\n',
        "a,b\n'x, y',2\n'z',3\n'it''s',4\n",
    ],
)
def test_duckdb_reads_the_same(tmp_path: Path, content: str, name: str) -> None:
    path = written(tmp_path, content, name)
    scan = duckdb_scan(path)
    assert scan
    found = duckdb.sql(f"SELECT * FROM {scan}")
    names, rows, _ = read(path)
    assert (found.columns, found.fetchall()) == (names, rows)


def mutated(content: bytes, seed: int) -> bytes:
    """Change, drop, repeat or insert some bytes, the dangerous ones more often."""
    dice = random.Random(seed)
    data = bytearray(content)
    for _ in range(dice.randrange(1, 12)):
        at = dice.randrange(len(data) + 1)
        until = at + dice.choice((0, 0, 1, 1, 3, 40))
        new = dice.choice(
            (b"", b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"\\", bytes([dice.randrange(256)]))
        )
        data[at:until] = new * dice.choice((1, 1, 1, 2, 30))
    return bytes(data)


SEEDS = (
    "id,name,city\n" + "".join(f'{n},"N, {n}",Zoë{n}\n' for n in range(12)),
    'a;b\r\n1,5;"x\r\ny"\r\n2,5;z\r\n',
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.csv", "t.txt"])
def test_mutations_are_read_or_refused(tmp_path: Path, name: str) -> None:
    contents = [
        *(text.encode() for text in SEEDS),
        SEEDS[0].encode("utf-16"),
        gzip.compress(SEEDS[0].encode()),
    ]
    for seed in range(150):
        path = written(tmp_path, mutated(contents[seed % len(contents)], seed), name)
        try:
            assert read(path) == read(path, "csv")
        except UnreadableTable as error:
            assert "\n" not in str(error)
