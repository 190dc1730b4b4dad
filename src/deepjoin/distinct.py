"""A column as the set of its values (paper, definition 2.1): distinct, counted, spelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from deepjoin.canonical import canonical, canonical_array

#: From here on the array form of `canonical` is faster than the plain one.
_MANY = 512


@dataclass(frozen=True)
class DistinctCells:
    """Distinct canonical values in order of first appearance; all three lists run in parallel."""

    values: list[str]
    spellings: list[str]
    counts: list[int]

    def __len__(self) -> int:
        return len(self.values)


def distinct_cells(cells: Iterable[str | None], profile: str = "default") -> DistinctCells:
    """Reduce cells to distinct values; missing and blank cells vanish.

    >>> distinct_cells(["GE", "Apple", " ge", None, ""])
    DistinctCells(values=['ge', 'apple'], spellings=['GE', 'Apple'], counts=[2, 1])
    """
    raw = Counter(cells)
    spelled = [cell for cell in raw if cell is not None]
    first: dict[str, int] = {}
    spellings: list[str] = []
    counts: list[int] = []
    for cell, value in zip(spelled, _canonical_all(spelled, profile), strict=True):
        at = first.setdefault(value, len(spellings))
        if at < len(spellings):
            counts[at] += raw[cell]
        elif value:
            spellings.append(cell)
            counts.append(raw[cell])
        else:
            del first[value]
    return DistinctCells(list(first), spellings, counts)


def _canonical_all(cells: list[str], profile: str) -> list[str]:
    if len(cells) < _MANY:
        return [canonical(cell, profile) for cell in cells]
    try:
        values: list[str] = canonical_array(pa.array(cells, pa.string()), profile).to_pylist()
    except UnicodeEncodeError:  # lone surrogates fit no Arrow string
        return [canonical(cell, profile) for cell in cells]
    return values
