"""Data frames as tables, columns in every form a user may have them, and cells as strings."""

from __future__ import annotations

import datetime
import decimal
import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.model import Column, Reading, Table
from deepjoin.normalise.cells import as_strings, cell_text, left_out, text_array, unique_names
from deepjoin.read.formats import read_file
from deepjoin.read.frames import as_column, frame_table, read_columns
from deepjoin.settings import Settings
from tests.support.opening import open_source

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

WHEN = datetime.datetime(2020, 1, 5, 1, 2, 3)
CONTENT = {"city": ["Paris", "Rome", None], "people": [2, 3, None]}
TEXTS = {"city": ["Paris", "Rome", None], "people": ["2", "3", None]}


def texts(table: Table) -> dict[str, list[str | None]]:
    (batch,) = table.open()
    strings = {name: as_strings(batch.column(name)) for name in batch.schema.names}
    return {name: array.to_pylist() for name, array in strings.items() if array is not None}


@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        pl.DataFrame,
        pl.LazyFrame,
        pa.table,
        pa.RecordBatch.from_pydict,
        lambda content: pa.table(content).to_reader(),
        lambda content: content,
        lambda content: {name: pa.array(cells) for name, cells in content.items()},
        lambda content: {name: pd.Series(cells) for name, cells in content.items()},
        lambda content: {name: pl.Series(cells) for name, cells in content.items()},
        lambda content: {name: np.array(cells, object) for name, cells in content.items()},
    ],
)
def test_every_frame_gives_the_same_table(make: Callable[[Any], object]) -> None:
    (table,) = open_source(make(CONTENT), Settings()).tables()
    assert table.name == table.title == "table"
    assert texts(table) == TEXTS == texts(table)
    (table,) = open_source({"old_cities": make(CONTENT)}, Settings()).tables()
    assert (table.name, table.title, texts(table)) == ("old_cities", "old cities", TEXTS)


def test_awkward_pandas_columns() -> None:
    frame = pd.DataFrame(
        {
            "mixed": [1, "x", None],
            "lists": [[1], "a", None],
            "big": [10**30, 1, None],
            "category": pd.Categorical(["a", None, "a"]),
            "period": pd.period_range("2020-01", periods=3, freq="M"),
            "sparse": pd.arrays.SparseArray([1, 0, 0]),
            "nullable": pd.array([1, pd.NA, 3], dtype="Int64"),
            "when": pd.to_datetime([WHEN, None, WHEN]),
            "bytes": [b"a", None, b"c"],
            "nested": [[1], [2], None],
        },
        index=[7, 8, 9],
    )
    assert texts(frame_table(frame)) == {
        "mixed": ["1", "x", None],
        "lists": ["[1]", "a", None],
        "big": [str(10**30), "1", None],
        "category": ["a", None, "a"],
        "period": ["2020-01", "2020-02", "2020-03"],
        "sparse": ["1", "0", "0"],
        "nullable": ["1", None, "3"],
        "when": ["2020-01-05 01:02:03", None, "2020-01-05 01:02:03"],
    }


def test_awkward_column_names() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "a", 2020])
    assert list(texts(frame_table(frame))) == ["a", "a_2", "2020"]
    frame.columns = pd.MultiIndex.from_tuples([("x", "min"), ("x", "max"), ("y", "")])
    assert list(texts(frame_table(frame))) == ["x min", "x max", "y"]


def test_polars_objects_become_text() -> None:
    frame = pl.DataFrame({"o": pl.Series([1, "x", None], dtype=pl.Object)})
    assert texts(frame_table(frame)) == {"o": ["1", "x", None]}


def test_large_frames_come_in_batches() -> None:
    sizes = [batch.num_rows for batch in frame_table(pa.table({"n": range(150_000)})).open()]
    assert sum(sizes) == 150_000 and max(sizes) <= 65_536


@pytest.mark.parametrize(
    "frame", [pd.DataFrame({"a": []}), pl.DataFrame({"a": []}), pa.table({"a": []}), {"a": []}]
)
def test_a_frame_without_rows_has_columns(frame: object) -> None:
    assert texts(frame_table(frame)) == {"a": []}


def test_columns_must_be_equally_long() -> None:
    with pytest.raises(DeepJoinError, match=r"'table' must be equally long, but are: a 1, b 2\."):
        open_source({"a": [1], "b": [1, 2]}, Settings())


def test_tables_and_columns_as_a_source() -> None:
    columns = [
        Column(["a", "b"], name="x", table="t", title="Title", context="why"),
        Column(["c"], name="y", table="t"),
        Column(["d"], name="alone"),
        Column(["e"], name="alone"),
        Column(["f"]),
    ]
    made = frame_table(CONTENT, "made")
    apart = ["alone", "alone_2", "column_4"]
    source = open_source([*columns, made], Settings())
    assert [table.name for table in source.tables()] == ["made", "t", *apart]
    table = source.table("t")
    assert (table.title, table.context) == ("Title", "why")
    assert texts(table) == {"x": ["a", "b"], "y": ["c", None]}
    assert source.skipped == []
    assert [table.name for table in open_source(made, Settings()).tables()] == ["made"]
    assert [table.name for table in open_source({"new": made}, Settings()).tables()] == ["new"]
    assert texts(next(open_source(Column([], name="e"), Settings()).tables())) == {"e": []}


def test_table_names_must_differ() -> None:
    table = frame_table(CONTENT)
    with pytest.raises(DeepJoinError, match=r"Two tables are named 'table'; names must differ\."):
        open_source([table, table], Settings())


def test_unknown_table_in_memory() -> None:
    source = open_source({"cities": pa.table({"a": [1]})}, Settings())
    with pytest.raises(UnknownName, match=r"No table 'citys' in the given .* mean 'cities'\?"):
        source.table("citys")


def test_a_plain_list_passes_through_untouched() -> None:
    cells = ["a", None, "b"]
    assert as_column(cells).cells is cells
    column = Column(["a"], name="n")
    assert as_column(column) is column


@pytest.mark.parametrize(
    ("query", "cells"),
    [
        ([1, 2.5, True, None, float("nan"), "x"], ["1", "2.5", "true", None, None, "x"]),
        ((1, "a"), ["1", "a"]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        ((str(n) for n in range(2)), ["0", "1"]),
        (range(2), ["0", "1"]),
        ([], []),
        ([pd.NA, pd.NaT, np.float64("nan"), np.datetime64("NaT", "s")], [None] * 4),
        ([np.int64(7), np.str_("a"), np.bool_(True)], ["7", "a", "true"]),
        (
            [WHEN, WHEN.date(), decimal.Decimal("7.10")],
            ["2020-01-05 01:02:03", "2020-01-05", "7.10"],
        ),
        (np.array([1, 2]), ["1", "2"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([1, "a", None], object), ["1", "a", None]),
        (np.array(["2020-01-05"], "datetime64[D]"), ["2020-01-05"]),
        (pa.array([1, None]), ["1", None]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        (pd.Series([1.0, None]), ["1", None]),
        (pd.Series([1, "x", None]), ["1", "x", None]),
        (pd.Index(["a", "b"]), ["a", "b"]),
        (pl.Series([1, None]), ["1", None]),
        (pl.Series(["a"], dtype=pl.Categorical), ["a"]),
    ],
)
def test_columns_in_every_form(query: object, cells: list[str | None]) -> None:
    assert list(as_column(query).cells) == cells


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (pd.Series(["a"], name="city"), "city"),
        (pd.Series(["a"], name=7), "7"),
        (pd.Series(["a"]), ""),
        (pl.Series("city", ["a"]), "city"),
        (pa.array(["a"]), ""),
    ],
)
def test_the_name_of_a_series_is_kept(query: object, name: str) -> None:
    assert as_column(query).name == name


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Paris", r"A column is a list of cells, not one str: pass \['Paris'\]\."),
        (b"Paris", "A column is a list of cells, not one bytes"),
        (7, "A int is not a column: pass a list of cells"),
        (None, "A NoneType is not a column"),
        ([b"a"], r"Cell b'a' is bytes: decode it to text first\."),
        (
            pd.DataFrame(CONTENT),
            r"a whole table \(DataFrame\): name one of its columns with `on`: city, peo",
        ),
        (pl.DataFrame(CONTENT), r"a whole table \(DataFrame\): .*: city, people\."),
        (pl.LazyFrame(CONTENT), r"a whole table \(LazyFrame\): .*: city, people\."),
        (pa.table(CONTENT), r"a whole table \(Table\): .*: city, people\."),
        (CONTENT, r"a whole table \(dict\): .*: city, people\."),
        (pa.table({f"c{n}": [n] for n in range(20)}), r"c11 and 8 more\."),
        (np.zeros((2, 2)), "A column has one dimension, this array has 2"),
        (pa.array([b"a"]), "Cells of type binary cannot be joined: pass text or numbers"),
        (pa.array([[1]]), "Cells of type list<.*> cannot be joined"),
        (pd.Series([[1], [2]]), "Cells of type list<.*> cannot be joined"),
    ],
)
def test_what_is_no_column(query: object, text: str) -> None:
    with pytest.raises(DeepJoinError, match=text):
        as_column(query)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None, -3], pa.int8()), ["1", None, "-3"]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([7.0, -0.0, None, float("nan")]), ["7", "0", None, None]),
        (pa.array([0.1, 123456789012.0, 12345678901.5]), ["0.1", "123456789012", "12345678901.5"]),
        (pa.array([1e-7, 1e20, 1e300]), ["0.0000001", "1" + "0" * 20, "1e+300"]),
        (pa.array([float("inf"), 1.5]), ["inf", "1.5"]),
        (pa.array([0.1, 3e10], pa.float32()), ["0.1", "30000000000"]),
        (pa.array([3e10, None], pa.float32()), ["30000000000", None]),
        (pa.array([2.5, None], pa.float16()), ["2.5", None]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([decimal.Decimal("7.10"), None]), ["7.10", None]),
        (pa.array([decimal.Decimal("1E-18")], pa.decimal128(38, 18)), ["0." + "0" * 17 + "1"]),
        (pa.array([decimal.Decimal("12300")], pa.decimal128(5, -2)), ["12300"]),
        (pa.array([WHEN.date(), None]), ["2020-01-05", None]),
        (pa.array([WHEN.date()], pa.date64()), ["2020-01-05"]),
        *(
            (pa.array([WHEN, None], pa.timestamp(unit)), ["2020-01-05 01:02:03", None])
            for unit in ("s", "ms", "us", "ns")
        ),
        (pa.array([WHEN.replace(microsecond=120000)]), ["2020-01-05 01:02:03.12"]),
        (pa.array([WHEN.replace(second=0)]), ["2020-01-05 01:02:00"]),
        (pa.array([WHEN], pa.timestamp("us", "Europe/Berlin")), ["2020-01-05 01:02:03Z"]),
        (pa.array([WHEN], pa.timestamp("us", "No/Where")), ["2020-01-05 01:02:03Z"]),
        (pa.array([2**62]).cast(pa.timestamp("s"), safe=False), [None]),
        (
            pa.array([datetime.time(9, 30), datetime.time(9, 30, 0, 500)]),
            ["09:30:00", "09:30:00.0005"],
        ),
        (
            pa.array([datetime.timedelta(minutes=2), datetime.timedelta(seconds=1.5)]),
            ["120", "1.5"],
        ),
        (pa.array([pa.MonthDayNano([1, 2, 3]), None]), [str(pa.MonthDayNano([1, 2, 3])), None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([1.0, 1.0]).dictionary_encode(), ["1", "1"]),
        (pa.compute.run_end_encode(pa.array([1, 1, 2])), ["1", "1", "2"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array(["a"], pa.string_view()), ["a"]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        (pa.nulls(2), [None, None]),
        (pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()), [str(uuid.UUID(int=7)), None]),
        (pa.array([], pa.float64()), []),
    ],
)
def test_as_strings(array: pa.Array, expected: list[str | None]) -> None:
    strings = as_strings(array)
    assert strings is not None
    assert strings.type == pa.string()
    assert strings.to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.binary(), "binary"),
        (pa.large_binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.binary_view(), "binary"),
        (pa.dictionary(pa.int32(), pa.binary()), "binary"),
        (pa.list_(pa.string()), "nested"),
        (pa.list_(pa.string(), 2), "nested"),
        (pa.struct([("a", pa.int64())]), "nested"),
        (pa.map_(pa.string(), pa.string()), "nested"),
    ],
)
def test_types_that_are_left_out(kind: pa.DataType, reason: str) -> None:
    assert left_out(kind) == reason
    assert as_strings(pa.nulls(0, kind)) is None


@given(st.lists(st.floats(allow_nan=False, width=64)))
def test_floats_come_back(numbers: list[float]) -> None:
    strings = as_strings(pa.array(numbers, pa.float64()))
    assert strings is not None
    assert [float(text) for text in strings.to_pylist()] == numbers


@pytest.mark.slow
@given(st.lists(st.floats() | st.sampled_from([1e16, 1e-5, 7.0, -0.0, 1e40, 1e-41]), min_size=1))
def test_floats_are_the_same_cells_wherever_they_come_from(
    tmp_path: Path, numbers: list[float]
) -> None:
    strings = as_strings(pa.array(numbers, pa.float64()))
    assert strings is not None
    assert as_column(numbers).cells == strings.to_pylist()
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"n": number}) + "\n" for number in numbers))
    cells = [cell for batch in read_file(path, "jsonlines") for cell in batch["n"].to_pylist()]
    assert cells == strings.to_pylist()


@given(st.sampled_from([16, 32]), st.data())
def test_short_floats_are_the_same_cells(width: Literal[16, 32], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.floats(width=width)))
    array = np.array(numbers, f"float{width}")
    assert as_column(list(array)).cells == as_column(array).cells


@given(st.lists(st.integers(-(2**53) + 1, 2**53 - 1)))
def test_whole_numbers_are_the_same_as_floats(numbers: list[int]) -> None:
    strings = as_strings(pa.array([float(number) for number in numbers], pa.float64()))
    assert strings is not None
    assert strings.to_pylist() == [str(number) for number in numbers]


@given(st.datetimes())
def test_moments_agree_with_python(moment: datetime.datetime) -> None:
    strings = as_strings(pa.array([moment], pa.timestamp("us")))
    assert strings is not None
    assert strings[0].as_py() == cell_text(moment)


@given(st.datetimes(timezones=st.timezones()))
def test_moments_with_a_zone_agree_with_python(moment: datetime.datetime) -> None:
    strings = as_strings(pa.array([moment], pa.timestamp("us", "UTC")))
    assert strings is not None
    assert strings[0].as_py() == cell_text(moment)


def test_moments_that_have_no_utc_keep_their_offset() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert cell_text(datetime.datetime(1, 1, 1, tzinfo=zone)) == "0001-01-01 00:00:00+02:00"


@given(st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5)))
def test_durations_agree_with_python(length: datetime.timedelta) -> None:
    assert as_column(pa.array([length])).cells == as_column([length]).cells


@given(st.lists(st.text(st.characters(exclude_categories=())) | st.none()))
def test_text_arrays_hold_any_python_text(cells: list[str | None]) -> None:
    held = text_array(cells).to_pylist()
    assert len(held) == len(cells)
    for before, after in zip(cells, held, strict=True):
        whole = before is None or all(not 0xD800 <= ord(letter) < 0xE000 for letter in before)
        assert (after == before) if whole else "�" in after or len(after) < len(before or "")


@given(st.lists(st.sampled_from(["a", "a_2", "", "a_3", " a", None, 1, ("x", "y")])))
def test_names_are_unique(names: list[object]) -> None:
    unique = unique_names(names)
    assert len(set(unique)) == len(unique) == len(names)
    assert all(unique)


def test_frames_are_distinguished_without_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    assert as_column([1]).cells == ["1"]
    assert texts(frame_table(pa.table({"a": [1]}))) == {"a": ["1"]}


def test_equal_cells_of_a_large_table_are_held_once() -> None:
    batches = [pa.record_batch({"city": ["Rome", None, "Oslo", "Rome"]}) for _ in range(2)]
    (column,) = read_columns(Table("cities", lambda: Reading(iter(batches))))
    assert list(column.cells) == ["Rome", None, "Oslo", "Rome"] * 2
    assert len({id(cell) for cell in column.cells}) == 3
