"""Keys and foreign keys of a lake, each with the chance that a person would agree.

All inclusions come exactly from the postings (`self_join`); `evidence` measures each pair, and the
trees of `deepjoin.matching.sense` weigh it: first every pair alone, then beside its rivals, since
a child has one parent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Marks, places_in_runs
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.errors import DeepJoinError
from deepjoin.lazy import cached_property
from deepjoin.matching.names import shared_letters
from deepjoin.matching.sense import shipped_model
from deepjoin.normalise.canonical import CellType
from deepjoin.relating.evidence import FEATURES, RIVALS, Pairs, features, rivals
from deepjoin.relating.facts import ColumnFacts
from deepjoin.relating.self_join import SelfJoin
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
#: Pairs measured at a time.
_PAIRS = 1 << 16

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


@dataclass
class RelationFinder:
    """Finds the relations of an open index: candidates, evidence, probabilities."""

    index: OpenIndex
    #: Whether columns of different sources are compared as well.
    across: bool = False
    began: float = field(default_factory=time.perf_counter)

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

    def candidates(self) -> tuple[Pairs, int]:
        """Find the pairs worth weighing, exactly, and count those left out."""
        share = _CONTAINED_IN_MANY if self.is_large else CONTAINED
        facts, columns = self.facts, self.columns
        source, unique = facts.source[facts.table], facts.distinct / np.maximum(1, facts.cells)

        def wanted(a: Int, b: Int) -> Marks:
            good: Marks = np.maximum(unique[a], unique[b]) >= _UNIQUE
            return good if self.across else good & (source[a] == source[b])

        join = SelfJoin(
            columns, share, columns.joins, np.zeros(len(columns.sizes), np.int64), wanted
        )
        found: list[Pairs] = []
        left_out = 0
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
        if self.is_large:
            kept = _closest(facts, whole, _PARENTS)
            left_out += len(whole.child) - len(kept)
            whole = whole.take(kept)
        return whole, left_out

    def weighed(self) -> WeighedPairs:
        """Give every candidate its probability."""
        pairs, left_out = self.candidates()
        used = np.unique(np.concatenate([pairs.child, pairs.parent]))
        self.facts = facts = self.facts.named(used, self.encoder)
        alone, beside = shipped_model("pair", FEATURES), shipped_model("rivals", FEATURES + RIVALS)
        scores = np.concatenate(
            [np.zeros(0), *(alone.scores(features(facts, some)) for some in _blocks(pairs))]
        )
        compared = rivals(facts, pairs, scores)
        found, start = [np.zeros(0)], 0
        for some in _blocks(pairs):
            rows = np.hstack([features(facts, some), compared[start : start + _PAIRS]])
            found.append(beside.probabilities(rows))
            start += _PAIRS
        return WeighedPairs(pairs, np.concatenate(found), compared[:, 1], left_out)

    def key_probabilities(self, weighed: WeighedPairs) -> tuple[Int, Double]:
        """Return the columns that hold every value once, and the chance that each is a key."""
        rows, columns = key_features(self.facts, self.columns.joins, weighed, self.encoder)
        return columns, shipped_model("key", KEY_FEATURES).probabilities(rows)


def _blocks(pairs: Pairs) -> Iterator[Pairs]:
    for start in range(0, len(pairs.child), _PAIRS):
        yield pairs.take(np.arange(start, min(start + _PAIRS, len(pairs.child))))


def _closest(facts: ColumnFacts, pairs: Pairs, most: int) -> Int:
    """Choose the parents of each child that share most with it and hold least besides."""
    order = np.lexsort((facts.distinct[pairs.parent], -pairs.matched, pairs.child))
    return np.sort(order[places_in_runs(pairs.child[order]) < most])


def key_features(
    facts: ColumnFacts, joins: Marks, weighed: WeighedPairs, encoder: CellEncoder | None = None
) -> tuple[Double, Int]:
    """Measure the columns that can be keys: no value twice; returns their rows and numbers."""
    unique = facts.distinct == facts.cells
    columns = np.flatnonzero(unique & joins)
    f = facts.named(columns, encoder)
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


def check_least(least: float) -> None:
    """Refuse a probability out of range."""
    if not 0 <= least <= 1:
        raise DeepJoinError(f"`least` is {least}; it must be a probability from 0 to 1.")
