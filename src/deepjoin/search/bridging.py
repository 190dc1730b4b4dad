"""Bridges: tables of the lake in which two keys meet that have nothing in common.

Airport codes and cities share no value; a table with a column of codes and one of cities leads from
the one to the other. Columns that hold values of either key come from the postings; the stored
rows of their tables say which values meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int
from deepjoin.errors import DeepJoinError
from deepjoin.matching.similar import postings_of
from deepjoin.model import Bridge, Bridges, Column, Match
from deepjoin.normalise.cells import DistinctCells, distinct_cells
from deepjoin.progress import check_stop
from deepjoin.read.sql import identifier
from deepjoin.store.segment import Segment
from deepjoin.store.values.rows import NOT_STORED

#: Tables whose rows are read, and bridges that are returned.
_TABLES, _BRIDGES = 100, 20
#: Values of the right key that a column must hold.
_FEW = 2
#: Columns of one table, of each key, whose rows are compared.
_COLUMNS = 4


class _Held(NamedTuple):
    """A column that holds values of a key: where it is, and how many."""

    column: int
    table: int
    matched: int


def find_bridges(
    segments: Sequence[Segment],
    sides: tuple[Column, Column],
    least: float,
    profile: str,
    names: tuple[str, str] = ("left_table", "right_table"),
) -> Bridges:
    """Find tables that lead from the left key to the right one, by equal values.

    ``least`` is the least share of the left values that must reach a right one; ``names`` are the
    tables of the two keys in the SQL of a bridge.
    """
    if not 0 <= least <= 1:
        raise DeepJoinError(f"`least` is {least}; it must be between 0 and 1.")
    mine, theirs = (distinct_cells(side.cells, profile) for side in sides)
    if not len(mine) or not len(theirs):
        side = "right" if len(mine) else "left"
        raise DeepJoinError(f"The {side} column has no values: every cell is missing or blank.")
    own = {side.table for side in sides}
    candidates: list[tuple[float, Segment, _Held, _Held]] = []
    for segment in segments:
        lefts = _by_table(segment, mine, max(1, round(least * len(mine))))
        rights = _by_table(segment, theirs, min(_FEW, len(theirs)))
        for table in lefts.keys() & rights.keys():
            if segment.catalog.table_names[table] in own:
                continue
            for left in lefts[table][:_COLUMNS]:
                for right in rights[table][:_COLUMNS]:
                    if left.column != right.column:
                        share = left.matched / len(mine) + right.matched / len(theirs)
                        candidates.append((share, segment, left, right))
    candidates.sort(key=lambda one: -one[0])
    found = []
    for _, segment, left, right in candidates[:_TABLES]:
        check_stop()
        met = _meeting(segment, (left, right), (mine, theirs))
        if len(np.unique(met[0])) >= max(1, least * len(mine)):
            found.append(_bridge(segment, (left, right), (mine, theirs), met, sides, names))
    found.sort(key=lambda one: (-one.coverage, one.ambiguous, one.table))
    return Bridges(tuple(found[:_BRIDGES]), (len(mine), len(theirs)))


def _by_table(segment: Segment, cells: DistinctCells, least: int) -> dict[int, list[_Held]]:
    """List the columns of each live table that hold values of a key, most of them first."""
    tables: dict[int, list[_Held]] = {}
    # Rows of a corpus are not stored, nor those of columns below `min_distinct`.
    if segment.rows is None or segment.values.columns == 0:
        return tables
    numbers = segment.values.look_up(cells.values)
    _, columns = postings_of(segment.values, numbers[numbers >= 0])
    counts = np.bincount(columns, minlength=segment.values.columns)
    for column in np.flatnonzero(counts >= least).tolist():
        table = int(segment.catalog.column_tables[column])
        if table not in segment.removed and segment.rows.widths[column] != NOT_STORED:
            tables.setdefault(table, []).append(_Held(column, table, int(counts[column])))
    for held_by in tables.values():
        held_by.sort(key=lambda one: (-one.matched, one.column))
    return tables


def _meeting(
    segment: Segment, columns: tuple[_Held, _Held], sides: tuple[DistinctCells, DistinctCells]
) -> tuple[Int, Int]:
    """Return which left value meets which right value in the rows of a table."""
    assert segment.rows is not None
    index, places = segment.values, []
    for held, cells in zip(columns, sides, strict=True):
        present = int(segment.catalog.column_cells[held.column])
        ranks = segment.rows.ranks(held.column, present)
        start, stop = index.cells_of(held.column)
        numbers = index.look_up(cells.values)
        known = np.flatnonzero(numbers >= 0)
        order = known[np.argsort(numbers[known])]
        values = index.cell_values[start:stop].astype(np.int64)
        at = np.searchsorted(numbers[order], values)
        here = np.minimum(at, max(len(order) - 1, 0))
        is_known = numbers[order][here] == values if len(order) else np.zeros(len(values), bool)
        cell = np.where(is_known, order[here] if len(order) else -1, -1)
        places.append(np.where(ranks >= 0, cell[ranks], -1))
    both = (places[0] >= 0) & (places[1] >= 0)
    pairs = np.unique(np.stack([places[0][both], places[1][both]]), axis=1)
    return pairs[0], pairs[1]


def _bridge(
    segment: Segment,
    columns: tuple[_Held, _Held],
    cells: tuple[DistinctCells, DistinctCells],
    met: tuple[Int, Int],
    sides: tuple[Column, Column],
    names: tuple[str, str],
) -> Bridge:
    """Describe a bridge, with both joins as SQL."""
    left, (mine, theirs) = columns[0], cells
    counts: Double = np.bincount(met[0], minlength=len(mine)).astype(np.float64)
    table = segment.catalog.table_names[left.table]
    one, other = (segment.catalog.column_names[held.column] for held in columns)
    keys = [side.name or "value" for side in sides]

    def same(this: str, that: str) -> str:
        return f"lower(trim(CAST({this} AS VARCHAR))) = lower(trim(CAST({that} AS VARCHAR)))"

    yours, right_table = map(identifier, names)
    joins = (
        same(f"{yours}.{identifier(keys[0])}", f"bridge.{identifier(one)}"),
        same(f"bridge.{identifier(other)}", f"{right_table}.{identifier(keys[1])}"),
    )
    sql = (
        f"SELECT {yours}.*, {right_table}.*\nFROM {yours}\n"
        f"JOIN {identifier(table)} AS bridge ON {joins[0]}\nJOIN {right_table} ON {joins[1]}"
    )
    matches = tuple(
        Match(mine.spellings[a], theirs.spellings[b], 1.0, "bridge")
        for a, b in zip(met[0].tolist(), met[1].tolist(), strict=True)
    )
    reached = int((counts > 0).sum())
    return Bridge(
        table=table,
        left_column=one,
        right_column=other,
        coverage=reached / len(mine),
        left_coverage=left.matched / len(mine),
        right_coverage=len(np.unique(met[1])) / len(theirs),
        ambiguous=int((counts > 1).sum()),
        matches=matches,
        sql=sql,
    )
