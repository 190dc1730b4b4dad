"""`deepjoin.index`: words around tables, frames, where the index goes."""

from __future__ import annotations

import os
from pathlib import Path

import pandas
import polars
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column, DeepJoinError
from deepjoin.cli import main
from deepjoin.progress import UNITS
from tests.support.histories import write

CITIES = ["Oslo", "Lima", "Rome", "Bern", "Kiev"]


def test_titles_and_contexts_come_from_names_unless_given(lake_folder: Path) -> None:
    titles = {"geo/cities.csv": ("Large cities", None), "numbers.csv": (None, "made up")}
    lake = deepjoin.index(lake_folder, build=deepjoin.BuildSettings(titles=titles))
    words = {name: (lake.table(name).title, lake.table(name).context) for name in lake.tables}
    assert words == {
        "geo/cities.csv": ("Large cities", "geo"),
        "geo/countries.csv": ("countries", "geo"),
        "numbers.csv": ("numbers", "made up"),
    }


def test_titles_from_a_file(
    lake_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "titles.csv"
    path.write_text("table,title\ngeo/cities.csv,Large cities\n")
    assert main(["index", str(lake_folder), "--titles", str(path)]) == 0
    assert deepjoin.open(lake_folder).table("geo/cities.csv").title == "Large cities"
    path.write_text("file,name\na,b\n")
    assert main(["index", str(lake_folder), "--titles", str(path)]) == 1
    assert "titles need table, title and context" in capsys.readouterr().err


FRAMES = {
    "pandas": pandas.DataFrame({"city": CITIES, "rank": range(5)}),
    "polars": polars.DataFrame({"city": CITIES, "rank": range(5)}),
    "arrow": pa.table({"city": CITIES, "rank": range(5)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FRAMES)
def test_frames_go_in_and_come_out(tmp_path: Path, kind: str) -> None:
    frame = FRAMES[kind]
    deepjoin.index({"cities": frame}, tmp_path / "index")
    lake = deepjoin.open(tmp_path / "index")
    hit = lake.search(frame["city"])[0]
    assert (hit.table, hit.column, hit.joinability) == ("cities", "city", 1.0)
    joined = lake.join(frame, on="city", hit=hit)
    assert type(joined) is type(frame)
    assert list(joined["rank_cities"]) == list(frame["rank"])


def test_the_index_goes_inside_the_folder(lake_folder: Path) -> None:
    lake = deepjoin.index(lake_folder)
    assert lake.path == lake_folder / ".deepjoin"
    assert list(deepjoin.open(lake_folder).tables) == list(lake.tables)
    assert repr(lake) == f"Lake('{lake.path}', 3 tables, 7 columns)"


def test_a_corpus_keeps_its_ids(tmp_path: Path) -> None:
    from deepjoin.read.corpus import write_corpus

    columns = [
        deepjoin.Column(CITIES, "city", "t1", column_id="t1#4"),
        deepjoin.Column([*CITIES[:4], "Paris"], "town", "t2", title="Towns", column_id="t2#0"),
        deepjoin.Column(["x"] * 9, "few", "t2", column_id="t2#1"),
        deepjoin.Column([c.upper() for c in CITIES], "stadt", "t1", column_id="t1#5"),
    ]
    write_corpus(tmp_path / "corpus", columns)
    lake = deepjoin.index(tmp_path / "corpus", tmp_path / "index")
    equal = [hit.column_id for hit in lake.search(CITIES, join="equi")]
    assert equal == ["t1#4", "t1#5", "t2#0"]
    assert {hit.column_id for hit in lake.search(CITIES)} == set(equal)
    assert lake.report.left_out == {"fewer than 5 distinct values": 1}
    own = lake.column("t1", "stadt")
    assert [hit.column_id for hit in lake.search(own)] == ["t2#0"]
    joined = lake.join({"city": CITIES}, on="city", hit=("t1", "city"))
    assert joined.column("stadt").to_pylist() == [c.upper() for c in CITIES]


@pytest.mark.slow
def test_indexing_again_works_only_when_something_changed(
    lake_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["index", str(lake_folder)]
    assert main(command) == 0
    seen: list[str] = []

    def tell(done: int, total: int, name: str) -> None:
        if done and name not in UNITS:
            seen.append(name)

    assert len(deepjoin.index(lake_folder, progress=tell).tables) == 3
    assert seen == []
    assert main(command) == 0
    assert "Nothing has changed" in capsys.readouterr().err
    deepjoin.index(lake_folder, progress=tell, build=deepjoin.BuildSettings(rebuild=True))
    assert len(seen) == 3
    deepjoin.index(lake_folder, progress=tell, settings=deepjoin.Settings(min_distinct=2))
    assert len(seen) == 6, "other settings"
    (lake_folder / "new.csv").write_text("city\n" + "\n".join(CITIES))
    assert len(deepjoin.index(lake_folder, progress=tell).tables) == 4
    (lake_folder / "new.csv").unlink()
    assert len(deepjoin.index(lake_folder, progress=tell).tables) == 3
    deepjoin.index(
        lake_folder,
        build=deepjoin.BuildSettings(titles={"numbers.csv": ("Numbers", None)}),
        progress=tell,
    )
    assert deepjoin.open(lake_folder).table("numbers.csv").title == "Numbers"


@pytest.mark.slow
def test_checkpoints_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that takes long is put aside now and then, which is a matter of time."""
    tables = tmp_path / "tables"
    for number, size in enumerate((5000, 9, 7, 800, 30, 4)):
        cells = [f"{number} cell {row % 900}" for row in range(size)]
        path = tables / f"{number}.csv"
        write(path, {"key": cells, "other": [cell[::-1] for cell in cells]})
        # A file changed just now has no stamp: a slow machine would give the builds different ones.
        os.utime(path, ns=(1, 1))
    usual = deepjoin.index(tables, tmp_path / "usual", encoder="default")
    never = "deepjoin.build.update.worth_merging", lambda sizes, removed: len(sizes)
    monkeypatch.setattr(*never)
    for name in ("CHECKPOINT", "_SHARE"):
        monkeypatch.setattr(f"deepjoin.build.reading.{name}", 0.0)
    often = deepjoin.index(tables, tmp_path / "often", encoder="default")
    assert [one.files for one in often.index.records] == [one.files for one in usual.index.records]


@pytest.mark.slow
def test_how_columns_become_texts_is_an_option_that_an_index_remembers(tmp_path: Path) -> None:
    cells = [f"value {number}" for number in range(200)]
    tables = {f"t{n}": pa.table({"name": cells[n : n + 60]}) for n in range(0, 100, 20)}
    own = deepjoin.index(tables, tmp_path / "own", vectors={"encoder": "default", "cells": "none"})
    chosen = {"encoder": "default", "cells": "none", "pattern": "col", "tokens": 20}
    other = deepjoin.index(
        tables, tmp_path / "other", vectors={**chosen, "sampling": "truncate", "unit": "words"}
    )
    assert own.vectors.encoder_digest != other.vectors.encoder_digest
    assert other.vectors.text == (
        *(("pattern", "col"), ("tokens", 20), ("sampling", "truncate"), ("unit", "words")),
    )
    query = Column(cells[:60], "name", "t0", column_id="t0#0")
    assert len(other.search(query, 3, method="deepjoin", join="equi")) == 3
    again = deepjoin.index(other.path)
    assert again.vectors == other.vectors, "remembered"
    plain = deepjoin.index(other.path, vectors={"encoder": "none"})
    assert plain.vectors.text == (), "texts were for the encoder"


def test_texts_that_no_encoder_reads_are_refused(tmp_path: Path) -> None:
    tables = {"t": pa.table({"name": ["a", "b", "c", "d", "e"]})}
    with pytest.raises(DeepJoinError, match="`tokens` is '20', which says how columns become text"):
        deepjoin.index(tables, tmp_path / "i", vectors={"tokens": 20})
    with pytest.raises(DeepJoinError, match="pattern is 'cols'; it must be one of col, colname"):
        deepjoin.index(tables, tmp_path / "i", vectors={"encoder": "default", "pattern": "cols"})
    with pytest.raises(DeepJoinError, match="`unit` says how columns become texts, and the encod"):
        deepjoin.index(tables, tmp_path / "i", vectors={"encoder": "sherlock:", "unit": "words"})
