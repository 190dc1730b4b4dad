"""Every exact answer equals brute force: order, ties, evidence, thresholds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError, Lake
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.model import Hit
from deepjoin.normalise.cells import distinct_cells
from deepjoin.search import candidates
from deepjoin.settings import SearchSettings
from tests.support.definitions import cardinality, equi_joinability, join_size, multiset_joinability

from .conftest import MakeLake

CELL = st.none() | st.sampled_from(
    ["a", "A", "b", "c", "d", "e", "f", "g", "h", "1", "1.0", "2", "7", "é"]
)
NAMES = st.sampled_from(["", "city", "City name", "cityId", "x"])
COLUMN_LISTS = st.lists(st.tuples(st.lists(CELL, max_size=10), NAMES), min_size=1, max_size=12)


def columns_of(drawn: list[tuple[list[str | None], str]]) -> list[Column]:
    """Give drawn columns tables of one or two columns."""
    return [
        Column(cells, f"{name}{i}", table=f"t{i // 2}", column_id=f"t{i // 2}#{i % 2}")
        for i, (cells, name) in enumerate(drawn)
    ]


@pytest.mark.slow
@given(drawn=COLUMN_LISTS, query=st.lists(CELL, max_size=10), name=NAMES, k=st.integers(0, 14))
@pytest.mark.parametrize(("scan", "few"), [(0, 0), (1 << 16, 0), (1 << 16, 1 << 9)])
def test_top_k_equals_brute_force(
    make_lake: MakeLake,
    drawn: list[tuple[list[str | None], str]],
    query: list[str | None],
    name: str,
    k: int,
    scan: int,
    few: int,
) -> None:
    columns = columns_of(drawn)
    asked = Column(query, name, table="t0")
    (truth,) = brute_force(columns, [asked], "default")
    with pytest.MonkeyPatch.context() as patch:
        # A scan limit of 0 sends every query through the prefix filter.
        patch.setattr(candidates, "_SCAN", scan)
        patch.setattr(candidates, "_FEW", few)
        patch.setattr(candidates, "_MANY", few)
        results = make_lake(columns).search(asked, k, method="exact-equi")
    assert [hit.column_id for hit in results] == truth.ranked[:k]
    assert [hit.rank for hit in results] == list(range(1, len(results) + 1))


@pytest.mark.parametrize("count", [255, 256, 257])
def test_the_last_column_is_ranked_by_its_own_size(make_lake: MakeLake, count: int) -> None:
    # Numbers of up to 256 columns are stored in one byte, in which 255 + 1 is 0.
    columns = [
        Column([f"{i} {j}" for j in range(5)], "c", f"t{i:03}", column_id=f"t{i:03}#0")
        for i in range(count)
    ]
    query = [*columns[7].cells, columns[-1].cells[0]]
    (truth,) = brute_force(columns, [Column(query)], "default")
    results = make_lake(columns).search(query, method="exact-equi")
    assert [hit.column_id for hit in results] == truth.ranked == ["t007#0", f"t{count - 1}#0"]


@pytest.mark.slow
@given(drawn=COLUMN_LISTS, query=st.lists(CELL, max_size=10))
def test_evidence_equals_the_definitions(
    make_lake: MakeLake, drawn: list[tuple[list[str | None], str]], query: list[str | None]
) -> None:
    columns = {column.column_id: column for column in columns_of(drawn)}
    lake = make_lake(list(columns.values()))
    for hit in lake.search(query, 100, join="equi", settings=SearchSettings(matches=None)):
        check_evidence(hit, query, columns[hit.column_id])


def check_evidence(hit: Hit, query: list[str | None], target: Column) -> None:
    """Compare everything a hit claims with the definitions."""
    cells = list(target.cells)
    assert hit.equi.joinability == equi_joinability(query, cells)
    assert hit.equi.reverse == equi_joinability(cells, query)
    assert hit.equi.join_size == join_size(query, cells)
    assert hit.equi.multiset == multiset_joinability(query, cells)
    assert hit.cardinality == cardinality(query, cells)
    mine, theirs = distinct_cells(query), distinct_cells(cells)
    spelled = dict(zip(theirs.values, theirs.spellings, strict=True))
    pairs = list(zip(mine.values, mine.spellings, strict=True))
    assert [(m.query, m.target) for m in hit.matches] == [
        (spelling, spelled[value]) for value, spelling in pairs if value in spelled
    ]
    assert list(hit.unmatched) == [s for value, s in pairs if value not in spelled]
    assert (hit.query_size, hit.target_size) == (len(mine), len(theirs))


@pytest.mark.slow
@given(drawn=COLUMN_LISTS, query=st.lists(CELL, max_size=10), threshold=st.floats(0, 1))
def test_threshold_equals_brute_force(
    make_lake: MakeLake,
    drawn: list[tuple[list[str | None], str]],
    query: list[str | None],
    threshold: float,
) -> None:
    columns = columns_of(drawn)
    (truth,) = brute_force(columns, [Column(query)], "default")
    results = make_lake(columns).search(query, method="exact-equi", min_joinability=threshold)
    expected = [c for c, joinability in truth.joinability.items() if joinability >= threshold]
    assert [hit.column_id for hit in results] == expected


@pytest.mark.slow
@pytest.mark.parametrize("join", ["any", "equi"])
@given(drawn=COLUMN_LISTS, query=st.lists(CELL, max_size=10), k=st.integers(1, 5))
def test_groups_are_the_best_tables(
    make_lake: MakeLake,
    join: str,
    drawn: list[tuple[list[str | None], str]],
    query: list[str | None],
    k: int,
) -> None:
    lake = make_lake(columns_of(drawn))
    every = lake.search(query, 100, join=join).hits
    grouped = lake.search(query, k, join=join, settings=SearchSettings(group="tables")).hits
    tables = list(dict.fromkeys(hit.table for hit in every))
    assert [hit.table for hit in grouped] == tables[:k]
    first = {table: next(h for h in every if h.table == table) for table in tables}
    assert all(hit.column == first[hit.table].column for hit in grouped)


@pytest.mark.slow
def test_large_columns_are_probed(make_lake: MakeLake) -> None:
    big = [f"v{i}" for i in range(6000)]
    lake = make_lake([Column(big, "big", "b", column_id="b#0"), Column(["v1", "q"], "s", "s")])
    query: list[str | None] = ["v5999", "v1", "nope"]
    hits = {hit.table: hit for hit in lake.search(query, join="equi")}
    check_evidence(hits["b"], query, Column(big))
    check_evidence(hits["s"], query, Column(["v1", "q"]))


@pytest.fixture
def generic_lake(make_lake: MakeLake) -> Lake:
    """Four tables in which row numbers cover a query better than its real key does."""
    return make_lake(
        [
            Column([str(i) for i in range(1, 200)], "row", "log"),
            Column([str(i) for i in range(1900, 2020)], "year", "calendar"),
            Column(["17", "23", "42", "99999"], "customer", "crm"),
            Column(["1999", "2005", "paris"], "mixed", "notes"),
        ]
    )


def test_generic_keys_rank_below_informative_ones(generic_lake: Lake) -> None:
    query = ["17", "23", "42", "150"]
    hits = generic_lake.search(query)
    assert [(hit.table, hit.generic) for hit in hits] == [("crm", ""), ("log", "run")]
    assert [hit.table for hit in generic_lake.search(query, method="exact-equi")] == ["log", "crm"]
    assert [hit.table for hit in generic_lake.search(query, 1)] == ["crm"]


def test_a_generic_query_asks_for_generic_keys(generic_lake: Lake) -> None:
    hits = generic_lake.search(["1999", "2001", "2005"])
    assert [hit.table for hit in hits] == ["calendar", "notes"]


@pytest.mark.slow
@pytest.mark.parametrize("query", [[], [None, ""], ["nowhere"], ["\ud800"], ["x" * 100_000]])
def test_queries_that_match_nothing_find_nothing(
    generic_lake: Lake, query: list[str | None]
) -> None:
    results = generic_lake.search(query)
    assert len(results) == 0
    assert repr(results) == "no joinable column found"


def test_wrong_arguments_are_explained(generic_lake: Lake) -> None:
    with pytest.raises(
        DeepJoinError, match="No method 'hybird' in deepjoin.*Did you mean 'hybrid'"
    ):
        generic_lake.search(["a"], method="hybird")
    with pytest.raises(DeepJoinError, match="No join kind 'fuzzy'"):
        generic_lake.search(["a"], join="fuzzy")
    with pytest.raises(DeepJoinError, match="`k` is -1; it must be a whole number"):
        generic_lake.search(["a"], k=-1)
    with pytest.raises(DeepJoinError, match="No grouping 'rows'"):
        generic_lake.search(["a"], settings=SearchSettings(group="rows"))
    with pytest.raises(DeepJoinError, match="No table 'lgo'.*Did you mean 'log'"):
        generic_lake.column("lgo", "row")
    with pytest.raises(DeepJoinError, match="No indexed column 'rwo' in log.*Did you mean 'row'"):
        generic_lake.column("log", "rwo")


def test_results_as_objects_json_arrow_and_text(generic_lake: Lake) -> None:
    results = generic_lake.search(["17", "x"], join="equi")
    assert results[0].joinability == 0.5
    assert results.to_dict()["hits"][0]["matches"] == [
        {"query": "17", "target": "17", "similarity": 1.0, "how": "equal"}
    ]
    assert results.to_arrow().column("table").to_pylist() == ["crm", "log"]
    assert results.to_pandas()["matched"].tolist() == [1, 1]
    assert "crm" in repr(results) and "50%" in repr(results)
