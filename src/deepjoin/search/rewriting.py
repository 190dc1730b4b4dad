"""Columns that join by a program: `F. Last` with `Last, First`, 1001 with 01001, dates.

Values that a program may rewrite to one another share a signature
(`store/values/signatures.py`), so the postings of signatures propose columns. A program that
explains a good part of the query's cells must be found before one becomes a hit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Marks, distinct, find_sorted
from deepjoin.embed.cells.tokens import text_array
from deepjoin.matching.similar import postings_of
from deepjoin.model import SemanticEvidence
from deepjoin.progress import check_stop
from deepjoin.search.evidence import ColumnMatch
from deepjoin.search.query import SearchOptions, SearchQuery, excluded_columns
from deepjoin.store.segment import Segment
from deepjoin.store.values.signatures import signatures_of

if TYPE_CHECKING:
    from deepjoin.matching.programs import Rewriting

_Texts: TypeAlias = tuple[str, ...]
_Pairs: TypeAlias = tuple[tuple[int, int], ...]

#: What hits say they were found by.
PROGRAM = "program"
#: Cells whose signatures are looked up, and the most values and columns of one signature.
_LOOKED_UP, _MOST_VALUES, _MOST_COLUMNS = 1000, 64, 4096
#: Columns for which a program is looked for, and the share of the cells one must promise.
_TRIED, _PROMISE = 4, 0.2
#: A column that promises less than this share of the best is not tried.
_NEARLY = 0.5
#: Pairs that programs are learned from, and that they must hold for.
_EXAMPLES, _CHECKED = 24, 200
#: Values of a column, and cells of the query, that a program is looked for with.
_VALUES, _CELLS = 20_000, 5_000


def columns_by_program(
    query: SearchQuery,
    segments: Sequence[Segment],
    options: SearchOptions,
    tau: float,
    is_worth: Callable[[Segment, int], bool],
    tables: Sequence[Marks] | None = None,
) -> list[ColumnMatch]:
    """Find the columns that hold what a program makes of the query's cells, or the other way.

    Only columns that are ``is_worth`` it are looked at: looking for programs takes long. With
    ``tables``, marks for each segment, only columns of the tables marked.
    """
    if len(query) < 2 or query.cells.hidden is not None:
        return []
    found = []

    @cache  # a lake has copies of many a column
    def programs(theirs: _Texts, free: tuple[int, ...], pairs: _Pairs) -> list[Rewriting]:
        from deepjoin.matching.programs import find_programs  # most queries have nothing to look at

        some = _spread(pairs, _EXAMPLES), _spread(pairs, _CHECKED)
        return find_programs(query.cells.spellings, theirs, np.array(free, np.int64), *some)

    for one in _promising(query, segments, options, tables):
        check_stop()
        if options.is_late:
            break
        if not is_worth(one.segment, one.column):
            continue
        match = _rewritten(query, one, tau, programs)
        if match is None:  # those that promise less seldom hold one either
            break
        if match.joinability >= options.threshold:
            found.append(match)
    return sorted(found, key=lambda match: -match.joinability)


class _Proposed(NamedTuple):
    """A column that may join by a program, and which cell shares a signature with which value."""

    gain: float
    segment: Segment
    column: int
    pairs: Int


def _promising(
    query: SearchQuery,
    segments: Sequence[Segment],
    options: SearchOptions,
    tables: Sequence[Marks] | None,
) -> list[_Proposed]:
    """List the columns that hold values of the same signatures, most promising first."""
    cells = np.arange(len(query))
    if len(cells) > _LOOKED_UP:
        cells = np.linspace(0, len(cells) - 1, _LOOKED_UP).astype(np.int64)
    texts = text_array([query.cells.values[cell] for cell in cells.tolist()])
    wanted = signatures_of(texts, every=True)
    least = max(2.0, _PROMISE * len(cells))
    proposed: list[_Proposed] = []
    for number, segment in enumerate(segments):
        if segment.signatures is None or segment.values.columns == 0:
            continue
        index, equal = segment.values, query.values_in(segment).numbers[cells]
        who, values = segment.signatures.look_up(wanted.hashes, _MOST_VALUES)
        bare = index.look_up(wanted.words)
        who = np.concatenate([wanted.values[who], wanted.bare[bare >= 0]])
        values = np.concatenate([values, bare[bare >= 0]])
        # The cell itself and what is everywhere propose nothing.
        kept = (values != equal[who]) & (index.frequency(values) <= _MOST_COLUMNS)
        pairs = _distinct_pairs(who[kept], values[kept])
        which, columns = postings_of(index, pairs[1])
        places, gained = _cells_by_column(pairs[0][which], columns)
        places, gained = places[gained >= least], gained[gained >= least]
        if len(places) == 0:
            continue
        held, held_by = postings_of(index, equal[equal >= 0])
        equals, has_equal = _cells_by_column(np.flatnonzero(equal >= 0)[held], held_by)
        at = find_sorted(equals, places)
        # A column that holds the cells as they are needs no program.
        chosen = gained > np.where(at >= 0, np.append(has_equal, 0)[at], 0)
        out = excluded_columns(segment, options.exclude)
        if out is not None:
            chosen &= ~out[places]
        if tables is not None:
            chosen &= tables[number][segment.catalog.column_tables[places]]
        places, gained = places[chosen], gained[chosen]
        shares = gained - 0.1 * np.log1p(index.sizes(places))
        pairs = np.stack([cells[pairs[0]], pairs[1]])
        proposed += [
            _Proposed(share, segment, place, pairs)
            for share, place in zip(shares.tolist(), places.tolist(), strict=True)
        ]
    proposed.sort(key=lambda one: -one.gain)
    return [one for one in proposed[:_TRIED] if one.gain >= _NEARLY * proposed[0].gain]


def _cells_by_column(cells: Int, columns: Int | Int32) -> tuple[Int, Int]:
    """Return the different columns, and how many distinct cells each has."""
    held_by = _distinct_pairs(columns, cells)[0]
    starts = np.flatnonzero(np.diff(held_by, prepend=-1))
    return held_by[starts], np.diff(starts, append=len(held_by))


def _distinct_pairs(first: Int | Int32, second: Int | Int32) -> Int:
    """Return the different pairs of two lists of numbers below 2**31, in order."""
    packed = distinct(first.astype(np.int64) << 32 | second)
    return np.stack([packed >> 32, packed & 0xFFFFFFFF])


def _rewritten(
    query: SearchQuery,
    proposed: _Proposed,
    tau: float,
    programs: Callable[[_Texts, tuple[int, ...], _Pairs], list[Rewriting]],
) -> ColumnMatch | None:
    """Look for programs between the query and a column, and measure what they match."""
    segment, column = proposed.segment, proposed.column
    index = segment.values
    start, stop = index.cells_of(column)
    entries = np.arange(start, stop)
    if len(entries) > _VALUES:
        entries = entries[np.linspace(0, len(entries) - 1, _VALUES).astype(np.int64)]
    values, theirs = index.cell_values[entries].astype(np.int64), index.cells(entries)
    size, numbers = len(query), query.values_in(segment).numbers
    held = index.cell_values[start:stop]
    at = np.minimum(np.searchsorted(held, numbers.astype(np.int64)), len(held) - 1)
    is_equal = (numbers >= 0) & (held[at] == numbers)
    free = np.flatnonzero(~is_equal)
    scale = max(1.0, len(free) / _CELLS)
    if scale > 1:
        free = free[np.linspace(0, len(free) - 1, _CELLS).astype(np.int64)]
    found = programs(tuple(theirs), tuple(free.tolist()), _pairs(proposed, values))
    if not found:
        return None
    cells = np.concatenate([one.left for one in found])
    places = np.concatenate([one.right for one in found])
    reverse = len(distinct(values[places])) + int(is_equal.sum())
    # Of several partners, the first is shown.
    cells, first = np.unique(cells, return_index=True)
    matched = np.concatenate([np.flatnonzero(is_equal), cells])
    order = np.argsort(matched, kind="stable")
    whole = np.concatenate([numbers[is_equal], values[places[first]]])
    share = min(1.0, (int(is_equal.sum()) + scale * len(cells)) / size)
    ones: Double = np.ones(len(matched))
    return ColumnMatch(
        *(segment, column, matched[order], whole[order], ones),
        SemanticEvidence(len(matched) / size, reverse / (stop - start), len(matched), tau),
        *("any", share, share),
        found_by=(PROGRAM,),
        programs=tuple(one.program for one in found),
        rewritten=frozenset(cells.tolist()),
    )


def _pairs(proposed: _Proposed, values: Int) -> _Pairs:
    """List the pairs of the same signature: cells, and places among the values."""
    cells, wanted = proposed.pairs
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    here = values[at] == wanted
    return tuple(zip(cells[here].tolist(), at[here].tolist(), strict=True))


def _spread(pairs: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Choose some of the pairs at even distances."""
    places = np.linspace(0, len(pairs) - 1, min(most, len(pairs))).astype(np.int64)
    return [pairs[place] for place in places.tolist()]
