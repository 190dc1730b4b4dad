"""The chance that a person would make a join of two columns of the lake, as the search has it."""

from __future__ import annotations

import numpy as np

from deepjoin.arrays import Int
from deepjoin.lazy import cached_property
from deepjoin.matching.names import NameTable, home_of, letters_of, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import JoinEdge
from deepjoin.relating.partners import JoinLinks
from deepjoin.search.likely import HIT_FEATURES, PairSide, Shared, column_place, hit_features
from deepjoin.store.feedback import Feedback
from deepjoin.store.segment import Numbering

#: Pairs of one table whose chance is estimated, the strongest; the others have next to none.
_WEIGHED, _NEXT_TO_NONE = 1000, 1e-4
_DIGITS = 9


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
        homes = (
            [home_of(lake.table_name(table)) for table in lake.tables[columns].tolist()]
            for columns in (query, target)
        )
        shared = Shared(
            links.matched[best] / lake.sizes[query],
            links.matched[best] / lake.sizes[target],
            np.zeros(len(best)),
            np.array([column_place(lake.column_id(column)) for column in target.tolist()]),
            np.array([bool(one) and one == other for one, other in zip(*homes, strict=True)]),
        )
        rows = hit_features(self._side(query), self._side(target), shared)
        chance = _NEXT_TO_NONE * links.strength
        found = shipped_model("hit", HIT_FEATURES).probabilities(rows)
        # How many are weighed at once changes the last digits.
        chance[best] = np.round(found, _DIGITS)
        if self._said:
            ends = zip(links.a.tolist(), links.b.tolist(), strict=True)
            for place, (one, other) in enumerate(ends):
                said = self._said.of(self._end(one), self._end(other))
                chance[place] = chance[place] if said is None else said
        return links._replace(chance=chance)

    def _side(self, columns: Int) -> PairSide:
        lake, (cells, types, generic) = self._lake, self._stored
        names = [lake.column_name(column) for column in columns.tolist()]
        titles = [self._title(table) for table in lake.tables[columns].tolist()]
        sizes = lake.sizes[columns]
        return PairSide(
            sizes,
            sizes / np.maximum(1, cells[columns]),
            *(types[columns], generic[columns]),
            *(NameTable.of(names), letters_of(titles)),
        )

    def _title(self, table: int) -> str:
        segment, number = self._lake.table(table)
        return segment.catalog.titles(np.array([number]))[0] or short_name(
            segment.catalog.table_names[number]
        )

    def _end(self, column: int) -> tuple[str, str]:
        lake = self._lake
        return lake.table_name(int(lake.tables[column])), lake.column_name(column)


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
