"""Evidence that one column refers to another: what is weighed, as numbers, pair by pair.

A pair has a child, whose cells should all be cells of the parent, and a parent, which should hold
each of its values once. Nothing here decides; `deepjoin.matching.sense` weighs it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepjoin.arrays import Double, Int, Marks
from deepjoin.matching.names import Role, shared_letters
from deepjoin.normalise.canonical import CellType
from deepjoin.relating.facts import ColumnFacts
from deepjoin.store.values.profile import Generic

#: The features of one pair, in the order of the columns of `features`.
FEATURES = (
    *("containment", "coverage", "child_size", "parent_size", "matched"),
    *("parent_unique", "parent_filled", "child_unique", "child_filled"),
    *("same_type", "text", "integer", "decimal", "date", "generic", "parent_generic"),
    *("parent_place", "child_place", "parent_width", "same_table", "length_ratio", "length"),
    *("density", "low_gap", "high_gap", "chance", "frequency"),
    *("same_name", "same_stem", "name_letters", "name_letters_back", "name_meaning"),
    *("table_letters", "table_letters_back", "table_meaning", "both_letters"),
    *("parent_home", "child_home", "parent_key", "child_key", "child_is_own_key"),
    *("same_source", "tables", "own_kind", "of_person"),
)
#: What the other candidates of the same columns add, in a second step.
RIVALS = ("own", "rival", "reverse", "rivals", "referred", "same_tables")


class Pairs(NamedTuple):
    """Candidates by column number: every value that they share was counted."""

    child: Int
    parent: Int
    matched: Int

    def take(self, rows: Int | Marks) -> Pairs:
        """Keep some of the pairs."""
        return Pairs(*(array[rows] for array in self))


def features(facts: ColumnFacts, pairs: Pairs) -> Double:
    """Measure pairs: one row a pair, one column for each of `FEATURES`."""
    c, p, matched = pairs
    f = facts
    sizes, parents = f.distinct[c], f.distinct[p]
    types = f.types[c]
    unique = f.distinct / np.maximum(1, f.cells)
    filled = f.cells / np.maximum(1, f.rows)
    span = f.high - f.low + 1
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = f.types == CellType.INTEGER
        # Of the numbers between the smallest and the largest, the share that a column holds.
        density = np.where(whole, f.distinct / np.maximum(1, span), 0.0)
        low_gap = np.where(whole[c], (f.low[c] - f.low[p]) / span[p], 0.0)
        high_gap = np.where(whole[c], (f.high[p] - f.high[c]) / span[p], 0.0)
        # Whole numbers that happen to lie in the parent's range are found there by chance.
        chance = np.where(
            whole[c], np.log(np.clip(density[p], 1e-3, 1)) * np.minimum(sizes, 50), -99
        )
    names = f.names
    child, parent = names.take(f.name[c]), names.take(f.name[p])
    table, own_table = names.take(f.table_name[p]), names.take(f.table_name[c])
    name, back = shared_letters(child.letters, parent.letters)
    in_table, table_in = shared_letters(child.stems, table.letters)
    _, home = shared_letters(parent.stems, table.letters)
    own, own_back = shared_letters(child.stems, own_table.letters)
    # Of artist_id and the table artist with the column id, the two together.
    both, _ = shared_letters(child.letters, parent.letters | table.letters)
    same = (child.hashes == parent.hashes) & (child.hashes != 0)
    same_stem = (child.stem_hashes == parent.stem_hashes) & (child.stem_hashes != 0)
    meaning, of_table = np.zeros(len(c)), np.zeros(len(c))
    if child.vectors.shape[1]:
        mine = child.vectors.astype(np.float32)
        meaning = (mine * parent.vectors).sum(axis=1).astype(np.float64)
        of_table = (mine * table.vectors).sum(axis=1).astype(np.float64)
    mine_is, theirs_is = f.roles[f.name[c]], f.roles[f.table_name[p]]
    source = f.source[f.table]
    every = np.bincount(f.source, minlength=1)
    same_source = source[c] == source[p]
    around = np.where(same_source, every[source[c]], len(f.source))
    columns = {
        "containment": matched / np.maximum(1, sizes),
        "coverage": matched / np.maximum(1, parents),
        "child_size": np.log2(np.maximum(1, sizes)),
        "parent_size": np.log2(np.maximum(1, parents)),
        "matched": np.log2(np.maximum(1, matched)),
        "parent_unique": unique[p],
        "parent_filled": filled[p],
        "child_unique": unique[c],
        "child_filled": filled[c],
        "same_type": types == f.types[p],
        "text": types == CellType.TEXT,
        "integer": types == CellType.INTEGER,
        "decimal": types == CellType.DECIMAL,
        "date": types == CellType.DATE,
        "generic": f.generic[c] == Generic.RUN,
        "parent_generic": f.generic[p] == Generic.RUN,
        "parent_place": f.place[p],
        "child_place": f.place[c],
        "parent_width": np.log2(np.maximum(1, f.width[p])),
        "same_table": f.table[c] == f.table[p],
        "length_ratio": np.log2((1 + f.length[c]) / (1 + f.length[p])),
        "length": f.length[c],
        "density": density[p],
        "low_gap": np.nan_to_num(low_gap),
        "high_gap": np.nan_to_num(high_gap),
        "chance": np.nan_to_num(chance),
        "frequency": f.frequency[c],
        "same_name": same,
        "same_stem": same_stem,
        "name_letters": name,
        "name_letters_back": back,
        "name_meaning": meaning,
        "table_letters": in_table,
        "table_letters_back": table_in,
        "table_meaning": of_table,
        "both_letters": both,
        "parent_home": np.where(parent.stem_hashes == 0, 1.0, home),
        "child_home": np.where(child.stem_hashes == 0, 1.0, np.maximum(own, own_back)),
        "parent_key": parent.is_key,
        "child_key": child.is_key,
        "child_is_own_key": (f.place[c] == 0) & (unique[c] == 1),
        "same_source": same_source,
        "tables": np.log2(np.maximum(1, around)),
        "own_kind": (f.table[c] == f.table[p]) & (mine_is & Role.OWN_KIND > 0),
        "of_person": (mine_is & Role.OF_PERSON > 0) & (theirs_is & Role.PEOPLE > 0),
    }
    return np.stack([np.asarray(columns[name], np.float64) for name in FEATURES], axis=1)


def rivals(facts: ColumnFacts, pairs: Pairs, scores: Double) -> Double:
    """Compare each pair with the others of its columns, by what the features alone are worth.

    A child has one parent, a parent seldom refers to its child, and two tables seldom refer to
    each other twice by the same parent.
    """
    child, parent, _ = pairs
    best_other = _best_other(child, scores)
    columns = len(facts.distinct)
    order = np.argsort(child * columns + parent, kind="stable")
    keys = (child * columns + parent)[order]
    back = parent * columns + child
    at = np.minimum(np.searchsorted(keys, back), max(0, len(keys) - 1))
    reverse = np.full(len(child), -9.0)
    if len(keys):
        found = keys[at] == back
        reverse[found] = scores[order[at[found]]]
    count = np.bincount(child, minlength=columns)[child]
    # How strongly other columns refer to the same parent: a key is referred to more than once.
    chances = 1 / (1 + np.exp(-scores))
    referred = np.bincount(parent, chances, columns)[parent].astype(np.float64) - chances
    tables = facts.table[child] * (facts.table.max(initial=0) + 1) + facts.table[parent]
    _, groups = np.unique(tables, return_inverse=True)
    return np.stack(
        [scores, best_other, reverse, np.log2(count), referred, _best_other(groups, scores)], axis=1
    )


def _best_other(groups: Int, scores: Double) -> Double:
    """Return the best score of the others of each one's group; -9 if there is no other."""
    order = np.lexsort((-scores, groups))
    first = np.ones(len(order), bool)
    first[1:] = np.diff(groups[order]) != 0
    start = np.flatnonzero(first)[np.cumsum(first) - 1] if len(order) else order
    best = scores[order[start]] if len(order) else scores
    second = np.full(len(order), -9.0)
    has = np.append(~first[1:], False)[: len(order)]
    second[has] = scores[order[np.flatnonzero(has) + 1]]
    found = np.empty(len(order))
    found[order] = np.where(first, second, best)
    return found
