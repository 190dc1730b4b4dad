"""Views of a column: its cells in another order, some of them, or without its words (section 4.1).

A view is the number of its column, the places of its cells, and whether its words are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepjoin.lab.training.columns import TrainingColumns
from deepjoin.lab.training.spellings import Spellings

Int = npt.NDArray[np.int64]

#: The smallest part of a column that a crop keeps, and the fewest cells worth cropping.
_LEAST_SHARE, _LEAST_CELLS = 0.3, 3


@dataclass(frozen=True)
class View:
    """A column as the encoder is shown it."""

    column: int
    places: Int
    named: bool = True
    #: For each cell the number of another spelling, or -1; None if all are as they are.
    spelled: Int | None = None
    #: Whether it is searched with; else it is searched for.
    asking: bool = False


def whole(columns: TrainingColumns, number: int) -> View:
    """Show a column as it is."""
    return View(number, columns.places(number))


def shuffled(view: View, random: np.random.Generator) -> View:
    """Show the cells in a random order."""
    return View(view.column, random.permutation(view.places), view.named)


def cropped(view: View, random: np.random.Generator) -> View:
    """Show a random part of the cells, in a random order."""
    size = len(view.places)
    least = min(size, max(_LEAST_CELLS, round(_LEAST_SHARE * size)))
    kept = int(random.integers(least, size + 1))
    return View(view.column, random.permutation(view.places)[:kept], view.named)


def without(view: View, other: View, columns: TrainingColumns) -> View:
    """Leave out the cells that match a cell of another view; one is kept if all do."""
    values = columns.values
    kept = view.places[~np.isin(values[view.places], values[other.places])]
    return View(view.column, kept if len(kept) else view.places[:1], view.named)


def asking(view: View) -> View:
    """Show a column as one that is searched with."""
    return replace(view, asking=True)


def nameless(view: View) -> View:
    """Leave out name, title and context."""
    return replace(view, named=False)


def respelled(
    view: View,
    columns: TrainingColumns,
    spellings: Spellings,
    share: float,
    random: np.random.Generator,
) -> View:
    """Spell a share of the cells otherwise."""
    return replace(view, spelled=spellings.draw(columns.values[view.places], share, random))
