"""The graph of a lake: all its joins, against brute force, kept and brought up to date."""

from __future__ import annotations

import fcntl
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import deepjoin
from deepjoin import Column, DeepJoinError, Lake
from deepjoin.relating import neighbourhood as neighbouring
from deepjoin.relating import prefix_filter, self_join
from deepjoin.relating.graph import JoinGraph
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

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TABLES),
        st.tuples(st.just("remove"), st.integers(0, 7)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("graph"), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(params=["at once", "in small blocks"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join everything at once, or a few cells at a time."""
    if request.param == "in small blocks":
        monkeypatch.setattr(self_join, "WORK", 3)
        monkeypatch.setattr(prefix_filter, "WORK", 3)
        monkeypatch.setattr(self_join, "_CELLS", 5)


def check(graph: JoinGraph, lake: Lake, least: float) -> None:
    """Compare a graph with all pairs, each once, the smaller column first."""
    edges = [told(edge) for edge in graph]
    shown = dict(edges)
    assert len(shown) == len(edges) == len(graph)
    expected = brute_edges(lake, least)
    assert shown.items() <= expected.items()
    assert {*shown, *map(turned, shown)} == expected.keys()
    for ends, (joinability, reverse, _) in edges:
        assert (-joinability, ends[:2]) < (-reverse, ends[2:])


def options(**more: Any) -> dict[str, Any]:
    return {"settings": deepjoin.Settings(min_distinct=1, **more), "vectors": {"cells": "none"}}


@pytest.mark.slow
@given(tables=TABLES, least=SHARES)
@settings(max_examples=20)
@pytest.mark.usefixtures("block")
def test_a_graph_has_all_pairs_that_join(make_lake: MakeLake, tables: Tables, least: float) -> None:
    lake = make_lake(columns_of(tables))
    check(lake.graph(least), lake, least)


@pytest.mark.slow
@given(tables=TABLES, least=SHARES)
@settings(max_examples=6)
@pytest.mark.usefixtures("block")
def test_segments_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, tables: Tables, least: float
) -> None:
    folder = tmp_path_factory.mktemp("lake") / "index"
    gone = {"gone": {"c": [*"abcdefghij"]}}
    with never_merging():
        lake = deepjoin.index(gone, folder, **options())
        parts = [{f"t{n}": frame_of(table) for n, table in enumerate(tables) if n % 3 == part}
                 for part in range(3)]  # fmt: skip
        for part in filter(None, parts):
            lake.add(part)
        lake.remove("gone")
    assert len(lake.index.segments) == 1 + min(3, len(tables))
    check(lake.graph(least), lake, least)


@pytest.mark.slow
@pytest.mark.parametrize("work", [1 << 21, 1 << 9])
def test_columns_of_all_sizes(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, work: int
) -> None:
    """Frequent values, rare ones, copies, and columns from one value to thousands."""
    for module in (self_join, prefix_filter):
        monkeypatch.setattr(module, "WORK", work)
    random = np.random.default_rng(work)
    sets = [random.zipf(1.3, size) % 5000 for size in random.integers(1, 60, 40)]
    sets += [random.choice(5000, size, False) for size in (300, 1100, 2500, 4000)]
    sets += [random.permutation(one)[: 1 + 2 * len(one) // 3] for one in sets]
    columns = [
        Column([f"v{value}" for value in one.tolist()], "k", f"t{number:02}")
        for number, one in enumerate(sets)
    ]
    held = np.zeros((len(sets), 5000), np.int64)
    for number, one in enumerate(sets):
        held[number, one] = 1
    shared, sizes = held @ held.T, held.sum(axis=1)
    graph = make_lake(columns).graph(0.6)
    found = {(edge.a.table, edge.b.table): edge.matched for edge in graph}
    expected = {
        (f"t{a:02}", f"t{b:02}"): shared[a, b]
        for a, b in np.argwhere(shared / sizes[:, None] >= 0.6).tolist()
        if (sizes[a], a) < (sizes[b], b)
    }
    assert found == expected
    assert len(found) > 100


def never_merging() -> Any:
    return mock.patch("deepjoin.build.update.worth_merging", lambda sizes, removed: len(sizes))


@pytest.mark.slow
@given(steps=STEPS, least=SHARES, merging=st.booleans())
@settings(max_examples=15)
def test_many_changes_and_a_graph_are_one_graph_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, least: float, merging: bool
) -> None:
    folder = tmp_path_factory.mktemp("lake") / "index"
    with nullcontext() if merging else never_merging():
        lake = deepjoin.index({"first": {"c": [*"abc"]}}, folder, **options())
        for kind, what in steps:
            step(lake, kind, what, least)
        after = lake.graph(least)
        check(after, lake, least)
        scratch = lake.graph(least, save=False, rebuild=True)
        assert list(map(told, after)) == list(map(told, scratch))
        again = lake.graph(least)
        assert (again.work.joined, len(again)) == (0, len(after))


def step(lake: Lake, kind: str, what: Any, least: float) -> None:
    """Change a lake, or join it as it is."""
    if kind == "add":
        lake.add({f"t{number}": frame_of(table) for number, table in enumerate(what)})
    elif kind == "remove" and f"t{what}" in lake:
        lake.remove(f"t{what}")
    elif kind == "compact":
        lake.compact()
    elif kind == "graph":
        lake.graph(least)


@pytest.mark.slow
def test_only_what_changed_is_joined(tmp_path: Path) -> None:
    tables = {f"t{number}": {"k": [*"abcdef"[: 3 + number % 4]]} for number in range(9)}
    lake = deepjoin.index(tables, tmp_path / "index", **options())
    assert lake.graph(0.5).work.joined == 9
    lake.add({"t9": {"k": [*"cdefg"]}})
    lake.remove("t3")
    changed = lake.graph(0.5)
    assert (changed.work.columns, changed.work.joined) == (9, 1)
    lake.compact()
    assert lake.graph(0.5).work.joined == 0
    lake.add({"t1": {"k": [*"abcx"]}})  # the same name and place, another cell
    assert lake.graph(0.5).work.joined == 1
    check(lake.graph(0.5), lake, 0.5)


def test_a_lower_threshold_has_the_edges_of_a_higher_one(tmp_path: Path) -> None:
    tables = {f"t{number}": {"k": [*"abcdefghij"[number:]]} for number in range(6)}
    lake = deepjoin.index(tables, tmp_path / "index", **options())
    lake.graph(0.2)
    high = lake.graph(0.9)
    assert high.work.joined == 0
    check(high, lake, 0.9)
    lake.add({"t9": {"k": [*"cdefg"]}})
    check(lake.graph(0.9), lake, 0.9)
    low = lake.graph(0.2)
    assert low.work.joined == 0
    check(low, lake, 0.2)
    assert lake.graph(0.1).work.joined == 7


@pytest.mark.slow
def test_a_value_in_every_column_is_not_looked_up(make_lake: MakeLake) -> None:
    columns = [
        Column(["hub", *(f"v{number}-{cell}" for cell in range(4))], "k", f"t{number}")
        for number in range(200)
    ]
    graph = make_lake(columns).graph(0.5)
    assert len(graph) == 0
    assert graph.work.candidates == 0
    assert graph.work.postings == 200 * 3  # of each column, its own three rarest values


def test_hubs_alone_join_for_what_they_are(make_lake: MakeLake) -> None:
    columns = [Column([*"abcd", f"own {number}"], "k", f"t{number}") for number in range(30)]
    lake = make_lake(columns)
    graph = lake.graph(0.8)
    assert len(graph) == 30 * 29 // 2
    check(graph, lake, 0.8)


def test_most_keeps_the_best_and_counts_the_rest(make_lake: MakeLake) -> None:
    columns = [Column([*"abcdefgh"[: 4 + number]], "k", f"t{number}") for number in range(5)]
    lake = make_lake(columns)
    graph = lake.graph(0.5, most=2)
    assert not graph.saved
    assert not (lake.path / "graph").exists()
    kept = [(edge.a.table, edge.b.table) for edge in graph]
    assert kept == [("t0", "t1"), ("t0", "t2"), ("t1", "t2"), ("t1", "t3"), ("t2", "t3"),
                    ("t2", "t4"), ("t3", "t4")]  # fmt: skip
    assert graph.work.left_out == 10 - 7
    assert len(lake.graph(0.5)) == 10


@pytest.mark.slow
def test_a_graph_that_is_not_saved_uses_a_saved_one(make_lake: MakeLake) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    assert lake.graph(save=False).work.joined == 2
    assert not (lake.path / "graph").exists()
    lake.graph()
    lake.add({"t5": {"c": [*"bcd"]}})
    before = contents(lake.path / "graph")
    apart = lake.graph(save=False)
    assert apart.work.joined == 1
    check(apart, lake, 0.7)
    assert contents(lake.path / "graph") == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_index_commands_leave_the_graph_alone(tmp_path: Path, lake_folder: Path) -> None:
    lake = deepjoin.index(
        lake_folder, settings=deepjoin.Settings(min_distinct=1), vectors={"cells": "none"}
    )
    lake.graph()
    saved = contents(lake.path / "graph")
    assert saved
    lake.compact()
    lake.refresh()
    deepjoin.index(lake_folder)
    assert lake.check()
    assert not lake.check().notes
    assert contents(lake.path / "graph") == saved
    deepjoin.index(lake_folder, build=deepjoin.BuildSettings(rebuild=True))
    assert contents(lake.path / "graph") == saved
    assert lake.graph().saved


@pytest.mark.slow
@pytest.mark.parametrize("name", ["b.npy", "fingerprints.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_graph_is_reported_and_made_anew(
    make_lake: MakeLake, name: str, damage: str
) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]], [[*"bcde"]]]))
    lake.graph(0.5)
    (path,) = (lake.path / "graph").rglob(name)
    content = bytearray(path.read_bytes())
    content[-8] ^= 0x55
    path.write_bytes(content[:-1] if damage == "cut" else content)
    (note,) = lake.check().notes
    assert "The saved graph is damaged" in note
    assert lake.check()
    graph = lake.graph(0.5)
    assert graph.work.joined == 3
    check(graph, lake, 0.5)
    assert not lake.check().notes


def test_a_newer_graph_is_replaced(make_lake: MakeLake) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    lake.graph(0.5)
    path = lake.path / "graph" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    assert lake.graph(0.5).work.joined == 2


def test_an_interrupted_graph_leaves_the_old_one(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    lake.graph(0.5)
    before = contents(lake.path / "graph")
    lake.add({"t5": {"c": [*"bcd"]}})

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.graph(0.5, progress=stop)
    assert contents(lake.path / "graph") == before
    with pytest.raises(KeyboardInterrupt):
        lake.graph(0.5, save=False, progress=stop)
    left = lake.path / "graph" / "writing-left"
    left.mkdir()
    check(lake.graph(0.5), lake, 0.5)
    assert not left.exists()


def test_a_full_disk_is_one_line(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deepjoin.relating.edges.EdgeListWriter.append", full)
    for save in (True, False):
        with pytest.raises(DeepJoinError, match="No space left on the disk of "):
            lake.graph(save=save)
    monkeypatch.undo()
    monkeypatch.setattr("deepjoin.relating.output.EdgeRows.batches", full)
    with pytest.raises(
        DeepJoinError, match="Cannot write .*e.csv: No space left on device. Choose"
    ):
        lake.graph().write(lake.path.parent / "e.csv")
    assert not (lake.path.parent / "e.csv").exists()


@pytest.mark.slow
def test_only_one_writes_a_graph(make_lake: MakeLake) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    lake.graph()
    lake.add({"t5": {"c": [*"bcd"]}})
    with (lake.path / "graph" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DeepJoinError, match="graph of .* is being written by another process"):
            lake.graph()
    assert lake.graph().work.joined == 1


def test_a_graph_needs_a_place(make_lake: MakeLake) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    (lake.path / "graph").write_text("something else")
    with pytest.raises(DeepJoinError, match="Cannot keep the graph in .*: File exists. Leave it"):
        lake.graph()
    assert len(lake.graph(save=False)) == 1


def test_a_folder_of_that_name_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "out" / "graph" / "0123456789abcdef").mkdir(parents=True)
    with pytest.raises(DeepJoinError, match="holds something else than an index"):
        deepjoin.index({"t": {"c": ["a"]}}, tmp_path / "out")


def test_graphs_move_with_their_index(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake(columns_of([[[*"abcd"]], [[*"abc"]]]))
    lake.graph(0.5)
    shutil.move(lake.path, tmp_path / "moved")
    moved = deepjoin.open(tmp_path / "moved")
    assert moved.graph(0.5).work.joined == 0


@pytest.fixture
def towns(make_lake: MakeLake) -> Lake:
    return make_lake(
        [
            Column(["Oslo", "Rome", "Lima", "Bern"], name="city, or town", table="c\x07<&>.csv"),
            Column(["oslo", "rome", "rome"], name="t\nown", table="trips"),
            Column(["oslo", "rome", "x"], name="z", table="others"),
        ]
    )


def rows_of(graph: JoinGraph) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = graph.to_arrow().to_pylist()
    return rows


def test_edges_as_csv_and_parquet(towns: Lake, tmp_path: Path) -> None:
    graph = towns.graph(0.5)
    assert graph.write(tmp_path / "edges.csv") == 3
    graph.write(tmp_path / "edges.parquet")
    read = csv.ParseOptions(newlines_in_values=True)
    table = csv.read_csv(tmp_path / "edges.csv", parse_options=read)
    assert table.to_pylist() == rows_of(graph)
    assert pq.read_table(tmp_path / "edges.parquet").to_pylist() == rows_of(graph)
    assert rows_of(graph)[1] == {
        "a_table": "trips",
        "a_column": "t\nown",
        "b_table": "c\x07<&>.csv",
        "b_column": "city, or town",
        "joinability": 1.0,
        "reverse": 0.5,
        "matched": 2,
        "a_size": 2,
        "b_size": 4,
        "cardinality": "n:1",
        "a_id": "trips#0",
        "b_id": "c\x07<&>.csv#0",
        "probability": rows_of(graph)[1]["probability"],
    }
    assert all(0 < row["probability"] < 1 for row in rows_of(graph))


def test_edges_as_json(towns: Lake, tmp_path: Path) -> None:
    graph = towns.graph(0.5)
    graph.write(tmp_path / "edges.json")
    read = json.loads((tmp_path / "edges.json").read_text("utf-8"))
    assert read == [edge.to_dict() for edge in graph]


def test_edges_as_graphml(towns: Lake, tmp_path: Path) -> None:
    towns.graph(0.5).write(tmp_path / "edges.graphml")
    root = ElementTree.parse(tmp_path / "edges.graphml").getroot()
    space = "{http://graphml.graphdrawing.org/xmlns}"
    nodes = {node.get("id"): node[0].text for node in root.iter(f"{space}node")}
    assert sorted(map(str, nodes.values())) == ["c?<&>.csv", "others", "trips"]
    edges = list(root.iter(f"{space}edge"))
    assert len(edges) == 3
    first = {str(data.get("key")): data.text for data in edges[1]}
    assert (nodes[edges[1].get("source")], nodes[edges[1].get("target")]) == ("trips", "c?<&>.csv")
    assert (first["a_column"], first["matched"], first["cardinality"]) == ("t\nown", "2", "n:1")


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "graphml"])
def test_a_graph_without_edges(make_lake: MakeLake, tmp_path: Path, ending: str) -> None:
    graph = make_lake(columns_of([[["a"]], [["b"]]])).graph()
    assert graph.write(tmp_path / f"edges.{ending}") == 0
    assert (tmp_path / f"edges.{ending}").stat().st_size > 0
    assert (len(graph), list(graph), graph.to_arrow().num_rows) == (0, [], 0)
    if ending == "json":
        assert json.loads((tmp_path / "edges.json").read_text()) == []


def test_a_graph_sums_itself_up(towns: Lake) -> None:
    said = towns.graph(0.5).to_dict()
    assert said.pop("seconds") >= 0
    assert said == {
        "min_joinability": 0.5,
        "least": 0.0,
        "edges": 3,
        "columns": 3,
        "tables": 3,
        "saved": True,
        "work": {"columns": 3, "joined": 3, "left_out": 0, "postings": 15, "candidates": 3},
    }


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"min_joinability": 0}, "min_joinability is 0; it must be above 0 and at most 1"),
        ({"most": 0}, "most is 0; it must be at least 1, or left out."),
    ],
)
def test_what_cannot_be_asked(towns: Lake, asked: Any, text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        towns.graph(**asked)


def test_what_cannot_be_written(towns: Lake, tmp_path: Path) -> None:
    graph = towns.graph()
    with pytest.raises(DeepJoinError, match="Cannot write e.txt: its ending must be one of .csv, "):
        graph.write(tmp_path / "e.txt")
    with pytest.raises(DeepJoinError, match="Cannot write .*: No such file or directory. Choose"):
        graph.write(tmp_path / "no" / "e.csv")


def test_values_of_one_hash_are_distinguished(tmp_path: Path) -> None:
    def same(values: Any) -> Any:
        return np.array([7 for _ in values], np.uint64)

    with (
        mock.patch("deepjoin.store.values.chunk.hash_array", same),
        mock.patch("deepjoin.store.values.index.hash_values", same),
        never_merging(),
    ):
        lake = deepjoin.index({"t0": {"c": [*"abc"]}}, tmp_path / "index", **options())
        lake.add({"t1": {"c": [*"bcd"]}})
        lake.add({"t2": {"c": [*"xyz"]}})
        check(lake.graph(0.5), lake, 0.5)


def test_edges_have_the_chance_that_the_map_has(tmp_path: Path) -> None:
    cities = ["Oslo", "Rome", "Lima", "Bern", "Kiev", "Pau"]
    tables = {
        "towns": {"town": cities, "mayor": ["a", "b", "c", "d", "e", "f"]},
        "trips": {"town": cities[:5] * 2},
        "crews": {"letter": ["a", "b", "c", "d", "e"] * 2},
    }
    lake = deepjoin.index(tables, tmp_path / "lake", vectors={"cells": "none"})
    graph = lake.graph(0.5)
    edges = {(edge.a.column, edge.b.column): edge.probability for edge in graph}
    assert edges.keys() == {("town", "town"), ("letter", "mayor")}
    assert edges["town", "town"] > edges["letter", "mayor"]
    walked = neighbouring.neighbourhood(lake.index, "towns", 1, 0.5)
    for edge in walked.edges:
        ends = (edge.a.column, edge.b.column)
        known = edges.get(ends, edges.get(ends[::-1]))
        assert edge.probability == pytest.approx(known, abs=1e-4)
    assert len(walked.edges) == 2


def test_unlikely_edges_can_be_left_out(tmp_path: Path) -> None:
    tables = {
        "towns": {"town": ["Oslo", "Rome", "Lima", "Bern", "Kiev", "Pau"]},
        "trips": {"town": ["Oslo", "Rome", "Lima", "Bern", "Kiev"] * 2},
        "pupils": {"name": ["Rome", "Lima", "Bern", "Kiev", "Pau"]},
    }
    lake = deepjoin.index(tables, tmp_path / "lake", vectors={"cells": "none"})
    chances = sorted(edge.probability for edge in lake.graph(0.5))
    assert len(chances) == 3
    least = chances[1] - 1e-4  # what is shown is rounded
    graph = lake.graph(0.5, least=least)
    assert sorted(edge.probability for edge in graph) == chances[1:]
    assert (len(graph), graph.least, graph.to_dict()["least"]) == (2, least, least)
    # What people say counts at once, and no graph is made again for it.
    lake.reject(("trips", "town"), ("towns", "town"))
    lake.accept(("pupils", "name"), ("towns", "town"))
    again = deepjoin.open(lake.path).graph(0.5)
    assert again.work.joined == 0
    said = {(edge.a.table, edge.b.table): edge.probability for edge in again}
    assert said["trips", "towns"] == 0
    assert said["pupils", "towns"] == 1
    assert all("probability" in edge.to_dict() for edge in again if edge.a.table != "trips")
    with pytest.raises(deepjoin.DeepJoinError, match="`least` is 2; it must be a probability from"):
        lake.graph(0.5, least=2)
