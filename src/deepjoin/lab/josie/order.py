"""The order of tokens: by frequency, then by posting list, so that equal lists are neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]


class Ordered(NamedTuple):
    """Values numbered anew as tokens, and the sets as ascending tokens."""

    token_of: Small
    #: In how many live sets each token is, ascending.
    frequency: Int
    set_offsets: Int
    tokens: Small
    sizes: Small


def ordered(
    offsets: Int, values: npt.NDArray[np.uint32], dead: npt.NDArray[np.bool_] | None
) -> Ordered:
    """Give the values new numbers, and sort every set by these."""
    sizes = np.diff(offsets)
    count = int(values.max()) + 1 if len(values) else 0
    if dead is not None:
        values = values[~np.repeat(dead, sizes)]
        sizes = np.where(dead, 0, sizes)
    sets = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    frequency = np.bincount(values, minlength=count)
    order = np.lexsort((_signatures(sets, values, count), frequency))
    token_of = np.empty(count, np.int32)
    token_of[order] = np.arange(count, dtype=np.int32)
    pairs = sets << 32 | token_of[values]
    pairs.sort()
    tokens = (pairs & 0xFFFFFFFF).astype(np.int32)
    set_offsets = np.append(0, np.cumsum(sizes))
    return Ordered(token_of, frequency[order], set_offsets, tokens, sizes.astype(np.int32))


def _signatures(sets: Int, values: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.uint64]:
    """Hash the posting list of each value: the sum, modulo 2**64, of its sets' hashes.

    It only brings equal lists together; whether two are equal is seen on the lists themselves.
    """
    sums = np.zeros(count, np.uint64)
    np.add.at(sums, values, _mixed(sets.astype(np.uint64)))
    return sums


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread numbers over 64 bits: the finaliser of splitmix64, a bijection."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
