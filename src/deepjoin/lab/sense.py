"""Train the models of `deepjoin.matching.sense` from databases whose foreign keys are known.

    python -m deepjoin.lab.sense DATABASES --labelled CORPUS
        --open-data INDEX --judged judged_open_data.csv --questions judged_questions.csv

DATABASES has ``spider/*.sqlite`` and ``spider_fk.csv`` (db, table, columns, ref_table, ref_columns,
n_columns). Of a lake of files, ``--judged`` lists pairs that were judged by eye, ``--questions``
hits, of which sets named after a test are left out. ``--labelled`` is a corpus with labels, of
whose queries every second one is learned from. Databases are held apart: figures are of databases
that the model in question has not seen. Needs scikit-learn, which the package itself does not.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deepjoin.arrays import Double, Int, Marks
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.errors import DeepJoinError
from deepjoin.indexing import index
from deepjoin.lab.made_up import make_database
from deepjoin.lake import Lake, open_lake
from deepjoin.matching.sense import NUMBERS, BoostedTrees
from deepjoin.model import Column, Hit
from deepjoin.relating.evidence import FEATURES, RIVALS, Pairs, features, rivals
from deepjoin.relating.facts import ColumnFacts
from deepjoin.relating.relations import KEY_FEATURES, RelationFinder, WeighedPairs, key_features
from deepjoin.search.hybrid import NameVectors
from deepjoin.search.likely import HIT_FEATURES, QueryFacts
from deepjoin.search.query import SearchQuery
from deepjoin.settings import SearchSettings, Vectors

#: Trees of each model; few, and shallow: there are some hundred foreign keys to learn from.
_TREES: Mapping[str, Any] = {
    "learning_rate": 0.08,
    "max_depth": 3,
    "min_samples_leaf": 8,
    "max_features": 0.4,
    "subsample": 0.6,
    "random_state": 0,
}
#: Evidence that never speaks against a hit.
_RISING = frozenset(
    ("joinability", "same_name", "same_stem", "name_letters", "name_meaning", "same_place")
)
_COUNT = {"pair": 80, "rivals": 60, "key": 60, "hit": 120}
_FOLDS = 6
#: Pairs of columns of two databases that are taken as coincidences.
_ACROSS = 3000
#: How many databases are made up.
_MADE_UP = 80
#: Share of a query's entities that a right answer holds.
_RELEVANT = 0.7
#: Share of the hits that are learned from without the meaning of names.
_WITHOUT_MEANING = 0.3
#: Hits of a foreign key's column that are learned from. A key is searched deeper, since its
#: children may hold little of it; of its wrong hits after the first 100, every 20th is taken.
_DEEP, _DEEPER, _SOME = 100, 500, 20
#: What hits of foreign keys, of keys, of labelled queries, of lists of either, and of judged
#: questions weigh, and how much more rivals do.
_WEIGHTS = (2.0, 2.0, 1.3, 2.0, 1.0, 8.0)
_RIVAL = 8.0
#: How sets of questions are called that no model learns from.
_TEST = "test"
#: How many values a person types in, from and to.
_TYPED = (3, 13)


@dataclass(frozen=True)
class LabelledPairs:
    """Candidates of one lake with labels: what is weighed, and the group held apart together."""

    facts: ColumnFacts
    pairs: Pairs
    rows: Double
    labels: Int
    groups: Sequence[str]
    #: Pairs that are learned from; the others only are rivals of these.
    used: Marks
    weight: float = 1.0


def declared_keys(path: Path) -> list[dict[str, str]]:
    """Read a list of declared foreign keys."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def label_databases(lake: Lake, keys: Sequence[Mapping[str, str]], across: bool) -> LabelledPairs:
    """Label the candidates of a lake of databases with their declared foreign keys.

    Parts of a composite key are neither: a person would join all of its columns.
    """
    finder = RelationFinder(lake.index, across)
    pairs, _ = finder.candidates()
    facts = finder.facts.named(np.unique(np.append(pairs.child, pairs.parent)), finder.encoder)
    numbers = column_numbers(finder)
    places = pair_places(pairs, len(facts.distinct))
    labels, used = np.zeros(len(pairs.child), np.int64), np.ones(len(pairs.child), bool)
    several = any("." in name for name in lake.tables)
    for key in keys:
        before = f"{key['db']}." if several else ""
        ends = zip(key["columns"].split("|"), key["ref_columns"].split("|"), strict=True)
        for child, parent in ends:
            one = numbers.get((before + key["table"], child))
            other = numbers.get((before + key["ref_table"], parent))
            at = None if one is None or other is None else places.get((one, other))
            if at is not None and key["n_columns"] == "1":
                labels[at] = 1
            elif at is not None:
                used[at] = False
    used |= labels == 1
    source = facts.source[facts.table]
    groups = source[pairs.child].astype(str).tolist()
    if across:
        # Inside the databases the pairs are known already.
        used &= source[pairs.child] != source[pairs.parent]
        some = np.random.default_rng(0).permutation(np.flatnonzero(used))[:_ACROSS]
        used = np.zeros(len(used), bool)
        used[some] = True
    return LabelledPairs(facts, pairs, features(facts, pairs), labels, groups, used)


def made_up_databases(place: Path) -> LabelledPairs:
    """Make databases up in a folder, and label their candidates."""
    place.mkdir()
    files = [place / f"made{number:03}.sqlite" for number in range(_MADE_UP)]
    keys = [key for number, file in enumerate(files) for key in make_database(file, number)]
    lake = index(list(map(str, files)), place / "index", vectors=Vectors(cells="none"))
    return replace(label_databases(lake, keys, across=False), weight=0.3)


def label_judged(lake: Lake, judged: Path) -> LabelledPairs:
    """Label the candidates of a lake with what a person wrote down: yes or no."""
    finder = RelationFinder(lake.index)
    pairs, _ = finder.candidates()
    facts = finder.facts.named(np.unique(np.append(pairs.child, pairs.parent)), finder.encoder)
    numbers, places = column_numbers(finder), pair_places(pairs, len(facts.distinct))
    labels, used = np.zeros(len(pairs.child), np.int64), np.zeros(len(pairs.child), bool)
    for row in declared_keys(judged):
        one = numbers.get((row["child_table"], row["child_column"]))
        other = numbers.get((row["parent_table"], row["parent_column"]))
        at = None if one is None or other is None else places.get((one, other))
        if at is not None and row["judged"] in ("yes", "no"):
            labels[at], used[at] = row["judged"] == "yes", True
    # The tables of one folder are held apart together.
    groups = [
        finder.columns.table_name(int(finder.columns.tables[one])).rpartition("/")[0]
        for one in pairs.child.tolist()
    ]
    return LabelledPairs(facts, pairs, features(facts, pairs), labels, groups, used)


def further_sets(
    lake: Lake,
    keys: Sequence[Mapping[str, str]],
    scratch: Path,
    open_data: str | None = None,
    judged: Path | None = None,
) -> list[LabelledPairs]:
    """Return what is learned from besides the pairs inside the databases of a lake.

    Pairs of columns of two databases, databases that are made up, and pairs that a person judged.
    """
    sets = [replace(label_databases(lake, keys, across=True), weight=0.3)]
    sets.append(made_up_databases(scratch / "made up"))
    if open_data and judged:
        sets.append(label_judged(open_lake(open_data), judged))
    return sets


def column_numbers(finder: RelationFinder) -> dict[tuple[str, str], int]:
    """Return the number of each column by table and name."""
    lake = finder.columns
    names = (
        (lake.table_name(int(lake.tables[c])), lake.column_name(c)) for c in range(len(lake.sizes))
    )
    return {name: column for column, name in enumerate(names) if lake.joins[column]}


def pair_places(pairs: Pairs, columns: int) -> dict[tuple[int, int], int]:
    """Return the place of each pair of columns."""
    ends = zip(pairs.child.tolist(), pairs.parent.tolist(), strict=True)
    return {end: at for at, end in enumerate(ends)}


def fit_trees(
    name: str, rows: Double, labels: Int, names: Sequence[str], weights: Double
) -> BoostedTrees:
    """Fit boosted trees and turn them into plain numbers."""
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(n_estimators=_COUNT[name], **_TREES)
    model.fit(rows.astype(np.float32), labels, weights)
    trees = []
    for (one,) in model.estimators_:
        tree = one.tree_
        children = tree.children_left, tree.children_right
        value = model.learning_rate * tree.value[:, 0, 0]
        trees.append((tree.children_left < 0, tree.feature, tree.threshold, *children, value))
    mean = np.average(labels, weights=weights)
    return _plain(trees, names, model.max_depth, float(np.log(mean / (1 - mean))))


def fit_rising_trees(
    rows: Double, labels: Int, names: Sequence[str], weights: Double
) -> BoostedTrees:
    """Fit trees whose sum never falls as some features rise: more matches are never worse."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=_COUNT["hit"],
        max_depth=4,
        min_samples_leaf=40,
        max_features=0.4,
        monotonic_cst=[int(name in _RISING) for name in names],
        early_stopping=False,
        random_state=0,
    )
    model.fit(rows.astype(np.float32), labels, weights)
    trees = []
    for (one,) in model._predictors:
        nodes = one.nodes
        is_leaf = nodes["is_leaf"].astype(bool)
        parts = (nodes[part] for part in ("feature_idx", "num_threshold", "left", "right"))
        trees.append((is_leaf, *parts, np.where(is_leaf, nodes["value"], 0.0)))
    return _plain(trees, names, 4, float(np.ravel(model._baseline_prediction)[0]))


def _plain(
    trees: Sequence[tuple[Any, ...]], names: Sequence[str], depth: int, base: float
) -> BoostedTrees:
    """Concatenate trees: which nodes are leaves, feature, threshold, children, value of each."""
    parts: list[list[Any]] = []
    roots: list[int] = []
    start = 0
    for is_leaf, feature, threshold, left, right, value in trees:
        itself = np.arange(len(is_leaf))
        # A leaf leads to itself, so all rows go down the same number of steps.
        children = (start + np.where(is_leaf, itself, one) for one in (left, right))
        tests = (np.where(is_leaf, 0, feature), np.where(is_leaf, 0.0, threshold))
        parts.append([*tests, *children, value])
        roots.append(start)
        start += len(is_leaf)
    feature, threshold, *rest = (np.concatenate(part) for part in zip(*parts, strict=True))
    left, right, value = rest
    split = feature, threshold.astype(np.float32), left, right, value
    return BoostedTrees(tuple(names), np.array(roots), *split, depth=depth, base=base)


@dataclass(frozen=True)
class PairModels:
    """The two models of pairs: each alone, and beside its rivals."""

    alone: BoostedTrees
    beside: BoostedTrees

    def probabilities(self, some: LabelledPairs) -> Double:
        """Weigh all pairs of a lake."""
        compared = rivals(some.facts, some.pairs, self.alone.scores(some.rows))
        rows = np.hstack([some.rows, compared])
        return self.beside.probabilities(rows)


def fit_pairs(sets: Sequence[LabelledPairs], columns: Sequence[int] = ()) -> PairModels:
    """Fit both models; the second sees scores of the first on groups it was not fitted to.

    ``columns`` are features to blank out, for the ablation.
    """
    from sklearn.model_selection import GroupKFold

    used = [np.flatnonzero(one.used) for one in sets]
    rows = [_blank(one.rows, columns) for one in sets]
    x = np.vstack([of[some] for of, some in zip(rows, used, strict=True)])
    y = np.concatenate([one.labels[some] for one, some in zip(sets, used, strict=True)])
    w = np.concatenate(
        [np.full(len(some), one.weight) for one, some in zip(sets, used, strict=True)]
    )
    groups = np.concatenate(
        [
            [f"{n} {one.groups[i]}" for i in some.tolist()]
            for n, (one, some) in enumerate(zip(sets, used, strict=True))
        ]
    )
    scores = [np.zeros(len(one.labels)) for one in sets]
    names = [np.array([f"{n} {group}" for group in one.groups]) for n, one in enumerate(sets)]
    for train, test in GroupKFold(5, shuffle=True, random_state=1).split(x, y, groups):
        first = fit_trees("pair", x[train], y[train], FEATURES, w[train])
        for of, group, row in zip(scores, names, rows, strict=True):
            # Groups without labels are scored by the last fold; they only are rivals.
            mine = np.isin(group, groups[test]) | ~np.isin(group, groups)
            of[mine] = first.scores(row[mine])
    alone = fit_trees("pair", x, y, FEATURES, w)
    both = np.vstack(
        [
            np.hstack([row, rivals(one.facts, one.pairs, of)])[some]
            for one, row, of, some in zip(sets, rows, scores, used, strict=True)
        ]
    )
    return PairModels(alone, fit_trees("rivals", both, y, FEATURES + RIVALS, w))


def _blank(rows: Double, columns: Sequence[int]) -> Double:
    blank = rows.copy()
    blank[:, list(columns)] = 0
    return blank


def cross_validated(
    databases: LabelledPairs, others: Sequence[LabelledPairs], columns: Sequence[int] = ()
) -> Double:
    """Return the probabilities of pairs by models that did not see their database."""
    from sklearn.model_selection import GroupKFold

    groups = np.array(databases.groups)
    found = np.zeros(len(groups))
    rows = np.arange(len(groups))
    for train, test in GroupKFold(_FOLDS, shuffle=True, random_state=0).split(rows, groups=groups):
        seen = replace(databases, used=databases.used & np.isin(rows, train))
        models = fit_pairs([seen, *others], columns)
        blank = replace(databases, rows=_blank(databases.rows, columns))
        found[test] = models.probabilities(blank)[test]
    return found


def logistic_curve(chances: Double, labels: Int) -> tuple[float, float]:
    """Fit the curve that calibrates scores of pairs that the model had not seen."""
    from sklearn.linear_model import LogisticRegression

    clipped = np.clip(chances, 1e-6, 1 - 1e-6)
    scores = np.log(clipped / (1 - clipped))
    model = LogisticRegression(C=1e3).fit(scores[:, None], labels)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def fit_keys(
    lake: Lake, labelled: LabelledPairs, chances: Double, keys: Sequence[Mapping[str, str]]
) -> BoostedTrees:
    """Fit the model of keys: referenced columns against other unique ones of the same tables."""
    finder = RelationFinder(lake.index)
    facts = finder.facts
    weighed = WeighedPairs(labelled.pairs, chances, chances, 0, np.zeros(len(chances), np.int64))
    rows, columns = key_features(facts, finder.columns.joins, weighed)
    numbers = column_numbers(finder)
    parents = set()
    for key in keys:
        at = numbers.get((f"{key['db']}.{key['ref_table']}", key["ref_columns"]))
        if at is not None:
            parents.add(at)
    tables = {int(facts.table[at]) for at in parents}
    known = np.array([int(facts.table[c]) in tables for c in columns.tolist()], bool)
    labels = np.array([c in parents for c in columns.tolist()], np.int64)
    return fit_trees("key", rows[known], labels[known], KEY_FEATURES, np.ones(int(known.sum())))


class KnownQuery(NamedTuple):
    """A query whose right answers are known, and what is held apart together."""

    column: Column
    #: Ids of columns.
    right: set[str]
    group: str
    #: Wrong answers that look most like right ones: other children of the same parent.
    rivals: frozenset[str] = frozenset()
    #: The table whose columns are no answers.
    exclude: str | None = None
    #: All answers that are judged; empty: those that are not right are wrong.
    judged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LabelledHits:
    """Hits of some queries: what is weighed, and whether each is a right answer."""

    rows: Double
    labels: Int
    #: The query of each hit, and the group that is held apart together.
    queries: Int
    groups: Sequence[str]
    weights: Double


def label_hits(
    lake: Lake, queries: Sequence[KnownQuery], depth: int = 60, most: int = 0
) -> LabelledHits:
    """Search with columns whose right answers are known.

    Of more hits than ``most``, the right ones and some of the others are taken.
    """
    names = NameVectors(load_cell_encoder())
    rows, labels, numbers, groups, weights = [], [], [], [], []
    every = SearchSettings(least=0, matches=0)
    for number, known in enumerate(queries):
        query = known.column
        facts = QueryFacts(SearchQuery(query, lake.settings.profile))
        places: dict[int, list[tuple[int, Hit, bool]]] = {}
        segments = {}
        for hit in lake.search(query, depth, exclude_table=known.exclude, settings=every):
            is_right = hit.column_id in known.right
            is_taken = not most or hit.rank <= most or hit.rank % _SOME == 0 or is_right
            if is_taken and (not known.judged or hit.column_id in known.judged):
                segment, _ = lake.index.place(hit.table)
                column = segment.catalog.find_column(hit.table, hit.column)
                segments[id(segment)] = segment
                places.setdefault(id(segment), []).append((column, hit, is_right))
        for which, some in places.items():
            segment, columns = segments[which], np.array([column for column, _, _ in some])
            meaning = names.similarity(query.name, segment, columns)
            shares, back = (
                np.array([getattr(hit, name) for _, hit, _ in some])
                for name in ("joinability", "reverse")
            )
            rows.append(facts.features(segment, columns, shares, back, meaning))
            labels += [int(is_right) for _, _, is_right in some]
            numbers += [number] * len(some)
            groups += [known.group] * len(some)
            weights += [_RIVAL if hit.column_id in known.rivals else 1.0 for _, hit, _ in some]
    return LabelledHits(
        np.vstack(rows), np.array(labels), np.array(numbers), groups, np.array(weights)
    )


def foreign_key_queries(
    lake: Lake, keys: Sequence[Mapping[str, str]], least: int = 5, *, backwards: bool = False
) -> list[KnownQuery]:
    """Make a query of each child of a declared key; the right answer is its parent.

    ``backwards``, make one of each parent; the right answers are its children.
    """
    ends: list[tuple[Column, Column, str]] = []
    for key in keys:
        if key["n_columns"] != "1" or int(key["distinct_child"] or 0) < least:
            continue
        try:
            child, parent = (
                lake.column(f"{key['db']}.{key[table]}", key[column])
                for table, column in (("table", "columns"), ("ref_table", "ref_columns"))
            )
        except DeepJoinError:
            continue  # a parent of few values is not searched
        ends.append((child, parent, key["db"]))
    children: dict[str, set[str]] = {}
    for child, parent, _ in ends:
        children.setdefault(str(parent.column_id), set()).add(str(child.column_id))
    if backwards:
        parents = {str(parent.column_id): (parent, group) for _, parent, group in ends}
        return [
            KnownQuery(one, children[name], group, exclude=one.table)
            for name, (one, group) in parents.items()
        ]
    found = []
    for child, parent, group in ends:
        rivals = children[str(parent.column_id)] - {str(child.column_id)}
        right = {str(parent.column_id)}
        found.append(KnownQuery(child, right, group, frozenset(rivals), child.table))
    return found


def labelled_queries(corpus: Path) -> list[KnownQuery]:
    """Read the queries of a corpus whose right answers the editors' links tell."""
    labels = pq.read_table(corpus / "labels.parquet")
    labels = labels.filter(pc.greater_equal(labels["entity_jn"], _RELEVANT))
    right: dict[str, set[str]] = {}
    for query, column in zip(
        *(labels[n].to_pylist() for n in ("query_id", "column_id")), strict=True
    ):
        right.setdefault(query, set()).add(column)
    found = []
    for row in pq.read_table(corpus / "queries.parquet").to_pylist():
        words = (row[name] or "" for name in ("title", "context"))
        query = Column(row["cells"], row["column_name"] or "", row["table_id"], *words)
        known = right.get(row["column_id"], set()), row["table_id"]
        found.append(KnownQuery(query, *known, exclude=query.table))
    return found


def judged_queries(lake: Lake, judged: Path) -> list[KnownQuery]:
    """Read questions of a lake whose answers a person judged: yes or no."""
    answers: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in declared_keys(judged):
        if not row["set"].startswith(_TEST):
            answers.setdefault((row["query_table"], row["query_column"]), []).append(row)
    found = []
    for (table, column), rows in answers.items():
        every, right = (
            {
                str(lake.column(one["table"], one["column"]).column_id)
                for one in rows
                if one["judged"] in said
            }
            for said in (("yes", "no"), ("yes",))
        )
        # The tables of one folder are held apart together.
        known = KnownQuery(lake.column(table, column), right, table.rpartition("/")[0])
        found.append(known._replace(exclude=table, judged=frozenset(every)))
    return found


def as_lists(queries: Sequence[KnownQuery]) -> list[KnownQuery]:
    """Take some values of each query, as a person types them in: without a name or a table.

    The column that they are from is a rival of what is looked up.
    """
    rng, found = np.random.default_rng(0), []
    for one in queries:
        values = list(dict.fromkeys(cell for cell in one.column.cells if cell not in (None, "")))
        some = rng.permutation(len(values))[: rng.integers(*_TYPED)].tolist()
        typed = one._replace(column=Column([values[place] for place in some], ""))
        if own := one.column.column_id:
            typed = typed._replace(exclude=None, rivals=one.rivals | {own})
        found.append(typed)
    return found


def fit_hits(sets: Sequence[LabelledHits], weights: Sequence[float]) -> BoostedTrees:
    """Fit the model of hits; a part of them without the meaning of names, as equi hits have it."""
    from sklearn.model_selection import GroupKFold

    rows = np.vstack([one.rows for one in sets])
    labels = np.concatenate([one.labels for one in sets])
    groups = np.concatenate([one.groups for one in sets])
    weight = np.concatenate([w * one.weights for one, w in zip(sets, weights, strict=True)])
    without = rows.copy()
    without[:, HIT_FEATURES.index("name_meaning")] = 0
    some = np.random.default_rng(0).random(len(rows)) < _WITHOUT_MEANING
    rows = np.where(some[:, None], without, rows)
    # Every second query as if it came from outside the lake, where no table is near it.
    outside = np.concatenate([one.queries % 2 == 1 for one in sets])
    rows[outside, HIT_FEATURES.index("same_place")] = 0
    chances = np.zeros(len(rows))
    for train, test in GroupKFold(5, shuffle=True, random_state=1).split(rows, labels, groups):
        model = fit_rising_trees(rows[train], labels[train], HIT_FEATURES, weight[train])
        chances[test] = model.probabilities(rows[test])
    model = fit_rising_trees(rows, labels, HIT_FEATURES, weight)
    return replace(model, curve=logistic_curve(chances, labels))


def main() -> None:
    """Train all models and write them into the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("databases", type=Path)
    parser.add_argument("--open-data", help="index of the lake that was judged")
    parser.add_argument("--judged", type=Path, help="what was judged")
    parser.add_argument("--questions", type=Path, help="hits of that lake that were judged")
    parser.add_argument("--labelled", type=Path, help="corpus with labels, for the model of hits")
    parser.add_argument("-o", "--out", type=Path, default=NUMBERS)
    options = parser.parse_args()
    files = sorted(map(str, (options.databases / "spider").glob("*.sqlite")))
    keys = declared_keys(options.databases / "spider_fk.csv")
    with tempfile.TemporaryDirectory() as scratch:
        lake = index(files, Path(scratch) / "lake", vectors=Vectors(cells="none"))
        databases = label_databases(lake, keys, across=False)
        others = further_sets(lake, keys, Path(scratch), options.open_data, options.judged)
        chances = cross_validated(databases, others)
        used = databases.used
        curve = logistic_curve(chances[used], databases.labels[used])
        models = fit_pairs([databases, *others])
        key = fit_keys(lake, databases, chances, keys)
        hits: list[LabelledHits] = []
        if options.labelled:
            wide = index(files, Path(scratch) / "cells")
            children = foreign_key_queries(wide, keys)
            hits.append(label_hits(wide, children, _DEEP))
            parents = foreign_key_queries(wide, keys, backwards=True)
            hits.append(label_hits(wide, parents, _DEEPER, _DEEP))
            corpus = index(str(options.labelled), Path(scratch) / "labelled")
            # The other half of the queries is left to measure with.
            labelled = labelled_queries(options.labelled)[::2]
            hits.append(label_hits(corpus, labelled))
            hits.append(label_hits(wide, as_lists(children)))
            hits.append(label_hits(corpus, as_lists(labelled)))
            if options.open_data and options.questions:
                judged = open_lake(options.open_data)
                asked = judged_queries(judged, options.questions)
                hits.append(label_hits(judged, asked, _DEEP))
    before = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    found = {
        "pair": models.alone.to_json(),
        "rivals": replace(models.beside, curve=curve).to_json(),
        "key": key.to_json(),
    }
    if hits:
        found["hit"] = fit_hits(hits, _WEIGHTS[: len(hits)]).to_json()
    options.out.write_text(json.dumps(before | found, separators=(",", ":")) + "\n", "utf-8")
    sys.stdout.write(
        f"{int(databases.labels.sum())} keys of {len(files)} databases; curve {curve}\n"
    )


if __name__ == "__main__":
    main()
