"""A target, and models that predict it: which columns tell it, which leak it, what they gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.enriching.features import (
    Feature,
    Floats,
    as_feature,
    is_row_number,
    rank_correlation,
    unit_ranks,
)
from deepjoin.errors import DeepJoinError
from deepjoin.optional import require
from deepjoin.progress import Progress, check_stop, no_progress

if TYPE_CHECKING:
    from numpy.random import Generator

#: A target of whole numbers with at most this many values is a class.
_MOST_CLASSES = 20
#: Of classes, the most frequent that are told apart; rarer ones are learned as one.
_MOST_LEARNED = 50
_FOLDS = 5
#: Rounds of comparing columns with shuffled copies, and in how many a column must be better.
_ROUNDS, _WINS = 5, 4
#: Shuffled copies that a column is compared with; random columns are rarely better than all.
_SHADOWS = 50
#: Trees of each of these forests in a fold, and for the final choice; rows that they see at most.
_TREES, _FINAL_TREES, _FOREST_ROWS = 40, 80, 4000
#: Share of the columns that each split looks at.
_COLUMNS_A_SPLIT = 0.33
#: In how many rounds a column must be used more than most shuffled ones, to stay beside proven
#: ones; how many may be used more, as a share, and so that about as many columns stay by chance.
_OFTEN, _BETTER_SHADOWS, _BY_CHANCE = 3, 0.25, 8
#: A column that alone predicts the target this well is taken for a copy of it.
_LEAK, _LEAK_OF_NUMBERS = 0.98, 0.995
#: Columns of a table that together predict it this well are what it was computed from.
_LEAK_TOGETHER, _LEAK_ROWS = 0.995, 4000
#: Columns that rank rows this much alike tell the same.
_ALIKE = 0.98
#: Rounds of the boosted model for a number or two classes, and at least of more.
_MOST_ROUNDS, _LEAST_ROUNDS = 100, 25
#: Standard errors on either side of a 95% interval.
_NORMAL = 1.96
#: Columns that a forest compares; of more, the best one by one.
_PROMISING = 150
#: Cells from which on a boosted model is fitted by several threads.
_MANY_CELLS = 1_000_000


class UnusableTarget(DeepJoinError):
    """Raised for a target that no model can learn: constant, too few values, all different."""


@dataclass(frozen=True)
class Gain:
    """The score of a model without and with new columns, and an interval of the difference."""

    before: float
    after: float
    low: float
    high: float
    #: Whether it is more than chance explains: the interval lies above 0 or, of a gain in accuracy,
    #: that of how far the predicted probabilities are from the truth, which tell more.
    is_sure: bool
    #: Of each row, the error without the new columns, see `Scorer.cross_validated`.
    errors: Floats
    #: The columns that were chosen in the last fold.
    chosen: tuple[Feature, ...] = ()


class Scorer:
    """A target, and models that predict it: classes by accuracy, numbers by R²."""

    def __init__(self, target: pa.ChunkedArray, name: str, rows: int, seed: int) -> None:
        require("sklearn", "enrich", "Measuring what a join gains")
        self.rows, self._y, self.is_class = _target(target, name, rows, seed)
        self._classes = int(self._y.max()) + 1 if self.is_class else 0
        self.seed = seed
        #: What the score is called.
        self.metric = "accuracy" if self.is_class else "R²"

    def features(self, table: pa.Table) -> list[Feature]:
        """Return the columns that a model can use, in the rows that are scored."""
        found = []
        for name in table.column_names:
            one = as_feature(name, table[name].take(self.rows))
            if one is not None and (one.is_category or not is_row_number(one.values)):
                found.append(one)
        return found

    def leaks(self, feature: Feature) -> bool:
        """Check whether a column alone gives the target away, as a copy of it does."""
        score, usual = self.alone(feature)
        if not self.is_class:
            # In few rows, ranges are too wide to show that the column rises as the target does.
            many = np.isfinite(feature.values).sum() >= 4 * _FOLDS
            alike = rank_correlation(feature.values, self._y) if many else 0.0
            return max(score, alike**2) >= _LEAK_OF_NUMBERS
        return score >= max(_LEAK, usual + 0.5 * (1 - usual))

    def alone(self, feature: Feature) -> tuple[float, float]:
        """Score the target as predicted from ranges of one column, and as guessed without any.

        Ranges are learned on one half of the rows and tried on the other. A column with few cells
        scores as a guess.
        """
        known = np.flatnonzero(np.isfinite(feature.values))
        if len(known) < 0.05 * len(self._y) or len(known) < 4 * _FOLDS:
            return 0.0, 0.0
        drawn = np.random.default_rng(self.seed).permutation(known)
        learn, test = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
        cuts = np.unique(np.quantile(feature.values[learn], np.linspace(0, 1, 129)[1:-1]))
        ranges = np.searchsorted(cuts, feature.values, side="right")
        classes, y = np.unique(self._y, return_inverse=True) if self.is_class else (None, self._y)
        if classes is None:
            # Ranks, since a few large numbers would decide the score of any column.
            y = unit_ranks(self._y)
            counts = np.bincount(ranges[learn], minlength=len(cuts) + 1)
            sums = np.bincount(ranges[learn], y[learn], minlength=len(cuts) + 1)
            means = np.where(counts, sums / np.maximum(counts, 1), y[learn].mean())
            return self._score(y[test], means[ranges[test]]), 0.0
        table = np.zeros((len(cuts) + 1, len(classes)))
        np.add.at(table, (ranges[learn], y[learn]), 1)
        found = table.argmax(axis=1)[ranges[test]]
        return self._score(y[test], found), float(np.bincount(y[test]).max() / len(test))

    def leak_together(self, features: Sequence[Feature]) -> float:
        """Score the target as predicted from all columns of one table, if that is nearly perfect.

        Columns that the target was computed from give it away together, though none does alone.
        Return 0 where they do not.
        """
        scores = [self.alone(one) for one in features]
        if not any(score - usual > 0.3 * (1 - usual) for score, usual in scores):
            return 0.0
        # The target can only be learned and judged in rows that the table knows.
        values = np.column_stack([one.values for one in features])
        known = np.flatnonzero(np.isfinite(values).any(axis=1))
        drawn = np.random.default_rng(self.seed).permutation(known)[: 2 * _LEAK_ROWS]
        learn, test = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
        if len(test) < 4 * _FOLDS:
            return 0.0
        found = self._predicted(features, learn, test)
        score = self._score(self._y[test], self._best(found))
        return score if score >= _LEAK_TOGETHER else 0.0

    def relevant(
        self,
        base: Sequence[Feature],
        new: Sequence[Feature],
        rows: npt.NDArray[Any] | None = None,
    ) -> Floats:
        """Rate new columns by how much forests use them beyond shuffled ones; 0 for no more.

        A column is proven if forests use it more than every shuffled column. Where one is, others
        that are used more than most shuffled columns stay too: alone they prove nothing.
        """
        from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

        if not new:
            return np.zeros(0)
        drawn = np.random.default_rng(self.seed)
        trees = _FINAL_TREES if rows is None else _TREES
        rows = np.arange(len(self._y)) if rows is None else rows
        if len(rows) > _FOREST_ROWS:
            rows = drawn.choice(rows, _FOREST_ROWS, replace=False)
        table, y = _filled(new, rows), self._y[rows]
        promising = self._promising(table, y)
        table = table[:, promising]
        known = _filled(base, rows) if base else np.zeros((len(rows), 0))
        count = len(promising)
        wins, often, rated = np.zeros(count), np.zeros(count), np.zeros(count)
        kind = ExtraTreesClassifier if self.is_class else ExtraTreesRegressor
        for number in range(_ROUNDS):
            check_stop()
            shadows = _shuffled(table, drawn)
            forest = kind(
                trees,
                min_samples_leaf=3,
                max_features=_COLUMNS_A_SPLIT,
                random_state=self.seed + number,
            )
            used = forest.fit(np.hstack([table, shadows, known]), y).feature_importances_
            own, others = used[:count], used[count : count + shadows.shape[1]]
            wins += own > others.max()
            often += own > np.quantile(others, 1 - min(_BETTER_SHADOWS, _BY_CHANCE / count))
            rated += own
            if wins.max() + _ROUNDS - 1 - number < _WINS:
                break  # no column can be proven any more
        every = np.zeros(len(new))
        if (wins >= _WINS).any():
            every[promising] = np.where(often >= _OFTEN, rated / _ROUNDS, 0.0)
        return every

    def _promising(self, table: Floats, y: Floats) -> npt.NDArray[Any]:
        """Return the columns that go best with the target one by one, for a forest to look at."""
        from sklearn.feature_selection import f_classif, f_regression

        if table.shape[1] <= _PROMISING:
            return np.arange(table.shape[1])
        rate = f_classif if self.is_class else f_regression
        # Columns that are constant in these rows have no rate, and are not worth a warning.
        with np.errstate(all="ignore"), catch_warnings():
            simplefilter("ignore")
            rated = np.nan_to_num(rate(table, y)[0], nan=0.0, posinf=np.finfo(float).max)
        return np.sort(np.argsort(-rated, kind="stable")[:_PROMISING])

    def cross_validated(
        self, features: Sequence[Feature], until: float = float("inf")
    ) -> tuple[float, Floats]:
        """Return the score over all folds, and the error of each row.

        Raise `TimeoutError` when the time is up.
        """
        truth, found = [], []
        for train, test in self._splits():
            if perf_counter() > until:
                raise TimeoutError
            truth.append(self._y[test])
            found.append(self._predicted(features, train, test))
        y, predicted = np.concatenate(truth), np.concatenate(found)
        return self._score(y, self._best(predicted)), self._errors(y, predicted)

    def gain(
        self,
        base: Sequence[Feature],
        new: Sequence[Feature],
        most: int,
        until: float = float("inf"),
        progress: Progress = no_progress,
    ) -> tuple[Gain | None, str]:
        """Measure what new columns gain; in every fold they are chosen on the other folds alone.

        So columns that fit the target by chance do not look good. When the time is up, or after
        Ctrl-C, the folds that were measured count, if any; also return why there are no more.
        """
        truth, before, after = [], [], []
        last: tuple[Feature, ...] = ()
        stopped, longest = "", 0.0
        try:
            for number, (train, test) in enumerate(self._splits()):
                started = perf_counter()
                # The first fold tells how long one takes; it is measured in any case. The final
                # choice of columns, with more trees, takes about as long as some of them.
                if number and started + (1 + _FINAL_TREES / _TREES) * longest > until:
                    stopped = "time"
                    break
                progress(number, _FOLDS, "measuring")
                chosen = chosen_features(base, new, self.relevant(base, new, train), most)
                old = self._predicted(base, train, test)
                fresh = self._predicted([*base, *chosen], train, test) if chosen else old
                truth.append(self._y[test])
                before.append(old)
                after.append(fresh)
                last = tuple(chosen)
                longest = max(longest, perf_counter() - started)
        except KeyboardInterrupt:
            stopped = "interrupted"
        if not after:
            return None, stopped
        y, old, fresh = (np.concatenate(each) for each in (truth, before, after))
        was, now = self._best(old), self._best(fresh)
        errors = self._errors(y, old)
        nearer = errors - self._errors(y, fresh)
        if self.is_class:
            middle, low, high = interval_of(1.0 * (now == y) - (was == y))
            is_sure = low > 0 or (middle > 0 and interval_of(nearer)[1] > 0)
        else:
            spread = max(float(((y - y.mean()) ** 2).mean()), 1e-300)
            middle, low, high = interval_of(nearer / spread)
            is_sure = low > 0
        scores = self._score(y, was), self._score(y, now)
        return Gain(*scores, low, high, is_sure, errors, last), stopped

    def _splits(self) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        from sklearn.model_selection import KFold, StratifiedKFold

        counts = np.unique(self._y, return_counts=True)[1] if self.is_class else np.array([_FOLDS])
        kind = StratifiedKFold if counts.min() >= _FOLDS and self.is_class else KFold
        return list(kind(_FOLDS, shuffle=True, random_state=self.seed).split(self._y, self._y))

    def _predicted(
        self,
        features: Sequence[Feature],
        train: npt.NDArray[Any],
        test: npt.NDArray[Any],
    ) -> Floats:
        """Predict the targets of test rows; for classes, the probability of each."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        check_stop()
        # A rare class may be in the rows of one fold alone.
        if not features or (self.is_class and np.ptp(self._y[train]) == 0):
            if self.is_class:
                counts = np.bincount(self._y[train].astype(int), minlength=self._classes)
                return np.tile(counts / len(train), (len(test), 1))
            return np.full(len(test), self._y[train].mean())
        table = np.column_stack([one.values for one in features])
        kind = HistGradientBoostingClassifier if self.is_class else HistGradientBoostingRegressor
        model = kind(
            # Of many classes, each round grows a tree for each.
            max_iter=max(_LEAST_ROUNDS, 2 * _MOST_ROUNDS // max(2, self._classes)),
            learning_rate=0.1,
            max_leaf_nodes=15,
            min_samples_leaf=max(5, min(20, len(train) // 50)),
            categorical_features=[one.is_category for one in features],
            random_state=self.seed,
            early_stopping=False,
        )
        # Threads wait for each other at every leaf: with few cells one is faster, on a busy
        # machine by far.
        with _threads(None if len(train) * len(features) > _MANY_CELLS else 1):
            model.fit(table[train], self._y[train])
            if not self.is_class:
                found: Floats = model.predict(table[test])
                return found
            found = np.zeros((len(test), self._classes))
            found[:, model.classes_.astype(int)] = model.predict_proba(table[test])
        return found

    def _best(self, found: Floats) -> Floats:
        """Return the targets that predictions stand for."""
        return found.argmax(axis=1).astype(float) if self.is_class else found

    def _errors(self, y: Floats, found: Floats) -> Floats:
        """Return squared errors, for classes those of the probabilities (Brier score)."""
        if self.is_class:
            right = np.zeros_like(found)
            right[np.arange(len(y)), y.astype(int)] = 1
            y, found = right.T, found.T
        far: Floats = np.atleast_2d((y - found) ** 2).sum(axis=0)
        return far

    def _score(self, y: Floats, found: Floats) -> float:
        if self.is_class:
            return float((y == found).mean())
        spread = float(((y - y.mean()) ** 2).sum())
        return 1 - float(((y - found) ** 2).sum()) / spread if spread else 0.0


def interval_of(change: Floats) -> tuple[float, float, float]:
    """Return the mean of differences in rows, and its 95% interval.

    Both models are judged on the same rows, so their difference varies less than each score.
    """
    middle, error = float(change.mean()), float(change.std() / np.sqrt(len(change)))
    return middle, middle - _NORMAL * error, middle + _NORMAL * error


def _threads(most: int | None) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(most)


def chosen_features(
    base: Sequence[Feature], new: Sequence[Feature], rated: Floats, most: int
) -> list[Feature]:
    """Choose the relevant columns, best first, without those that tell the same as a better one.

    Columns that your table has already come before all others. Of several tentative joins with a
    table, the one whose columns rate highest is taken for the right one.
    """
    totals: dict[tuple[str, int], float] = {}
    for one, rate in zip(new, rated, strict=True):
        if one.rival is not None:
            totals[one.rival] = totals.get(one.rival, 0.0) + float(rate)
    right: dict[str, tuple[str, int]] = {}
    for rival in sorted(totals, key=lambda at: (totals[at], -at[1])):
        right[rival[0]] = rival
    known: list[int] = [
        at
        for at in np.flatnonzero(rated > 0).tolist()
        if new[at].rival is None or new[at].rival in right.values()
    ]
    order = sorted(known, key=lambda at: (-rated[at], new[at].name))
    chosen: list[Feature] = []
    ranks = [unit_ranks(one.values) for one in base] if known else []
    for at in order[: 3 * most]:
        rank = unit_ranks(new[at].values)
        if any(abs(float(rank @ other)) > _ALIKE for other in ranks):
            continue
        chosen.append(new[at])
        ranks.append(rank)
        if len(chosen) == most:
            break
    return chosen


def _filled(features: Sequence[Feature], rows: npt.NDArray[Any]) -> Floats:
    columns = []
    for one in features:
        values = one.values[rows]
        known = values[np.isfinite(values)]
        columns.append(np.where(np.isfinite(values), values, np.median(known) if len(known) else 0))
    return np.column_stack(columns)


def _shuffled(table: Floats, drawn: Generator) -> Floats:
    """Return copies of columns in a random order of rows, which tell nothing of the target."""
    picked = drawn.choice(table.shape[1], max(_SHADOWS, table.shape[1] // 5))
    return drawn.permuted(table[:, picked], axis=0)


def _target(
    cells: pa.ChunkedArray, name: str, most: int, seed: int
) -> tuple[npt.NDArray[Any], Floats, bool]:
    """Return the rows that are scored, their targets as numbers, and whether these are classes."""
    kind = cells.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        cells = cells.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
        kind = cells.type
    if pa.types.is_nested(kind):
        raise UnusableTarget(f"`target` column '{name}' holds {kind}; it must be numbers or text.")
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if is_number:
        numbers = cells.cast(pa.float64(), safe=False)
        cells = pc.if_else(pc.is_finite(numbers), cells, pa.scalar(None, kind))
    known = np.flatnonzero(pc.is_valid(cells).to_numpy(zero_copy_only=False))
    distinct = len(cells.unique().drop_null())
    if distinct < 2:
        what = "no values" if distinct == 0 else "one value"
        raise UnusableTarget(f"`target` column '{name}' has {what}: there is nothing to predict.")
    if len(known) < 4 * _FOLDS:
        raise UnusableTarget(
            f"`target` column '{name}' has {len(known)} values; measuring needs {4 * _FOLDS}."
        )
    is_class = not is_number or (pa.types.is_integer(kind) and distinct <= _MOST_CLASSES)
    if is_class and distinct > len(known) / 2:
        raise UnusableTarget(
            f"`target` column '{name}' has {distinct:,} different texts in {len(known):,} rows: "
            "it must be a number, or a class that repeats."
        )
    if is_class:
        # The most frequent classes first; all that are rare are one.
        counted = pc.value_counts(cells.drop_null()).to_pylist()
        order = sorted(counted, key=lambda one: (-one["counts"], str(one["values"])))
        classes = pa.array([one["values"] for one in order], kind)
        encoded = pc.index_in(cells.combine_chunks(), classes).cast(pa.float64())
        values = np.minimum(encoded.to_numpy(zero_copy_only=False), _MOST_LEARNED)
    else:
        values = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if len(known) > most:
        known = np.sort(np.random.default_rng(seed).choice(known, most, replace=False))
    return known, values[known], is_class
