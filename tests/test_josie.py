"""JOSIE equals exact-equi and brute force; mistakes known from other versions are not made."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column
from deepjoin.lab import josie_index
from deepjoin.lab.evaluation.truth import brute_force
from deepjoin.lab.josie import (
    Benefits,
    CostModel,
    Estimates,
    Josie,
    JosieSearch,
    ListCosts,
    estimate,
    fit,
    josie,
    score_from,
)
from deepjoin.lab.josie_index import CandidateCounter, SetIndex, overlap_of
from deepjoin.model import Hit, Results
from deepjoin.search.exact import exact_equi
from deepjoin.search.hybrid import EquiSearch
from deepjoin.search.query import SearchOptions
from deepjoin.search.searcher import Searcher
from tests.support.column_lakes import segment_of
from tests.support.definitions import equi_joinability

from .conftest import MakeLake

#: Nothing costs anything, lists cost a lot, sets cost a lot, and something like the truth.
MODELS = (
    CostModel(0.0, 0.0, 0.0, 0.0),
    CostModel(1e-3, 1e-3, 0.0, 0.0),
    CostModel(0.0, 0.0, 1.0, 1.0),
    CostModel(5e-6, 1e-7, 4e-6, 2e-9),
)
BATCHES = (1, 2, 5, 20)


def sets_of(lists: list[list[int]], dead: list[bool] | None = None) -> SetIndex:
    """Index sets of value numbers."""
    offsets = np.cumsum([0, *map(len, lists)])
    values = np.array([value for one in lists for value in sorted(one)], np.uint32)
    return SetIndex.of(offsets, values, None if dead is None else np.array(dead))


def drawn_sets(seed: int, skewed: bool, copied: bool) -> list[list[int]]:
    """Make sets with ties, empty ones among them, and values that always occur together."""
    random = np.random.default_rng(seed)
    values = int(random.integers(2, 90))
    power = 3 if skewed else 1
    sizes = random.integers(0, 30, random.integers(1, 90))
    lists = [np.unique((values * random.random(n) ** power).astype(int)).tolist() for n in sizes]
    if copied:
        lists = [[copy * 1000 + value for value in one for copy in range(4)] for one in lists]
    return [*lists, *lists[:5]]


def counted(lists: list[list[int]], query: list[int], out: list[int]) -> dict[int, int]:
    """Count what each set shares with the query, by comparing everything."""
    shared = {number: len(set(one) & set(query)) for number, one in enumerate(lists)}
    return {number: many for number, many in shared.items() if many and number not in out}


def best_of(shared: dict[int, int], lists: list[list[int]], k: int | None) -> dict[int, int]:
    """Keep what is not worse than the k-th by overlap, then size."""
    if k == 0:
        return {}
    ranked = sorted(shared, key=lambda number: (-shared[number], len(lists[number])))
    if k is None or len(ranked) <= k:
        return shared
    last = ranked[k - 1]
    bar = (-shared[last], len(lists[last]))
    return {n: many for n, many in shared.items() if (-many, len(lists[n])) <= bar}


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    skewed=st.booleans(),
    copied=st.booleans(),
    k=st.none() | st.integers(0, 120),
    data=st.data(),
)
def test_sets_equal_brute_force_whatever_reading_costs(
    seed: int, skewed: bool, copied: bool, k: int | None, data: st.DataObject
) -> None:
    lists = drawn_sets(seed, skewed, copied)
    known = sorted({value for one in lists for value in one})
    if not known:
        return
    some = st.lists(st.sampled_from(known), unique=True, max_size=80)
    own, query = data.draw(st.integers(0, len(lists) - 1)), data.draw(some)
    query = sorted({*query, *lists[own]})
    out = data.draw(st.sampled_from([[], [own], [own, 0]]))
    dead = [number % 7 == 3 for number in range(len(lists))]
    index = sets_of(lists, dead)
    gone = [*out, *np.flatnonzero(dead).tolist()]
    truth = best_of(counted(lists, query, gone), lists, k)
    for model in (*MODELS, fit(index)):
        for batch in BATCHES:
            lake = Josie(index, model, batch)
            # Twice, so that nothing of the first is left for the second.
            for _ in range(2):
                found = lake.search(np.array(query, np.int64), k, ignored=np.array(out, np.int64))
                pairs = list(zip(found.sets.tolist(), found.overlaps.tolist(), strict=True))
                assert sorted(pairs) == sorted(truth.items())


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), least=st.integers(1, 20), k=st.none() | st.integers(1, 9))
def test_a_least_overlap_is_kept(seed: int, least: int, k: int | None) -> None:
    lists = drawn_sets(seed, True, False)
    query = max(lists, key=len)
    shared = counted(lists, query, [])
    enough = {number: many for number, many in shared.items() if many >= least}
    index = sets_of(lists)
    for model in MODELS:
        found = Josie(index, model, 3).search(np.array(query, np.int64), k, score_from(least))
        truth = best_of(enough, lists, k)
        assert dict(zip(found.sets.tolist(), found.overlaps.tolist(), strict=True)) == truth


CELL = st.none() | st.sampled_from(
    ["a", "A", "b", "c", "d", "e", "f", "g", "h", "1", "1.0", "2", "7", "é"]
)
NAMES = st.sampled_from(["", "city", "City name", "cityId", "x"])
DRAWN = st.lists(st.tuples(st.lists(CELL, max_size=10), NAMES), min_size=1, max_size=14)


def columns_of(drawn: list[tuple[list[str | None], str]]) -> list[Column]:
    """Give drawn columns tables of one or two columns."""
    return [
        Column(cells, f"{name}{i}", table=f"t{i // 2}", column_id=f"t{i // 2}#{i % 2}")
        for i, (cells, name) in enumerate(drawn)
    ]


def plain(results: Results) -> list[Hit]:
    """Give all that hits say, but for who found them."""
    return [replace(hit, found_by=(), also=tuple(map(_plain, hit.also))) for hit in results]


def _plain(hit: Hit) -> Hit:
    return replace(hit, found_by=())


def assert_same(ours: Searcher, other: Searcher, query: Column, k: int, least: float) -> None:
    """Compare all kinds of search."""
    for exclude in (None, query.table):
        asked = [one.search(query, SearchOptions(k, exclude=exclude)) for one in (ours, other)]
        assert plain(asked[0]) == plain(asked[1])
        assert all(hit.found_by == ("josie",) for hit in asked[0])
        asked = [one.search(query, SearchOptions(k, least, exclude)) for one in (ours, other)]
        assert plain(asked[0]) == plain(asked[1])
        asked = [one.search(query, SearchOptions(None, least, exclude)) for one in (ours, other)]
        assert plain(asked[0]) == plain(asked[1])
    asked = [
        one.search(query, SearchOptions(k, least, query.table, show=None, by_table=True))
        for one in (ours, other)
    ]
    assert plain(asked[0]) == plain(asked[1])


@pytest.mark.slow
@settings(max_examples=20)
@given(
    drawn=DRAWN,
    query=st.lists(CELL | st.just("nowhere"), max_size=12),
    name=NAMES,
    k=st.integers(0, 16),
    least=st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 1.0]),
    cut=st.integers(0, 14),
    gone=st.booleans(),
)
def test_a_lake_answers_as_exact_equi_does(
    tmp_path: Path,
    drawn: list[tuple[list[str | None], str]],
    query: list[str | None],
    name: str,
    k: int,
    least: float,
    cut: int,
    gone: bool,
) -> None:
    columns = columns_of(drawn)
    cut -= cut % 2
    folders = (tmp_path / f"{len(list(tmp_path.iterdir()))}-{n}" for n in count())
    parts = [part for part in (columns[:cut], columns[cut:]) if part]
    segments = [segment_of(part, folder) for part, folder in zip(parts, folders, strict=False)]
    if gone and segments[0].catalog.table_names:
        segments[0] = segments[0].without([0])
    asked = Column(query, name, table="t1")
    other = EquiSearch(segments, "default")
    for model in MODELS[1:]:
        for batch in (1, 2, 20):
            ours = JosieSearch(segments, "default", costs=lambda _, m=model: m, batch=batch)
            assert_same(ours, other, asked, k, least)


@pytest.mark.slow
@settings(max_examples=20)
@given(drawn=DRAWN, query=st.lists(CELL, max_size=10), name=NAMES, k=st.integers(0, 16))
def test_the_best_k_equal_brute_force(
    tmp_path: Path,
    drawn: list[tuple[list[str | None], str]],
    query: list[str | None],
    name: str,
    k: int,
) -> None:
    columns = columns_of(drawn)
    asked = Column(query, name, table="t0")
    (truth,) = brute_force(columns, [asked], "default")
    segment = segment_of(columns, tmp_path / str(len(list(tmp_path.iterdir()))))
    found = JosieSearch([segment], "default").search(asked, SearchOptions(k, exclude="t0"))
    assert [hit.column_id for hit in found] == truth.ranked[:k]
    cells = {column.column_id: column.cells for column in columns}
    for hit in found:
        assert hit.joinability == equi_joinability(query, cells[hit.column_id])


def test_a_lake_of_hashes_answers_as_well(make_lake: MakeLake) -> None:
    columns = columns_of([(list("abcd"), "x"), (list("abx"), "y"), (list("dxyz"), "z")])
    lake = make_lake(columns, hash_only=True)
    ours, other = josie(lake.context(), "equi", None), exact_equi(lake.context(), "equi", None)
    asked = Column(["A", "b", "d", "nowhere"], "x")
    assert [hit.column_id for hit in ours.search(asked, SearchOptions(5))] == [
        "t0#0",
        "t0#1",
        "t1#0",
    ]
    assert_same(ours, other, asked, 2, 0.3)


# What other versions get wrong, one by one.


def test_tokens_ascend_in_frequency_and_sets_and_queries_in_tokens() -> None:
    lists = drawn_sets(1, True, True)
    index = sets_of(lists)
    frequency = [sum(value in one for one in lists) for value in range(len(index.token_of))]
    by_token = np.array(frequency)[np.argsort(index.token_of)]
    assert (np.diff(by_token) >= 0).all()
    assert all((np.diff(index.set_tokens[a:b]) > 0).all() for a, b in pairwise(index.set_offsets))
    known = np.flatnonzero(frequency)
    asked = index.query(np.random.default_rng(0).permutation(known))
    assert (np.diff(asked.tokens) > 0).all() and (np.diff(asked.lengths) >= 0).all()
    assert asked.lengths.tolist() == by_token[asked.last].tolist()
    assert asked.weights.sum() == len(known) == asked.left[0]


def test_positions_are_places_in_the_sorted_set_and_count_from_zero() -> None:
    lists = drawn_sets(2, True, True)
    index = sets_of(lists)
    known = np.unique(np.concatenate([np.array(one, np.int64) for one in lists]))
    asked = index.query(known[::2])
    read = index.read(asked, 0, len(asked))
    assert index.list_positions.min() == 0
    there = index.set_tokens[index.set_offsets[read.sets] + read.positions]
    assert there.tolist() == np.repeat(asked.last, read.lengths).tolist()


def test_a_duplicate_group_is_read_once_and_counts_for_each_of_its_tokens() -> None:
    index = sets_of([[0, 1, 2, 3], [0, 1, 2, 4], [4, 5]])
    assert sorted(np.diff(index.firsts).tolist()) == [1, 1, 1, 3]
    assert len(index.list_sets) == 1 + 1 + 2 + 2
    found = Josie(index, MODELS[0], 1).search(np.array([2, 0, 4]), None)
    assert found.reading.lists == 2 and found.reading.postings == 4
    assert dict(zip(found.sets.tolist(), found.overlaps.tolist(), strict=True)) == {
        0: 2,
        1: 3,
        2: 1,
    }


def test_overlaps_add_up_over_lists() -> None:
    index = sets_of([[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]])
    found = Josie(index, MODELS[2], 1).search(np.arange(4), 4)
    assert found.overlaps[np.argsort(found.sets)].tolist() == [4, 3, 2, 1]
    assert index.shared(0, 1, np.sort(index.token_of[[1, 3]])) == 2


def test_a_value_of_one_column_alone_is_found_by_a_query_from_outside() -> None:
    index = sets_of([[0, 1], [1, 2]])
    found = Josie(index, MODELS[3]).search(np.array([0]), 5)
    assert (found.sets.tolist(), found.overlaps.tolist()) == ([0], [1])


def test_unknown_values_count_in_the_joinability(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["a", "b"], "x", "t")])
    (hit,) = josie(lake.context(), "equi", None).search(
        Column(["a", "q", "r", "s"]), SearchOptions(3)
    )
    assert hit.joinability == 0.25
    assert josie(lake.context(), "equi", None).search(Column(["q"]), SearchOptions(3)).hits == ()


def test_lists_that_only_hash_alike_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        josie_index, "_signatures", lambda sets, values, many: np.zeros(many, np.uint64)
    )
    lists = drawn_sets(3, False, True)
    index = sets_of(lists)
    query = max(lists, key=len)
    found = Josie(index, MODELS[1], 2).search(np.array(query, np.int64), 7)
    truth = best_of(counted(lists, query, []), lists, 7)
    assert dict(zip(found.sets.tolist(), found.overlaps.tolist(), strict=True)) == truth


def test_columns_that_tie_with_the_last_are_all_found() -> None:
    lists = [[0, 1, 9 + n] for n in range(8)] + [[0, 1]]
    index = sets_of(lists)
    for model in MODELS:
        found = Josie(index, model, 1).search(np.array([0, 1]), 3)
        assert sorted(found.sets.tolist()) == list(range(9))
        assert overlap_of(found.least) == 2


def test_a_set_that_is_all_of_the_rest_may_tie_with_the_last() -> None:
    index = sets_of([[0, 1], [0, 1, 2]])
    found = Josie(index, MODELS[0]).search(np.array([0, 1]), 1, (2 << 32) - 2)
    assert found.sets.tolist() == [0]


@pytest.mark.slow
def test_ties_are_decided_over_all_segments(tmp_path: Path) -> None:
    tables = [Column(["a", "b"], "x", table) for table in ("late", "early")]
    segments = [segment_of([one], tmp_path / str(one.table)) for one in tables]
    (hit,) = JosieSearch(segments, "default").search(Column(["a", "b"], "x"), SearchOptions(1))
    assert hit.table == "early"


def test_long_lists_are_left_unread_when_sets_are_cheap() -> None:
    wanted = list(range(40))
    lists = [wanted, *([n, *range(30, 40)] for n in range(30) for _ in range(3))]
    index = sets_of(lists)
    cheap, dear = (Josie(index, model, 5).search(np.array(wanted), 1) for model in MODELS[1:3])
    assert cheap.sets.tolist() == dear.sets.tolist() == [0]
    distinct = len(index.query(np.array(wanted)))
    assert cheap.reading.lists < distinct
    assert cheap.reading.postings < sum(map(len, lists)) / 2
    assert cheap.reading.sets >= 1 and cheap.reading.tokens <= len(wanted) * cheap.reading.sets


def running(
    lists: list[list[int]], batch: int
) -> tuple[SetIndex, CandidateCounter, Estimates, ListCosts]:
    """Read two batches of a query, and estimate."""
    index = sets_of(lists)
    asked = index.query(np.array(max(lists, key=len), np.int64))
    slots = np.zeros(len(lists), np.int32)
    counter = CandidateCounter(slots, index.sizes, len(lists), np.zeros(0, np.int64))
    for start in (0, batch):
        read = index.read(asked, start, start + batch)
        counter.add(read, asked, start, new=True)
    found = estimate(counter, asked, (2 * batch, 3 * batch), batch, MODELS[3])
    return index, counter, found, ListCosts(asked, MODELS[3])


def test_tables_of_benefits_equal_sums_over_the_candidates() -> None:
    lists = max((drawn_sets(seed, True, False) for seed in range(30)), key=lambda one: len(one))
    _, counter, found, prices = running(lists, 2)
    assert len(found.rows) > 3
    assert (counter.partial[found.rows] <= found.bound).all()
    benefits, gone = Benefits(found, prices, (4, 6)), {1, 2}
    for place in gone:
        benefits.forget(place)
    rest = [place for place in range(len(found.rows)) if place not in gone]
    for kth in range(1, int(found.bound.max()) + 1):
        # Candidates out of reach are no part of what lists save.
        lists_save = sum(
            found.cost[p] if found.next_bound[p] < kth else found.saved[p]
            for p in rest
            if found.bound[p] >= kth
        )
        assert benefits.lists(kth) == pytest.approx(lists_save)
        then = kth + 1
        fallen = sum(found.cost[p] for p in rest if kth <= found.bound[p] < then)
        # Lists that were read already are not saved again.
        span = [max(4, int(prices.needed[overlap])) for overlap in (then, kth)]
        saved = prices.until[span[1]] - prices.until[span[0]]
        assert benefits.probe(kth, then) == pytest.approx(fallen + saved)


def test_candidates_that_were_read_or_dropped_do_not_come_back() -> None:
    lists = [[0, 1, 2, 3, 4, 5], [0, 1], [0, 2, 3, 4, 5], [5]]
    index = sets_of(lists)
    for batch in BATCHES:
        found = Josie(index, MODELS[1], batch).search(np.arange(6), 2)
        assert sorted(found.sets.tolist()) == [0, 2]


def test_costs_are_measured_and_never_negative() -> None:
    for lists in (drawn_sets(5, True, False), [[0]], [[], []]):
        costs = fit(sets_of(lists))
        assert all(value >= 0 for value in vars(costs).values())
        longer = costs.lists(np.array([1, 10, 100]))
        assert (np.diff(longer) >= 0).all()
        assert costs.sets(np.array([0, -2])).tolist() == [0, 0]


def test_a_searcher_tells_what_the_last_query_read(make_lake: MakeLake) -> None:
    lake = make_lake([Column(["a", "b"], "x", "t"), Column(["b", "c"], "y", "u")])
    searcher = josie(lake.context(), "equi", None)
    searcher.search(Column(["a", "b", "q"]), SearchOptions(3))
    assert vars(searcher.reading) == {"lists": 2, "postings": 3, "sets": 0, "tokens": 0}
    searcher.search(Column(["q"]), SearchOptions(3))
    assert searcher.reading.lists == 0
    assert all(one.index.nbytes > 0 for one in searcher.lakes)
