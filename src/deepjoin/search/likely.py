"""The probability of a hit: the chance that a person who knows both tables would make the join.

Joinability says how many cells match; this weighs it with what the columns are: their names and
titles, whether the target holds each value once, how common it is that such numbers match.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepjoin.arrays import Array, Double, Int, find_sorted
from deepjoin.lazy import cached_property
from deepjoin.matching.names import NameTable, home_of, letters_of, shared_letters, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.search.query import SearchQuery
from deepjoin.store.catalog import Catalog
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic

HIT_FEATURES = (
    *("joinability", "matched", "reverse", "query_size", "target_size", "query_unique"),
    *("target_unique", "text", "integer", "decimal", "date", "same_type", "run", "year", "flag"),
    *("target_run", "target_year", "target_flag", "place", "same_name", "same_stem"),
    *("name_letters", "name_letters_back", "name_meaning", "table_letters", "table_letters_back"),
    *("title_letters", "home", "query_key", "target_key", "query_named", "target_named"),
    "same_place",
)


#: Features that depend on the cells that match; the others on the two columns alone.
_MATCHED = ("joinability", "matched", "reverse", "name_meaning")
_AT = {name: at for at, name in enumerate(HIT_FEATURES)}


class QueryFacts:
    """What a query says of itself, prepared once for all of its candidates."""

    def __init__(self, query: SearchQuery) -> None:
        self.query = query
        #: For each segment, columns that were described before, ascending, and their features.
        self._described: dict[int, tuple[Int, Double]] = {}

    @cached_property
    def _kinds(self) -> tuple[int, Generic]:
        return self.query.kind, self.query.generic

    def features(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Measure columns of a segment: ``shares`` of the query's cells match, and back."""
        if len(columns) == 0:
            return np.zeros((0, len(HIT_FEATURES)))
        rows = self._columns(segment, columns)
        matched = np.log2(1 + shares * len(self.query))
        for name, values in zip(_MATCHED, (shares, matched, reverse, meaning), strict=True):
            rows[:, _AT[name]] = values
        return rows

    def _columns(self, segment: Segment, columns: Int) -> Double:
        """Describe columns; what is measured has been weighed before, so it is known."""
        if id(segment) in self._described:
            known, rows = self._described[id(segment)]
            at = find_sorted(known, columns)
            if (at >= 0).all():
                return rows[at]
        rows = self._describe(segment, columns)
        order = np.argsort(columns)
        self._described[id(segment)] = columns[order], rows[order]
        return rows

    def _describe(self, segment: Segment, columns: Int) -> Double:
        """Return all features, with 0 for those that depend on what matches."""
        query, catalog, count = self.query, segment.catalog, len(columns)
        size = len(query)
        sizes = segment.values.sizes(columns)
        tables = catalog.column_tables[columns]
        column = query.column
        title = column.title or short_name(column.table or "")
        # Many columns have the same names; titles differ, and only their letters count.
        names, number = _numbered(catalog.column_names.take(columns))
        words = NameTable.of([column.name, *names])
        mine, theirs = words.take(np.zeros(count, np.int64)), words.take(number + 1)
        letters = letters_of([title, *self._titles(catalog, tables)])
        of_table, own = letters[1:], np.broadcast_to(letters[0], letters[1:].shape)
        name, back = shared_letters(mine.letters, theirs.letters)
        in_table, table_in = shared_letters(mine.stems, of_table)
        _, home = shared_letters(theirs.stems, of_table)
        alike, _ = shared_letters(own, of_table)
        kind, generic = self._kinds
        types, others = catalog.column_types[columns], catalog.column_generic[columns]
        values: dict[str, Array | float] = {
            "query_size": np.log2(size),
            "target_size": np.log2(np.maximum(1, sizes)),
            "query_unique": size / max(1, sum(query.cells.counts)),
            "target_unique": sizes / np.maximum(1, catalog.column_cells[columns]),
            "text": kind == 0,
            "integer": kind == 1,
            "decimal": kind == 2,
            "date": kind == 3,
            "same_type": types == kind,
            "run": generic is Generic.RUN,
            "year": generic is Generic.YEAR,
            "flag": generic is Generic.FLAG,
            "target_run": others == Generic.RUN,
            "target_year": others == Generic.YEAR,
            "target_flag": others == Generic.FLAG,
            "place": np.array([_place(one) for one in catalog.column_ids.take(columns)]),
            "same_name": (mine.hashes == theirs.hashes) & (mine.hashes != 0),
            "same_stem": (mine.stem_hashes == theirs.stem_hashes) & (mine.stem_hashes != 0),
            "name_letters": name,
            "name_letters_back": back,
            "table_letters": in_table,
            "table_letters_back": table_in,
            "title_letters": alike,
            "home": home,
            "query_key": mine.is_key,
            "target_key": theirs.is_key,
            "query_named": mine.hashes != 0,
            "target_named": theirs.hashes != 0,
            "same_place": self._are_near(catalog, tables),
        }
        rows = np.zeros((count, len(HIT_FEATURES)))
        for feature, of in values.items():
            rows[:, _AT[feature]] = of
        return rows

    def probabilities(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Return the chance of each column."""
        rows = self.features(segment, columns, shares, reverse, meaning)
        return shipped_model("hit", HIT_FEATURES).probabilities(rows)

    def _titles(self, catalog: Catalog, tables: Int) -> list[str]:
        """Return the titles of tables, or their names without folders and endings."""
        titles = catalog.titles(tables)
        without = [at for at, title in enumerate(titles) if not title]
        names = catalog.table_names.take(tables[without])
        for at, name in zip(without, names, strict=True):
            titles[at] = short_name(name)
        return titles

    def _are_near(self, catalog: Catalog, tables: Int) -> Array | float:
        """Mark tables in the folder, workbook, schema or database of the query's own."""
        place = home_of(self.query.column.table or "")
        if not place:
            return 0.0
        return np.array([home_of(name) == place for name in catalog.table_names.take(tables)])


def _numbered(names: Sequence[str]) -> tuple[list[str], Int]:
    """Return the different names, and the number of each name among them."""
    numbers: dict[str, int] = {}
    each = [numbers.setdefault(name, len(numbers)) for name in names]
    return list(numbers), np.array(each, np.int64)


def _place(column_id: str) -> int:
    number = column_id.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0
