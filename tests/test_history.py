"""However a lake came about, by many steps or by one build, it answers the same."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake
from deepjoin.build.engine import BuildResources
from deepjoin.build.listing import ListedItem, compare, list_items
from deepjoin.build.pipeline import remove_tables
from deepjoin.build.refresh import Refreshed
from deepjoin.read.frames import MemorySource
from deepjoin.read.source import skipped_item
from deepjoin.store.ledger import Key, Known
from tests.support.histories import (
    FRAMES,
    MOVES,
    NAMES,
    STEPS,
    Frame,
    answers,
    even,
    merging,
    replayed,
    write,
)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, FRAMES, min_size=1), STEPS, st.booleans())
def test_many_adds_and_removes_are_one_build(
    first: dict[str, Frame], steps: list[tuple[str, Any]], often: bool
) -> None:
    model = {name: even(frame) for name, frame in first.items()}
    with tempfile.TemporaryDirectory() as folder, merging(often):
        lake = deepjoin.index(
            model, Path(folder) / "many", settings=deepjoin.Settings(min_distinct=1)
        )
        for step, what in steps:
            if step == "add":
                more = {name: even(frame) for name, frame in what.items()}
                assert lake.add(more) == sorted(more)
                model |= more
            elif step == "remove" and what in model and len(model) > 1:
                assert lake.remove(what) == [what]
                del model[what]
            elif step == "compact":
                lake.compact()
        once = deepjoin.index(
            model, Path(folder) / "one", settings=deepjoin.Settings(min_distinct=1)
        )
        assert list(answers(lake)) == list(answers(once))
        lake.compact()
        assert len(lake.index.segments) == 1
        assert list(answers(lake)) == list(answers(once))
        assert list(answers(Lake(lake.path))) == list(answers(once))


@pytest.mark.slow
@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES, st.booleans())
def test_a_refreshed_folder_is_a_freshly_indexed_one(
    moves: list[tuple[str, Any, Any]], often: bool
) -> None:
    with tempfile.TemporaryDirectory() as place, merging(often):
        folder = Path(place) / "data"
        folder.mkdir()
        write(folder / "a.csv", {"x": list("abcabd"), "y": list("123456")})
        write(folder / "stays.csv", {"x": list("gh")})
        lake = deepjoin.index(
            folder, Path(place) / "many", settings=deepjoin.Settings(min_distinct=1)
        )
        lake = replayed(lake, folder, moves)
        lake = deepjoin.index(folder, lake.path)
        once = deepjoin.index(
            folder, Path(place) / "one", settings=deepjoin.Settings(min_distinct=1)
        )
        assert list(answers(lake)) == list(answers(once))
        shutil.rmtree(folder)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    write(tmp_path / "data" / "a.csv", {"x": list("abcde")})
    write(tmp_path / "data" / "b.csv", {"x": list("cdefg")})
    return deepjoin.index(tmp_path / "data", settings=deepjoin.Settings(min_distinct=1))


@pytest.mark.slow
def test_what_was_removed_stays_out_until_it_is_added(lake: Lake, tmp_path: Path) -> None:
    assert lake.remove("b*") == ["b.csv"]
    write(tmp_path / "data" / "b.csv", {"x": list("uvwxyz")})
    again = deepjoin.index(tmp_path / "data")
    assert list(again.tables) == ["a.csv"]
    assert again.info()["excluded"] == ["b.csv"]
    assert again.add(tmp_path / "data" / "b.csv") == ["b.csv"]
    assert sorted(deepjoin.index(tmp_path / "data").tables) == ["a.csv", "b.csv"]
    assert [hit.table for hit in again.search(["w"])] == ["b.csv"]


@pytest.mark.slow
def test_a_file_from_elsewhere_is_looked_after_too(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "other" / "c.csv", {"x": list("lmnop")})
    assert lake.add(tmp_path / "other" / "c.csv") == ["other/c.csv"]
    write(tmp_path / "other" / "c.csv", {"x": list("qrstu")})
    again = deepjoin.index(tmp_path / "data")
    assert [hit.table for hit in again.search(["q"])] == ["other/c.csv"]
    assert not again.search(["l"])
    joined = again.join({"k": ["q", "r"]}, "k", ("other/c.csv", "x"), how="inner")
    assert joined.num_rows == 2
    (tmp_path / "other" / "c.csv").unlink()
    assert sorted(deepjoin.index(tmp_path / "data").tables) == ["a.csv", "b.csv"]


def test_two_tables_of_one_name_are_refused(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "data" / "other" / "a.csv", {"x": list("vwxyz")})
    lake = deepjoin.index(tmp_path / "data")
    write(tmp_path / "elsewhere" / "other" / "a.csv", {"x": list("lmnop")})
    with pytest.raises(deepjoin.DeepJoinError, match="is named 'other/a.csv' as well"):
        lake.add(tmp_path / "elsewhere" / "other")
    assert sorted(Lake(lake.path).tables) == ["a.csv", "b.csv", "other/a.csv"]
    with pytest.raises(deepjoin.DeepJoinError, match="is named 'a.csv' as well"):
        lake.add({"a.csv": {"x": ["1", "2"]}})


@pytest.mark.slow
def test_other_settings_keep_what_was_added(lake: Lake, tmp_path: Path) -> None:
    lake.add({"mine": {"x": list("lmnop")}})
    lake.remove("b.csv")
    again = deepjoin.index(tmp_path / "data", profile="basic")
    assert sorted(again.tables) == ["a.csv", "mine"]
    assert again.join({"k": ["l"]}, "k", ("mine", "x"), how="inner").num_rows == 1


@pytest.mark.slow
def test_an_open_lake_answers_as_before_until_it_is_reopened(lake: Lake, tmp_path: Path) -> None:
    reader = Lake(lake.path)
    lake.remove("a.csv")
    lake.add({"mine": {"x": list("lmnop")}})
    assert [hit.table for hit in reader.search(["a"])] == ["a.csv"]
    assert reader.join({"k": ["a"]}, "k", ("a.csv", "x"), how="inner").num_rows == 1
    assert reader.reopen()
    assert not reader.search(["a"])
    assert not reader.reopen()


@pytest.mark.slow
def test_a_source_that_is_gone_keeps_its_tables(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "other" / "c.csv", {"x": list("lmnop")})
    lake.add(tmp_path / "other" / "c.csv")
    shutil.rmtree(tmp_path / "other")
    write(tmp_path / "data" / "d.csv", {"x": list("ghijk")})
    found = lake.refresh()
    assert (found.new, len(found.unreachable)) == (1, 1)
    assert sorted(lake.tables) == ["a.csv", "b.csv", "d.csv", "other/c.csv"]
    with pytest.raises(deepjoin.DeepJoinError, match="remove them first with: deepjoin remove"):
        deepjoin.index(tmp_path / "data", lake.path, build=deepjoin.BuildSettings(rebuild=True))
    lake.remove("other/c.csv")
    assert lake.refresh() == Refreshed()
    assert (
        deepjoin.index(
            tmp_path / "data", lake.path, build=deepjoin.BuildSettings(rebuild=True)
        ).report.tables
        == 3
    )


def test_an_unmounted_disk_does_not_empty_the_lake(lake: Lake, tmp_path: Path) -> None:
    shutil.move(tmp_path / "data", tmp_path / "away")
    (tmp_path / "data").mkdir()
    shutil.move(tmp_path / "away" / ".deepjoin", tmp_path / "data" / ".deepjoin")
    with pytest.raises(deepjoin.DeepJoinError, match="list nothing, though it has 2 tables"):
        deepjoin.index(tmp_path / "data")
    assert (
        deepjoin.index(tmp_path / "data", build=deepjoin.BuildSettings(rebuild=True)).report.tables
        == 0
    )


def test_other_sources_do_not_replace_an_index(lake: Lake, tmp_path: Path) -> None:
    out = lake.path
    with pytest.raises(
        deepjoin.DeepJoinError, match="is the index of other tables .*`rebuild=True`"
    ):
        deepjoin.index(tmp_path / "data" / "a.csv", out)
    assert (
        deepjoin.index(
            tmp_path / "data" / "a.csv", out, build=deepjoin.BuildSettings(rebuild=True)
        ).report.tables
        == 1
    )


def test_frames_replace_frames_unless_one_would_be_lost(tmp_path: Path) -> None:
    first = {"a": {"x": list("abcde")}}
    more = first | {"b": {"x": list("bcdef")}}
    deepjoin.index(first, tmp_path / "ix")
    assert sorted(deepjoin.index(more, tmp_path / "ix").tables) == ["a", "b"]
    with pytest.raises(deepjoin.DeepJoinError, match="index of other tables"):
        deepjoin.index({"b": {"x": list("bcdef")}}, tmp_path / "ix")


@pytest.mark.slow
def test_a_damaged_index_keeps_its_settings(lake: Lake, tmp_path: Path) -> None:
    deepjoin.index(tmp_path / "data", settings=deepjoin.Settings(hash_only=True))
    Lake(lake.path).remove("b.csv")
    next(lake.path.glob("segments/*/report.json")).unlink()
    again = deepjoin.index(tmp_path / "data")
    assert again.settings.hash_only
    assert list(again.tables) == ["a.csv"]


def test_another_writers_settings_are_noticed(lake: Lake, tmp_path: Path) -> None:
    write(tmp_path / "data" / "c.csv", {"x": list("lmnop")})
    real = list_items
    others = iter([lambda: deepjoin.index(tmp_path / "data", profile="basic")])

    def listed(*of: Any) -> Any:
        found = real(*of)
        for other in others:
            other()
        return found

    with (
        mock.patch("deepjoin.build.refresh.list_items", listed),
        pytest.raises(deepjoin.DeepJoinError, match="has other settings since this command began"),
    ):
        deepjoin.index(tmp_path / "data")
    assert Lake(lake.path).settings.profile == "basic"


def test_titles_outlive_a_rebuild(lake: Lake, tmp_path: Path) -> None:
    deepjoin.index(
        tmp_path / "data", build=deepjoin.BuildSettings(titles={"a.csv": ("My title", None)})
    )
    write(tmp_path / "data" / "a.csv", {"x": list("uvwxyz")})
    assert deepjoin.index(tmp_path / "data").table("a.csv").title == "My title"
    assert (
        deepjoin.index(tmp_path / "data", build=deepjoin.BuildSettings(rebuild=True))
        .table("a.csv")
        .title
        == "My title"
    )


def test_a_frame_is_joined_after_a_merge_elsewhere(tmp_path: Path) -> None:
    frames = {"a": {"x": list("abcde"), "y": list("12345")}, "b": {"x": list("bcdef")}}
    reader = deepjoin.index(frames, tmp_path / "ix")
    writer = Lake(reader.path)
    writer.remove("b")
    writer.compact()
    assert reader.join({"k": ["a"]}, "k", ("a", "x"), how="inner").num_rows == 1
    with pytest.raises(deepjoin.DeepJoinError, match="has no copy of it"):
        reader.join({"k": ["b"]}, "k", ("b", "x"))


def test_an_index_can_be_its_own_source(lake: Lake, tmp_path: Path) -> None:
    assert (
        deepjoin.index(lake.path, settings=deepjoin.Settings(min_distinct=2)).settings.min_distinct
        == 2
    )
    assert (
        deepjoin.index(str(lake.path), build=deepjoin.BuildSettings(rebuild=True)).report.tables
        == 2
    )


def test_removing_from_what_is_no_index_leaves_no_trace(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.csv", {"x": list("abcde")})
    with pytest.raises(deepjoin.DeepJoinError, match="is not a deepjoin index"):
        remove_tables(tmp_path / "data", ["a.csv"], BuildResources())
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["a.csv"]


@pytest.mark.slow
def test_what_failed_for_want_of_a_package_is_tried_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbook = openpyxl.Workbook()
    for cell in ("letter", *"vwxyz"):
        workbook.active.append([cell])
    workbook.save(tmp_path / "data" / "book.xlsx")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fastexcel", None)
        for _ in range(2):
            again = deepjoin.index(tmp_path / "data")
            assert [skip.name for skip in again.report.skipped] == ["book.xlsx"]
        assert not again.refresh()
    again = deepjoin.index(tmp_path / "data")
    assert "book.xlsx#Sheet" in list(again.tables)
    assert again.report.skipped == []


def test_files_in_a_folder_that_cannot_be_looked_into_are_not_gone() -> None:
    known = {Key(0, name): Known(0, 0, "1-1", "", "") for name in ("sub/a.csv", "other/a.csv")}
    for passing, gone in ((True, [Key(0, "other/a.csv")]), (False, list(known))):
        item = skipped_item("sub", "no permission", passing)
        listed = ListedItem(Key(0, "sub"), item, MemorySource([]))
        assert list(compare([listed], known).gone) == gone
