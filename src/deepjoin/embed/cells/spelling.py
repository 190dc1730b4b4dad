"""Typing errors: for a word nobody knows, the known word that is one slip of the finger away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: Shorter words have too many neighbours that are words themselves.
SHORTEST = 6
#: From here on one letter may be missing in one place and another be too many elsewhere.
LONG = 9
_BASE = 0x9E3779B97F4A7C15
_INVERSE = np.uint64(pow(_BASE, -1, 1 << 64))
_LONGEST = 40
_NOBODY = np.iinfo(np.int64).max
_POWERS = np.array([pow(_BASE, at, 1 << 64) for at in range(_LONGEST + 2)], np.uint64)
_PLACES = np.array([pow(_BASE ^ 0xFFFF, at + 3, 1 << 64) for at in range(_LONGEST + 2)], np.uint64)


class Speller:
    """Known words, the likeliest first, and the keys under which their slips are found.

    A word is a number whose digits are its letters, so that what remains of it without a letter,
    or with two swapped, is a sum away. First letters are held to be right. In long words a letter
    may be missing in one place and another too many elsewhere: phillipines, cincinatti.
    """

    def __init__(self, words: Sequence[str]) -> None:
        letters, lengths = _letters(words)
        wholes, shorter = _hashes(letters)
        self._whole, self._word = np.unique(wholes, return_index=True)
        rows, places = _inner(lengths)
        keys = shorter[rows, places] ^ _PLACES[places]
        self._key, first = np.unique(keys, return_index=True)
        self._owner = rows[first]
        long = lengths[rows] >= LONG
        self._rest, first = np.unique(shorter[rows, places][long], return_index=True)
        self._long = rows[long][first]

    def nearest(self, words: Sequence[str]) -> Int:
        """Give the number of the known word one slip away from each, or -1.

        >>> Speller(["germany", "georgia"]).nearest(["germny", "gregory", "georgia"]).tolist()
        [0, -1, -1]
        """
        letters, lengths = _letters(words)
        wholes, shorter = _hashes(letters)
        best = np.full(len(words), _NOBODY)
        rows, places = _inner(lengths)
        without = shorter[rows, places]
        self._note(best, rows, _find(self._key, self._owner, without ^ _PLACES[places]))
        self._note(best, rows, _find(self._whole, self._word, without))
        long = lengths[rows] >= LONG
        self._note(best, rows[long], _find(self._rest, self._long, without[long]))
        swapped = _swapped(letters, wholes, rows, places)
        self._note(best, rows, _find(self._whole, self._word, swapped))
        rows, places = _inner(lengths + 1)
        self._note(best, rows, _find(self._key, self._owner, wholes[rows] ^ _PLACES[places]))
        known = _find(self._whole, self._word, wholes) >= 0
        return np.where(known | (best == _NOBODY), -1, best)

    @staticmethod
    def _note(best: Int, rows: Int, found: Int) -> None:
        np.minimum.at(best, rows[found >= 0], found[found >= 0])


def _letters(words: Sequence[str]) -> tuple[Hashes, Int]:
    """Write words as rows of letters, zeros after their ends."""
    lengths = np.fromiter((len(word) for word in words), np.int64, len(words))
    packed = np.array([word.encode() for word in words], f"S{_LONGEST}")
    letters = packed.view(np.uint8).reshape(len(words), _LONGEST).astype(np.uint64)
    return letters, np.minimum(lengths, _LONGEST)


def _hashes(letters: Hashes) -> tuple[Hashes, Hashes]:
    """Hash each word whole, and without each of its letters."""
    before = np.cumsum(letters * _POWERS[: letters.shape[1]], axis=1)
    whole = before[:, -1]
    without = before - letters * _POWERS[: letters.shape[1]]
    return whole, without + (whole[:, None] - before) * _INVERSE


def _inner(lengths: Int) -> tuple[Int, Int]:
    """List every letter but the first: its word, its place."""
    counts = np.maximum(lengths - 1, 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return rows, np.arange(len(rows)) - first + 1


def _swapped(letters: Hashes, wholes: Hashes, rows: Int, places: Int) -> Hashes:
    """Hash words with a letter and the next one exchanged."""
    after = np.minimum(places + 1, letters.shape[1] - 1)
    gap = letters[rows, after] - letters[rows, places]
    swapped: Hashes = wholes[rows] + gap * _POWERS[places] - gap * _POWERS[after]
    return swapped


def _find(keys: Hashes, owners: Int, asked: Hashes) -> Int:
    """Look keys up in a sorted list; -1 where there are none."""
    if not len(keys):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, owners[at], -1)
