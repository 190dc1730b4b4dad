"""Many small tables at a time: which tuples of a query their rows hold, in whole-array steps.

A lake has thousands of tables that hold the values of a query and none of its tuples. Verifying
them one by one takes longer than reading their rows, so small ones are verified together: the same
steps as `tuples.TableRows.extend`, over the rows of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepjoin.arrays import Array, Double, Int, distinct, find_sorted, ranges
from deepjoin.search.tuples import Level, PartPairs
from deepjoin.store.key_columns import KeyColumns

#: Rows, of all ways to map the columns, that are compared at a time.
MOST_ROWS = 1 << 21


class TooManyMappings(Exception):
    """The tables can be mapped in too many ways to be verified together."""


@dataclass(frozen=True)
class PartColumns:
    """The columns that may take a part, sorted by table, and the bounds on what they hold."""

    columns: Int
    tables: Int
    bounds: Double

    def of(self, tables: Int, least: int) -> tuple[Int, Int]:
        """Return which of some tables, and which columns of them, may take the part."""
        starts, stops = (np.searchsorted(self.tables, tables + one) for one in (0, 1))
        which = np.repeat(np.arange(len(tables)), stops - starts)
        places = ranges(starts, stops - starts)
        kept = self.bounds[places] >= least
        return which[kept], self.columns[places[kept]]


@dataclass
class _Groups:
    """Ways to map the first parts: each has a table, columns, and rows that hold beginnings."""

    table: Int
    chosen: list[Int]
    group: Int
    rows: Int
    beginnings: Int


def verify_together(
    keys: KeyColumns,
    pairs: Sequence[PartPairs],
    parts: Sequence[tuple[PartColumns, Level]],
    tables: Int,
    least: int,
) -> tuple[Int, list[Int], Int]:
    """Count the tuples in the rows of some tables, under every mapping that reaches ``least``.

    ``pairs`` and ``parts`` are in the order in which parts are added. Returns, for each mapping,
    which table it is of, the column of each part, and the count.
    """
    groups: _Groups | None = None
    counts: Int = np.zeros(0, np.int64)
    for pair, (columns, level) in zip(pairs, parts, strict=True):
        groups = _extended(keys, pair, level, groups, *columns.of(tables, least))
        counts = _counted(groups, level)
        groups = _kept(groups, counts >= least)
        counts = counts[counts >= least]
    assert groups is not None
    return groups.table, groups.chosen, counts


def _extended(
    keys: KeyColumns,
    pairs: PartPairs,
    level: Level,
    before: _Groups | None,
    which: Int,
    columns: Int,
) -> _Groups:
    """Add a part: each way so far with each column of its table that may take it."""
    if before is None:
        table, chosen, taken = which, [], columns
        lengths = keys.counts[taken]
        _check(lengths)
        group = np.repeat(np.arange(len(taken)), lengths)
        rows = ranges(np.zeros(len(taken), np.int64), lengths)
        beginnings = np.zeros(len(rows), np.int64)
    else:
        starts, stops = (np.searchsorted(which, before.table + one) for one in (0, 1))
        parent = np.repeat(np.arange(len(before.table)), stops - starts)
        taken = columns[ranges(starts, stops - starts)]
        free = np.ones(len(taken), bool)
        for one in before.chosen:
            free &= one[parent] != taken
        parent, taken = parent[free], taken[free]
        table, chosen = before.table[parent], [one[parent] for one in before.chosen]
        firsts, lasts = (np.searchsorted(before.group, parent, side) for side in ("left", "right"))
        _check(lasts - firsts)
        group = np.repeat(np.arange(len(taken)), lasts - firsts)
        places = ranges(firsts, lasts - firsts)
        rows, beginnings = before.rows[places], before.beginnings[places]
    values = keys.values_at(taken[group], rows)
    known, first, each = np.unique(pairs.values, return_index=True, return_counts=True)
    at = find_sorted(known, values)
    here = np.flatnonzero(at >= 0)
    # A value may be similar to several of the part.
    counts = each[at[here]]
    pair = ranges(first[at[here]], counts)
    here = np.repeat(here, counts)
    found = level.find(beginnings[here], pairs.cells[pair])
    kept = here[found >= 0]
    found = found[found >= 0].astype(np.int64)
    return _Groups(table, [*chosen, taken], group[kept], rows[kept], found)


def _check(lengths: Int) -> None:
    if int(lengths.sum()) > MOST_ROWS:
        raise TooManyMappings


def _counted(groups: _Groups, level: Level) -> Int:
    """Count, for each way, the tuples that begin with one of those found."""
    size = len(level.keys)
    found = distinct(groups.group * size + groups.beginnings)
    weights = level.tuples[found % size]
    return np.bincount(found // size, weights, len(groups.table)).astype(np.int64)


def _kept(groups: _Groups, chosen: Array) -> _Groups:
    """Keep some of the ways."""
    numbers = np.cumsum(chosen) - 1
    rows = chosen[groups.group]
    return _Groups(
        groups.table[chosen],
        [one[chosen] for one in groups.chosen],
        numbers[groups.group[rows]],
        groups.rows[rows],
        groups.beginnings[rows],
    )
