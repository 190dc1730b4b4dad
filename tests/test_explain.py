"""The evidence of a chosen pair of columns is that of the hit a search would make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.settings import SearchSettings
from tests.support.definitions import equi_joinability

from .conftest import MakeLake

cells = st.lists(st.sampled_from(["Oslo", "oslo ", "Lima", "Rome", "Roma", "7", "7.0", ""]))


@pytest.mark.slow
@pytest.mark.parametrize("join", ["any", "equi", "semantic"])
def test_every_hit_is_explained_as_it_was_found(lake_folder: Path, join: str) -> None:
    lake = deepjoin.index(lake_folder)
    query = Column(["France", "Deutschland", "ITALY", "Atlantis"], "country")
    results = lake.search(query, 50, join=join)
    assert len(results)
    for hit in results:
        told = lake.explain(query, (hit.table, hit.column), join=join)
        assert replace(told, rank=hit.rank) == hit


@pytest.mark.slow
@given(st.lists(cells, min_size=1, max_size=4), cells)
def test_it_is_the_definition(
    make_lake: MakeLake, columns: list[list[str]], query: list[str]
) -> None:
    named = [Column([*of, "only"], f"c{n}", f"t{n}.csv") for n, of in enumerate(columns)]
    lake = make_lake(named)
    if not any(cell.strip() for cell in query):
        with pytest.raises(DeepJoinError, match="every cell is missing or blank"):
            lake.explain(query, ("t0.csv", "c0"))
        return
    for column in named:
        told = lake.explain(query, (str(column.table), column.name), join="equi")
        expected = equi_joinability(query, column.cells)
        assert told.equi.joinability == told.joinability == expected
        assert bool(told.cardinality) == bool(told.found_by) == (expected > 0)


def test_a_pair_without_a_match_says_so(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["Oslo", "Lima", "Rome"], "city", "cities.csv")])
    for join in ("any", "equi", "semantic"):
        told = lake.explain(["1897-03-04", "x9"], ("cities.csv", "city"), join=join)
        assert (told.matched, told.cardinality, told.found_by) == (0, "", ())
        assert told.unmatched == ("1897-03-04", "x9")


def test_what_does_not_exist_is_said(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["Oslo", "Lima", "Rome"], "city", "cities.csv")])
    for target, options, text in (
        (("citys.csv", "city"), {}, "No table 'citys.csv' in .* Did you mean 'cities.csv'?"),
        (("cities.csv", "town"), {}, "No indexed column 'town' in cities.csv"),
        (("cities.csv", "city"), {"join": "fuzzy"}, "No join kind 'fuzzy' in deepjoin"),
        (("cities.csv", "city"), {"settings": SearchSettings(0.9), "join": "equi"}, "compares no"),
    ):
        with pytest.raises(DeepJoinError, match=text):
            lake.explain(["Oslo"], target, **options)  # type: ignore[arg-type]
    with pytest.raises(DeepJoinError, match="`tau` is 2.0; it must be a cosine above 0"):
        SearchSettings(tau=2.0)


def test_a_lake_of_hashes_explains_without_cells(make_lake: MakeLake) -> None:
    lake: Lake = make_lake([Column(["Oslo", "Lima", "Rome"], "city", "t.csv")], hash_only=True)
    told = lake.explain(["oslo", "Paris"], ("t.csv", "city"))
    assert (told.equi.matched, told.matches) == (1, ())
