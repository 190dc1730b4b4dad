"""The probability of a hit: the chance that a person who knows both tables would make the join.

Joinability says how many cells match; this weighs it with what the columns are: their names and
titles, whether the target holds each value once, how common it is that such numbers match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Int32, Marks, find_sorted
from deepjoin.lazy import cached_property
from deepjoin.matching.names import Bits, NameTable, home_of, letters_of, shared_letters, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import Hit
from deepjoin.search.query import SearchQuery
from deepjoin.store.catalog import Catalog
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
    #: The names of the columns, and the letters of their tables' titles.
    name: NameTable
    title: Bits


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
    in_table, table_in = shared_letters(query.name.stems, target.title)
    _, home = shared_letters(target.name.stems, target.title)
    alike, _ = shared_letters(query.title, target.title)
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
    rows = np.empty((len(query.size), len(HIT_FEATURES)))
    for at, feature in enumerate(HIT_FEATURES):
        rows[:, at] = values[feature]
    return rows


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
        query, catalog = self.query, segment.catalog
        count = len(columns)
        tables = catalog.column_tables[columns]
        column = query.column
        title = column.title or short_name(column.table or "")
        # Many columns have the same names; titles differ, and only their letters count.
        names, number = _numbered(catalog.column_names.take(columns))
        words = NameTable.of([column.name, *names])
        letters = letters_of([title, *self._titles(catalog, tables)])
        own, (kind, generic) = np.zeros(count, np.int64), self._kinds
        mine = PairSide(
            np.full(count, len(query)),
            np.full(count, len(query) / max(1, sum(query.cells.counts))),
            *(own + int(kind), own + int(generic)),
            *(words.take(own), np.broadcast_to(letters[0], letters[1:].shape)),
        )
        sizes = segment.values.sizes(columns)
        theirs = PairSide(
            sizes,
            sizes / np.maximum(1, catalog.column_cells[columns]),
            np.asarray(catalog.column_types[columns]),
            np.asarray(catalog.column_generic[columns]),
            *(words.take(number + 1), letters[1:]),
        )
        place = np.array([column_place(one) for one in catalog.column_ids.take(columns)])
        unknown = np.zeros(count)
        shared = Shared(unknown, unknown, unknown, place, self._are_near(catalog, tables))
        return hit_features(mine, theirs, shared)

    def probabilities(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Return the chance of each column."""
        rows = self.features(segment, columns, shares, reverse, meaning)
        found = shipped_model("hit", HIT_FEATURES).probabilities(rows)
        said = decisions(self.query, segment, columns)
        return np.where(said == 0, found, said > 0)

    def _titles(self, catalog: Catalog, tables: Int) -> list[str]:
        """Return the titles of tables, or their names without folders and endings."""
        titles = catalog.titles(tables)
        without = [at for at, title in enumerate(titles) if not title]
        names = catalog.table_names.take(tables[without])
        for at, name in zip(without, names, strict=True):
            titles[at] = short_name(name)
        return titles

    def _are_near(self, catalog: Catalog, tables: Int) -> Marks:
        """Mark tables in the folder, workbook, schema or database of the query's own."""
        place = home_of(self.query.column.table or "")
        if not place:
            return np.zeros(len(tables), bool)
        return np.array([home_of(name) == place for name in catalog.table_names.take(tables)])


class KeySide(NamedTuple):
    """One side of a join on several columns: its tuples are weighed like the values of a column."""

    names: Sequence[str]
    title: str
    table: str
    #: Distinct tuples and complete rows.
    size: int
    rows: int
    #: Type and kind of generic key of each column.
    kinds: Sequence[int]
    generics: Sequence[int]
    #: Place of the first column in its table.
    place: int = 0


def key_probabilities(
    query: KeySide, targets: Sequence[KeySide], shares: Double, reverse: Double
) -> Double:
    """Return the chance of joins on several columns, by the model for one column.

    The name of a key is that of all its columns. It has the type of its columns if they are of one
    type, else text, and it is generic if every column is: years and flags together prove little.
    """
    count = len(targets)
    words = NameTable.of([" ".join(side.names) for side in (query, *targets)])
    letters = letters_of([side.title or short_name(side.table) for side in (query, *targets)])
    own = np.zeros(count, np.int64)

    def side(of: Sequence[KeySide], rows: Int) -> PairSide:
        kinds = [one.kinds[0] if len(set(one.kinds)) == 1 else 0 for one in of]
        generics = [one.generics[0] if all(one.generics) else 0 for one in of]
        size = np.array([one.size for one in of])
        cells = np.array([max(1, one.rows) for one in of])
        return PairSide(
            *(np.maximum(1, size), size / cells, np.array(kinds), np.array(generics)),
            *(words.take(rows), letters[rows]),
        )

    place = np.array([one.place for one in targets])
    home = home_of(query.table)
    near = np.array([bool(home) and home_of(one.table) == home for one in targets], bool)
    rows = hit_features(
        side([query] * count, own),
        side(targets, np.arange(1, count + 1)),
        Shared(shares, reverse, np.zeros(count), place, near),
    )
    same = [list(one.kinds) == list(query.kinds) for one in targets]
    rows[:, _AT["same_type"]] = same
    return shipped_model("hit", HIT_FEATURES).probabilities(rows)


def _numbered(names: Sequence[str]) -> tuple[list[str], Int]:
    """Return the different names, and the number of each name among them."""
    numbers: dict[str, int] = {}
    each = [numbers.setdefault(name, len(numbers)) for name in names]
    return list(numbers), np.array(each, np.int64)


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
