"""What columns mean in one vector: the same however a lake is cut, near where words differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.checking.check import check_index
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.store import sketch as module
from deepjoin.store.column_vectors import ColumnVectors, meaning_about
from deepjoin.store.segment import Segment
from deepjoin.store.sketch import (
    FrequencySnapshot,
    Meaning,
    meaning_digest,
    meaning_rows,
)
from tests.support.options import index_options

COUNTRIES = ["United States", "Germany", "United Kingdom", "France", "Spain"]
TABLES = {
    "countries": pa.table({"country": COUNTRIES}),
    "codes": pa.table({"code": ["USA", "GER", "UK", "FRA", "ESP"]}),
    "colours": pa.table({"colour": ["red", "green", "blue", "grey", "Germany"]}),
    "signs": pa.table({"sign": ["#", "%", "&", "§", "@"]}),
}


def build(folder: Path, **options: object) -> Lake:
    chosen = {"min_distinct": 1, "encoder": "default", "sketch": 64, **options}
    return deepjoin.index(TABLES, folder, **index_options(**chosen))


def rows_of(segment: Segment) -> np.ndarray:
    assert segment.cells is not None
    blocks = meaning_rows(segment, segment.cells, FrequencySnapshot(segment.folder))
    return np.concatenate(list(blocks))


def summed(values: list[str], frequencies: list[int], columns: int) -> np.ndarray:
    """Add up values by the definition."""
    rarity = np.log((columns + 1) / np.array(frequencies))
    return np.append(rarity @ load_cell_encoder().encode(values), 0)


@pytest.mark.slow
def test_a_meaning_is_the_weighed_sum_of_the_vectors_of_its_values(tmp_path: Path) -> None:
    lake = build(tmp_path / "i")
    (segment,) = lake.index.segments
    names = [column.lower() for column in segment.catalog.column_names]
    wanted = summed([name.lower() for name in COUNTRIES], [1, 2, 1, 1, 1], 4)
    wanted[-1] = np.sqrt(32) * np.log(5)
    rows = rows_of(segment)
    np.testing.assert_allclose(
        rows[names.index("country")], wanted / np.linalg.norm(wanted), atol=3e-3
    )
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1, atol=1e-3)
    query = Meaning(
        lake.index.segments, FrequencySnapshot(segment.folder), load_cell_encoder(), "default"
    )
    asked = query(Column(["Germany", "germany ", "Narnia", None]))
    np.testing.assert_allclose(asked, summed(["germany", "narnia"], [2, 1], 4), atol=1e-5)
    assert not query(Column(["\ud800", "\U0010ffff"])).any(), "nothing is known of them"


def test_blocks_do_not_change_a_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment,) = build(tmp_path / "i").index.segments
    whole = rows_of(segment)
    monkeypatch.setattr(module, "_COLUMNS", 3)
    # Sums of other lengths may round the last bit of half precision differently.
    np.testing.assert_allclose(rows_of(segment), whole, atol=1e-6)


def test_one_vector_finds_columns_in_other_words(tmp_path: Path) -> None:
    lake = build(tmp_path / "i")
    query = ["U.S.A.", "germany", "U.K.", "france"]
    semantic = lake.search(query, 4, method="deepjoin-sketch", join="semantic")
    assert {hit.table for hit in semantic[:2]} == {"countries", "codes"}
    equi = lake.search(query, 4, method="deepjoin-sketch", join="equi")
    assert equi[0].table == "countries"


@pytest.mark.slow
def test_meanings_come_and_go_with_the_vectors_of_cells(tmp_path: Path) -> None:
    lake = build(tmp_path / "i", cells="none")
    widths = [_width(lake)]
    assert lake.search(["Germany"], 1, method="deepjoin-sketch")
    lake = deepjoin.index(lake.path, vectors={"cells": "default"})
    widths.append(_width(lake))
    assert widths[1] - widths[0] == load_cell_encoder().dimension + 1
    assert check_index(lake.path)
    lake = deepjoin.index(lake.path, vectors={"cells": "none"})
    assert _width(lake) == widths[0] and check_index(lake.path)


def _width(lake: Lake) -> int:
    both = ColumnVectors.open(lake.index.segments[0].folder, "both")
    assert both is not None and (meaning_digest("") in both.about.digest) == (
        lake.vectors.cells != "none"
    )
    return both.about.dimension


def test_a_lake_whose_meanings_are_of_another_kind_is_encoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for function in (meaning_digest, meaning_about):
            patch.setattr(function, "__defaults__", (0,))  # the version of meanings
        lake = build(tmp_path / "i")
    with pytest.raises(DeepJoinError, match=r"meaning-0-.*Encode it again with: deepjoin index"):
        Lake(lake.path).search(["Germany"], method="deepjoin-sketch")
    assert deepjoin.index(lake.path).search(["Germany"], method="deepjoin-sketch")


@pytest.mark.slow
def test_a_lake_that_grew_means_what_one_build_does(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole")
    grown = deepjoin.index(
        {"countries": TABLES["countries"]},
        tmp_path / "grown",
        settings=deepjoin.Settings(min_distinct=1),
        encoder="default",
        vectors={"sketch": 64},
    )
    for name in ("signs", "colours", "codes"):
        grown.add({name: TABLES[name]})
        assert check_index(grown.path)
    grown.add({"gone": pa.table({"x": ["Bonn", "Rome"]})})
    grown.remove("gone")
    assert check_index(grown.path)
    grown.compact()
    asked = [
        [(h.table, round(h.score, 3)) for h in lake.search(COUNTRIES, 4, method="deepjoin-sketch")]
        for lake in (whole, grown)
    ]
    assert asked[0] == asked[1]
