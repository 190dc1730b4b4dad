"""Training examples, batch by batch: a batch is made from its number alone, so a run can go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepjoin.lab.training import views
from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.joined import Joinability
from deepjoin.lab.training.self_join import Pairs
from deepjoin.lab.training.settings import TrainSettings
from deepjoin.lab.training.spellings import Spellings
from deepjoin.lab.training.views import View

Int = npt.NDArray[np.int64]
#: From views to rows of token numbers, zeros behind the shorter ones, and where there are tokens.
Tokenise = Callable[[Sequence[View]], dict[str, Any]]

MINED, SHUFFLED, CROPPED = 0, 1, 2
#: Columns with fewer cells have no parts worth comparing.
_WORTH_PARTING = 4


@dataclass(frozen=True)
class Examples:
    """Positive examples: the columns of each, and how it was made."""

    x: Int
    y: Int
    kind: Int

    @classmethod
    def of(cls, columns: TrainingColumns, pairs: Pairs, settings: TrainSettings) -> Examples:
        """Take the pairs, shuffled copies of a share of them, and parts of single columns."""
        random = np.random.default_rng([settings.seed, len(pairs)])
        copies = random.choice(len(pairs), round(settings.shuffle * len(pairs)), replace=False)
        parted = np.flatnonzero(columns.sizes >= _WORTH_PARTING)
        crops = random.choice(parted, round(settings.crops * len(pairs))) if len(parted) else parted
        kinds = np.repeat([MINED, SHUFFLED, CROPPED], [len(pairs), len(copies), len(crops)])
        return cls(
            np.concatenate([pairs.x, pairs.x[copies], crops]),
            np.concatenate([pairs.y, pairs.y[copies], crops]),
            kinds,
        )

    def __len__(self) -> int:
        return len(self.x)


def composed(y: Int, size: int, random: np.random.Generator) -> list[Int]:
    """Deal examples out to batches so that no batch has the same Y twice; a rest is left over.

    Batches are full, or, if none is, more than half as large as the largest.

    >>> [batch.tolist() for batch in composed(np.array([7, 7, 8]), 2, np.random.default_rng(0))]
    [[2, 0]]
    """
    full: list[Int] = []
    filling: list[dict[int, int]] = []
    for row in random.permutation(len(y)).tolist():
        partner = int(y[row])
        batch = next((one for one in filling if partner not in one), None)
        if batch is None:
            batch = {}
            filling.append(batch)
        batch[partner] = row
        if len(batch) == size:
            full.append(np.fromiter(batch.values(), np.int64, size))
            filling.remove(batch)
    if full:
        return full
    # Of a small lake no batch is full, and one of them alone would leave most of it out.
    most = max(map(len, filling), default=0)
    return [np.fromiter(one.values(), np.int64) for one in filling if 2 * len(one) > most]


class Batches:
    """A batch for each step of a run."""

    def __init__(
        self,
        columns: TrainingColumns,
        examples: Examples,
        neighbours: Pairs | None,
        joinability: Joinability,
        tokenise: Tokenise,
        settings: TrainSettings,
        spellings: Spellings | None = None,
    ) -> None:
        self._columns, self._examples, self._joinability = columns, examples, joinability
        self._tokenise, self._settings = tokenise, settings
        self._neighbours, self._spellings = neighbours, spellings
        if neighbours is not None:
            self._starts = np.searchsorted(neighbours.x, np.arange(len(columns) + 1))
        self._composed = 0, self._epoch_from(0)
        self.per_epoch = len(self._composed[1])

    def __len__(self) -> int:
        wanted = self._settings.epochs * self.per_epoch
        return min(wanted, self._settings.steps or wanted)

    def __getitem__(self, number: int) -> dict[str, Any]:
        epoch, at = divmod(number, self.per_epoch)
        if epoch != self._composed[0]:
            self._composed = epoch, self._epoch_from(epoch)
        batches = self._composed[1]
        rows = batches[at % len(batches)]
        x, y = self.views(rows, np.random.default_rng([self._settings.seed, number]))
        values = self._columns.values
        joined = self._joinability(
            [values[view.places] for view in x], [values[view.places] for view in y]
        )
        return {"x": self._tokenise(x), "y": self._tokenise(y), "joinability": joined}

    def _epoch_from(self, epoch: int) -> list[Int]:
        random = np.random.default_rng([self._settings.seed, epoch, 1])
        return composed(self._examples.y, self._settings.batch, random)

    def views(self, rows: Int, random: np.random.Generator) -> tuple[list[View], list[View]]:
        """Make the two sides of a batch; behind the partners stand the other negatives."""
        pairs = [self._pair(row, random) for row in rows]
        x, y = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if self._settings.negatives == "removed":
            y += [views.without(*pair[::-1], self._columns) for pair in pairs]
        elif self._neighbours is not None:
            y += [views.whole(self._columns, one) for one in self._near(rows, random)]
        x, y = ([self._shown(one, random) for one in side] for side in (x, y))
        return [views.asking(one) for one in x], y

    def _pair(self, row: int, random: np.random.Generator) -> tuple[View, View]:
        x, y = (
            views.whole(self._columns, side[row]) for side in (self._examples.x, self._examples.y)
        )
        kind = self._examples.kind[row]
        if kind == CROPPED:
            return views.cropped(x, random), views.cropped(y, random)
        return (views.shuffled(x, random) if kind == SHUFFLED else x), y

    def _near(self, rows: Int, random: np.random.Generator) -> list[int]:
        """Take a neighbour of each column that has one; partners are there already."""
        assert self._neighbours is not None
        x = self._examples.x[rows]
        first, last = self._starts[x], self._starts[x + 1]
        chosen = random.integers(first, np.maximum(last, first + 1))
        found = np.setdiff1d(self._neighbours.y[chosen[last > first]], self._examples.y[rows])
        return [int(one) for one in found]

    def _shown(self, view: View, random: np.random.Generator) -> View:
        """Leave the words out now and then, and spell some cells otherwise."""
        share = self._settings.respelled
        if self._spellings is not None and share:
            view = views.respelled(view, self._columns, self._spellings, share, random)
        return views.nameless(view) if random.random() < self._settings.nameless else view
