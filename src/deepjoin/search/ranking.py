"""The order of hits, defined: joinability, then reverse coverage, rarity, name, place."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
#: Gives the rows of some candidates a key; smaller is better.
Key = Callable[[Int], npt.NDArray[np.generic]]
Keys = npt.NDArray[np.generic]

_WORD = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+|\d+")


def best_rows(order: Int, k: int | None, keys: list[Key]) -> tuple[Int, list[Keys]]:
    """Return the rows of the best k candidates, best first, and their keys.

    A later key is asked only for the candidates that the earlier ones leave in the running;
    ``order`` decides between those that all keys leave equal.
    """
    rows = np.arange(len(order))
    known: list[Keys] = []
    for key in keys:
        known.append(key(rows))
        if k is None or len(rows) <= k:
            continue
        running = _running(known, k)
        rows = rows[running]
        known = [values[running] for values in known]
    best = np.lexsort((order[rows], *reversed(known)))[:k]
    return rows[best], [values[best] for values in known]


def _running(known: list[Keys], k: int) -> Int:
    """Return the places not worse than the k-th, ties included."""
    first = known[0]
    if len(known) == 1:
        return np.flatnonzero(first <= np.partition(first, k - 1)[k - 1])
    order = np.lexsort(tuple(reversed(known)))
    last = order[k - 1]
    tied = np.all([values[order[k:]] == values[last] for values in known], axis=0)
    # Ties with the k-th follow it directly.
    return np.sort(order[: k + int(np.argmin(np.append(tied, False)))])


@lru_cache(maxsize=1 << 16)
def name_similarity(one: str, other: str) -> float:
    """Share of words two column names have in common.

    >>> name_similarity("customer_country", "Country name")
    0.3333333333333333
    """
    mine, theirs = name_words(one), name_words(other)
    return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


@lru_cache(maxsize=1 << 12)
def name_words(name: str) -> frozenset[str]:
    """Split a column name into words, at case changes as well."""
    return frozenset(word.lower() for word in _WORD.findall(name))
