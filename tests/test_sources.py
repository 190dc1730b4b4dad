"""Files and folders as tables: what is listed, under which name, and what is passed over."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.model import Reading, Table
from deepjoin.read import Skipped, TableSource, open_sources, title_of
from deepjoin.read.files import FileSource
from deepjoin.settings import Settings

CSV = "city,people\nParis,2\nRome,3\n"
ROWS = [{"city": "Paris", "people": "2"}, {"city": "Rome", "people": "3"}]
LINES = '{"city": "Paris", "people": 2}\n{"city": "Rome", "people": 3}\n'
INDEX_MANIFEST = '{"product": "deepjoin index"}'
BELOW = ["geo/eu/worldCities.csv", "geo/rows.jsonl", "geo/us.txt"]


def write(path: Path, content: str | bytes = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(reading: Reading) -> list[dict[str, object]]:
    return [row for batch in reading for row in batch.to_pylist()]


def names(source: object, **settings: tuple[str, ...]) -> list[str]:
    (opened,) = open_sources(source, Settings(**settings))  # type: ignore[arg-type]
    return [table.name for table in opened.tables()]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.tsv", "geo/eu/worldCities.csv", "geo/us.txt"):
        write(tmp_path / name)
    write(tmp_path / "geo" / "rows.jsonl", LINES)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("geo/world_cities-2024.csv.gz", "world cities 2024"),
        ("worldCities.csv", "world Cities"),
        ("HTTPServerLog.parquet", "HTTP Server Log"),
        ("report.v2.CSV", "report v2"),
        ("book.xlsx#Q1", "book"),
        ("sales.public", "sales public"),
        ("a#b", "a b"),
        ("Île_de-France.tsv.zst", "Île de France"),
        ("Makefile", "Makefile"),
        (".csv", "csv"),
    ],
)
def test_title(name: str, title: str) -> None:
    assert title_of(name) == title


@given(st.text(max_size=30))
def test_title_has_no_odd_spaces(name: str) -> None:
    title = title_of(name)
    assert title == " ".join(title.split())


def test_folder_is_listed_in_order(lake: Path) -> None:
    expected = ["a.tsv", "b.csv", "geo/eu/worldCities.csv", "geo/rows.jsonl", "geo/us.txt"]
    assert names(lake) == names(str(lake)) == names([lake]) == expected


def test_table_carries_title_and_context(lake: Path) -> None:
    table = FileSource([lake]).table("geo/eu/worldCities.csv")
    assert (table.title, table.context) == ("world Cities", "geo eu")
    assert FileSource([lake]).table("b.csv").context == ""
    assert rows(table.open()) == ROWS == rows(table.open())


def test_one_file(lake: Path) -> None:
    source = FileSource([lake / "geo" / "us.txt"])
    assert source.root == lake / "geo"
    assert [table.name for table in source.tables()] == ["us.txt"]


def test_mixed_locations_share_a_root(lake: Path) -> None:
    locations = [lake / "b.csv", str(lake / "geo" / "eu"), str(lake / "geo" / "*.txt")]
    assert names(locations) == ["b.csv", "geo/eu/worldCities.csv", "geo/us.txt"]


def test_overlapping_locations_are_listed_once(lake: Path) -> None:
    assert names([lake, lake / "geo", lake / "b.csv"]) == names(lake)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["b.csv"]),
        ("**/*.csv", ["b.csv", "geo/eu/worldCities.csv"]),
        ("geo/*", ["eu/worldCities.csv", "rows.jsonl", "us.txt"]),
        ("geo/**/*.[jt]*", ["rows.jsonl", "us.txt"]),
        ("g?o/eu", ["geo/eu/worldCities.csv"]),
        ("**", ["a.tsv", "b.csv", "geo/eu/worldCities.csv", "geo/rows.jsonl", "geo/us.txt"]),
    ],
)
def test_glob(lake: Path, pattern: str, expected: list[str]) -> None:
    assert names(str(lake / pattern)) == expected


def test_a_real_file_with_brackets_is_no_glob(tmp_path: Path) -> None:
    assert names(str(write(tmp_path / "a[1].csv"))) == ["a[1].csv"]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("*.csv",), (), ["b.csv", "geo/eu/worldCities.csv"]),
        (("**/*.csv",), ("b*",), ["geo/eu/worldCities.csv"]),
        (("geo/",), ("eu",), ["geo/rows.jsonl", "geo/us.txt"]),
        ((), ("geo",), ["a.tsv", "b.csv"]),
        ((), ("geo/*", "*.tsv"), ["b.csv"]),
        (("us.txt", "./b.csv"), (), ["b.csv", "geo/us.txt"]),
    ],
)
def test_include_and_exclude(
    lake: Path, include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str]
) -> None:
    assert names(lake, include=include, exclude=exclude) == expected


def test_hidden_files_and_indexes_are_passed_over_in_silence(lake: Path) -> None:
    for name in (".hidden.csv", ".deepjoin/x.csv", "~$book.xlsx", "idx/x.csv", "new/lock"):
        write(lake / name)
    write(lake / "idx" / "manifest.json", INDEX_MANIFEST)
    write(lake / "idx" / "segments" / "s.parquet", b"")
    write(lake / "new" / "segments" / "s.parquet", b"")
    write(lake / "out" / "x.csv")
    source = FileSource([lake], skip_dirs=[lake / "out"])
    expected = [*names(lake / "*.*"), *BELOW]
    assert [table.name for table in source.tables()] == expected
    assert source.skipped == []


def test_a_folder_that_does_not_exist_yet_is_skipped(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = names(lake)
    monkeypatch.setenv("HOME", str(lake))
    monkeypatch.chdir(lake)
    for given_as in (lake / "geo" / "index", "geo/index", "~/geo/index"):
        (source,) = open_sources(lake, Settings(), skip_dirs=[given_as])
        write(lake / "geo" / "index" / "values" / "x.csv")
        assert [table.name for table in source.tables()] == expected
        assert source.skipped == []
        shutil.rmtree(lake / "geo" / "index")


def test_unknown_endings_are_skipped_unless_named(tmp_path: Path) -> None:
    for name in ("paper.pdf", "LICENSE", "old.tar.gz", "t.parquet.gz", "x.log"):
        write(tmp_path / name)
    source = FileSource([tmp_path])
    assert list(source.tables()) == []
    assert {skip.reason for skip in source.skipped} == {
        f"not a table format we read ({ending})"
        for ending in (".pdf", "no ending", ".tar.gz", ".parquet.gz", ".log")
    }
    assert rows(next(FileSource([tmp_path / "x.log"]).tables()).open()) == ROWS
    assert names(str(tmp_path / "*.log")) == names(tmp_path, include=("*.log",)) == ["x.log"]


def test_names_that_are_not_text_are_skipped(lake: Path) -> None:
    try:
        write(Path(os.fsdecode(os.fsencode(lake) + b"/b\xff.csv")))
    except OSError:
        pytest.skip("this file system allows only UTF-8 names")
    source = FileSource([lake])
    assert len(list(source.tables())) == 5
    assert source.skipped == [Skipped("b\\xff.csv", "its name is not valid UTF-8")]


def test_pipes_are_not_read(lake: Path) -> None:
    os.mkfifo(lake / "pipe.csv")
    source = FileSource([lake])
    assert len(list(source.tables())) == 5
    assert source.skipped == [Skipped("pipe.csv", "not a regular file")]
    with pytest.raises(DeepJoinError, match=r"pipe.csv' is neither a file nor a folder\."):
        FileSource([lake / "pipe.csv"])


def test_links_are_followed_once(lake: Path) -> None:
    (lake / "again").symlink_to(lake / "geo")
    (lake / "geo" / "loop").symlink_to(lake)
    (lake / "gone.csv").symlink_to(lake / "nowhere.csv")
    (lake / "self.csv").symlink_to(lake / "self.csv")
    outside = lake.parent / f"{lake.name}-outside"
    write(outside / "far.csv")
    (lake / "linked").symlink_to(outside)
    source = FileSource([lake])
    listed = [table.name for table in source.tables()]
    assert listed == sorted([*names(lake / "*.*"), *BELOW, "linked/far.csv"])
    reasons = {skip.name: skip.reason for skip in source.skipped}
    already = "links to a folder that is already listed"
    assert reasons.pop("self.csv") in ("broken link", "too many levels of symbolic links")
    assert reasons == {"again": already, "geo/loop": already, "gone.csv": "broken link"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: run as another user")
def test_no_permission(lake: Path) -> None:
    (lake / "geo").chmod(0)
    (lake / "b.csv").chmod(0)
    source = FileSource([lake])
    try:
        assert [table.name for table in source.tables()] == ["a.tsv"]
    finally:
        (lake / "geo").chmod(0o755)
    reason = "no permission to read it"
    assert set(source.skipped) == {Skipped(name, reason, passing=True) for name in ("geo", "b.csv")}


def test_a_folder_that_may_not_be_read_is_skipped(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(folder: Path) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == "geo":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b.csv")
    source = FileSource([lake])
    assert [table.name for table in source.tables()] == ["a.tsv"]
    assert {skip.name for skip in source.skipped} == {"geo", "b.csv"}
    assert {skip.reason for skip in source.skipped} == {"no permission to read it"}
    assert all(skip.passing for skip in source.skipped)


def test_table_by_name_leaves_no_trace(lake: Path) -> None:
    write(lake / "a#b.csv")
    source = FileSource([lake])
    assert source.table("a#b.csv").name == "a#b.csv"
    assert source.path("geo/us.txt") == lake / "geo" / "us.txt"
    assert source.skipped == []


@pytest.mark.parametrize("name", ["geo/uk.txt", "../x.csv", "/etc/hosts", "", "geo", "x.pdf"])
def test_unknown_table(lake: Path, name: str) -> None:
    write(lake / "x.pdf")
    write(lake.parent / "x.csv")
    source = FileSource([lake])
    with pytest.raises(UnknownName, match=f"No table '{name}' in "):
        source.table(name)
    assert source.skipped == []


def test_unknown_table_has_a_suggestion(lake: Path) -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'geo/us.txt'\?"):
        FileSource([lake]).table("geo/us.tx")


def test_neighbours_of_a_named_file_are_unknown(lake: Path) -> None:
    with pytest.raises(UnknownName, match=r"No table 'a.tsv' in .* Tables: b.csv\."):
        FileSource([lake / "b.csv"]).table("a.tsv")


def test_tables_can_be_sent_to_another_process(lake: Path) -> None:
    for table in FileSource([lake]).tables():
        copy: Table = pickle.loads(pickle.dumps(table))
        assert rows(copy.open()) == rows(table.open())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (7, r"Cannot take tables from int\. Allowed: a folder, a file, a pattern"),
        (None, r"Cannot take tables from NoneType\."),
        ([], r"Cannot take tables from a list of nothing\."),
        ([1, "a"], r"Cannot take tables from a list of int, str\."),
        ({}, "The dict is empty: pass name to frame"),
        ({"a": 1}, "'a' is a int, not a frame: pass a pandas"),
        ([pa.table({"a": [1]})], "A list of frames has no table names: pass a dict"),
    ],
)
def test_what_is_no_source(source: object, text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        open_sources(source, Settings())


def test_paths_that_do_not_exist(lake: Path) -> None:
    with pytest.raises(DeepJoinError, match=r"No file or folder '.*gro/us.txt'.* mean '.*geo'\?"):
        open_sources(lake / "gro" / "us.txt", Settings())
    with pytest.raises(DeepJoinError, match=r"No file or folder '.*zzzz/q/\*.csv'\. '.*' exists\."):
        open_sources(str(lake / "zzzz" / "q" / "*.csv"), Settings())
    with pytest.raises(DeepJoinError, match=r"No file matches '.*geo/\*.cvs'\."):
        open_sources(str(lake / "geo" / "*.cvs"), Settings())


def test_a_path_in_a_closed_folder(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DeepJoinError, match=r"Cannot look for '.*x.csv': no permission to read"):
        open_sources(lake / "x.csv", Settings())


def test_an_index_is_no_folder_of_tables(tmp_path: Path) -> None:
    write(tmp_path / "manifest.json", INDEX_MANIFEST)
    (tmp_path / "segments").mkdir()
    with pytest.raises(DeepJoinError, match=r"is a deepjoin index.*open it with deepjoin\.open"):
        open_sources(tmp_path, Settings())


def test_home_folder_is_understood(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(lake))
    assert names("~/geo/*.txt") == names("~/geo/us.txt") == ["us.txt"]


def test_a_source_of_ones_own_is_taken_as_it_is(lake: Path) -> None:
    source = FileSource([lake])
    assert isinstance(source, TableSource)
    assert open_sources(source, Settings()) == [source]


@pytest.mark.parametrize("manifest", ["{}", '["a.ts"]', "not JSON", '{"product": "hls"}'])
def test_the_manifests_of_other_programs_make_no_index(tmp_path: Path, manifest: str) -> None:
    write(tmp_path / "video" / "manifest.json", manifest)
    write(tmp_path / "video" / "segments" / "times.csv")
    assert names(tmp_path) == ["video/segments/times.csv"]
    assert names(tmp_path / "video") == ["segments/times.csv"]


def test_a_manifest_that_cannot_be_read_makes_no_index(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    write(tmp_path / "segments" / "times.csv")
    assert names(tmp_path) == ["segments/times.csv"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/u:hunter2@h/db",
        "postgresql:u:hunter2@h/db",
        "mysql+pymysql:/u:hu*nter2@h/db",
        "postgresql:/h/db?password=hunter2",
        " postgresql://u:hunter2@h/db",
    ],
)
def test_a_url_short_of_a_slash_is_refused_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    scheme = re.escape(url.strip().partition(":")[0])
    text = f"begins with '{scheme}:' is neither a file nor a URL, which has two slashes: {scheme}:"
    with pytest.raises(DeepJoinError, match=text) as caught:
        open_sources(url, Settings())
    assert "nter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["host=h password=hunter2 dbname=d", "Driver=X;Pwd = hunter2;Server=h"]
)
def test_settings_with_a_password_are_refused_unseen(given: str) -> None:
    with pytest.raises(DeepJoinError, match=r"named as in postgresql://user@host/name") as caught:
        open_sources(given, Settings())
    assert "hunter2" not in str(caught.value)


def test_a_folder_of_partitions_is_not_a_setting(tmp_path: Path) -> None:
    write(tmp_path / "passengers=3" / "a.csv")
    assert names(str(tmp_path / "passengers=*" / "*.csv")) == ["passengers=3/a.csv"]
    with pytest.raises(DeepJoinError, match=r"Did you mean '.*passengers=3'"):
        names(str(tmp_path / "passengers=4"))


def test_a_path_with_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "at:9:00@home.csv")
    assert names("at:9:00@home.csv") == ["at:9:00@home.csv"]


def test_looking_for_a_table_leaves_the_neighbours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a/b", "a/bc"):
        for number in range(2):
            write(tmp_path / folder / "log" / f"part-{number}.csv")
    source = FileSource([tmp_path / "a" / "b" / "log", tmp_path / "a" / "bc" / "log"])
    seen: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(
        os, "scandir", lambda folder: (seen.append(str(folder)), scandir(folder))[1]
    )
    assert source.table("b/log").name == "b/log"
    assert not [folder for folder in seen if "bc" in folder]
