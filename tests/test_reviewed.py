"""Answers that were once wrong, or could be: each found by reading the code."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column, DeepJoinError
from deepjoin.cli import main
from deepjoin.errors import UnreadableTable
from deepjoin.model import Reading, Table
from deepjoin.read.corpus import write_corpus
from deepjoin.settings import SearchSettings
from deepjoin.store.values.postings import merge_rows

from .conftest import MakeLake

LETTERS = list("abcdefgh")


@pytest.mark.slow
def test_columns_of_one_name_are_joined_by_their_id(tmp_path: Path) -> None:
    columns = [
        Column([letter.upper() * 2 for letter in LETTERS], "name", "t", column_id="t#0"),
        Column(LETTERS, "name", "t", column_id="t#1"),
        Column([f"{letter}!" for letter in LETTERS], "", "t", column_id="t#2"),
    ]
    write_corpus(tmp_path / "corpus", columns)
    lake = deepjoin.index(tmp_path / "corpus", tmp_path / "index")
    hit = lake.search(LETTERS)[0]
    assert (hit.column_id, hit.brings.columns) == ("t#1", ("name", ""))
    joined = lake.join({"k": LETTERS}, on="k", hit=hit)
    assert joined.column("name").to_pylist() == [letter.upper() * 2 for letter in LETTERS]
    blank = lake.search(["a!", "b!"])[0]
    assert lake.join({"k": ["a!"]}, on="k", hit=blank).num_rows == 1


def test_groups_list_every_matching_column_of_a_table(make_lake: MakeLake) -> None:
    lake = make_lake(
        [Column(LETTERS[:n], f"c{n}", "t") for n in (8, 4, 2)] + [Column(LETTERS[:3], "x", "u")]
    )
    for k in (1, 2, None):
        hits = lake.search(LETTERS, k, settings=SearchSettings(group="tables"), min_joinability=0.1)
        assert [other.column for other in hits[0].also] == ["c4", "c2"]


def test_other_frames_do_not_replace_an_index_nobody_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    deepjoin.index({"a": {"x": LETTERS}})
    deepjoin.index({"a": {"x": LETTERS[::-1]}})
    with pytest.raises(DeepJoinError, match="is the index of other tables.*with `out`"):
        deepjoin.index({"b": {"x": LETTERS}})


def test_indexing_again_repeats_the_options(lake_folder: Path) -> None:
    assert main(["index", str(lake_folder), "--deny-column", "capital"]) == 0
    lake = deepjoin.index(lake_folder)
    assert lake.settings.deny_columns == ("capital",)
    again = deepjoin.index(lake_folder, settings={"min_distinct": 2})
    assert again.settings.deny_columns == ("capital",)
    with pytest.raises(DeepJoinError, match="No field 'min_distnct'.*Did you mean 'min_distinct'"):
        deepjoin.index(lake_folder, settings={"min_distnct": 2})
    with pytest.raises(TypeError, match=r"Did you mean settings=Settings\(min_distinct=...\)"):
        deepjoin.index(lake_folder, min_distnct=2)


def test_tables_that_fail_leave_the_numbers_of_the_others(tmp_path: Path) -> None:
    def broken() -> Reading:
        raise UnreadableTable("no")

    def good() -> Reading:
        return Reading(iter([pa.record_batch({"k": LETTERS, "n": list(range(8))})]))

    deepjoin.index([Table("a", broken), Table("b", good)], tmp_path / "index")
    lake = deepjoin.open(tmp_path / "index")
    assert lake.join({"k": ["c"]}, on="k", hit=("b", "k")).column("n").to_pylist() == [2]


def test_more_text_than_one_small_array_holds() -> None:
    row = pa.record_batch(
        {
            "hash": pa.array([7], pa.uint64()),
            **{name: pa.array([1], pa.uint32()) for name in ("column", "row", "count")},
            **{name: pa.array(["x"], pa.large_string()) for name in ("value", "spelling")},
        }
    )
    assert pa.types.is_large_string(merge_rows([row, row]).values.type)


def test_a_source_partly_gone_still_serves_the_rest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(
            "k,v\n" + "".join(f"{x},{name}\n" for x in LETTERS)
        )
    lake = deepjoin.index([tmp_path / "one", tmp_path / "two"], tmp_path / "index")
    (tmp_path / "two" / "two.csv").unlink()
    (tmp_path / "two").rmdir()
    joined = lake.join({"k": ["a"]}, on="k", hit=("one/one.csv", "k"))
    assert joined.column("v").to_pylist() == ["one"]


def test_a_changed_file_is_said(lake_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deepjoin.index(lake_folder)
    path = lake_folder / "geo" / "countries.csv"
    path.write_text(path.read_text() + "Chad,N'Djamena,18\n")
    orders = str(lake_folder.parent / "orders.csv")
    target = ["-c", "customer_country", "--with", "geo/countries.csv:country"]
    assert main(["join", str(lake_folder), orders, *target]) == 0
    assert "countries.csv has changed since it was indexed" in capsys.readouterr().err


def test_titles_for_nothing_are_refused(lake_folder: Path) -> None:
    with pytest.raises(DeepJoinError, match="No table 'geo/citys.csv'.*'geo/cities.csv'"):
        deepjoin.index(
            lake_folder, build=deepjoin.BuildSettings(titles={"geo/citys.csv": ("Cities", None)})
        )


def test_wrong_shares_and_long_names(lake_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = deepjoin.index(lake_folder)
    with pytest.raises(DeepJoinError, match="`min_joinability` is 80; it must be between 0 and 1"):
        lake.search(["Peru"], min_joinability=80)
    assert main(["search", str(lake_folder), "x" * 300]) == 1
    assert "No file or table" in capsys.readouterr().err


def test_an_index_inside_its_source_is_no_table(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder, lake_folder / "idx")
    again = deepjoin.index(lake_folder, lake_folder / "idx")
    assert lake.report.skipped == again.report.skipped == []


def test_deprecated_keywords_still_work(lake_folder: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"use settings=Settings\(min_distinct=...\)"):
        lake = deepjoin.index(lake_folder, min_distinct=2)
    assert lake.settings.min_distinct == 2
    with pytest.warns(DeprecationWarning, match=r"vectors=Vectors\(index=...\), build=BuildSet"):
        lake = deepjoin.index(lake_folder, vector_index="flat", rebuild=True)
    assert lake.vectors.index == "flat"
    with pytest.warns(DeprecationWarning, match=r"search\(\) takes matches for one more release"):
        (hit, *_) = lake.search(["Germany"], matches=0)
    assert hit.matches == ()
    with pytest.raises(TypeError, match="unexpected keyword argument 'matchs'. Did you mean"):
        lake.search(["Germany"], matchs=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'$"):
        lake.search(["Germany"], colour="red")


def test_a_frame_is_searched_by_one_of_its_columns(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    frame = pa.table({"nation": ["Germany", "France"], "n": [1, 2]})
    # The name of the column decides between tables that hold the same values.
    assert {hit.table for hit in lake.search(frame, on="nation")} == {
        hit.table for hit in lake.search(["Germany", "France"])
    }
    with pytest.raises(DeepJoinError, match="No column 'natoin' in the query.*'nation'"):
        lake.search(frame, on="natoin")
    with pytest.raises(
        DeepJoinError, match="`on` names a column of a frame or file, .* a list: leave"
    ):
        lake.search(["Germany"], on="nation")


def test_errors_name_arguments_in_python_and_options_in_the_shell(
    lake_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = deepjoin.index(lake_folder)
    with pytest.raises(DeepJoinError, match='`tau` is 0.5, .* or use `join="semantic"` with'):
        lake.search(["a"], join="equi", settings=deepjoin.SearchSettings(tau=0.5))
    options = ["--values", "a", "--join", "equi", "--tau", "0.5"]
    assert main(["search", str(lake.path), *options]) == 1
    assert "--tau is 0.5, and 'hybrid'" in (said := capsys.readouterr().err)
    assert "or use --join semantic with a method" in said
