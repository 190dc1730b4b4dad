"""The folder of a cell table: whatever file of it is missing, torn or garbled is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepjoin.embed.cells import DEFAULT_TABLE, StaticTable, load_cell_encoder
from deepjoin.errors import DeepJoinError

DIGEST = "e233e86e6eade779"
SAID = json.loads((DEFAULT_TABLE / "table.json").read_text("utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy the shipped table."""
    return shutil.copytree(DEFAULT_TABLE, tmp_path / "table")


def said(**facts: object) -> bytes:
    return json.dumps(SAID | facts).encode()


def test_the_shipped_table_says_how_long_its_lists_are(folder: Path) -> None:
    assert StaticTable.load(folder).digest == DIGEST
    assert SAID["lines"] == {"phrases.txt": 2294, "words.txt": 29640}
    (folder / "table.json").write_bytes(json.dumps({**SAID, "lines": {}}).encode())
    assert StaticTable.load(folder).digest == DIGEST


def test_a_folder_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeepJoinError, match="No cell table in .*table.json is missing"):
        load_cell_encoder(tmp_path)


def test_a_newer_table_is_refused(folder: Path) -> None:
    (folder / "table.json").write_bytes(said(format=9))
    with pytest.raises(DeepJoinError, match="has format 9; this version reads 2"):
        StaticTable.load(folder)


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_last_line(content: bytes) -> bytes:
    return content[: content.rindex(b"\n", 0, -1) + 1]


def without_letters(content: bytes) -> bytes:
    return content[:-3]


def empty(content: bytes) -> bytes:
    return b""


def garbage(content: bytes) -> bytes:
    return b"\xff\xfe\x00no such thing\x93" * 9


def other_header(content: bytes) -> bytes:
    return content.replace(b"'shape': (", b"'shape': ((((", 1)


def other_kind(content: bytes) -> bytes:
    return content.replace(b"|i1", b"|u1", 1)


def later_version(content: bytes) -> bytes:
    return b"\x93NUMPY\x03\x00" + content[8:]


def infinite(content: bytes) -> bytes:
    return content[:-2] + np.float16(np.inf).tobytes()


Spoil = Callable[[bytes], bytes]
SPOILED: list[tuple[str, Spoil, str]] = [
    ("table.json", cut_in_half, r"table.json is not JSON \("),
    ("table.json", empty, r"table.json is not JSON \("),
    ("table.json", garbage, "table.json is not text in UTF-8"),
    ("table.json", lambda _: b"[" * 100_000, r"table.json is not JSON \("),
    ("table.json", lambda _: b"[2]", "table.json does not describe a table"),
    ("table.json", lambda _: said(lines=3), "table.json does not describe a table"),
    ("table.json", lambda _: b'{"format": 2}', r"table.json does not describe a table \('recipe'"),
    ("table.json", lambda _: said(more=3), r"table.json does not describe a table \(.*more"),
    ("table.json", lambda _: said(tau="high"), r"table.json does not describe a table \("),
    ("table.json", lambda _: said(pieces=0), "table.json does not describe a table"),
    ("table.json", lambda _: said(unknown=None), "table.json does not describe a table"),
    ("rows.npy", cut_in_half, r"rows.npy holds \d+ bytes of 6297600"),
    ("rows.npy", empty, r"rows.npy is not an array \("),
    ("rows.npy", garbage, r"rows.npy is not an array \("),
    ("rows.npy", other_header, r"rows.npy is not an array \("),
    ("rows.npy", later_version, "rows.npy is not an array of .npy version 1.0"),
    ("rows.npy", other_kind, r"rows.npy is \(49200, 128\) uint8, table.json and phrases.txt say"),
    ("scales.npy", cut_in_half, r"scales.npy holds \d+ bytes of 98400"),
    ("scales.npy", garbage, r"scales.npy is not an array \("),
    ("scales.npy", infinite, "scales.npy has infinite scales or NaN"),
    ("tokenizer.json", cut_in_half, r"tokenizer.json is not a tokenizer \("),
    ("tokenizer.json", empty, r"tokenizer.json is not a tokenizer \("),
    ("tokenizer.json", garbage, "tokenizer.json is not text in UTF-8"),
    ("tokenizer.json", lambda _: b"{}", r"tokenizer.json is not a tokenizer \("),
    ("phrases.txt", without_last_line, "phrases.txt has 2293 lines; table.json says 2294"),
    ("phrases.txt", empty, "phrases.txt has 0 lines; table.json says 2294"),
    ("phrases.txt", garbage, "phrases.txt is not text in UTF-8"),
    ("words.txt", without_last_line, "words.txt has 29639 lines; table.json says 29640"),
    ("words.txt", without_letters, "words.txt ends in the middle of a line"),
    ("words.txt", empty, "words.txt has 0 lines; table.json says 29640"),
    ("words.txt", garbage, "words.txt is not text in UTF-8"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), SPOILED)
def test_a_damaged_file_is_named(name: str, spoil: Spoil, message: str, folder: Path) -> None:
    path = folder / name
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DeepJoinError) as raised:
        StaticTable.load(folder)
    assert raised.match(
        f"^The cell table in .*table is damaged: {message}.*. Copy the folder again"
    )
    assert len(str(raised.value).splitlines()) == 1


def test_pieces_without_rows_are_noticed(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    tokenizer["model"]["vocab"]["zzyzx"] = 30522
    path.write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(DeepJoinError, match="tokenizer.json has more than the 30522 pieces of"):
        StaticTable.load(folder)


def test_the_shipped_table_is_installed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.embed.cells.folder.SHIPPED", folder)
    (folder / "words.txt").write_text("")
    with pytest.raises(DeepJoinError, match="says 29640. Install deepjoin again.$"):
        StaticTable.load(folder)
