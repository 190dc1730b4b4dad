"""The items of files: how changes show, what is passed over, and a source opened again."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from deepjoin.errors import DeepJoinError
from deepjoin.read.files import FileSource, reopen
from deepjoin.read.source import Item
from deepjoin.settings import Settings


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"city,people\nParis,2\nRome,3\n")
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.tsv", "geo/eu/worldCities.csv", "geo/us.txt"):
        write(tmp_path / name)
    return tmp_path


def test_what_is_passed_over_is_an_item(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "geo" / "loop").symlink_to(lake)
    (lake / "gone.csv").symlink_to(lake / "nowhere.csv")
    write(lake / "paper.pdf")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b.csv")
    source = FileSource([lake])
    items = {item.name: item for item in source.items()}
    assert list(items) == sorted(items)
    assert {name: item.stamp for name, item in items.items() if "skip" in item.stamp} == {
        "b.csv": "skipped: no permission to read it",
        "geo/loop": "skipped: links to a folder that is already listed",
        "gone.csv": "skipped: broken link",
    }
    assert not source.skipped
    list(source.tables())
    assert source.skipped == [skip for item in items.values() for skip in item.listing().skipped]
    assert {one.name: one.passing for one in source.skipped} == {
        "b.csv": True,
        "geo/loop": False,
        "gone.csv": True,
        "paper.pdf": False,
    }


def by_name(source: FileSource) -> dict[str, Item]:
    return {item.name: item for item in source.items()}


def test_items_have_stamps_and_digests(lake: Path) -> None:
    before = by_name(FileSource([lake]))["b.csv"]
    assert before.stamp == ""
    os.utime(lake / "b.csv", ns=(1, 1))
    touched = by_name(FileSource([lake]))["b.csv"]
    status = (lake / "b.csv").stat()
    assert touched.stamp == f"27-1-{status.st_ino}-{status.st_ctime_ns}"
    assert before.digest and touched.digest and before.digest() == touched.digest()


def test_another_file_of_the_same_size_and_time_is_noticed(lake: Path) -> None:
    path = lake / "b.csv"
    os.utime(path, ns=(1, 1))
    before = {item.name: item.stamp for item in FileSource([lake]).items()}
    status, other = path.stat(), lake / "other"
    other.write_bytes(path.read_bytes().swapcase())
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    after = {item.name: item.stamp for item in FileSource([lake]).items()}
    assert {one for one in before if before[one] != after[one]} == {"b.csv"}


def test_a_file_that_vanishes_while_listed_has_no_stamp(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(entry: object) -> None:
        raise FileNotFoundError

    source = FileSource([lake / "b.csv"])
    monkeypatch.setattr(Path, "stat", gone)
    (item,) = source.items()
    assert item.stamp == ""


def reopened(source: FileSource, index: Path, **settings: object) -> FileSource:
    return reopen(source.describe(index), index, Settings(**settings))  # type: ignore[arg-type]


def test_a_source_is_reopened_from_its_description(lake: Path) -> None:
    index = lake.parent / f"{lake.name}-index"
    source = FileSource([lake / "b.csv", lake / "geo" / "*.txt", lake / "geo" / "eu"])
    root = f"../{lake.name}"
    assert source.describe(index) == {
        "kind": "files",
        "root": root,
        "paths": [f"{root}/b.csv", f"{root}/geo/*.txt", f"{root}/geo/eu"],
    }
    again = reopened(source, index)
    assert list(by_name(again)) == list(by_name(source))
    assert reopened(source, index, exclude=("geo",)).settings.exclude == ("geo",)
    assert reopened(source, index, parts="never", one_table=("geo",)).settings.one_table == ("geo",)


def test_places_that_are_left_keep_their_names(lake: Path) -> None:
    places = ("b.csv", "geo/eu", "geo/eu/w*.csv", "*.tsv")
    described = FileSource([lake / place for place in places]).describe(lake / "index")
    shutil.rmtree(lake / "geo")
    (lake / "a.tsv").unlink()
    again = reopen(described, lake / "index", Settings())
    assert list(by_name(again)) == ["b.csv"]
    assert again.root == lake
    assert again.gone == tuple(lake / place for place in places[1:])
    (lake / "b.csv").unlink()
    none = reopen(described, lake / "index", Settings())
    assert not by_name(none)
    assert len(none.gone) == len(places)
    shutil.rmtree(lake)
    with pytest.raises(DeepJoinError, match=r"were in .*, which is gone\. Searches still work; to"):
        reopen(described, lake / "index", Settings())


def test_a_reopened_source_does_not_enter_its_index(lake: Path) -> None:
    source = FileSource([lake])
    expected = list(by_name(source))
    write(lake / "index" / "values" / "x.csv")
    assert list(by_name(reopened(source, lake / "index"))) == expected


@pytest.mark.parametrize(
    ("seconds", "is_stamped"), [(-3600, True), (-1, False), (0.5, False), (3600, True)]
)
def test_only_what_has_just_changed_has_no_stamp(
    lake: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, is_stamped: bool
) -> None:
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    os.utime(lake / "b.csv", ns=(now, now + int(seconds * 1e9)))
    assert bool(by_name(FileSource([lake]))["b.csv"].stamp) is is_stamped


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("book.xlsx", "fastexcel"),
        ("d/_delta_log/0.json", "deltalake"),
        ("i/metadata/v1.metadata.json", "pyiceberg.table"),
    ],
)
def test_what_needs_an_extra_may_pass(
    lake: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    write(lake / name)
    monkeypatch.setitem(sys.modules, library, None)
    (skipped,) = by_name(FileSource([lake]))[name.partition("/")[0]].listing().skipped
    assert skipped.passing
    assert "pip install" in skipped.reason
