"""A column as the set of its values (paper, definition 2.1), with counts and spellings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from deepjoin.normalise.canonical import canonical, canonical_array
from deepjoin.normalise.private import hidden

#: From here on the array form of `canonical` is faster than the plain one.
_MANY = 512


@dataclass(frozen=True)
class DistinctCells:
    """Distinct canonical values in order of first appearance; all lists run in parallel."""

    values: list[str]
    spellings: list[str]
    counts: list[int]
    #: The hashes that a private lake stores instead of the values; None in any other lake.
    hidden: list[str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)


def distinct_cells(
    cells: Iterable[str | None], profile: str = "default", key: bytes = b""
) -> DistinctCells:
    """Reduce cells to distinct values; missing and blank cells vanish.

    With the key of a private lake, the hashes that replace the values there are added.

    >>> distinct_cells(["GE", "Apple", " ge", None, ""])
    DistinctCells(values=['ge', 'apple'], spellings=['GE', 'Apple'], counts=[2, 1])
    """
    raw = Counter(cells)
    spelled = [cell for cell in raw if cell is not None]
    first: dict[str, int] = {}
    spellings: list[str] = []
    counts: list[int] = []
    for cell, value in zip(spelled, canonical_all(spelled, profile), strict=True):
        at = first.setdefault(value, len(spellings))
        if at < len(spellings):
            counts[at] += raw[cell]
        elif value:
            spellings.append(cell)
            counts.append(raw[cell])
        else:
            del first[value]
    values = list(first)
    return DistinctCells(values, spellings, counts, hidden(values, key) if key else None)


def canonical_all(cells: list[str], profile: str) -> list[str]:
    """Return the canonical strings of some cells, "" for blank ones."""
    if len(cells) < _MANY:
        return [canonical(cell, profile) for cell in cells]
    try:
        values: list[str] = canonical_array(pa.array(cells, pa.string()), profile).to_pylist()
    except UnicodeEncodeError:  # lone surrogates fit no Arrow string
        return [canonical(cell, profile) for cell in cells]
    return values
