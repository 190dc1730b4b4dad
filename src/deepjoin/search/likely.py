"""The probability of a hit: the chance that a person who knows both tables would make the join.

Joinability says how many cells match; this weighs it with what the columns are: their names and
titles, whether the target holds each value once, how common it is that such numbers match.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deepjoin.arrays import Double, Int, Int32
from deepjoin.lazy import cached_property
from deepjoin.matching.names import NameTable, home_of, shared_letters, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import Hit
from deepjoin.search.query import SearchQuery
from deepjoin.store.feedback import Decided
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


class QueryFacts:
    """What a query says of itself, prepared once for all of its candidates."""

    def __init__(self, query: SearchQuery) -> None:
        self._query = query
        self._tables: dict[tuple[int, int], str] = {}

    @cached_property
    def _kinds(self) -> tuple[int, Generic]:
        return self._query.kind, self._query.generic

    def features(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Measure columns of a segment: ``shares`` of the query's cells match, and back."""
        query, catalog, count = self._query, segment.catalog, len(columns)
        if count == 0:
            return np.zeros((0, len(HIT_FEATURES)))
        size = len(query)
        sizes = segment.values.sizes(columns)
        names = [catalog.column_names[column] for column in columns.tolist()]
        titles = [self._title(segment, int(table)) for table in catalog.column_tables[columns]]
        column = query.column
        title = column.title or short_name(column.table or "")
        words = NameTable.of([column.name, title, *names, *titles])
        mine = words.take(np.zeros(count, np.int64))
        own = words.take(np.ones(count, np.int64))
        theirs, tables = (
            words.take(np.arange(2, count + 2)),
            words.take(np.arange(count) + count + 2),
        )
        name, back = shared_letters(mine.letters, theirs.letters)
        in_table, table_in = shared_letters(mine.stems, tables.letters)
        _, home = shared_letters(theirs.stems, tables.letters)
        alike, _ = shared_letters(own.letters, tables.letters)
        kind, generic = self._kinds
        types, others = catalog.column_types[columns], catalog.column_generic[columns]
        ones = np.ones(count)
        values = {
            "joinability": shares,
            "matched": np.log2(1 + shares * size),
            "reverse": reverse,
            "query_size": np.log2(size) * ones,
            "target_size": np.log2(np.maximum(1, sizes)),
            "query_unique": size / max(1, sum(query.cells.counts)) * ones,
            "target_unique": sizes / np.maximum(1, catalog.column_cells[columns]),
            "text": (kind == 0) * ones,
            "integer": (kind == 1) * ones,
            "decimal": (kind == 2) * ones,
            "date": (kind == 3) * ones,
            "same_type": types == kind,
            "run": (generic is Generic.RUN) * ones,
            "year": (generic is Generic.YEAR) * ones,
            "flag": (generic is Generic.FLAG) * ones,
            "target_run": others == Generic.RUN,
            "target_year": others == Generic.YEAR,
            "target_flag": others == Generic.FLAG,
            "place": [_place(catalog.column_ids[one]) for one in columns.tolist()],
            "same_name": (mine.hashes == theirs.hashes) & (mine.hashes != 0),
            "same_stem": (mine.stem_hashes == theirs.stem_hashes) & (mine.stem_hashes != 0),
            "name_letters": name,
            "name_letters_back": back,
            "name_meaning": meaning,
            "table_letters": in_table,
            "table_letters_back": table_in,
            "title_letters": alike,
            "home": home,
            "query_key": mine.is_key,
            "target_key": theirs.is_key,
            "query_named": mine.hashes != 0,
            "target_named": theirs.hashes != 0,
            "same_place": [
                self._is_near(segment, table) for table in catalog.column_tables[columns].tolist()
            ],
        }
        return np.stack([np.asarray(values[name], np.float64) for name in HIT_FEATURES], axis=1)

    def probabilities(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Return the chance of each column."""
        rows = self.features(segment, columns, shares, reverse, meaning)
        found = shipped_model("hit", HIT_FEATURES).probabilities(rows)
        said = decisions(self._query, segment, columns)
        return np.where(said == 0, found, said > 0)

    def _title(self, segment: Segment, table: int) -> str:
        key = id(segment), table
        if key not in self._tables:
            title = segment.catalog.title(table)
            self._tables[key] = title or short_name(segment.catalog.table_names[table])
        return self._tables[key]

    def _is_near(self, segment: Segment, table: int) -> bool:
        """Whether a table is in the folder, workbook, schema or database of the query's own."""
        own = self._query.column.table
        if not own:
            return False
        place, name = home_of(own), segment.catalog.table_names[table]
        return bool(place) and home_of(name) == place


def decisions(query: SearchQuery, segment: Segment, columns: Int | Int32) -> Int:
    """Say of columns whether a person accepted (1) or rejected (-1) the join, or neither (0)."""
    said = np.zeros(len(columns), np.int64)
    if query.decided:
        catalog = segment.catalog
        for place, column in enumerate(columns.tolist()):
            table = catalog.table_names[int(catalog.column_tables[column])]
            found = query.decided.get((table, (catalog.column_names[column],)))
            said[place] = 0 if found is None else 1 if found else -1
    return said


def with_decision(hit: Hit, decided: Decided) -> Hit:
    """Mark a hit, and other columns of its table, with what a person said of the join."""
    also = tuple(with_decision(one, decided) for one in hit.also)
    found = decided.get((hit.table, hit.columns))
    if found is None:
        return replace(hit, also=also) if also else hit
    text = "accepted" if found else "rejected"
    return replace(hit, also=also, probability=float(found), decided=text)


def _place(column_id: str) -> int:
    number = column_id.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0
