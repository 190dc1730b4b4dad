"""Train the models of careful similarity; write src/deepjoin/matching/careful.json.

``python benchmarks/train_matching.py FUZZYJOIN ENTITIES ALIASES CORPUS [--check]`` needs
scikit-learn and PyTorch. FUZZYJOIN and ENTITIES hold folders with left.csv, right.csv and gt.csv;
ALIASES is a Parquet file of pairs (surface, entity) with the name of the column that has them;
CORPUS has the columns (columns.parquet) whose other cells stand beside the entities. With
``--check`` each set is also scored by models that did not see it (five folds of whole sets): macro
figures at several thresholds, and at the shipped one each set and the standard error of mean F1.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from common import say
from deepjoin.arrays import Double, Float, Int
from deepjoin.embed.cells import load_cell_encoder
from deepjoin.matching import careful
from deepjoin.matching.candidates import leading
from deepjoin.matching.careful import FIRST, HABITS, SURROUNDINGS, CarefulModels
from deepjoin.matching.features import ValueWords
from deepjoin.matching.linking import LEAST_CHANCE
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
#: Features of which more, and less, never make a pair less likely to the second model: with this
#: known, it learns less that holds only for the sets it has seen.
RISING = frozenset(
    (
        "spelled", "meant", "mine_shared", "theirs_shared", "mine_alike", "theirs_alike",
        "leftover_dice", "common_prefix", "common_suffix", "acronym", "first_same", "last_same",
        "same_words", "squashed", "unique_shared", "codes_shared", "codes_alike", "code_unique",
        "heads_same", "heads_shared", "sound", "chance", "above_row", "above_column",
        "spelled_above_row", "spelled_above_column", "above_sibling", "spelled_above_sibling",
        "difference_sure", "mine_sure", "theirs_sure", "least_sure",
    )
)  # fmt: skip
FALLING = frozenset(
    (
        "mine_rarest_left", "theirs_rarest_left", "contrast", "mine_left", "theirs_left",
        "numbers_contrast", "mine_known_there", "theirs_known_here", "codes_contrast",
        "codes_known", "qualifiers_contrast", "opposed", "marked", "next_in_row", "row_rank",
        "next_in_column", "column_rank", "taken", "mine_sibling", "theirs_sibling",
        "mine_sibling_spelled", "theirs_sibling_spelled", "siblings_above", "difference_within",
    )
)  # fmt: skip
#: Networks, the widths of their layers, how often they see each value, values at a time, the
#: share of features and inner cells left out at random, and the highest rate of learning.
NETWORKS, WIDTHS, EPOCHS, BATCH, LEFT_OUT, RATE = 2, (48, 24), 6, 192, (0.05, 0.15), 0.006
#: Candidates of a value that a network chooses from, the share of easy values that it sees, and
#: the most that a value may weigh.
CHOSEN_FROM, EASY_SHARE, HEAVIEST = 10, 0.15, 15.0
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


def fit_trees(chosen: list[Variant], *, second: bool) -> dict[str, Any]:
    """Train the trees of the first or the second model and return them as plain numbers."""
    names = (*FIRST, *SURROUNDINGS, *HABITS) if second else FIRST
    signs = [(name in RISING) - (name in FALLING) for name in names] if second else None
    features, labels, weights = [], [], []
    for one in chosen:
        described, right = one.second if second else one.found.rows, one.labels
        # Most pairs are easy: keep a twentieth of them, with twenty times the weight.
        if second:
            hard = right | (described[:, len(FIRST)] > EASY)
        else:
            hard = right | (described[:, 0] > 0.5) | (described[:, 1] > 0.78)
        kept = hard | (np.random.default_rng(len(right)).random(len(right)) < 0.05)
        base = one.weight * len(np.unique(one.found.left)) ** -0.6
        if second:
            base *= WEIGHTS.get(one.kind, 1.0)
        features.append(described[kept])
        labels.append(right[kept])
        weights.append(np.where(hard, 1, 20)[kept] * base)
    weight = np.concatenate(weights)
    model = HistGradientBoostingClassifier(
        max_iter=120 if second else 80, monotonic_cst=signs, max_leaf_nodes=12,
        learning_rate=0.08, min_samples_leaf=80, l2_regularization=5, max_bins=100,
        early_stopping=False, random_state=0,
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


class Choices(NamedTuple):
    """Values that choose among their candidates: rows of features, -1 for none, in columns."""

    rows: Float
    candidates: Int
    labels: Any
    weights: Double

    @classmethod
    def of(cls, chosen: list[Variant]) -> Choices:
        """Gather the values of all variants, and a part of those whose candidates are easy."""
        parts: list[tuple[Any, ...]] = []
        known = 0
        for one in chosen:
            chances = one.second[:, len(FIRST)]
            best = leading(one.found.left, chances, CHOSEN_FROM)
            owners, starts, owner = np.unique(
                one.found.left[best], return_index=True, return_inverse=True
            )
            candidates = np.full((len(owners), CHOSEN_FROM), -1)
            candidates[owner, np.arange(len(best)) - starts[owner]] = best
            there = candidates >= 0
            labels = there & one.labels[candidates]
            hard = np.where(there, chances[candidates], 0).max(axis=1) > EASY
            hard |= labels.any(axis=1)
            kept = hard | (np.random.default_rng(len(chances)).random(len(hard)) < EASY_SHARE)
            base = one.weight * WEIGHTS.get(one.kind, 1.0) * len(owners) ** -0.6
            used, place = np.unique(candidates[kept][there[kept]], return_inverse=True)
            numbers = np.full((int(kept.sum()), CHOSEN_FROM), -1)
            numbers[there[kept]] = place + known
            weights = np.where(hard, 1, 1 / EASY_SHARE)[kept] * base
            parts.append((one.second[used], numbers, labels[kept], weights))
            known += len(used)
        rows, numbers, labels, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(rows, numbers, labels, weights / weights.mean())


def fit_network(choices: Choices, seed: int) -> dict[str, Any]:
    """Train a network to choose the right candidate of a value, or none; return plain numbers."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rows, candidates, labels, weights = choices
    mean, deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-3
    cells = torch.tensor(np.clip((rows - mean) / deviation, -4, 4).astype(np.float32))
    layers: list[Any] = []
    sizes = (rows.shape[1], *WIDTHS, 1)
    for at, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [torch.nn.Dropout(LEFT_OUT[at > 0]), torch.nn.Linear(inputs, outputs)]
        layers += [torch.nn.SiLU()] if outputs > 1 else []
    network = torch.nn.Sequential(*layers)
    numbers, right = torch.tensor(candidates), torch.tensor(labels)
    weight = torch.tensor(np.minimum(weights, HEAVIEST).astype(np.float32))
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    steps = EPOCHS * -(-len(numbers) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for some in torch.randperm(len(numbers), generator=order).split(BATCH):
            there, good = numbers[some] >= 0, right[some]
            scores = torch.full(there.shape, -30.0)
            scores[there] = network(cells[numbers[some][there]])[:, 0]
            # The last choice is none, whose score is 0.
            scores = torch.nn.functional.pad(scores, (0, 1))
            good = torch.cat([good, ~good.any(dim=1, keepdim=True)], dim=1)
            missed = scores.logsumexp(1) - scores.masked_fill(~good, -1e9).logsumexp(1)
            optimizer.zero_grad()
            (missed * weight[some]).mean().backward()
            optimizer.step()
            schedule.step()

    def plain(of: Any) -> Any:
        return np.vectorize(lambda cell: float(f"{cell:.5g}"), otypes=[float])(of).tolist()

    trained = [
        [plain(layer.weight.detach().numpy().T), plain(layer.bias.detach().numpy())]
        for layer in layers if isinstance(layer, torch.nn.Linear)
    ]  # fmt: skip
    return {"mean": plain(mean), "deviation": plain(deviation), "layers": trained}


def fit(chosen: list[Variant], first: dict[str, Any]) -> dict[str, Any]:
    """Train what sees the surroundings, beside a first model."""
    # Aliases of links tell which words differ, not how sure a whole column is.
    known = [one for one in chosen if one.name != "aliases"]
    choices = Choices.of(known)
    networks = [fit_network(choices, seed) for seed in range(NETWORKS)]
    return {"first": first, "second": fit_trees(known, second=True), "networks": networks}


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
        for least in (0.3, 0.35, 0.4, 0.43, 0.45, 0.47, 0.5, 0.52, 0.55, 0.58, 0.62):
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
    every_f1 = []
    for one in every:
        if one.kind == "present" and id(one) in judged:
            found = Figures.of(one, rules["with rules"](one), LEAST_CHANCE)
            say(f"{one.name}: P {found.precision:.3f} R {found.recall:.3f} F1 {found.f1:.3f}, "
                f"estimate {found.above:+.3f}")  # fmt: skip
            every_f1 += [found.f1] * (one.name not in apart)
    say(f"standard error of the mean F1: {np.std(every_f1, ddof=1) / len(every_f1) ** 0.5:.3f}")


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

    # The others learn from first models that did not see the set at hand.
    firsts = [fit_trees(others(at), second=False) for at in range(FOLDS)]
    first = fit_trees(every, second=False)
    models = [Trees.load(one) for one in firsts]
    for one in every:
        model = models[fold[one.name]] if one.name in fold else Trees.load(first)
        one.second = careful.second_features(compared[id(one)], one.equal, one.found, model)
    TARGET.write_text(json.dumps(fit(every, first), separators=(",", ":")) + "\n")
    if not options.check:
        return
    judges = [CarefulModels.load(fit(others(at), firsts[at])) for at in range(FOLDS)]
    judged = {
        id(one): judges[fold[one.name]].chances(one.found.left, one.second)
        for one in every if one.name in fold
    }  # fmt: skip
    show_check(every, judged, {task.name for task in entities})


if __name__ == "__main__":
    main()
