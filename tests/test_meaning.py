"""Search by meaning: scores equal the definitions, however the lake is cut, and bad asks."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.matching.joinability import semantic_joinability
from deepjoin.model import Partial, Results
from deepjoin.search.hybrid import _descending
from deepjoin.search.scores import CellMatches
from deepjoin.settings import SearchSettings
from deepjoin.store.cell_vectors import CellVectors
from tests.support.definitions import chance_joinabilities
from tests.support.index_files import sign

from .conftest import MakeLake

ENCODER = load_cell_encoder()
CELL = st.sampled_from(
    [
        "USA",
        "United States",
        "us",
        "UK",
        "United Kingdom",
        "Germany",
        "germany ",
        "West Germany",
        "France",
        "FRA",
        "New York",
        "New York City",
        "Apple",
        "Apple Inc.",
        "apple",
        "IBM",
        "QB",
        "quarterback",
        "1994",
        "1995",
        "a123",
        "a124",
        "東京",
        "Zürich",
        "Zurich",
        "--",
        "",
    ]
)
COLUMNS = st.lists(st.lists(CELL, max_size=8), min_size=1, max_size=10)
QUERY = st.lists(CELL, max_size=8)
EXAMPLES = settings(max_examples=40)
#: By how much the cosine of stored vectors may be wrong.
ERROR = 0.004


def columns_of(drawn: list[list[str]]) -> list[Column]:
    return [
        Column(cells, f"name{i % 3}", table=f"t{i // 2}", column_id=f"t{i // 2}#{i % 2}")
        for i, cells in enumerate(drawn)
    ]


def best_scores(scores: dict[str | None, float], k: int) -> list[float]:
    return sorted((score for score in scores.values() if score > 0), reverse=True)[:k]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hybrid", "exact-semantic", "pexeso"])
@EXAMPLES
@given(drawn=COLUMNS, query=QUERY, k=st.integers(0, 12), tau=st.sampled_from([0.5, 0.65, 0.9]))
def test_semantic_search_equals_brute_force(
    make_lake: MakeLake, method: str, drawn: list[list[str]], query: list[str], k: int, tau: float
) -> None:
    columns = columns_of(drawn)
    truth = {
        column.column_id: semantic_joinability(query, column.cells, ENCODER.encode, tau)
        for column in columns
        if column.table != "t0"
    }
    results = make_lake(columns).search(
        Column(query, "name0", table="t0"),
        k,
        join="semantic",
        method=method,
        settings=SearchSettings(tau=tau),
    )
    assert [hit.joinability for hit in results] == pytest.approx(best_scores(truth, k))
    for hit in results:
        assert hit.semantic is not None and hit.semantic.tau == tau
        assert hit.joinability == hit.semantic.joinability == pytest.approx(truth[hit.column_id])


@pytest.mark.slow
@EXAMPLES
@example(drawn=[["USA", "us"]], query=["USA", "United States"])
@given(drawn=COLUMNS, query=QUERY)
def test_any_counts_the_chance_of_each_cell(
    make_lake: MakeLake, drawn: list[list[str]], query: list[str]
) -> None:
    columns = {column.column_id: column for column in columns_of(drawn)}
    results = make_lake(list(columns.values())).search(query, 100)
    for hit in results:
        cells = list(columns[hit.column_id].cells)
        # Which of two cells is nearer can be decided by the error of stored vectors.
        expected = chance_joinabilities(query, cells, ENCODER, error=ERROR)
        assert any(hit.joinability == pytest.approx(one, abs=0.02) for one in expected)
    matching = {
        number
        for number, column in columns.items()
        if semantic_joinability(query, column.cells, ENCODER.encode, ENCODER.tau) > 0
    }
    assert {hit.column_id for hit in results} == matching


@pytest.mark.slow
@EXAMPLES
@given(drawn=COLUMNS, query=QUERY)
def test_matches_say_which_cell_is_like_which(
    make_lake: MakeLake, drawn: list[list[str]], query: list[str]
) -> None:
    columns = {column.column_id: column for column in columns_of(drawn)}
    for hit in make_lake(list(columns.values())).search(
        query, 100, settings=SearchSettings(matches=None)
    ):
        assert hit.semantic is not None
        assert len(hit.matches) == hit.matched == hit.semantic.matched
        assert len(hit.matches) + len(hit.unmatched) == hit.query_size
        for match in hit.matches:
            assert match.query in query and match.target in columns[hit.column_id].cells
            one, other = ENCODER.encode([match.query, match.target])
            assert match.similarity == pytest.approx(
                1.0 if match.similarity == 1 else one @ other, abs=0.01
            )


@pytest.mark.slow
@settings(max_examples=15)
@given(drawn=COLUMNS, query=QUERY, join=st.sampled_from(["any", "semantic"]))
def test_many_additions_answer_as_one_build(
    make_lake: MakeLake, tmp_path: Path, drawn: list[list[str]], query: list[str], join: str
) -> None:
    frames = {f"t{i}": {"name": cells or [""]} for i, cells in enumerate(drawn)}
    tables = {name: __import__("pyarrow").table(frame) for name, frame in frames.items()}
    whole = deepjoin.index(
        tables,
        tmp_path / f"whole-{np.random.default_rng().integers(1 << 60)}",
        settings=deepjoin.Settings(min_distinct=1),
        encoder="none",
    )
    grown = deepjoin.index(
        {"t0": tables["t0"]},
        Path(f"{whole.path}-grown"),
        settings=deepjoin.Settings(min_distinct=1),
        encoder="none",
    )
    for name in list(tables)[1:]:
        grown.add({name: tables[name]})
    assert answer(grown, query, join) == answer(whole, query, join)
    grown.compact()
    assert answer(grown, query, join) == answer(whole, query, join)


def answer(lake: Lake, query: list[str], join: str) -> list[tuple[str, float, object]]:
    return [(hit.table, hit.score, hit.matches) for hit in lake.search(query, 5, join=join)]


@pytest.fixture
def lake(make_lake: MakeLake) -> Lake:
    countries = Column(
        ["United States", "United Kingdom", "Germany"], "country", "a", "", "", "a#0"
    )
    codes = Column(["us", "uk", "de"], "code", "b", "", "", "b#0")
    return make_lake([countries, codes])


def test_spellings_that_differ_are_found_and_shown(lake: Lake) -> None:
    results = lake.search(["USA", "UK"], 10)
    found = {hit.column_id: hit for hit in results}
    assert found.keys() == {"a#0", "b#0"}
    assert found["b#0"].join == "any" and found["b#0"].found_by == ("exact-equi", "cell-vectors")
    assert "USA ≈ " in repr(results)
    assert found["b#0"].to_dict()["semantic"]["matched"] == 2


def test_equal_cells_are_no_better_for_having_vectors(lake: Lake) -> None:
    (hit,) = lake.search(["Germany"], 1, join="equi")
    assert hit.semantic is None and hit.found_by == ("exact-equi",)


@pytest.mark.slow
@pytest.mark.parametrize("query", [[], [""], ["--"], ["x" * 100_000], ["\x00\x07"], ["😀"], ["١٢"]])
@pytest.mark.parametrize("join", ["any", "semantic"])
def test_odd_queries_are_answered(lake: Lake, query: list[str], join: str) -> None:
    assert isinstance(lake.search(query, 3, join=join), Results)


def test_a_threshold_brings_all_that_reach_it(lake: Lake) -> None:
    assert len(lake.search(["USA", "UK"], min_joinability=0.9, join="semantic")) == 2
    assert len(lake.search(["USA", "nobody"], min_joinability=0.9, join="any")) == 0


def test_hits_are_grouped_by_table(lake: Lake) -> None:
    grouped = lake.search(["USA", "UK"], 1, settings=SearchSettings(group="tables"))
    assert [hit.table for hit in grouped] == [lake.search(["USA", "UK"], 1)[0].table]


@pytest.mark.parametrize("tau", [0.0, -1.0, 1.5])
def test_a_tau_that_is_no_cosine_is_refused(lake: Lake, tau: float) -> None:
    with pytest.raises(DeepJoinError, match="`tau` is .*; it must be a cosine above 0"):
        lake.search(["USA"], settings=SearchSettings(tau=tau))


def test_a_method_refuses_a_join_it_does_not_answer(lake: Lake) -> None:
    with pytest.raises(DeepJoinError, match="'exact-semantic' answers join semantic, not equi"):
        lake.search(["USA"], join="equi", method="exact-semantic")


def test_a_lake_without_cell_vectors_says_how_to_get_them(tmp_path: Path) -> None:
    plain = deepjoin.index(
        [Column(["us", "uk"], "c")],
        tmp_path / "i",
        settings=deepjoin.Settings(min_distinct=1),
        vectors={"cells": "none"},
        encoder="none",
    )
    assert plain.search(["US"])[0].join == "equi"
    with pytest.raises(DeepJoinError, match="no cell vectors.*deepjoin index .* --cells default"):
        plain.search(["US"], join="semantic")
    given_them = deepjoin.index(plain.path, vectors={"cells": "default"})
    assert given_them.search(["USA"], join="semantic")[0].matched == 1
    assert deepjoin.index(plain.path, vectors={"cells": "none"}).index.segments[0].cells is None


def test_a_lake_of_hashes_has_none(tmp_path: Path) -> None:
    private = deepjoin.index(
        [Column(["us", "uk"], "c")],
        tmp_path / "i",
        settings=deepjoin.Settings(min_distinct=1, hash_only=True),
    )
    assert private.search(["US"])[0].join == "equi"
    with pytest.raises(DeepJoinError, match='holds hashes of values.*`join="equi"`'):
        private.search(["US"], join="semantic")
    with pytest.raises(DeepJoinError, match="an index of hashes has nothing to encode"):
        deepjoin.index(private.path, vectors={"cells": "default"})


def test_another_encoder_is_named(tmp_path: Path, lake: Lake) -> None:
    about = lake.index.segments[0].folder / "vectors" / "cells" / "about.json"
    about.write_text(about.read_text().replace(ENCODER.digest, "0" * 16))
    sign(lake.path)
    with pytest.raises(
        DeepJoinError,
        match=f"encoded by 'default' \\(0+\\), not by 'default' .*"
        f"{ENCODER.digest}.*--cells default",
    ):
        Lake(lake.path).search(["US"], join="semantic")


def many_names(count: int = 600) -> list[str]:
    """Make names of which no two are alike."""
    return [f"{chr(97 + n % 26)}{chr(97 + n // 26)}ville harbour" for n in range(count)]


@pytest.fixture
def two_sides(make_lake: MakeLake) -> Lake:
    """Make a lake of a column that shares equal values, and one that has other spellings."""
    names = many_names()
    spelled = [f"{name.title()} (city)" for name in names]
    return make_lake([Column(names[:60], "place", "equal"), Column(spelled, "town", "similar")])


@pytest.mark.slow
def test_equal_hits_come_first_and_similar_ones_later(two_sides: Lake) -> None:
    partial: list[Results] = []
    found = two_sides.search(many_names(), settings=SearchSettings(on_partial=partial.append))
    (first,) = partial
    assert [hit.table for hit in first] == ["equal"]
    assert first.partial == Partial("similar values of 0 of 600 were looked up", 0, 600)
    assert first.to_dict()["partial"]["total"] == 600
    assert [hit.table for hit in found] == ["similar", "equal"]
    assert found.partial is None and "partial" not in found.to_dict()
    assert found.hits == two_sides.search(many_names()).hits


@pytest.mark.slow
@pytest.mark.parametrize("reads", range(5))
def test_a_time_limit_returns_what_is_there_and_says_so(
    two_sides: Lake, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    clock = count()
    monkeypatch.setattr("deepjoin.search.query.monotonic", lambda: next(clock))
    found = two_sides.search(many_names(), settings=SearchSettings(time_limit=reads))
    assert "equal" in [hit.table for hit in found]
    assert found.partial is not None
    assert found.partial.done < found.partial.total == 600
    assert (found.partial.done > 0) == (reads > 1)
    assert f"similar values of {found.partial.done:,} of 600 were looked up" in repr(found)
    assert "not complete: " in found._repr_html_()


@pytest.mark.slow
def test_a_limit_that_does_not_pass_leaves_no_mark(two_sides: Lake) -> None:
    limited = two_sides.search(many_names(), settings=SearchSettings(time_limit=1e6))
    assert limited.partial is None
    assert limited.hits == two_sides.search(many_names()).hits
    with pytest.raises(DeepJoinError, match="`time_limit` is -1; it must be a number of seconds"):
        SearchSettings(time_limit=-1)


@pytest.mark.slow
def test_a_large_query_is_looked_up_by_a_sample_of_its_words(
    two_sides: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = [f"{year}-{month:02}-07" for year in range(1950, 2000) for month in range(1, 13)]
    looked_up: list[int] = []
    near = CellVectors.near

    def counted(self: CellVectors, queries: np.ndarray, *rest: Any) -> Any:
        looked_up.append(len(queries))
        return near(self, queries, *rest)

    monkeypatch.setattr(CellVectors, "near", counted)
    two_sides.search([*dates, *map(str, range(600))], 5)
    assert sum(looked_up) == 0, "vectors find no other dates or numbers"
    two_sides.search([*many_names(), *dates], 5)
    assert sum(looked_up) == 512
    looked_up.clear()
    two_sides.search(dates[:100], 5)
    assert sum(looked_up) == 100, "small columns are looked up as they are"


@pytest.mark.slow
def test_more_lists_are_looked_at_where_few_columns_are_found(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.store.cell_vectors.LISTS_FROM", 100)
    names = many_names()
    tables = [names[at : at + 60] for at in range(0, 600, 60)]
    lake = make_lake([Column(of, "place", f"t{at}") for at, of in enumerate(tables)])
    near, asked = CellVectors.near, list[Any]()

    def noted(self: CellVectors, *given: Any) -> Any:
        asked.append(given[-1])
        return near(self, *given)

    monkeypatch.setattr(CellVectors, "near", noted)
    query = [f"{name.title()} (city)" for name in names[60:70]]
    for sparse, probes in ((0, [8]), (500, [8, 48])):
        monkeypatch.setattr("deepjoin.search.hybrid._SPARSE", sparse)
        asked.clear()
        assert len(lake.search(query, 1, join="semantic")) == 1
        assert asked == probes


@pytest.mark.slow
def test_a_table_is_searched_by_every_column_best_key_first(two_sides: Lake) -> None:
    table = {
        "n": [1, 2, 3],
        "town": ["aaville harbour", "baville harbour", "x"],
        "none": [None] * 3,
    }
    partial: list[Results] = []
    found = two_sides.search(table, 3, settings=SearchSettings(on_partial=partial.append))
    assert (found.query["column"], found.partial) == ("town", None)
    assert [one.query["column"] for one in found.others] == ["n", "none"]
    assert found.hits == two_sides.search(table, 3, on="town").hits
    texts = [one.partial.text for one in partial if one.partial]
    assert texts[0] == "similar values of 1 of 3 columns were looked up", "one has no values"
    assert [len(one.others) for one in partial] == [2, 2]
    limited = two_sides.search(table, 3, settings=SearchSettings(time_limit=0))
    assert limited.partial is not None and limited.partial.done == 1
    wide = {"hand": ["aaville harbour", "baville harbour"] * 5, "town": [*many_names(9), "x"]}
    assert two_sides.search(wide).query["column"] == "town", "two values are no key"
    columns = [two_sides.column("similar", "town"), two_sides.column("equal", "place")]
    found = two_sides.search(columns)
    assert {found.hits[0].table, found.others[0].hits[0].table} == {"equal", "similar"}


@given(st.lists(st.tuples(*(st.integers(0, n) for n in (3, 4, 5, 3)))), st.booleans())
def test_matches_are_sorted_by_one_key_as_by_four(rows: list[Any], many: bool) -> None:
    columns, cells, values, steps = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    order = np.lexsort((values, columns))
    cells = cells + (many << 40)  # too many for one key
    found = CellMatches(columns, cells, values, (0.6 + steps / 10).astype(np.float32)).where(order)
    wanted = np.lexsort((found.values, -found.similarities, found.cells, found.columns))
    ordered = found.ordered()
    for name in ("columns", "cells", "values", "similarities"):
        assert getattr(ordered, name).tolist() == getattr(found, name)[wanted].tolist()


@given(st.lists(st.integers(0, 6)), st.integers(1, 8))
def test_the_first_columns_are_in_their_order(keys: list[int], most: int) -> None:
    array = np.array(keys, np.float64)
    order = _descending(array, most)
    best = np.argsort(-array, kind="stable")
    assert order[:most].tolist() == best[:most].tolist()
    assert array[order].tolist() == array[best].tolist()
