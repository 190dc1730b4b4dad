"""The lake as an object: what is indexed, where the index goes, and how it travels."""

from __future__ import annotations

import gc
import json
import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column, Lake, Settings
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.joining.entry import JoinWarning
from deepjoin.read.corpus import write_corpus
from deepjoin.search import evidence, likely
from tests.support.command_line import Run
from tests.support.index_files import files_of, search_answers

from .conftest import MakeLake

COUNTRIES = "geo/countries.csv"


def listing(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.slow
def test_index_says_what_it_did(run: Run, lake_folder: Path) -> None:
    (lake_folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    answer = run("index", lake_folder)
    assert answer.out == f"{lake_folder / '.deepjoin'}\n"
    assert "Indexed 3 tables: 7 columns, 66 distinct values" in answer.err
    assert "Columns left out: 1 fewer than 5 distinct values." in answer.err
    assert "Not read: 1." in answer.err
    assert "picture.png: not a table format we read (.png)" in answer.err
    info = run("index", lake_folder, "--format", "json").json
    assert (info["tables"], info["columns"], info["skipped"][0]["name"]) == (3, 7, "picture.png")


def test_many_skipped_files_are_counted_not_listed(run: Run, lake_folder: Path) -> None:
    for number in range(8):
        (lake_folder / f"{number}.png").write_bytes(b"\x89PNG")
    answer = run("index", lake_folder)
    assert "Not read: 8." in answer.err
    assert "and 3 more; see: deepjoin info" in answer.err
    shown = run("info", lake_folder).out
    assert sum(".png: not a table" in line for line in shown.splitlines()) == 8


def test_dry_run_writes_nothing(run: Run, lake_folder: Path, tmp_path: Path) -> None:
    before = listing(tmp_path)
    text = run("index", lake_folder, "--dry-run", "-o", tmp_path / "ix")
    assert text.status == 0
    assert "3 tables" in text.out
    assert "nothing was written" in text.out
    expected = run("index", lake_folder, "--dry-run", "--format", "json").json
    assert (expected["tables"], expected["columns"], expected["tried"]) == (3, 7, 3)
    assert expected["bytes"] == sum(p.stat().st_size for p in lake_folder.rglob("*.csv"))
    assert expected["disk"] > 0
    assert listing(tmp_path) == before


def test_dry_run_names_what_cannot_be_read(run: Run, lake_folder: Path) -> None:
    (lake_folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (lake_folder / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (lake_folder / "nothing.csv").write_text("")
    lines = run("index", lake_folder, "--dry-run").out.splitlines()
    assert {line.split(":")[1].strip() for line in lines if line.startswith("not read: ")} == {
        *("picture.png", "picture.csv", "nothing.csv")
    }


def test_dry_run_counts_a_workbook_once(run: Run, tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for name in ("one", "two", "three"):
        sheet = book.create_sheet(name)
        for row in range(9):
            sheet.append([f"{name} {row}", row])
    book.remove(book["Sheet"])
    (tmp_path / "lake").mkdir()
    path = tmp_path / "lake" / "book.xlsx"
    book.save(path)
    expected = run("index", path.parent, "--dry-run", "--format", "json").json
    assert (expected["tables"], expected["bytes"]) == (3, path.stat().st_size)


@pytest.mark.parametrize("what", ["folder", "corpus"])
def test_dry_run_of_nothing(run: Run, tmp_path: Path, what: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    if what == "corpus":
        write_corpus(empty, [], [])
    answer = run("index", empty, "--dry-run")
    assert answer.status == 0
    assert "0 tables" in answer.out


@pytest.mark.slow
def test_column_vectors_are_made_by_one_command(
    run: Run, lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default search never reads them; the paper's method says how to get them."""
    monkeypatch.setattr("deepjoin.build.encoding._WORTH_A_WORD", 0)
    answer = run("index", lake_folder)
    assert "Encoding" not in answer.err
    index = lake_folder / ".deepjoin"
    assert not list(index.rglob("vectors/columns")) and list(index.rglob("vectors/cells"))
    search = ("search", lake_folder, "--values", "France,Peru", "--method", "deepjoin")
    command = f"deepjoin index {index} --encoder default"
    run(*search).refused(f"has no column vectors, which method 'deepjoin' needs. Make them in "
                         f"about 1 s with: {command}")  # fmt: skip
    forecast = run(*command.split()[1:], "--dry-run").out
    assert "7 columns to encode" in forecast and "about 1 s and 5.7 KB of disk" in forecast
    assert not list(index.rglob("vectors/columns"))
    answer = run(*command.split()[1:])
    assert "Encoding 7 columns takes about 1 s." in answer.err
    assert run(*search, "--format", "json").hits[0][0] == COUNTRIES
    assert "Encoding" not in run("index", lake_folder).err, "they stay"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "tables"),
    [
        (["--include", "geo/*"], {"geo/cities.csv", COUNTRIES}),
        (["--include", "numbers.csv", "--include", "*cities*"], {"geo/cities.csv", "numbers.csv"}),
        (["--exclude", "geo"], {"numbers.csv"}),
        (["--include", "*.csv", "--exclude", "*c*t*s*"], {"numbers.csv"}),
    ],
)
def test_include_and_exclude(
    run: Run, lake_folder: Path, options: list[str], tables: set[str]
) -> None:
    answer = run("index", lake_folder, *options)
    assert answer.status == 0
    assert set(deepjoin.open(lake_folder).tables) == tables


@pytest.mark.parametrize("options", [("--include", "*.parquet"), ("--exclude", "*")])
def test_filters_that_leave_no_file_are_named(
    run: Run, lake_folder: Path, options: tuple[str, str]
) -> None:
    why = "has no table: --include and --exclude leave out every file"
    run("index", lake_folder, *options).refused("No index was made", why)
    assert not (lake_folder / ".deepjoin").exists()


def test_denied_columns_leave_no_trace(run: Run, lake_folder: Path) -> None:
    (lake_folder / "staff.csv").write_text(
        "name,Salary_EUR,password\n" + "".join(f"n{i},secret{i}7,hush{i}9\n" for i in range(9))
    )
    assert (
        run("index", lake_folder, "--deny-column", "salary*", "--deny-column", "PASSWORD").status
        == 0
    )
    lake = deepjoin.open(lake_folder)
    reasons = {column.name: column.left_out for column in lake.table("staff.csv").columns}
    assert reasons == {"name": "", "Salary_EUR": "denied by name", "password": "denied by name"}
    assert lake.report.left_out["denied by name"] == 2
    everything = b"".join(files_of(lake_folder / ".deepjoin").values())
    assert b"secret" not in everything
    assert b"hush" not in everything


def test_min_distinct(run: Run, lake_folder: Path) -> None:
    assert run("index", lake_folder, "--min-distinct", 2, "--format", "json").json["columns"] == 8
    assert run("index", lake_folder, "--min-distinct", 7, "--format", "json").json["columns"] == 3


def test_profile(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "t.csv").write_text("n\n7.0\n8.0\n9.0\n10.0\n11.0\n")
    wide = ("search", tmp_path / "lake", "--values", "7,8", "--format", "json")
    assert len(run(*wide).hits) == 1
    assert run("index", tmp_path / "lake", "--profile", "basic").status == 0
    assert run(*wide).hits == []


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1K", "0.5M", "1GB", "2g", "4096"])
def test_memory_changes_no_byte(run: Run, lake_folder: Path, tmp_path: Path, size: str) -> None:
    plain, small = tmp_path / "plain", tmp_path / "small"
    assert run("index", lake_folder, "-o", plain).status == 0
    assert run("index", lake_folder, "-o", small, "--memory", size).status == 0
    assert files_of(plain) == files_of(small)


@pytest.mark.parametrize("size", ["lots", "", "-1G", "1X", "G", "1 2"])
def test_memory_that_is_no_size(run: Run, lake_folder: Path, size: str) -> None:
    run("index", lake_folder, f"--memory={size}").refused(f"'{size}'", "500M or 2G", status=2)
    assert not (lake_folder / ".deepjoin").exists()


@pytest.mark.slow
def test_an_index_never_lands_among_other_things(
    run: Run, lake_folder: Path, tmp_path: Path
) -> None:
    before = files_of(tmp_path)
    run("index", lake_folder, "-o", tmp_path).refused(str(tmp_path), "empty folder")
    run("index", lake_folder, "-o", lake_folder / "numbers.csv").refused("is a file", "-o")
    run("index", lake_folder, "-o", tmp_path / "orders.csv" / "ix").refused("orders.csv", "-o")
    assert files_of(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert run("index", lake_folder, "-o", tmp_path / "empty").status == 0
    assert run("index", lake_folder, "-o", tmp_path / "new" / "deep").status == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "segments", "lock"])
def test_a_folder_of_tables_may_have_the_names_of_an_index(
    run: Run, lake_folder: Path, name: str
) -> None:
    if name == "segments":
        (lake_folder / name).mkdir()
        (lake_folder / "numbers.csv").rename(lake_folder / name / "numbers.csv")
    else:
        (lake_folder / name).write_text('{"name": "a web extension"}')
    wide = ("search", lake_folder, "--values", "Peru,Japan", "--format", "json")
    for _ in range(2):
        answer = run(*wide)
        assert answer.status == 0, answer.err
        assert answer.hits[0] == (COUNTRIES, "country")
    assert len(deepjoin.open(lake_folder).tables) == 3


@pytest.mark.parametrize("name", ["none.csv", "empty.csv", "book.xlsx"])
def test_titles_that_cannot_be_read(run: Run, lake_folder: Path, tmp_path: Path, name: str) -> None:
    import openpyxl

    (tmp_path / "empty.csv").write_text("")
    book = openpyxl.Workbook()
    for sheet in (book.active, book.create_sheet("two")):
        sheet.append(["table", "title", "context"])
        sheet.append(["numbers.csv", "Numbers", ""])
    book.save(tmp_path / "book.xlsx")
    run("index", lake_folder, "--titles", tmp_path / name).refused(name)


def test_an_index_as_source_is_refreshed(run: Run, lake_folder: Path, tmp_path: Path) -> None:
    assert run("index", lake_folder).status == 0
    index = lake_folder / ".deepjoin"
    assert "Nothing has changed" in run("index", index).err
    (lake_folder / "new.csv").write_text("land\nFrance\nItaly\nPeru\nChad\nMali\n")
    assert "Found 1 new." in run("index", index).err
    run("index", index, "-o", tmp_path / "ix").refused("is a deepjoin index", "deepjoin search")


def test_read_only_folders_are_indexed_here(
    run: Run, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the system's answer is replaced."""
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode != os.W_OK and may(path, mode), raising=True
    )
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = listing(lake_folder)
    wide = ("search", lake_folder, "--values", "Peru,Japan", "--format", "json")
    first, second = run(*wide), run(*wide)
    assert first.hits[0] == (COUNTRIES, "country")
    assert (here / ".deepjoin" / "manifest.json").is_file()
    assert listing(lake_folder) == before
    assert "indexing" not in second.err, "what was indexed on first use is used again"


@pytest.mark.slow
def test_another_read_only_folder_does_not_replace_the_first(
    run: Run, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (other / "t.csv").write_text("x\n1\n3\n5\n7\n9\n")
    monkeypatch.chdir(here)
    run("search", lake_folder, "--values", "Peru,Japan")
    run("search", other, "--values", "5,7")
    answer = run("search", lake_folder, "--values", "Peru,Japan", "--format", "json")
    assert answer.hits[0] == (COUNTRIES, "country")


@pytest.mark.parametrize("source", ["numbers.csv", "num*.csv"])
def test_indexing_a_part_keeps_the_index_of_the_whole(
    run: Run, lake_folder: Path, source: str
) -> None:
    assert run("index", lake_folder).status == 0
    run("index", lake_folder / source)
    assert len(deepjoin.open(lake_folder).tables) == 3


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(lake_folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    deepjoin.index(lake_folder, one)
    deepjoin.index(lake_folder, two)
    assert files_of(one) == files_of(two)
    before, expected = files_of(one), search_answers(one)
    deepjoin.index(lake_folder, one)
    assert files_of(one) == before
    assert search_answers(one) == expected


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "beside"])
def test_an_index_travels_with_its_tables(
    run: Run, tmp_path: Path, lake_folder: Path, inside: bool
) -> None:
    home = tmp_path / "home"
    shutil.copytree(lake_folder, home / "data")
    index = home / "data" / ".deepjoin" if inside else home / "ix"
    expected = search_answers(Path(deepjoin.index(home / "data", index).path))
    away = tmp_path / "away" / "far"
    away.parent.mkdir()
    shutil.copytree(home, away)
    shutil.rmtree(home)
    moved = away / index.relative_to(home)
    assert search_answers(moved) == expected
    assert str(home).encode() not in b"".join(files_of(moved).values()), "no absolute path inside"
    target = ("-c", "customer_country", "--with", f"{COUNTRIES}:country", "--format", "json")
    records = run("join", moved, tmp_path / "orders.csv", *target).json
    assert records[0]["capital"] == "Paris"


@pytest.mark.slow
@pytest.mark.parametrize("linked", ["index", "tables", "parent"])
def test_an_index_behind_a_link_still_joins(
    run: Run, tmp_path: Path, lake_folder: Path, linked: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    link = tmp_path / "a" / "b" / "link"
    if linked == "index":
        deepjoin.index(lake_folder, tmp_path / "ix")
        link.symlink_to(tmp_path / "ix")
        index = link
    elif linked == "tables":
        link.symlink_to(lake_folder)
        deepjoin.index(link)
        index = link
    else:
        deepjoin.index(lake_folder)
        link.symlink_to(tmp_path)
        index = link / "data"
    target = ("-c", "customer_country", "--with", f"{COUNTRIES}:country", "--format", "json")
    answer = run("join", index, tmp_path / "orders.csv", *target)
    assert answer.status == 0, answer.err
    assert answer.json[0]["capital"] == "Paris"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cities.xyz", "cities"])
def test_a_file_named_outright_joins_whatever_its_ending(
    run: Run, tmp_path: Path, lake_folder: Path, name: str
) -> None:
    (tmp_path / "odd").mkdir()
    shutil.copy(lake_folder / COUNTRIES, tmp_path / "odd" / name)
    assert run("index", tmp_path / "odd" / name, "-o", tmp_path / "ix").status == 0
    target = ("-c", "customer_country", "--with", f"{name}:country", "--format", "json")
    answer = run("join", tmp_path / "ix", tmp_path / "orders.csv", *target)
    assert answer.status == 0, answer.err
    assert answer.json[0]["capital"] == "Paris"


def test_several_sources_make_one_lake(run: Run, lake_folder: Path, tmp_path: Path) -> None:
    answer = run("index", lake_folder / "geo", tmp_path / "orders.csv", "-o", tmp_path / "ix")
    assert answer.status == 0
    assert list(deepjoin.open(tmp_path / "ix").tables) == [
        *("data/geo/cities.csv", "data/geo/countries.csv", "orders.csv")
    ]


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("dta", ["No file or folder 'dta'", "Did you mean"]),
        ("nosuch://bucket/tables", ["nosuch"]),
        ("data/*.parquet", ["No file matches 'data/*.parquet'"]),
    ],
)
def test_sources_that_cannot_be(
    run: Run, lake_folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, texts: list[str]
) -> None:
    monkeypatch.chdir(lake_folder.parent)
    run("index", source).refused(*texts)
    assert not (lake_folder.parent / ".deepjoin").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "it holds no file of a format that deepjoin reads"),
        ({"a.md": "# a"}, "1 file is not readable as tables, a.md: not a table format"),
        ({"a.csv": "", "b.csv": ""}, "2 files are not readable as tables, a.csv: is empty"),
    ],
    ids=["empty", "other files", "empty files"],
)
def test_a_folder_without_a_table_makes_no_index(
    run: Run, tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    run("index", folder).refused(f"No index was made, since {folder} has no table: {reason}")
    assert run("search", folder, "--values", "a,b").status == 1
    assert {path.name for path in folder.iterdir()} == set(files)
    (folder / "c.csv").write_text("city\nRome\nOslo\nLima\nBonn\nNice\n")
    assert run("index", folder).status == 0


def test_a_table_is_described(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    entry = lake.table(COUNTRIES)
    assert (entry.title, entry.context, entry.rows) == ("countries", "geo", 6)
    assert [(c.name, c.type, c.distinct) for c in entry.columns] == [
        *(("country", "text", 6), ("capital", "text", 6), ("population", "integer", 6))
    ]
    assert entry.sample[0] == {"country": "France", "capital": "Paris", "population": "68"}
    assert repr(lake) == f"Lake('{lake_folder / '.deepjoin'}', 3 tables, 7 columns)"
    with pytest.raises(UnknownName, match=r"No table 'geo' .*countries"):
        lake.table("geo")


def test_a_lake_is_a_mapping_of_tables(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    assert list(lake) == list(lake.tables) and len(lake) == 3
    entry = lake["geo/countries.csv"]
    assert [column.name for column in entry.columns] == ["country", "capital", "population"]
    lines = repr(entry).splitlines()
    assert lines[0] == "geo/countries.csv: countries, 6 rows"
    assert lines[2].split() == ["country", "text", "6", "indexed"]
    with pytest.raises(KeyError) as error:
        lake["geo/countrys.csv"]
    assert isinstance(error.value, deepjoin.DeepJoinError)
    assert str(error.value).endswith("Did you mean 'geo/countries.csv'?")


@pytest.mark.parametrize("kind", [None, "pandas", "polars", "arrow"])
def test_a_table_is_read_as_a_frame(lake_folder: Path, kind: str | None) -> None:
    lake = deepjoin.index(lake_folder)
    frame = lake.read("geo/countries.csv", kind)
    expected = {None: pd.DataFrame, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    assert isinstance(frame, expected.get(kind, pa.Table))
    rows = frame.to_arrow() if kind == "polars" else pa.table(frame)
    assert rows["country"].to_pylist()[0] == "France"
    assert sum(rows["population"].to_pylist()) == 417, "numbers, and not text"
    with pytest.raises(deepjoin.DeepJoinError, match="No kind of frame 'panda'.*'pandas'?"):
        lake.read("geo/countries.csv", "panda")
    with pytest.raises(KeyError, match="Did you mean 'numbers.csv'?"):
        lake.read("numbrs.csv")


def test_a_table_that_grows_columns_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"a": "x"}\n' * 5 + '{"a": "y", "b": 1}\n')
    frame = deepjoin.index(tmp_path).read("t.jsonl", "arrow")
    assert frame.column_names == ["a", "b"] and frame["b"].to_pylist() == [None] * 5 + [1]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_is_searched_with_by_one_of_its_columns(lake_folder: Path, make: Any) -> None:
    lake = deepjoin.index(lake_folder)
    frame = make({"n": [1, 2, 3], "state": ["France", "Peru", "Oz"]})
    results = lake.search(frame, on="state")
    assert (results[0].table, results[0].matched) == ("geo/countries.csv", 2)
    with pytest.raises(KeyError, match="No column 'stat' in the query.*Did you mean 'state'?"):
        lake.search(frame, on="stat")


def test_a_file_or_a_table_of_the_lake_is_searched_with_by_its_name(
    lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, mine = deepjoin.index(lake_folder), tmp_path / "mine.csv"
    mine.write_text("n,state\n1,France\n2,Peru\n3,Oz\n")
    expected = lake.search(["France", "Peru", "Oz"])
    for path in (mine, str(mine)):
        found = lake.search(path, on="state")
        assert [hit.column_id for hit in found] == [hit.column_id for hit in expected]
        assert lake.explain(path, ("geo/countries.csv", "country"), on="state").matched == 2
        every = lake.search(path)
        assert {one.query["column"] for one in (every, *every.others)} == {"n", "state"}
    own = lake.search("geo/countries.csv", on="country")
    assert own.hits and all(hit.table != "geo/countries.csv" for hit in own)
    assert lake.search("geo/countries.csv").query["table"] == "geo/countries.csv"
    monkeypatch.chdir(lake_folder / "geo")
    inside = lake.search("countries.csv", on="country")
    assert [hit.column_id for hit in inside] == [hit.column_id for hit in own]
    with pytest.raises(KeyError, match="No file or table 'mne.csv' in this dir.* or .*deepjoin"):
        lake.search("mne.csv", on="state")
    with pytest.raises(DeepJoinError, match="is a folder; name a file or a table"):
        lake.search(tmp_path)
    with pytest.raises(DeepJoinError, match=r"A column is a list of cells, .* pass \['Peru'\]"):
        lake.search("Peru")


def test_results_become_frames_and_slices(lake_folder: Path) -> None:
    results = deepjoin.index(lake_folder).search(["France", "Peru", "Lima"])
    assert len(results) > 2
    some = results[:2]
    assert repr(some).splitlines() == repr(results).splitlines()[:3]
    assert "dj-card" in some._repr_html_() and some.to_dict()["hits"][1]["rank"] == 2
    tables = [hit.table for hit in results]
    assert results.to_pandas()["table"].tolist() == tables
    assert results.to_polars()["table"].to_list() == tables
    assert results.to_arrow()["table"].to_pylist() == tables


def test_evidence_of_equal_cells_is_measured_when_it_is_read(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = deepjoin.index(lake_folder)
    measured: list[int] = []
    shared_cells = evidence._shared_cells

    def counted(*given: Any) -> Any:
        measured.append(1)
        return shared_cells(*given)

    monkeypatch.setattr(evidence, "_shared_cells", counted)
    results = lake.search(Column(["France", "Peru", "Lima"], "country"), join="equi")
    shares, seconds = [hit.joinability for hit in results], dict(results.seconds)
    assert results[0].table and not measured
    assert [hit.equi.joinability for hit in results] == shares
    assert len(measured) == 1  # of all hits together
    assert results.seconds["total"] > seconds["total"]
    assert all(0 < hit.probability < 1 for hit in results) and len(measured) == 1
    with pytest.raises(AttributeError, match="'Hit' object has no attribute 'joinabilty'"):
        results[0].joinabilty  # type: ignore[attr-defined]  # noqa: B018


def test_facts_of_columns_are_forgotten_when_there_are_too_many(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [["France", "Peru"], ["Lima", "Oslo"], ["France", "Lima"]]
    found = []
    for kept in (1 << 17, 3, 1):
        monkeypatch.setattr(likely, "_KEPT", kept)
        lake = deepjoin.open(deepjoin.index(lake_folder).path)
        found.append([lake.search(query, join="equi").to_dict()["hits"] for query in queries])
    assert found[1] == found[0] and found[2] == found[0]


def test_a_lake_that_is_no_longer_used_is_closed(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    results = lake.search(["France", "Peru"])
    assert results[0].matches
    catalogs = [weakref.ref(segment.catalog) for segment in lake.index.segments]
    del lake, results
    gc.collect()
    assert [catalog() for catalog in catalogs] == [None] * len(catalogs)


def test_a_column_comes_back_as_its_table_spells_it(lake_folder: Path) -> None:
    column = deepjoin.index(lake_folder).column("geo/cities.csv", "nation")
    assert sorted(column.cells) == [
        *("FRANCE", "FRANCE", "Germany", "Germany", "Italy", "Italy", "Japan", "Spain")
    ]
    assert (column.table, column.name, column.title) == ("geo/cities.csv", "nation", "cities")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind"),
    [(pd.DataFrame, pd.DataFrame), (pl.DataFrame, pl.DataFrame), (pa.table, pa.Table)],
)
def test_a_frame_comes_back_as_a_frame(lake_folder: Path, make: type, kind: type) -> None:
    lake = deepjoin.index(lake_folder)
    joined = lake.join(make({"land": ["peru", "Oz"], "n": [1, 2]}), "land", (COUNTRIES, "country"))
    assert isinstance(joined, kind)
    assert list(pa.table(joined).column("capital").to_pylist()) == ["Lima", None]


def test_a_fan_out_is_a_python_warning(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    first, second, *_ = lake.search(["Italy", "Spain", "Japan"])
    with pytest.warns(JoinWarning, match="3 rows become 4: 'Italy' has 2 rows"):
        joined = lake.join(
            {"land": ["Italy", "Spain", "Japan"]}, "land", ("geo/cities.csv", "nation")
        )
    assert joined.num_rows == 4
    # Both have all of them; a table of countries has each once.
    assert (first.table, second.table) == ("geo/countries.csv", "geo/cities.csv")


def test_tables_from_memory_can_be_joined_after_a_restart(tmp_path: Path) -> None:
    frame = pd.DataFrame({"land": ["Peru", "Chad", "Mali", "Fiji", "Cuba"], "n": range(5)})
    deepjoin.index({"lands": frame}, tmp_path / "ix")
    lake = deepjoin.open(tmp_path / "ix")
    joined = lake.join({"k": ["cuba", "mali"]}, "k", lake.search(["Cuba", "Mali"])[0])
    assert joined.column("n").to_pylist() == [4, 2]
    (frames,) = (tmp_path / "ix").rglob("frames")
    shutil.rmtree(frames)
    with pytest.raises(DeepJoinError, match=r"missing|damaged|no longer there"):
        deepjoin.open(tmp_path / "ix").join({"k": ["cuba"]}, "k", ("lands", "land"))


def test_a_corpus_is_searched_and_joined(tmp_path: Path) -> None:
    columns = [
        Column(["a", "b", "c"], "letter", table="t1", column_id="c1"),
        Column(["1", "2", "3"], "digit", table="t1", column_id="c2"),
        Column(["b", "c", "d", "e"], "letter", table="t2", column_id="c3"),
    ]
    write_corpus(tmp_path / "corpus", columns, [])
    lake = deepjoin.index(tmp_path / "corpus", settings=Settings(min_distinct=1))
    assert [hit.column_id for hit in lake.search(["b", "c", "d"])] == ["c3", "c1"]
    assert [hit.column_id for hit in lake.search(lake.column("t1", "letter"))] == ["c3"]
    joined = lake.join({"k": ["B", "A"]}, "k", ("t1", "letter"))
    assert joined.column("digit").to_pylist() in (["2", "1"], [2, 1])


def test_wrong_settings_are_explained() -> None:
    with pytest.raises(DeepJoinError, match="Unknown profile 'fancy'. Profiles: default, basic."):
        Settings(profile="fancy")
    with pytest.raises(DeepJoinError, match="`min_distinct` is 0; it must be at least 1"):
        Settings(min_distinct=0)


def test_settings_are_kept_with_the_index(lake_folder: Path) -> None:
    chosen = Settings("basic", 3, 100, 50, ("x*",), ("*.csv",), ("old",))
    lake = deepjoin.index(lake_folder, settings=chosen)
    assert Lake(lake.path).settings == chosen
    assert json.loads(json.dumps(lake.info()))["settings"]["deny_columns"] == ["x*"]


def test_progress_is_reported(lake_folder: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    deepjoin.index(lake_folder, progress=lambda *call: calls.append(call))
    assert calls == [
        (0, 3, "geo/cities.csv"),
        (1, 3, "geo/cities.csv"),
        (2, 3, COUNTRIES),
        (3, 3, "numbers.csv"),
        (0, 66, "values"),
        (66, 66, "values"),
    ]


@pytest.mark.slow
def test_tables_of_the_same_columns_keep_apart(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["a", "b"], "x", table=f"t{i}") for i in range(3)])
    assert [hit.table for hit in lake.search(["a"])] == ["t0", "t1", "t2"]


def test_no_hit_that_says_little_is_unmarked(make_lake: MakeLake) -> None:
    dense = [str(number) for number in range(37, 3000)]
    columns = [
        Column([*map(str, range(1, 10)), "12.5", "33.25", "-7.125", "151.2"], "lat", "places"),
        Column(dense, "vertex", "mesh"),
        Column([*dense, "n/a"], "vertex", "mesh with gaps"),
        Column([str(1000 * number + 77) for number in range(50)], "id", "customers"),
        Column([str(year) for year in range(1950, 2024)], "year", "seasons"),
        Column([f"{number / 100:.2f}" for number in range(3, 2500)], "error", "polls"),
    ]
    lake = make_lake(columns)
    for join in ("equi", "any"):

        def marks(query: list[str], join: str = join) -> dict[str, str]:
            return {hit.table: hit.generic for hit in lake.search(query, join=join)}

        assert marks([str(n) for n in range(1, 10)])["places"] == "run", "numbers from 1"
        years = marks([str(year) for year in range(1990, 2021)])
        assert years == {"seasons": "year", "mesh": "range", "mesh with gaps": "range"}
        ages = marks(["41", "58", "73", "90"])
        assert ages["mesh"] == ages["mesh with gaps"] == "range"
        assert marks(["2.85", "3.40", "4.17", "3.62", "5.1"])["polls"] == "range", "decimals too"
        assert marks(["3077", "4077", "9077"])["customers"] == "", "far apart, so no accident"
    found = lake.search([str(year) for year in range(1990, 2021)], 3)
    assert "[range]" in repr(found) and "says little" in found._repr_html_()
    assert [hit["generic"] for hit in found.to_dict()["hits"]] == [hit.generic for hit in found]


def test_a_private_lake_marks_them_as_well(make_lake: MakeLake) -> None:
    lake = make_lake([Column(list(map(str, range(37, 999))), "vertex", "mesh")], hash_only=True)
    (hit,) = lake.search(["41", "58", "73", "90"])
    assert hit.generic == "range"
