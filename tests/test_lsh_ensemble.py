"""LSH Ensemble: datasketch's own signatures and candidates, in arrays; ranked by estimates."""

from __future__ import annotations

import random
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from datasketch import LeanMinHash, MinHash
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

import deepjoin
from deepjoin import Column, DeepJoinError, Lake, Settings
from deepjoin.errors import MissingExtra
from deepjoin.lab import lsh_ensemble as lab_method
from deepjoin.lab.evaluation.metrics import precision_ties
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.lab.lsh_ensemble import (
    PLACES,
    SCHEME,
    SEED,
    THRESHOLDS,
    LshEnsemble,
    LshIndex,
    Permutations,
    containment,
    lsh_ensemble,
)
from deepjoin.normalise.cells import distinct_cells
from deepjoin.search.query import SearchOptions

from .conftest import MakeLake

CELL = st.none() | st.sampled_from([f"v{i}" for i in range(30)])
COLUMNS = st.lists(st.lists(CELL, max_size=25), min_size=1, max_size=14)
PERMUTATIONS = Permutations.of_datasketch()


def columns_of(drawn: list[list[str | None]]) -> list[Column]:
    """Give drawn columns tables of two columns, the last table first by name."""
    return [
        Column(cells, f"c{i}", table=f"t{9 - i // 2}", column_id=f"t{9 - i // 2}#{i % 2}")
        for i, cells in enumerate(drawn)
    ]


def opened(lake: Lake) -> LshEnsemble:
    return lsh_ensemble(lake.context(), "equi", None)


def answers(lake: Lake, query: Column, k: int) -> list[tuple[str, float]]:
    found = opened(lake).search(query, SearchOptions(k, exclude=query.table))
    return [(hit.column_id, hit.score) for hit in found]


def of_datasketch(values: list[str]) -> MinHash:
    """Sign values by datasketch itself, one after the other."""
    signed = MinHash(PLACES, SEED, hashfunc=lambda cell: xxh3_64_intdigest(cell) & 0xFFFFFFFF)
    signed.update_batch([value.encode() for value in values])
    return signed


@pytest.mark.slow
@given(drawn=COLUMNS, cells=st.sampled_from([1, 7, 1 << 18]))
@settings(max_examples=20)
def test_signatures_are_those_of_datasketch(
    make_lake: MakeLake, drawn: list[list[str | None]], cells: int
) -> None:
    lake = make_lake(columns_of(drawn))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_method, "_CELLS", cells)
        searcher = opened(lake)
    filled = [values for one in drawn if (values := distinct_cells(one).values)]
    filled.sort(key=len)
    assert searcher._columns.sizes.tolist() == [len(values) for values in filled]
    expected = {tuple(of_datasketch(values).hashvalues.tolist()) for values in filled}
    assert {tuple(row) for row in searcher._signatures.tolist()} == expected
    for values in filled:
        assert PERMUTATIONS.signature(values).tolist() == of_datasketch(values).hashvalues.tolist()


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), threshold=st.sampled_from(THRESHOLDS))
@settings(max_examples=20)
def test_candidates_are_those_of_datasketch(seed: int, threshold: float) -> None:
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(120)]
    sets = sorted((chance.sample(words, chance.randint(1, 60)) for _ in range(60)), key=len)
    rows = np.array([PERMUTATIONS.signature(one) for one in sets])
    index = LshIndex(rows, np.array([len(one) for one in sets]))
    theirs = deepcopy(lab_method._tuned(threshold))
    signed = [LeanMinHash(seed=SEED, hashvalues=row, scheme=SCHEME) for row in rows]
    theirs.index([(n, one, len(sets[n])) for n, one in enumerate(signed)])
    for query in (chance.sample(words, 9), sets[0], sets[-1][: chance.randint(1, 9)], ["unknown"]):
        signature = PERMUTATIONS.signature(query)
        asked = LeanMinHash(seed=SEED, hashvalues=signature, scheme=SCHEME)
        expected = sorted(set(theirs.query(asked, len(query))))
        assert index.find(signature, len(query), threshold).tolist() == expected


@pytest.mark.slow
@given(drawn=COLUMNS, query=st.lists(CELL, max_size=25), k=st.integers(0, 40))
@settings(max_examples=40)
def test_hits_are_ranked_by_their_estimates(
    make_lake: MakeLake, drawn: list[list[str | None]], query: list[str | None], k: int
) -> None:
    columns = {column.column_id: column for column in columns_of(drawn)}
    asked = Column(query, "q", "t8")
    lake = make_lake(list(columns.values()))
    hits = opened(lake).search(asked, SearchOptions(k, exclude="t8", show=None))
    values = distinct_cells(query).values
    assert len(hits) <= k and [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    order = list(columns)
    keys = [(-hit.score, hit.table, order.index(hit.column_id)) for hit in hits]
    assert keys == sorted(keys)
    for hit in hits:
        cells = distinct_cells(columns[hit.column_id].cells).values
        assert hit.table != "t8", "the query's own table is never a hit"
        assert hit.joinability == len({*values} & {*cells}) / len(values) > 0
        rows = PERMUTATIONS.signature(cells)[None]
        signature = PERMUTATIONS.signature(values)
        estimate = containment(signature, len(values), rows, np.array([len(cells)]))
        assert hit.score == estimate[0]
        assert 0 < hit.score <= min(1, len(cells) / len(values))
        assert hit.found_by == ("lsh-ensemble",)


@pytest.mark.slow
@given(drawn=COLUMNS, query=st.lists(CELL, min_size=1, max_size=25), k=st.integers(1, 40))
@settings(max_examples=20)
def test_openings_segments_and_repeated_cells_change_nothing(
    make_lake: MakeLake, drawn: list[list[str | None]], query: list[str | None], k: int
) -> None:
    columns, asked = columns_of(drawn), Column(query, "q")
    lake = make_lake(columns)
    expected = answers(lake, asked, k)
    assert answers(deepjoin.open(lake.path), asked, k) == expected
    # Sizes count distinct values, not rows.
    repeated = [Column([*c.cells, *c.cells] * 9, c.name, c.table, column_id=c.column_id)
                for c in columns]  # fmt: skip
    assert answers(make_lake(repeated), asked, k) == expected


def corpus(seed: int) -> tuple[list[Column], list[Column]]:
    """Make columns of 5 to 60 of 900 words, near ones of some of them, and queries."""
    chance = random.Random(seed)
    words = [f"word {i}" for i in range(900)]
    columns = []
    for i in range(400):
        cells = chance.sample(words, chance.randint(5, 60))
        for part in range(3 if i % 4 == 0 else 1):
            kept = chance.sample(cells, max(3, len(cells) * (4 - part) // 4))
            columns.append(Column(kept, "c", f"t{i}-{part}", column_id=f"t{i}-{part}#0"))
    queries = [Column(columns[n * 6].cells, "q", f"q{n}") for n in range(40)]
    return columns, queries


@pytest.mark.slow
def test_precision_is_as_measured(make_lake: MakeLake) -> None:
    columns, queries = corpus(3)
    searcher = opened(make_lake(columns))
    truth = brute_force(columns, queries, "default")
    shares, first = [], []
    for query, right in zip(queries, truth, strict=True):
        found = [hit.column_id for hit in searcher.search(query, SearchOptions(10))]
        assert len(found) == 10
        shares.append(precision_ties(found, right, 10) or 0.0)
        first.append(precision_ties(found, right, 1) or 0.0)
    # Estimates lose much of what is little contained, and nothing that is contained whole.
    assert np.mean(shares) == pytest.approx(0.7075, abs=0.02)
    assert np.mean(first) == 1


@pytest.mark.slow
def test_segments_are_searched_as_one(tmp_path: Path) -> None:
    columns, queries = corpus(5)
    whole = deepjoin.index(columns, tmp_path / "whole", settings=Settings(min_distinct=1))
    parts = deepjoin.index(columns[:550], tmp_path / "parts", settings=Settings(min_distinct=1))
    parts.add(columns[550:])
    assert len(parts.index.segments) == 2
    for query in queries[:10]:
        assert answers(parts, query, 20) == answers(whole, query, 20)


@pytest.mark.slow
def test_removed_tables_are_no_hits(tmp_path: Path) -> None:
    columns, queries = corpus(7)
    lake = deepjoin.index(columns, tmp_path / "all", settings=Settings(min_distinct=1))
    first = opened(lake).search(queries[0], SearchOptions(3))
    lake.remove(first[0].table)
    assert first[0].column_id not in [i for i, _ in answers(lake, queries[0], 1000)]
    assert first[1].column_id == answers(lake, queries[0], 1)[0][0]


@pytest.mark.slow
def test_tables_are_grouped(make_lake: MakeLake) -> None:
    cells = [f"v{i}" for i in range(20)]
    columns = [Column(cells, "a", "t1"), Column(cells[:15], "b", "t1"), Column(cells, "a", "t2")]
    grouped = opened(make_lake(columns)).search(Column(cells), SearchOptions(5, by_table=True))
    assert [(hit.table, hit.column) for hit in grouped] == [("t1", "a"), ("t2", "a")]
    assert [other.column for other in grouped[0].also] == ["b"]


@pytest.mark.slow
def test_nothing_to_find_is_no_hit(make_lake: MakeLake, tmp_path: Path) -> None:
    searcher = opened(make_lake([Column(list("abcdef"), "x", "t")]))
    for cells in ([], [None, " "], ["unknown", "values"]):
        assert len(searcher.search(Column(cells), SearchOptions(5))) == 0
    assert len(searcher.search(Column(list("abc")), SearchOptions(0))) == 0
    empty = deepjoin.index([Column(["a"], "x", "t")], tmp_path / "e", settings=Settings())
    assert len(opened(empty).search(Column(["a"]), SearchOptions(5))) == 0


def test_lakes_of_hashes_are_searched(make_lake: MakeLake) -> None:
    columns, queries = corpus(9)
    plain, hashed = make_lake(columns[:60]), make_lake(columns[:60], hash_only=True)
    hits = opened(hashed).search(queries[0], SearchOptions(5))
    assert hits[0].score == 1
    assert (
        hits[0].joinability
        == opened(plain).search(queries[0], SearchOptions(5))[0].joinability
        == 1
    )


def test_semantic_joins_are_shown_by_meaning(make_lake: MakeLake) -> None:
    towns = ["Paris", "London", "Rome", "Berlin", "Madrid", "Lisbon"]
    lake = make_lake([Column([*towns[:5], "Lisbonn"], "town", "t")])
    (hit,) = lsh_ensemble(lake.context(), "semantic", None).search(Column(towns), SearchOptions(3))
    assert (hit.join, hit.found_by) == ("semantic", ("lsh-ensemble",))
    assert hit.semantic is not None and hit.semantic.matched >= 5
    assert hit.score < 1


def test_many_sizes_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.sort(np.random.default_rng(0).integers(1, 5000, 3000))
    monkeypatch.setattr(lab_method, "_SIZES", 40)
    parts = lab_method._partitions(sizes)
    uppers = [upper for _, upper in parts]
    assert uppers == sorted(set(uppers)) and len(uppers) == 16
    assert uppers[-1] == sizes[-1] and set(uppers) <= set(sizes.tolist())


def test_what_is_not_verified_has_no_minimum(make_lake: MakeLake) -> None:
    searcher = opened(make_lake([Column(list("abc"), "x", "t")]))
    text = "came with method 'lsh-ensemble', which does not verify its hits; min_joinability needs"
    with pytest.raises(DeepJoinError, match=text):
        searcher.search(Column(["a"]), SearchOptions(None, 0.5))
    with pytest.raises(DeepJoinError, match=text):
        searcher.search(Column(["a"]), SearchOptions(5, 0.1))


def test_the_missing_package_is_named(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake([Column(list("abc"), "x", "t")])
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(MissingExtra, match=r"needs datasketch: pip install 'deepjoin\[baselines\]"):
        opened(lake)
