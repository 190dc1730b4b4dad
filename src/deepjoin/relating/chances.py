"""The chance that a person would make a join of two columns of the lake, as the search has it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int
from deepjoin.lazy import cached_property
from deepjoin.matching.names import Bits, NameTable, home_of, letters_of, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import JoinEdge
from deepjoin.normalise.canonical import CellType
from deepjoin.relating.edges import JoinedColumns
from deepjoin.relating.partners import JoinLinks
from deepjoin.search.likely import (
    HIT_FEATURES,
    PairSide,
    Shared,
    column_place,
    hit_features,
)
from deepjoin.store.feedback import Feedback
from deepjoin.store.segment import Numbering

#: Pairs of one table whose chance is estimated, the strongest; the others have next to none.
_WEIGHED, _NEXT_TO_NONE = 1000, 1e-4
_DIGITS = 9
#: The usual length of values and share of digits in them, of text and of other types.
_TEXT_SPELLED, _OTHER_SPELLED = (12.0, 0.0), (4.0, 1.0)
#: Edges of a graph whose chances are estimated at a time.
_PAIRS = 1 << 16


class LinkChances:
    """Estimates chances of joins from what is stored of their columns.

    The column with fewer values is taken for the query, so that the chance is the same from both
    sides, and however the lake is cut into segments.
    """

    def __init__(self, lake: Numbering, feedback: Feedback) -> None:
        self._lake = lake
        self._said = SaidOfEdges(feedback)

    @cached_property
    def _stored(self) -> tuple[Int, Int, Int]:
        """Cells, types and generic keys of all columns."""
        cells, types, generic = (
            np.concatenate([np.asarray(getattr(one.catalog, of)) for one in self._lake.segments])
            for of in ("column_cells", "column_types", "column_generic")
        )
        return cells.astype(np.int64), types.astype(np.int64), generic.astype(np.int64)

    def weigh(self, links: JoinLinks) -> JoinLinks:
        """Return pairs with their chances."""
        if not len(links.a):
            return links
        lake = self._lake
        best = np.lexsort((-links.matched, -links.strength))[:_WEIGHED]
        a, b = links.a[best], links.b[best]
        sizes, places = (lake.sizes[a], lake.sizes[b]), (lake.order[a], lake.order[b])
        is_turned = (sizes[1] < sizes[0]) | ((sizes[1] == sizes[0]) & (places[1] < places[0]))
        query, target = np.where(is_turned, b, a), np.where(is_turned, a, b)
        chance = _NEXT_TO_NONE * links.strength
        chance[best] = self._estimated(query, target, links.matched[best])
        return links._replace(chance=self._with_decisions(links.a, links.b, chance))

    def of_edges(self, found: JoinedColumns) -> Double:
        """Return the chances of edges, of which ``a`` is the smaller column."""
        chance = np.zeros(len(found.a))
        for start in range(0, len(chance), _PAIRS):
            some = slice(start, start + _PAIRS)
            chance[some] = self._estimated(found.a[some], found.b[some], found.matched[some])
        return self._with_decisions(found.a, found.b, chance)

    def _estimated(self, query: Int, target: Int, matched: Int) -> Double:
        """Estimate the chances of pairs, whose smaller columns are the queries."""
        lake = self._lake
        columns, number = np.unique(np.concatenate([query, target]), return_inverse=True)
        described = _Described.of(lake, columns)
        left, right = number[: len(query)], number[len(query) :]
        shared = Shared(
            matched / lake.sizes[query],
            matched / lake.sizes[target],
            np.zeros(len(query)),
            described.place[right],
            (described.home[left] == described.home[right]) & (described.home[left] != 0),
            *self._spelled(query),
        )
        one, other = (self._side(columns, at, described) for at in (left, right))
        rows = hit_features(one, other, shared)
        found = shipped_model("hit", HIT_FEATURES).probabilities(rows)
        # How many are weighed at once changes the last digits.
        return np.round(found, _DIGITS)

    def _spelled(self, columns: Int) -> tuple[Double, Double]:
        """Return the usual spelling of values of the columns' types; stored ones may be hashes."""
        is_text = self._stored[1][columns] == CellType.TEXT
        length, digits = np.where(is_text[:, None], _TEXT_SPELLED, _OTHER_SPELLED).T
        return length, digits

    def _side(self, columns: Int, at: Int, described: _Described) -> PairSide:
        cells, types, generic = self._stored
        sizes, chosen = self._lake.sizes[columns[at]], columns[at]
        return PairSide(
            sizes,
            sizes / np.maximum(1, cells[chosen]),
            *(types[chosen], generic[chosen]),
            *(described.names.take(described.name[at]), described.titles[described.title[at]]),
        )

    def _with_decisions(self, a: Int, b: Int, chance: Double) -> Double:
        """Put what people said in the place of what was estimated."""
        if self._said:
            for place, (one, other) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
                said = self._said.of(self._end(one), self._end(other))
                chance[place] = chance[place] if said is None else said
        return chance

    def _end(self, column: int) -> tuple[str, str]:
        lake = self._lake
        return lake.table_name(int(lake.tables[column])), lake.column_name(column)


class _Described(NamedTuple):
    """Names and places of some columns; equal names and titles are prepared once."""

    names: NameTable
    name: Int
    titles: Bits
    title: Int
    #: The place of a column in its table; the folder or database of it by number, 0 for none.
    place: Int
    home: Int

    @classmethod
    def of(cls, lake: Numbering, columns: Int) -> _Described:
        names: dict[str, int] = {}
        titles: dict[str, int] = {}
        homes: dict[str, int] = {"": 0}
        rows = []
        for column in columns.tolist():
            table = int(lake.tables[column])
            segment, number = lake.table(table)
            catalog = segment.catalog
            called = catalog.table_names[number]
            title = catalog.titles(np.array([number]))[0] or short_name(called)
            rows.append(
                (
                    names.setdefault(lake.column_name(column), len(names)),
                    titles.setdefault(title, len(titles)),
                    column_place(lake.column_id(column)),
                    homes.setdefault(home_of(called), len(homes)),
                )
            )
        name, title_of, place, home = np.array(rows, np.int64).reshape(-1, 4).T
        whole = NameTable.of(list(names)), name, letters_of(list(titles)), title_of
        return cls(*whole, place, home)


class SaidOfEdges:
    """What people said of joins of two columns, whichever is the child."""

    def __init__(self, feedback: Feedback) -> None:
        self._said: dict[frozenset[tuple[str, str]], bool] = {}
        for one in feedback:
            if len(one.child_columns) == 1:
                ends = frozenset(
                    {
                        (one.child_table, one.child_columns[0]),
                        (one.parent_table, one.parent_columns[0]),
                    }
                )
                # What was accepted in one direction counts, as for hits.
                self._said[ends] = self._said.get(ends, False) or one.accepted

    def __bool__(self) -> bool:
        return bool(self._said)

    def of(self, one: tuple[str, str], other: tuple[str, str]) -> bool | None:
        """Return whether a join was accepted or rejected; None if nobody said anything."""
        return self._said.get(frozenset({one, other}))

    def text(self, edge: JoinEdge) -> str:
        """Return what was said of an edge, in a word."""
        said = self.of((edge.a.table, edge.a.column), (edge.b.table, edge.b.column))
        return "" if said is None else "accepted" if said else "rejected"
