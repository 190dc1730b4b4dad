"""Keys and foreign keys of a lake, each with the chance that a person would agree.

All inclusions come exactly from the postings (`self_join`); `evidence` measures each pair, and the
trees of `deepjoin.matching.sense` weigh it: first every pair alone, then beside its rivals, since
a child has one parent.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from deepjoin.arrays import Double, Int, Integers, Marks, find_sorted, places_in_runs
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.matching.joinability import cardinality_of
from deepjoin.matching.names import Role, key_words, shared_letters, short_name
from deepjoin.matching.sense import shipped_model
from deepjoin.model import Decision, Relation, TableKey, to_json
from deepjoin.normalise.canonical import CellType
from deepjoin.relating import diagram, output
from deepjoin.relating.composite_keys import KeyFinder, KeyPair
from deepjoin.relating.evidence import FEATURES, RIVALS, Pairs, features, rivals
from deepjoin.relating.facts import ColumnFacts, DeclaredKey, declared_keys
from deepjoin.relating.saved_pairs import known_pairs, pairs_of, save_pairs
from deepjoin.relating.self_join import SelfJoin
from deepjoin.store.feedback import ends_of
from deepjoin.store.open_index import OpenIndex
from deepjoin.store.segment import Numbering

#: The least share of a child's values that its parent holds.
CONTAINED = 0.5
#: In a lake of more columns than this, the share is higher and pairs are fewer: chance finds more.
_MANY_COLUMNS = 20_000
_CONTAINED_IN_MANY = 0.8
#: A parent has few values twice.
_UNIQUE = 0.8
#: Parents of one child that are weighed in a lake of many columns, best covered first.
_PARENTS = 8
#: Pairs of any lake that are weighed at most without choosing among the parents of each child.
_WEIGHED = 1 << 18
#: Seconds of comparing columns from which on what was found is kept beside the index.
_WORTH_SAVING = 2.0
#: Relations of one child that are listed.
_LISTED = 5
#: Pairs measured at a time.
_PAIRS = 1 << 15
#: Orphans that a relation lists.
_ORPHANS = 10
#: Share of its letters that a name has in common with one it is said to be like.
_ALIKE = 0.6
#: The score of a pair that a person accepted, and of one rejected if negative.
_SURE = 9.0
#: A column that holds this share of a range of whole numbers holds others by chance.
_DENSE = 0.5

#: What speaks for a column being the key of its table.
KEY_FEATURES = (
    *("unique", "filled", "place", "first", "home", "is_key", "bare", "text", "integer", "decimal"),
    *("date", "run", "length", "size", "referred", "rivals"),
)


class RelatedColumns(Numbering):
    """All columns that hold a value, generic or small: nothing is left out of relations."""

    @cached_property
    def joins(self) -> Marks:
        """Mark the columns that are in the lake and have values."""
        joins: Marks = self.sizes > 0
        for segment, start in zip(self.segments, self.column_starts.tolist(), strict=False):
            if segment.dead is not None:
                joins[start : start + len(segment.dead)] &= ~segment.dead
        return joins


class WeighedPairs(NamedTuple):
    """Pairs with the chance of each, and what it took to find them."""

    pairs: Pairs
    probabilities: Double
    #: Score of the best other parent of the child, as `rivals` has it.
    rivals: Double
    #: Pairs that share enough values and were left out, because a child has better ones.
    left_out: int
    #: What a person said of each pair: accepted (1), rejected (-1) or nothing.
    said: Int


@dataclass
class RelationFinder:
    """Finds the relations of an open index: candidates, evidence, probabilities."""

    index: OpenIndex
    #: Whether columns of different sources are compared as well.
    across: bool = False
    began: float = field(default_factory=time.perf_counter)
    #: The columns of each key of several; their numbers follow those of the columns.
    keys: list[tuple[int, ...]] = field(default_factory=list)

    @cached_property
    def columns(self) -> RelatedColumns:
        """All columns, small ones included."""
        every = [part for one in self.index.segments for part in (one, one.small) if part]
        return RelatedColumns(every)

    @cached_property
    def facts(self) -> ColumnFacts:
        """What is known of the columns, without names."""
        return ColumnFacts.of(self.columns, self.index.settings.hash_only)

    @cached_property
    def is_large(self) -> bool:
        """Whether the lake is too large to weigh every pair."""
        return int(self.columns.joins.sum()) > _MANY_COLUMNS

    @cached_property
    def encoder(self) -> CellEncoder:
        """The shipped cell encoder, whatever the lake was made with: names are words."""
        return load_cell_encoder()

    def place(self, column: int) -> tuple[str, tuple[str, ...]]:
        """Return the table of a column or of a key of several, and the names of its columns."""
        lake = self.columns
        if column >= len(lake.sizes):
            key = self.keys[column - len(lake.sizes)]
            table = lake.table_name(int(lake.tables[key[0]]))
            return table, tuple(lake.column_name(one) for one in key)
        return lake.table_name(int(lake.tables[column])), (lake.column_name(column),)

    @cached_property
    def key_finder(self) -> KeyFinder:
        """What compares the rows of tables."""
        facts = self.facts
        return KeyFinder(self.columns, facts.table, facts.source, facts.place, self.columns.joins)

    @cached_property
    def key_pairs(self) -> dict[tuple[int, int], KeyPair]:
        """Foreign keys of several columns, by the numbers that their keys have among columns."""
        pairs: list[KeyPair] = []
        if not self.is_large and not self.index.settings.hash_only:
            pairs += self.key_finder.found()
        # In any order of their columns, as people may have named them.
        known = {frozenset(zip(pair.child, pair.parent, strict=True)) for pair in pairs}
        for one in self.index.feedback:
            if not one.accepted or len(one.child_columns) == 1:
                continue
            child, parent = (
                self._key(one.child_table, one.child_columns),
                self._key(one.parent_table, one.parent_columns),
            )
            columns = list(zip(child, parent, strict=True)) if child and parent else []
            if columns and frozenset(columns) not in known:
                pairs.append(self.key_finder.measured(columns))
        numbers: dict[tuple[int, ...], int] = {}
        for pair in pairs:
            for key in (pair.child, pair.parent):
                numbers.setdefault(key, len(self.columns.sizes) + len(numbers))
        self.keys = list(numbers)
        return {(numbers[pair.child], numbers[pair.parent]): pair for pair in pairs}

    def _key(self, table: str, names: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of a key's columns; nothing if their rows are not known."""
        found = [self._column(table, (name,)) for name in names]
        columns = tuple(column for column in found if column is not None)
        is_whole = len(columns) == len(found) and self.key_finder.has_rows(columns)
        return columns if is_whole else ()

    def _with_keys(self, pairs: Pairs, said: Int) -> tuple[Pairs, Int]:
        """Add keys of several columns to the columns, and their pairs to the pairs."""
        found = self.key_pairs
        if not found:
            return pairs, said
        sizes = {}
        for (child, parent), pair in found.items():
            sizes[child] = pair.child, pair.child_size, pair.child_rows
            sizes[parent] = pair.parent, pair.parent_size, pair.parent_rows
        self.facts = self.facts.with_keys([sizes[number] for number in sorted(sizes)])
        more = [(*ends, pair.matched) for ends, pair in found.items()]
        known = self.index.feedback.by_ends
        words = []
        for child, parent, _ in more:
            (table, mine), (other, theirs) = self.place(child), self.place(parent)
            decision = known.get(ends_of(Decision(table, mine, other, theirs, True)))
            words.append(0 if decision is None else 1 if decision.accepted else -1)
        columns = (
            np.append(of, some) for of, some in zip(pairs, zip(*more, strict=True), strict=True)
        )
        return Pairs(*columns), np.append(said, words)

    def candidates(self) -> tuple[Pairs, int]:
        """Find the pairs worth weighing, exactly, and count those left out."""
        share = _CONTAINED_IN_MANY if self.is_large else CONTAINED
        facts, columns = self.facts, self.columns
        source, unique = facts.source[facts.table], facts.distinct / np.maximum(1, facts.cells)

        def wanted(a: Integers, b: Integers) -> Marks:
            good: Marks = np.maximum(unique[a], unique[b]) >= _UNIQUE
            return good if self.across else good & (source[a] == source[b])

        how = f"{share:g} {_UNIQUE:g} {'across' if self.across else 'inside'}"
        known, new = known_pairs(self.index.path, columns, how)
        join = SelfJoin(columns, share, columns.joins & new, pairs_of(columns.sizes, known), wanted)
        found: list[Pairs] = [known]
        left_out, began = 0, time.perf_counter()
        for _, some in join.found():
            pairs = Pairs(
                *(np.append(some.a, some.b), np.append(some.b, some.a)),
                np.append(some.matched, some.matched),
            )
            good = pairs.matched >= share * facts.distinct[pairs.child]
            pairs = pairs.take(good & (unique[pairs.parent] >= _UNIQUE))
            if self.is_large:
                # Of each run, the parents that hold little else; the last cut comes below.
                kept = _closest(facts, pairs, _PARENTS)
                left_out += len(pairs.child) - len(kept)
                pairs = pairs.take(kept)
            found.append(pairs)
        none = Pairs(*(np.zeros(0, np.int64) for _ in range(3)))
        whole = Pairs(*(np.concatenate(of) for of in zip(none, *found, strict=True)))
        if self.is_large or len(whole.child) > _WEIGHED:
            kept = _closest(facts, whole, _PARENTS)
            if not self.is_large:
                # Thousands of row numbers are all alike; names tell which of them are meant.
                same = np.flatnonzero(facts.word[whole.child] == facts.word[whole.parent])
                kept = np.union1d(kept, same[_closest(facts, whole.take(same), _PARENTS)])
            left_out += len(whole.child) - len(kept)
            whole = whole.take(kept)
        if time.perf_counter() - began > _WORTH_SAVING:
            save_pairs(self.index.path, columns, how, whole)
        return whole, left_out

    def decided(self, pairs: Pairs) -> tuple[Pairs, Int]:
        """Say which pairs a person accepted (1) or rejected (-1); accepted ones join the others."""
        said = np.zeros(len(pairs.child), np.int64)
        known = {
            (child, parent): accepted
            for one, accepted in self._decisions()
            if (child := self._column(one.child_table, one.child_columns)) is not None
            and (parent := self._column(one.parent_table, one.parent_columns)) is not None
        }
        if not known:
            return pairs, said
        missing = dict(known)
        for row in np.flatnonzero(np.isin(pairs.child, [child for child, _ in known])).tolist():
            said[row] = missing.pop((int(pairs.child[row]), int(pairs.parent[row])), 0)
        # Whatever the cells say, and however few are shared.
        more = [(*ends, self._matched(*ends)) for ends, accepted in missing.items() if accepted > 0]
        for place, of in enumerate(zip(*more, strict=True)):
            pairs = pairs._replace(**{Pairs._fields[place]: np.append(pairs[place], of)})
        return pairs, np.append(said, np.ones(len(more), np.int64))

    def _decisions(self) -> Iterator[tuple[Decision, int]]:
        for one in self.index.feedback:
            if len(one.child_columns) == 1:
                yield one, 1 if one.accepted else -1

    def _column(self, table: str, columns: Sequence[str]) -> int | None:
        """Return the number of a column of the lake; None if there is none, or it has no values."""
        lake, start = self.columns, self.columns.column_starts.tolist()
        for segment, first in zip(lake.segments, start, strict=False):
            number = segment.find_table(table)
            if number is not None:
                for column in segment.catalog.columns_of(number):
                    if segment.catalog.column_names[column] == columns[0]:
                        return int(first + column) if lake.joins[first + column] else None
        return None

    def kind(self, table: str, column: str) -> str:
        """Return the type of a table's column in a word."""
        number = self._column(table, (column,))
        if number is None:
            return "text"
        segment, place = self.columns.column(number)
        return segment.catalog.type_name(place)

    def _matched(self, child: int, parent: int) -> int:
        """Count the values that two columns share."""
        (one, x), (other, y) = self.columns.column(child), self.columns.column(parent)
        values = one.values.cell_values[slice(*one.values.cells_of(x))].astype(np.int64)
        if one is not other:
            values = other.values.look_up([one.values.values[value] for value in values.tolist()])
        held = other.values.cell_values[slice(*other.values.cells_of(y))].astype(np.int64)
        return int((find_sorted(held, values) >= 0).sum())

    def weighed(self) -> WeighedPairs:
        """Give every candidate its probability."""
        pairs, left_out = self.candidates()
        pairs, said = self._with_keys(*self.decided(pairs))
        used = np.unique(np.concatenate([pairs.child, pairs.parent]))
        self.facts = facts = self.facts.named(used, self.encoder)
        alone, beside = shipped_model("pair", FEATURES), shipped_model("rivals", FEATURES + RIVALS)
        scores = np.concatenate(
            [np.zeros(0), *(alone.scores(features(facts, some)) for some in _blocks(pairs))]
        )
        # What a person said is sure, and rivals are weighed beside it.
        scores = np.where(said == 0, scores, _SURE * said)
        # Keys of several columns have rivals among themselves alone: a key and a part of it may
        # both refer to the same table.
        one = int((pairs.child < len(self.columns.sizes)).sum())
        parts = [np.arange(one), np.arange(one, len(scores))]
        compared = np.vstack([rivals(facts, pairs.take(rows), scores[rows]) for rows in parts])
        found, start = [np.zeros(0)], 0
        for some in _blocks(pairs):
            rows = np.hstack([features(facts, some), compared[start : start + _PAIRS]])
            found.append(beside.probabilities(rows))
            start += _PAIRS
        chances = np.where(said == 0, np.concatenate(found), said > 0)
        return WeighedPairs(pairs, chances, compared[:, 1], left_out, said)

    def key_probabilities(self, weighed: WeighedPairs) -> tuple[Int, Double]:
        """Return the columns that hold every value once, and the chance that each is a key."""
        more = np.zeros(len(self.facts.distinct) - len(self.columns.joins), bool)
        joins = np.append(self.columns.joins, more)
        rows, columns = key_features(self.facts, joins, weighed)
        return columns, shipped_model("key", KEY_FEATURES).probabilities(rows)


def _blocks(pairs: Pairs) -> Iterator[Pairs]:
    for start in range(0, len(pairs.child), _PAIRS):
        yield pairs.take(np.arange(start, min(start + _PAIRS, len(pairs.child))))


def _closest(facts: ColumnFacts, pairs: Pairs, most: int) -> Int:
    """Choose the parents of each child that share most with it and hold least besides."""
    order = np.lexsort((facts.distinct[pairs.parent], -pairs.matched, pairs.child))
    return np.sort(order[places_in_runs(pairs.child[order]) < most])


def key_features(facts: ColumnFacts, joins: Marks, weighed: WeighedPairs) -> tuple[Double, Int]:
    """Measure the columns that can be keys: no value twice; returns their rows and numbers."""
    unique = facts.distinct == facts.cells
    columns = np.flatnonzero(unique & joins)
    # Letters alone are compared here: vectors of all names of a lake would take gigabytes.
    f = facts.named(columns, None)
    own, table = f.names.take(f.name[columns]), f.names.take(f.table_name[columns])
    _, home = shared_letters(own.stems, table.letters)
    referred = np.zeros(len(f.distinct))
    np.add.at(referred, weighed.pairs.parent, weighed.probabilities)
    types, size = f.types[columns], f.distinct[columns]
    values = {
        "unique": size / np.maximum(1, f.rows[columns]),
        "filled": f.cells[columns] / np.maximum(1, f.rows[columns]),
        "place": f.place[columns],
        "first": f.place[columns] == 0,
        "home": np.where(own.stem_hashes == 0, 0.0, home),
        "is_key": own.is_key,
        "bare": (own.stem_hashes == 0) & own.is_key,
        "text": types == CellType.TEXT,
        "integer": types == CellType.INTEGER,
        "decimal": types == CellType.DECIMAL,
        "date": types == CellType.DATE,
        "run": f.generic[columns] == 1,
        "length": f.length[columns],
        "size": np.log2(size),
        "referred": referred[columns],
        "rivals": np.bincount(f.table[columns], minlength=len(f.source))[f.table[columns]],
    }
    rows = np.stack([np.asarray(values[name], np.float64) for name in KEY_FEATURES], axis=1)
    return rows, columns


@dataclass(frozen=True)
class Relations(Sequence[Relation]):
    """The foreign keys of a lake, surest first, and the keys of its tables."""

    relations: tuple[Relation, ...]
    keys: tuple[TableKey, ...]
    seconds: float
    least: float
    #: Foreign keys that databases declare and that are not among the relations.
    undetected: tuple[DeclaredKey, ...] = ()
    #: Tables and sources that could not be asked for their constraints, and why.
    notes: tuple[str, ...] = ()
    #: What people accepted and rejected.
    decisions: tuple[Decision, ...] = ()
    #: Returns the type of a table's column, for diagrams.
    kind: Callable[[str, str], str] = field(default=lambda _table, _column: "text", compare=False)

    def __len__(self) -> int:
        return len(self.relations)

    @overload
    def __getitem__(self, i: int) -> Relation: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Relation]: ...
    def __getitem__(self, i: int | slice) -> Relation | Sequence[Relation]:
        return self.relations[i]

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations)

    def __repr__(self) -> str:
        return render_relations(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the command line."""
        found: dict[str, Any] = {
            "keys": [key.to_dict() for key in self.keys],
            "relations": [one.to_dict() for one in self.relations],
            "seconds": round(self.seconds, 3),
        }
        if self.undetected:
            found["undetected"] = [to_json(one) for one in self.undetected]
        if self.decisions:
            found["decisions"] = to_json(self.decisions)
        if self.notes:
            found["notes"] = list(self.notes)
        return found

    def check(self) -> list[Relation]:
        """Return the relations with orphans: rows of the child that refer to nothing."""
        return [one for one in self.relations if one.orphans]

    def paths(self, a: str, b: str, depth: int = 4, most: int = 10) -> list[RelationPath]:
        """Chains of relations from one table to another, the likeliest first.

        The probability of a path is the product of those of its relations; of equal ones, the
        shorter comes first. A table is passed once, at most ``depth`` relations are followed.
        """
        return relation_paths(self.relations, a, b, depth, most)

    def to_sql(self) -> str:
        """Write keys and foreign keys as SQL constraints."""
        return output.to_sql(self.relations, self.keys)

    def to_dbt(self) -> str:
        """Write dbt tests: unique and not_null for keys, relationships for foreign keys."""
        return output.to_dbt(self.relations, self.keys)

    def to_dbml(self) -> str:
        """Write tables, keys and references in DBML."""
        return output.to_dbml(self.relations, self.keys, self.kind)

    def to_svg(self) -> str:
        """Draw a diagram: tables with their keys, relations with crow's feet."""
        return diagram.to_svg(self.relations, self.keys)

    def to_mermaid(self) -> str:
        """Write an entity-relationship diagram for Mermaid."""
        return output.to_mermaid(self.relations, self.keys, self.kind)


def find_relations(index: OpenIndex, least: float = 0.5, across: bool = False) -> Relations:
    """Find keys and foreign keys; see `Lake.relations`."""
    if not 0 <= least <= 1:
        raise DeepJoinError(f"`least` is {least}; it must be a probability from 0 to 1.")
    finder = RelationFinder(index, across)
    with index.reporting_damage():
        weighed = finder.weighed()
        order = np.lexsort((weighed.pairs.parent, weighed.pairs.child, -weighed.probabilities))
        likely = order[weighed.probabilities[order] >= least]
        # Snapshots of one table all are parents of each other: some of them say it all.
        by_child = likely[np.argsort(weighed.pairs.child[likely], kind="stable")]
        kept = by_child[places_in_runs(weighed.pairs.child[by_child]) < _LISTED]
        chosen = likely[np.isin(likely, kept)]
        declared, notes = declared_keys(index)
        described = _Describer(finder, weighed, declared)
        relations = tuple(described.relation(row) for row in chosen.tolist())
        columns, chances = finder.key_probabilities(weighed)
        keys = [
            TableKey(*finder.place(column), round(chance, 4))
            for column, chance in zip(columns.tolist(), chances.tolist(), strict=True)
            if chance >= least
        ]
    if weighed.left_out:
        notes.append(
            f"{weighed.left_out:,} pairs of columns were not weighed: of each column, the "
            f"{_PARENTS} parents that hold least besides were."
        )
    if finder.key_finder.left_out:
        notes.append(
            f"{finder.key_finder.left_out:,} pairs of tables were not compared for keys of several "
            "columns: they have too many rows."
        )
    if len(chosen) < len(likely):
        notes.append(
            f"{len(likely) - len(chosen):,} more relations are as likely and not listed: of each "
            f"column, the likeliest {_LISTED} are."
        )
    found = {ends_of(Decision(*_ends(one), accepted=True)) for one in relations}
    notes += [
        f"Accepted, but a column is gone or has no values: {_shown(one)}"
        for one in index.feedback
        if one.accepted and one.child_table and ends_of(one) not in found
    ]
    missing = tuple(
        one for one in declared or () if ends_of(Decision(*one, accepted=True)) not in found
    )
    for one in relations:
        key = TableKey(one.parent_table, one.parent_columns, one.probability)
        if len(key.columns) > 1 and not any(
            (known.table, known.columns) == (key.table, key.columns) for known in keys
        ):
            keys.append(key)
    keys.sort(key=lambda key: (key.table, -key.probability, key.columns))
    seconds = time.perf_counter() - finder.began
    said = tuple(index.feedback)
    measured = seconds, least, missing, tuple(notes), said
    return Relations(relations, tuple(keys), *measured, finder.kind)


def _shown(one: Decision) -> str:
    """Write the ends of a decision in a line."""
    ends = (one.child_table, one.child_columns), (one.parent_table, one.parent_columns)
    return " -> ".join(f"{table}.{'+'.join(columns)}" for table, columns in ends)


def _ends(one: Relation) -> tuple[str, tuple[str, ...], str, tuple[str, ...]]:
    return one.child_table, one.child_columns, one.parent_table, one.parent_columns


class RelationPath(NamedTuple):
    """A chain of relations; each leads from child to parent or, backwards, to the children."""

    relations: tuple[Relation, ...]
    #: The tables in order, one more than there are relations.
    tables: tuple[str, ...]
    probability: float


def relation_paths(
    relations: Sequence[Relation], a: str, b: str, depth: int = 4, most: int = 10
) -> list[RelationPath]:
    """Find the likeliest chains between two tables, best first."""
    links: dict[str, list[tuple[str, Relation]]] = {}
    for one in relations:
        if one.child_table != one.parent_table:
            links.setdefault(one.child_table, []).append((one.parent_table, one))
            links.setdefault(one.parent_table, []).append((one.child_table, one))
    for table in (a, b):
        if table not in links:
            raise DeepJoinError(
                f"No relation leads to a table '{table}'. Name tables as the index does, or find "
                "more relations with a lower `least`."
            )
    found: list[RelationPath] = []
    # A product only falls as a path grows, so the first paths to arrive are the best.
    count = itertools.count()
    queue: list[Any] = [(-1.0, 0, next(count), (a,), ())]
    while queue and len(found) < most:
        chance, length, _, tables, path = heapq.heappop(queue)
        if tables[-1] == b:
            found.append(RelationPath(path, tables, -chance))
            continue
        if length == depth:
            continue
        for table, one in links[tables[-1]]:
            if table not in tables:
                further = (*tables, table), (*path, one)
                heapq.heappush(queue, (chance * one.probability, length + 1, next(count), *further))
    return found


class Evidence(Mapping[str, str]):
    """What speaks for and against a relation, put into words whenever it is read."""

    # A lake may have hundreds of thousands of relations, of which few are read.
    __slots__ = ("_describe", "_pair")

    def __init__(self, describe: Callable[[int, int, int], dict[str, str]], *pair: int) -> None:
        self._describe, self._pair = describe, pair

    @property
    def _words(self) -> dict[str, str]:
        return self._describe(*self._pair)

    def __getitem__(self, name: str) -> str:
        return self._words[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)

    def items(self) -> ItemsView[str, str]:
        """Return names and words, put together once for all of them."""
        return self._words.items()

    def __repr__(self) -> str:
        return repr(self._words)


@dataclass
class _Describer:
    """Puts pairs that were weighed into words."""

    finder: RelationFinder
    weighed: WeighedPairs
    declared: set[DeclaredKey] | None

    @cached_property
    def said(self) -> dict[tuple[object, ...], Decision]:
        """What people said, by the two ends."""
        return {
            (one.child_table, one.child_columns, one.parent_table, one.parent_columns): one
            for one in self.finder.index.feedback
        }

    def relation(self, row: int) -> Relation:
        """Describe one pair: its numbers, its orphans, and the evidence in words."""
        pairs, facts, lake = self.weighed.pairs, self.finder.facts, self.finder.columns
        child, parent = int(pairs.child[row]), int(pairs.parent[row])
        if child >= len(lake.sizes):
            return self._composite(row, self.finder.key_pairs[child, parent])
        matched, size = int(pairs.matched[row]), int(facts.distinct[child])
        (one, x), (other, y) = lake.column(child), lake.column(parent)
        mine, theirs = slice(*one.values.cells_of(x)), slice(*other.values.cells_of(y))
        values = one.values.cell_values[mine].astype(np.int64)
        counts = np.asarray(one.values.cell_counts[mine])
        if one is not other:
            texts = [one.values.values[value] for value in values.tolist()]
            values = other.values.look_up(texts)
        at = find_sorted(other.values.cell_values[theirs].astype(np.int64), values)
        there = at >= 0
        orphans = np.flatnonzero(~there)
        first = one.values.cells(int(one.values.cells_of(x)[0]) + orphans[:_ORPHANS])
        if self.finder.index.settings.hash_only:
            first = []
        most = (
            counts[there].max(initial=1),
            other.values.cell_counts[theirs][at[there]].max(initial=1),
        )
        ends = (*self.finder.place(child), *self.finder.place(parent))
        return Relation(
            *ends,
            round(float(self.weighed.probabilities[row]), 4),
            round(matched / size, 6),
            int(counts[orphans].sum()),
            cardinality_of(int(most[0]), int(most[1])),
            Evidence(self._evidence, child, parent, matched),
            None if self.declared is None else DeclaredKey(*ends) in self.declared,
            tuple(first),
            matched,
            round(matched / max(1, int(facts.distinct[parent])), 6),
            {1: "accepted", 0: "", -1: "rejected"}[int(self.weighed.said[row])],
        )

    def _composite(self, row: int, pair: KeyPair) -> Relation:
        """Describe a pair of keys of several columns."""
        child, parent = (int(of[row]) for of in self.weighed.pairs[:2])
        ends = (*self.finder.place(child), *self.finder.place(parent))
        most = 1 if pair.parent_size == pair.parent_rows else 2
        return Relation(
            *ends,
            round(float(self.weighed.probabilities[row]), 4),
            round(pair.matched / max(1, pair.child_size), 6),
            pair.orphans,
            cardinality_of(pair.most, most),
            Evidence(self._evidence, child, parent, pair.matched),
            None if self.declared is None else self._is_declared(ends),
            self.finder.key_finder.texts(pair.child, pair.orphan_rows),
            pair.matched,
            round(pair.matched / max(1, pair.parent_size), 6),
            {1: "accepted", 0: "", -1: "rejected"}[int(self.weighed.said[row])],
        )

    def _is_declared(self, ends: tuple[str, tuple[str, ...], str, tuple[str, ...]]) -> bool:
        """Whether a database declares a key of several columns, in any order of them."""
        pairs = sorted(zip(ends[1], ends[3], strict=True))
        return any(
            (one.child_table, one.parent_table) == (ends[0], ends[2])
            and sorted(zip(one.child_columns, one.parent_columns, strict=True)) == pairs
            for one in self.declared or ()
        )

    def _evidence(self, c: int, p: int, matched: int) -> dict[str, str]:
        f, names = self.finder.facts, self.finder.facts.names
        table, column = self.finder.place(p)
        parent = f"{short_name(table)}.{'+'.join(column)}"
        words = {
            "values": f"{matched:,} of {int(f.distinct[c]):,} values are in {parent}, "
            f"{matched / max(1, int(f.distinct[p])):.0%} of its {int(f.distinct[p]):,}"
        }
        unique = f.distinct[p] / max(1, f.cells[p])
        words["parent"] = (
            f"{parent} has every value once"
            if unique == 1
            else f"{parent} repeats {1 - unique:.0%}"
        )
        child, other, of = (
            names.take(np.array([place])) for place in (f.name[c], f.name[p], f.table_name[p])
        )
        _, in_table = shared_letters(child.stems, of.letters)
        if child.hashes[0] == other.hashes[0]:
            mine = self.finder.place(c)[1]
            is_same = list(map(key_words, mine)) == list(map(key_words, column))
            words["name"] = (
                "both columns have the same name"
                if is_same
                else "the names are the same without the prefix that all names of a table have"
            )
        elif f.table[c] == f.table[p] and f.roles[f.name[c]] & Role.OWN_KIND:
            words["name"] = "the name is a role that a row of the same table has, such as parent"
        elif in_table[0] > _ALIKE:
            words["name"] = f"the name refers to {short_name(table)}"
        elif shared_letters(child.letters, other.letters)[0][0] > _ALIKE:
            words["name"] = "the names are alike"
        elif f.roles[f.name[c]] & Role.OF_PERSON and f.roles[f.table_name[p]] & Role.PEOPLE:
            words["name"] = f"the name is a role of people, as in {short_name(table)}"
        else:
            words["name"] = "the names differ"
        if f.types[c] == CellType.INTEGER and np.isfinite(f.low[p]):
            span = f.high[p] - f.low[p] + 1
            if f.distinct[p] > _DENSE * span:
                words["chance"] = (
                    f"whole numbers: {parent} holds {f.distinct[p] / span:.0%} of "
                    f"{f.low[p]:.0f} to {f.high[p]:.0f}, so others would be found there too"
                )
        if said := self.said.get((*self.finder.place(c), table, column)):
            when = f" on {said.at[:10]}" if said.at else ""
            words["person"] = f"{said.text} by a person{when}"
        rivals = int((self.weighed.pairs.child == c).sum()) - 1 if self._few else 0
        if rivals:
            words["rivals"] = (
                f"{rivals} other {'column has' if rivals == 1 else 'columns have'} these values"
            )
        return words

    @property
    def _few(self) -> bool:
        return len(self.weighed.pairs.child) < _PAIRS


def render_relations(found: Relations) -> str:
    """List relations and keys as text, one a line."""
    lines = [
        f"{one.probability:.2f}  {one.child_table}.{'+'.join(one.child_columns)} -> "
        f"{one.parent_table}.{'+'.join(one.parent_columns)}  {one.cardinality}"
        + (f"  {one.orphans:,} orphans" if one.orphans else "")
        + ("  declared" if one.declared else "")
        + (f"  {one.decided} by a person" if one.decided else "")
        for one in found
    ]
    return "\n".join(lines) or f"No relations with a probability of at least {found.least:g}."
