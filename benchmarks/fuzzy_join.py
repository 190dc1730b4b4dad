"""Accuracy of the semantic join: matched pairs against gold pairs, beside other libraries.

``python benchmarks/fuzzy_join.py FOLDER [--encoder default|DIR]`` where each folder inside holds
left.csv, right.csv (id, title) and gt.csv (id_l, id_r). Each cell of right.csv looks for its
match in left.csv. deepjoin uses the threshold of its cell encoder; every other library gets its
best threshold over all sets, which a user could not know.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from common import emit, machine, say, show, versions
from deepjoin.arrays import Double
from deepjoin.embed.cells import CellEncoder, load_cell_encoder
from deepjoin.matching.joinability import ONE
from deepjoin.matching.values import MATCHINGS, SemanticMatching, match_values, nearest_values
from deepjoin.normalise.canonical import canonical

#: A value of each side, and their similarity.
Scored = list[tuple[str, str, float]]
Rival = Callable[[list[str], list[str]], Scored]

THRESHOLDS = np.arange(0.0, 1.0, 0.01)


@dataclass(frozen=True)
class Task:
    """One set: the rows of each value on both sides, and the pairs of rows that are right."""

    name: str
    mine: dict[str, list[int]]
    theirs: dict[str, list[int]]
    gold: set[tuple[int, int]]

    def rows(self, pairs: Iterable[tuple[str, str]]) -> set[tuple[int, int]]:
        """Return the pairs of rows that follow from pairs of values."""
        return {
            (row, other)
            for mine, theirs in pairs
            for row in self.mine[mine]
            for other in self.theirs[theirs]
        }


@dataclass(frozen=True)
class Counts:
    """Pairs found, wanted, and both."""

    found: int
    wanted: int
    right: int

    @classmethod
    def of(cls, task: Task, pairs: Iterable[tuple[str, str]]) -> Counts:
        """Compare a join with the gold."""
        rows = task.rows(pairs)
        return cls(len(rows), len(task.gold), len(rows & task.gold))

    @property
    def figures(self) -> Double:
        """Precision, recall and F1; precision is 1 if nothing is found."""
        precision = self.right / self.found if self.found else 1.0
        recall = self.right / self.wanted
        f1 = 2 * precision * recall / (precision + recall) if self.right else 0.0
        return np.array([precision, recall, f1])


def read_task(folder: Path) -> Task:
    """Read a set; all libraries get canonical values."""
    left, right, truth = (
        pacsv.read_csv(
            folder / f"{name}.csv",
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types={"title": pa.string()}),
        )
        for name in ("left", "right", "gt")
    )
    gold = zip(truth["id_r"].to_pylist(), truth["id_l"].to_pylist(), strict=True)
    return Task(folder.name, _values(right), _values(left), set(gold))


def _values(table: pa.Table) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for number, title in zip(table["id"].to_pylist(), table["title"].to_pylist(), strict=True):
        if value := canonical(title or ""):
            rows.setdefault(value, []).append(number)
    return rows


def ours(task: Task, encoder: CellEncoder, matching: str) -> Counts:
    """Match with the product's own function and threshold."""
    mine, theirs = list(task.mine), list(task.theirs)
    found = match_values(mine, theirs, SemanticMatching(encoder, matching=matching))
    pairs = [
        (mine[i], theirs[j])
        for some, _ in found
        for i, j in zip(some.mine.tolist(), some.theirs.tolist(), strict=True)
    ]
    return Counts.of(task, pairs)


def _cosine(encoder: CellEncoder) -> Rival:
    def score(mine: list[str], theirs: list[str]) -> Scored:
        places = {value: at for at, value in enumerate(theirs)}
        near = nearest_values(mine, theirs, SemanticMatching(encoder))
        found = dict(zip(near.mine.tolist(), near.theirs.tolist(), strict=True))
        likes = dict(zip(near.mine.tolist(), (near.similarities / ONE).tolist(), strict=True))
        return [
            (value, value, 1.0) if value in places else (value, theirs[found[at]], likes[at])
            for at, value in enumerate(mine)
            if value in places or at in found
        ]

    return score


def rivals(encoder: CellEncoder) -> dict[str, Rival]:
    """List the installed libraries, and deepjoin under the same conditions."""
    found: dict[str, Rival] = {"deepjoin, its best threshold": _cosine(encoder)}
    try:
        from rapidfuzz.distance import JaroWinkler, Levenshtein
    except ImportError:
        say("rapidfuzz: not run (rapidfuzz is not installed)")
    else:
        found["Levenshtein"] = _edit(Levenshtein.normalized_similarity)
        found["Jaro-Winkler"] = _edit(JaroWinkler.normalized_similarity)
    try:
        from skrub import fuzzy_join  # noqa: F401
    except ImportError:
        say("skrub fuzzy_join: not run (skrub is not installed)")
    else:
        found["skrub fuzzy_join"] = _skrub
    return found


def _edit(scorer: Callable[..., float]) -> Rival:
    def score(mine: list[str], theirs: list[str]) -> Scored:
        from rapidfuzz.process import cdist

        similar = cdist(mine, theirs, scorer=scorer, workers=2)
        best = similar.argmax(axis=1)
        return [(value, theirs[j], float(similar[i, j])) for i, (value, j) in
                enumerate(zip(mine, best.tolist(), strict=True))]  # fmt: skip

    return score


def _skrub(mine: list[str], theirs: list[str]) -> Scored:
    """Take skrub's best match and its rescaled distance, whose zero is a perfect match."""
    import pandas as pd
    from skrub import fuzzy_join

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joined = fuzzy_join(
            pd.DataFrame({"mine": mine}), pd.DataFrame({"theirs": theirs}),
            left_on="mine", right_on="theirs", add_match_info=True,
        )  # fmt: skip
    distances = joined["skrub_Joiner_rescaled_distance"].fillna(0.0)
    return list(zip(mine, joined["theirs"], 1 - distances / 2, strict=True))


def best_threshold(tasks: list[Task], scored: list[Scored]) -> tuple[float, list[Counts]]:
    """Sweep one threshold for all sets; take that of the best mean F1."""

    def at(threshold: float) -> list[Counts]:
        return [
            Counts.of(task, [(m, t) for m, t, similarity in one if similarity >= threshold])
            for task, one in zip(tasks, scored, strict=True)
        ]

    best = max(THRESHOLDS.tolist(), key=lambda t: np.mean([c.figures[2] for c in at(t)]))
    return best, at(best)


def report(way: str, threshold: float | None, counts: list[Counts], seconds: float) -> list[object]:
    """Print macro figures, the mean over sets, and micro ones, over all pairs together."""
    macro = np.mean([count.figures for count in counts], axis=0)
    whole = Counts(
        *(sum(getattr(c, name) for c in counts) for name in ("found", "wanted", "right"))
    )
    names = ("precision", "recall", "f1")
    emit("fuzzy_join", way=way, sets=len(counts), threshold=threshold, seconds=seconds,
         **{f"macro_{name}": figure for name, figure in zip(names, macro, strict=True)},
         **{f"micro_{name}": figure for name, figure in zip(names, whole.figures, strict=True)},
         f1_by_set=[round(float(count.figures[2]), 3) for count in counts])  # fmt: skip
    figures = [f"{figure:.3f}" for figure in (*macro, *whole.figures)]
    return [way, "none" if threshold is None else f"{threshold:.2f}", *figures, f"{seconds:.1f}"]


def main() -> None:
    """Run every library on every set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="default")
    options = parser.parse_args()
    encoder = load_cell_encoder(options.encoder)
    emit("machine", **machine(), **versions("rapidfuzz", "skrub"), encoder=encoder.digest)
    tasks = [read_task(inside) for inside in sorted(options.folder.iterdir()) if inside.is_dir()]
    heads = ["way", "threshold", "macro P", "R", "F1", "micro P", "R", "F1", "seconds"]
    table: list[list[object]] = [list(heads)]
    for matching in MATCHINGS:
        began = perf_counter()
        counts = [ours(task, encoder, matching) for task in tasks]
        way = f"deepjoin, {matching}"
        table.append(report(way, encoder.tau, counts, perf_counter() - began))
    for name, rival in rivals(encoder).items():
        began = perf_counter()
        scored = [rival(list(task.mine), list(task.theirs)) for task in tasks]
        seconds = perf_counter() - began
        table.append(report(name, *best_threshold(tasks, scored), seconds))
        if rival is _skrub:
            counts = [
                Counts.of(t, [(m, o) for m, o, _ in s]) for t, s in zip(tasks, scored, strict=True)
            ]
            table.append(report(f"{name}, as it comes", None, counts, seconds))
    show(table)


if __name__ == "__main__":
    main()
