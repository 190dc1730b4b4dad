"""The probability of a hit: the chance that a person who knows both tables would make the join.

Joinability says how many cells match; this weighs it with what the columns are: their names and
titles, whether the target holds each value once, how common it is that such numbers match.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Marks
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


class PairSide(NamedTuple):
    """One side of some pairs of columns: an entry for each pair."""

    #: Distinct values, the share of them among the cells, type and kind of generic key.
    size: Int
    unique: Double
    kind: Int
    generic: Int
    #: The names of the columns, and the titles of their tables.
    name: NameTable
    title: NameTable


class Shared(NamedTuple):
    """What the two columns of some pairs share."""

    #: Share of the query's values that match, and of the target's.
    joinability: Double
    reverse: Double
    #: Cosine of the two names; 0 where it is not known.
    meaning: Double
    #: Place of the target in its table, and whether both tables are in one folder or database.
    place: Int
    is_near: Marks


def hit_features(query: PairSide, target: PairSide, shared: Shared) -> Double:
    """Measure pairs: one row a pair, one column for each of `HIT_FEATURES`."""
    name, back = shared_letters(query.name.letters, target.name.letters)
    in_table, table_in = shared_letters(query.name.stems, target.title.letters)
    _, home = shared_letters(target.name.stems, target.title.letters)
    alike, _ = shared_letters(query.title.letters, target.title.letters)
    same, same_stem = (
        (getattr(query.name, of) == getattr(target.name, of)) & (getattr(query.name, of) != 0)
        for of in ("hashes", "stem_hashes")
    )
    values = {
        "joinability": shared.joinability,
        "matched": np.log2(1 + shared.joinability * query.size),
        "reverse": shared.reverse,
        "query_size": np.log2(query.size),
        "target_size": np.log2(np.maximum(1, target.size)),
        "query_unique": query.unique,
        "target_unique": target.unique,
        "text": query.kind == 0,
        "integer": query.kind == 1,
        "decimal": query.kind == 2,
        "date": query.kind == 3,
        "same_type": target.kind == query.kind,
        "run": query.generic == Generic.RUN,
        "year": query.generic == Generic.YEAR,
        "flag": query.generic == Generic.FLAG,
        "target_run": target.generic == Generic.RUN,
        "target_year": target.generic == Generic.YEAR,
        "target_flag": target.generic == Generic.FLAG,
        "place": shared.place,
        "same_name": same,
        "same_stem": same_stem,
        "name_letters": name,
        "name_letters_back": back,
        "name_meaning": shared.meaning,
        "table_letters": in_table,
        "table_letters_back": table_in,
        "title_letters": alike,
        "home": home,
        "query_key": query.name.is_key,
        "target_key": target.name.is_key,
        "query_named": query.name.hashes != 0,
        "target_named": target.name.hashes != 0,
        "same_place": shared.is_near,
    }
    return np.stack([np.asarray(values[name], np.float64) for name in HIT_FEATURES], axis=1)


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
        tables = catalog.column_tables[columns].tolist()
        names = [catalog.column_names[column] for column in columns.tolist()]
        column = query.column
        title = column.title or short_name(column.table or "")
        words = NameTable.of(
            [column.name, title, *names, *(self._title(segment, table) for table in tables)]
        )
        own = np.zeros(count, np.int64)
        kind, generic = self._kinds
        mine = PairSide(
            np.full(count, len(query)),
            np.full(count, len(query) / max(1, sum(query.cells.counts))),
            *(own + int(kind), own + int(generic), words.take(own), words.take(own + 1)),
        )
        order = np.arange(count)
        sizes = segment.values.sizes(columns)
        theirs = PairSide(
            sizes,
            sizes / np.maximum(1, catalog.column_cells[columns]),
            np.asarray(catalog.column_types[columns]),
            np.asarray(catalog.column_generic[columns]),
            *(words.take(order + 2), words.take(order + count + 2)),
        )
        place = np.array([column_place(catalog.column_ids[one]) for one in columns.tolist()])
        near = np.array([self._is_near(segment, table) for table in tables])
        return hit_features(mine, theirs, Shared(shares, reverse, meaning, place, near))

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


def column_place(column_id: str) -> int:
    """Return the place of a column in its table, from 0, as its id has it."""
    number = column_id.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0
