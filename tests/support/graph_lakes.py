"""Random lakes for tests of graphs, and their edges by brute force."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from deepjoin import Column, Lake
from deepjoin.store.values.profile import Generic, generic_of
from tests.support.definitions import cardinality, equi_joinability

CELLS = st.lists(st.sampled_from([*"abcdefghij", "A", "1", "2", "1999"]), min_size=1, max_size=8)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=8)
SHARES = st.sampled_from([0.2, 0.5, 2 / 3, 0.7, 1.0])

Tables = list[list[list[str]]]
Frame = dict[str, list[str]]
#: Table and column of both ends.
Ends = tuple[str, str, str, str]
#: Joinability, the other way round, and cardinality.
Shares = tuple[float, float, str]


def columns_of(tables: Tables) -> list[Column]:
    """Give each list of cells a name and a table."""
    return [
        Column(cells, name=f"c{place}", table=f"t{number}")
        for number, table in enumerate(tables)
        for place, cells in enumerate(table)
    ]


def frame_of(table: list[list[str]]) -> Frame:
    """Make a frame, whose columns are equally long."""
    longest = max(map(len, table))
    padded = [cells + cells[:1] * (longest - len(cells)) for cells in table]
    return {f"c{place}": cells for place, cells in enumerate(padded)}


def brute_edges(lake: Lake, least: float) -> dict[Ends, Shares]:
    """Compare every two columns of different tables, in both directions."""
    columns = [
        lake.column(table, name)
        for table in lake.tables
        for name in lake.index.indexed_columns(table)
    ]
    joined = [one for one in columns if _generic(one) == Generic.NO]
    edges: dict[Ends, Shares] = {}
    for pair in combinations(joined, 2):
        for one, other in (pair, pair[::-1]):
            shares = _shares(one, other)
            if one.table != other.table and max(shares) >= least:
                ends = (str(one.table), one.name, str(other.table), other.name)
                edges[ends] = (*shares, cardinality(one.cells, other.cells))
    return edges


def _shares(one: Column, other: Column) -> tuple[float, float]:
    return equi_joinability(one.cells, other.cells), equi_joinability(other.cells, one.cells)


def _generic(column: Column) -> Generic:
    return generic_of(sorted({str(cell).lower() for cell in column.cells}))


def turned(ends: Ends) -> Ends:
    """Name the second end first."""
    return ends[2], ends[3], ends[0], ends[1]


def told(edge: Any) -> tuple[Ends, Shares]:
    """Say of an edge what `brute_edges` says."""
    ends = (edge.a.table, edge.a.column, edge.b.table, edge.b.column)
    return ends, (edge.joinability, edge.reverse, edge.cardinality)
