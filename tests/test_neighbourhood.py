"""The tables around a table, and the joins that lead from one to another, against brute force."""

from __future__ import annotations

from collections import deque
from itertools import combinations, pairwise, permutations
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.relating import neighbourhood as module
from deepjoin.relating.neighbourhood import (
    Walk,
    likeliest_paths,
    neighbourhood,
    path_chance,
    paths,
)
from tests.conftest import MakeLake
from tests.support.graph_lakes import (
    SHARES,
    TABLES,
    Tables,
    brute_edges,
    columns_of,
    frame_of,
    told,
    turned,
)
from tests.support.options import index_options


def several_segments(tables: Tables, folder: Path) -> Lake:
    """Make a lake in three steps, with a table that left again."""
    options = index_options(min_distinct=1, cells="none")
    lake = deepjoin.index({"gone": {"c": [*"abcdefghij"]}}, folder / "lake", **options)
    for part in (0, 1):
        some = {f"t{n}": frame_of(table) for n, table in enumerate(tables) if n % 2 == part}
        if some:
            lake.add(some)
    lake.remove("gone")
    return lake


def distances(edges: Any, start: str) -> dict[str, int]:
    found, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for one, _, other, _ in edges:
            if one == here and other not in found:
                found[other] = found[here] + 1
                queue.append(other)
    return found


def check_neighbourhood(lake: Lake, least: float, depth: int) -> None:
    """Compare the neighbourhood of every table with the edges of all pairs."""
    edges = brute_edges(lake, least)
    for table in lake.tables:
        found = neighbourhood(lake.index, table, depth, least)
        near = {one: at for one, at in distances(edges, table).items() if at <= depth}
        assert {node.table: node.distance for node in found.nodes} == near
        assert [node.distance for node in found.nodes] == sorted(near.values())
        shown = dict(map(told, found.edges))
        assert len(shown) == len(found.edges)
        assert shown.items() <= edges.items()
        within = {ends for ends in edges if ends[0] in near and ends[2] in near}
        assert within == {*shown, *map(turned, shown)}
        assert all(near[ends[0]] <= near[ends[2]] for ends in shown)
        assert not found.truncated


@pytest.mark.slow
@given(TABLES, SHARES, st.integers(0, 3))
@settings(max_examples=12)
def test_a_neighbourhood_is_that_of_all_pairs(
    tmp_path_factory: pytest.TempPathFactory, tables: Tables, least: float, depth: int
) -> None:
    lake = several_segments(tables, tmp_path_factory.mktemp("lake"))
    check_neighbourhood(lake, least, depth)
    found = {table: neighbourhood(lake.index, table, depth, least) for table in lake.tables}
    lake.graph(0.2)
    assert found == {table: neighbourhood(lake.index, table, depth, least) for table in lake.tables}


@pytest.mark.slow
@given(TABLES, SHARES)
@settings(max_examples=25)
def test_segments_and_repeated_names_do_not_matter(
    make_lake: MakeLake, tables: Tables, least: float
) -> None:
    check_neighbourhood(make_lake(columns_of(tables)), least, 2)


def all_paths(
    best: dict[tuple[str, str], float], start: str, end: str, longest: int
) -> list[tuple[str, ...]]:
    """List the simple paths between two tables, the likeliest first."""
    inner = {ends[0] for ends in best} - {start, end}
    ways = (
        (start, *between, end)
        for length in range(longest)
        for between in permutations(inner, length)
    )
    found = []
    for way in ways:
        hops = [best.get(hop) for hop in pairwise(way)]
        if None not in hops:
            found.append((-prod(hops), len(way), way))  # type: ignore[arg-type]
    return [way for *_, way in sorted(found)]


@pytest.mark.slow
@given(TABLES, SHARES, st.integers(1, 4))
@settings(max_examples=25)
def test_paths_are_the_best_of_all(
    make_lake: MakeLake, tables: Tables, least: float, longest: int
) -> None:
    lake = make_lake(columns_of(tables))
    edges = brute_edges(lake, least)
    walk, chances = Walk(lake.index, least), {}
    for table in lake.tables:
        near = walk.near(walk.number(table))
        chances |= {(table, walk.name(other)): chance for other, chance in near.items()}
    assert chances.keys() == {(ends[0], ends[2]) for ends in edges}
    assert all(chance == chances[ends[::-1]] for ends, chance in chances.items())
    for start, end in [*combinations(lake.tables, 2)][:6]:
        found = paths(lake.index, start, end, least, longest)
        ways = [(path[0].a.table, *(edge.b.table for edge in path)) for path in found.paths]
        every = all_paths(chances, start, end, longest)
        assert len(ways) == min(5, len(every))
        assert set(ways) <= set(every[:20])
        assert found.complete
        assert list(map(path_chance, found.paths)) == pytest.approx(found.probabilities, abs=1e-4)
        steps = [round(chance, 1) for chance in map(path_chance, found.paths)]
        assert steps == sorted(steps, reverse=True)
        for one, other in pairwise(zip(steps, found.fan_outs, strict=True)):
            assert one[0] > other[0] or one[1] <= other[1]
        for path in found.paths:
            assert dict(map(told, path)).items() <= edges.items()
            assert all(one.b.table == other.a.table for one, other in pairwise(path))
            for edge in path:
                best = chances[edge.a.table, edge.b.table]
                assert edge.probability == pytest.approx(best, abs=1e-4)


NODES = st.integers(0, 6)


@given(
    st.dictionaries(st.tuples(NODES, NODES), st.sampled_from([0.5, 0.7, 1.0])), st.integers(1, 6)
)
def test_likeliest_paths_of_any_graph(drawn: dict[tuple[int, int], float], longest: int) -> None:
    graph: dict[int, dict[int, float]] = {node: {} for node in range(7)}
    edges = {}
    for (one, other), strength in drawn.items():
        if one < other:
            graph[one][other] = graph[other][one] = strength
            for way in ((one, other), (other, one)):
                edges[str(way[0]), str(way[1])] = strength
    found, whole = likeliest_paths(graph.__getitem__, str, 0, 6, longest, 5)
    assert [tuple(map(str, path)) for path in found] == all_paths(edges, "0", "6", longest)[:5]
    assert whole


def test_generic_keys_join_nothing(make_lake: MakeLake) -> None:
    runs = [str(number) for number in range(1, 30)]
    flags = ["yes", "no"]
    lake = make_lake(
        [
            Column(cells, name=name, table=table)
            for table in ("orders", "people")
            for name, cells in (("id", runs), ("active", flags), ("year", ["1999", "2001"]))
        ]
    )
    assert neighbourhood(lake.index, "orders").to_dict() == {
        "nodes": [{"table": "orders", "rows": 29, "columns": 3, "distance": 0}],
        "edges": [],
        "truncated": False,
    }
    assert paths(lake.index, "orders", "people").paths == ()


def test_what_is_shown_of_an_edge(make_lake: MakeLake) -> None:
    lake = make_lake(
        [
            Column(["Oslo", "Rome", "Lima", "Bern"], name="city", table="cities"),
            Column(["oslo", "rome", "rome"], name="town", table="trips"),
        ]
    )
    found = neighbourhood(lake.index, "trips").to_dict()
    assert 0 < found["edges"][0].pop("probability") < 1
    assert found["edges"] == [
        {
            "a": {"table": "trips", "column": "town", "column_id": "trips#0"},
            "b": {"table": "cities", "column": "city", "column_id": "cities#0"},
            "joinability": 1.0,
            "reverse": 0.5,
            "matched": 2,
            "cardinality": "n:1",
        },
    ]
    there = paths(lake.index, "trips", "cities").to_dict()
    assert there["fan_outs"] == [1]
    assert there["probabilities"] == [there["paths"][0][0].pop("probability")]
    assert there["paths"] == [found["edges"]] and there["searched"] == 2 and there["complete"]


@pytest.mark.slow
def test_a_saved_graph_is_read_while_it_is_that_of_the_lake(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = star(make_lake, 6)
    lake.graph(0.5)
    fresh = star(make_lake, 6)
    monkeypatch.setattr(module, "COLUMNS", 0)  # so that edges can be read but not found
    found = neighbourhood(lake.index, "t0")
    assert len(found.nodes) == 6
    assert not found.truncated
    assert paths(lake.index, "t0", "t5", longest=1).paths
    assert neighbourhood(fresh.index, "t0").truncated
    assert neighbourhood(lake.index, "t0", min_joinability=0.4).truncated
    lake.add({"t9": {"k": [*"abcd"]}})
    assert neighbourhood(lake.index, "t0").truncated


def star(make_lake: MakeLake, size: int) -> Lake:
    shared = [*"abcdefgh"]
    tables = [
        Column(shared[: 4 + number % 5], name="k", table=f"t{number}") for number in range(size)
    ]
    return make_lake(tables)


def test_a_limit_is_reported(make_lake: MakeLake) -> None:
    lake = star(make_lake, 12)
    found = neighbourhood(lake.index, "t0", limit=5)
    tables = [node.table for node in found.nodes]
    whole = neighbourhood(lake.index, "t0", limit=12)
    chances = {edge.b.table: edge.probability for edge in whole.edges if edge.a.table == "t0"}
    assert tables[0] == "t0" and len(tables) == 5
    least = min(chances[table] for table in tables[1:])
    assert all(chances[one.table] <= least + 0.01 for one in whole.nodes if one.table not in tables)
    assert found.truncated
    assert not neighbourhood(lake.index, "t0", limit=12).truncated


def test_work_is_bounded_and_said_to_be(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = star(make_lake, 12)
    monkeypatch.setattr(module, "COLUMNS", 3)
    assert neighbourhood(lake.index, "t0", depth=3).truncated
    found = paths(lake.index, "t0", "t1", longest=4)
    assert found.paths[0][0].b.table == "t1"
    assert found.searched <= 3
    monkeypatch.setattr(module, "COLUMNS", 256)
    monkeypatch.setattr(module, "POSTINGS", 3)
    found = paths(lake.index, "t0", "t1")
    assert (found.paths, found.searched, found.complete) == ((), 0, False)


def test_saved_edges_have_a_bound_of_their_own(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = star(make_lake, 12)
    lake.graph(0.5)
    assert not neighbourhood(lake.index, "t0", limit=12).truncated
    monkeypatch.setattr(module, "SAVED_EDGES", 3)
    found = neighbourhood(lake.index, "t0", limit=12)
    assert (len(found.nodes), found.truncated) == (1, True)


def test_edges_are_bounded_nearest_first(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EDGES", 2)
    found = neighbourhood(star(make_lake, 12).index, "t0", limit=12)
    assert found.truncated
    assert len(found.edges) == 24
    assert [edge.a.table for edge in found.edges[:11]] == ["t0"] * 11


def test_a_lake_of_hashes_has_the_same_graph(make_lake: MakeLake) -> None:
    tables = [[[*"abcde"], [*"fgh"]], [[*"abc"]], [[*"ghij"]]]
    plain, hidden = (make_lake(columns_of(tables), hash_only=on) for on in (False, True))
    assert neighbourhood(plain.index, "t0") == neighbourhood(hidden.index, "t0")
    assert paths(plain.index, "t1", "t2") == paths(hidden.index, "t1", "t2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_joinability": 0}, "min_joinability is 0; it must be above 0 and at most 1"),
        ({"min_joinability": 1.5}, "min_joinability is 1.5; it must be above 0"),
        ({"depth": -1}, "depth is -1; it must be a whole number >= 0."),
        ({"limit": 0}, "limit is 0; it must be a whole number >= 1."),
        ({"table": "t7"}, "No table 't7' in .*Tables: t0, t1"),
    ],
)
def test_what_cannot_be_asked(make_lake: MakeLake, options: Any, text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        neighbourhood(star(make_lake, 2).index, **{"table": "t0", **options})


def test_what_no_path_can_be(make_lake: MakeLake) -> None:
    lake = star(make_lake, 2)
    with pytest.raises(DeepJoinError, match="longest is 0; it must be a whole number >= 1."):
        paths(lake.index, "t0", "t1", longest=0)
    with pytest.raises(DeepJoinError, match="No table 'x' in "):
        paths(lake.index, "t0", "x")
    nothing = {"paths": [], "probabilities": [], "fan_outs": [], "searched": 0, "complete": True}
    assert paths(lake.index, "t0", "t0").to_dict() == nothing
