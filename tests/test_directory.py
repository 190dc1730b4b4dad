"""The names in a lake are found as a plain walk over all tables finds them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepjoin
from deepjoin import Column, Lake
from deepjoin.normalise.canonical import canonical
from deepjoin.store.directory import Directory

NAMES = st.text("abABé.", min_size=1, max_size=4)
CELLS = st.lists(st.sampled_from(["x", "X ", "y", "z", "7", "7.0"]), min_size=1, max_size=4)
TABLES = st.dictionaries(NAMES, st.dictionaries(NAMES, CELLS, min_size=1, max_size=3), max_size=4)


def columns_of(tables: dict[str, dict[str, list[str]]]) -> list[Column]:
    return [
        Column(cells, name, table) for table, of in tables.items() for name, cells in of.items()
    ]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    first=TABLES, later=TABLES, gone=st.integers(0, 3), text=st.sampled_from(["a", "B", "é", "."])
)
def test_names_and_cells_are_found_as_by_a_walk(
    first: dict[str, dict[str, list[str]]],
    later: dict[str, dict[str, list[str]]],
    gone: int,
    text: str,
) -> None:
    there = {f"1{name}": of for name, of in first.items()} | {"1": {"k": ["x"]}}
    more = {f"2{name}": of for name, of in later.items()}
    with TemporaryDirectory() as folder:
        lake = deepjoin.index(
            columns_of(there),
            Path(folder),
            settings=deepjoin.Settings(min_distinct=1),
            vectors={"cells": "none"},
        )
        if more:
            lake.add(columns_of(more))
        removed = sorted(there | more)[:gone]
        if removed and len(removed) < len(there | more):
            lake.remove(*("".join(f"[{c}]" for c in name) for name in removed))
        check(lake, {name: of for name, of in (there | more).items() if name in lake}, text)


def check(lake: Lake, tables: dict[str, dict[str, list[str]]], text: str) -> None:
    directory = Directory(lake.index)
    total, rows = directory.tables("", 0, 100)
    assert (total, [row.name for row in rows]) == (len(tables), sorted(tables))
    low = text.lower()
    own = [name for name in sorted(tables) if low in name.lower()]
    by_column = [n for n in sorted(tables) if any(low in one.lower() for one in tables[n])]
    expected = own + [name for name in by_column if name not in own]
    total, rows = directory.tables(text, 1, 2)
    assert (total, [row.name for row in rows]) == (len(expected), expected[1:3])
    found = {(row.table, row.column) for row in directory.columns(text, 100)}
    assert found == {(n, one) for n, of in tables.items() for one in of if low in one.lower()}
    total, holders = directory.holders(" 7.0", 100)
    held = {
        (name, column): sum(canonical(cell) == "7" for cell in cells)
        for name, of in tables.items()
        for column, cells in of.items()
    }
    assert {(h.table, h.column): h.rows for h in holders} == {at: n for at, n in held.items() if n}
    assert total == len(holders)
