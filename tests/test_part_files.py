"""Part files in folders: one table each, by the name of the folder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepjoin.errors import UnknownName, UnreadableTable
from deepjoin.model import Reading
from deepjoin.read.files import FileSource
from deepjoin.settings import Settings

CSV = "city,people\nParis,2\n"


def write(path: Path, content: str = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def listed(source: FileSource) -> list[str]:
    return [table.name for table in source.tables()]


def rows(reading: Reading) -> list[dict[str, object]]:
    return [row for batch in reading for row in batch.to_pylist()]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    write(folder / "cities.csv")
    for year in (2020, 2021):
        for part in (0, 1):
            path = folder / "events" / f"year={year}" / f"part-{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [year + part, 7]}), path)
    for at in range(3):
        write(folder / "geo" / "townLog" / f"part-0000{at}.csv", f"{CSV}Rome,{at}\n")
    write(folder / "geo" / "townLog" / "_SUCCESS", "")
    write(folder / "sales" / "2019.csv")
    write(folder / "sales" / "2020.csv", "city,state\nOslo,NO\n")
    return folder


def test_groups_are_tables(lake: Path) -> None:
    source = FileSource([lake])
    expected = ["cities.csv", "events", "geo/townLog", "sales/2019.csv", "sales/2020.csv"]
    assert listed(source) == expected
    assert source.skipped == []
    towns = source.table("geo/townLog")
    assert (towns.title, towns.context) == ("town Log", "geo")
    assert [row["people"] for row in rows(towns.open())] == ["2", "0", "2", "1", "2", "2"]
    assert rows(source.table("events").open())[-2:] == [
        {"id": 2022, "year": "2021"},
        {"id": 7, "year": "2021"},
    ]
    assert (
        listed(FileSource([lake], Settings(parts="never")))[1] == "events/year=2020/part-0.parquet"
    )


def test_a_group_has_no_path(lake: Path) -> None:
    source = FileSource([lake])
    assert source.path("cities.csv") == lake / "cities.csv"
    assert source.path("events") is None
    for ask in (source.path, source.table):
        with pytest.raises(UnknownName, match=r"No table 'event' in .*Did you mean 'events'\?"):
            ask("event")


def test_one_table_forces_and_names(lake: Path) -> None:
    source = FileSource(
        [lake], Settings(one_table=("sales", "geo/townLog/part-*.csv"), parts="never")
    )
    names = listed(source)
    assert names[-1] == "sales"
    assert "geo/townLog/part-*.csv" in names
    reading = source.table("sales").open()
    assert [row.get("state") for row in rows(reading)] == [None, "NO"]
    assert "Columns that not every part file has: people, state." in reading.notes
    assert len(rows(source.table("geo/townLog/part-*.csv").open())) == 6


def test_the_root_itself_may_be_a_table(lake: Path) -> None:
    source = FileSource([lake / "events"])
    assert listed(source) == ["events"]
    assert len(rows(source.table("events").open())) == 8
    write(lake / "events" / "events" / "x.csv")
    assert listed(source) == [".", "events/x.csv"]
    assert source.table(".").title == ""


def test_differing_files_are_tables_of_their_own(lake: Path) -> None:
    write(lake / "geo" / "townLog" / "part-00002.csv", "code,colour\n1,red\n")
    names = listed(FileSource([lake]))
    parts = [f"geo/townLog/part-0000{at}.csv" for at in range(3)]
    assert [name for name in names if "townLog" in name] == parts


@pytest.mark.parametrize("content", ["", "PAR1 damaged"])
def test_damaged_and_empty_members(lake: Path, content: str) -> None:
    write(lake / "geo" / "townLog" / "part-00001.csv", content)
    source = FileSource([lake])
    reading = source.table("geo/townLog").open()
    assert "geo/townLog" in listed(source)
    if content:
        with pytest.raises(UnreadableTable, match=r"part file geo/townLog/part-00001.csv: .* not"):
            rows(reading)
    else:
        assert len(rows(reading)) == 4
        assert "The file is empty. (In 1 part file.)" in reading.notes


def test_all_members_are_empty(tmp_path: Path) -> None:
    for at in range(2):
        write(tmp_path / "log" / f"part-{at}.csv", "")
    (table,) = FileSource([tmp_path]).tables()
    with pytest.raises(UnreadableTable, match=r"log is empty: so is every one of its part files\."):
        rows(table.open())


def test_a_member_may_vanish(lake: Path) -> None:
    table = FileSource([lake]).table("geo/townLog")
    (lake / "geo" / "townLog" / "part-00001.csv").unlink()
    with pytest.raises(UnreadableTable, match=r"part-00001.csv is no longer there\."):
        rows(table.open())


def test_json_lines_and_files_without_ending(tmp_path: Path) -> None:
    for at in range(2):
        write(
            tmp_path / "lines" / f"part-{at}.json",
            f'{{"a": {at}}}\n{{"a": 7, "b": {at}, "c{at}": 1}}\n',
        )
        write(tmp_path / "bare" / f"00000{at}_0", CSV)
    bare, lines = FileSource([tmp_path]).tables()
    assert len(rows(bare.open())) == 2
    assert [row["a"] for row in rows(lines.open())] == ["0", "7", "1", "7"]


def test_stamps_and_digests_follow_the_members(lake: Path) -> None:
    def items() -> dict[str, tuple[str, str | None]]:
        found = FileSource([lake]).items()
        return {item.name: (item.stamp, item.digest and item.digest()) for item in found}

    assert {stamp for stamp, _ in items().values()} == {""}
    for path in filter(Path.is_file, lake.rglob("*")):
        os.utime(path, ns=(1, 1))
    before = items()
    assert items() == before and all(stamp for stamp, _ in before.values())
    part = lake / "geo" / "townLog" / "part-00001.csv"
    os.utime(part, ns=(2, 2))
    touched = items()
    stamp, digest = touched.pop("geo/townLog")
    assert stamp != before["geo/townLog"][0] and digest == before["geo/townLog"][1]
    assert touched.items() <= before.items()
    write(part, CSV)
    assert items()["geo/townLog"][0] == ""
    assert items()["geo/townLog"][1] != digest
    part.unlink()
    assert items()["geo/townLog"][0] not in ("", stamp, before["geo/townLog"][0])


def test_groups_can_be_sent_to_another_process(lake: Path) -> None:
    table = FileSource([lake]).table("events")
    assert rows(pickle.loads(pickle.dumps(table)).open()) == rows(table.open())


def test_groups_obey_include_exclude_and_patterns(lake: Path) -> None:
    assert listed(FileSource([lake], Settings(exclude=("year=2020",))))[1] == "events"
    assert (
        len(rows(FileSource([lake], Settings(exclude=("year=2020",))).table("events").open())) == 4
    )
    assert listed(FileSource([lake], Settings(include=("*.parquet",)))) == ["events"]
    assert listed(FileSource([str(lake / "geo" / "*" / "*.csv")])) == ["townLog"]
    assert listed(FileSource([lake / "geo", lake / "cities.csv"])) == ["cities.csv", "geo/townLog"]
