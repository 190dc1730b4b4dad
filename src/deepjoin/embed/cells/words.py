"""Word vectors: weights of a word's pieces and letters, and the spelling of unknown words.

A known word is mostly its piece, an unknown one mostly its letters. A word that looks mistyped
also takes part of the known word one edit away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deepjoin.arrays import Float, Hashes, Int, Marks
from deepjoin.embed.cells.tokens import Bags
from deepjoin.lazy import cached_property

#: Words shorter than this are not corrected: too many of their neighbours are words themselves.
SHORTEST = 6
#: From this length, one letter may be missing in one place and another added elsewhere.
LONG = 9
#: Letters of a word that are hashed: longer ones are cut before.
LONGEST = 40
#: Base of the polynomial hash of a word, its inverse modulo 2**64, and its powers.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = np.uint64(pow(_BASE, -1, 1 << 64))
_INVERSES = np.array([pow(_BASE, -at, 1 << 64) for at in range(LONGEST + 2)], np.uint64)
_POWERS = np.array([pow(_BASE, at, 1 << 64) for at in range(LONGEST + 2)], np.uint64)
#: Marks in a key the place where a letter was removed.
_PLACES = np.array([pow(_BASE ^ 0xFFFF, at + 3, 1 << 64) for at in range(LONGEST + 2)], np.uint64)
_NOT_FOUND = np.iinfo(np.int64).max
#: Up to this many words are looked up among those that begin as they do.
_FEW = 1 << 8
#: The most bits of a hash that are marked, and an odd number that mixes the others into them.
_MARKED_BITS, _MIXER = 21, np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class Recipe:
    """Weights of the parts of a word, and of the words of a value.

    ``known`` is the length of the letters of a word that is one piece, as a share of the piece's
    length. A word of several pieces has the length ``split``; its pieces together are ``fragments``
    of its letters, because where a tokenizer cuts an unknown word says little. ``slip`` is the
    share of the correct word in a mistyped one. Lengths are raised to 1 - ``even``: rare words
    count more, but one rare word must not drown the others. Words after a comma count ``behind``,
    those in parentheses ``aside``. A number among words gets its own direction with the length
    ``number``; a word of letters and digits adds such a direction, ``code`` times its length.
    """

    known: float = 0.7
    split: float = 1.5
    fragments: float = 0.25
    slip: float = 0.5
    even: float = 0.5
    behind: float = 0.7
    aside: float = 0.5
    number: float = 0.5
    code: float = 1.0


def weights(pieces: Float, letters: Float, is_split: Marks, recipe: Recipe) -> tuple[Float, Float]:
    """Return the weights of each word's sum of piece rows and of its sum of letter rows."""
    piece_lengths = _lengths(pieces)
    along: Float = np.where(is_split, np.float32(recipe.fragments) / piece_lengths, np.float32(1))
    across: Float = np.where(is_split, np.float32(1), np.float32(recipe.known) * piece_lengths)
    across = across / _lengths(letters)
    mixed = _lengths(along[:, None] * pieces + across[:, None] * letters)
    whole = np.where(is_split, np.float32(recipe.split) / mixed, np.float32(1))
    return along * whole, across * whole


def slip_ratios(own: Float, correct: Float, share: float) -> Float:
    """Return the factors that make mistyped words as long as the correct ones."""
    ratios: Float = _lengths(correct) / _lengths(own) * np.float32(1 - share)
    return ratios


def levelled(vectors: Float, even: float) -> Float:
    """Return the factors that bring the lengths of word vectors closer together."""
    factors: Float = _lengths(vectors) ** np.float32(-even)
    return factors


def shades(starts: Int, numbers: Int, words: Sequence[str], recipe: Recipe) -> Float:
    """Weigh the words of each value: less after a comma, and still less in parentheses.

    Such words tell namesakes apart, but say less about what the value is.

    >>> words = ["paris,", "texas", "(the", "film)"]
    >>> shades(np.array([0, 4]), np.arange(4), words, Recipe()).tolist()
    [1.0, 0.699999988079071, 0.5, 0.5]
    """
    if not any(mark in word for word in words for mark in ",()[]"):
        return np.ones(len(numbers), np.float32)
    commas, opened, closed = (of[numbers] for of in _marks_of(words))
    inside = _before(opened, starts) + opened > _before(closed, starts)
    first = np.zeros(len(numbers), np.bool_)
    first[starts[:-1][np.diff(starts) > 0]] = True
    weights = np.where(_before(commas, starts) > 0, np.float32(recipe.behind), np.float32(1))
    return np.where(inside & ~first, np.float32(recipe.aside), weights)


def _marks_of(words: Sequence[str]) -> Iterator[Int]:
    """Say of words whether they end in a comma, and count what they open and close."""
    if len(words) <= _FEW:  # for which Arrow compiles its patterns longer than it searches
        yield np.array([word[-1:] == "," for word in words], np.int64)
        for one, other in ("([", ")]"):
            yield np.array([word.count(one) + word.count(other) for word in words], np.int64)
        return
    texts = pa.array(words, pa.string())
    for pattern in (",$", r"[(\[]", r"[)\]]"):
        yield np.asarray(pc.count_substring_regex(texts, pattern)).astype(np.int64)


def _before(counts: Int, starts: Int) -> Int:
    """Sum the counts of the words before each word of the same value."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    before: Int = sums[:-1] - np.repeat(sums[starts[:-1]], np.diff(starts))
    return before


def is_split(words: Sequence[str], bags: Bags) -> Marks:
    """Mark words of several pieces or none, except numbers, whose pieces are arbitrary."""
    counts = np.diff(bags.starts)
    named = np.fromiter((not word.isdigit() for word in words), np.bool_, len(words))
    split: Marks = (counts != 1) & named
    return split


class KnownWords:
    """Keeps the vectors of the first words it meets, up to a number from 1; threads may share it.

    The values of a lake come in the order of hashes, so frequent words are among the first.
    """

    #: Bytes of a word beside its vector.
    BYTES = 200

    def __init__(self, most: int, dimension: int) -> None:
        self._rows = np.empty((most, dimension), np.float32)
        self._places: dict[str, int] = {}
        self._adding = Lock()

    @property
    def is_full(self) -> bool:
        """Whether it takes no more words."""
        return len(self._places) >= len(self._rows)

    def vectors(self, words: Sequence[str], make: Callable[[Sequence[str]], Float]) -> Float:
        """Return the vector of each word; ``make`` computes those that are not known."""
        places = np.fromiter(map(self._places.get, words, repeat(-1)), np.int64, len(words))
        new = np.flatnonzero(places < 0)
        found: Float = np.take(self._rows, places, axis=0, mode="clip")
        if len(new):
            unknown = [words[at] for at in new.tolist()]
            made = found[new] = make(unknown)
            with self._adding:
                room = len(self._rows) - len(self._places)
                # Another thread may have met them meanwhile.
                added = [at for at, word in enumerate(unknown) if word not in self._places][:room]
                first = len(self._places)
                self._rows[first : first + len(added)] = made[added]
                self._places.update((unknown[at], first + i) for i, at in enumerate(added))
        return found


def _lengths(rows: Float) -> Float:
    """Return the length of each row, 1 for a row of zeros, so that it can be a divisor."""
    lengths: Float = np.linalg.norm(rows, axis=1)
    return np.where(lengths > 0, lengths, np.float32(1))


class Speller:
    """Known words, most common first, indexed by hashes of their misspellings.

    The hash of a word is a polynomial in its letters, so the hash without one letter, or with two
    swapped, takes one sum. First letters are assumed to be right. In long words a letter may be
    missing in one place and another added elsewhere: phillipines, cincinatti.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        #: A few words need the words of a few letters alone, whose index is made soon.
        self._by_letter: dict[str, tuple[Int, _Misspellings]] = {}
        self._whole: _Misspellings | None = None
        self._making = Lock()

    def nearest(self, words: Sequence[str]) -> Int:
        """Return the number of the known word one edit away from each word, or -1.

        >>> Speller(["germany", "georgia"]).nearest(["germny", "gregory", "georgia"]).tolist()
        [0, -1, -1]
        """
        if self._whole is None and len(words) > _FEW:
            self._whole = _Misspellings(self.words)
        if self._whole is not None:
            return self._whole.nearest(words)
        found = np.full(len(words), -1)
        firsts = np.array([word[:1] for word in words])
        for letter in dict.fromkeys(firsts.tolist()):
            mine = np.flatnonzero(firsts == letter)
            numbers, known = self._beginning(letter)
            found[mine] = numbers[known.nearest([words[at] for at in mine.tolist()])]
        return found

    def _beginning(self, letter: str) -> tuple[Int, _Misspellings]:
        """Return the known words that begin with a letter: their numbers, and their index."""
        with self._making:
            if letter not in self._by_letter:
                some = np.flatnonzero(self._firsts == ord(letter or "\0")).tolist()
                numbers = np.append(np.array(some, np.int64), -1)  # -1 stays -1
                self._by_letter[letter] = numbers, _Misspellings([self.words[at] for at in some])
            return self._by_letter[letter]

    @cached_property
    def _firsts(self) -> Int:
        """The first letter of each word."""
        letters = (ord(word[:1] or "\0") for word in self.words)
        return np.fromiter(letters, np.int64, len(self.words))


class _Misspellings:
    """Hashes of known words and of what is one edit away from them."""

    def __init__(self, words: Sequence[str]) -> None:
        hashed = hashed_words(words)
        lengths = hashed.lengths
        self._wholes = HashIndex(hashed.wholes, np.arange(len(words)))
        rows, places = _inner(lengths)
        without = _without(hashed)[rows, places]
        self._holes = HashIndex(without ^ _PLACES[places], rows)
        long = lengths[rows] >= LONG
        self._rests = HashIndex(without[long], rows[long])

    def nearest(self, words: Sequence[str]) -> Int:
        """Return the number of the known word one edit away from each word, or -1."""
        hashed = hashed_words(words)
        letters, lengths, wholes = hashed.letters, hashed.lengths, hashed.wholes
        rows, places = _inner(lengths)
        without = _without(hashed)[rows, places]
        long = lengths[rows] >= LONG
        after = np.minimum(places + 1, letters.shape[1] - 1)
        gap = letters[rows, after] - letters[rows, places]
        swapped = wholes[rows] + gap * _POWERS[places] - gap * _POWERS[after]
        longer, gaps = _inner(lengths + 1)
        best = np.full(len(words), _NOT_FOUND)
        for edited, found in (
            (rows, self._holes.find(without ^ _PLACES[places])),  # a wrong letter
            (rows, self._wholes.find(without)),  # a letter too many
            (rows[long], self._rests.find(without[long])),  # one moved
            (rows, self._wholes.find(swapped)),  # two neighbours swapped
            (longer, self._holes.find(wholes[longer] ^ _PLACES[gaps])),  # one missing
        ):
            # The lowest number wins, which is the most common word.
            np.minimum.at(best, edited[found >= 0], found[found >= 0])
        known = self._wholes.find(wholes) >= 0
        return np.where(known | (best == _NOT_FOUND), -1, best)


class HashedWords(NamedTuple):
    """Words of up to `LONGEST` ASCII letters, a row each, and sums of their letters' terms."""

    letters: Hashes
    lengths: Int
    #: The hash of the first letter, of the first two, and so on.
    sums: Hashes

    @property
    def wholes(self) -> Hashes:
        """The hash of each word."""
        return self.sums[:, -1]


def hashed_words(words: Sequence[str]) -> HashedWords:
    """Hash words by polynomials in their letters."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    packed = np.array([word.encode() for word in words], f"S{LONGEST}")
    letters = packed.view(np.uint8).reshape(len(words), LONGEST).astype(np.uint64)
    sums = np.cumsum(letters * _POWERS[:LONGEST], axis=1)
    return HashedWords(letters, np.minimum(lengths, LONGEST), sums)


def hashed_parts(words: HashedWords, rows: Int, starts: Int, ends: Int) -> Hashes:
    """Hash parts of some words, which are not empty, as if they were words."""
    flat, at = words.sums.ravel(), rows * LONGEST
    before = np.where(starts > 0, flat[at + starts - 1], np.uint64(0))
    parts: Hashes = (flat[at + ends - 1] - before) * _INVERSES[starts]
    return parts


def _without(words: HashedWords) -> Hashes:
    """Hash each word without its first letter, without its second, and so on."""
    terms = words.letters * _POWERS[:LONGEST]
    # Letters after the removed one move one place forward: their terms lose one power of the base.
    rest = (words.wholes[:, None] - words.sums) * _INVERSE
    without: Hashes = words.sums - terms + rest
    return without


def _inner(lengths: Int) -> tuple[Int, Int]:
    """List every letter except first ones: the number of its word, and its place."""
    counts = np.maximum(lengths - 1, 0)
    rows = np.repeat(np.arange(len(lengths)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return rows, np.arange(len(rows)) - first + 1


class HashIndex:
    """Looks hashes up; where several owners have one, the first counts."""

    def __init__(self, hashes: Hashes, owners: Int) -> None:
        # As `np.unique` with the first places, whose stable sort takes several times as long.
        order = np.argsort(hashes)
        ascending = hashes[order]
        starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: len(hashes)])
        self._keys = ascending[starts]
        first = np.minimum.reduceat(order, starts) if len(starts) else order
        self._owners = owners[first]
        #: Marks some bits of every hash: most that are looked up are not there.
        self._bits = min(_MARKED_BITS, (16 * len(self._keys)).bit_length() + 1)
        self._marks = np.zeros(1 << self._bits, bool)
        self._marks[_some_bits(self._keys, self._bits)] = True

    def find(self, wanted: Hashes) -> Int:
        """Return the owner of each hash; -1 where there is none."""
        found = np.full(len(wanted), -1)
        some = np.flatnonzero(self._marks[_some_bits(wanted, self._bits)])
        if len(some) == 0:
            return found
        at = np.minimum(np.searchsorted(self._keys, wanted[some]), len(self._keys) - 1)
        found[some] = np.where(self._keys[at] == wanted[some], self._owners[at], -1)
        return found


def _some_bits(hashes: Hashes, bits: int) -> Hashes:
    """Mix a hash into fewer bits."""
    return (hashes * _MIXER) >> np.uint64(64 - bits)
