"""Files as rows: every format gives the same, and bad files fail in one line."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import memory
from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading
from deepjoin.read import encoding, formats, jsonlines, parquet
from deepjoin.read.files import FileSource
from deepjoin.read.formats import read_file
from deepjoin.read.jsonlines import read_jsonlines
from deepjoin.read.sql import duckdb_scan
from deepjoin.settings import Settings
from tests.support.command_line import call
from tests.support.opening import open_source

CSV = "city,people\nParis,2\nRome,3\n"
ROWS = [{"city": "Paris", "people": "2"}, {"city": "Rome", "people": "3"}]
LINES = '{"city": "Paris", "people": 2}\n{"city": "Rome", "people": 3}\n'


def write(path: Path, content: str | bytes = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(reading: Reading) -> list[dict[str, object]]:
    return [row for batch in reading for row in batch.to_pylist()]


def gzipped(data: bytes) -> bytes:
    # Without the time of day, so that every worker of a test run sees the same parameters.
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", CSV.encode()),
        ("t.csv.gz", gzipped(CSV.encode())),
        ("t.csv", gzipped(CSV.encode())),
        ("t.jsonl", LINES.encode()),
        ("t.ndjson.gz", gzipped(LINES.encode())),
        ("t.jsonl.zst", zstd(LINES.encode())),
        ("t.jsonl.bz2", bz2.compress(LINES.encode())),
        ("t.jsonl", gzipped(LINES.encode())),
        ("t.json", LINES.encode()),
        ("t.json", json.dumps(ROWS).encode()),
        ("t.json", json.dumps(ROWS, indent=2).encode()),
        ("t.json.gz", gzipped(json.dumps(ROWS).encode())),
        ("t.jsonl", LINES.encode("utf-16")),
        ("t.jsonl", b"\xef\xbb\xbf\r\n" + LINES.replace("\n", "\r\n").encode()),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path / name, content)
    (table,) = open_source(tmp_path, Settings()).tables()
    assert rows(table.open()) == ROWS


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t.csv", "t.xlsx"])
def test_parquet_whatever_its_name(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
    (table,) = open_source(tmp_path, Settings()).tables()
    assert rows(table.open()) == ROWS


def test_parquet_keeps_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": pa.array([1, None]),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "bytes": pa.array([b"a", b"b"]),
            "list": pa.array([[1], [2]]),
        }
    )
    table = table.append_column("number", pa.array([1.5, 2.5]))
    pq.write_table(table, tmp_path / "t.parquet")
    (batch,) = read_file(tmp_path / "t.parquet", "parquet")
    assert batch.schema.names == ["number", "word", "bytes", "list", "number_2"]
    expected = [pa.int64(), pa.string(), pa.binary(), pa.list_(pa.int64()), pa.float64()]
    assert [str(kind) for kind in batch.schema.types][:3] == [str(kind) for kind in expected][:3]
    assert pa.types.is_list(batch.schema.types[3]) and batch.schema.types[4] == pa.float64()


def test_parquet_without_rows_has_columns(tmp_path: Path) -> None:
    empty = {
        "a": pa.array([], pa.dictionary(pa.int32(), pa.string())),
        "b": pa.array([], pa.int8()),
    }
    pq.write_table(pa.table(empty), tmp_path / "t.parquet")
    (batch,) = read_file(tmp_path / "t.parquet", "parquet")
    assert (batch.num_rows, batch.schema.names) == (0, ["a", "b"])


def test_parquet_comes_in_batches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(150_000)}), tmp_path / "t.parquet")
    sizes = [batch.num_rows for batch in read_file(tmp_path / "t.parquet", "parquet")]
    assert sum(sizes) == 150_000 and max(sizes) <= 65_536


@pytest.mark.parametrize(
    ("name", "spoil", "text"),
    [
        ("t.parquet", lambda data: data[:-9], "t.parquet is not a readable Parquet file: "),
        ("t.parquet", lambda data: b"a,b\n1,2\n", "is not a readable Parquet file: "),
        ("t.csv", lambda data: data[:40], "t.csv is not a readable Parquet file: "),
        ("t.parquet", lambda data: b"", r"t.parquet is empty\."),
    ],
)
def test_corrupt_parquet(
    tmp_path: Path, name: str, spoil: Callable[[bytes], bytes], text: str
) -> None:
    path = tmp_path / name
    pq.write_table(pa.table({"a": ["x"] * 100}), path)
    path.write_bytes(spoil(path.read_bytes()))
    (table,) = open_source(tmp_path, Settings()).tables()
    with pytest.raises(UnreadableTable, match=text) as raised:
        rows(table.open())
    assert "\n" not in str(raised.value)


def test_corrupt_parquet_pages(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [f"value {n}" for n in range(5000)]}), path)
    data = bytearray(path.read_bytes())
    data[20:4000] = b"\xff" * 3980
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableTable, match="is not a readable Parquet file: "):
        rows(read_file(path, "parquet"))


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.jsonl", "t.xlsx", "t.parquet", "t.tsv.gz"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"")
    (table,) = open_source(tmp_path, Settings()).tables()
    with pytest.raises(UnreadableTable, match=f"{name} is empty"):
        rows(table.open())


def test_file_that_vanished(tmp_path: Path) -> None:
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        write(tmp_path / name)
    for table in list(FileSource([tmp_path]).tables()):
        (tmp_path / table.name).unlink()
        with pytest.raises(UnreadableTable, match=r"cannot be read: |no longer there"):
            table.open()


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError("Corrupt snappy compressed data"), False),
        (ValueError("not a table"), False),
    ],
)
def test_what_the_system_said_may_pass(error: Exception, is_passing: bool) -> None:
    assert formats.unreadable(Path("a"), error).passing is is_passing
    assert encoding.unreadable_text(Path("a"), error).passing is is_passing


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.parquet", "a.xlsx"])
def test_a_file_that_fails_may_be_readable_later(tmp_path: Path, name: str) -> None:
    source = FileSource([tmp_path])
    (tmp_path / name).write_text("x")
    (item,) = source.items()
    (tmp_path / name).unlink()
    (table,) = item.listing().tables
    with pytest.raises(UnreadableTable) as caught:
        list(table.open())
    assert caught.value.passing


def test_zip_archives_are_not_tables(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv", "w") as archive:
        archive.writestr("inner.csv", CSV)
    with pytest.raises(UnreadableTable, match=r"t.csv is a zip archive; unpack it"):
        read_file(tmp_path / "t.csv", "delimited")
    data = bytearray((tmp_path / "t.csv").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 6] = 243
    (tmp_path / "t.csv").write_bytes(bytes(data))
    with pytest.raises(UnreadableTable, match=r"t.csv is not a readable workbook: "):
        read_file(tmp_path / "t.csv", "delimited")


def test_json_cells(tmp_path: Path) -> None:
    row = {
        "n": None,
        "t": True,
        "i": 12345678901234567890,
        "f": 0.1,
        "nan": float("nan"),
        "s": "ü",
        "o": {"a": {"b": 1}, "c": "x"},
        "l": [1, "ü", {"z": None}],
        "e": {},
    }
    write(tmp_path / "t.jsonl", json.dumps(row))
    assert rows(read_jsonlines(tmp_path / "t.jsonl")) == [
        {
            "n": None,
            "t": "true",
            "i": "12345678901234567890",
            "f": "0.1",
            "nan": None,
            "s": "ü",
            "o.a.b": "1",
            "o.c": "x",
            "l": '[1, "ü", {"z": null}]',
        }
    ]


def test_long_cells_of_a_parquet_dictionary_come_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int32()), ["x" * 9000, "y"])
    table = pa.table({"k": [str(at) for at in range(1000)], "v": long, "b": long.cast(pa.binary())})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=False)
    (whole,) = parquet.read_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(parquet, "_MOST_RISK", 1 << 20)
    monkeypatch.setattr(parquet, "_BYTES", 90_000)
    batches = list(parquet.read_parquet(tmp_path / "t.parquet"))
    assert {batch.num_rows for batch in batches} == {10}
    assert pa.Table.from_batches(batches).to_pylist() == whole.to_pylist()
    assert duckdb_scan(tmp_path / "t.parquet") is not None


def large_dictionary(path: Path, compression: str = "zstd", **options: Any) -> Path:
    cells = [f"{at:08x} of {at * 7919:060d}" for at in range(50_000)]
    options = {"dictionary_pagesize_limit": 1 << 30, "row_group_size": 1 << 30} | options
    pq.write_table(pa.table({"key": cells}), path, compression=compression, **options)
    return path


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("more", [{}, {"data_page_version": "2.0", "write_page_checksum": True}])
def test_dictionaries_are_measured_without_being_made(
    tmp_path: Path, compression: str, more: dict[str, Any]
) -> None:
    path = large_dictionary(tmp_path / "t.parquet", compression, **more)
    with pq.ParquetFile(path) as file:
        (found,) = parquet._dictionaries(path, file, 65_536)
        assert (found.unpacked, found.cells) == (50_000 * (4 + 72), 50_000)
        assert found.longest(path) == 72
        assert parquet.dictionary_bytes(path, file) == found.packed + 2 * 3_800_000 + 800_000
    large_dictionary(path, row_group_size=10_000)
    with pq.ParquetFile(path) as file:
        assert 0 < parquet.dictionary_bytes(path, file) < 2_000_000, "one of five"


def test_a_dictionary_that_cannot_be_looked_at_counts_as_one_cell(tmp_path: Path) -> None:
    path = large_dictionary(tmp_path / "t.parquet")
    whole = path.read_bytes()
    with pq.ParquetFile(path) as file:
        (found,) = parquet._dictionaries(path, file, 65_536)
        path.write_bytes(whole[: found.place + 9] + b"\0" * 99 + whole[found.place + 108 :])
        assert found.longest(path) == found.unpacked
        for damage in (b"\x15\x04\x19", b"\0" * 99, b"\x15" + b"\xff" * 200, b"\x1c" * 200):
            assert parquet._page_header(damage, 1 << 30, 1 << 30) is None


def number(value: int) -> bytes:
    """Encode a positive whole number as headers of pages have it."""
    value, found = 2 * value, b""
    while value > 127:
        value, found = value >> 7, found + bytes([value & 127 | 128])
    return found + bytes([value])


@pytest.mark.parametrize(
    "header",
    [
        *(
            b"\x15\x04\x15%b\x15%b\x4c\x15%b\0\0" % (number(3_800_000), packed, number(50_000))
            for packed in map(number, (1 << 70, 1 << 62, 1 << 40))
        ),
        b"\x15\x04\x1c\0\x15\x02\x4c\x15\x02\0\0",
        b"\x15\x04\x15\x08\x15\x08\x4c\x1c\0\0\0",
    ],
)
def test_a_hostile_header_of_a_dictionary_is_refused(tmp_path: Path, header: bytes) -> None:
    path = large_dictionary(tmp_path / "t.parquet", "none")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + header + whole[4 + len(header) :])
    with pytest.raises(UnreadableTable, match="is not a readable Parquet file"):
        rows(parquet.read_parquet(path))


def test_a_dictionary_before_the_file_is_refused(tmp_path: Path) -> None:
    path = large_dictionary(tmp_path / "t.parquet", "none")
    whole = path.read_bytes()
    # The place of the dictionary, 4, becomes -4.
    path.write_bytes(whole[:-2000] + whole[-2000:].replace(b"\x26\x08", b"\x26\x07"))
    with pytest.raises(UnreadableTable, match="is not a readable Parquet file"):
        rows(parquet.read_parquet(path))


def test_other_libraries_write_the_header_alike(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    cells = f"SELECT repeat('x', 9000) || (i % 100) AS cell FROM range({60_000}) t(i)"
    duckdb.execute(f"COPY ({cells}) TO '{path}' (DICTIONARY_SIZE_LIMIT 1000000)")
    with pq.ParquetFile(path) as file:
        assert {one.longest(path) for one in parquet._dictionaries(path, file, 65_536)} == {9002}


def test_a_dictionary_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lake").mkdir()
    large_dictionary(tmp_path / "lake" / "t.parquet")
    write(tmp_path / "lake" / "u.csv", "key\n" + "\n".join(f"k{at}" for at in range(9)))
    monkeypatch.setattr(memory, "_LIBRARIES", 395 << 20)
    out = tmp_path / "index"
    answer = call(capsys, "index", tmp_path / "lake", "-o", out, "--memory", "600M")
    assert answer.status == 0
    line = next(line for line in answer.err.splitlines() if "t.parquet" in line)
    assert re.fullmatch(
        r"  .*t\.parquet: reading it takes [78] MB at once, for the dictionaries of a row group; "
        r"give --memory of at least 0\.8G, or write it with smaller dictionaries",
        line,
    )
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "rows_at_once", None)  # so that no row can be read
        again = call(capsys, "index", tmp_path / "lake", "-o", out, "--memory", "600M")
        assert again.status == 0
        assert "t.parquet" not in again.err
    assert call(capsys, "index", tmp_path / "lake", "-o", out, "--memory", "900M").status == 0
    assert deepjoin.open(out).report.tables == 2
    monkeypatch.setattr(parquet, "_MOST_SCANNED", 1 << 20)
    rows = call(capsys, "join", out, tmp_path / "lake" / "u.csv", *("-c", "key", "--with"),
                "t.parquet:key", "--memory", "4M")  # fmt: skip
    rows.refused("Reading t.parquet takes ", "raise --memory")


@pytest.mark.parametrize("counts", [(0, 8, 5), (9, 1, 0), (9, 4, 9), (5, 0, 0), (3, 3, 1)])
def test_rows_without_a_key_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(jsonlines, "_ROWS", 4)
    first, named, last = counts
    write(tmp_path / "t.jsonl", b"{}\n" * first + b'{"a": 1}\n' * named + b"{}\n" * last)
    batches = list(read_jsonlines(tmp_path / "t.jsonl"))
    cells = [cell for batch in batches if batch.num_columns for cell in batch["a"].to_pylist()]
    assert cells == ([None] * first + ["1"] * named + [None] * last if named else [])


def test_json_batches_may_bring_new_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonlines, "_ROWS", 2)
    write(tmp_path / "t.jsonl", '{"a": 1}\n{"b": 2}\n\n{"c": 3}\n')
    batches = list(read_jsonlines(tmp_path / "t.jsonl"))
    assert [batch.to_pydict() for batch in batches] == [
        {"a": ["1", None], "b": [None, "2"]},
        {"c": ["3"]},
    ]


def test_bad_rows_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", '{"a": 1}\n{"a": \n[1]\n7\n' + "[" * 100_000 + "\n{}\n")
    reading = read_jsonlines(tmp_path / "t.jsonl")
    assert rows(reading) == [{"a": "1"}, {"a": None}]
    assert reading.notes == ["4 of 6 rows are not JSON objects."]


def test_half_characters_and_bad_bytes_are_noted(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", b'{"a": "x\\ud800"}\n{"a": "\xff"}\n')
    reading = read_jsonlines(tmp_path / "t.jsonl")
    assert rows(reading) == [{"a": "x�"}, {"a": "�"}]
    assert reading.notes == ["Characters that are not valid text were replaced by �."]


def test_keys_that_are_data_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "MAX_COLUMNS", 3)
    write(tmp_path / "t.jsonl", "\n".join(json.dumps({f"id{n}": n}) for n in range(9)))
    reading = read_jsonlines(tmp_path / "t.jsonl")
    (batch,) = reading
    assert (batch.num_rows, batch.schema.names) == (9, ["id0", "id1", "id2"])
    assert reading.notes == ["Only the first 3 different keys became columns."]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a,b\n1,2\n", "t.jsonl holds no JSON objects: 2 lines and none could be read"),
        (b"x\n" * 3000, "holds no JSON objects: 1000 lines and none"),
        (b"\n\n  \n", "t.jsonl is empty: it holds no rows"),
        (b"[]", "t.jsonl is empty: it holds no rows"),
        (b'[{"a": 1}, {"a": ', "t.jsonl breaks off: its JSON array is damaged"),
        (gzipped(LINES.encode() * 99)[:-9], "t.jsonl cannot be read: "),
        (bz2.compress(LINES.encode() * 99)[:-9], "t.jsonl cannot be read: "),
        (zstd(LINES.encode() * 99)[:-9], "t.jsonl cannot be read: "),
        (b"\x1f\x8b" + b"junk" * 9, "t.jsonl cannot be read: "),
    ],
)
def test_unreadable_jsonlines(tmp_path: Path, content: bytes, text: str) -> None:
    write(tmp_path / "t.jsonl", content)
    (table,) = open_source(tmp_path, Settings()).tables()
    with pytest.raises(UnreadableTable, match=text) as raised:
        rows(table.open())
    assert "\n" not in str(raised.value)


def test_endless_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "MAX_ROW", 1 << 20)
    write(tmp_path / "t.jsonl", '{"a": "' + "x" * (2 << 20) + '"}')
    with pytest.raises(UnreadableTable, match="has a line of over 1 MiB"):
        rows(read_jsonlines(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{\n  "name": "x"\n}\n', "holds one JSON object, not rows"),
        ('{"data": [1, 2]}', "holds one JSON object, not rows"),
        ("[1, 2, 3]", "is a JSON array, but not of objects"),
        ('"text"', "holds no JSON objects"),
    ],
)
def test_json_that_is_no_table(tmp_path: Path, content: str, reason: str) -> None:
    path = write(tmp_path / "t.json", content)
    source = FileSource([tmp_path])
    assert list(source.tables()) == []
    assert source.skipped[0].name == "t.json"
    assert source.skipped[0].reason.startswith(reason)
    with pytest.raises(UnreadableTable, match=f"t.json {reason}"):
        next(FileSource([path]).tables()).open()


@given(
    st.lists(st.dictionaries(st.text(min_size=1), st.none() | st.text()), min_size=1),
    st.integers(1, 64),
    st.sampled_from([None, 1]),
)
def test_json_array_and_lines_agree(
    values: list[dict[str, str | None]], chunk: int, indent: int | None
) -> None:
    def read(text: str) -> list[object]:
        stream = io.StringIO(text)
        return list(jsonlines.json_rows(Path("t"), stream))

    sizes = jsonlines._PEEK, jsonlines._CHUNK
    jsonlines._PEEK, jsonlines._CHUNK = chunk, chunk
    try:
        lines = read("\n".join(json.dumps(value) for value in values))
        array = read(json.dumps(values, indent=indent))
    finally:
        jsonlines._PEEK, jsonlines._CHUNK = sizes
    assert lines == array == values


def latin_text(*cells: bytes) -> pa.Array:
    """Make a column of text whose bytes are not all UTF-8, as careless writers do."""
    return pa.Array.from_buffers(pa.string(), len(cells), pa.array(cells).buffers())


def test_parquet_text_that_is_not_utf8_is_mended(tmp_path: Path) -> None:
    cells = latin_text(b"K\xf6ln", b"Rome")
    json_cells = pa.ExtensionArray.from_storage(pa.json_(), cells)
    columns = {"a": cells, "b": cells.dictionary_encode(), "c": json_cells, "n": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    reading = read_file(tmp_path / "t.parquet", "parquet")
    (batch,) = reading
    assert [column[0].as_py() for column in batch.columns] == [*["K�ln"] * 3, 1]
    assert batch.column("a").to_pylist() == ["K�ln", "Rome"]
    assert reading.notes == ["Characters that are not valid text were replaced by �."]
    assert duckdb_scan(tmp_path / "t.parquet") is None


def test_parquet_batches_are_bounded_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BYTES", 10_000)
    cells = [f"{number}" * 500 for number in range(100, 200)]
    pq.write_table(pa.table({"c": cells}), tmp_path / "t.parquet")
    batches = list(read_file(tmp_path / "t.parquet", "parquet"))
    assert [cell for batch in batches for cell in batch["c"].to_pylist()] == cells
    assert max(batch.num_rows for batch in batches) <= 7


@pytest.mark.parametrize("name", ["a[1]", "a*", "a?", "a{1,2}"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_duckdb_is_not_offered_a_pattern(tmp_path: Path, name: str, ending: str) -> None:
    path = tmp_path / (name + ending)
    if ending == ".csv":
        write(path)
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    assert duckdb_scan(path) is None


def test_duckdb_is_not_offered_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("~t.csv"))
    assert duckdb_scan(Path("~t.csv")) is None


@pytest.mark.parametrize("folder", ["region=eu", "city=Oslo", "it's"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_duckdb_sees_no_columns_in_a_path(tmp_path: Path, folder: str, ending: str) -> None:
    path = write(tmp_path / folder / f"t{ending}")
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    found = duckdb.sql(f"SELECT * FROM {duckdb_scan(path)}")
    assert found.to_arrow_table().to_pylist() == ROWS


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        (["ID", "id"], pa.array([1])),
        (["a", "a"], pa.array([1])),
        (["", "b"], pa.array([1])),
        (["a", "b"], pa.array([1], pa.duration("ms"))),
        (["a", "b"], pa.array([[1]], pa.list_(pa.duration("ms")))),
        (["a", "b"], pa.array([1], pa.decimal256(60, 2))),
    ],
)
def test_duckdb_is_not_offered_parquet_it_reads_otherwise(
    tmp_path: Path, names: list[str], cells: pa.Array
) -> None:
    pq.write_table(pa.Table.from_arrays([cells, cells], names=names), tmp_path / "t.parquet")
    assert duckdb_scan(tmp_path / "t.parquet") is None


def test_duckdb_is_not_offered_damaged_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", b"PAR1 and no more")
    with pytest.raises(UnreadableTable, match="is not a readable Parquet file"):
        duckdb_scan(path)
    pq.write_table(pa.table({"c": [str(number) for number in range(5000)]}), path)
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    with pytest.raises(UnreadableTable, match="is not a readable Parquet file"):
        duckdb_scan(write(path, bytes(data)))
