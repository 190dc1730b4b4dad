"""Stored rows equal the rows of the tables, however the index was built and merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Lake
from deepjoin.checking.check import check_index
from deepjoin.checking.segments import array_problems
from deepjoin.checksums import open_again
from deepjoin.normalise.canonical import canonical
from deepjoin.settings import Settings
from deepjoin.store.segment import Segment
from deepjoin.store.values.builder import MergeInput, ValueIndexBuilder, merge_values
from deepjoin.store.values.index import ValueIndex
from deepjoin.store.values.rows import CODES, RowCodes
from tests.support.index_files import sign

CELL = st.none() | st.text("aAbB1 é.0", max_size=2)
COLUMNS = st.lists(st.lists(CELL, max_size=12), min_size=1, max_size=5)


def cells_of(segment: Segment, column: int) -> list[str | None]:
    """Return a column as canonical strings, row by row, from what the index stores."""
    assert segment.rows is not None
    return rows_of(segment.values, segment.rows, column, int(segment.catalog.column_cells[column]))


def rows_of(index: ValueIndex, rows: RowCodes, column: int, present: int) -> list[str | None]:
    held = index.cell_values[slice(*index.cells_of(column))].tolist()
    ranks = rows.ranks(column, present).tolist()
    return [None if rank < 0 else index.values[held[rank]] for rank in ranks]


def expected(cells: list[str | None], rows: int) -> list[str | None]:
    values = [None if cell is None else canonical(cell) or None for cell in cells]
    return values + [None] * (rows - len(cells))


def build(folder: Path, columns: list[list[str | None]], piece: int = 5) -> list[int]:
    """Build a value index with rows; return how many cells of each column are not missing."""
    rows = max(map(len, columns))
    with ValueIndexBuilder(folder / "scratch", Settings(), 1 << 20, with_rows=True) as builder:
        for start in range(0, rows, piece):
            for number, cells in enumerate(columns):
                part = cells[start : start + piece]
                if part:
                    builder.add(number, start, pa.array(part, pa.string()))
            builder._reduce_pieces()  # several chunks, which need not end at a byte
        counts = np.full(len(columns), rows)
        everything = np.ones(len(columns), bool)
        profiles, *_ = builder.finish(folder, len(columns), lambda p: everything, rows=counts)
    return [int(count) for count in profiles.present]


@pytest.mark.slow
@settings(deadline=None)
@given(COLUMNS, COLUMNS)
def test_rows_are_those_of_the_tables(
    columns: list[list[str | None]], others: list[list[str | None]]
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        parts, wanted, present = [], [], []
        for number, some in enumerate((columns, others)):
            here = folder / str(number)
            counts = build(here, some)
            index, rows = ValueIndex(here), RowCodes.open(here)
            assert rows is not None
            for column, cells in enumerate(some):
                read = rows_of(index, rows, column, counts[column])
                assert read == expected(cells, max(map(len, some)))
            kept = np.arange(len(some)) % 3 != 1
            parts.append(MergeInput(here, index, rows, kept))
            wanted += [expected(some[i], max(map(len, some))) for i in np.flatnonzero(kept)]
            present += [counts[i] for i in np.flatnonzero(kept)]
        merge_values(parts, folder / "merged", folder / "spill", 1 << 20, 1)
        index, merged = ValueIndex(folder / "merged"), RowCodes.open(folder / "merged")
        assert merged is not None
        for column, cells in enumerate(wanted):
            assert rows_of(index, merged, column, present[column]) == cells


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [1, 2, 3, 255, 256, 257, 65_536, 70_000])
@pytest.mark.parametrize("missing", [False, True])
def test_every_width_is_read_as_written(tmp_path: Path, distinct: int, missing: bool) -> None:
    cells: list[str | None] = [f"v{i % distinct}" for i in range(max(distinct, 100) + 7)]
    if missing:
        cells[3] = None
    present = build(tmp_path, [cells], piece=997)
    rows = RowCodes.open(tmp_path)
    assert rows is not None
    assert rows_of(ValueIndex(tmp_path), rows, 0, present[0]) == cells
    most = distinct - 1 + missing
    assert int(rows.widths[0]) == most.bit_length()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    for name, shift in (("a", 0), ("b", 3)):
        lines = [f"{1990 + i + shift},t{i % 4},{'' if i == 2 else i}" for i in range(9)]
        (tmp_path / f"{name}.csv").write_text("year,team,n\n" + "\n".join(lines) + "\n")
    return deepjoin.index(tmp_path, settings=Settings(min_distinct=1))


def test_refresh_add_and_compact_keep_rows(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("year,team\n2001,x\n2002,y\n")
    lake = deepjoin.index(tmp_path)
    (tmp_path / "a.csv").unlink()
    lake = deepjoin.index(tmp_path)
    lake.compact()
    lake.reopen()
    (segment,) = lake.index.segments
    names = [segment.catalog.table_names[int(t)] for t in segment.catalog.column_tables]
    rows = {
        (table, segment.catalog.column_names[column]): cells_of(segment, column)
        for column, table in enumerate(names)
    }
    assert rows["c.csv", "team"] == ["x", "y"]
    assert rows["b.csv", "team"] == [f"t{i % 4}" for i in range(9)]
    assert rows["b.csv", "n"] == ["0", "1", None, *map(str, range(3, 9))]
    assert check_index(lake.path).ok


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("row_codes", lambda a: a[:-1], "row_codes.npy has"),
        ("row_counts", lambda a: a[:-1], "row_counts.npy has 5 elements where 6 belong"),
        ("row_widths", lambda a: a + 1, "row_offsets.npy does not divide row_codes.npy"),
        ("row_counts", lambda a: a - 1, "row_counts.npy has columns with fewer rows than cells"),
        ("row_widths", lambda a: a.astype(int), "row_widths.npy is not the array"),
        (
            "row_codes",
            lambda a: a ^ (np.arange(len(a)) == 0),
            "row_codes.npy does not agree with cell",
        ),
        (
            "row_codes",
            lambda a: a + (np.arange(len(a)) == len(a) - 1),
            "row_codes.npy has bits betw",
        ),
        ("row_offsets", lambda a: a[::-1].copy(), "row_offsets.npy"),
    ],
)
def test_check_finds_damaged_rows(
    lake: Lake, name: str, change: Callable[[Any], Any], says: str
) -> None:
    (segment,) = lake.index.segments
    path = segment.folder / f"{name}.npy"
    before = np.load(path)
    after = change(before)
    np.save(path, after.astype(before.dtype) if name == "row_codes" else after)
    sign(lake.path)
    open_again(segment.folder)
    _, problems = array_problems(segment.folder, lake.settings)
    assert problems and says in problems[0]


def test_an_index_of_hashes_stores_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n" + "\n".join(map(str, range(9))) + "\n")
    lake = deepjoin.index(tmp_path, settings=Settings(hash_only=True))
    (segment,) = lake.index.segments
    assert segment.rows is not None and set(segment.rows.widths.tolist()) == {255}
    assert (segment.folder / f"{CODES}.npy").stat().st_size < 256
