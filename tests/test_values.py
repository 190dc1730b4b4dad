"""The value index equals what a dictionary of the cells says, however it was built."""

from __future__ import annotations

import mmap
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, arrays
from deepjoin.arrays import ArrayWriter, Strings, StringsWriter, distinct, load_array, narrow
from deepjoin.normalise import canonical as hashing
from deepjoin.normalise.canonical import CellType
from deepjoin.normalise.cells import distinct_cells
from deepjoin.settings import Settings
from deepjoin.store.values import builder as builder_module
from deepjoin.store.values.builder import ValueIndexBuilder
from deepjoin.store.values.index import ValueIndex
from deepjoin.store.values.profile import ColumnProfiles, Generic, generic_of
from deepjoin.store.values.spellings import respelled, spelled_as, stored_spellings

from .conftest import MakeLake

CELL = st.none() | st.text("aAbB1 é.0", max_size=3)
COLUMNS = st.lists(st.lists(CELL, max_size=12), max_size=8)
SETTINGS = Settings(min_distinct=1)


def build(
    folder: Path, columns: list[list[str | None]], memory: int = 1 << 30, piece: int = 4
) -> tuple[ValueIndex, ColumnProfiles]:
    """Build from pieces in round-robin order, as the batches of a table arrive."""
    builder = ValueIndexBuilder(folder / "scratch", SETTINGS, memory)
    for start in range(0, max(map(len, columns), default=0), piece):
        for number, cells in enumerate(columns):
            part = cells[start : start + piece]
            if part:
                builder.add(number, start, pa.array(part, pa.string()))
    everything = np.ones(len(columns), bool)
    profiles, *_ = builder.finish(folder / "index", len(columns), lambda p: everything)
    return ValueIndex(folder / "index"), profiles


def check(index: ValueIndex, columns: list[list[str | None]]) -> None:
    """Compare postings and forward index with plain dictionaries."""
    distinct = [distinct_cells(cells) for cells in columns]
    holders: dict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(distinct):
        for value in one.values:
            holders[value].append(number)
    names = sorted(holders)
    assert len(index.values) == len(names)
    numbers = index.look_up([*names, "not there", "\ud800"])
    assert numbers[-2:].tolist() == [-1, -1]
    assert [index.values[n] for n in numbers[:-2].tolist()] == names
    assert [index.postings(n).tolist() for n in numbers[:-2].tolist()] == [
        holders[name] for name in names
    ]
    assert index.frequency(numbers[:-2]).tolist() == [len(holders[name]) for name in names]
    for number, one in enumerate(distinct):
        start, stop = index.cells_of(number)
        entries = {
            index.values[int(index.cell_values[i])]: (
                int(index.cell_counts[i]),
                index.spelling(
                    index.values[int(index.cell_values[i])], int(index.cell_spellings[i])
                ),
            )
            for i in range(start, stop)
        }
        assert entries == {
            v: (c, s) for v, c, s in zip(one.values, one.counts, one.spellings, strict=True)
        }
        assert np.all(np.diff(index.cell_values[start:stop].astype(np.int64)) > 0)
        order = np.argsort(index.cell_rows[start:stop])
        in_order = [index.values[int(v)] for v in index.cell_values[start:stop][order]]
        assert in_order == one.values


@pytest.mark.slow
@given(columns=COLUMNS, memory=st.sampled_from([0, 1 << 30]))
def test_index_equals_dictionaries(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[str | None]], memory: int
) -> None:
    index, profiles = build(tmp_path_factory.mktemp("values"), columns, memory)
    check(index, columns)
    assert profiles.distinct.tolist() == [len(distinct_cells(cells)) for cells in columns]
    assert profiles.present.tolist() == [sum(distinct_cells(cells).counts) for cells in columns]


@pytest.mark.slow
@given(columns=COLUMNS)
def test_colliding_hashes_cost_no_answer(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[str | None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Six bits of hash: every partition holds colliding values.
        patch.setattr(hashing, "hash_bytes", lambda data: (len(data) % 3) << 62)
        index, _ = build(tmp_path_factory.mktemp("values"), columns)
        check(index, columns)


@pytest.mark.slow
@given(columns=COLUMNS)
def test_whole_lists_equal_pieces(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[str | None]]
) -> None:
    folder = tmp_path_factory.mktemp("values")
    builder = ValueIndexBuilder(folder / "scratch", SETTINGS, 1 << 30)
    lists = pa.array(columns, pa.large_list(pa.large_string()))
    half = len(columns) // 2
    builder.add_lists(0, lists.slice(0, half))
    builder.add_lists(half, lists.slice(half))
    builder.finish(folder / "index", len(columns), lambda p: np.ones(len(columns), bool))
    check(ValueIndex(folder / "index"), columns)


def test_small_chunks_and_long_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "_CHUNK_CELLS", 7)
    monkeypatch.setattr(builder_module, "MAX_CHUNK", 7)
    cells: list[str | None] = [f"v{i % 40}" for i in range(200)]
    columns = [cells, ["v1", "V2"], cells[::-1]]
    builder = ValueIndexBuilder(tmp_path / "scratch", SETTINGS, 500)
    builder.add_lists(0, pa.array(columns, pa.list_(pa.string())))
    builder.finish(tmp_path / "index", 3, lambda p: np.ones(3, bool))
    check(ValueIndex(tmp_path / "index"), columns)


def test_dropped_columns_leave_no_trace(tmp_path: Path) -> None:
    builder = ValueIndexBuilder(tmp_path / "scratch", SETTINGS, 0)
    columns: list[list[str | None]] = [["a", "b"], ["only here"], ["b", "c"]]
    for number, cells in enumerate(columns):
        builder.add(number, 0, pa.array(cells))
    builder.finish(tmp_path / "index", 3, lambda profiles: profiles.distinct > 1)
    check(ValueIndex(tmp_path / "index"), [columns[0], columns[2]])


TYPED: dict[str, tuple[list[str], CellType, Generic]] = {
    "text": (["a", "b", "7"], CellType.TEXT, Generic.NO),
    "ids": (["1001", "1002", "1007"], CellType.INTEGER, Generic.NO),
    "run": ([str(i) for i in range(1, 30)], CellType.INTEGER, Generic.RUN),
    "run with gaps": (["0", "1", "2", "5", "7"], CellType.INTEGER, Generic.RUN),
    "sparse": (["1", "50", "1000"], CellType.INTEGER, Generic.NO),
    "negative": (["-1", "0", "1"], CellType.INTEGER, Generic.NO),
    "years": (["1999", "2000", "1850"], CellType.INTEGER, Generic.YEAR),
    "flags": (["Yes", "no"], CellType.TEXT, Generic.FLAG),
    "zero one": (["0", "1"], CellType.INTEGER, Generic.FLAG),
    "huge": (["9" * 30, "1", "2"], CellType.INTEGER, Generic.NO),
    "decimal": (["1.5", "2", "3.0"], CellType.DECIMAL, Generic.NO),
    "date": (["2024-01-05", "6 Jan 2024"], CellType.DATE, Generic.NO),
    "empty": ([], CellType.TEXT, Generic.NO),
}


@pytest.mark.parametrize("case", TYPED)
def test_types_and_generic_keys(tmp_path: Path, case: str) -> None:
    cells, kind, generic = TYPED[case]
    columns: list[list[str | None]] = [["x", "y"], list(cells)]
    _, profiles = build(tmp_path, columns)
    assert profiles.types[1] == kind
    assert profiles.generic[1] == generic
    assert generic_of(distinct_cells(cells).values) == generic


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["0", "1", "2", "3", "9", "1990", "2010", "-4", "x", "1.5", "yes"]))
)
def test_one_column_is_judged_as_many_are(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    _, profiles = build(tmp_path_factory.mktemp("values"), [list(cells)])
    assert profiles.generic[0] == generic_of(distinct_cells(cells).values)


def test_cells_over_the_limit_are_counted_not_indexed(tmp_path: Path) -> None:
    index, profiles = build(tmp_path, [["a", "x" * 5000, "b"]])
    assert profiles.too_long.tolist() == [1]
    assert len(index.values) == 2


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Record what the system is told about mapped files, small ones as well."""
    calls: list[tuple[int, ...]] = []

    def madvise(self: object, *advice: int) -> None:
        calls.append(advice)

    monkeypatch.setattr(arrays, "_SMALL", 0)
    monkeypatch.setattr(arrays._Pages, "madvise", madvise, raising=False)
    return calls


def test_pages_are_requested_once_and_together(
    tmp_path: Path, advised: list[tuple[int, ...]]
) -> None:
    np.save(tmp_path / "a.npy", np.arange(100 * 512))
    array = arrays.load_array(tmp_path / "a.npy")
    arrays.prefetch(array, np.arange(0, 5000, 100))
    assert advised == [], "the system reads ahead by itself until lookups are expected"
    arrays.expect_lookups(array)
    assert advised == [(mmap.MADV_RANDOM,)]
    advised.clear()
    page, per_page = mmap.PAGESIZE, mmap.PAGESIZE // 8
    # Two elements in each of 20 pages, every second page, and 20 elements far behind.
    places = np.concatenate(
        [np.arange(0, 40 * per_page, per_page // 2), np.full(20, 90 * per_page)]
    )
    arrays.prefetch(array, places)
    assert advised == [(mmap.MADV_WILLNEED, 0, 40 * page), (mmap.MADV_WILLNEED, 90 * page, page)]
    advised.clear()
    arrays.prefetch(array, places)
    arrays.prefetch(array, places[:3])
    assert advised == [], "each page once"
    arrays.prefetch(array, 50 * per_page, 10**9)
    assert advised[0][1] == 50 * page and sum(advised[-1][1:]) == 101 * page, "up to the end"
    arrays.prefetch(np.arange(9), np.arange(9))


def test_the_default_search_expects_lookups_and_answers_the_same(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, advised: list[tuple[int, ...]]
) -> None:
    words = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}ton" for n in range(200)]
    lake = make_lake([Column(words, "town", "t"), Column(words[:150], "place", "u")])
    lake.search(words[:100], join="equi", method="exact-equi")
    assert advised == [], "other methods may read everything"
    found = lake.search(words[:100])
    assert (mmap.MADV_RANDOM,) in advised
    assert any(advice[0] == mmap.MADV_WILLNEED for advice in advised)
    monkeypatch.undo()
    assert found.hits == deepjoin.open(lake.path).search(words[:100]).hits


@given(st.lists(st.integers(-5, 5)))
def test_distinct_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert distinct(array).tolist() == np.unique(array).tolist()


@pytest.mark.parametrize("count", [3, 100])
def test_strings_are_taken_together(tmp_path: Path, count: int) -> None:
    texts = [f"{'é' * (at % 4)}{at}" for at in range(120)]
    with StringsWriter(tmp_path, "some") as writer:
        writer.append(texts)
    strings = Strings.load(tmp_path, "some")
    wanted = np.random.default_rng(0).integers(0, 120, count)
    assert strings.take(wanted) == [texts[at] for at in wanted.tolist()]
    prefix = "éé".encode()
    begins = [texts[at].encode().startswith(prefix) for at in wanted.tolist()]
    assert strings.begin_with(prefix, wanted).tolist() == begins


CELLS = st.text("aäzéжρ1 .-İß", max_size=24)


@given(st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["upper", "title", "given", "own"]))))
def test_spellings_come_back_as_they_were(cells: list[tuple[str, str, str]]) -> None:
    values = pa.array([value for value, _, _ in cells], pa.large_string())
    ways = {"upper": str.upper, "title": str.title, "own": str}
    spelled = [ways[how](value) if how in ways else other for value, other, how in cells]
    stored = stored_spellings(values, pa.array(spelled, pa.large_string()))
    assert respelled(values, stored).to_pylist() == spelled
    texts = zip(values.to_pylist(), stored.to_pylist(), strict=True)
    assert [spelled_as(*one) for one in texts] == spelled
    nothing = pa.nulls(len(cells), pa.large_binary())
    assert respelled(values, nothing).equals(values)


def test_a_spelling_longer_than_its_value_is_noticed() -> None:
    with pytest.raises(ValueError, match="a spelling is longer than its value"):
        respelled(pa.array(["ab"]), pa.array([b"\xff\x04"], pa.large_binary()))


def test_numbers_take_as_few_bytes_as_the_largest_needs(tmp_path: Path) -> None:
    for numbers, kind in (([], np.int64), ([0, 255], np.uint8), ([1 << 16], np.uint32),
                          ([1 << 40], np.int64)):  # fmt: skip
        with ArrayWriter(tmp_path / "x.npy", np.int64) as writer:
            writer.append(numbers)
        narrow(tmp_path / "x.npy")
        found = load_array(tmp_path / "x.npy")
        assert found.tolist() == numbers
        assert found.dtype == kind
