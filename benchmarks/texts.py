"""Synthetic words: a different text for each number, with the lengths of a real corpus."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Int

_CONSONANTS = "bcdfghjklmnprstvwxyz"
_SYLLABLES = [c + v for c in _CONSONANTS for v in "aeiou"]
_BASE = len(_SYLLABLES)
_LONGEST = 100
_VARIANTS = 64
#: Numbers below each bound get that many syllables: the most frequent values are the shortest.
_BOUNDS = ((2, _BASE**2), (3, _BASE**3), (5, _BASE**5))


class Texts:
    """Turns numbers into texts: a word that encodes the number, then words up to its length."""

    def __init__(self, lengths: Int, seed: int) -> None:
        self._lengths = np.clip(lengths, 1, _LONGEST)
        self._first = pa.array([syllable.capitalize() for syllable in _SYLLABLES])
        self._next = pa.array([*_SYLLABLES, ""])
        self._tails = pa.array(_tails(np.random.default_rng(seed)))

    def of(self, numbers: Int) -> pa.Array:
        """Write each number, from 0 to 10 ** 10, as a text that no other number has."""
        digits, syllables = _digits(numbers)
        parts = [self._first.take(pa.array(digits[0]))]
        parts += [self._next.take(pa.array(digit)) for digit in digits[1:]]
        chosen = _scrambled(numbers)
        wanted = self._lengths[chosen % len(self._lengths)] - 2 * syllables
        tail = np.maximum(wanted, 0) * _VARIANTS + (chosen >> 40) % _VARIANTS
        return pc.binary_join_element_wise(*parts, self._tails.take(pa.array(tail)), "")


def _digits(numbers: Int) -> tuple[list[Int], Int]:
    """Split numbers into syllables; those a number does not need are the blank one."""
    digits = [np.full(len(numbers), _BASE) for _ in range(_BOUNDS[-1][0])]
    syllables = np.zeros(len(numbers), np.int64)
    lower = 0
    for count, bound in _BOUNDS:
        here = np.flatnonzero((numbers >= lower) & (numbers < bound))
        # A factor prime to the base mixes the digits and keeps numbers apart.
        rest = numbers[here] * 7_654_321 % bound
        for place in range(count):
            digits[place][here] = rest % _BASE
            rest //= _BASE
        syllables[here] = count
        lower = bound
    return digits, syllables


def _scrambled(numbers: Int) -> Int:
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(1)).astype(np.int64)


def _tails(random: np.random.Generator) -> list[str]:
    """Write some runs of words for every length; each starts with a space, none ends with one."""
    text = "".join(
        "".join(random.choice(_SYLLABLES, random.integers(1, 5))) + " " for _ in range(4096)
    )
    starts = random.integers(0, len(text) - _LONGEST, (_LONGEST + 1, _VARIANTS))
    return [_tail(text, start, length) for length, row in enumerate(starts) for start in row]


def _tail(text: str, start: int, length: int) -> str:
    if length < 2:
        return ""
    return " " + text[start : start + length - 1].strip().ljust(length - 1, "n")
