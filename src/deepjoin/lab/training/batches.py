"""Training batches: views of columns in positive pairs, and the joinability of all their pairs.

A batch is computed from its number alone, so an interrupted run can resume at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepjoin.arrays import Float, Int
from deepjoin.lab.training.columns import Spellings, TrainingColumns
from deepjoin.lab.training.self_join import ColumnPairs
from deepjoin.lab.training.settings import TrainSettings

MINED, SHUFFLED, CROPPED = 0, 1, 2
#: The smallest share of a column and the fewest cells that a crop keeps.
_LEAST_SHARE, _LEAST_CELLS = 0.3, 3
#: Columns with fewer cells are not cropped.
_WORTH_CROPPING = 4


class Joinability:
    """Joinability by definition 2.1; with ``near``, a value counts by its probability of a match.

    ``near`` is a sparse matrix of values: 1 on the diagonal, elsewhere the probability that two
    values mean the same. Several near values in one column add up to at most 1.

    >>> Joinability(3)([np.array([0, 1])], [np.array([1, 2]), np.array([2])]).tolist()
    [[0.5, 0.0]]
    """

    def __init__(self, values: int, near: Any = None) -> None:
        self._values, self._near = values, near

    def __call__(self, x: Sequence[Int], y: Sequence[Int]) -> Float:
        """Return a row for each x: the share of its values that match a value of each y."""
        mine, held = self._incidence(x), self._incidence(y).T.tocsr()
        if self._near is not None:
            used, mine.indices = np.unique(mine.indices, return_inverse=True)
            mine = mine[:, : len(used)]
            held = self._near[used] @ held
            np.minimum(held.data, 1, out=held.data)
        found: Float = (mine @ held).toarray().astype(np.float32)
        sizes = np.array([max(1, len(one)) for one in x], np.float32)
        return found / sizes[:, None]

    def _incidence(self, columns: Sequence[Int]) -> Any:
        from scipy.sparse import csr_array

        ends = np.cumsum([0, *(len(one) for one in columns)])
        values = np.concatenate([np.zeros(0, np.int64), *columns])
        return csr_array(
            (np.ones(len(values), np.float32), values, ends), shape=(len(columns), self._values)
        )


@dataclass(frozen=True)
class View:
    """A column as the encoder sees it: some of its cells in some order (paper, section 4.1)."""

    column: int
    places: Int
    #: Whether name, title and context are part of the text.
    named: bool = True
    #: For each cell the number of another spelling, or -1; None if no cell is respelled.
    spelled: Int | None = None
    #: Whether the column is a query; otherwise it is searched for.
    is_query: bool = False

    @classmethod
    def whole(cls, columns: TrainingColumns, number: int) -> View:
        """View a column as it is."""
        return cls(number, columns.places(number))

    def shuffled(self, random: np.random.Generator) -> View:
        """Put the cells in random order."""
        return View(self.column, random.permutation(self.places), self.named)

    def cropped(self, random: np.random.Generator) -> View:
        """Keep a random part of the cells, in random order."""
        size = len(self.places)
        least = min(size, max(_LEAST_CELLS, round(_LEAST_SHARE * size)))
        kept = int(random.integers(least, size + 1))
        return View(self.column, random.permutation(self.places)[:kept], self.named)

    def without(self, other: View, columns: TrainingColumns) -> View:
        """Leave out the cells equal to a cell of another view; keep one if all are."""
        values = columns.values
        kept = self.places[~np.isin(values[self.places], values[other.places])]
        return View(self.column, kept if len(kept) else self.places[:1], self.named)

    def as_query(self) -> View:
        """View the column as a query."""
        return replace(self, is_query=True)

    def nameless(self) -> View:
        """Leave out name, title and context."""
        return replace(self, named=False)

    def respelled(
        self,
        columns: TrainingColumns,
        spellings: Spellings,
        share: float,
        random: np.random.Generator,
    ) -> View:
        """Give a share of the cells another spelling."""
        return replace(self, spelled=spellings.draw(columns.values[self.places], share, random))


#: From views to padded rows of token numbers and their attention mask.
Tokenise = Callable[[Sequence[View]], dict[str, Any]]


@dataclass(frozen=True)
class Examples:
    """Positive examples: the two columns of each, and how it was made."""

    x: Int
    y: Int
    kind: Int

    @classmethod
    def of(cls, columns: TrainingColumns, pairs: ColumnPairs, settings: TrainSettings) -> Examples:
        """Take the mined pairs, shuffled copies of a share of them, and crops of single columns."""
        random = np.random.default_rng([settings.seed, len(pairs)])
        copies = random.choice(len(pairs), round(settings.shuffle * len(pairs)), replace=False)
        large = np.flatnonzero(columns.sizes >= _WORTH_CROPPING)
        crops = random.choice(large, round(settings.crops * len(pairs))) if len(large) else large
        kinds = np.repeat([MINED, SHUFFLED, CROPPED], [len(pairs), len(copies), len(crops)])
        return cls(
            np.concatenate([pairs.x, pairs.x[copies], crops]),
            np.concatenate([pairs.y, pairs.y[copies], crops]),
            kinds,
        )

    def __len__(self) -> int:
        return len(self.x)


def composed(y: Int, size: int, random: np.random.Generator) -> list[Int]:
    """Distribute examples over batches so that no batch has the same Y twice; drop the rest.

    Batches are full; if none can be, those more than half as large as the largest are kept.

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
    # A small lake fills no batch, and keeping only the largest would drop most of the lake.
    most = max(map(len, filling), default=0)
    return [np.fromiter(one.values(), np.int64) for one in filling if 2 * len(one) > most]


class Batches:
    """The batches of a run, one for each step."""

    def __init__(
        self,
        columns: TrainingColumns,
        examples: Examples,
        neighbours: ColumnPairs | None,
        joinability: Joinability,
        tokenise: Tokenise,
        settings: TrainSettings,
        spellings: Spellings | None = None,
    ) -> None:
        self._columns, self._examples, self._joinability = columns, examples, joinability
        self._tokenise, self._settings = tokenise, settings
        self._neighbours, self._spellings = neighbours, spellings
        #: Of each column those nearest by the model, in memory that processes share; or None.
        self.nearest: Any = None
        if neighbours is not None:
            self._starts = np.searchsorted(neighbours.x, np.arange(len(columns) + 1))
        self._epoch = 0, self._composed(0)
        self.per_epoch = len(self._epoch[1])

    def __len__(self) -> int:
        total = self._settings.epochs * self.per_epoch
        return min(total, self._settings.steps or total)

    def __getitem__(self, number: int) -> dict[str, Any]:
        epoch, at = divmod(number, self.per_epoch)
        if epoch != self._epoch[0]:
            self._epoch = epoch, self._composed(epoch)
        batches = self._epoch[1]
        rows = batches[at % len(batches)]
        x, y = self.views(rows, np.random.default_rng([self._settings.seed, number]))
        values = self._columns.values
        joined = self._joinability(
            [values[view.places] for view in x], [values[view.places] for view in y]
        )
        return {"x": self._tokenise(x), "y": self._tokenise(y), "joinability": joined}

    def whole(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tokens of all columns as they are: as queries, and as searched for."""
        views = [View.whole(self._columns, number) for number in range(len(self._columns))]
        return self._tokenise([view.as_query() for view in views]), self._tokenise(views)

    def _composed(self, epoch: int) -> list[Int]:
        random = np.random.default_rng([self._settings.seed, epoch, 1])
        return composed(self._examples.y, self._settings.batch, random)

    def views(self, rows: Int, random: np.random.Generator) -> tuple[list[View], list[View]]:
        """Make the two sides of a batch; additional negatives follow the partners in Y."""
        pairs = [self._pair(row, random) for row in rows]
        x, y = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if self._settings.negatives == "removed":
            y += [partner.without(one, self._columns) for one, partner in pairs]
        elif self._neighbours is not None:
            # One neighbour of each column that has any; partners are in the batch already.
            mine = self._examples.x[rows]
            first, last = self._starts[mine], self._starts[mine + 1]
            chosen = random.integers(first, np.maximum(last, first + 1))
            found = self._neighbours.y[chosen[last > first]]
            if self.nearest is not None:
                drawn = random.integers(self.nearest.shape[1], size=len(mine))
                found = np.concatenate([found, np.asarray(self.nearest)[mine, drawn]])
            near = np.setdiff1d(found, self._examples.y[rows])
            y += [View.whole(self._columns, int(one)) for one in near]
        x, y = ([self._augmented(one, random) for one in side] for side in (x, y))
        return [one.as_query() for one in x], y

    def _pair(self, row: int, random: np.random.Generator) -> tuple[View, View]:
        x, y = (
            View.whole(self._columns, side[row]) for side in (self._examples.x, self._examples.y)
        )
        kind = self._examples.kind[row]
        if kind == CROPPED:
            return x.cropped(random), y.cropped(random)
        return (x.shuffled(random) if kind == SHUFFLED else x), y

    def _augmented(self, view: View, random: np.random.Generator) -> View:
        """Respell some cells, and now and then leave out name, title and context."""
        share = self._settings.respelled
        if self._spellings is not None and share:
            view = view.respelled(self._columns, self._spellings, share, random)
        return view.nameless() if random.random() < self._settings.nameless else view
