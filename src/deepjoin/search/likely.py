"""The probability of a hit: the chance that a person who knows both tables would make the join.

Joinability says how many cells match; this weighs it with what the columns are: their names and
titles, whether the target holds each value once, how common it is that such numbers match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from deepjoin.arrays import Array, Double, Int, Int32, Marks, distinct, find_sorted
from deepjoin.lazy import cached_property
from deepjoin.matching.names import Bits, NameTable, home_of, letters_of, shared_letters, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import Hit
from deepjoin.search.query import SearchQuery
from deepjoin.store.catalog import Catalog
from deepjoin.store.feedback import Decided
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic

if TYPE_CHECKING:
    from deepjoin.search.scores import ColumnScores

HIT_FEATURES = (
    *("joinability", "matched", "reverse", "query_size", "target_size", "query_unique"),
    *("target_unique", "text", "integer", "decimal", "date", "same_type", "run", "year", "flag"),
    *("target_run", "target_year", "target_flag", "place", "same_name", "same_stem"),
    *("name_letters", "name_letters_back", "name_meaning", "table_letters", "table_letters_back"),
    *("title_letters", "home", "query_key", "target_key", "query_named", "target_named"),
    *("same_place", "query_home", "child_letters", "child_letters_back", "length", "digits"),
)
#: Values of a query whose spelling is looked at.
_SPELLED = 256


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
    place: Int | Int32
    is_near: Marks
    #: How the query's values are spelled: see `spelled`.
    length: Double | float
    digits: Double | float


def spelled(values: Sequence[str]) -> tuple[float, float]:
    """Return the mean length of values, and the share of their characters that are digits.

    Short numbers meet by chance, whatever surrounds them; long codes do not.

    >>> spelled(["R+27", "R+9"])
    (3.5, 0.42857142857142855)
    """
    some = values[:: max(1, len(values) // _SPELLED)]
    text = "".join(some)
    digits = sum(map(text.count, "0123456789"))
    return len(text) / max(1, len(some)), digits / max(1, len(text))


def hit_features(query: PairSide, target: PairSide, shared: Shared) -> Double:
    """Measure pairs: one row a pair, one column for each of `HIT_FEATURES`."""
    # All pairs of letters at once: of ten hits, calls take longer than what they compute.
    mine, theirs = query.name, target.name
    one = (mine.letters, mine.stems, theirs.stems, query.title, mine.stems, theirs.stems)
    other = (theirs.letters, *[target.title] * 3, query.title, query.title)
    shape = (len(one), *target.title.shape)
    left, right = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
    for at, (these, those) in enumerate(zip(one, other, strict=True)):
        left[at], right[at] = these, those
    (name, in_table, _, alike, _, refers), backs = shared_letters(left, right)
    back, table_in, home, _, query_home, refers_back = backs
    same = (mine.hashes == theirs.hashes) & (mine.hashes != 0)
    same_stem = (mine.stem_hashes == theirs.stem_hashes) & (mine.stem_hashes != 0)
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
        "query_home": query_home,
        "child_letters": refers,
        "child_letters_back": refers_back,
        "length": np.log2(1 + np.asarray(shared.length)),
        "digits": shared.digits,
    }
    # Feature by feature in memory, as trees look at them.
    rows = np.empty((len(HIT_FEATURES), len(target.size)))
    for at, feature in enumerate(HIT_FEATURES):
        rows[at] = values[feature]
    return rows.T


#: Features that depend on the cells that match; the others on the two columns alone.
_MATCHED = ("joinability", "matched", "reverse", "name_meaning")
_AT = {name: at for at, name in enumerate(HIT_FEATURES)}
#: Columns of a segment that are kept described: 21 MB, and as many names.
_KEPT = 1 << 19
_FACTS = np.dtype([("title", np.uint64, 4), ("name", np.int32), ("place", np.int32)])
_NAMES = np.dtype(
    [(name, np.uint64, 4) for name in ("letters", "stems")]
    + [(name, np.uint64) for name in ("hashes", "stem_hashes")]
    + [("is_key", bool)]
)


class TargetFacts:
    """What columns of a segment say of themselves; queries meet many of them again and again."""

    _of: ClassVar[WeakKeyDictionary[Catalog, TargetFacts]] = WeakKeyDictionary()

    def __init__(self, segment: Segment) -> None:
        # The segment itself is not kept: what is, would keep its key, the catalog, for good.
        self._lock = Lock()
        #: Where a column is among those described so far; -1: nowhere.
        self._places = np.full(segment.values.columns, -1, np.int32)
        self._facts, self._count = np.zeros(0, _FACTS), 0
        #: Many columns have the same names: the number of each, and what it says.
        self._numbers: dict[str, int] = {}
        self._spelled: list[str] = []
        self._names = np.zeros(0, _NAMES)

    @classmethod
    def of(cls, segment: Segment) -> TargetFacts:
        """Return those of a segment, which it shares with its earlier and later states."""
        found = cls._of.get(segment.catalog)
        return cls._of.setdefault(segment.catalog, cls(segment)) if found is None else found

    def side(self, segment: Segment, columns: Int) -> tuple[PairSide, Int32]:
        """Return columns as targets, and their places in their tables."""
        catalog, size = segment.catalog, segment.values.sizes(columns)
        with self._lock:
            facts = self._described(catalog, columns)
            names = self._names[facts["name"]]
        words = NameTable(
            *(names["letters"], names["stems"], names["hashes"], names["stem_hashes"]),
            *(names["is_key"], np.zeros((len(columns), 0), np.float16)),
        )
        unique = size / np.maximum(1, catalog.column_cells[columns])
        kinds = catalog.column_types[columns], catalog.column_generic[columns]
        return PairSide(size, unique, *kinds, words, facts["title"]), facts["place"]

    def names(self, segment: Segment, columns: Int) -> tuple[list[str], Int]:
        """Return the different names of columns, and which of these each has."""
        with self._lock:
            numbers = self._described(segment.catalog, columns)["name"]
            different = distinct(numbers)
            names = [self._spelled[number] for number in different.tolist()]
        return names, np.searchsorted(different, numbers)

    def _described(self, catalog: Catalog, columns: Int) -> Array:
        places = self._places[columns]
        new = distinct(columns[places < 0])
        if self._count + len(new) > _KEPT:
            self._places.fill(-1)
            self._count, self._numbers, self._spelled = 0, {}, []
            new = distinct(columns)
        if len(new):
            first, self._count = self._count, self._count + len(new)
            if self._count > len(self._facts):
                self._facts = np.resize(self._facts, 2 * self._count)
            self._facts[first : self._count] = self._describe(catalog, new)
            self._places[new] = np.arange(first, self._count)
            places = self._places[columns]
        return self._facts[places]

    def _describe(self, catalog: Catalog, columns: Int) -> Array:
        """Return what columns say of themselves."""
        facts, known = np.zeros(len(columns), _FACTS), self._numbers
        names, count = catalog.column_names.take(columns), len(known)
        if new := [name for name in dict.fromkeys(names) if name not in known]:
            known |= zip(new, range(count, count + len(new)), strict=True)
            self._spelled += new
            words = NameTable.of(new)
            if len(known) > len(self._names):
                self._names = np.resize(self._names, 2 * len(known))
            for field in _NAMES.names or ():
                self._names[field][count : len(known)] = getattr(words, field)
        facts["name"] = [known[name] for name in names]
        facts["title"] = letters_of(_titles(catalog, catalog.column_tables[columns]))
        facts["place"] = [column_place(one) for one in catalog.column_ids.take(columns)]
        return facts


def _titles(catalog: Catalog, tables: Int) -> list[str]:
    """Return the titles of tables, or their names without folders and endings."""
    titles = catalog.titles(tables)
    without = [at for at, title in enumerate(titles) if not title]
    names = catalog.table_names.take(tables[without])
    for at, name in zip(without, names, strict=True):
        titles[at] = short_name(name)
    return titles


class QueryFacts:
    """What a query says of itself, prepared once for all of its candidates."""

    def __init__(self, query: SearchQuery) -> None:
        self.query = query
        #: For each segment, columns that were described before, ascending, and their features.
        self._described: dict[int, tuple[Int, Double]] = {}
        #: Kept with the scores, so that no others get their id.
        self._chances: dict[int, tuple[ColumnScores, list[float]]] = {}

    @cached_property
    def _side(self) -> PairSide:
        query, column = self.query, self.query.column
        title = column.title or short_name(column.table or "")
        return PairSide(
            np.array([len(query)]),
            np.array([len(query) / max(1, sum(query.cells.counts))]),
            *(np.array([int(query.kind)]), np.array([int(query.generic)])),
            *(NameTable.of([column.name]), letters_of([title])),
        )

    @cached_property
    def _spelled(self) -> tuple[float, float]:
        return spelled(self.query.cells.values)

    def chances(self, scores: ColumnScores) -> list[float]:
        """Return the chance of each column that was scored, computed once."""
        if id(scores) not in self._chances:
            found = self.probabilities(
                *(scores.segment, scores.columns, scores.joinabilities(len(self.query))),
                *(scores.reverse, scores.names),
            )
            self._chances[id(scores)] = scores, found.tolist()
        return self._chances[id(scores)][1]

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
        """Describe columns, with 0 for what depends on cells; many were described before."""
        if id(segment) in self._described:
            known, rows = self._described[id(segment)]
            at = find_sorted(known, columns)
            if (at >= 0).all():
                return rows.T.take(at, axis=1).T
        target, place = TargetFacts.of(segment).side(segment, columns)
        unknown = np.zeros(len(columns))
        near = self._are_near(segment.catalog, segment.catalog.column_tables[columns])
        shared = Shared(unknown, unknown, unknown, place, near, *self._spelled)
        rows = hit_features(self._side, target, shared)
        order = np.argsort(columns)
        self._described[id(segment)] = columns[order], rows.T.take(order, axis=1).T
        return rows

    def probabilities(
        self, segment: Segment, columns: Int, shares: Double, reverse: Double, meaning: Double
    ) -> Double:
        """Return the chance of each column."""
        rows = self.features(segment, columns, shares, reverse, meaning)
        found = shipped_model("hit", HIT_FEATURES).probabilities(rows)
        if not self.query.decided:
            return found
        said = decisions(self.query, segment, columns)
        return np.where(said == 0, found, said > 0)

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
    #: How the values of each column are spelled: see `spelled`. Of targets nobody asks.
    spellings: Sequence[tuple[float, float]] = ()


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
    length = sum(one for one, _ in query.spellings)
    digits = sum(one * share for one, share in query.spellings)
    rows = hit_features(
        side([query] * count, own),
        side(targets, np.arange(1, count + 1)),
        Shared(shares, reverse, np.zeros(count), place, near, length, digits / max(1, length)),
    )
    same = [list(one.kinds) == list(query.kinds) for one in targets]
    rows[:, _AT["same_type"]] = same
    return shipped_model("hit", HIT_FEATURES).probabilities(rows)


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
