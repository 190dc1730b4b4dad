"""Train the two models of careful similarity; write src/deepjoin/matching/careful.json.

``python benchmarks/train_matching.py FUZZYJOIN ENTITIES ALIASES CORPUS [--check]`` needs
scikit-learn. FUZZYJOIN and ENTITIES hold folders with left.csv, right.csv and gt.csv; ALIASES is a
Parquet file of pairs (surface, entity) with the name of the column that has them; CORPUS has the
columns (columns.parquet) whose other cells stand beside the entities. With ``--check`` each set is
also scored by models that did not see it (five folds of whole sets), and macro figures at several
thresholds are printed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier

from common import say
from deepjoin.arrays import Double, Float, Int
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.matching import careful
from deepjoin.matching.candidates import leading
from deepjoin.matching.features import NAMES, ValueWords
from deepjoin.matching.trees import Trees
from deepjoin.normalise.canonical import canonical
from match import Task, distinct, fuzzy_tasks

TARGET = Path(careful.__file__).with_name("careful.json")
FOLDS = 5
#: Of columns of aliases: how many there are, their aliases, their other cells, and their weight.
ALIAS_SETS, ALIASES, OTHER_CELLS, ALIAS_WEIGHT = 48, (40, 400), 2500, 0.3
#: Sets made up of each kind, their pairs, their weight, and the words in them.
MADE_UP, MADE_UP_SIZE, MADE_UP_WEIGHT = 2, 500, 0.4
THINGS = (
    "camera printer monitor phone drill kettle lamp mixer radio router speaker stove tuner vacuum"
)
QUALITIES = (
    "compact cordless digital portable stereo wireless stainless professional automatic series"
)
COLOURS = "black white silver red blue pink grey"
TRADES = "foods optics hospital clinic museum bank press motors hotel airlines school park"
FORMS = "inc ltd llc corporation group gmbh company"
#: Values of a swapped set that look for a partner.
SWAPPED = 1500
#: Weight for the second model of a column without partners, or with half of them. Without
#: partners, hardly anything matches anyway; with full weight they cost recall everywhere.
WEIGHTS = {"out": 0.2, "half": 0.5, "small": 0.5}
#: Pairs to which the first model gives less are easy for the second.
EASY = 0.04
#: Small samples: values, and the share of partners that stay.
SMALL = ((10, 1.0), (12, 0.0), (25, 0.5), (40, 1.0), (40, 0.0), (120, 0.7))


@dataclass
class Variant:
    """Two columns to learn from, and their described pairs."""

    name: str
    kind: str
    left: list[str]
    right: list[str]
    gold: set[tuple[str, str]]
    weight: float
    equal: Int = field(init=False)
    found: careful.DescribedPairs = field(init=False)
    labels: Any = field(init=False)
    second: Float = field(init=False)

    def describe(self, encoder: Any) -> careful.ComparedColumns:
        """Find and describe candidate pairs."""
        places = {value: at for at, value in enumerate(self.right)}
        self.equal = np.array([places.get(value, -1) for value in self.left], np.int64)
        pair = careful.ComparedColumns(self.left, self.right, encoder)
        self.found = careful.first_features(pair, self.equal)
        pairs = zip(self.found.left.tolist(), self.found.right.tolist(), strict=True)
        self.labels = np.array([(self.left[i], self.right[j]) in self.gold for i, j in pairs], bool)
        return pair


def alias_columns(aliases: Path, corpus: Path, chance: random.Random) -> Iterator[Task]:
    """Make columns of link texts, whose partners stand among cells of columns of the same name."""
    table = pq.read_table(aliases).to_pydict()
    links = [
        (canonical(surface), canonical(entity), (name or "").lower().strip(), count)
        for surface, entity, name, count in zip(
            *(table[key] for key in ("surface", "entity", "column_name", "count")), strict=True
        )
    ]
    usual: dict[str, Counter[str]] = defaultdict(Counter)
    for surface, entity, _, count in links:
        usual[surface][entity] += count
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    for surface, entity, name, _ in links:
        if surface and entity and usual[surface].most_common(1)[0][0] == entity:
            mine, theirs = (ValueWords.of(one).distinct for one in (surface, entity))
            # Not lists of several things, nor years and numbers.
            if any(map(str.isalpha, surface)) and len(mine - theirs) <= 2:
                columns[name][surface] = entity
    cells: dict[str, set[str]] = defaultdict(set)
    for batch in pq.ParquetFile(corpus / "columns.parquet").iter_batches(8192):
        for row in batch.select(["column_name", "cells"]).to_pylist():
            name = (row["column_name"] or "").lower().strip()
            if len(columns.get(name, ())) >= ALIASES[0]:
                cells[name].update(map(canonical, filter(None, row["cells"])))
    tasks = []
    for name, pairs in sorted(columns.items()):
        same = [pair for pair in sorted(pairs.items()) if pair[0] == pair[1]]
        differ = [pair for pair in sorted(pairs.items()) if pair[0] != pair[1]]
        for part in (same, differ):
            chance.shuffle(part)
        others = sorted(cells[name].difference(pairs, [""]))
        for start in range(0, min(len(differ), 4 * ALIASES[1]), ALIASES[1]):
            some = differ[start : start + ALIASES[1]]
            gold = frozenset(some + same[: len(some) // 5])
            beside = chance.sample(others, min(len(others), OTHER_CELLS))
            right = sorted({*pairs.values(), *beside}.difference(one for one, _ in some))
            chance.shuffle(right)
            if len(some) >= ALIASES[0] and len(right) >= 100:
                tasks.append(Task("", "aliases", sorted(one for one, _ in gold), right, gold))
    yield from chance.sample(tasks, min(len(tasks), ALIAS_SETS))


def made_up_sets(chance: random.Random) -> Iterator[Task]:
    """Make up products, whose codes decide, and companies, whose words do."""
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "an", "er", "on")]

    def word() -> str:
        return "".join(chance.choices(syllables, k=chance.randint(2, 3)))

    def some(words: str, least: int, most: int) -> str:
        return " ".join(chance.sample(words.split(), chance.randint(least, most)))

    for number in range(MADE_UP):
        brands, families = [word() for _ in range(15)], [word() for _ in range(30)]
        products: set[tuple[str, str]] = set()
        companies: set[tuple[str, str]] = set()
        words = [word() for _ in range(200)]
        while len(products) < MADE_UP_SIZE:
            kind, family = f"{some(THINGS, 1, 2)}", chance.choice(families)
            code = f"{word()[: chance.randint(1, 4)]}{chance.randint(10, 9999)}"
            ends = chance.sample(["", "b", "w", "bk", "s", "x"], chance.randint(1, 2))
            first = f"{chance.choice(brands)} {family} {some(QUALITIES, 0, 2)} {kind}".split()
            for end in ends:  # siblings differ in their code alone, or in a colour as well
                colour, full = some(COLOURS, 0, 1), f"{code}{end}"
                hyphen = chance.randint(1, len(full))
                there = chance.choice((full, full, f"{full[:hyphen]}-{full[hyphen:]}", code, ""))
                rest = chance.sample(first[1:], chance.randint(1, len(first) - 1))
                other = [first[0], there, *rest, colour, *some(QUALITIES, 0, 4).split()]
                products.add((" ".join([*first, colour, "-", full]), " ".join(other).strip()))
        while len(companies) < MADE_UP_SIZE:
            name = " ".join([*chance.choices(words, k=chance.randint(1, 2)), some(TRADES, 1, 1)])
            at = chance.randrange(len(name))
            typo = name[:at] + name[at + 1 :]
            spelled = f"{chance.choice((name, typo))} {some(FORMS, 0, 1)}"
            companies.add((name, spelled if chance.random() < 0.8 else f"the {name}"))
        for pairs in (products, companies):
            gold = frozenset((" ".join(a.split()), " ".join(b.split())) for a, b in pairs)
            left, right = ([pair[at] for pair in sorted(gold)] for at in (0, 1))
            if pairs is companies:  # the same name with a different trade is a different company
                right += [f"{one.rsplit(' ', 1)[0]} {some(TRADES, 1, 1)}" for one in left[::3]]
            chance.shuffle(right)
            yield Task("", f"made up {number}", left, right, gold)


def variants(task: Task, chance: random.Random, weight: float) -> Iterator[Variant]:
    """Make columns of a set: as it is, without partners, swapped, and small samples."""
    gold = {(canonical(left), canonical(right)) for left, right in task.gold}
    left, right = distinct(task.left), distinct(task.right)
    partners = {other for _, other in gold}
    half = {other for other in sorted(partners) if chance.random() < 0.5}
    backwards = {(other, one) for one, other in gold}
    for kind, taken in (("present", set()), ("out", partners), ("half", half)):
        kept = [value for value in right if value not in taken]
        yield Variant(task.name, kind, left, kept, gold, weight)
        if weight == 1 and (kind == "present" or (kind == "out" and chance.random() < 0.4)):
            mine = [
                kept[at] for at in sorted(chance.sample(range(len(kept)), min(SWAPPED, len(kept))))
            ]
            gold_back = {pair for pair in backwards if pair[0] in set(mine)}
            yield Variant(task.name, f"{kind}, swapped", mine, left, gold_back, weight / 2)
    if len(gold) < 12:
        return
    partner = dict(sorted(gold))
    for size, share in SMALL:
        mine = chance.sample(sorted(partner), min(size, len(partner)))
        theirs = [partner[value] for value in mine if chance.random() < share]
        pair = careful.ComparedColumns(mine, right, None)
        _, near = pair.space.nearest(pair.grams, 2, False)
        theirs += [right[at] for at in near.tolist() if chance.random() < 0.35]
        theirs += chance.sample(right, min(size, len(right)))
        some = [one for one in theirs if one in set(partner.values()) or one not in partners]
        yield Variant(task.name, "small", mine, distinct(some), gold, 0.4 * weight)


def fit(
    chosen: list[Variant], rows: Callable[[Variant], Float], count: int, chance: int | None = None
) -> dict[str, Any]:
    """Train an ensemble and return it as plain numbers.

    ``chance`` is the feature that has the chance of the first model, for the second.
    """
    features, labels, weights = [], [], []
    for one in chosen:
        described, right = rows(one), one.labels
        # Most pairs are easy: keep a twentieth of them, with twenty times the weight.
        if chance is None:
            hard = right | (described[:, 0] > 0.5) | (described[:, 1] > 0.78)
        else:
            hard = right | (described[:, chance] > EASY)
        kept = hard | (np.random.default_rng(len(right)).random(len(right)) < 0.05)
        base = one.weight * len(np.unique(one.found.left)) ** -0.6
        if chance is not None:
            base *= WEIGHTS.get(one.kind, 1.0)
        features.append(described[kept])
        labels.append(right[kept])
        weights.append(np.where(hard, 1, 20)[kept] * base)
    weight = np.concatenate(weights)
    model = HistGradientBoostingClassifier(
        max_iter=count, max_leaf_nodes=12, learning_rate=0.08, min_samples_leaf=80,
        l2_regularization=5, max_bins=100, early_stopping=False, random_state=0,
    )  # fmt: skip
    model.fit(np.vstack(features), np.concatenate(labels), sample_weight=weight / weight.mean())
    trees = []
    for (tree,) in model._predictors:
        trees.append(
            [
                [0, 0, at, at, float(f"{node['value']:.4g}")]
                if node["is_leaf"]
                else [int(node["feature_idx"]), float(f"{node['num_threshold']:.8g}"),
                      int(node["left"]), int(node["right"]), 0.0]
                for at, node in enumerate(tree.nodes)
            ]
        )  # fmt: skip
    depth = max(int(tree.nodes["depth"].max()) for (tree,) in model._predictors)
    base = round(float(model._baseline_prediction.ravel()[0]), 5)
    return {"base": base, "depth": depth, "trees": trees}


class Figures(NamedTuple):
    """What a variant scores at a threshold."""

    precision: float
    recall: float
    f1: float
    #: Share of its values that get a match beside equal ones.
    matched: float
    #: How much the estimated precision is above the true one.
    above: float

    @classmethod
    def of(cls, one: Variant, chances: Double, least: float) -> Figures:
        """Take the best pair of each value, and compare with the gold."""
        best = leading(one.found.left, chances, 1)
        best = best[chances[best] >= least]
        same = [(one.left[at], one.right[to]) for at, to in enumerate(one.equal) if to >= 0]
        good = int(one.labels[best].sum()) + sum(pair in one.gold for pair in same)
        found = max(len(best) + len(same), 1)
        precision, recall = good / found, good / max(len(one.gold), 1)
        f1 = 2 * precision * recall / (precision + recall) if good else 0.0
        claim = (chances[best].sum() + len(same)) / found
        return cls(precision, recall, f1, len(best) / len(one.left), claim - precision)


def show_check(every: list[Variant], judged: dict[int, Double], apart: set[str]) -> None:
    """Print macro figures at several thresholds, with and without the rules beside the models."""
    rules: dict[str, Callable[[Variant], Double]] = {
        "models alone": lambda one: judged[id(one)],
        "with rules": lambda one: careful.with_knowledge(judged[id(one)], one.found.rows),
    }
    for name, chances in rules.items():
        for least in (0.35, 0.4, 0.45, 0.48, 0.5, 0.52, 0.54, 0.56, 0.58, 0.6, 0.65):
            line = [f"{name}, least {least}:"]
            for kind in ("present", "out", "present, swapped"):
                fuzzy = [one for one in every if id(one) in judged and one.name not in apart]
                chosen = [one for one in fuzzy if one.kind == kind]
                each = [Figures.of(one, chances(one), least) for one in chosen]
                mean = Figures(*np.mean(each, axis=0).tolist())
                if kind == "out":
                    line.append(f"out: {mean.matched:.3f} matched;")
                else:
                    away = np.mean([abs(one.above) for one in each])
                    line.append(
                        f"{kind}: P {mean.precision:.3f} R {mean.recall:.3f} F1 {mean.f1:.3f} "
                        f"estimate off by {away:.3f}, {mean.above:+.3f} on average;"
                    )
            for one in every:
                if one.kind == "present" and one.name in apart:
                    line.append(f"{one.name} {Figures.of(one, chances(one), least).f1:.3f}")
            say(" ".join(line))


def main() -> None:
    """Train, and check by folds if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("fuzzyjoin", "entities", "aliases", "corpus"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    chance, encoder = random.Random(1), load_cell_encoder()
    tasks = [*fuzzy_tasks(options.fuzzyjoin, "", reference_right=True)]
    entities = list(fuzzy_tasks(options.entities, "", reference_right=False))
    tasks += entities
    every = [one for task in tasks for one in variants(task, chance, 1.0)]
    for task in alias_columns(options.aliases, options.corpus, chance):
        chosen = variants(task, chance, ALIAS_WEIGHT)
        every += [one for one in chosen if one.kind in ("present", "half", "out")]
    for task in made_up_sets(chance):
        every += variants(task, chance, MADE_UP_WEIGHT)
    compared = {id(one): one.describe(encoder) for one in every}
    every = [one for one in every if len(one.labels)]
    sets = sorted({task.name for task in tasks})
    fold = {name: at % FOLDS for at, name in enumerate(chance.sample(sets, len(sets)))}

    def others(number: int) -> list[Variant]:
        return [one for one in every if fold.get(one.name) != number]

    # The second model learns from first models that did not see the set at hand.
    firsts = [Trees.load(fit(others(at), lambda one: one.found.rows, 80)) for at in range(FOLDS)]
    first = fit(every, lambda one: one.found.rows, 80)
    for one in every:
        model = firsts[fold[one.name]] if one.name in fold else Trees.load(first)
        one.second = careful.second_features(compared[id(one)], one.equal, one.found, model)
    # Aliases of links tell which words differ, not how sure a whole column is.
    known = [one for one in every if one.name != "aliases"]
    second = fit(known, lambda one: one.second, 120, chance=len(NAMES) + 3)
    TARGET.write_text(json.dumps({"first": first, "second": second}, separators=(",", ":")))
    if not options.check:
        return
    parts = [[one for one in others(at) if one.name != "aliases"] for at in range(FOLDS)]
    judges = [
        Trees.load(fit(part, lambda one: one.second, 120, chance=len(NAMES) + 3)) for part in parts
    ]
    judged = {id(one): judges[fold[one.name]].chance(one.second) for one in every
              if one.name in fold}  # fmt: skip
    show_check(every, judged, {task.name for task in entities})


if __name__ == "__main__":
    main()
