"""Accuracy of `deepjoin.match` on value pairs with gold, set by set, beside rapidfuzz.

``python benchmarks/match.py [--fuzzy FOLDER] [--entities FOLDER] [--programs FOLDER]
[--meanings FOLDER] [--bridges FOLDER...] [--speed N] [--way WAY] [--swap] [--each]``

- ``--fuzzy``: folders with left.csv, right.csv (id, title) and gt.csv. Every title of right.csv
  looks for its partner in left.csv; once as they are, once with all true partners taken out of
  left.csv, where every match is wrong.
- ``--entities``: the same files, left.csv against right.csv.
- ``--programs``: collections of folders with source.csv, target.csv, rows.txt and ground truth.csv:
  keys that need a program, or knowledge.
- ``--meanings``: CaseN_input.txt (two columns, a blank line between) and CaseN_groundtruth.txt.
- ``--bridges``: corpora of columns (columns.parquet) whose tables of several columns are a lake of
  bridges: pairs of `deepjoin.match`, and for values without one what most bridges lead to. Only
  tables that hold two values of either key of some set are indexed: no other one can be a bridge.
- ``--speed``: N made-up names against N others, half of them spelled in another way; seconds alone.

Figures are macro means over sets of precision, recall and F1 of pairs of values; ``estimate`` is
the mean distance of the estimated precision from the true one. ``--swap`` exchanges the two sides.

Ways: ``deepjoin`` is `deepjoin.match`, ``vectors`` the semantic join at the encoder's threshold,
``rapidfuzz`` its weighted ratio from 90. ``cosine``, ``levenshtein``, ``jaro-winkler`` and
``skrub`` take for each value the most similar one and the best threshold over the sets at hand,
which a user could not know.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from common import emit, machine, say, show, versions
from deepjoin.normalise.canonical import canonical

Pair = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """Two columns and the pairs of values that are right."""

    group: str
    name: str
    left: list[str]
    right: list[str]
    gold: frozenset[Pair]

    def swapped(self) -> Task:
        """Exchange the sides."""
        gold = frozenset((right, left) for left, right in self.gold)
        return Task(self.group, self.name, self.right, self.left, gold)

    def without_partners(self) -> Task:
        """Take every true partner out of the right column."""
        partners = {canonical(right) for _, right in self.gold}
        right = [value for value in self.right if canonical(value) not in partners]
        return Task(self.group, self.name, self.left, right, frozenset())


@dataclass(frozen=True)
class Answer:
    """The pairs that were found, and the precision that the matcher claims, if any."""

    pairs: list[Pair]
    precision: float | None = None


Way = Callable[[list[str], list[str]], Answer]
#: A value of each side, and their similarity.
Scored = tuple[str, str, float]


@dataclass(frozen=True)
class Scores:
    """Figures of one set."""

    precision: float
    recall: float
    f1: float
    claimed: float | None

    @classmethod
    def of(cls, task: Task, answer: Answer) -> Scores:
        """Compare canonical pairs with the gold."""
        gold = {(canonical(left), canonical(right)) for left, right in task.gold}
        found = {(canonical(left), canonical(right)) for left, right in answer.pairs}
        right = len(gold & found)
        precision = right / len(found) if found else 1.0
        recall = right / len(gold) if gold else 1.0
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        return cls(precision, recall, f1, answer.precision if found else None)


def _column(file: Path, name: str) -> dict[str, str]:
    with file.open(encoding="utf-8", newline="") as lines:
        return {row["id"]: row[name] or "" for row in csv.DictReader(lines)}


def fuzzy_tasks(folder: Path, group: str, *, reference_right: bool) -> Iterator[Task]:
    """Read folders of left.csv, right.csv and gt.csv."""
    for inside in sorted(folder.iterdir()):
        if not (inside / "gt.csv").exists():
            continue
        left, right = (_column(inside / f"{side}.csv", "title") for side in ("left", "right"))
        with (inside / "gt.csv").open(encoding="utf-8", newline="") as lines:
            gold = frozenset(
                (left[row["id_l"]], right[row["id_r"]]) for row in csv.DictReader(lines)
            )
        task = Task(group, inside.name, list(left.values()), list(right.values()), gold)
        yield task.swapped() if reference_right else task


def program_tasks(folder: Path) -> Iterator[Task]:
    """Read collections of source.csv, target.csv, rows.txt and ground truth.csv."""
    for collection in sorted(folder.iterdir()):
        if not collection.is_dir():
            continue
        for inside in sorted(collection.iterdir()):
            mine, theirs = (inside / "rows.txt").read_text("utf-8").splitlines()[0].split(":")
            truth = _rows(inside / "ground truth.csv")
            gold = frozenset((row[f"source-{mine}"], row[f"target-{theirs}"]) for row in truth)
            source = [row[mine] for row in _rows(inside / "source.csv")]
            target = [row[theirs] for row in _rows(inside / "target.csv")]
            yield Task(collection.name, inside.name, source, target, gold)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [dict(row) for row in csv.DictReader(lines)]


def meaning_tasks(folder: Path) -> Iterator[Task]:
    """Read pairs of CaseN_input.txt and CaseN_groundtruth.txt."""
    for file in sorted(folder.glob("*_input.txt")):
        text = re.sub("\r\n?", "\n", file.read_text("utf-8", errors="replace"))
        parts = text.split("\n\n", 1)
        if len(parts) < 2:
            say(f"{file.name}: no blank line between two columns; left out")
            continue
        left, right = (
            [line.strip() for line in part.split("\n") if line.strip()] for part in parts
        )
        truth = file.with_name(file.name.replace("_input", "_groundtruth"))
        lines = re.split("[\r\n]+", truth.read_text("utf-8", errors="replace"))
        split = [line.split("\t") for line in lines if "\t" in line]
        gold = frozenset((pair[0].strip(), pair[1].strip()) for pair in split)
        yield Task("semantic-join", file.stem.replace("_input", ""), left, right, gold)


def made_up_task(size: int) -> Task:
    """Make up names of three words, and for half of them another spelling."""
    chance = random.Random(3)
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "an", "er", "on")]
    words = [
        "".join(chance.choices(syllables, k=chance.randint(2, 3)))
        for _ in range(max(2000, size // 5))
    ]
    kinds = ("Hospital", "Clinic", "University", "Museum", "Foods", "Optics", "Group", "Park")

    def name() -> str:
        return " ".join([*chance.choices(words, k=2), chance.choice(kinds)])

    right = list(dict.fromkeys(name() for _ in range(size)))
    left = []
    for value in right:
        at, other = chance.randrange(len(value)), chance.choice(words)
        variants = (value[:at] + value[at + 1 :], f"{value} Inc", f"{value} {other}")
        left.append(chance.choice(variants) if chance.random() < 0.5 else name())
    return Task("made up", str(size), left, right, frozenset())


def distinct(values: list[str]) -> list[str]:
    """Reduce cells to distinct canonical values."""
    return list(dict.fromkeys(filter(None, map(canonical, values))))


def by_vectors(left: list[str], right: list[str]) -> Answer:
    """Match by the cosine of cell vectors and the encoder's threshold alone."""
    from deepjoin.embed.cells import load_cell_encoder
    from deepjoin.matching.values import SemanticMatching, match_values

    mine, theirs = distinct(left), distinct(right)
    if not mine or not theirs:
        return Answer([])
    found = match_values(mine, theirs, SemanticMatching(load_cell_encoder(), join="any"))
    return Answer(
        [
            (mine[i], theirs[j])
            for some, _ in found
            for i, j in zip(some.mine.tolist(), some.theirs.tolist(), strict=True)
        ]
    )


def by_match(left: list[str], right: list[str]) -> Answer:
    """Match with the product."""
    import deepjoin

    found = deepjoin.match(left, right)
    return Answer([(one.query, one.target) for one in found], found.precision)


def by_rapidfuzz(left: list[str], right: list[str]) -> Answer:
    """Take the best of rapidfuzz's weighted ratio from 90, a usual choice."""
    from rapidfuzz import fuzz, process

    mine, theirs = distinct(left), distinct(right)
    found = ((value, process.extractOne(value, theirs, scorer=fuzz.WRatio)) for value in mine)
    return Answer([(value, best[0]) for value, best in found if best and best[1] >= 90])


def bridge_tables(corpora: Iterable[Path], tasks: list[Task]) -> dict[str, dict[str, list[str]]]:
    """Read the tables of corpora that hold two values of either side of a task, by name."""
    import pyarrow.parquet as pq

    sides = [[{canonical(value) for value in side} for side in (t.left, t.right)] for t in tasks]
    wanted = {value for one in sides for side in one for value in side}
    found: dict[str, dict[str, list[str]]] = {}
    for corpus in corpora:
        columns: dict[str, dict[str, list[str]]] = {}
        held: dict[str, list[set[str]]] = {}
        for batch in pq.ParquetFile(corpus / "columns.parquet").iter_batches(4096):
            for row in batch.select(["table_id", "column_id", "column_name", "cells"]).to_pylist():
                name = f"{corpus.name}-{row['table_id']}"
                known = {canonical(cell) for cell in row["cells"] if cell} & wanted
                held.setdefault(name, []).append(known)
                title = f"{row['column_name']} {row['column_id'].rpartition('#')[2]}"
                columns.setdefault(name, {})[title] = row["cells"]
        for name, values in held.items():
            if any(
                sum(len(left & one) > 1 for one in values) and
                sum(len(right & one) > 1 for one in values) and len(values) > 1
                for left, right in sides
            ) and len({*map(len, columns[name].values())}) == 1:  # fmt: skip
                found[name] = columns[name]
    return found


def by_bridges(corpora: list[Path], tasks: list[Task], folder: Path) -> Way:
    """Match with the product, and lead the values that are left through tables of the corpora."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import deepjoin

    tables = bridge_tables(corpora, tasks)
    for at, columns in enumerate(tables.values()):
        pq.write_table(pa.table(columns), folder / f"{at}.parquet")
    lake = deepjoin.index(folder, settings=deepjoin.Settings(min_distinct=2))
    say(f"{len(tables):,} tables may be bridges")

    def way(left: list[str], right: list[str]) -> Answer:
        found = deepjoin.match(left, right)
        pairs = [(one.query, one.target) for one in found]
        matched = {canonical(one) for one, _ in pairs}
        votes: dict[str, Counter[str]] = {}
        for bridge in lake.bridges(left, right, least=0.02):
            for one in bridge.matches:
                votes.setdefault(one.query, Counter())[one.target] += 1
        pairs += [
            (value, count.most_common(1)[0][0])
            for value, count in votes.items() if canonical(value) not in matched
        ]  # fmt: skip
        return Answer(pairs)

    return way


def by_cosine(left: list[str], right: list[str]) -> list[Scored]:
    """Take the value with the nearest cell vector."""
    from deepjoin.embed.cells import load_cell_encoder
    from deepjoin.matching.joinability import ONE
    from deepjoin.matching.values import SemanticMatching, nearest_values

    near = nearest_values(left, right, SemanticMatching(load_cell_encoder()))
    same, likes = set(left) & set(right), (near.similarities / ONE).tolist()
    pairs = zip(near.mine.tolist(), near.theirs.tolist(), likes, strict=True)
    found = [(left[i], right[j], like) for i, j, like in pairs if left[i] not in same]
    return found + [(value, value, 1.0) for value in sorted(same)]


def by_edits(scorer: str) -> Callable[[list[str], list[str]], list[Scored]]:
    """Take the most similar value by a measure of rapidfuzz."""

    def score(left: list[str], right: list[str]) -> list[Scored]:
        from rapidfuzz import distance
        from rapidfuzz.process import cdist

        measure = getattr(distance, scorer).normalized_similarity
        similar = cdist(left, right, scorer=measure, workers=2)
        best = similar.argmax(axis=1)
        likes = similar[np.arange(len(left)), best].tolist()
        return list(zip(left, (right[j] for j in best.tolist()), likes, strict=True))

    return score


def by_skrub(left: list[str], right: list[str]) -> list[Scored]:
    """Take skrub's best match and its rescaled distance, whose zero is a perfect match."""
    import pandas as pd
    from skrub import fuzzy_join

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joined = fuzzy_join(
            pd.DataFrame({"mine": left}), pd.DataFrame({"theirs": right}),
            left_on="mine", right_on="theirs", add_match_info=True,
        )  # fmt: skip
    distances = joined["skrub_Joiner_rescaled_distance"].fillna(0.0)
    return list(zip(left, joined["theirs"], 1 - distances / 2, strict=True))


WAYS: dict[str, Way] = {"deepjoin": by_match, "vectors": by_vectors, "rapidfuzz": by_rapidfuzz}
#: Ways that say how similar each value's best match is, and need a threshold.
SCORED = {
    "cosine": by_cosine,
    "levenshtein": by_edits("Levenshtein"),
    "jaro-winkler": by_edits("JaroWinkler"),
    "skrub": by_skrub,
}


def at_best_threshold(way: str, tasks: list[Task]) -> tuple[float, list[Scores]]:
    """Sweep one threshold for all sets, and take that of the best mean F1."""
    scored = [SCORED[way](distinct(task.left), distinct(task.right)) for task in tasks]

    def at(least: float) -> list[Scores]:
        return [
            Scores.of(task, Answer([(one, other) for one, other, like in each if like >= least]))
            for task, each in zip(tasks, scored, strict=True)
        ]

    every = np.arange(0.0, 1.0, 0.01).tolist()
    best = max(every, key=lambda least: np.mean([one.f1 for one in at(least)]))
    return best, at(best)


def measure(way: Way, tasks: Iterable[Task], each: bool) -> list[Scores]:
    """Run all tasks of a group."""
    scores = []
    for task in tasks:
        scores.append(Scores.of(task, way(task.left, task.right)))
        if each:
            one = scores[-1]
            claim = "" if one.claimed is None else f" claims {one.claimed:.2f}"
            say(f"{task.group}/{task.name}: P {one.precision:.3f} R {one.recall:.3f} "
                f"F1 {one.f1:.3f}{claim}")  # fmt: skip
    return scores


def share_matched(way: Way, tasks: Iterable[Task]) -> tuple[float, float]:
    """Share of values that get a match although no partner is there: over all, mean over sets."""
    counts = []
    for task in tasks:
        bare = task.without_partners()
        values = {canonical(value) for value in bare.left} - {""}
        matched = {canonical(left) for left, _ in way(bare.left, bare.right).pairs}
        counts.append((len(matched), len(values)))
    matched_, values_ = np.array(counts).T
    return float(matched_.sum() / values_.sum()), float(np.mean(matched_ / values_))


def main() -> None:
    """Run one way on every set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option in ("--fuzzy", "--entities", "--programs", "--meanings"):
        parser.add_argument(option, type=Path)
    parser.add_argument("--bridges", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--speed", type=int, metavar="N")
    parser.add_argument("--way", choices=[*WAYS, *SCORED], default="deepjoin")
    parser.add_argument("--swap", action="store_true")
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    emit("machine", **machine(), **versions("rapidfuzz"))
    tasks: list[Task] = []
    if options.fuzzy:
        tasks += fuzzy_tasks(options.fuzzy, "fuzzyjoin", reference_right=True)
    if options.entities:
        found = fuzzy_tasks(options.entities, "", reference_right=False)
        tasks += [Task(one.name, one.name, one.left, one.right, one.gold) for one in found]
    if options.programs:
        tasks += program_tasks(options.programs)
    if options.meanings:
        tasks += meaning_tasks(options.meanings)
    if options.speed:
        tasks.append(made_up_task(options.speed))
    if options.swap:
        tasks = [task.swapped() for task in tasks]
    with tempfile.TemporaryDirectory() as folder:
        way: Way | None
        if options.bridges:
            way = by_bridges(options.bridges, tasks, Path(folder))
        else:
            way = WAYS.get(options.way)
        run(way, tasks, options)


def run(way: Way | None, tasks: list[Task], options: argparse.Namespace) -> None:
    """Measure a way on the tasks, and show the figures; None for one that needs a threshold."""
    table: list[list[object]] = [["group", "sets", "P", "R", "F1", "estimate", "seconds"]]
    for group in dict.fromkeys(task.group for task in tasks):
        mine = [task for task in tasks if task.group == group]
        began = perf_counter()
        threshold = None
        if way is None:
            threshold, scores = at_best_threshold(options.way, mine)
        else:
            scores = measure(way, mine, options.each)
        seconds = perf_counter() - began
        macro = np.mean([(one.precision, one.recall, one.f1) for one in scores], axis=0)
        claims = [abs(s.claimed - s.precision) for s in scores if s.claimed is not None]
        estimate = float(np.mean(claims)) if claims else None
        emit("match", way=options.way, group=group, sets=len(mine), precision=macro[0],
             recall=macro[1], f1=macro[2], estimate=estimate, seconds=seconds,
             threshold=threshold, swapped=options.swap)  # fmt: skip
        figures = [f"{figure:.3f}" for figure in macro]
        shown = "" if estimate is None else f"{estimate:.3f}"
        table.append([group, len(mine), *figures, shown, f"{seconds:.1f}"])
        if group == "fuzzyjoin" and way is not None:
            micro, mean = share_matched(way, mine)
            emit("match_without_partners", way=options.way, matched=micro, mean_over_sets=mean)
            table.append(["partners taken out: matched", len(mine), micro, mean, "", "", ""])
    show(table)


if __name__ == "__main__":
    main()
