"""What an encoder is trained and validated with: columns, views, joinability, spellings."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepjoin import Column, DeepJoinError
from deepjoin.lab.training import prepare
from deepjoin.lab.training.batches import Joinability, View
from deepjoin.lab.training.columns import Spellings, TrainingColumns, gather, read_aliases
from deepjoin.lab.training.prepare import Validation, split
from deepjoin.lab.training.settings import PAPER, PRESETS, TrainSettings, preset, warmup_steps
from deepjoin.normalise.canonical import canonical
from deepjoin.normalise.cells import distinct_cells
from tests.conftest import MakeLake
from tests.support.definitions import equi_joinability

pytestmark = pytest.mark.slow

pytest.importorskip("scipy")

#: Spellings of few values, so that columns meet, and anything else a cell can be.
CELLS = st.sampled_from(["GE", "ge ", "IBM", "7", "7.0", "SAP", "Rome", "rome", "", " ", "\0"])
CELLS = CELLS | st.text(max_size=4)
COLUMNS = st.builds(
    Column,
    st.lists(CELLS, max_size=9),
    name=st.text(max_size=3),
    title=st.text(max_size=3),
    context=st.text(max_size=3),
)
LISTS = st.lists(COLUMNS, min_size=1, max_size=8)
SEEDS = st.integers(0, 99).map(np.random.default_rng)


def numbered(columns: list[Column], profile: str = "default") -> TrainingColumns:
    return TrainingColumns.of(columns, range(len(columns)), profile)


def lake_of(lists: list[list[str]], tables: list[int] | None = None) -> TrainingColumns:
    return TrainingColumns.of([Column(cells) for cells in lists], tables or range(len(lists)))


def same(one: TrainingColumns, other: TrainingColumns) -> bool:
    arrays = ("tables", "offsets", "values")
    return (
        one.words.to_pylist() == other.words.to_pylist()
        and one.cells.to_pylist() == other.cells.to_pylist()
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    )


@given(LISTS, st.sampled_from(["default", "basic"]))
def test_columns_are_their_distinct_cells(columns: list[Column], profile: str) -> None:
    training = numbered(columns, profile)
    assert len(training) == len(columns)
    numbers: dict[str, int] = {}
    for number, column in enumerate(columns):
        distinct, shown = distinct_cells(column.cells, profile), training.column(number)
        assert shown == Column(
            distinct.spellings, column.name, title=column.title, context=column.context
        )
        assert training.sizes[number] == len(distinct)
        for place, value in zip(training.places(number), distinct.values, strict=True):
            assert training.values[place] == numbers.setdefault(value, len(numbers))
    counts = Counter(v for one in columns for v in distinct_cells(one.cells, profile).values)
    assert training.frequency.tolist() == [counts[value] for value in numbers]


def test_parts_of_a_column_can_be_shown_without_its_words() -> None:
    training = numbered([Column(["x"]), Column(["a", "b", "c"], "name", title="t", context="c")])
    places = training.places(1)[[2, 0]]
    assert training.column(1, places) == Column(["c", "a"], "name", title="t", context="c")
    assert training.column(1, places, named=False) == Column(["c", "a"])


@given(LISTS, st.data())
def test_columns_taken_are_as_they_were(columns: list[Column], data: st.DataObject) -> None:
    training = numbered(columns)
    numbers = np.array(data.draw(st.lists(st.integers(0, len(columns) - 1), unique=True)), np.int64)
    taken = training.take(numbers)
    assert taken.tables.tolist() == numbers.tolist()
    for place, number in enumerate(numbers):
        assert taken.column(place) == training.column(number)
        before, after = training.places(number), taken.places(place)
        assert np.array_equal(taken.values[after], training.values[before])


@given(LISTS)
def test_columns_are_read_as_they_were_written(tmp_path: Path, columns: list[Column]) -> None:
    training = numbered(columns)
    training.write(tmp_path / "columns.arrow")
    again = TrainingColumns.read(tmp_path / "columns.arrow")
    assert same(again, training)
    assert again.values.dtype == again.offsets.dtype == np.int64


def test_torn_files_of_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "columns.arrow"
    numbered([Column(["a", "b"], "n"), Column(["b"])]).write(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DeepJoinError, match="columns.arrow, cannot be read: .* train again"):
            TrainingColumns.read(path)


@pytest.mark.parametrize(
    "table",
    [
        {"name": [""], "cells": [["a"]], "values": [[0]]},
        {"name": [""], "title": [""], "context": [""], "cells": [["a"]], "values": [[0]]},
        {name: [1] for name in ("name", "title", "context", "table", "cells", "values")},
        {name: [] for name in ("name", "title", "context", "table", "cells", "values")},
    ],
)
def test_files_of_something_else_are_no_columns(
    tmp_path: Path, table: dict[str, list[object]]
) -> None:
    content = pa.table(table)
    with (
        pa.OSFile(str(tmp_path / "other"), "wb") as sink,
        pa.ipc.new_file(sink, content.schema) as file,
    ):
        file.write_table(content)
    for name in ("other", "absent"):
        with pytest.raises(DeepJoinError, match=f"{name}, cannot be read: .* train again"):
            TrainingColumns.read(tmp_path / name)


NAMES = ["Rome", "Oslo", "Bern", "Riga", "Kyiv", "Lima", "Cairo"]


def test_the_text_columns_of_a_lake_are_taken(make_lake: MakeLake) -> None:
    lake = make_lake(
        [
            Column(NAMES[:4], "city", table="a"),
            Column(["1990", "1991", "1994"], "year", table="a"),
            Column([*NAMES[2:], "rome"], "town", table="b"),
            Column(NAMES, "gone", table="c"),
            Column(["1.5", "2.5"], "size", table="c"),
        ]
    )
    more = {"place": NAMES[1:5], "flag": ["yes", "no"], "code": ["c1", "c2"]}
    lake.add([Column(cells, name, table="d") for name, cells in more.items()])
    lake.remove("c")
    found = gather(lake, 100, 0)
    assert [(one.name, one.cells) for one in map(found.column, range(len(found)))] == [
        ("city", NAMES[:4]),
        ("town", [*NAMES[2:], "rome"]),
        ("place", NAMES[1:5]),
        ("code", ["c1", "c2"]),
    ]
    assert len(set(found.tables.tolist())) == 3
    assert found.tables[2] == found.tables[3]


def test_segments_have_tables_of_their_own(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepjoin.build.update.worth_merging", lambda sizes, removed: len(sizes))
    lake = make_lake([Column(NAMES, f"c{i}", table=f"t{i}") for i in range(4)])
    lake.add([Column(NAMES, f"d{i}", table=f"u{i}") for i in range(4)])
    lake.remove("t1", "u0")
    assert len(lake.index.segments) == 2
    assert len(set(gather(lake, 100, 0).tables.tolist())) == 6
    some = gather(lake, 4, 0)
    assert len(set(some.tables.tolist())) == len(some) == 4


def test_of_many_columns_some_are_drawn(make_lake: MakeLake) -> None:
    lake = make_lake([Column([f"a{i}", "b"], f"c{i}", table=f"t{i}") for i in range(20)])
    lake.add([Column([f"z{i}", "b"], f"d{i}", table=f"u{i}") for i in range(20)])
    some = gather(lake, 10, 3)
    assert len(some) == 10
    assert same(some, gather(lake, 10, 3))
    assert not same(some, gather(lake, 10, 4))
    every = gather(lake, 40, 3)
    cells = [every.column(number).cells for number in range(40)]
    assert all(some.column(number).cells in cells for number in range(10))
    drawn = Counter(name for seed in range(40) for name in gather(lake, 10, seed).words["name"])
    assert len(drawn) == 40


def test_values_are_compared_by_the_profile_of_the_lake(make_lake: MakeLake) -> None:
    columns = [Column([cell, "a b", "x"], table=cell) for cell in ("7 km", "7  km", "8")]
    assert len(gather(make_lake(columns), 9, 0).frequency) == 4
    assert len(gather(make_lake(columns, profile="basic"), 9, 0).frequency) == 5


def test_lakes_that_teach_nothing_are_refused(make_lake: MakeLake) -> None:
    columns = [Column(NAMES, "city", table=name) for name in "abc"]
    with pytest.raises(DeepJoinError, match="stores hashes instead of cells, .* `hash_only`"):
        gather(make_lake(columns, hash_only=True), 9, 0)
    with pytest.raises(DeepJoinError, match="has 2 text columns in 2 tables; .* Add tables"):
        gather(make_lake(columns[:2]), 9, 0)
    with pytest.raises(DeepJoinError, match="has 0 text columns in 0 tables"):
        gather(make_lake([Column(["1", "2"], table="a")]), 9, 0)


def random_view(columns: TrainingColumns, number: int, random: np.random.Generator) -> View:
    whole = View.whole(columns, number)
    return [
        whole,
        whole.shuffled(random),
        whole.cropped(random),
        whole.cropped(random).nameless(),
        whole.without(View.whole(columns, 0), columns),
    ][random.integers(5)]


@given(LISTS, SEEDS)
def test_joinability_is_that_of_the_definition(
    columns: list[Column], random: np.random.Generator
) -> None:
    training = numbered(columns)
    shown = [random_view(training, number, random) for number in range(len(columns))]
    shown = [shown[one] for one in random.permutation(len(shown))]
    values = [training.values[view.places] for view in shown]
    found = Joinability(len(training.frequency))(values, values[1:])
    cells = [training.column(view.column, view.places).cells for view in shown]
    right = [[equi_joinability(x, y) for y in cells[1:]] for x in cells]
    assert found.shape == (len(shown), len(shown) - 1)
    assert found.tolist() == np.array(right, np.float32).reshape(found.shape).tolist()


@given(LISTS, SEEDS, st.floats(0, 1))
def test_near_values_count_by_their_chances(
    columns: list[Column], random: np.random.Generator, share: float
) -> None:
    from scipy.sparse import csr_array

    training = numbered(columns)
    size = len(training.frequency)
    chances = random.random((size, size)) * (random.random((size, size)) < share)
    np.fill_diagonal(chances, 1)
    values = [training.values[training.places(number)] for number in range(len(columns))]
    near = csr_array(chances.astype(np.float32))
    found = Joinability(size, near)(values, values[::-1])
    for x, row in zip(values, found, strict=True):
        for y, joinability in zip(values[::-1], row, strict=True):
            counted = [min(1.0, sum(chances[one, other] for other in y)) for one in x]
            assert joinability == pytest.approx(np.mean(counted) if counted else 0, abs=1e-5)


@given(st.integers(1, 40), SEEDS)
def test_shuffles_and_crops_are_of_the_same_cells(size: int, random: np.random.Generator) -> None:
    columns = lake_of([["before"], [f"v{number}" for number in range(size)]])
    whole = View.whole(columns, 1)
    assert columns.column(1, whole.places) == columns.column(1)
    shuffled, cropped = whole.shuffled(random), whole.cropped(random)
    assert sorted(shuffled.places) == sorted(whole.places)
    assert len(set(cropped.places)) == len(cropped.places)
    assert set(cropped.places) <= set(whole.places)
    assert min(size, max(3, round(0.3 * size))) <= len(cropped.places) <= size
    assert whole.named and shuffled.named and not cropped.nameless().named
    assert np.array_equal(cropped.nameless().places, cropped.places)


def test_every_order_and_every_size_of_crops_comes_about() -> None:
    columns, random = lake_of([[f"v{number}" for number in range(5)]]), np.random.default_rng(0)
    whole = View.whole(columns, 0)
    orders = Counter(tuple(whole.shuffled(random).places) for _ in range(3000))
    assert len(orders) == 120
    crops = {tuple(whole.cropped(random).places) for _ in range(4000)}
    # Orders of three of five cells, of four, and of all.
    assert Counter(map(len, crops)) == {3: 60, 4: 120, 5: 120}


@given(LISTS)
def test_cells_that_match_can_be_removed(columns: list[Column]) -> None:
    training = numbered([Column(["GE", "7", "rome"]), *columns])
    other = View.whole(training, 0)
    for number in range(len(training)):
        whole = View.whole(training, number)
        rest = training.column(number, whole.without(other, training).places).cells
        matched = {"ge", "7", "rome"}
        kept = [cell for cell in training.column(number).cells if canonical(cell) not in matched]
        assert rest == (kept or training.column(number).cells[:1])


ALIASES = st.lists(st.tuples(CELLS, st.sampled_from(["GE", "e1", "e2", "Rome", ""])), max_size=12)


@given(LISTS, ALIASES)
def test_spellings_of_a_value_are_those_of_one_meaning(
    columns: list[Column], pairs: list[tuple[str, str]]
) -> None:
    training = numbered(columns)
    spellings = Spellings.of(training, pairs, "default")
    groups = [{s for s, m in pairs if m == one} | {one} for one in {m for _, m in pairs}]
    for value in range(len(training.frequency)):
        place = training.values.tolist().index(value)
        mine = canonical(training.cells[place].as_py())
        right = [
            other
            for group in groups
            for one in group
            for other in group
            if canonical(one) == mine and other != one
        ]
        found = spellings.numbers[spellings.offsets[value] : spellings.offsets[value + 1]]
        assert sorted(spellings.strings[one] for one in found) == sorted(set(right))


@given(LISTS, ALIASES, SEEDS, st.sampled_from([0.0, 0.5, 1.0]))
def test_cells_are_spelled_otherwise_where_that_is_known(
    columns: list[Column], pairs: list[tuple[str, str]], random: np.random.Generator, share: float
) -> None:
    training = numbered(columns)
    spellings = Spellings.of(training, pairs, "default")
    for number in range(len(columns)):
        view = View.whole(training, number).respelled(training, spellings, share, random)
        assert view.spelled is not None
        values = training.values[view.places]
        for value, drawn in zip(values, view.spelled, strict=True):
            known = spellings.numbers[spellings.offsets[value] : spellings.offsets[value + 1]]
            assert drawn in known or (drawn == -1 and (share < 1 or len(known) == 0))
            assert share > 0 or drawn == -1


def test_a_share_of_the_cells_is_spelled_otherwise() -> None:
    columns = lake_of([[f"v{number}" for number in range(4000)]])
    pairs = [(f"v{number}", f"w{number}") for number in range(2000)]
    spellings = Spellings.of(columns, pairs, "default")
    drawn = spellings.draw(columns.values, 0.2, np.random.default_rng(0))
    assert (drawn[2000:] == -1).all()
    assert 350 < (drawn >= 0).sum() < 450


@given(LISTS, ALIASES)
def test_spellings_are_read_as_they_were_written(
    tmp_path: Path, columns: list[Column], pairs: list[tuple[str, str]]
) -> None:
    spellings = Spellings.of(numbered(columns), pairs, "default")
    spellings.write(tmp_path / "spellings.npz")
    again = Spellings.read(tmp_path / "spellings.npz")
    assert again.strings == spellings.strings
    assert again.numbers.tolist() == spellings.numbers.tolist()
    assert again.offsets.tolist() == spellings.offsets.tolist()


def test_torn_files_of_spellings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "spellings.npz"
    Spellings.of(lake_of([["GE"]]), [("GE", "General Electric")], "default").write(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 11), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DeepJoinError, match="spellings.npz, cannot be read: .* train again"):
            Spellings.read(path)


def test_aliases_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "aliases.parquet"
    rows = {"entity": ["x", None, "", "7", "z"], "more": [1] * 5, "surface": [1, 2, 3, 4, None]}
    pq.write_table(pa.table(rows), path)
    assert read_aliases(path) == [("1", "x"), ("4", "7")]


def test_files_without_aliases_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"surface": ["a"]}), tmp_path / "half")
    pq.write_table(pa.table({"surface": [["a"]], "entity": ["b"]}), tmp_path / "lists")
    pq.write_table(pa.table({"surface": [b"\xff"], "entity": ["b"]}), tmp_path / "bytes")
    (tmp_path / "text").write_text("surface,entity\n")
    for name in ("half", "lists", "bytes", "text", "absent"):
        with pytest.raises(DeepJoinError, match=f"{name} cannot be read: .*'entity'.$") as caught:
            read_aliases(tmp_path / name)
        assert "\n" not in str(caught.value)


TABLES = st.lists(st.integers(0, 9), min_size=2, max_size=60).filter(lambda one: len({*one}) > 1)


@given(TABLES, st.integers(0, 99))
def test_no_table_is_both_trained_on_and_held_back(tables: list[int], seed: int) -> None:
    columns = lake_of([["a"]] * len(tables), tables)
    (training, held), again = split(columns, seed), split(columns, seed)
    assert sorted([*training, *held]) == list(range(len(tables)))
    assert not {*columns.tables[training]} & {*columns.tables[held]}
    smallest = min(Counter(tables).values())
    assert 0 < len(held) <= max(smallest, 0.2 * len(tables))
    assert len(training) > 0
    assert all(np.array_equal(*two) for two in zip((training, held), again, strict=True))


def test_a_tenth_is_held_back_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = lake_of([["a"]] * 1000)
    assert len(split(columns, 0)[1]) == 100
    assert not np.array_equal(split(columns, 0)[1], split(columns, 1)[1])
    monkeypatch.setattr(prepare, "_COLUMNS", 7)
    assert len(split(columns, 0)[1]) == 7


def shown_lake(size: int, random: np.random.Generator) -> TrainingColumns:
    lists = [[f"v{one}" for one in {*random.integers(0, 9, 3).tolist()}] for _ in range(size)]
    return lake_of(lists, random.integers(0, size, size).tolist())


@settings(max_examples=40)
@given(st.integers(2, 40), SEEDS, st.sampled_from([3, 1000]))
def test_precision_is_the_share_of_the_best_found(
    size: int, random: np.random.Generator, different: int
) -> None:
    columns = shown_lake(size, random)
    measured = Validation.of(columns, len(columns), Joinability(9), 0)
    cells = [columns.column(number).cells for number in range(size)]
    right = {
        x: [
            0.0 if columns.tables[x] == columns.tables[y] else equi_joinability(cells[x], cells[y])
            for y in range(size)
        ]
        for x in range(size)
    }
    assert {*measured.queries} == {x for x in range(size) if any(right[x])}
    scores = random.integers(0, different, (len(measured.queries), size)).astype(np.float32)
    shares = []
    for query, joinability, row in zip(measured.queries, measured.joinability, scores, strict=True):
        assert joinability.tolist() == np.float32(right[query]).tolist()
        k = min(10, sum(one > 0 for one in right[query]))
        others = [y for y in range(size) if columns.tables[y] != columns.tables[query]]
        best = sorted(others, key=lambda y: (-row[y], y))[:k]
        least = sorted(right[query])[-k]
        shares.append(sum(right[query][y] >= least for y in best) / k)
    assert measured.precision(scores) == pytest.approx(shares)


def test_perfect_scores_have_a_precision_of_one() -> None:
    columns = shown_lake(40, np.random.default_rng(0))
    measured = Validation.of(columns, len(columns), Joinability(9), 0)
    assert set(measured.precision(measured.joinability)) == {1.0}
    # However high a column of its own table is scored, a query never finds it.
    own = columns.tables[measured.queries][:, None] == columns.tables
    assert set(measured.precision(measured.joinability + own)) == {1.0}
    assert np.mean(measured.precision(-measured.joinability)) < 0.5


def test_many_queries_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "_QUERIES", 5)
    columns = shown_lake(60, np.random.default_rng(0))
    first, again, other = (
        Validation.of(columns, len(columns), Joinability(9), seed) for seed in (0, 0, 1)
    )
    assert len(first.queries) == len({*first.queries}) == 5
    assert np.array_equal(first.queries, again.queries)
    assert not np.array_equal(first.queries, other.queries)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"join": "fuzzy"}, "join is 'fuzzy'; it must be one of equi, semantic."),
        ({"metric": "dot"}, "metric is 'dot'; it must be one of cosine, euclidean."),
        ({"negatives": "none"}, "negatives is 'none'; it must be one of batch, removed, hard."),
        ({"target": "rank"}, "target is 'rank'; it must be one of partner, joinability."),
        ({"threshold": 0}, "threshold is 0; it must be from 0.01 to 1."),
        ({"tau": float("nan")}, "tau is nan; it must be from 0 to 1."),
        ({"columns": 3}, r"columns is 3; it must be from 4 to 1e\+09."),
        ({"pairs": 0}, "pairs is 0"),
        ({"shuffle": 1.5}, "shuffle is 1.5; it must be from 0 to 1."),
        ({"crops": -1}, "crops is -1"),
        ({"nameless": 2}, "nameless is 2"),
        ({"respelled": -0.1}, "respelled is -0.1"),
        ({"scale": 0}, "scale is 0"),
        ({"batch": 1}, "batch is 1; it must be from 2 to 65536."),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"warmup": -1}, "warmup is -1"),
        ({"weight_decay": 2}, "weight_decay is 2"),
        ({"dropout": 1}, "dropout is 1; it must be from 0 to 0.9."),
        ({"epochs": 0}, "epochs is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"validate": 0}, "validate is 0"),
        ({"patience": 0}, "patience is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"seed": -1}, "seed is -1; it must be from 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, object], text: str) -> None:
    for name in PRESETS:
        with pytest.raises(DeepJoinError, match=f"^{text}"):
            preset(name, **given)


def test_every_number_has_its_range() -> None:
    refused = {"join", "metric", "negatives", "target", "masked", "symmetric", "prompt", "recipe"}
    for field in fields(TrainSettings):
        if field.name not in refused:
            with pytest.raises(DeepJoinError, match=f"{field.name} is -7; it must be from"):
                preset("default", **{field.name: -7})


def test_presets_are_changed_by_what_is_given() -> None:
    assert preset("default") == TrainSettings()
    assert preset("paper", seed=3, tau=None, batch=None) == preset("paper", seed=3)
    assert preset("paper", masked=False).masked is False
    with pytest.raises(DeepJoinError, match="preset is 'fast'; it must be one of default, paper."):
        preset("fast")


def test_the_paper_is_followed_where_it_says() -> None:
    said = ("equi", 0.7, 0.3, "batch", "partner", False, "cosine", 32, 2e-5, 10_000, 0.01)
    names = ("join", "threshold", "shuffle", "negatives", "target", "symmetric", "metric", "batch")
    names += ("learning_rate", "warmup", "weight_decay")
    assert tuple(getattr(PAPER, name) for name in names) == said
    assert (PAPER.crops, PAPER.nameless, PAPER.respelled, PAPER.dropout) == (0, 0, 0, None)
    assert PAPER.masked is False, "known joinable pairs are noise that the model is robust against"
    assert preset("paper", join="semantic").shuffle == 0.2
    assert preset("paper", join="semantic", shuffle=0.4).shuffle == 0.4


def test_the_papers_warm_up_ends_within_a_shorter_run() -> None:
    assert warmup_steps(PAPER, 200_000) == 10_000, "as printed"
    assert [warmup_steps(PAPER, steps) for steps in (10_000, 1_000, 5)] == [1_005, 100, 1]
    assert warmup_steps(preset("paper", warmup=500), 600) == 500, "as given"
    assert warmup_steps(TrainSettings(), 600) == 60
