"""Longer keys for hits that would multiply rows: further columns that make a key unique.

A hit on `teamID` joins each row with every year of the team. If the query's table has a year as
well, the pair of both may be unique in the target; then the hit says so, with the rows of both
joins, counted on equal values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from deepjoin.arrays import Int, Int32, find_sorted
from deepjoin.model import BetterKey, Column, Hit, Results
from deepjoin.search.query import SearchQuery
from deepjoin.search.tuples import MOST_PARTS, PartPairs, TableRows, key_columns, value_numbers
from deepjoin.store.segment import Segment

#: Hits of a column that are looked at, and cells of a query's table at most.
_HITS = 10
MOST_CELLS = 1_000_000
#: A longer key must keep this share of the rows that match, and so must each column added.
_KEPT = 0.9
#: Rows of the target times pairs of columns that are compared, and columns added at most.
_WORK, _ADDED = 5_000_000, 3


def with_better_keys(
    segments: Sequence[Segment], profile: str, results: Results, columns: Sequence[Column]
) -> Results:
    """Add longer keys to the first hits of a column, given all columns of its table."""
    # Columns from the index are not in the order of rows.
    if any(column.column_id is not None for column in columns):
        return results
    rows = {len(column.cells) for column in columns}
    if len(rows) != 1 or rows.pop() * len(columns) > MOST_CELLS or len(columns) < 2:
        return results
    own = next((n for n, one in enumerate(columns) if one.name == results.query["column"]), None)
    if own is None:
        return results
    table = _QueryTable(columns, own, profile)
    hits = [
        replace(hit, better=_better(segments, table, hit)) if number < _HITS else hit
        for hit, number in zip(results.hits, count(), strict=False)
    ]
    return replace(results, hits=tuple(hits))


class _QueryTable:
    """The columns of a query's table as numbers of values, each looked up when needed."""

    def __init__(self, columns: Sequence[Column], own: int, profile: str) -> None:
        self.columns, self.own, self._profile = columns, own, profile
        self._parts: dict[int, tuple[SearchQuery, Int32]] = {}
        self._found: dict[tuple[int, int], PartPairs] = {}
        #: What is left of the work that all hits share.
        self.work = _WORK

    def _part(self, column: int, segment: Segment) -> tuple[int, Int32, PartPairs]:
        """Count the values of a column, number each row's, and find them in a segment."""
        if column not in self._parts:
            part = SearchQuery(self.columns[column], self._profile)
            self._parts[column] = part, value_numbers(part, self._profile)
        part, numbers = self._parts[column]
        place = column, id(segment)
        if place not in self._found:
            self._found[place] = PartPairs.equal(part, segment)
        return len(part), numbers, self._found[place]

    def ranks(self, column: int, segment: Segment, target: int) -> Int:
        """Return the rank of each row's value in a column of a segment; -1 if it has none."""
        count, numbers, pairs = self._part(column, segment)
        # One more, for missing cells: number -1 is the last.
        ranks = np.full(count + 1, -1)
        found = find_sorted(key_columns(segment).held(target), pairs.values)
        ranks[pairs.cells[found >= 0]] = found[found >= 0]
        return np.asarray(ranks[numbers])

    def sharing(self, segment: Segment, theirs: Sequence[int]) -> list[tuple[int, int]]:
        """List the pairs of columns where nearly all rows have a value of the other column."""
        held = [key_columns(segment).held(one) for one in theirs]
        values = np.concatenate(held)
        order = np.argsort(values)
        values = values[order]
        owner = np.repeat(np.arange(len(held)), [len(one) for one in held])[order]
        found = []
        for column in range(len(self.columns)):
            count, numbers, pairs = self._part(column, segment)
            rows = np.bincount(numbers[numbers >= 0], minlength=count)[pairs.cells]
            if rows.sum() < _KEPT * len(numbers):
                continue
            first = np.searchsorted(values, pairs.values)
            held_by = np.searchsorted(values, pairs.values, "right") - first
            at = np.repeat(first - np.cumsum(held_by) + held_by, held_by)
            at += np.arange(len(at))
            shared = np.bincount(owner[at], np.repeat(rows, held_by), len(held)) / len(numbers)
            found += [(column, theirs[one]) for one in np.flatnonzero(shared >= _KEPT).tolist()]
        return found


def _better(segments: Sequence[Segment], table: _QueryTable, hit: Hit) -> BetterKey | None:
    """Find further columns that make a hit's key unique in the target, if it is not."""
    if not hit.multiplies:
        return None
    for segment in segments:
        number = segment.find_table(hit.table)
        if number is not None and segment.rows is not None:
            keys = key_columns(segment)
            theirs = keys.columns_of(number)
            first = [one for one in theirs if keys.name(one) == hit.column]
            if first:
                return _longer(table, segment, first[0], theirs)
    return None


def _longer(
    table: _QueryTable, segment: Segment, first: int, theirs: Sequence[int]
) -> BetterKey | None:
    """Add one pair of columns after the other, each time the one that joins the fewest rows.

    Of those that make the key unique, the one that keeps most rows matched is added.
    """
    keys = key_columns(segment)
    rows = TableRows(keys, ())
    mine, target = table.ranks(table.own, segment, first), rows.ranks(first).astype(np.int64)
    matched, before, _ = _joined(mine, target)
    chosen = [(table.own, first)]
    sharing = table.sharing(segment, theirs)
    # With all columns that could be added, a table that repeats rows still has no unique key.
    possible = dict.fromkeys(other for _, other in _not_chosen(sharing, chosen))
    if not (matched and possible and rows.is_unique((first, *possible))):
        return None
    # A column that is a key alone has hits of its own, and the first would only lose rows there.
    is_key = {other: rows.is_unique((other,)) for other in possible}
    sharing = [pair for pair in sharing if not is_key.get(pair[1])]
    while len(chosen) <= min(_ADDED, MOST_PARTS - 1):
        best: tuple[tuple[bool, int], int, tuple[int, int], Int, Int] | None = None
        for pair in _not_chosen(sharing, chosen):
            table.work -= len(target)
            if table.work < 0:
                return None
            size = keys.size(pair[1])
            longer = _combined(mine, table.ranks(pair[0], segment, pair[1]), size)
            other = _combined(target, rows.ranks(pair[1]), size)
            found, joined, most = _joined(longer, other)
            rank = most > 1, joined if most > 1 else -found
            if found >= _KEPT * matched and (best is None or rank < best[0]):
                best = rank, joined, pair, longer, other
        if best is None:
            return None
        (repeats, _), joined, pair, mine, target = best
        chosen.append(pair)
        if not repeats:
            return BetterKey(
                tuple(table.columns[one].name for one, _ in chosen),
                tuple(keys.name(other) for _, other in chosen),
                joined,
                before,
            )
        # Numbers that are not too large for the next column.
        both = np.unique(np.concatenate([mine, target]), return_inverse=True)[1].astype(np.int64)
        missing = np.concatenate([mine, target]) < 0
        both = np.where(missing, -1, both)
        mine, target = both[: len(mine)], both[len(mine) :]
    return None


def _not_chosen(
    pairs: Sequence[tuple[int, int]], chosen: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Leave out the pairs with a column that is chosen already."""
    mine, others = {one for one, _ in chosen}, {other for _, other in chosen}
    return [pair for pair in pairs if pair[0] not in mine and pair[1] not in others]


def _combined(keys: Int, ranks: Int | Int32, size: int) -> Int:
    """Append a column to keys; a missing part makes a missing key."""
    return np.where((keys >= 0) & (ranks >= 0), keys * size + ranks, -1)


def _joined(mine: Int, theirs: Int) -> tuple[int, int, int]:
    """Count rows of mine that match, rows of the join, and the most rows that one row matches."""
    keys, counts = np.unique(theirs[theirs >= 0], return_counts=True)
    at = find_sorted(keys, mine[mine >= 0])
    each = counts[at[at >= 0]]
    return len(each), int(each.sum()), int(each.max(initial=0))
