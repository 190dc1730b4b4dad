"""Delta and Iceberg tables, made on the spot: one table each, as they are now."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deepjoin.errors import DeepJoinError, MissingExtra, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.files import FileSource
from deepjoin.read.folders import DELTA, ICEBERG, current_metadata, read_delta, read_iceberg
from deepjoin.settings import Settings

pytestmark = pytest.mark.slow

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

CITIES = pa.table({"id": [1, 2, 3], "city": ["Rome", "Lima", "Oslo"], "year": [2020, 2020, 2021]})
LEFT = [{"id": 1, "city": "Rome", "year": 2020}, {"id": 3, "city": "Oslo", "year": 2021}]
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def rows(reading: Reading) -> list[dict[str, Any]]:
    found = [row for batch in reading for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row.get("id", 0))


def write_delta(folder: Path, table: pa.Table = CITIES, **options: Any) -> Path:
    deltalake.write_deltalake(str(folder), table, **options)
    return folder


def write_iceberg(folder: Path, table: pa.Table = CITIES) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    catalogue = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalogue.create_namespace("geo")
    made = catalogue.create_table("geo.worldCities", schema=table.schema)
    if table.num_rows:
        made.append(table)
    catalogue.close()
    return made


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Write a Delta table in two versions, the second without one of the rows."""
    folder = write_delta(tmp_path / "lake" / "geo" / "worldCities", partition_by=["year"])
    deltalake.DeltaTable(str(folder)).delete("id = 2")
    return folder


@pytest.fixture
def iceberg(tmp_path: Path) -> Path:
    """Write an Iceberg table and delete one of its rows."""
    made = write_iceberg(tmp_path / "lake")
    made.delete("id = 2")
    return tmp_path / "lake" / "w" / "geo" / "worldCities"


@pytest.fixture(params=["delta", "iceberg"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_a_folder_is_one_table(folder: Path) -> None:
    source = FileSource([folder.parent.parent])
    (table,) = source.tables()
    assert (table.name, table.title, table.context) == ("geo/worldCities", "world Cities", "geo")
    assert rows(table.open()) == LEFT == rows(source.table("geo/worldCities").open())
    assert rows(pickle.loads(pickle.dumps(table)).open()) == LEFT
    assert source.path("geo/worldCities") is None


def test_the_root_itself_is_the_table(folder: Path) -> None:
    source = FileSource([folder])
    assert [table.name for table in source.tables()] == ["worldCities"]
    assert rows(source.table("worldCities").open()) == LEFT


def test_patterns_meet_the_whole_table(folder: Path) -> None:
    lake = folder.parent.parent
    for pattern, count in (
        (str(lake / "**" / "*.parquet"), 1),
        (str(folder / "*.parquet"), 1),
        (str(lake / "geo" / "*"), 1),
    ):
        assert len(list(FileSource([pattern]).tables())) == count
    with pytest.raises(DeepJoinError, match="No file matches"):
        FileSource([str(lake / "**" / "*.csv")])
    for settings, count in (
        ({"include": ["*.parquet"]}, 1),
        ({"include": ["*.csv"]}, 0),
        ({"exclude": ["geo"]}, 0),
        ({"exclude": ["worldCities"]}, 0),
    ):
        assert len(list(FileSource([lake], Settings(**settings)).tables())) == count  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "write"), [(DELTA, write_delta), (ICEBERG, write_iceberg)])
def test_an_empty_table_has_columns(tmp_path: Path, kind: Any, write: Any) -> None:
    write(tmp_path / "t", CITIES.slice(0, 0))
    (table,) = FileSource([tmp_path / "t" if kind is DELTA else tmp_path / "t" / "w"]).tables()
    (batch,) = table.open()
    assert (batch.num_rows, batch.schema.names) == (0, ["id", "city", "year"])


def stamps(lake: Path) -> tuple[str, str]:
    """Give the stamp and digest of a table some time after its last change."""
    for path in filter(Path.is_file, lake.rglob("*")):
        if path.stat().st_mtime_ns != 1:  # to set the time again would change the status
            os.utime(path, ns=(1, 1))
    (item,) = FileSource([lake]).items()
    assert item.digest is not None
    return item.stamp, item.digest()


def test_delta_stamps(delta: Path) -> None:
    before = stamps(delta.parent)
    assert before == stamps(delta.parent)
    assert before[0].startswith("version 1-")
    copied = Path(
        shutil.copytree(delta.parent, delta.parent.parent / "copy", copy_function=shutil.copy)
    )
    assert stamps(copied)[1] == before[1]
    write_delta(delta, mode="append")
    after = stamps(delta.parent)
    assert after[0].startswith("version 2-")
    assert after[1] != before[1]
    assert len(rows(read_delta(delta))) == 5


def test_iceberg_stamps(tmp_path: Path) -> None:
    made = write_iceberg(tmp_path / "lake")
    lake = tmp_path / "lake" / "w"
    before = stamps(lake)
    assert before[0].startswith("00001-")
    made.append(CITIES)
    after = stamps(lake)
    assert after[0].startswith("00002-")
    assert after[1] != before[1]
    assert len(rows(read_iceberg(lake / "geo" / "worldCities"))) == 6


@pytest.mark.parametrize(
    ("hint", "expected"),
    [("1", "v1.metadata.json"), ("2", "v2.gz.metadata.json"), ("9", "v10.metadata.json"),
     ("v1.metadata.json", "v1.metadata.json"), (None, "v10.metadata.json")],
)  # fmt: skip
def test_the_hint_of_a_warehouse(tmp_path: Path, hint: str | None, expected: str) -> None:
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    for name in ("v1.metadata.json", "v2.gz.metadata.json", "v10.metadata.json", "snap-99.avro"):
        (metadata / name).write_text("{}")
    if hint:
        (metadata / "version-hint.text").write_text(f"{hint}\n")
    assert current_metadata(tmp_path) == metadata / expected


@pytest.mark.parametrize(
    ("name", "extra"), [("deltalake", "delta"), ("pyiceberg.table", "iceberg")]
)
def test_a_missing_extra(
    name: str, extra: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = request.getfixturevalue(extra)
    monkeypatch.setitem(sys.modules, name, None)
    source = FileSource([folder.parent])
    assert list(source.tables()) == []
    (skipped,) = source.skipped
    assert skipped.name == "worldCities"
    assert skipped.reason.endswith(f": pip install 'deepjoin[{extra}]'")
    with pytest.raises(
        MissingExtra, match=rf"Reading .*worldCities needs {name.partition('.')[0]}: pip"
    ):
        list(FileSource([folder]).tables())
    with pytest.raises(MissingExtra, match=rf"pip install 'deepjoin\[{extra}\]'"):
        source.table("worldCities")


def test_damaged_tables(delta: Path, tmp_path: Path) -> None:
    for log in (delta / "_delta_log").iterdir():
        log.write_text("{damaged")
    with pytest.raises(UnreadableTable, match="worldCities is not a readable Delta table: "):
        rows(read_delta(delta))
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(UnreadableTable, match="is not a readable Iceberg table: "):
        rows(read_iceberg(tmp_path))


def test_a_file_of_the_table_is_missing(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        path.unlink()
    (table,) = FileSource([folder]).tables()
    with pytest.raises(UnreadableTable, match="worldCities"):
        rows(table.open())


def test_a_moved_delta_table_is_read_and_a_moved_iceberg_table_explained(folder: Path) -> None:
    moved = folder.parent.parent.parent / "moved"
    os.rename(folder, moved)
    (table,) = FileSource([moved]).tables()
    if (moved / "_delta_log").exists():
        assert rows(table.open()) == LEFT
        return
    with pytest.raises(UnreadableTable, match=r"that was moved here from .*worldCities.*move it"):
        rows(table.open())


def _deletion_vector(rows: list[int]) -> dict[str, Any]:
    """Write down deleted rows inside the log itself, as the Delta protocol has it."""
    header = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1)
    bitmap = header + struct.pack("<I", 16) + struct.pack(f"<{len(rows)}H", *rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    text = base64.b85encode(padded).decode().translate(str.maketrans(B85, Z85))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def _with_deletion_vector(folder: Path) -> None:
    path = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (add,) = (line["add"] for line in lines if "add" in line)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    vector = _deletion_vector([1])
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    actions = [
        {"protocol": protocol},
        {"remove": remove},
        {"add": {**add, "deletionVector": vector}},
    ]
    commit = folder / "_delta_log" / f"{1:020}.json"
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_deletion_vectors_are_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_delta(tmp_path / "t")
    _with_deletion_vector(folder)
    assert rows(read_delta(folder)) == LEFT
    monkeypatch.delattr(deltalake.DeltaTable, "scan")
    with pytest.raises(UnreadableTable, match="features that the installed deltalake cannot read"):
        rows(read_delta(folder))
